//! `delayline work`.

mod delivery;
mod exec;
mod group;
mod line;
mod post;
mod saves;
mod variables;

use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use delayline::codec::Raw;
use delayline::worker::{Summary, WorkerHandle};
use delayline::{Bytes, Outcome, Queue, Worker};

use self::delivery::Delivery;
use self::exec::Command;
use self::post::{Post, Rules, Secret};
use super::durations::{duration_of, lease_of};
use crate::args::{self, Target, Work};
use crate::failure::Failure;
use crate::print;
use crate::signals::Signals;

pub(crate) async fn run(target: &Target, args: Work) -> Result<ExitCode, Failure> {
    if args.exec.first().is_some_and(|program| program.is_empty()) {
        return Err(Failure::usage("--exec names no command"));
    }
    args.post.check()?;
    let grace = duration_of("--grace", &args.grace)?;
    let timeout = args.timeout.as_deref().map(|it| duration_of("--timeout", it)).transpose()?;
    if timeout == Some(Duration::ZERO) {
        return Err(Failure::usage("--timeout must be longer than 0s: each attempt would fail"));
    }
    let lease = lease_of("--lease", &args.lease)?;
    let mut server = Vec::new();
    if args.pass_url {
        server.push((exec::URL, target.url.clone()));
        let password = target.sentinel_password.clone();
        server.extend(password.map(|password| (exec::SENTINEL_PASSWORD, password)));
    }
    let name = target.queue()?;
    let command = Command::new(args.exec, name, timeout, server);
    let post = post(name, &args.post, timeout)?;
    let handler = Handler::of(command, post);
    if handler.is_none() && print::is_closed() {
        let why = "stdout is closed, or /dev/null for reading and writing";
        return Err(Failure::other("the messages would be lost", &why)
            .hint("`--exec true` acks messages that are not to be read"));
    }
    let queue = target.open_to_work().await?;
    if queue.stats().await.is_ok_and(|stats| stats.paused) {
        eprintln!("delayline: the queue is paused; `delayline resume` resumes deliveries");
    }
    let mut builder = Worker::builder(queue)
        .concurrency(args.concurrency)
        .lease(lease)
        .until_empty(args.until_empty)
        .consumer("delayline work");
    let failure = Arc::<Mutex<Option<Failure>>>::default();
    if args.until_empty {
        // Then it ends.
        let refused = Arc::clone(&failure);
        builder = builder.on_refusal(move |error| note(&refused, error.clone().into()));
    }
    let worker = builder.build()?;
    let end = End { handle: worker.handle(), failure };
    stop_on_signals(worker.handle(), grace)?;
    let asked = end.clone();
    let summary = match handler {
        Some(handler) => handler.run(worker, end).await,
        None => worker.run(move |job| print(job, end.clone())).await,
    };
    tracing::info!(?summary, "done");
    match asked.take() {
        Some(failure) => Err(failure),
        None => Ok(ExitCode::SUCCESS),
    }
}

/// Delivers the messages of one queue along with another service, until its handle stops it.
pub(crate) struct Deliverer {
    worker: Worker<Bytes, Raw>,
    handler: Handler,
}

impl Deliverer {
    pub(crate) fn new(
        queue: Queue<Bytes, Raw>,
        ServiceHandler(handler): ServiceHandler,
        concurrency: usize,
    ) -> Result<Self, Failure> {
        let worker = Worker::builder(queue).concurrency(concurrency).consumer("delayline serve");
        Ok(Self { worker: worker.build()?, handler })
    }

    pub(crate) fn handle(&self) -> WorkerHandle {
        self.worker.handle()
    }

    /// Delivers until the end. Returns why no message can be delivered, if that ended it.
    pub(crate) async fn run(self) -> Result<(), Failure> {
        let end = End { handle: self.handle(), failure: Arc::default() };
        let summary = self.handler.run(self.worker, end.clone()).await;
        tracing::info!(?summary, "deliveries have ended");
        end.take().map_or(Ok(()), Err)
    }
}

/// What handles the messages of a [`Deliverer`].
pub(crate) struct ServiceHandler(Handler);

