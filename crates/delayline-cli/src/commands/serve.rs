//! `delayline serve`.

mod listen;
mod patient;
mod proxies;
mod slots;
mod sqs;
mod users;

use std::net::IpAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::http::header::HOST;
use axum::middleware::{Next, from_fn};
use axum::response::IntoResponse;
use delayline::admin::QueueName;
use delayline::codec::Raw;
use delayline::schedules::{DEFAULT_QUEUE, Schedules};
use delayline::worker::WorkerHandle;
use delayline::{Bytes, Connection, Error, ErrorClass, ErrorKind, Queue};
use delayline_web::{Access, Dashboard, Rights};
use futures_util::future::join_all;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::users::Users;
use super::work::{Deliverer, ServiceHandler};
use crate::args::{Serve, Target};
use crate::failure::Failure;
use crate::print::write;
use crate::signals::Signals;

pub(crate) async fn run(target: &Target, args: Serve) -> Result<ExitCode, Failure> {
    let names = names(target, &args)?;
    let addresses: Vec<_> =
        Some(args.listen).filter(|_| !args.sqs_only).into_iter().chain(args.sqs).collect();
    let open = addresses.iter().find(|address| !address.ip().is_loopback());
    let (access, sqs_access) = match (&args.users, open) {
        (Some(path), _) => {
            let Users { credentials, keys } = users::read(path)?;
            (Access::credentials(credentials), delayline_sqs::Access::keys(keys))
        }
        (None, None) => {
            let roles = args.role.iter().copied().map(delayline_web::Role::from);
            let rights = roles.fold(Rights::NONE, |rights, role| rights | role);
            (Access::everyone(rights), delayline_sqs::Access::everyone(rights))
        }
        (None, Some(address)) => {
            let sentence = format!("{address} can be reached from other machines");
            return Err(Failure::usage(sentence).hint("name its users with --users FILE"));
        }
    };
    if names.is_empty() && (args.exec.is_some() || args.post.url.is_some()) {
        let failure = Failure::usage("no queue was named to deliver messages from");
        return Err(failure.hint("name the queues for --post or --exec"));
    }
    if args.exec.as_deref().is_some_and(|command| command.trim().is_empty()) {
        // The shell would succeed, and every message would be acked.
        return Err(Failure::usage("--exec names no command"));
    }
    args.post.check()?;
    if args.claim_secret.as_ref().is_some_and(|secret| secret.len() < LEAST_SECRET_BYTES) {
        let why = format!("the secret must have at least {LEAST_SECRET_BYTES} bytes");
        return Err(Failure::usage(why).about("--claim-secret"));
    }
    target.confirms("--sqs-durability", args.sqs_durability)?;
    if let Some(name) = &args.schedules {
        name.parse::<QueueName>().map_err(Error::from)?;
    }
    let handler = |name: &String| ServiceHandler::new(name, args.exec.as_deref(), &args.post);
    let handlers = names.iter().map(handler).collect::<Result<Vec<_>, _>>()?;
    let mut signals = Signals::listen()?;
    let stop = CancellationToken::new();
    let mut dashboard = Dashboard::new(access).contents_for(args.contents_for.into());
    dashboard = dashboard.stop_on(stop.clone());
    if let Some(secret) = &args.claim_secret {
        dashboard = dashboard.claim_secret(secret.as_bytes());
    }
    let connect = target.connect_to_work()?;
    let connection = connect.clone().connect().await;
    let connection = connection.map_err(|error| target.not_opened(&error))?;
    if target.has_server() {
        dashboard = dashboard.server(connect);
    }
    dashboard = dashboard.workers(connection.clone());
    if target.is_directory() {
        dashboard = dashboard.storage(connection.clone());
    }
    let all = args.all || names.is_empty();
    if all {
        // Server problems are reported before the first request is served.
        let found = connection.queues_within(1).await.map_err(|error| target.not_opened(&error))?;
        if let Some(error) = found.failure {
            // The page says so as well, and the list is read again.
            Failure::from(error).about("not all servers can be read").report();
        }
        dashboard = dashboard.discover(connection.clone());
    }
    let sqs_workers = TaskTracker::new();
    let sqs = sqs::router(&args, &connection, sqs_access, &names, &stop, &sqs_workers);
    let sqs = sqs.await.map_err(|error| target.not_opened(&error))?;
    let mut deliverers = Vec::new();
    for (name, handler) in names.into_iter().zip(handlers) {
        let queue: Result<Queue<Bytes>, Error> = connection.queue(&name).await;
        let queue = queue.map_err(|error| target.not_opened(&error))?.codec(Raw);
        if let Some(handler) = handler {
            deliverers.push(Deliverer::new(queue.clone(), handler, args.concurrency)?);
        }
        dashboard = dashboard.queue(queue);
    }
    let schedules = schedules(target, &args, &connection, all).await?;
    let scheduler = match &schedules {
        Some(schedules) if args.scheduler => {
            Some((schedules.worker().build()?, schedules.handler()))
        }
        _ => None,
    };
    if let Some(schedules) = schedules {
        dashboard = dashboard.schedules(schedules);
    }
    let router = dashboard.router();
    let router = router.map_err(|error| Failure::usage(error.to_string()))?;
    let sqs = sqs
        .map(|(address, sqs)| (address, sqs::with_health(&sqs, &router), args.sqs_url.as_deref()));
    let router = Some((args.listen, router, None)).filter(|_| !args.sqs_only);
    let mut servers = Vec::new();
    for (address, mut router, url) in router.into_iter().chain(sqs) {
        if args.users.is_none() {
            router = only_local_names(router, address.ip(), url);
        }
        let cannot = |error| Failure::usage(format!("{address} cannot be used: {error}"));
        let listener = listen::on(address).map_err(cannot)?;
        let address = listener.local_addr().map_err(cannot)?;
        write(&format!("http://{address}/\n"))?;
        servers.push((listener, router));
    }
    if open.is_some() {
        eprintln!(
            "delayline: passwords and payloads are sent unencrypted, unless a proxy with TLS is \
             in front"
        );
    }
    let limits = listen::Limits::of_this_process(args.connections, servers.len());
    let mut deliveries = Deliveries::start(deliverers);
    if let Some((worker, handler)) = scheduler {
        deliveries.add(worker.handle(), async move {
            worker.run(handler).await;
            Ok(())
        });
    }
    let end = async {
        let failed = tokio::select! {
            () = signals.next() => None,
            failed = deliveries.failed() => Some(failed),
        };
        stop.cancel();
        deliveries.stop(GRACE);
        failed
    };
    let servers = servers.into_iter().map(|(listener, router)| {
        let proxies = args.trusted_proxy.clone();
        listen::serve(listener, router, limits, proxies, stop.clone().cancelled_owned())
    });
    let (failed, _) = tokio::join!(end, join_all(servers));
    // These workers release their messages, for which nothing is counted.
    sqs_workers.close();
    let released = timeout(LAST_SETTLEMENTS, sqs_workers.wait());
    tokio::select! {
        _ = async { tokio::join!(deliveries.ended(), released) } => {}
        () = signals.next() => {
            deliveries.stop(Duration::ZERO);
            deliveries.ended().await;
        }
    }
    // A request that has not ended would keep a directory open.
    let closed = connection.close().await;
    failed.map_or(Ok(()), Err)?;
    match closed {
        // All that was acknowledged is in the log.
        Err(error) if *error.kind() == ErrorKind::DiskFull => {}
        closed => closed?,
    }
    Ok(ExitCode::SUCCESS)
}

