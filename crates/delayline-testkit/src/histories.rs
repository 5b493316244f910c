//! Many concurrent clients on one queue, on the server's clock, and a check of their replies.
//!
//! Every reply contains its revision and instant. So the calls have one possible order of
//! execution, and the model must return the same results in it ([`replay`]). What the results mean
//! for each message is then checked without the model ([`messages`]).

mod call;
mod messages;
mod replay;

use std::sync::Arc;
use std::time::Instant;

use delayline_core::{Applied, At, Check, Error, List, Op, QueueBackend, Reply, Status, Timestamp};
use tokio::runtime::Runtime;

pub use self::call::Call;
use crate::limits::{CASES_A_ROUND, HISTORY_CALLS, HISTORY_TASKS};
use crate::settings::Settings;
use crate::workload::Improviser;
use crate::{Fixture, oracle};

/// The calls of a queue's clients and their results, from its first operation on.
///
/// Every call must have succeeded; a history with failed calls cannot be checked.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// The calls, in any order.
    pub calls: Vec<Call>,
}

impl History {
    /// Checks a history that ends with the queue drained. There must be an order of the calls that
    /// fits their times and in which the model returns the same results (G3). No message may be
    /// lost, made up, early, leased twice, delivered after its end or too often (G1 to G9, G13).
    ///
    /// # Errors
    ///
    /// The fault, in words. A history without deliveries is a fault: it tests nothing.
    pub fn check(&self) -> Result<(), String> {
        let order = replay::order(&self.calls)?;
        messages::check(order)
    }

    /// Checks only what the calls mean for each message. They must be in execution order, as in the
    /// server's log, and the model must agree with them. The clock may have been set back.
    ///
    /// # Errors
    ///
    /// As for [`check`](Self::check); the text starts with the number of the guarantee.
    pub fn check_messages<'a>(order: impl IntoIterator<Item = &'a Call>) -> Result<(), String> {
        messages::check(order)
    }
}

/// Runs several histories, each on its own queue. Panics if one is wrong.
pub(crate) fn concurrent(runtime: &Runtime, fixture: &dyn Fixture, settings: Settings) {
    let mut runner = settings.runner(1);
    for round in 0..settings.cases.div_ceil(CASES_A_ROUND) {
        let improviser = Improviser::new(runner.new_rng());
        let history = runtime.block_on(record(fixture, improviser));
        let history = history.unwrap_or_else(|error| panic!("{settings}, round {round}: {error}"));
        history.check().unwrap_or_else(|reason| panic!("{settings}, round {round}: {reason}"));
    }
}

async fn record(fixture: &dyn Fixture, improviser: Improviser) -> Result<History, Error> {
    let queue = fixture.fresh().await?;
    let improviser = Arc::new(improviser);
    let begin = Instant::now();
    let clients = (0..HISTORY_TASKS).map(|_| {
        let client = Client { queue: Arc::clone(&queue), begin, calls: Vec::new() };
        tokio::spawn(client.run(Arc::clone(&improviser)))
    });
    let mut history = History::default();
    for client in clients.collect::<Vec<_>>() {
        let calls = client.await.unwrap_or_else(|error| panic!("a client panicked: {error}"));
        history.calls.extend(calls?);
    }
    let drain = Client { queue, begin, calls: Vec::new() };
    history.calls.extend(drain.drain().await?);
    Ok(history)
}

struct Client {
    queue: Arc<dyn QueueBackend>,
    begin: Instant,
    calls: Vec<Call>,
}

impl Client {
    async fn run(mut self, improviser: Arc<Improviser>) -> Result<Vec<Call>, Error> {
        for _ in 0..HISTORY_CALLS {
            let op = improviser.next();
            let applied = self.call(At::Server, op.clone()).await?;
            improviser.observe(&op, &applied);
            tokio::task::yield_now().await;
        }
        Ok(self.calls)
    }

    /// Handles every message that can ever be due, and reads the rest.
    async fn drain(mut self) -> Result<Vec<Call>, Error> {
        let end = At::Fixed(Timestamp::MAX);
        self.call(end, Op::Resume).await?;
        for round in 0.. {
            let applied = self.call(end, Op::Claim(oracle::drain_claim(round))).await?;
            let Reply::Claim(claimed) = applied.reply else { break };
            let acks: Vec<_> = claimed.deliveries.iter().map(oracle::ack).collect();
            if !acks.is_empty() {
                self.call(end, Op::Settle(acks)).await?;
            } else if !claimed.more {
                break;
            }
        }
        let dead = List::new(Status::Dead, 100);
        self.call(end, Op::List(dead)).await?;
        self.call(end, Op::Check(Check::new(100))).await?;
        self.call(end, Op::Stats).await?;
        Ok(self.calls)
    }

    async fn call(&mut self, at: At, op: Op) -> Result<Applied, Error> {
        let called = self.begin.elapsed();
        let applied = self.queue.apply(at, &op).await?;
        let returned = self.begin.elapsed();
        self.calls.push(Call { called, returned, op, applied: applied.clone() });
        Ok(applied)
    }
}
