//! Building the router.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::routing::get;
use delayline::admin::QueueName;
use delayline::codec::Raw;
use delayline::message::Message;
use delayline::schedules::Schedules;
use delayline::{Bytes, Connect, Connection, Queue};
use tokio_util::sync::CancellationToken;

use crate::body::Bodies;
use crate::brake::Brake;
use crate::directory::Directory;
use crate::examiner::Examiner;
use crate::latest::Latest;
use crate::pull::token::ClaimIds;
use crate::searches::Searches;
use crate::served::{PATIENCE, Served};
use crate::shared::{Redact, Shared};
use crate::takes::{Takes, only};
use crate::workers::Workers;
use crate::{Access, Role, api, assets, guard, live, metrics, pages};

/// Builds the router of a dashboard and its HTTP API; see [the crate](crate).
#[derive(Clone)]
#[must_use = "a dashboard does nothing until its `router` is served"]
pub struct Dashboard {
    access: Access,
    queues: Vec<Queue<Bytes, Raw>>,
    discover: Option<Connection>,
    server: Option<Connect>,
    storage: Option<Connection>,
    workers: Option<Connection>,
    schedules: Option<Schedules>,
    contents_for: Role,
    redact: Option<Arc<Redact>>,
    claim_secret: Option<Secret>,
    stop: CancellationToken,
}

impl Dashboard {
    /// Creates a dashboard without queues, for the visitors that `access` admits.
    pub fn new(access: Access) -> Self {
        Self {
            access,
            queues: Vec::new(),
            discover: None,
            server: None,
            storage: None,
            workers: None,
            schedules: None,
            contents_for: Role::Operator,
            redact: None,
            claim_secret: None,
            stop: CancellationToken::new(),
        }
    }

    /// Adds a queue. The dashboard shows and sends payloads as raw bytes, whatever codec the
    /// program uses: open the queue with [`codec`](Queue::codec). The queue's
    /// [`durability`](Queue::durability) applies to changes that visitors make.
    pub fn queue(mut self, queue: Queue<Bytes, Raw>) -> Self {
        self.queues.push(queue);
        self
    }

    /// Also shows all queues of the connection's server, or of all primaries of its cluster,
    /// including queues that are created later. Queues added with [`queue`](Self::queue) keep their
    /// options.
    ///
    /// The list is read with [`Connection::queues_within`], which needs `SCAN`. It is read on
    /// request, at most once a minute for all visitors together. A search reads up to 1,000,000
    /// keys of each primary and shows up to 1,000 queues, sorted by name. The page of all queues
    /// and `/queues` of the API report when the list was read and whether it is complete. If a
    /// search fails, the queues that are already known stay in the list.
    ///
    /// ```
    /// # use delayline_web::{Access, Dashboard, Role};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let connection = delayline::connect("memory:").await?;
    /// let dashboard = Dashboard::new(Access::everyone(Role::Viewer)).discover(connection);
    /// # drop(dashboard);
    /// # Ok(())
    /// # }
    /// ```
    pub fn discover(mut self, connection: Connection) -> Self {
        self.discover = Some(connection);
        self
    }

    /// Adds a page about the server of the queues, or all servers of their cluster or behind their
    /// sentinels. It shows their roles, the queues on each server, and the findings of `delayline
    /// doctor`. Only operators see it, because it names addresses. The user name and password of
    /// `connect` are never shown.
    ///
    /// The page queries each server over its own connection, with commands like `INFO` and `CONFIG
    /// GET`. It does so on request, at most once every five seconds for all visitors together. A
    /// queue is examined on each request, for one visitor at a time. Missing permissions and
    /// unreachable servers are shown.
    ///
    /// ```
    /// # use delayline::Connect;
    /// # use delayline_web::{Access, Dashboard, Role};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let connect = Connect::new("redis://127.0.0.1:6379")?;
    /// let dashboard = Dashboard::new(Access::everyone(Role::Operator)).server(connect);
    /// # drop(dashboard);
    /// # Ok(())
    /// # }
    /// ```
    pub fn server(mut self, connect: Connect) -> Self {
        self.server = Some(connect);
        self
    }