/// The deliveries of this process.
struct Deliveries {
    handles: Vec<WorkerHandle>,
    tasks: JoinSet<Result<(), Failure>>,
}

impl Deliveries {
    fn start(deliverers: Vec<Deliverer>) -> Self {
        let handles = deliverers.iter().map(Deliverer::handle).collect();
        Self { handles, tasks: deliverers.into_iter().map(Deliverer::run).collect() }
    }

    fn add(
        &mut self,
        handle: WorkerHandle,
        run: impl Future<Output = Result<(), Failure>> + Send + 'static,
    ) {
        self.handles.push(handle);
        self.tasks.spawn(run);
    }

    /// Waits until one cannot deliver any message, and returns why.
    async fn failed(&mut self) -> Failure {
        while let Some(ended) = self.tasks.join_next().await {
            if let Ok(Err(failure)) = ended {
                return failure;
            }
        }
        std::future::pending().await
    }

    fn stop(&self, grace: Duration) {
        for handle in &self.handles {
            handle.stop(grace);
        }
    }

    async fn ended(&mut self) {
        while self.tasks.join_next().await.is_some() {}
    }
}

/// The schedules to show and to run, if there are any. Without a flag that asks
/// for them, they are left out if the user may not read them.
async fn schedules(
    target: &Target,
    args: &Serve,
    connection: &Connection,
    all: bool,
) -> Result<Option<Schedules>, Failure> {
    let asked = args.schedules.is_some() || args.scheduler;
    if !asked && !all {
        return Ok(None);
    }
    let name = args.schedules.as_deref().unwrap_or(DEFAULT_QUEUE);
    match Schedules::open_named(connection, name).await {
        Ok(schedules) => Ok(Some(schedules)),
        Err(error) if !asked && error.class() == ErrorClass::Rejected => {
            Failure::from(error).about("the schedules are not shown").report();
            Ok(None)
        }
        Err(error) => Err(target.not_opened(&error)),
    }
}