impl ServiceHandler {
    /// The command of a shell, or a URL, for the messages of the queue `name`; `None` if there is
    /// neither.
    pub(crate) fn new(
        name: &str,
        shell_command: Option<&str>,
        post_args: &args::Post,
    ) -> Result<Option<Self>, Failure> {
        let words = shell_command.map(|command| ["sh", "-c", command].map(OsString::from).to_vec());
        let command = Command::new(words.unwrap_or_default(), name, None, Vec::new());
        Ok(Handler::of(command, post(name, post_args, None)?).map(Self))
    }
}

/// What handles messages.
enum Handler {
    Command(Arc<Command>),
    Post(Arc<Post>),
}

impl Handler {
    fn of(command: Option<Command>, post: Option<Post>) -> Option<Self> {
        let command = command.map(|command| Self::Command(Arc::new(command)));
        command.or_else(|| post.map(|post| Self::Post(Arc::new(post))))
    }

    async fn run(self, worker: Worker<Bytes, Raw>, end: End) -> Summary {
        match self {
            Self::Command(command) => {
                worker.run(move |job| execute(job, Arc::clone(&command), end.clone())).await
            }
            Self::Post(post) => {
                let run = async |job, post: Arc<Post>| post.run(&job).await;
                worker.run(move |job| run(job, Arc::clone(&post))).await
            }
        }
    }
}

/// Prepares requests for the messages of a queue, if there is a URL for them.
fn post(
    queue: &str,
    args: &args::Post,
    timeout: Option<Duration>,
) -> Result<Option<Post>, Failure> {
    let Some(url) = &args.url else { return Ok(None) };
    let secret = args.secret.as_deref().map(Secret::new).transpose().map_err(Failure::usage)?;
    let rules = Rules { retry_4xx: args.retry_4xx, max_snoozes: args.max_snoozes };
    let timeout = timeout.unwrap_or(POST_TIMEOUT);
    Post::new(queue, url, secret, timeout, rules).map(Some)
}

/// Prints a message as a line. It is acked when the line has left this process.
async fn print(job: Delivery, end: End) -> Result<Outcome, String> {
    let line = line::json(&job).map_err(|error| error.to_string())?;
    // A reader that pauses must not hold up the heartbeats.
    let written = tokio::task::spawn_blocking(move || line::write(&line)).await;
    match written {
        Ok(Ok(())) => Ok(Outcome::Ack),
        // The reader has seen enough.
        Ok(Err(error)) if error.kind() == std::io::ErrorKind::BrokenPipe => {
            end.now(None);
            Ok(Outcome::Release)
        }
        Ok(Err(error)) => {
            end.now(Some(Failure::other("the output could not be written", &error)));
            Ok(Outcome::Release)
        }
        Err(error) => Err(error.to_string()),
    }
}

/// Runs the command on a message.
async fn execute(job: Delivery, command: Arc<Command>, end: End) -> Result<Outcome, String> {
    match command.run(&job).await {
        Ok(outcome) => outcome,
        // It is not the message's fault, and will be the same with the next one.
        Err(failure) => {
            end.now(Some(failure));
            Ok(Outcome::Release)
        }
    }
}

/// Lets a handler end the whole work.
#[derive(Clone)]
struct End {
    handle: WorkerHandle,
    failure: Arc<Mutex<Option<Failure>>>,
}

impl End {
    /// Stops the work and reports the first reason.
    fn now(&self, failure: Option<Failure>) {
        if let Some(failure) = failure {
            note(&self.failure, failure);
        }
        self.handle.stop(Duration::ZERO);
    }

    fn take(&self) -> Option<Failure> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// The first failure stays.
fn note(known: &Mutex<Option<Failure>>, failure: Failure) {
    known.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(failure);
}

/// The first signal ends the work gently, the second at once.
pub(super) fn stop_on_signals(worker: WorkerHandle, grace: Duration) -> Result<(), Failure> {
    let mut signals = Signals::listen()?;
    tokio::spawn(async move {
        let mut grace = grace;
        loop {
            signals.next().await;
            worker.stop(grace);
            if !grace.is_zero() {
                // A reader of stderr that pauses must not hold up the next signal.
                tokio::task::spawn_blocking(|| {
                    eprintln!("delayline: stopping; send the signal again to stop at once");
                });
            }
            grace = Duration::ZERO;
        }
    });
    Ok(())
}

const POST_TIMEOUT: Duration = Duration::from_secs(30);
