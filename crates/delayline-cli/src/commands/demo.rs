//! `delayline demo`.

use std::path::PathBuf;
use std::process::{ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use delayline::admin::{Listed, Totals};
use delayline::events::EventKind;
use delayline::{Cancelled, Job, Outcome, Queue, Worker};
use tokio::io::{AsyncBufReadExt, AsyncReadExt as _, BufReader, Lines};
use tokio::process::{ChildStdout, Command};
use uuid::Uuid;

use crate::failure::Failure;
use crate::print::write;
use crate::signals::Signals;

/// The orders of the demonstration: id, fate, and delay in milliseconds.
const ORDERS: [(&str, Kind, u64); 6] = [
    ("order-1001", Kind::Unpaid, 1_000),
    ("order-1002", Kind::Unpaid, 1_500),
    ("order-1003", Kind::BankIsDown, 2_000),
    ("order-1004", Kind::PaidInTime, 10_000),
    ("order-1005", Kind::Broken, 3_500),
    ("order-1006", Kind::Unpaid, 5_000),
];

/// The fate of an order.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Closed when it is due.
    Unpaid,
    /// Cancelled before it is due.
    PaidInTime,
    /// Its handler fails twice, then recovers.
    BankIsDown,
    /// Its handler never succeeds.
    Broken,
}

/// Starts in a separate process, kills it halfway, and continues in this one.
pub(crate) async fn run() -> Result<ExitCode, Failure> {
    if let Ok(url) = std::env::var(BEGIN) {
        let (mut stdin, mut rest) = (tokio::io::stdin(), Vec::new());
        return tokio::select! {
            begun = begin(&url) => begun,
            _ = stdin.read_to_end(&mut rest) => Ok(ExitCode::SUCCESS),
        };
    }
    if !cfg!(feature = "file") {
        let queue = open("memory:").await?;
        send(&queue, "A queue in this process, without a server.").await?;
        return finish(&queue, PAID_AFTER, 0).await;
    }
    let directory = Temporary::new();
    let url = format!("file:{}", directory.0.display());
    // After a signal, the directory is removed as well.
    let mut signals = Signals::listen()?;
    let early = killed(&url, &mut signals).await?;
    say("\nThat process was killed. Another process opens the directory and finds every \
         message:\n")?;
    let queue = open(&url).await?;
    let ended = tokio::select! {
        biased;
        () = signals.next() => Err(interrupted()),
        ended = finish(&queue, Duration::ZERO, early) => ended,
    };
    drop(queue);
    ended
}

fn interrupted() -> Failure {
    Failure::input("interrupted")
}

/// Runs another process, and kills it after the first failed attempt. Returns the number of early
/// deliveries.
async fn killed(url: &str, signals: &mut Signals) -> Result<u64, Failure> {
    let cannot = |error: std::io::Error| Failure::other("the demonstration cannot begin", &error);
    let program = std::env::current_exe().map_err(cannot)?;
    let mut command = Command::new(program);
    // It ends with its stdin, so also if this process is killed.
    command.arg("demo").env(BEGIN, url).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.kill_on_drop(true).spawn().map_err(cannot)?;
    let stdout =
        child.stdout.take().ok_or_else(|| cannot(std::io::ErrorKind::BrokenPipe.into()))?;
    let early = tokio::select! {
        biased;
        () = signals.next() => Err(interrupted()),
        early = follow(BufReader::new(stdout).lines()) => early,
    };
    child.kill().await.map_err(cannot)?;
    early
}

/// Shows what the other process says until its first failed attempt. Returns the number of early
/// deliveries.
async fn follow(mut lines: Lines<BufReader<ChildStdout>>) -> Result<u64, Failure> {
    // An empty line follows the orders.
    while let Some(line) = next(&mut lines).await {
        say(&line)?;
        if line.is_empty() {
            break;
        }
    }
    let mut early = 0;
    let mut show = |line: String| {
        early += u64::from(line.ends_with(EARLY));
        say(&line)
    };
    // An empty line follows the first failed attempt.
    while let Some(line) = next(&mut lines).await.filter(|line| !line.is_empty()) {
        show(line)?;
    }
    Ok(early)
}

async fn next(lines: &mut Lines<BufReader<ChildStdout>>) -> Option<String> {
    lines.next_line().await.ok().flatten()
}

/// The work of the process that is killed.
async fn begin(url: &str) -> Result<ExitCode, Failure> {
    let queue = open(url).await?;
    send(&queue, "A queue in a directory, without a server.").await?;
    let mut events = queue.events();
    let has_failed = async move {
        while let Some(event) = events.next().await
            && !matches!(event.kind, EventKind::Retried { .. })
        {}
    };
    let early = Arc::default();
    let worker = Worker::builder(queue.clone()).lease(LEASE).build()?;
    worker.run_until(has_failed, move |job| handle(job, Arc::clone(&early))).await;
    say("")?;
    // The directory stays open until the kill.
    std::future::pending().await
}

async fn open(url: &str) -> Result<Queue<String>, Failure> {
    Ok(delayline::connect(url).await?.queue("orders").await?)
}

