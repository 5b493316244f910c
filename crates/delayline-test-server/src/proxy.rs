//! A proxy in front of a [`Server`] that loses requests and replies on demand.
//!
//! It understands just enough of the protocol to tell where a request ends, so a cut hits exactly
//! one request. It talks to the server over its unix socket, hence without TLS.
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! use delayline_test_server::{Server, proxy::{Fault, Proxy}};
//!
//! let server = Server::start();
//! let proxy = Proxy::start(&server).await.unwrap();
//! // connect a client to `proxy.url()`, then:
//! proxy.once(Fault::CutAfterExecution, "EVALSHA");
//! // its next EVALSHA is executed, but the connection ends before the reply.
//! # });
//! ```

mod connection;
mod faults;
mod frame;

use std::io;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::Duration;

use socket2::{SockRef, Socket};
use tempfile::TempDir;
use tokio::net::{TcpListener, UnixListener, UnixStream};
use tokio::task::{JoinHandle, JoinSet};

use self::connection::serve;
pub use self::faults::{End, Fault};
use self::faults::{Rules, Shared};
use crate::Server;

/// A proxy in front of a [`Server`], on its own TCP port or unix socket.
///
/// At first everything passes. Faults apply to requests that arrive afterwards, on old connections
/// as on new ones, a client's opening `HELLO` and `AUTH` included. Dropping the proxy ends all
/// connections.
pub struct Proxy {
    url: String,
    shared: Shared,
    accepting: JoinHandle<()>,
    _home: Option<TempDir>,
}

impl Proxy {
    /// Listens on a TCP port of 127.0.0.1. Needs a tokio runtime, and lives on it.
    ///
    /// # Errors
    ///
    /// The operating system has no port.
    pub async fn start(server: &Server) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let url = format!("redis://{}", listener.local_addr()?);
        let (shared, upstream) = (Shared::default(), server.unix_path());
        let accepting = tokio::spawn(accept(shared.clone(), upstream, async move || {
            let (stream, _) = listener.accept().await?;
            stream.set_nodelay(true)?;
            let socket = SockRef::from(&stream).try_clone()?;
            Ok((stream, Some(socket)))
        }));
        Ok(Self { url, shared, accepting, _home: None })
    }

    /// Listens on a unix socket. Needs a tokio runtime, and lives on it.
    ///
    /// # Errors
    ///
    /// The operating system refuses the socket.
    pub async fn start_unix(server: &Server) -> io::Result<Self> {
        let home = crate::launch::home()?;
        let path = home.path().join(crate::launch::SOCKET);
        let listener = UnixListener::bind(&path)?;
        let url = format!("unix:{}", path.display());
        let (shared, upstream) = (Shared::default(), server.unix_path());
        let accepting = tokio::spawn(accept(shared.clone(), upstream, async move || {
            listener.accept().await.map(|(stream, _)| (stream, None))
        }));
        Ok(Self { url, shared, accepting, _home: Some(home) })
    }

    /// Where clients connect: `redis://127.0.0.1:PORT` or `unix:PATH`.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// From now on every request meets this fault.
    pub fn set(&self, fault: Fault) {
        self.shared.rules.send_modify(|rules| rules.always = Some(fault));
    }

    /// Passes everything from now on, held data included, and drops a pending one-time fault.
    pub fn heal(&self) {
        self.shared.rules.send_modify(|rules| *rules = Rules::default());
    }

    /// The next request that contains `needle` (its command's name, say, in the case that the
    /// client sends) meets this fault, the ones after it don't. `""` is in every request.
    pub fn once(&self, fault: Fault, needle: impl Into<Vec<u8>>) {
        let needle = needle.into();
        self.shared.rules.send_modify(|rules| rules.once = Some((fault, needle)));
    }

    /// Ends every connection that is open now.
    pub fn cut_all(&self) {
        self.shared.cuts.send_modify(|cuts| *cuts += 1);
    }

    /// How many requests have met a fault.
    #[must_use]
    pub fn faults(&self) -> u64 {
        *self.shared.faults.borrow()
    }

    /// Waits until at least this many requests have met a fault.
    pub async fn wait_for_faults(&self, count: u64) {
        // An error would mean that the sender, which `self` holds, is gone.
        let _ = self.shared.faults.subscribe().wait_for(|&faults| faults >= count).await;
    }

    /// How many connections are open.
    #[must_use]
    pub fn connections(&self) -> usize {
        // One receiver a connection.
        self.shared.cuts.receiver_count()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        // The task owns the connections.
        self.accepting.abort();
    }
}

/// Accepts connections until aborted. A TCP connection comes with a second handle of its socket.
async fn accept<S>(
    shared: Shared,
    upstream: PathBuf,
    next: impl AsyncFn() -> io::Result<(S, Option<Socket>)>,
) where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + 'static,
{
    // Dropped with this task, and every connection with it.
    let mut connections = JoinSet::new();
    while let Ok((client, socket)) = next().await {
        while connections.try_join_next().is_some() {}
        let (shared, upstream, mut cuts) =
            (shared.clone(), upstream.clone(), shared.cuts.subscribe());
        connections.spawn(async move {
            // A server that is not there is met as a connection that ends.
            let Ok(server) = UnixStream::connect(&upstream).await else {
                return;
            };
            let reset = tokio::select! {
                reset = serve(client, server, &shared) => reset,
                _ = cuts.changed() => false,
            };
            if let Some(socket) = socket
                && reset
            {
                // It ends with this, its last handle, and without the usual farewell.
                let _ = socket.set_linger(Some(Duration::ZERO));
            }
        });
    }
}
