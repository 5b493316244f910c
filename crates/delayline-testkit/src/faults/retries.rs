//! Clients that repeat every failed operation, unchanged, until they get a reply.

use std::collections::HashMap;
use std::sync::Arc;

use delayline_core::{
    At, Backend, Delivery, Enqueued, Error, ErrorClass, MessageId, NewMessage, Op, Outcome, Reply,
    Schedule, Settled, Settlement, Stats, Status, Timestamp, Totals,
};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::{TestCaseError, TestError};
use tokio::runtime::Runtime;

use super::{Fault, Faulty};
use crate::calls::in_time;
use crate::clients::{Clients, InTurns, only_client};
use crate::limits::CASES_A_ROUND;
use crate::settings::Settings;
use crate::{Fixture, oracle, workload};

/// The number of messages in one run.
const MESSAGES: usize = 12;

/// A claim may get no message although more are due, but not as often as this.
const MOST_CLAIMS: usize = 1_000;

/// Enough for a fault on every call of a run; after that, it continues without faults.
const LONGEST_SCHEDULE: usize = 120;

/// Sends messages through lost and duplicated calls, all kinds mixed and each alone. Panics if one
/// is lost, duplicated or counted wrongly.
pub(crate) fn retries_are_safe(runtime: &Runtime, fixture: &dyn Fixture, settings: Settings) {
    let faults = vec![Fault::Before, Fault::After, Fault::Twice];
    run(runtime, settings, faults, async || {
        Ok(Arc::new(InTurns::new(Clients::fresh(fixture).await?)) as _)
    });
}

/// Sends messages through dropped calls. Panics as [`retries_are_safe`] does.
pub(crate) fn retries_after_drops_are_safe(
    runtime: &Runtime,
    fixture: &dyn Fixture,
    settings: Settings,
) {
    let faults = vec![Fault::Dropped(1), Fault::Dropped(2)];
    // A dropped call may be executed later, but not after later calls of its client.
    run(runtime, settings, faults, async || Ok(Arc::new(only_client(fixture).await?) as _));
}

fn run(
    runtime: &Runtime,
    settings: Settings,
    faults: Vec<Fault>,
    fresh: impl AsyncFn() -> Result<Arc<dyn Backend>, Error>,
) {
    let some = vec(select([vec![Fault::None], faults.clone()].concat()), 0..LONGEST_SCHEDULE);
    // Each kind of fault alone, on every other call.
    let alone = select(faults).prop_map(|fault| [fault, Fault::None].repeat(LONGEST_SCHEDULE / 2));
    let schedules = prop_oneof![4 => some, 1 => alone];
    let mut runner = settings.with_cases(settings.cases.div_ceil(CASES_A_ROUND) * 10).runner(2);
    let outcome = runner.run(&schedules, |schedule| {
        runtime.block_on(async {
            let queue = fresh().await.map_err(|error| TestCaseError::fail(error.to_string()))?;
            Client { queue: Faulty::new(queue, schedule) }.run().await.map_err(TestCaseError::fail)
        })
    });
    match outcome {
        Ok(()) => {}
        Err(TestError::Fail(reason, schedule)) => {
            panic!("{settings}: {reason}\nwith these faults, call by call: {schedule:?}")
        }
        Err(TestError::Abort(reason)) => panic!("the generator gave up: {reason}"),
    }
}

struct Client {
    queue: Faulty<Arc<dyn Backend>>,
}

