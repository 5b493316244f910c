//! Many concurrent clients on one queue, and a check of their replies. Half of the histories are on
//! the server's clock, half on one that the clients share and that stands still during calls.
//!
//! Every reply contains its revision and instant. So the calls have one possible order of
//! execution, and the model must return the same results in it ([`replay`]). What the results mean
//! for each message is then checked without the model ([`messages`]).

mod call;
mod groups;
mod messages;
mod replay;

use std::sync::Arc;
use std::time::Instant;

use delayline_core::limits::MAX_PAGE;
use delayline_core::{
    Applied, At, Check, Error, List, Millis, Op, QueueBackend, Reply, Status, Timestamp,
};
use tokio::runtime::Runtime;
use tokio::sync::RwLock;

pub use self::call::Call;
use crate::clients::Clients;
use crate::limits::{CASES_A_ROUND, HISTORY_CALLS, HISTORY_TASKS};
use crate::settings::Settings;
use crate::workload::{Improviser, start};
use crate::{Fixture, calls, oracle};

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
    /// lost, made up, early, leased twice, delivered after its end or too often (G1 to G9, G13). No
    /// group may have more leases than its limit, or get a message while it is held (G36 to G38).
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
    // At least one on each clock.
    for round in 0..settings.cases.div_ceil(CASES_A_ROUND).max(2) {
        let improviser = Improviser::new(runner.new_rng());
        let history = if round % 2 == 0 {
            runtime.block_on(record(fixture, improviser, None))
        } else {
            let clock = Arc::new(RwLock::new(start()));
            runtime.block_on(record(fixture, improviser.with_rates(), Some(clock)))
        };
        let history = history.unwrap_or_else(|error| panic!("{settings}, round {round}: {error}"));
        history.check().unwrap_or_else(|reason| panic!("{settings}, round {round}: {reason}"));
    }
}

async fn record(
    fixture: &dyn Fixture,
    improviser: Improviser,
    clock: Option<Arc<RwLock<Timestamp>>>,
) -> Result<History, Error> {
    let queue = Clients::fresh(fixture).await?;
    let improviser = Arc::new(improviser);
    let begin = Instant::now();
    let clients = (0..HISTORY_TASKS).map(|n| {
        let (queue, clock) = (Arc::clone(queue.of(n)), clock.clone());
        let client = Client { queue, begin, clock, calls: Vec::new() };
        tokio::spawn(client.run(Arc::clone(&improviser)))
    });
    let mut history = History::default();
    for client in clients.collect::<Vec<_>>() {
        let calls = client.await.unwrap_or_else(|error| panic!("a client panicked: {error}"));
        history.calls.extend(calls?);
    }
    let queue = Arc::clone(queue.first());
    let mut client = Client { queue, begin, clock: None, calls: Vec::new() };
    drain(async |op| client.call(At::Fixed(Timestamp::MAX), op).await).await?;
    history.calls.extend(client.calls);
    Ok(history)
}

/// The end of a history: handles every message that can ever be due, and reads the rest. The time
/// of each call must be [`Timestamp::MAX`].
///
/// # Errors
///
/// The first error of `call`.
///
/// # Panics
///
/// Claims get no message again and again, although they report that more are due.
pub async fn drain<E>(mut call: impl AsyncFnMut(Op) -> Result<Applied, E>) -> Result<(), E> {
    call(Op::Resume).await?;
    let mut empty = 0;
    for round in 0.. {
        let reply = call(Op::Claim(oracle::drain_claim(round))).await?.reply;
        let Reply::Claim(claimed) = reply else { break };
        let acks: Vec<_> = claimed.deliveries.iter().map(oracle::ack).collect();
        if !acks.is_empty() {
            empty = 0;
            call(Op::Settle(acks)).await?;
        } else if claimed.more {
            empty += 1;
            assert!(
                empty < MOST_EMPTY,
                "{MOST_EMPTY} claims got no message, although more are due"
            );
        } else {
            break;
        }
    }
    let mut after = None;
    loop {
        match call(Op::List(List::new(Status::Dead, MAX_PAGE).after(after))).await?.reply {
            Reply::List(page) if page.next.is_some() => after = page.next,
            _ => break,
        }
    }
    after = None;
    loop {
        match call(Op::Check(Check::new(MAX_PAGE).after(after))).await?.reply {
            Reply::Check(checked) if checked.next.is_some() => after = checked.next,
            _ => break,
        }
    }
    call(Op::Stats).await?;
    Ok(())
}

struct Client {
    queue: Arc<dyn QueueBackend>,
    begin: Instant,
    /// The server's if there is none.
    clock: Option<Arc<RwLock<Timestamp>>>,
    calls: Vec<Call>,
}

impl Client {
    async fn run(mut self, improviser: Arc<Improviser>) -> Result<Vec<Call>, Error> {
        let clock = self.clock.clone();
        for _ in 0..HISTORY_CALLS {
            let op = improviser.next();
            let applied = match &clock {
                Some(clock) => {
                    let now = clock.read().await;
                    self.call(At::Fixed(*now), op.clone()).await?
                }
                None => self.call(At::Server, op.clone()).await?,
            };
            improviser.observe(&op, &applied);
            match &clock {
                Some(clock) if self.calls.len().is_multiple_of(CALLS_A_TICK) => {
                    let mut now = clock.write().await;
                    *now = now.after(Millis::saturating(1));
                }
                _ => tokio::task::yield_now().await,
            }
        }
        Ok(self.calls)
    }

    async fn call(&mut self, at: At, op: Op) -> Result<Applied, Error> {
        let called = self.begin.elapsed();
        let applied = calls::apply(&*self.queue, self.calls.len(), at, &op).await?;
        let returned = self.begin.elapsed();
        self.calls.push(Call { called, returned, op, applied: applied.clone() });
        Ok(applied)
    }
}

/// Calls of each client after which the shared clock advances by a millisecond.
const CALLS_A_TICK: usize = 4;

/// A claim without messages may have reclaimed some, but not as often as this in a row.
const MOST_EMPTY: u32 = 1_000;

#[cfg(test)]
mod tests {
    use delayline_core::State;

    use super::*;

    #[tokio::test]
    #[should_panic(expected = "claims got no message, although more are due")]
    async fn claims_that_promise_more_for_ever_end_a_drain() {
        let (mut state, mut calls) = (State::new(), 0);
        let ended = drain(async |op| {
            let mut applied = state.apply(Timestamp::MAX, &op);
            if let Reply::Claim(claimed) = &mut applied.reply {
                claimed.more = true;
            }
            calls += 1;
            if calls < 10_000 { Ok(applied) } else { Err("it does not end") }
        });
        ended.await.unwrap();
    }
}