/// The queues that are named, each once.
fn names(target: &Target, args: &Serve) -> Result<Vec<String>, Failure> {
    let mut names: Vec<String> = Vec::new();
    for name in target.queue.iter().chain(&args.queues) {
        name.parse::<QueueName>().map_err(Error::from)?;
        if !names.contains(name) {
            names.push(name.clone());
        }
    }
    Ok(names)
}

/// Answers only requests that name this machine, or the host of `url`. The page of another site can
/// let its own name lead here, and would be taken for a page of this one.
fn only_local_names(router: Router, listen: IpAddr, url: Option<&str>) -> Router {
    let names: Arc<[String]> = local_names(listen, url).into();
    router.layer(from_fn(move |request: Request, next: Next| {
        let names = Arc::clone(&names);
        async move {
            let host = request.headers().get(HOST).and_then(|host| host.to_str().ok());
            if host.is_some_and(|host| is_one_of(&names, host)) {
                return next.run(request).await;
            }
            let text = format!("this server answers under {} only\n", names.join(", "));
            (StatusCode::FORBIDDEN, text).into_response()
        }
    }))
}

fn local_names(listen: IpAddr, url: Option<&str>) -> Vec<String> {
    let of_url = url.and_then(|url| url.split_once("://")?.1.split('/').next()).map(without_port);
    let listen = in_a_url(listen);
    let names = ["localhost", "127.0.0.1", "[::1]", &listen].into_iter().chain(of_url);
    names.map(str::to_owned).collect()
}

/// Whether a `Host` header has one of these names.
fn is_one_of(names: &[String], host: &str) -> bool {
    names.iter().any(|name| without_port(host).eq_ignore_ascii_case(name))
}

fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.chars().all(|it| it.is_ascii_digit()) => name,
        _ => host,
    }
}

fn in_a_url(address: IpAddr) -> String {
    match address {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => format!("[{address}]"),
    }
}
/// As many as a secret for signatures needs.
const LEAST_SECRET_BYTES: usize = 16;
/// For deliveries under way at the end.
const GRACE: Duration = Duration::from_secs(20);
/// As long as a worker without a grace takes to stop, even without a server.
const LAST_SETTLEMENTS: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_this_machine_are_local() {
        let names = local_names("127.0.0.2".parse().unwrap(), Some("https://sqs.example:8443/x"));
        let is_local = |host: &str| is_one_of(&names, host);
        for host in [
            "localhost",
            "LocalHost:80",
            "127.0.0.1:7380",
            "[::1]",
            "[::1]:7380",
            "127.0.0.2:7380",
            "sqs.example",
        ] {
            assert!(is_local(host), "{host}");
        }
        for host in [
            "",
            "evil.example",
            "evil.example:80",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "localhost:80@evil.example",
            "[::2]:80",
            "127.0.0.3",
            "::1",
            "localhost:x",
        ] {
            assert!(!is_local(host), "{host}");
        }
    }
}