    /// Adds the directory of a `file:` connection to `/metrics`, and a page about it for operators:
    /// its files, free space, and the duration of syncs. Visitors who may see only some queues get
    /// neither. Has no effect for other connections.
    pub fn storage(mut self, connection: Connection) -> Self {
        self.storage = Some(connection);
        self
    }

    /// Lists the processes with workers of this connection on the page of workers, with
    /// [`Connection::workers`]: where they run, since when, their queues and handlers. Only
    /// operators see where they run. Without it, or if the server refuses the list, the page groups
    /// leases by process all the same.
    ///
    /// ```
    /// # use delayline_web::{Access, Dashboard, Role};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let connection = delayline::connect("memory:").await?;
    /// let dashboard = Dashboard::new(Access::everyone(Role::Viewer)).workers(connection);
    /// # drop(dashboard);
    /// # Ok(())
    /// # }
    /// ```
    pub fn workers(mut self, connection: Connection) -> Self {
        self.workers = Some(connection);
        self
    }

    /// Adds a page and API paths for these schedules. Viewers see when and where they send
    /// messages. Operators change them, and can thus send messages to any queue of the connection.
    ///
    /// For a visitor who is limited to some queues, the schedules exist only if the queue of
    /// schedules is one of them. If messages are [redacted](Self::redact), the payloads of
    /// schedules are not shown.
    ///
    /// ```
    /// # use delayline::schedules::Schedules;
    /// # use delayline_web::{Access, Dashboard, Role};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let connection = delayline::connect("memory:").await?;
    /// let schedules = Schedules::open(&connection).await?;
    /// let dashboard = Dashboard::new(Access::everyone(Role::Operator)).schedules(schedules);
    /// # drop(dashboard);
    /// # Ok(())
    /// # }
    /// ```
    pub fn schedules(mut self, schedules: Schedules) -> Self {
        self.schedules = Some(schedules.patience(PATIENCE));
        self
    }

    /// Lowest role that sees payloads and header values (default: [`Role::Operator`]). The API
    /// leaves them out for lower roles.
    pub const fn contents_for(mut self, role: Role) -> Self {
        self.contents_for = role;
        self
    }

    /// Calls `redact` with the queue's name and each message before any part of it is shown.
    /// `redact` removes secrets from the payload, the headers, and the first and the last error. In
    /// lists, payload and headers are empty. Results of acks and the errors of single attempts are
    /// not shown. `redact` must not block.
    ///
    /// ```
    /// # use delayline_web::{Access, Dashboard, Role};
    /// # let access = Access::everyone(Role::Viewer);
    /// let dashboard = Dashboard::new(access).redact(|queue, message| {
    ///     if queue == "passwords" {
    ///         message.payload = "(hidden)".into();
    ///     }
    /// });
    /// # drop(dashboard);
    /// ```
    pub fn redact(
        mut self,
        redact: impl Fn(&str, &mut Message<Bytes>) + Send + Sync + 'static,
    ) -> Self {
        self.redact = Some(Arc::new(move |queue: &str, message: &mut Message<Bytes>| {
            // They repeat errors that `redact` may remove elsewhere.
            message.attempts.iter_mut().for_each(|attempt| attempt.error = None);
            redact(queue, message);
        }));
        self
    }

    /// Sets the secret from which the claim ids of consumers over HTTP are derived. If servers have
    /// the same secret and the same visitors, a claim can be repeated at any of them, even after a
    /// restart. Without it, the router creates a random secret.
    pub fn claim_secret(mut self, secret: impl Into<Vec<u8>>) -> Self {
        self.claim_secret = Some(Secret(secret.into()));
        self
    }

    /// When the token is cancelled, all waiting consumers over HTTP are answered at once, without
    /// messages, so that a server can stop. Later claims do not wait.
    pub fn stop_on(mut self, stop: CancellationToken) -> Self {
        self.stop = stop;
        self
    }

