//! Runs a command on a message.

use std::ffi::OsString;
use std::future::pending;
use std::io::ErrorKind;
use std::os::unix::process::ExitStatusExt as _;
use std::pin::pin;
use std::process::{ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use delayline::Outcome;
use delayline::worker::CancelReason;
use delayline_json as json;
use futures_util::FutureExt as _;
use futures_util::future::{FusedFuture, join_all};
use rustix::io::Errno;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::unix::pipe::Receiver;
use tokio::process::{Child, ChildStdin};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};
use tokio_util::task::AbortOnDropHandle;

use super::delivery::{Delivery, MOST_RESULT_BYTES, ack_with, wants_result};
use super::group::Group;
use super::saves;
use super::variables::{self, Names};
use crate::failure::Failure;

/// The variables that lead to the server, and must not reach a command unasked.
pub(super) const URL: &str = "DELAYLINE_URL";
pub(super) const SENTINEL_PASSWORD: &str = "DELAYLINE_SENTINEL_PASSWORD";
/// The variables with keys of this process, which never reach a command.
const POST_SECRET: &str = "DELAYLINE_POST_SECRET";
const CLAIM_SECRET: &str = "DELAYLINE_CLAIM_SECRET";
/// The variables of other subcommands that may contain passwords.
const FROM_URL: &str = "DELAYLINE_FROM_URL";
const PROMETHEUS: &str = "DELAYLINE_PROMETHEUS";
/// The variables with the id and the group of the message.
const ID: Names = Names("DELAYLINE_ID", "DELAYLINE_ID_BASE64");
const GROUP: Names = Names("DELAYLINE_GROUP", "DELAYLINE_GROUP_BASE64");

