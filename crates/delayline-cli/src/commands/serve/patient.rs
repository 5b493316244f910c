//! Connections that bound the time for a client to read its answers, and let it read the last one.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::http::Request;
use hyper::body::{Frame, Incoming, SizeHint};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep, sleep_until};

/// Fails writes that wait for longer than `patience` because the other end does not read.
///
/// Each byte that the other end reads extends the deadline, at [`SLOWEST`] bytes a second, up to
/// `patience` from now.
///
/// When it is shut down, it reads the rest of a request that was answered early, for up to
/// `patience`. Otherwise the kernel would reset a connection with unread data, and a client that
/// writes everything before it reads would lose its answer.
pub(super) struct Patient<S> {
    stream: S,
    patience: Duration,
    /// Until when the data that has to be written may wait, once it waits.
    deadline: Option<Pin<Box<Sleep>>>,
    unread: Unread,
    /// Until when the rest of a request is read, once the answer has been written.
    rest: Option<Pin<Box<Sleep>>>,
}

impl<S> Patient<S> {
    pub(super) const fn new(stream: S, patience: Duration, unread: Unread) -> Self {
        Self { stream, patience, deadline: None, unread, rest: None }
    }

    /// Fails a write that has waited for too long, and extends the deadline after a successful one.
    fn judged(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        let latest = Instant::now() + self.patience;
        match written {
            Poll::Pending => {
                let deadline = self.deadline.get_or_insert_with(|| Box::pin(sleep_until(latest)));
                ready!(deadline.as_mut().poll(context));
                Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
            }
            Poll::Ready(Ok(bytes)) => {
                if let Some(deadline) = &mut self.deadline {
                    let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
                    let gained = Duration::from_millis(bytes.saturating_mul(1_000) / SLOWEST);
                    let longer = deadline.deadline().checked_add(gained).unwrap_or(latest);
                    deadline.as_mut().reset(longer.min(latest));
                }
                Poll::Ready(Ok(bytes))
            }
            failed @ Poll::Ready(Err(_)) => failed,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Patient<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Patient<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.judged(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, bytes);
        self.judged(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        if flushed.is_ready() {
            // Everything is written: the next answer has all the time again.
            self.deadline = None;
        }
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Self { stream, patience, unread, rest, .. } = &mut *self;
        if rest.is_none() {
            ready!(Pin::new(&mut *stream).poll_shutdown(context))?;
        }
        let rest = rest.get_or_insert_with(|| Box::pin(sleep(*patience)));
        let mut buffer = [0; 8 * 1_024];
        while rest.as_mut().poll(context).is_pending() {
            let mut buffer = ReadBuf::new(&mut buffer);
            match Pin::new(&mut *stream).poll_read(context, &mut buffer) {
                Poll::Ready(Ok(())) if !buffer.filled().is_empty() => unread.set(true),
                Poll::Pending if unread.get() => return Poll::Pending,
                _ => break,
            }
        }
        Poll::Ready(Ok(()))
    }
}

/// Whether a part of the latest request of a connection may be unread.
#[derive(Clone, Default)]
pub(super) struct Unread(Arc<AtomicBool>);

impl Unread {
    /// Follows the body of a request as it is read.
    pub(super) fn follow(&self, request: Request<Incoming>) -> Request<Body> {
        self.set(!request.body().is_end_stream());
        let unread = self.clone();
        request.map(|body| Body::new(Followed { body, unread }))
    }

    fn get(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    fn set(&self, unread: bool) {
        self.0.store(unread, Ordering::Relaxed);
    }
}

/// A body that says when it has been read.
struct Followed {
    body: Incoming,
    unread: Unread,
}

impl HttpBody for Followed {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        self.unread.set(frame.is_some() && !self.body.is_end_stream());
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Bytes a second.
const SLOWEST: u64 = 4 * 1_024;

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(30);

    /// How long a connection takes to close whose client sends this many bytes meanwhile.
    async fn closed(is_unread: bool, sent: usize, client_closes: bool) -> Duration {
        let (mut client, server) = duplex(1_000);
        let unread = Unread::default();
        unread.set(is_unread);
        let mut server = Patient::new(server, PATIENCE, unread);
        let begin = Instant::now();
        let sending = async {
            client.write_all(&vec![0; sent]).await.unwrap();
            if client_closes {
                client.shutdown().await.unwrap();
            }
        };
        tokio::join!(async { server.shutdown().await.unwrap() }, sending);
        begin.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn the_rest_of_a_request_is_read_before_a_connection_is_closed() {
        // The client of an idle connection need not notice that it ends.
        assert_eq!(closed(false, 0, false).await, Duration::ZERO);
        assert_eq!(closed(true, 1 << 20, true).await, Duration::ZERO);
        let last = closed(true, 1 << 20, false).await;
        assert!((PATIENCE..PATIENCE * 2).contains(&last), "{last:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_to_a_client_that_does_not_read_fails() {
        let (mut client, server) = duplex(1_000);
        let mut server = Patient::new(server, PATIENCE, Unread::default());
        // What fits is written, at any distance.
        server.write_all(&[0; 1_000]).await.unwrap();
        sleep(PATIENCE * 5).await;
        let begin = Instant::now();
        let error = server.write_all(&[0; 1]).await.unwrap_err();
        assert_eq!((error.kind(), begin.elapsed()), (io::ErrorKind::TimedOut, PATIENCE));
        client.read_exact(&mut [0; 1_000]).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_reads_slowly_has_time_and_one_that_trickles_has_not() {
        for (bytes, pause, passes) in [(16_384, 3, true), (1, 1, false)] {
            let (mut client, server) = duplex(1_000);
            let mut server = Patient::new(server, PATIENCE, Unread::default());
            let reads = tokio::spawn(async move {
                let mut buffer = vec![0; bytes];
                while client.read_exact(&mut buffer).await.is_ok() {
                    sleep(Duration::from_secs(pause)).await;
                }
            });
            let written = server.write_all(&[0; 1_000_000]).await;
            assert_eq!(written.is_ok(), passes, "{bytes} bytes in {pause} s: {written:?}");
            drop(server);
            reads.await.unwrap();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn each_answer_has_all_the_time() {
        let (mut client, server) = duplex(10);
        let mut server = Patient::new(server, PATIENCE, Unread::default());
        for _ in 0..5 {
            let reads = async {
                sleep(PATIENCE - Duration::from_secs(1)).await;
                client.read_exact(&mut [0; 20]).await.unwrap();
            };
            let (written, ()) = tokio::join!(server.write_all(&[0; 20]), reads);
            written.unwrap();
            server.flush().await.unwrap();
        }
    }
}
