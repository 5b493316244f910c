//! The conformance suite on private servers, over any driver.

use std::marker::PhantomData;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use delayline_core::{Error, QueueBackend, QueueName};
use delayline_redis_protocol::{AclRole, ConnectOptions, Keys, Resp, ScriptBackend};
use delayline_test_server::{Cluster, Sentinels, Server};
use delayline_testkit::{Fixture, async_trait};
use tokio::sync::OnceCell;

use crate::Connect;

/// The servers that hold the queues of a run of [`conformance`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Place {
    /// One server, on a unix socket.
    UnixSocket,
    /// One server, on a TCP port.
    Tcp,
    /// One server, on a unix socket, where each queue has its own user. That user may touch its
    /// declared keys and use the documented commands, and nothing else.
    LeastPrivilege,
    /// A cluster of three nodes.
    Cluster,
    /// A cluster of three nodes, encrypted.
    TlsCluster,
    /// A primary and a replica behind three sentinels.
    Sentinel,
}

/// The running servers, kept alive.
enum Servers {
    One(Box<Server>),
    Cluster { _cluster: Cluster },
    Sentinel { _sentinels: Sentinels },
}

impl Place {
    /// The word for it in the names of trials.
    fn name(self) -> &'static str {
        match self {
            Self::UnixSocket => "unix_socket",
            Self::Tcp => "tcp",
            Self::LeastPrivilege => "least_privilege",
            Self::Cluster => "cluster",
            Self::TlsCluster => "tls_cluster",
            Self::Sentinel => "sentinel",
        }
    }

    fn start(self) -> (Servers, String, Option<Vec<u8>>) {
        match self {
            Self::UnixSocket | Self::LeastPrivilege | Self::Tcp => {
                let builder = Server::builder();
                let server = if self == Self::Tcp { builder.tcp() } else { builder }.start();
                let url = server.url();
                (Servers::One(Box::new(server)), url, None)
            }
            Self::Cluster => {
                let cluster = Cluster::start();
                let url = cluster.url();
                (Servers::Cluster { _cluster: cluster }, url, None)
            }
            Self::TlsCluster => {
                let cluster = Cluster::builder().tls().start();
                let (url, ca) = (cluster.url(), cluster.nodes()[0].ca_pem().into());
                (Servers::Cluster { _cluster: cluster }, url, Some(ca))
            }
            Self::Sentinel => {
                let sentinels = Sentinels::start();
                let url = sentinels.url();
                (Servers::Sentinel { _sentinels: sentinels }, url, None)
            }
        }
    }
}

/// Runs the whole suite of [`delayline_testkit`] on a private server, over one driver with
/// [`Resp::V2`] on a unix socket. Call it from `main` in a test target with `harness = false`.
/// Reads the program's arguments, like other Rust tests.
///
/// `driver` is shown in the output. There are 250 random sequences unless `DELAYLINE_CASES` says
/// otherwise: drivers differ only in what carries the same scripts.
///
/// Returns success if every trial has passed.
///
/// # Panics
///
/// The server does not start.
#[must_use]
pub fn conformance<C: Connect>(driver: &str) -> ExitCode {
    let fixture = RedisFixture::<C>::new(Place::UnixSocket, Resp::V2, true);
    delayline_testkit::main(driver, fixture)
}

/// Like [`conformance`], over other ways to servers. The name of each trial begins with the name
/// of its place, such as `tls_cluster::`.
///
/// Each way has the trials that use every operation: [`conformance`] has tested the scripts, which
/// are the same on every way. [`Place::LeastPrivilege`] has the named cases, too, since they need
/// its permissions.
///
/// # Panics
///
/// The servers of a way do not start. They start when the first of its trials does.
#[must_use]
pub fn conformance_of_ways<C: Connect>(ways: &[(Place, Resp)]) -> ExitCode {
    let fixture = |&(place, resp): &(Place, Resp)| {
        let has_named_cases = place == Place::LeastPrivilege;
        (place.name(), RedisFixture::<C>::new(place, resp, has_named_cases))
    };
    delayline_testkit::main_of_ways(ways.iter().map(fixture).collect())
}

/// The trials that have every operation.
const EVERY_OPERATION: [&str; 3] = ["regressions::", "differential::", "histories::"];