/// A program and its arguments.
pub(super) struct Command {
    program: OsString,
    args: Vec<OsString>,
    /// The name of the queue.
    queue: String,
    /// How long it may run.
    limit: Option<Duration>,
    /// Environment variables that describe the server. They contain passwords.
    server: Vec<(&'static str, String)>,
}

impl Command {
    /// `None` if there are no words at all.
    pub(super) fn new(
        words: Vec<OsString>,
        queue: &str,
        limit: Option<Duration>,
        server: Vec<(&'static str, String)>,
    ) -> Option<Self> {
        let mut words = words.into_iter();
        let (program, queue) = (words.next()?, queue.to_owned());
        Some(Self { program, args: words.collect(), queue, limit, server })
    }

    /// Runs it on a message. When it is cut short or fails, everything that it has started is
    /// ended before this answers: the message may be delivered again.
    ///
    /// # Errors
    ///
    /// The command itself is wrong, so that it cannot be run on any message.
    pub(super) async fn run(&self, job: &Delivery) -> Result<Result<Outcome, String>, Failure> {
        let (mut child, saves) = match self.spawn(job) {
            Ok(started) => started,
            Err(error) => {
                let program = self.program.to_string_lossy();
                let sentence = format!("{program} cannot be run: {error}");
                return match error.kind() {
                    ErrorKind::NotFound | ErrorKind::PermissionDenied => {
                        Err(Failure::usage(sentence))
                    }
                    _ if is_shortage(&error) => {
                        tracing::warn!(id = %job.id(), "{sentence}; tried again in {SHORTAGE:?}");
                        // Nothing else could be run meanwhile, either, and others may be able to.
                        sleep(SHORTAGE).await;
                        Ok(Ok(Outcome::Release))
                    }
                    _ => Ok(Err(sentence)),
                };
            }
        };
        let group = Group::led_by(&child);
        let heard = Arc::<Heard>::default();
        let mut output = listen(&mut child, &heard);
        let outcome = {
            let mut talk = pin!(talk(child.stdin.take(), job, saves, &mut output).fuse());
            tokio::select! {
                biased;
                // Its status decides, even if it must end while its last output is read.
                status = end_of_child(&mut child, talk.as_mut()) => {
                    last_words(talk).await;
                    match status {
                        Ok(status) if status.success() => Ok(Outcome::Ack),
                        Ok(status) => Err(end_of(status)),
                        Err(error) => Err(format!("the command could not be waited for: {error}")),
                    }
                }
                outcome = self.cut_short(job) => {
                    group.terminate();
                    // It may say why, and end in order.
                    let goodbye = async {
                        let _ = end_of_child(&mut child, talk.as_mut()).await;
                        last_words(talk).await;
                    };
                    let _ = timeout(AFTER_TERM, goodbye).await;
                    outcome
                }
            }
        };
        if matches!(outcome, Ok(Outcome::Ack)) {
            group.release();
        } else {
            end(child, group).await;
        }
        leave(job, output);
        let [written, said] =
            [&heard.stdout, &heard.stderr].map(|heard| std::mem::take(&mut *locked(heard)));
        Ok(match outcome {
            Ok(Outcome::Ack) if heard.is_behind.load(Ordering::Relaxed) => {
                tracing::warn!(id = %job.id(), "stdout is not being read; the result is not kept");
                Ok(Outcome::Ack)
            }
            Ok(Outcome::Ack) if wants_result(job) => Ok(ack_with(job, written)),
            outcome => outcome.map_err(|what| match String::from_utf8_lossy(&said).trim() {
                "" => what,
                said => format!("{what}: {said}"),
            }),
        })
    }

    /// Waits until the command must end, and returns the outcome of the message.
    async fn cut_short(&self, job: &Delivery) -> Result<Outcome, String> {
        let limit = async {
            match self.limit {
                Some(limit) => {
                    sleep(limit).await;
                    limit
                }
                None => pending().await,
            }
        };
        tokio::select! {
            limit = limit => Err(format!("timed out after {limit:?}")),
            () = job.cancellation().cancelled() => match job.cancel_reason() {
                // It is not the message's fault.
                None | Some(CancelReason::Stopping) => Ok(Outcome::Release),
                Some(reason) => Err(format!("killed, because {reason}")),
            },
        }
    }

    fn spawn(&self, job: &Delivery) -> std::io::Result<(Child, Receiver)> {
        let mut command = tokio::process::Command::new(&self.program);
        command
            .args(&self.args)
            // This process' own variable may name another queue.
            .env("DELAYLINE_QUEUE", &self.queue)
            .env("DELAYLINE_DUE", job.due().to_string())
            .env("DELAYLINE_LATENESS_MS", job.lateness().as_millis().to_string())
            .env("DELAYLINE_EPOCH", job.epoch().to_string())
            .env("DELAYLINE_ATTEMPT", job.attempt().to_string())
            .env("DELAYLINE_FAILURES", job.failures().to_string())
            .env("DELAYLINE_CRASHES", job.crashes().to_string())
            .env("DELAYLINE_HEADERS", json::headers(job.headers()).to_string())
            .env_remove(URL)
            .env_remove(SENTINEL_PASSWORD)
            .env_remove(POST_SECRET)
            .env_remove(CLAIM_SECRET)
            .env_remove(FROM_URL)
            .env_remove(PROMETHEUS)
            .stdin(Stdio::piped())
            .stdout(if wants_result(job) { Stdio::piped() } else { Stdio::inherit() })
            .stderr(Stdio::piped())
            // Ctrl-C is for this process, which lets its commands finish.
            .process_group(0)
            .kill_on_drop(true);
        variables::set(&mut command, ID, Some(job.id().as_bytes()));
        variables::set(&mut command, GROUP, job.group().map(|group| group.as_str().as_bytes()));
        command.envs(self.server.iter().map(|(name, value)| (name, value)));
        let saves = saves::prepare(&mut command, job)?;
        Ok((command.spawn()?, saves))
    }
}

/// Whether the machine has no room for another process. It is not the message's fault.
fn is_shortage(error: &std::io::Error) -> bool {
    matches!(
        Errno::from_io_error(error),
        Some(Errno::AGAIN | Errno::NOMEM | Errno::MFILE | Errno::NFILE)
    )
}

/// Ends all that a command has left running, gently at first.
async fn end(mut child: Child, group: Group) {
    let gone = async |child: &mut Child| {
        let _ = child.wait().await;
        group.gone().await;
    };
    group.terminate();
    if timeout(AFTER_TERM, gone(&mut child)).await.is_err() {
        group.kill();
        let _ = timeout(AFTER_KILL, gone(&mut child)).await;
    }
    group.release();
}

/// What a command has written.
#[derive(Default)]
struct Heard {
    /// The beginning, up to the size limit of a result. Empty if no result was requested.
    stdout: Mutex<Vec<u8>>,
    /// The end.
    stderr: Mutex<Vec<u8>>,
    /// Something that is read from stdout is still to be passed on, so there may be more to read.
    is_behind: AtomicBool,
}

/// Tasks that pass on what a command writes to stdout and stderr.
type Output = [AbortOnDropHandle<()>; 2];

fn listen(child: &mut Child, heard: &Arc<Heard>) -> Output {
    let keep_beginning = |kept: &mut Vec<u8>, part: &[u8]| {
        let room = MOST_RESULT_BYTES - kept.len();
        kept.extend_from_slice(part.get(..room).unwrap_or(part));
    };
    let keep_end = |kept: &mut Vec<u8>, part: &[u8]| {
        kept.extend_from_slice(part);
        let surplus = kept.len().saturating_sub(TAIL_BYTES);
        kept.drain(..surplus);
    };
    let (of_stdout, of_stderr) = (Arc::clone(heard), Arc::clone(heard));
    let stdout = pass_on(child.stdout.take(), tokio::io::stdout(), move |part| {
        of_stdout.is_behind.store(!part.is_empty(), Ordering::Relaxed);
        keep_beginning(&mut locked(&of_stdout.stdout), part);
    });
    let stderr = pass_on(child.stderr.take(), tokio::io::stderr(), move |part| {
        keep_end(&mut locked(&of_stderr.stderr), part);
    });
    [tokio::spawn(stdout), tokio::spawn(stderr)].map(AbortOnDropHandle::new)
}

/// Gives a command its payload, and takes its output and its saves, until it has closed them.
async fn talk(
    stdin: Option<ChildStdin>,
    job: &Delivery,
    saves: Receiver,
    [stdout, stderr]: &mut Output,
) {
    let _ = tokio::join!(feed(stdin, job.payload()), saves::take(job, saves), stdout, stderr);
}

/// Waits until a command has ended, and talks with it meanwhile.
async fn end_of_child(
    child: &mut Child,
    talk: impl FusedFuture<Output = ()>,
) -> std::io::Result<ExitStatus> {
    tokio::select! {
        status = child.wait() => return status,
        () = talk => {}
    }
    child.wait().await
}

/// Takes the last output and saves of an ended command. But processes that it has left running may
/// hold them open for ever.
async fn last_words(talk: impl FusedFuture<Output = ()>) {
    if !talk.is_terminated() {
        let _ = timeout(LAST_WORDS, talk).await;
    }
}

/// Passes on the output of processes that a command has left running until they end: they would
/// not survive a closed pipe. If many are left, that of the next ones is not passed on, because
/// each takes up to two file descriptors.
fn leave(job: &Delivery, output: Output) {
    let open: Vec<_> = output.into_iter().filter(|task| !task.is_finished()).collect();
    if open.is_empty() {
        return;
    }
    match LEFT_RUNNING.try_acquire() {
        Ok(permit) => drop(tokio::spawn(async move {
            join_all(open).await;
            drop(permit);
        })),
        Err(_) => tracing::warn!(
            id = %job.id(),
            "the output of too many ended commands is still open; that of this one is closed"
        ),
    }
}

/// One for each ended command whose output is still passed on.
static LEFT_RUNNING: Semaphore = Semaphore::const_new(256);

/// Writes the payload. A command need not read it.
async fn feed(stdin: Option<ChildStdin>, payload: &[u8]) {
    if let Some(mut stdin) = stdin {
        let _ = stdin.write_all(payload).await;
    }
}

fn locked(heard: &Mutex<Vec<u8>>) -> MutexGuard<'_, Vec<u8>> {
    heard.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Passes on what a command writes. Each part is shown to `keep` before, and nothing after.
async fn pass_on(
    from: Option<impl AsyncRead + Unpin>,
    mut ours: impl AsyncWrite + Unpin,
    keep: impl Fn(&[u8]),
) {
    let Some(mut from) = from else { return };
    let mut chunk = [0; 4_096];
    while let Ok(count @ 1..) = from.read(&mut chunk).await {
        let part = chunk.get(..count).unwrap_or_default();
        keep(part);
        let _ = ours.write_all(part).await;
        // Another thread writes it, whom the end of the process does not wait for.
        let _ = ours.flush().await;
        keep(&[]);
    }
}

fn end_of(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("killed by signal {signal}"),
        (None, None) => "it has ended".to_owned(),
    }
}

/// Less than is kept of an error, with room for the exit code and for replaced bytes.
const TAIL_BYTES: usize = 800;
/// How long a message waits for room for its command.
const SHORTAGE: Duration = Duration::from_secs(1);
const LAST_WORDS: Duration = Duration::from_millis(500);
/// Twice this and what follows are less than the 5 s that a worker gives its handlers at its end.
const AFTER_TERM: Duration = Duration::from_secs(2);
const AFTER_KILL: Duration = Duration::from_millis(500);
