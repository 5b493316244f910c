//! Connections from clients, which may be slow, many or gone.
//!
//! A client may open many connections, or send requests and read no answers. Other clients, health
//! checks and Prometheus still get connections.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::header::RETRY_AFTER;
use axum::http::{Method, Request, StatusCode};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use delayline_web::ClientAddress;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use ipnet::IpNet;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::time::{sleep, timeout};

use super::patient::{Patient, Unread};
use super::proxies;
use super::slots::{Client, Reserve, Slots};

/// How many connections there may be, and how long they may take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Connections that may make any request.
    connections: usize,
    /// Connections beyond these, for health and metrics only.
    reserve: usize,
    /// For the head of a request, and for the next one to begin.
    head: Duration,
    /// For an answer that the client does not read.
    stall: Duration,
    /// For a connection of the reserve.
    reserved: Duration,
}

impl Limits {
    /// The usual limits of each of `servers` with this many connections, or fewer if this process
    /// may not open as many files.
    pub(super) fn of_this_process(connections: usize, servers: usize) -> Self {
        let usual = Self {
            connections,
            reserve: 64,
            head: Duration::from_secs(30),
            stall: Duration::from_secs(30),
            reserved: Duration::from_secs(10),
        };
        let servers = servers.max(1);
        let others = usual.reserve * servers + OTHER_FILES;
        let wanted = connections.saturating_mul(servers).saturating_add(others);
        let possible = most_files(wanted).saturating_sub(others) / servers;
        if possible < connections {
            tracing::warn!(
                connections = possible,
                "the limit of open files permits no more connections"
            );
        }
        Self { connections: connections.min(possible), ..usual }
    }
}

/// Raises the limit of open files as far as needed and permitted. Returns the new limit.
fn most_files(wanted: usize) -> usize {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let now = current.unwrap_or(u64::MAX);
    let wanted = u64::try_from(wanted).unwrap_or(u64::MAX).min(maximum.unwrap_or(u64::MAX));
    let raised = Rlimit { current: Some(wanted), maximum };
    let files =
        if now < wanted && setrlimit(Resource::Nofile, raised).is_ok() { wanted } else { now };
    usize::try_from(files).unwrap_or(usize::MAX)
}

