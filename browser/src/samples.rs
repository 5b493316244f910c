//! Queues in memory with the same content each time.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use delayline::backend::Millis;
use delayline::codec::Raw;
use delayline::message::Priority;
use delayline::{Bytes, MessageId, Queue, Timestamp};
use delayline_core::{At, Backend as _, Claim, ClaimId, Op, Outcome, Reply, Schedule, Settlement};
use delayline_memory::MemoryBackend;

/// Orders that wait, are late, are with workers, and have died; and a paused queue of texts. The
/// clocks of both stand still.
///
/// # Errors
///
/// A defect.
pub async fn samples() -> Result<Vec<Queue<Bytes, Raw>>> {
    let orders = Sample::new("orders")?;
    let texts = Sample::new("texts")?;
    // Six hours of business.
    for minute in 0..360 {
        let busy = 2 + minute % 7 + if minute / 60 == 3 { 9 } else { 0 };
        for number in 0..busy {
            let id = format!("order-{}", 1_000 + minute * 20 + number);
            orders.send(&id, 20 + number * 7).await?;
        }
        orders.work(minute).await?;
        orders.pass(60);
    }
    for number in 0..120 {
        orders.send(&format!("order-{}", 9_000 + number), 40 + number * number * 12).await?;
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

    texts.pass(21_600);
    for number in 0..8 {
        texts.send(&format!("text-{}", 40 + number), 300 + number * 900).await?;
    }
    texts.queue.pause().await?;
    texts.pass(145);
    Ok(vec![orders.queue, texts.queue])
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

    async fn claim(&self, max: usize) -> Result<Vec<(MessageId, delayline::backend::Lease, u64)>> {
        let mut token = [0; ClaimId::BYTES];
        token[..8].copy_from_slice(&self.backend.now().as_ms().to_be_bytes());
        let claim = Claim::new(
            "worker-1".parse()?,
            ClaimId::from_bytes(token),
            max,
            Millis::try_from(Duration::from_secs(300))?,
        );
        match self.backend.apply(At::Server, &Op::Claim(claim)).await?.reply {
            Reply::Claim(claimed) => Ok(claimed
                .deliveries
                .into_iter()
                .map(|it| (it.message.info.id.clone(), it.lease, it.message.info.sequence))
                .collect()),
            _ => bail!("not the reply to a claim"),
        }
    }

    /// Handles due messages. A few fail, and some of these die.
    async fn work(&self, minute: u64) -> Result<()> {
        let claimed = self.claim(100).await?;
        let settlements = claimed.into_iter().map(|(id, lease, sequence)| {
            let error =
                ERRORS[usize::try_from(sequence / 97).unwrap_or(0) % ERRORS.len()].to_owned();
            let outcome = match sequence % 97 {
                0 => Outcome::Reject { error },
                11 if minute < 350 => Outcome::Retry { schedule: Schedule::In(RETRY), error },
                _ => Outcome::Ack,
            };
            Settlement::new(id, lease, outcome)
        });
        let settlements: Vec<_> = settlements.collect();
        if !settlements.is_empty() {
            self.backend.apply(At::Server, &Op::Settle(settlements)).await.context("settling")?;
        }
        Ok(())
    }
}

/// 2026-03-02 at 03:00 in UTC.
const START_MS: u64 = 1_772_420_400_000;
const RETRY: Millis = Millis::saturating(30_000);
const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const ERRORS: [&str; 3] = [
    "the bank did not answer within 10 s",
    "no such customer: 8841",
    "unexpected end of the payload at byte 41",
];
