//! Queues on a private server for the conformance suite, over any driver. Each driver's
//! `tests/conformance*.rs` includes this file.

use std::future::Future;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use delayline_core::{Error, QueueName, Queueing};
use delayline_redis_protocol::{ConnectOptions, Resp, ScriptBackend, Transport};
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
    let fixture =
        RedisFixture { connect, options, shared: OnceCell::new(), queues: AtomicU64::new(0) };
    let name = format!("{} ({:?}, {})", setup.name, setup.resp, server.url());
    delayline_testkit::main(&name, fixture)
}

struct RedisFixture<T, C> {
    connect: C,
    options: ConnectOptions,
    shared: OnceCell<ScriptBackend<T>>,
    queues: AtomicU64,
}

#[async_trait]
impl<T, C, F> Fixture for RedisFixture<T, C>
where
    T: Transport,
    C: Fn(ConnectOptions) -> F + Send + Sync + 'static,
    F: Future<Output = Result<T, Error>> + Send + 'static,
{
    async fn fresh(&self) -> Result<Arc<dyn Queueing>, Error> {
        let open = async || {
            let transport = (self.connect)(self.options.clone()).await?;
            ScriptBackend::open(Arc::new(transport), QueueName::new("first")?, false).await
        };
        let shared = self.shared.get_or_try_init(open).await?;
        let number = self.queues.fetch_add(1, Ordering::Relaxed);
        let name = QueueName::new(format!("queue-{number}"))?;
        Ok(Arc::new(shared.with_queue(&name)))
    }
}
