//! Queues on a private server for the conformance suite, over any driver. Each driver's
//! `tests/conformance*.rs` includes this file.

use std::future::Future;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use delayline_core::{Error, QueueBackend, QueueName};
use delayline_redis_protocol::{ConnectOptions, Keys, Resp, Role, ScriptBackend, Transport};
use delayline_test_server::{Cluster, Sentinels, Server};
use delayline_testkit::{Fixture, async_trait};
use tokio::sync::OnceCell;

/// Where the queues are.
#[allow(dead_code, reason = "each program has one")]
pub(crate) enum Place {
    UnixSocket,
    Tcp,
    /// Three nodes.
    Cluster,
    /// Three nodes, encrypted.
    TlsCluster,
    /// A primary and a replica behind three sentinels.
    Sentinel,
}

/// Those that run. They are only held on to.
enum Servers {
    One(Box<Server>),
    Cluster { _cluster: Cluster },
    Sentinel { _sentinels: Sentinels },
}

impl Place {
    fn start(&self) -> (Servers, String, Option<Vec<u8>>) {
        match self {
            Self::UnixSocket | Self::Tcp => {
                let builder = Server::builder();
                let is_tcp = matches!(self, Self::Tcp);
                let server = if is_tcp { builder.tcp().start() } else { builder.start() };
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

/// How the queues are reached.
pub(crate) struct Setup {
    /// The driver's name, for the output.
    pub(crate) name: &'static str,
    pub(crate) resp: Resp,
    pub(crate) place: Place,
    /// Each queue has a user of its own, who may touch its declared keys and use the documented
    /// commands, and nothing else.
    pub(crate) least_privilege: bool,
}

/// Runs the suite on private servers, over one transport.
pub(crate) fn run<T, C, F>(setup: &Setup, connect: C) -> ExitCode
where
    T: Transport,
    C: Fn(ConnectOptions) -> F + Send + Sync + 'static,
    F: Future<Output = Result<T, Error>> + Send + 'static,
{
    let (servers, url, ca_pem) = setup.place.start();
    let mut options: ConnectOptions = match url.parse() {
        Ok(options) => options,
        Err(violation) => {
            eprintln!("the server's address: {violation}");
            return ExitCode::FAILURE;
        }
    };
    options.resp = setup.resp;
    options.ca_pem = ca_pem;
    let name = format!("{} ({:?}, {url})", setup.name, setup.resp);
    let (shared, queues) = (OnceCell::new(), AtomicU64::new(0));
    let least_privilege = setup.least_privilege;
    let is_first =
        matches!((&setup.place, setup.resp), (Place::UnixSocket, Resp::V2)) && !least_privilege;
    let cases = if is_first { 1_000 } else { OTHER_WAY_CASES };
    let fixture =
        RedisFixture { connect, options, shared, queues, least_privilege, cases, servers };
    delayline_testkit::main(&name, fixture)
}

/// The scripts are the same whichever way they are reached, and 1,000 sequences have tested them.
const OTHER_WAY_CASES: u32 = 250;

struct RedisFixture<T, C> {
    connect: C,
    options: ConnectOptions,
    shared: OnceCell<ScriptBackend<T>>,
    queues: AtomicU64,
    least_privilege: bool,
    cases: u32,
    servers: Servers,
}

#[async_trait]
impl<T, C, F> Fixture for RedisFixture<T, C>
where
    T: Transport,
    C: Fn(ConnectOptions) -> F + Send + Sync + 'static,
    F: Future<Output = Result<T, Error>> + Send + 'static,
{
    fn random_cases(&self) -> u32 {
        self.cases
    }

    async fn fresh(&self) -> Result<Arc<dyn QueueBackend>, Error> {
        let number = self.queues.fetch_add(1, Ordering::Relaxed);
        let name = QueueName::new(format!("queue-{number}"))?;
        if let (true, Servers::One(server)) = (self.least_privilege, &self.servers) {
            let mut options = self.options.clone();
            options.username = Some(user_of(server, &name));
            let transport = Arc::new((self.connect)(options).await?);
            return Ok(Arc::new(ScriptBackend::open(transport, name, false).await?));
        }
        let open = async || {
            let transport = (self.connect)(self.options.clone()).await?;
            ScriptBackend::open(Arc::new(transport), QueueName::new("first")?, false).await
        };
        let shared = self.shared.get_or_try_init(open).await?;
        Ok(Arc::new(shared.with_queue(&name)))
    }
}

/// Makes a user who may work with this queue and do nothing else.
fn user_of(server: &Server, queue: &QueueName) -> String {
    let user = format!("user-of-{queue}");
    let mut rules: Vec<String> =
        ["ACL", "SETUSER", &user, "on", "nopass", "-@all"].map(str::to_owned).to_vec();
    // One by one: what a script touches beside them is refused by the server.
    let keys = Keys::new(queue);
    rules.extend(keys.all().iter().map(|key| format!("~{}", String::from_utf8_lossy(key))));
    // The suite's destinations of relays.
    rules.extend(["a-list", "a-stream"].map(|key| format!("~{key}{{{queue}}}")));
    rules.extend(Role::Admin.commands().into_iter().map(|command| format!("+{command}")));
    server.command(&rules);
    user
}
