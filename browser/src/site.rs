//! A dashboard on a port of this machine.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use anyhow::Result;
use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use delayline::codec::Raw;
use delayline::{Bytes, Queue};
use delayline_web::{Access, Dashboard, Role};
use futures_util::StreamExt as _;
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

/// A dashboard below the path `/admin/q`, behind something that can fail.
#[derive(Debug)]
pub struct Site {
    address: String,
    between: Arc<Between>,
    server: JoinHandle<()>,
}

/// What stands between the dashboard and the browser.
#[derive(Debug, Default)]
struct Between {
    refuses: AtomicBool,
    streams: AtomicUsize,
    cut: Notify,
}

impl Site {
    /// Serves queues to visitors of a role.
    ///
    /// # Errors
    ///
    /// No port is free, or two queues have one name.
    pub async fn serve(queues: &[Queue<Bytes, Raw>], role: Role) -> Result<Self> {
        let dashboard = Dashboard::new(Access::everyone(role));
        Self::of(queues.iter().cloned().fold(dashboard, Dashboard::queue)).await
    }

    /// Serves a dashboard.
    ///
    /// # Errors
    ///
    /// Like [`serve`](Self::serve).
    pub async fn of(dashboard: Dashboard) -> Result<Self> {
        let between = Arc::new(Between::default());
        let stands = Arc::clone(&between);
        let pass = move |request, next| Arc::clone(&stands).pass(request, next);
        let app = Router::new().nest("/admin/q", dashboard.router()?).layer(from_fn(pass));
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = format!("http://{}/admin/q", listener.local_addr()?);
        let server = tokio::spawn(async {
            // It never ends on its own.
            let _ = axum::serve(listener, app).await;
        });
        Ok(Self { address, between, server })
    }

    /// The address of a page.
    #[must_use]
    pub fn at(&self, page: &str) -> String {
        format!("{}/{page}", self.address)
    }

    /// Answers everything with 502 from now on, as a proxy whose program is down; or no longer.
    pub fn refuse(&self, refuse: bool) {
        self.between.refuses.store(refuse, Ordering::SeqCst);
    }

    /// Ends all open streams of events.
    pub fn end_streams(&self) {
        self.between.cut.notify_waiters();
    }

    /// How many streams of events were asked for.
    #[must_use]
    pub fn streams(&self) -> usize {
        self.between.streams.load(Ordering::SeqCst)
    }
}

impl Between {
    async fn pass(self: Arc<Self>, request: Request, next: Next) -> Response {
        let is_stream = request.uri().path().ends_with("/live");
        self.streams.fetch_add(usize::from(is_stream), Ordering::SeqCst);
        if self.refuses.load(Ordering::SeqCst) {
            return StatusCode::BAD_GATEWAY.into_response();
        }
        let response = next.run(request).await;
        if !is_stream {
            return response;
        }
        let cut = async move { self.cut.notified().await };
        response.map(|body| Body::from_stream(body.into_data_stream().take_until(Box::pin(cut))))
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        self.server.abort();
    }
}
