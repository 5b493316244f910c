//! A TLS stream that notes why the server refused the session.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use delayline_core::{Error, ErrorKind};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use super::refusal::{Stream, TlsRefusal};

/// A TLS stream whose handshake has ended for the client.
pub(super) struct Session {
    stream: TlsStream<TcpStream>,
    refusal: TlsRefusal,
    /// The server has sent data, so it did not refuse.
    is_accepted: bool,
}

impl Session {
    pub(super) fn new(stream: TlsStream<TcpStream>) -> Self {
        Self { stream, refusal: TlsRefusal::default(), is_accepted: false }
    }
}

impl Stream for Session {
    fn tls_refusal(&self) -> TlsRefusal {
        self.refusal.clone()
    }
}

impl AsyncRead for Session {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let filled = buf.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buf);
        if let Poll::Ready(read) = &read
            && !self.is_accepted
        {
            self.is_accepted = buf.filled().len() > filled;
            if !self.is_accepted {
                let failure = read.as_ref().err().and_then(crate::tls::failure_of);
                self.refusal.note(failure.unwrap_or_else(ended));
            }
        }
        read
    }
}

impl AsyncWrite for Session {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// The server speaks TLS, so the words must not suggest to do without it.
fn ended() -> Error {
    Error::with_detail(ErrorKind::Unreachable, "the server ended the TLS session")
}
