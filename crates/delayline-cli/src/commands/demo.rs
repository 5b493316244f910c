//! `delayline demo`.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use delayline::admin::Listed;
use delayline::worker::Summary;
use delayline::{Cancelled, Job, Outcome, Queue, Worker};

use crate::failure::Failure;
use crate::print::write;

/// The orders of the demonstration: what becomes of each, and when it is due.
const ORDERS: [(&str, Kind, u64); 6] = [
    ("order-1001", Kind::Unpaid, 1_000),
    ("order-1002", Kind::Unpaid, 1_500),
    ("order-1003", Kind::BankIsDown, 2_000),
    ("order-1004", Kind::PaidInTime, 3_000),
    ("order-1005", Kind::Broken, 3_500),
    ("order-1006", Kind::Unpaid, 5_000),
];

/// What the demonstration does with an order.
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

/// What the handlers have seen.
#[derive(Default)]
struct Seen {
    deliveries: AtomicU64,
    early: AtomicU64,
    max_lateness_ms: AtomicU64,
}

pub(crate) async fn run() -> Result<ExitCode, Failure> {
    let queue: Queue<String> = delayline::connect("memory:").await?.queue("orders").await?;
    say("A queue in this process, without a server. It closes unpaid orders:")?;
    for (id, kind, delay_ms) in ORDERS {
        let max_failures = if kind == Kind::Broken { 2 } else { 20 };
        let draft = queue.message(&format!("close {id}")).id(id);
        let draft = draft.due_in(Duration::from_millis(delay_ms)).max_failures(max_failures);
        if !draft.send().await?.is_accepted() {
            return Err(Failure::input(format!("{id} is taken")));
        }
        say(&format!("  {id} is due in {delay_ms} ms"))?;
    }
    say("")?;

    let seen = Arc::new(Seen::default());
    let worker = Worker::builder(queue.clone()).until_empty(true).build()?;
    let handler = {
        let seen = Arc::clone(&seen);
        move |job| handle(job, Arc::clone(&seen))
    };
    let (summary, paid) = tokio::join!(worker.run(handler), pay(&queue));
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
    conclude(summary, &seen)
}

/// One of the orders is paid while it waits.
async fn pay(queue: &Queue<String>) -> Result<(), Failure> {
    tokio::time::sleep(Duration::from_millis(2_500)).await;
    for (id, kind, _) in ORDERS {
        if kind == Kind::PaidInTime && queue.cancel(id).await? == Cancelled::Cancelled {
            say(&format!("{id}  was paid: its message is cancelled"))?;
        }
    }
    Ok(())
}

async fn handle(job: Job<String>, seen: Arc<Seen>) -> Result<Outcome, &'static str> {
    if SystemTime::now() < SystemTime::from(job.due()) {
        seen.early.fetch_add(1, Ordering::Relaxed);
    }
    let lateness_ms = u64::try_from(job.lateness().as_millis()).unwrap_or(u64::MAX);
    seen.deliveries.fetch_add(1, Ordering::Relaxed);
    seen.max_lateness_ms.fetch_max(lateness_ms, Ordering::Relaxed);
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
    // If the reader of stdout has gone, the demonstration still continues.
    let _ =
        say(&format!("{}  attempt {}, {lateness_ms} ms late: {words}", job.id(), job.attempt()));
    Ok(outcome)
}

fn conclude(summary: Summary, seen: &Seen) -> Result<ExitCode, Failure> {
    let early = seen.early.load(Ordering::Relaxed);
    say(&format!(
        "\ndeliveries {}, closed {}, failures {}, dead letters {}, cancelled 1, \
         early {early}, at most {} ms late",
        seen.deliveries.load(Ordering::Relaxed),
        summary.acked,
        summary.failed,
        summary.dead,
        seen.max_lateness_ms.load(Ordering::Relaxed),
    ))?;
    if early > 0 || (summary.acked, summary.failed, summary.dead) != (4, 4, 1) {
        return Err(Failure::other("this should not have happened", &format!("{summary:?}")));
    }
    Ok(ExitCode::SUCCESS)
}

fn say(line: &str) -> Result<(), Failure> {
    write(&format!("{line}\n"))
}
