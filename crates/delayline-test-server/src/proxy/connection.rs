//! One connection through the proxy.

use std::future::pending;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::time::sleep;

use super::faults::{End, Fault, Shared};
use super::frame::request_len;

/// Passes requests and replies until either side or a fault ends the connection. Returns whether
/// the client is to find it broken.
pub(super) async fn serve<S: AsyncRead + AsyncWrite>(
    client: S,
    server: UnixStream,
    shared: &Shared,
) -> bool {
    let (from_client, to_client) = tokio::io::split(client);
    let (from_server, to_server) = server.into_split();
    let state = State::default();
    // The first direction to end ends both: the streams are dropped here.
    tokio::select! {
        _ = requests(from_client, to_server, shared, &state) => {}
        _ = replies(from_server, to_client, shared, &state) => {}
    }
    state.reset.load(Ordering::Acquire)
}

/// What the requests of a connection mean for its replies.
#[derive(Default)]
struct State {
    /// Replies are lost up to [`MARK`], which ends the connection.
    swallow: AtomicBool,
    /// Replies are held permanently.
    dark: AtomicBool,
    /// The client is to find the connection broken.
    reset: AtomicBool,
    /// Number of bytes passed on before the connection ends.
    cut: Mutex<Option<(usize, End)>>,
}

async fn requests<R: AsyncRead + Unpin>(
    mut from_client: R,
    mut to_server: OwnedWriteHalf,
    shared: &Shared,
    state: &State,
) -> io::Result<()> {
    let mut buffer = BytesMut::new();
    while from_client.read_buf(&mut buffer).await? > 0 {
        let mut delayed = false;
        while let Some(len) = request_len(&buffer) {
            let request = buffer.split_to(len);
            match fate(&request, shared, state).await {
                Some(Fault::CutBeforeRequest) => return Ok(()),
                Some(Fault::CutAfterExecution) => {
                    state.swallow.store(true, Ordering::Release);
                    to_server.write_all(&request).await?;
                    // Closing now could overtake the request. Its reply has come when the reply
                    // to a request behind it has.
                    to_server.write_all(format!("ECHO {MARK}\r\n").as_bytes()).await?;
                    // `replies` ends the connection; a server that refuses ECHO must not hang it.
                    sleep(MARK_TIMEOUT).await;
                    return Ok(());
                }
                Some(Fault::Delay(time)) if !delayed => {
                    delayed = true;
                    sleep(time).await;
                }
                Some(Fault::CutRequestAt(byte, end)) => {
                    let sent = request.get(..byte).unwrap_or(&request);
                    to_server.write_all(sent).await?;
                    return state.end(end, &mut from_client).await;
                }
                Some(Fault::CutReplyAt(byte, end)) => {
                    *lock(&state.cut) = Some((byte, end));
                }
                Some(Fault::Delay(_) | Fault::Blackhole) | None => {}
            }
            to_server.write_all(&request).await?;
        }
    }
    Ok(())
}

async fn replies<W: AsyncWrite + Unpin>(
    mut from_server: OwnedReadHalf,
    mut to_client: W,
    shared: &Shared,
    state: &State,
) -> io::Result<()> {
    let mut buffer = BytesMut::with_capacity(READ_BYTES);
    loop {
        buffer.reserve(READ_BYTES);
        if from_server.read_buf(&mut buffer).await? == 0 {
            return Ok(());
        }
        if state.swallow.load(Ordering::Acquire) {
            if contains(&buffer, MARK.as_bytes()) {
                return Ok(());
            }
            // The mark may arrive in two pieces.
            let keep = buffer.len().min(MARK.len());
            buffer = buffer.split_off(buffer.len() - keep);
            continue;
        }
        light(shared).await;
        if state.dark.load(Ordering::Acquire) {
            pending::<()>().await;
        }
        let cut = lock(&state.cut).take();
        if let Some((byte, end)) = cut {
            // The server writes a short reply at once, and here it is read at once.
            if byte < buffer.len() {
                count(shared);
                buffer.truncate(byte);
                to_client.write_all_buf(&mut buffer).await?;
                return state.end(end, &mut from_server).await;
            }
        }
        to_client.write_all_buf(&mut buffer).await?;
    }
}

impl State {
    /// Ends the connection. A stalled connection ends when `peer` disconnects.
    async fn end<R: AsyncRead + Unpin>(&self, end: End, peer: &mut R) -> io::Result<()> {
        match end {
            End::Close => {}
            End::Reset => self.reset.store(true, Ordering::Release),
            End::Stall => while peer.read_buf(&mut BytesMut::with_capacity(1024)).await? > 0 {},
        }
        Ok(())
    }
}

fn lock(cut: &Mutex<Option<(usize, End)>>) -> MutexGuard<'_, Option<(usize, End)>> {
    cut.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The fault that a request meets, counted. Returns from a blackhole only when it is gone.
async fn fate(request: &[u8], shared: &Shared, state: &State) -> Option<Fault> {
    let mut once = None;
    shared.rules.send_if_modified(|rules| {
        once = rules.once.take_if(|(_, needle)| contains(request, needle));
        // No task waits for this change.
        false
    });
    if let Some((fault, _)) = once {
        match fault {
            Fault::CutRequestAt(byte, _) if byte > request.len() => return None,
            // Its reply decides whether it counts.
            Fault::CutReplyAt(..) => return Some(fault),
            _ => {}
        }
        if fault == Fault::Blackhole {
            state.dark.store(true, Ordering::Release);
        }
        count(shared);
        if fault == Fault::Blackhole {
            pending::<()>().await;
        }
        return Some(fault);
    }
    let fault = shared.rules.borrow().always?;
    count(shared);
    if fault == Fault::Blackhole {
        light(shared).await;
    }
    Some(fault)
}

/// Waits while everything is held.
async fn light(shared: &Shared) {
    // An error would mean that the sender, which `shared` holds, is gone.
    let _ = shared.rules.subscribe().wait_for(|rules| rules.always != Some(Fault::Blackhole)).await;
}

fn count(shared: &Shared) {
    shared.faults.send_modify(|faults| *faults += 1);
}

fn contains(bytes: &[u8], needle: &[u8]) -> bool {
    needle.is_empty() || bytes.windows(needle.len()).any(|window| window == needle)
}

/// In no reply but the one to our ECHO.
const MARK: &str = "end-of-this-connection-7f3a9c51d2e8";
const MARK_TIMEOUT: Duration = Duration::from_secs(2);
/// More than the replies that are to be cut.
const READ_BYTES: usize = 64 * 1024;