struct RedisFixture<C: Connect> {
    place: Place,
    resp: Resp,
    has_named_cases: bool,
    started: OnceLock<(Servers, ConnectOptions)>,
    /// A connection for the first clients of all queues.
    shared: OnceCell<ScriptBackend<C::Transport>>,
    /// And one for their second clients.
    shared_by_others: OnceCell<ScriptBackend<C::Transport>>,
    queues: AtomicU64,
    connect: PhantomData<fn() -> C>,
}

#[async_trait]
impl<C: Connect> Fixture for RedisFixture<C> {
    fn wants(&self, trial: &str) -> bool {
        self.has_named_cases || EVERY_OPERATION.iter().any(|kind| trial.starts_with(kind))
    }

    fn random_cases(&self) -> u32 {
        250
    }

    async fn fresh(&self) -> Result<Arc<dyn QueueBackend>, Error> {
        let number = self.queues.fetch_add(1, Ordering::Relaxed);
        let name = QueueName::new(format!("queue-{number}"))?;
        if self.place == Place::LeastPrivilege {
            return Ok(Arc::new(self.open(name).await?));
        }
        self.over(&self.shared, &name).await
    }

    /// Over another connection.
    async fn another(
        &self,
        queue: &Arc<dyn QueueBackend>,
    ) -> Result<Option<Arc<dyn QueueBackend>>, Error> {
        let Some(name) = queue.queue_name() else { return Ok(None) };
        if self.place == Place::LeastPrivilege {
            return Ok(Some(Arc::new(self.open(name.clone()).await?)));
        }
        self.over(&self.shared_by_others, name).await.map(Some)
    }

    /// Opens it over a new connection. The servers keep running, because other trials use them:
    /// `durability::restarts` has the trials that kill a server.
    async fn reopen(
        &self,
        queue: Arc<dyn QueueBackend>,
    ) -> Result<Option<Arc<dyn QueueBackend>>, Error> {
        let Some(name) = queue.queue_name().cloned() else { return Ok(None) };
        drop(queue);
        Ok(Some(Arc::new(self.open(name).await?)))
    }
}

impl<C: Connect> RedisFixture<C> {
    fn new(place: Place, resp: Resp, has_named_cases: bool) -> Self {
        Self {
            place,
            resp,
            has_named_cases,
            started: OnceLock::new(),
            shared: OnceCell::new(),
            shared_by_others: OnceCell::new(),
            queues: AtomicU64::new(0),
            connect: PhantomData,
        }
    }

    /// The servers, started by the first call, and how to connect to them.
    fn started(&self) -> &(Servers, ConnectOptions) {
        self.started.get_or_init(|| {
            let (servers, url, ca_pem) = self.place.start();
            let mut options: ConnectOptions = url.parse().expect("the server's own address");
            options.resp = self.resp;
            options.ca_pem = ca_pem;
            (servers, options)
        })
    }

    /// Opens a queue over a connection that is opened by the first call.
    async fn over(
        &self,
        shared: &OnceCell<ScriptBackend<C::Transport>>,
        name: &QueueName,
    ) -> Result<Arc<dyn QueueBackend>, Error> {
        let open = async || self.open(QueueName::new("first")?).await;
        Ok(Arc::new(shared.get_or_try_init(open).await?.with_queue(name)))
    }

    /// Opens a queue over a new connection.
    async fn open(&self, name: QueueName) -> Result<ScriptBackend<C::Transport>, Error> {
        let (servers, options) = tokio::task::block_in_place(|| self.started());
        let mut options = options.clone();
        if let (Place::LeastPrivilege, Servers::One(server)) = (self.place, servers) {
            options.username = Some(user_of(server, &name));
        }
        let transport = Arc::new(C::connect(&options).await?);
        ScriptBackend::open(transport, name, false).await
    }
}

/// Makes a user who may work with this queue and do nothing else.
fn user_of(server: &Server, queue: &QueueName) -> String {
    let user = format!("user-of-{queue}");
    let mut rules: Vec<String> =
        ["ACL", "SETUSER", &user, "on", "nopass", "-@all"].map(str::to_owned).to_vec();
    // One by one: the server refuses access to any other key.
    let keys = Keys::new(queue);
    rules.extend(keys.all().iter().map(|key| format!("~{}", String::from_utf8_lossy(key))));
    // The suite's destinations of relays.
    rules.extend(["a-list", "a-stream"].map(|key| format!("~{key}{{{queue}}}")));
    rules.extend(AclRole::Admin.commands().into_iter().map(|command| format!("+{command}")));
    server.command(&rules);
    user
}
