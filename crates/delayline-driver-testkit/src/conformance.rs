//! The conformance suite on private servers, over any driver.

use std::marker::PhantomData;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

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

/// Runs the suite of [`delayline_testkit`] on private servers, over one driver. Call it from `main`
/// in a test target with `harness = false`. Reads the program's arguments, like other Rust tests.
///
/// `driver` is shown in the output. [`Resp::V2`] on a [`Place::UnixSocket`] runs all of the suite
/// with 1,000 random sequences, every other way 250 unless `DELAYLINE_CASES` says otherwise. The
/// scripts are the same over every path, so the named cases run there only with a user of least
/// privilege: that their commands are permitted is not a matter of course.
///
/// Returns success if every trial has passed.
///
/// # Panics
///
/// The servers do not start.
#[must_use]
pub fn conformance<C: Connect>(driver: &str, place: Place, resp: Resp) -> ExitCode {
    let (servers, url, ca_pem) = place.start();
    let mut options: ConnectOptions = match url.parse() {
        Ok(options) => options,
        Err(violation) => {
            eprintln!("the server's address: {violation}");
            return ExitCode::FAILURE;
        }
    };
    options.resp = resp;
    options.ca_pem = ca_pem;
    let name = format!("{driver} ({resp:?}, {url})");
    let is_first = (place, resp) == (Place::UnixSocket, Resp::V2);
    let fixture = RedisFixture::<C> {
        options,
        shared: OnceCell::new(),
        queues: AtomicU64::new(0),
        place,
        cases: if is_first { 1_000 } else { OTHER_WAY_CASES },
        servers,
        connect: PhantomData,
    };
    delayline_testkit::main(&name, fixture)
}

/// The scripts are the same over every path, and 1,000 sequences have tested them.
const OTHER_WAY_CASES: u32 = 250;

/// The trials that have every operation.
const EVERY_OPERATION: [&str; 3] = ["regressions::", "differential::", "histories::"];

struct RedisFixture<C: Connect> {
    options: ConnectOptions,
    shared: OnceCell<ScriptBackend<C::Transport>>,
    queues: AtomicU64,
    place: Place,
    cases: u32,
    servers: Servers,
    connect: PhantomData<fn() -> C>,
}

#[async_trait]
impl<C: Connect> Fixture for RedisFixture<C> {
    fn wants(&self, trial: &str) -> bool {
        let is_full = self.cases != OTHER_WAY_CASES || self.place == Place::LeastPrivilege;
        is_full || EVERY_OPERATION.iter().any(|kind| trial.starts_with(kind))
    }

    fn random_cases(&self) -> u32 {
        self.cases
    }

    async fn fresh(&self) -> Result<Arc<dyn QueueBackend>, Error> {
        let number = self.queues.fetch_add(1, Ordering::Relaxed);
        let name = QueueName::new(format!("queue-{number}"))?;
        if self.place == Place::LeastPrivilege {
            return Ok(Arc::new(self.open(name).await?));
        }
        let open = async || self.open(QueueName::new("first")?).await;
        let shared = self.shared.get_or_try_init(open).await?;
        Ok(Arc::new(shared.with_queue(&name)))
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
    /// Opens a queue over a new connection.
    async fn open(&self, name: QueueName) -> Result<ScriptBackend<C::Transport>, Error> {
        let mut options = self.options.clone();
        if let (Place::LeastPrivilege, Servers::One(server)) = (self.place, &self.servers) {
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
