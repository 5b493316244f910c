//! Connections from clients, who may be slow, many or gone.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{sleep, timeout};

/// Serves until `end`; then what is under way may come to its end within some seconds.
pub(super) async fn serve(listener: TcpListener, router: Router, end: impl Future<Output = ()>) {
    let service = TowerToHyperService::new(router);
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEADERS);
    let graceful = GracefulShutdown::new();
    let slots = Arc::new(Semaphore::new(MOST_CONNECTIONS));
    let mut end = std::pin::pin!(end);
    loop {
        let stream = tokio::select! {
            biased;
            () = &mut end => break,
            stream = accept(&listener, &slots) => stream,
        };
        let Ok((stream, slot)) = stream else { continue };
        let connection = http.serve_connection(TokioIo::new(stream), service.clone());
        let connection = graceful.watch(connection);
        tokio::spawn(async move {
            // Whoever goes away in between has nobody to be told.
            let _ = connection.await;
            drop(slot);
        });
    }
    drop(listener);
    let _ = timeout(LAST_ANSWERS, graceful.shutdown()).await;
}

/// The next connection, once there is room for it.
async fn accept(
    listener: &TcpListener,
    slots: &Arc<Semaphore>,
) -> io::Result<(TcpStream, Option<OwnedSemaphorePermit>)> {
    let slot = Arc::clone(slots).acquire_owned().await.ok();
    match listener.accept().await {
        Ok((stream, _)) => {
            let _ = stream.set_nodelay(true);
            Ok((stream, slot))
        }
        Err(error) => {
            tracing::warn!(%error, "a connection could not be accepted");
            // Such as for want of file descriptors, which are free again when others go.
            sleep(Duration::from_millis(100)).await;
            Err(error)
        }
    }
}

/// How long a client may take for the head of a request, and for the next one to begin.
const HEADERS: Duration = Duration::from_secs(30);
const MOST_CONNECTIONS: usize = 1_024;
const LAST_ANSWERS: Duration = Duration::from_secs(5);