impl Client {
    async fn run(&self) -> Result<(), String> {
        let mut deliveries = HashMap::<MessageId, u32>::new();
        for n in 0..MESSAGES {
            self.enqueue(n).await?;
        }
        for round in 0..MOST_CLAIMS {
            let mut claim = oracle::drain_claim(round);
            claim.max = 3;
            let Reply::Claim(claimed) = self.persist(&Op::Claim(claim)).await? else {
                return Err("a claim was answered as something else".to_owned());
            };
            if claimed.deliveries.is_empty() {
                if claimed.more {
                    continue;
                }
                break;
            }
            for delivery in &claimed.deliveries {
                *deliveries.entry(delivery.message.info.id.clone()).or_default() += 1;
            }
            self.settle(&claimed.deliveries).await?;
        }
        // Each message fails once and is handled at its second delivery, no more and no less.
        if deliveries.len() != MESSAGES || deliveries.values().any(|count| *count != 2) {
            return Err(format!("not every message was delivered twice: {deliveries:?}"));
        }
        let all = u64::try_from(MESSAGES).unwrap_or_default();
        let mut totals = Totals::default();
        (totals.enqueued, totals.acked, totals.failed) = (all, all, all);
        totals.lateness[0] = 2 * all;
        let mut expected = Stats::default();
        expected.totals = totals;
        let reply = self.persist(&Op::Stats).await?;
        if let Reply::Stats(counts) = &reply {
            // Only a backend that has shards knows it.
            expected.shard_skew = counts.shard_skew;
        }
        match reply {
            Reply::Stats(counts) if *counts == expected => Ok(()),
            other => Err(format!("at the end the queue tells {other:?}")),
        }
    }

    async fn enqueue(&self, n: usize) -> Result<(), String> {
        let id =
            MessageId::try_from(&*format!("message-{n}")).map_err(|error| error.to_string())?;
        // One crash would be its last: repeating a claim must not count as one.
        let message = NewMessage::new(id, "payload").max_crashes(1);
        match self.persist(&Op::Enqueue(vec![message])).await? {
            Reply::Enqueue(items)
                if matches!(
                    items[..],
                    [Enqueued::Created { .. } | Enqueued::Duplicate { status: Status::Ready }]
                ) =>
            {
                Ok(())
            }
            other => Err(format!("message {n} was enqueued as {other:?}")),
        }
    }

    /// Fails new messages, and acks the others.
    async fn settle(&self, deliveries: &[Delivery]) -> Result<(), String> {
        let settle = |delivery: &Delivery| {
            let info = &delivery.message.info;
            let outcome = if info.failures == 0 {
                Outcome::Retry { schedule: Schedule::NOW, error: "boom".to_owned() }
            } else {
                Outcome::Ack
            };
            Settlement::new(info.id.clone(), delivery.lease, outcome)
        };
        let items: Vec<_> = deliveries.iter().map(settle).collect();
        match self.persist(&Op::Settle(items.clone())).await? {
            Reply::Settle(answers)
                if answers.len() == items.len()
                    && answers.iter().all(|answer| {
                        matches!(answer, Settled::Done { .. } | Settled::AlreadyDone { .. })
                    }) =>
            {
                Ok(())
            }
            other => Err(format!("{items:?} was answered {other:?}")),
        }
    }

    /// Repeats an operation until it gets a reply.
    async fn persist(&self, op: &Op) -> Result<Reply, String> {
        let mut failures = 0;
        loop {
            let call = in_time(op, self.queue.apply(At::Fixed(now()), op)).await;
            match call.map_err(|error| error.to_string())? {
                Ok(applied) => return Ok(applied.reply),
                // The schedule has no more faults than that, so the backend fails.
                Err(error)
                    if error.class() == ErrorClass::Rejected || failures == LONGEST_SCHEDULE =>
                {
                    return Err(error.to_string());
                }
                Err(_) => failures += 1,
            }
        }
    }
}

/// Time stands still: no lease expires, so only a fault can cause an extra delivery.
fn now() -> Timestamp {
    workload::start()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::model::Model;

    #[tokio::test]
    async fn a_backend_that_fails_for_ever_ends_the_test() {
        let failing = Faulty::new(Model::default(), [Fault::Before; LONGEST_SCHEDULE + 1]);
        let client = Client { queue: Faulty::new(Arc::new(failing), []) };
        let reason = client.persist(&Op::Stats).await.unwrap_err();
        assert!(reason.contains("on purpose"), "{reason}");
    }
}
