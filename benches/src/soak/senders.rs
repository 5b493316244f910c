//! Who sends messages.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use delayline::codec::Raw;
use delayline::{Bytes, Cancelled, Queue};
use tokio::sync::watch;
use tokio::time::{sleep, timeout_at};

use crate::ledger::{Class, Due, Ledger, Promise};
use crate::schedule::{Cycle, Schedule};
use crate::shape::Shape;

/// A queue and its name.
pub(crate) type NamedQueue = (Arc<str>, Queue<Bytes, Raw>);

/// One queue's.
pub(crate) struct Sender {
    pub(crate) queue: NamedQueue,
    pub(crate) shape: Shape,
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) schedule: Schedule,
    /// How many cycles have begun.
    pub(crate) cycles: watch::Receiver<u32>,
    pub(crate) chance: fastrand::Rng,
}

/// What messages carry: their number on the ledger.
pub(crate) fn payload(number: u64) -> Bytes {
    Bytes::copy_from_slice(&number.to_be_bytes())
}

impl Sender {
    pub(crate) async fn run(mut self) -> Result<()> {
        for number in 0..self.schedule.cycles {
            self.cycles.wait_for(|begun| *begun > number).await?;
            let cycle = self.schedule.cycle(number);
            match self.shape {
                Shape::Single | Shape::Few | Shape::Many => self.send_lone(&cycle).await?,
                Shape::Busy => self.send_stream(&cycle).await?,
            }
        }
        Ok(())
    }

    /// One message after the other, and now and then two at once, with pauses between them.
    async fn send_lone(&mut self, cycle: &Cycle) -> Result<()> {
        // Not all queues at once: a wave is another story.
        let spread = cycle.traffic_end.saturating_duration_since(Instant::now()) / 3;
        sleep(spread.mul_f64(self.chance.f64())).await;
        while Instant::now() < cycle.traffic_end {
            let first = self.send_one(cycle).await?;
            let two = self.chance.u8(..4) == 0;
            let second = if two { self.send_one(cycle).await? } else { None };
            for promise in [first, second].into_iter().flatten() {
                // What does not come is on the ledger.
                let _ = timeout_at(cycle.idle_begin.into(), promise.done).await;
            }
            self.pause(cycle).await;
        }
        Ok(())
    }

    async fn send_one(&mut self, cycle: &Cycle) -> Result<Option<Promise>> {
        let drawn = self.schedule.delay(self.shape, cycle, &mut self.chance);
        let Some((class, delay)) = drawn else { return Ok(None) };
        let promise = self.ledger.promise(Class::Lone(class), Due::In(delay), 1);
        let sent = self.queue.1.send_in(&payload(promise.number), delay).await;
        self.ledger.sent(&promise, sent.map_err(Into::into));
        Ok(Some(promise))
    }

    async fn pause(&mut self, cycle: &Cycle) {
        let longest = LONGEST_PAUSE.min((cycle.traffic_end - cycle.begin) / 8);
        let pause = longest.mul_f64(self.chance.f64());
        sleep(pause.min(cycle.traffic_end.saturating_duration_since(Instant::now()))).await;
    }

    /// A batch in each interval. Some are handled several times, some are cancelled.
    async fn send_stream(&mut self, cycle: &Cycle) -> Result<()> {
        let mut ticks = tokio::time::interval(INTERVAL);
        while Instant::now() < cycle.traffic_end {
            ticks.tick().await;
            let (mut promises, mut drafts) = (Vec::new(), Vec::new());
            for _ in 0..BATCH {
                let deliveries = if self.chance.u8(..20) == 0 { self.chance.u64(2..5) } else { 1 };
                let delay = LONGEST_STREAM_DELAY.mul_f64(self.chance.f64());
                // A cancellation has time, and meets no message between two deliveries.
                let cancel = deliveries == 1
                    && delay > LONGEST_STREAM_DELAY / 2
                    && self.chance.u8(..20) == 0;
                let promise = self.ledger.promise(Class::Stream, Due::In(delay), deliveries);
                drafts.push(self.queue.1.message(&payload(promise.number)).due_in(delay));
                promises.push((promise, cancel));
            }
            let answers = self.queue.1.send_many(drafts).await;
            for ((promise, cancel), answer) in promises.into_iter().zip(answers) {
                let id = answer.as_ref().ok().map(|sent| sent.id.clone());
                self.ledger.sent(&promise, answer.map_err(Into::into));
                if let Some(id) = id.filter(|_| cancel)
                    && self.queue.1.cancel(id).await? == Cancelled::Cancelled
                {
                    self.ledger.cancelled(&promise);
                }
            }
        }
        Ok(())
    }
}

const LONGEST_PAUSE: Duration = Duration::from_secs(2);
const INTERVAL: Duration = Duration::from_millis(50);
const BATCH: usize = 10;
const LONGEST_STREAM_DELAY: Duration = Duration::from_secs(1);
