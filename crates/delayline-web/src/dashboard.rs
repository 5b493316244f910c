//! From queues to a router.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use axum::Router;
use axum::routing::get;
use delayline::admin::QueueName;
use delayline::codec::Raw;
use delayline::message::Message;
use delayline::{Bytes, Connect, Connection, Queue};
use tokio_util::sync::CancellationToken;

use crate::body::Bodies;
use crate::brake::Brake;
use crate::directory::Directory;
use crate::examiner::Examiner;
use crate::pull::token::ClaimIds;
use crate::served::Served;
use crate::shared::{Redact, Shared};
use crate::{Access, Role, api, assets, guard, live, metrics, pages};

/// Makes the router of a dashboard and its HTTP API; see [the crate](crate).
#[derive(Clone)]
#[must_use = "a dashboard does nothing until its `router` is served"]
pub struct Dashboard {
    access: Access,
    queues: Vec<Queue<Bytes, Raw>>,
    discover: Option<Connection>,
    server: Option<Connect>,
    contents_for: Role,
    redact: Option<Arc<Redact>>,
    claim_secret: Option<Secret>,
    stop: CancellationToken,
}

impl Dashboard {
    /// A dashboard without queues, for those whom `access` lets in.
    pub fn new(access: Access) -> Self {
        Self {
            access,
            queues: Vec::new(),
            discover: None,
            server: None,
            contents_for: Role::Operator,
            redact: None,
            claim_secret: None,
            stop: CancellationToken::new(),
        }
    }

    /// Adds a queue. Its payloads are shown and sent as they are, so it is one of raw bytes, whatever
    /// codec the program uses: open it with
    /// [`codec`](Queue::codec). How durable its changes are is
    /// the queue's [`durability`](Queue::durability).
    pub fn queue(mut self, queue: Queue<Bytes, Raw>) -> Self {
        self.queues.push(queue);
        self
    }

    /// Also shows the queues that exist on the connection's server, or on all primaries of its
    /// cluster, and those that come to exist. One that was added with [`queue`](Self::queue) stays as
    /// it was added.
    ///
    /// The names are found by [`Connection::queues_within`], which needs `SCAN`, at most once a minute
    /// however many visitors there are, and not while nobody asks. Looks at up to 1,000,000 keys of
    /// each primary, and shows up to 200 queues, the first ones by name. The page of all queues, and
    /// `/queues` of the API, say when the list was read, and if it is not complete or could not be
    /// read. While it cannot be read, the queues that are known stay.
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

    /// Has a page about the server of the queues, or all servers of their cluster or behind their
    /// sentinels: what they are to each other, which of them has which queue, and what the checks of
    /// `delayline doctor` find. It is for operators, since it names addresses. User and password of
    /// `connect` are never shown.
    ///
    /// The page asks each server over a connection of its own, with `INFO`, `CONFIG GET` and the
    /// like: at most once in five seconds however many look, and not while nobody does. A queue is
    /// examined each time, for one visitor after the other. What the user may not ask is told as
    /// such. A server that is away is told too.
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

    /// Shows payloads and header values from this role on: [`Role::Operator`] unless told. The API
    /// leaves them out for others.
    pub const fn contents_for(mut self, role: Role) -> Self {
        self.contents_for = role;
        self
    }

    /// Calls `redact` with the queue's name and each message before anything of it is shown, to
    /// remove what nobody is to see from its payload, its headers or its errors. In lists, where
    /// messages have no content, payload and headers are empty. Results of acks are not shown at all
    /// then. It must not block.
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
        self.redact = Some(Arc::new(redact));
        self
    }

    /// Sets the secret with which claim ids of consumers over HTTP become those of the queue. Servers
    /// with the same secret and the same names of visitors repeat each other's claims, also after a
    /// restart. Without it, the router makes a random one.
    pub fn claim_secret(mut self, secret: impl Into<Vec<u8>>) -> Self {
        self.claim_secret = Some(Secret(secret.into()));
        self
    }

    /// Ends the waits of all consumers over HTTP when the token is cancelled: each is answered at once,
    /// without messages, so that a server can stop. Later claims do not wait.
    pub fn stop_on(mut self, stop: CancellationToken) -> Self {
        self.stop = stop;
        self
    }

    /// The router. Its paths are `/`, which leads to the page of all queues, `/queues`, the other pages
    /// beside it, `/api/v1`, `/metrics` for Prometheus, and
    /// `/health`, which needs no access.
    ///
    /// # Errors
    ///
    /// [`BuildError`] if a queue's backend has no name, or if two queues have the same one.
    pub fn router(self) -> Result<Router, BuildError> {
        let Self { access, queues, discover, server, contents_for, redact, claim_secret, stop } =
            self;
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
        let (bodies, brake) = (Bodies::new(), Brake::new());
        let shared = Arc::new(Shared {
            access,
            directory,
            examiner,
            bodies,
            brake,
            contents_for,
            redact,
            claim_ids,
            stop,
        });
        let assets = [&assets::STYLE, &assets::SCRIPT, &assets::ICON];
        let assets = assets.into_iter().fold(Router::new(), |router, asset| {
            router.route(&format!("/{}", asset.name), get(|| async { asset.response() }))
        });
        let router = pages::routes()
            .merge(assets)
            .nest(api::BASE, api::router())
            .route("/live", get(live::events))
            .route("/metrics", get(metrics::metrics));
        let router = guard::admit(router, &shared).route("/health", get(metrics::health));
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
            .field("contents_for", &self.contents_for)
            .finish_non_exhaustive()
    }
}

/// A secret, which must not reach a log.
#[derive(Clone)]
struct Secret(Vec<u8>);

/// Why there is no router.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// A queue's backend does not tell its name, under which the queue would be shown.
    #[error("the backend of a queue has no name (see `Backend::queue_name`)")]
    Unnamed,
    /// The machine has no randomness for a secret.
    #[error("no random bytes are available")]
    NoRandomness,
    /// Two queues have the same name.
    #[error("two queues have the name {name}")]
    Twice {
        /// The name.
        name: String,
    },
}