async fn send(queue: &Queue<String>, place: &str) -> Result<(), Failure> {
    say(&format!("{place} It closes unpaid orders:"))?;
    for (id, kind, delay_ms) in ORDERS {
        let max_failures = if kind == Kind::Broken { 2 } else { 20 };
        let draft = queue.message(&format!("close {id}")).id(id);
        let draft = draft.due_in(Duration::from_millis(delay_ms)).max_failures(max_failures);
        if !draft.send().await?.is_accepted() {
            return Err(Failure::input(format!("{id} is taken")));
        }
        say(&format!("  {id} is due in {delay_ms} ms"))?;
    }
    say("")
}

/// Handles the remaining orders, and shows the outcome of all orders.
async fn finish(
    queue: &Queue<String>,
    paid_after: Duration,
    early_before: u64,
) -> Result<ExitCode, Failure> {
    let early = Arc::<AtomicU64>::default();
    let worker = Worker::builder(queue.clone()).lease(LEASE).until_empty(true).build()?;
    let handler = {
        let early = Arc::clone(&early);
        move |job| handle(job, Arc::clone(&early))
    };
    let (_, paid) = tokio::join!(worker.run(handler), pay(queue, paid_after));
    paid?;
    let mut dead = queue.list(Listed::Dead);
    while let Some(page) = dead.next_page().await? {
        for letter in page {
            let why = letter.last_error.unwrap_or_default();
            say(&format!(
                "{} is a dead letter after {} failures: {why}",
                letter.id, letter.failures
            ))?;
        }
    }
    conclude(&queue.stats().await?.totals, early_before + early.load(Ordering::Relaxed))
}

/// Cancels the message of an order that is paid while it waits.
async fn pay(queue: &Queue<String>, after: Duration) -> Result<(), Failure> {
    tokio::time::sleep(after).await;
    for (id, kind, _) in ORDERS {
        if kind == Kind::PaidInTime && queue.cancel(id).await? == Cancelled::Cancelled {
            say(&format!("{id}  was paid: its message is cancelled"))?;
        }
    }
    Ok(())
}

async fn handle(job: Job<String>, early: Arc<AtomicU64>) -> Result<Outcome, &'static str> {
    let is_early = SystemTime::now() < SystemTime::from(job.due());
    early.fetch_add(u64::from(is_early), Ordering::Relaxed);
    let lateness_ms = job.lateness().as_millis();
    let order = ORDERS.iter().find(|(id, ..)| job.id().as_str() == Some(*id));
    let soon = Duration::from_millis(600);
    let (outcome, words) = match order.map(|(_, kind, _)| kind) {
        Some(Kind::BankIsDown) if job.failures() < 2 => (
            Outcome::retry_in(soon, "the bank is down"),
            "failed: the bank is down; retried in 600 ms",
        ),
        Some(Kind::Broken) => (
            Outcome::retry_in(soon, "there is no such customer"),
            "failed: there is no such customer",
        ),
        _ => (Outcome::Ack, "closed"),
    };
    let mark = if is_early { EARLY } else { "" };
    // If the reader of stdout has gone, the demonstration still continues.
    let _ = say(&format!(
        "{}  attempt {}, {lateness_ms} ms late: {words}{mark}",
        job.id(),
        job.attempt()
    ));
    Ok(outcome)
}

fn conclude(totals: &Totals, early: u64) -> Result<ExitCode, Failure> {
    let slowest = totals.lateness.iter().rposition(|count| *count > 0);
    let bound = slowest.and_then(Totals::lateness_bound);
    let lateness = bound.map_or_else(
        || "very late".to_owned(),
        |bound| format!("all less than {} ms late", bound.as_millis()),
    );
    say(&format!(
        "\ndeliveries {}, closed {}, failures {}, dead letters {}, cancelled {}, early {early}, \
         {lateness}",
        totals.delivered(),
        totals.acked,
        totals.failed,
        totals.died(),
        totals.cancelled,
    ))?;
    let ended = (totals.acked, totals.failed, totals.died(), totals.cancelled);
    if early > 0 || ended != (4, 4, 1, 1) {
        return Err(Failure::other("this should not have happened", &format!("{totals:?}")));
    }
    Ok(ExitCode::SUCCESS)
}

fn say(line: &str) -> Result<(), Failure> {
    write(&format!("{line}\n"))
}

/// A directory that is removed when this is dropped.
struct Temporary(PathBuf);

impl Temporary {
    fn new() -> Self {
        Self(std::env::temp_dir().join(format!("delayline-demo-{}", Uuid::new_v4())))
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The variable with the URL, in the environment of the process that is killed.
const BEGIN: &str = "DELAYLINE_DEMO_BEGIN";

/// The time of the payment, before the order is due.
const PAID_AFTER: Duration = Duration::from_millis(2_500);

/// Short, in case the process is killed while it handles an order.
const LEASE: Duration = Duration::from_secs(2);

/// Marks a delivery before its due time, which is a defect.
const EARLY: &str = " (EARLY)";