    /// Returns the router. Its paths are `/`, which leads to the page of all queues, `/queues`, and
    /// the other pages next to it. There are also `/api/v1` and `/metrics` for Prometheus.
    ///
    /// `/health` and `/ready` need no access. `/health` returns 200 if every queue can be counted.
    /// `/ready` returns 200 if a queue can be counted, so it suits the readiness probe of a
    /// platform: one broken queue must not take all replicas out of service.
    ///
    /// # Errors
    ///
    /// [`BuildError`] if a queue's backend has no name, or if two queues have the same one.
    pub fn router(self) -> Result<Router, BuildError> {
        let Self { access, queues, discover, server, storage, workers, schedules, .. } = self;
        let Self { contents_for, redact, claim_secret, stop, .. } = self;
        let secret = claim_secret.as_ref().map(|Secret(secret)| &secret[..]);
        let claim_ids = ClaimIds::new(secret).ok_or(BuildError::NoRandomness)?;
        let mut named = BTreeMap::new();
        for queue in queues {
            let name = queue.backend().queue_name().map(QueueName::to_string);
            let name = name.ok_or(BuildError::Unnamed)?;
            if named.insert(name.clone(), Arc::new(Served::new(queue))).is_some() {
                return Err(BuildError::Twice { name });
            }
        }
        let directory = Directory::new(named, discover);
        let examiner = server.map(Examiner::new);
        let (bodies, brake) = (Bodies::new(), Brake::default());
        let shared = Arc::new(Shared {
            access,
            directory,
            examiner,
            storage,
            workers: workers.map(Workers::new),
            searches: Searches::default(),
            schedules_served: schedules.as_ref().map(|schedules| {
                let queue = Queue::new(Arc::clone(schedules.queue().backend())).codec(Raw);
                Arc::new(Served::new(queue))
            }),
            schedules,
            overdue: Mutex::default(),
            entries: Latest::default(),
            bodies,
            brake,
            contents_for,
            redact,
            claim_ids,
            stop,
        });
        let assets = [&assets::STYLE, &assets::SCRIPT, &assets::ICON, &assets::TROUBLE];
        let assets = assets.into_iter().fold(Router::new(), |router, asset| {
            let methods = get(|| async { asset.response() });
            router.route(&format!("/{}", asset.name), only(methods, |_| Takes::default()))
        });
        let names: &[&str] = &["queue", "job", "since", "rows", "name", "page"];
        let live = only(get(live::events), move |_| Takes { names, ..Takes::default() });
        let router = pages::routes()
            .merge(assets)
            .nest(api::BASE, api::router())
            .route("/live", live)
            .route("/metrics", only(get(metrics::metrics), |_| Takes::default()));
        let health = only(get(metrics::health), |_| Takes::default());
        let ready = only(get(metrics::ready), |_| Takes::default());
        let router = guard::admit(router, &shared).route("/health", health).route("/ready", ready);
        Ok(guard::protect(router).with_state(shared))
    }
}

impl fmt::Debug for Dashboard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dashboard")
            .field("access", &self.access)
            .field("queues", &self.queues)
            .field("discover", &self.discover)
            .field("server", &self.server.as_ref().map(Connect::to_string))
            .field("schedules", &self.schedules)
            .field("contents_for", &self.contents_for)
            .finish_non_exhaustive()
    }
}

/// A secret, which must not reach a log.
#[derive(Clone)]
struct Secret(Vec<u8>);

/// Why the router could not be built.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// The backend of a queue has no name to show the queue under.
    #[error("the backend of a queue has no name (see `Backend::queue_name`)")]
    Unnamed,
    /// The machine provided no random bytes for a secret.
    #[error("no random bytes are available")]
    NoRandomness,
    /// Two queues have the same name.
    #[error("two queues have the name {name}")]
    Twice {
        /// The name.
        name: String,
    },
}
