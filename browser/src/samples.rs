//! Queues in memory with the same content each time.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use delayline::backend::Millis;
use delayline::codec::Raw;
use delayline::message::Priority;
use delayline::{Bytes, Queue, Timestamp};
use delayline_core::{
    At, Backend as _, Claim, ClaimId, Claimed, Delivery, Op, Outcome, Reply, Schedule, Settlement,
};
use delayline_memory::MemoryBackend;

/// Returns sample queues: a day of orders, of which some wait, are late, are leased or are dead
/// letters; a paused queue of texts; and queues that keep up. Their clocks stand still.
///
/// # Errors
///
/// Only a defect causes one.
pub async fn samples() -> Result<Vec<Queue<Bytes, Raw>>> {
    let orders = Sample::new("orders")?;
    let texts = Sample::new("texts")?;
    // Messages that fall due tomorrow were sent before.
    for number in 0..120 {
        let later = DAY_S + 40 + number * number * 2;
        orders.send(&format!("order-{}", 9_000 + number), later).await?;
    }
    for number in 0..3_600_u64 {
        if number % 12 < busy(number / 150 * 60) {
            orders.send(&format!("reminder-{number}"), DAY_S + 60 + number * 24).await?;
        }
    }
    // A day of business. Some orders are due hours later, so tomorrow is full, too.
    for minute in 0..1_440_u64 {
        for number in 0..busy(minute) + minute % 3 {
            let id = if minute < 1_080 { 10_000 } else { 1_000 - 1_080 * 20 };
            let id = id + i64::try_from(minute * 20 + number)?;
            let later = if number % 3 == 2 { 3_600 * (3 + number * 5 % 21) } else { 0 };
            orders.send(&format!("order-{id}"), 20 + number * 7 + later).await?;
        }
        // No worker runs for a while in the afternoon.
        if (1_160..1_178).contains(&minute) {
            orders.pass(60);
        } else {
            orders.work(minute, 60).await?;
        }
    }
    orders.pass(45);
    orders.claim(3).await?;
    orders.pass(100);
    let message = orders.queue.message(&Bytes::from_static(
        br#"{"order":9123,"total":"12.50","items":[{"sku":"A-17","count":2}],"paid":false}"#,
    ));
    let message = message.id("order-9123").due_in(Duration::from_secs(1_800));
    let message = message.header("traceparent", TRACE).header("content-type", "application/json");
    ensure!(message.priority(Priority::High).send().await?.is_accepted(), "not sent");

    texts.pass(DAY_S);
    for number in 0..8 {
        texts.send(&format!("text-{}", 40 + number), 300 + number * 900).await?;
    }
    texts.queue.pause().await?;
    texts.pass(145);
    let mut queues = vec![orders.queue, texts.queue];
    for (name, every, delay) in
        [("invoices", 3, 7_200), ("mails", 1, 90), ("shops/uploads", 7, 1_800)]
    {
        let sample = Sample::new(name)?;
        for minute in 0..1_441_u64 {
            for number in 0..busy(minute) / every {
                let id = format!("{name}-{}", minute * 20 + number);
                sample.send(&id, delay + number * 60).await?;
            }
            sample.work(minute, if minute == 1_440 { 25 } else { 60 }).await?;
        }
        queues.push(sample.queue);
    }
    Ok(queues)
}

struct Sample {
    backend: Arc<MemoryBackend>,
    queue: Queue<Bytes, Raw>,
}

impl Sample {
    fn new(name: &str) -> Result<Self> {
        let start = Timestamp::from_ms(START_MS)?;
        let backend = MemoryBackend::with_manual_clock(start).named(name.parse()?);
        let backend = Arc::new(backend);
        let queue = Queue::new(Arc::clone(&backend) as _).codec(Raw);
        Ok(Self { backend, queue })
    }

    /// Advances the clock.
    fn pass(&self, seconds: u64) {
        if let Ok(time) = Millis::try_from(Duration::from_secs(seconds)) {
            self.backend.advance(time);
        }
    }

    async fn send(&self, id: &str, seconds: u64) -> Result<()> {
        let payload = Bytes::from(format!(r#"{{"order":"{id}"}}"#));
        let draft = self.queue.message(&payload).id(id).due_in(Duration::from_secs(seconds));
        ensure!(draft.send().await?.is_accepted(), "{id} is not sent");
        Ok(())
    }

    async fn claim(&self, max: usize) -> Result<Claimed> {
        let mut token = [0; ClaimId::BYTES];
        token[..8].copy_from_slice(&self.backend.now().as_ms().to_be_bytes());
        let claim = Claim::new(
            "worker-1".parse()?,
            ClaimId::from_bytes(token),
            max,
            Millis::try_from(Duration::from_secs(300))?,
        );
        match self.backend.apply(At::Server, &Op::Claim(claim)).await?.reply {
            Reply::Claim(claimed) => Ok(claimed),
            _ => bail!("not the reply to a claim"),
        }
    }

    /// Lets the time pass with a worker, which is 1 ms late, or 3 ms for a few messages.
    async fn work(&self, minute: u64, seconds: u64) -> Result<()> {
        let end = self.backend.now().as_ms() + seconds * 1_000;
        loop {
            let claimed = self.claim(100).await?;
            let now = self.backend.now().as_ms();
            let next = if claimed.more { Some(now) } else { claimed.next.map(Timestamp::as_ms) };
            self.settle(minute, claimed.deliveries).await?;
            let late = |next: u64| next + if next / 1_000 % 40 == 7 { 3 } else { 1 };
            let next = next.map_or(end, |next| late(next.max(now)).min(end));
            self.backend.advance(Millis::try_from(Duration::from_millis(next - now))?);
            if next == end {
                return Ok(());
            }
        }
    }

    /// Settles messages. A few have failed, and some of these become dead letters.
    async fn settle(&self, minute: u64, deliveries: Vec<Delivery>) -> Result<()> {
        let settlements = deliveries.into_iter().map(|it| {
            let id = it.message.info.id.clone();
            let name = id.to_string();
            let number: u64 =
                name.rsplit('-').next().and_then(|it| it.parse().ok()).unwrap_or_default();
            let error = ERRORS[usize::try_from(number / 97).unwrap_or(0) % ERRORS.len()].to_owned();
            let outcome = match number % 97 {
                28 => Outcome::Reject { error },
                39 if minute < 1_430 && minute.is_multiple_of(2) => {
                    Outcome::Retry { schedule: Schedule::In(RETRY), error }
                }
                _ => Outcome::Ack,
            };
            Settlement::new(id, it.lease, outcome)
        });
        let settlements: Vec<_> = settlements.collect();
        if !settlements.is_empty() {
            self.backend.apply(At::Server, &Op::Settle(settlements)).await.context("settling")?;
        }
        Ok(())
    }
}

/// 2026-03-01 at 18:00 in UTC.
const START_MS: u64 = 1_772_388_000_000;
const DAY_S: u64 = 86_400;
/// Orders per minute, for each hour since the start.
const BUSY: [u64; 24] =
    [11, 9, 7, 5, 3, 2, 1, 1, 1, 1, 2, 3, 5, 7, 9, 10, 11, 12, 11, 9, 8, 9, 10, 12];

/// Returns the orders per minute in the hour of this minute since the start.
fn busy(minute: u64) -> u64 {
    BUSY[usize::try_from(minute / 60).unwrap_or(0) % BUSY.len()]
}

const RETRY: Millis = Millis::saturating(30_000);
const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const ERRORS: [&str; 3] = [
    "the bank did not answer within 10 s",
    "no such customer: 8841",
    "unexpected end of the payload at byte 41",
];