/// Listens on an address, with room for very many clients that connect at once: the kernel drops
/// what does not fit, and those clients try again after a second.
pub(super) fn on(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // A restarted server must not wait for connections of the last one.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Serves until `end`, to clients that may be behind `proxies`; then requests under way may end
/// within some seconds. Returns the value of `end`.
pub(super) async fn serve<T>(
    listener: TcpListener,
    router: Router,
    limits: Limits,
    proxies: Vec<IpNet>,
    end: impl Future<Output = T>,
) -> T {
    let proxies: Arc<[IpNet]> = proxies.into();
    let few = TowerToHyperService::new(router.clone().layer(from_fn(only_health_and_metrics)));
    let all = TowerToHyperService::new(router);
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(limits.head).max_buf_size(BUFFER);
    let mut once = http.clone();
    once.keep_alive(false);
    let graceful = GracefulShutdown::new();
    let slots = Slots::new(limits.connections);
    let mut reserve = Reserve::new(limits.reserve);
    let mut end = std::pin::pin!(end);
    let ended = loop {
        let accepted = tokio::select! {
            biased;
            ended = &mut end => break ended,
            accepted = accept(&listener) => accepted,
        };
        let Ok((stream, address)) = accepted else { continue };
        let client = Client::of(address.ip());
        let unread = Unread::default();
        let from = |service: &TowerToHyperService<Router>| {
            let (service, unread) = (service.clone(), unread.clone());
            let proxies = Arc::clone(&proxies);
            service_fn(move |mut request: Request<Incoming>| {
                let client = proxies::client(address.ip(), request.headers(), &proxies);
                request.extensions_mut().insert(ClientAddress(client));
                service.call(unread.follow(request))
            })
        };
        let io = TokioIo::new(Patient::new(stream, limits.stall, unread.clone()));
        if let Some(slot) = slots.take(client) {
            let connection = graceful.watch(http.serve_connection(io, from(&all)));
            tokio::spawn(async move {
                // If the client has disconnected, there is no one to answer.
                let _ = connection.await;
                drop(slot);
            });
        } else {
            let connection = graceful.watch(once.serve_connection(io, from(&few)));
            let task = tokio::spawn(async move {
                let _ = timeout(limits.reserved, connection).await;
            });
            reserve.add(client, task.abort_handle());
        }
    };
    drop(listener);
    let _ = timeout(LAST_ANSWERS, graceful.shutdown()).await;
    ended
}

/// Serves health checks and Prometheus; refuses all other requests with 503.
async fn only_health_and_metrics(request: Request<Body>, next: Next) -> Response {
    let reads = [Method::GET, Method::HEAD].contains(request.method());
    if reads && ["/health", "/ready", "/metrics"].contains(&request.uri().path()) {
        return next.run(request).await;
    }
    let text = "there are too many connections; try again later\n";
    (StatusCode::SERVICE_UNAVAILABLE, [(RETRY_AFTER, "10")], text).into_response()
}

async fn accept(listener: &TcpListener) -> io::Result<(TcpStream, SocketAddr)> {
    match listener.accept().await {
        Ok((stream, address)) => {
            let _ = stream.set_nodelay(true);
            Ok((stream, address))
        }
        Err(error) => {
            tracing::warn!(%error, "a connection could not be accepted");
            // File descriptors, for example, are free again when other connections end.
            sleep(Duration::from_millis(100)).await;
            Err(error)
        }
    }
}

/// Bytes of a connection that are read and not handled: a head has to fit.
const BUFFER: usize = 64 * 1_024;

/// Connections that wait to be accepted; the kernel may have a lower limit.
const BACKLOG: u32 = 4_096;

const LAST_ANSWERS: Duration = Duration::from_secs(5);

/// Files other than client connections: connections to servers, and the runtime's own.
const OTHER_FILES: usize = 256;

#[cfg(test)]
mod tests {
    use axum::routing::get;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::sync::oneshot;

    use super::*;

    const LIMITS: Limits = Limits {
        connections: 16,
        reserve: 4,
        head: Duration::from_secs(60),
        stall: Duration::from_secs(60),
        reserved: Duration::from_secs(60),
    };

    /// Serves on a free port, until the sender is dropped.
    async fn serving(limits: Limits) -> (SocketAddr, oneshot::Sender<()>) {
        let listener = TcpListener::bind("0.0.0.0:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let router = Router::new()
            .route("/health", get(|| async { "ok\n" }))
            .route("/large", get(|| async { vec![b'x'; 8 * 1_024 * 1_024] }));
        let (end, ended) = oneshot::channel::<()>();
        let ended = async {
            let _ = ended.await;
        };
        tokio::spawn(serve(listener, router, limits, Vec::new(), ended));
        (SocketAddr::from(([127, 0, 0, 1], port)), end)
    }

    async fn connect(from: &str, to: SocketAddr) -> TcpStream {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(SocketAddr::new(from.parse().unwrap(), 0)).unwrap();
        socket.connect(to).await.unwrap()
    }

    fn request(path: &str) -> Vec<u8> {
        format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n").into_bytes()
    }

    /// The first line of the answer to a request.
    async fn status(from: &str, to: SocketAddr, path: &str) -> String {
        let mut stream = connect(from, to).await;
        stream.write_all(&request(path)).await.unwrap();
        let mut answer = Vec::new();
        while !answer.contains(&b'\r') {
            let read = stream.read_buf(&mut answer).await.unwrap();
            assert!(read > 0, "the connection was closed");
        }
        String::from_utf8_lossy(&answer).lines().next().unwrap_or_default().to_owned()
    }

    /// Sends requests and reads no answer: the server cannot write any more then.
    async fn deaf(from: &str, to: SocketAddr) -> TcpStream {
        let mut stream = connect(from, to).await;
        stream.write_all(&request("/large")).await.unwrap();
        stream
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn clients_that_read_nothing_lock_out_neither_health_nor_other_addresses() {
        let (to, _end) = serving(LIMITS).await;
        let mut deaf_clients = Vec::new();
        for _ in 0..50 {
            deaf_clients.push(deaf("127.0.0.2", to).await);
        }
        for from in ["127.0.0.2", "127.0.0.3"] {
            assert_eq!(status(from, to, "/health").await, "HTTP/1.1 200 OK", "{from}");
        }
        assert_eq!(status("127.0.0.3", to, "/").await, "HTTP/1.1 404 Not Found");
        assert_eq!(status("127.0.0.2", to, "/").await, "HTTP/1.1 503 Service Unavailable");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_client_that_writes_everything_before_it_reads_gets_an_early_answer() {
        let (to, _end) = serving(LIMITS).await;
        let mut stream = connect("127.0.0.2", to).await;
        let body = vec![b'x'; 32 * 1_024 * 1_024];
        let head = format!("POST / HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n", body.len());
        stream.write_all(head.as_bytes()).await.unwrap();
        stream.write_all(&body).await.unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.unwrap();
        assert!(answer.starts_with(b"HTTP/1.1 404 "), "{}", String::from_utf8_lossy(&answer));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_client_that_reads_nothing_is_disconnected() {
        let (to, _end) = serving(Limits { stall: Duration::from_millis(200), ..LIMITS }).await;
        let stream = deaf("127.0.0.2", to).await;
        // It never reads: the answer stays in the buffers.
        let closed = async {
            loop {
                stream.writable().await.unwrap();
                if stream
                    .try_write(&request("/large"))
                    .is_err_and(|error| error.kind() != io::ErrorKind::WouldBlock)
                {
                    break;
                }
                tokio::task::yield_now().await;
            }
        };
        timeout(Duration::from_secs(30), closed).await.expect("the server closes the connection");
        assert_eq!(status("127.0.0.2", to, "/").await, "HTTP/1.1 404 Not Found");
    }
}
