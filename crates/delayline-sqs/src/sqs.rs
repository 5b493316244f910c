//! Building the router.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::response::IntoResponse as _;
use delayline::{Connection, Durability};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower_http::csrf::{CsrfLayer, ProtectionError};

use crate::access::Access;
use crate::bodies::Bodies;
use crate::deletions;
use crate::moves::Moves;
use crate::queues::Queues;
use crate::shared::Shared;
use crate::wire;

/// Builds the router of an SQS endpoint: see [the crate](crate).
#[derive(Clone)]
#[must_use = "an endpoint does nothing until its `router` is served"]
pub struct Sqs {
    connection: Connection,
    access: Access,
    is_strict: bool,
    only: Option<BTreeSet<String>>,
    settings_queue: String,
    public_url: Option<String>,
    durability: Durability,
    stop: CancellationToken,
    tracker: TaskTracker,
}

impl Sqs {
    /// Creates an endpoint for the queues of a connection.
    pub fn new(connection: Connection, access: Access) -> Self {
        Self {
            connection,
            access,
            is_strict: false,
            only: None,
            settings_queue: SETTINGS_QUEUE.to_owned(),
            public_url: None,
            durability: Durability::None,
            stop: CancellationToken::new(),
            tracker: TaskTracker::new(),
        }
    }

    /// Has exactly the limits of SQS: delays of at most 900 seconds, names of at most 80 of its
    /// characters, at most 12 hours of visibility timeout, messages that expire after the retention
    /// period of their queue, one purge of a queue per minute, and a minute between the deletion
    /// of a queue and its next creation. Without it, delays are as long as Delayline has them.
    pub fn strict(self, is_strict: bool) -> Self {
        Self { is_strict, ..self }
    }

    /// Limits the endpoint to these queues, which exist without being created.
    pub fn only_queues(self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self { only: Some(names.into_iter().map(Into::into).collect()), ..self }
    }

    /// Sets the name of the queue that keeps the attributes of all queues. The default is
    /// [`SETTINGS_QUEUE`]. The queue of this name with `-moves` at its end keeps message move
    /// tasks.
    pub fn settings_queue(self, name: impl Into<String>) -> Self {
        Self { settings_queue: name.into(), ..self }
    }

    /// Sets how the URLs of queues begin, for clients behind a proxy: `https://sqs.example`. It may
    /// have a path. Signatures cover it, so the proxy must not remove it from signed requests.
    /// Without a public URL, they begin with the `Host` that the client has used.
    pub fn public_url(self, url: impl Into<String>) -> Self {
        Self { public_url: Some(url.into().trim_end_matches('/').to_owned()), ..self }
    }

    /// Sets what confirms a send, a deletion or a change of settings before it is answered: a
    /// failover may lose what no replica has confirmed. The default is
    /// [`None`](Durability::None).
    pub fn durability(self, durability: Durability) -> Self {
        Self { durability, ..self }
    }

    /// Ends waiting receives, without messages, and stops message move tasks and deletions of
    /// queues, once this token is cancelled. Another server, or the next one, continues them.
    pub fn stop_on(self, stop: CancellationToken) -> Self {
        Self { stop, ..self }
    }

    /// Tracks the two workers of [`router`](Self::router), so that a program can wait for their end
    /// before it ends itself: once they are stopped, they release their messages within 10 seconds.
    /// If they are not awaited, another server continues the message move tasks and deletions 10
    /// seconds later, and each of them counts as a crash.
    ///
    /// ```
    /// use delayline_sqs::{Access, Sqs};
    /// use delayline_web::Role;
    /// use tokio_util::sync::CancellationToken;
    /// use tokio_util::task::TaskTracker;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), delayline::Error> {
    /// let (stop, tracker) = (CancellationToken::new(), TaskTracker::new());
    /// let connection = delayline::connect("memory:").await?;
    /// let sqs = Sqs::new(connection, Access::everyone(Role::Operator));
    /// let router = sqs.stop_on(stop.clone()).track_on(tracker.clone()).router().await?;
    /// // Serve the router until the program is to end.
    /// # drop(router);
    /// stop.cancel();
    /// tracker.close();
    /// tracker.wait().await;
    /// # Ok(())
    /// # }
    /// ```
    pub fn track_on(self, tracker: TaskTracker) -> Self {
        Self { tracker, ..self }
    }

    /// Creates the router. It answers at every path. Two workers, in separate Tokio tasks, execute
    /// message move tasks and remove deleted queues until the router is dropped or the token of
    /// [`stop_on`](Self::stop_on) is cancelled.
    ///
    /// # Errors
    ///
    /// If the queue of settings, or that of move tasks, cannot be opened.
    pub async fn router(self) -> Result<Router, delayline::Error> {
        let Self {
            connection,
            access,
            is_strict,
            only,
            settings_queue,
            public_url,
            durability,
            stop,
            tracker,
        } = self;
        let queues =
            Queues::open(connection.clone(), settings_queue, only, durability, is_strict).await?;
        let queues = Arc::new(queues.stop_on(stop.clone()));
        let stop_workers = stop.child_token();
        let moves = Moves::open(&connection, &queues, stop_workers.clone(), &tracker).await?;
        deletions::spawn(&queues, &moves, stop_workers.clone(), &tracker)?;
        let shared = Arc::new(Shared {
            queues,
            access,
            public_url,
            bodies: Bodies::new(),
            moves,
            _workers_end: stop_workers.drop_guard(),
        });
        let handler = move |request: Request| wire::answer(Arc::clone(&shared), request);
        let forged = |_: ProtectionError| {
            (StatusCode::FORBIDDEN, "the request comes from a page of another site\n")
                .into_response()
        };
        let router = Router::new().fallback(handler);
        Ok(router.layer(CsrfLayer::new().with_rejection_response(forged)))
    }
}

impl fmt::Debug for Sqs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sqs")
            .field("connection", &self.connection)
            .field("access", &self.access)
            .field("is_strict", &self.is_strict)
            .finish_non_exhaustive()
    }
}

/// The default name of the queue that keeps the attributes of all queues.
pub const SETTINGS_QUEUE: &str = "sqs-settings";
