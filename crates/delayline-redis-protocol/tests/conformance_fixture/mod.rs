//! Queues on a private server for the conformance suite, over any driver. Each driver's
//! `tests/conformance*.rs` includes this file.

use std::future::Future;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use delayline_core::{Error, QueueName, Queueing};
use delayline_redis_protocol::{ConnectOptions, Keys, Resp, Role, ScriptBackend, Transport};
use delayline_test_server::Server;
use delayline_testkit::{Fixture, async_trait};
use tokio::sync::OnceCell;

/// How the queues are reached.
pub(crate) struct Setup {
    /// The driver's name, for the output.
    pub(crate) name: &'static str,
    pub(crate) resp: Resp,
    /// Over TCP instead of a unix socket.
    pub(crate) tcp: bool,
    /// Each queue has a user of its own, who may touch its declared keys and use the documented
    /// commands, and nothing else.
    pub(crate) least_privilege: bool,
}

/// Runs the suite on a private server, over one connection.
pub(crate) fn run<T, C, F>(setup: &Setup, connect: C) -> ExitCode
where
    T: Transport,
    C: Fn(ConnectOptions) -> F + Send + Sync + 'static,
    F: Future<Output = Result<T, Error>> + Send + 'static,
{
    let builder = Server::builder();
    let server = if setup.tcp { builder.tcp().start() } else { builder.start() };
    let mut options: ConnectOptions = match server.url().parse() {
        Ok(options) => options,
        Err(violation) => {
            eprintln!("the server's address: {violation}");
            return ExitCode::FAILURE;
        }
    };
    options.resp = setup.resp;
    let name = format!("{} ({:?}, {})", setup.name, setup.resp, server.url());
    let (shared, queues) = (OnceCell::new(), AtomicU64::new(0));
    let least_privilege = setup.least_privilege;
    let fixture = RedisFixture { connect, options, shared, queues, least_privilege, server };
    delayline_testkit::main(&name, fixture)
}

struct RedisFixture<T, C> {
    connect: C,
    options: ConnectOptions,
    shared: OnceCell<ScriptBackend<T>>,
    queues: AtomicU64,
    least_privilege: bool,
    server: Server,
}

#[async_trait]
impl<T, C, F> Fixture for RedisFixture<T, C>
where
    T: Transport,
    C: Fn(ConnectOptions) -> F + Send + Sync + 'static,
    F: Future<Output = Result<T, Error>> + Send + 'static,
{
    async fn fresh(&self) -> Result<Arc<dyn Queueing>, Error> {
        let number = self.queues.fetch_add(1, Ordering::Relaxed);
        let name = QueueName::new(format!("queue-{number}"))?;
        if self.least_privilege {
            let mut options = self.options.clone();
            options.username = Some(user_of(&self.server, &name));
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
    rules.extend(Role::Admin.commands().into_iter().map(|command| format!("+{command}")));
    server.command(&rules);
    user
}
