//! Holds messages back until the messages that they wait for have ended.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use delayline_core::{
    Applied, At, Backend, Claimed, Delivery, Durability, Error, ErrorClass, Found, Hold, Lease,
    MessageId, MessageState, Millis, Op, Outcome, QueueName, Reply, Schedule, Settled, Settlement,
    Status, Timestamp, Wakeup,
};
use futures_util::future::join_all;

use super::check::{Check, Verdict};
use super::member::Member;
use super::siblings::Reach;
use super::wakeups::{LONGEST_PAUSE, Wakeups};
use super::wire::{self, Read, WAITS_FOR};
use crate::worker::holds::later;

/// A queue whose claims return a waiting message only if its members have ended: of the others, it
/// checks the members and snoozes the message.
///
/// - **Pace.** The time to the next check grows with the wait, up to [`LONGEST_PAUSE`]. A worker
///   that has ended a member makes the message due at once ([`Wakeups`]). If many members are left,
///   the message's own group is held for [`HOLD`], so that wake-ups cause no more than two checks a
///   second, by all processes together.
/// - **Ends** are remembered in this process: a member that has ended is not queried again, except
///   for a dead letter, which may be redriven, and for its result.
#[derive(Debug)]
pub(crate) struct Gate {
    reach: Reach,
    wakeups: Wakeups,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The ends that are known, by the id and sequence number of the waiting message.
    seen: HashMap<(MessageId, u64), Seen>,
    /// Number of checks so far.
    checks: u64,
    /// Leased messages that wake another one when they end.
    wakes: HashMap<MessageId, (Lease, Member)>,
    /// Leased messages that have waited, and were delivered.
    delivered: HashMap<MessageId, Lease>,
}

/// The ends of the members of a message at its latest check.
#[derive(Debug)]
struct Seen {
    ends: Vec<u8>,
    /// The number of this check.
    check: u64,
}

impl Gate {
    pub(crate) fn new(reach: Reach) -> Self {
        Self { reach, wakeups: Wakeups::default(), state: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing panics while it is locked.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Completes what an operation has done.
    async fn complete(&self, at: At, op: &Op, mut applied: Applied) -> Applied {
        match (op, &mut applied.reply) {
            (Op::Claim(claim), Reply::Claim(claimed)) => {
                let waits = |it: &Delivery| it.message.headers.get(WAITS_FOR).is_some();
                if claimed.deliveries.iter().any(waits) {
                    self.sift(at, applied.at, claim.max, claimed).await;
                }
                self.note(&claimed.deliveries);
            }
            (Op::Settle(items), Reply::Settle(results)) => {
                items.iter().zip(results).for_each(|(item, result)| self.settled(item, *result));
            }
            (Op::HandOff(items), Reply::HandOff(results)) => {
                let all = items.iter().zip(results);
                all.for_each(|(item, result)| self.settled(&item.settlement, result.settled));
            }
            _ => {}
        }
        applied
    }

    /// Takes out the messages that still wait.
    async fn sift(&self, at: At, now: Timestamp, max: usize, claimed: &mut Claimed) {
        let all = std::mem::take(&mut claimed.deliveries);
        let asked = all.len();
        let checks = all.into_iter().map(async |delivery| {
            match wire::read(&delivery.message.headers, &delivery.message.payload) {
                Ok(Some(read)) if read.ended.is_none() => self.check(at, now, delivery, read).await,
                // It has been delivered to a program that has sent it on. Or its list cannot be
                // read, which the worker reports.
                _ => Ok(delivery),
            }
        });
        for checked in join_all(checks).await {
            match checked {
                Ok(delivery) => claimed.deliveries.push(delivery),
                Err(next) => claimed.next = claimed.next.into_iter().chain([next]).min(),
            }
        }
        claimed.more |= asked == max && claimed.deliveries.len() < asked;
    }

    /// Remembers which messages wake another one.
    fn note(&self, deliveries: &[Delivery]) {
        for Delivery { message, lease, .. } in deliveries {
            let Some(waiting) = wire::wakes(&message.headers) else { continue };
            let mut state = self.lock();
            if state.wakes.len() >= MOST_REMEMBERED {
                state.wakes.clear();
            }
            state.wakes.insert(message.info.id.clone(), (*lease, waiting));
        }
    }

    /// Checks the members of a leased message. Returns it if it is to be delivered. Otherwise
    /// ends the lease, and returns when it is due again.
    async fn check(
        &self,
        at: At,
        now: Timestamp,
        mut delivery: Delivery,
        read: Read,
    ) -> Result<Delivery, Timestamp> {
        let info = &delivery.message.info;
        let key = (info.id.clone(), info.sequence);
        let count = read.waiting.members.len();
        // They stay there, as a claim may be dropped during its check.
        let seen = self.lock().seen.get(&key).map(|seen| seen.ends.clone());
        let seen = seen.filter(|ends| ends.len() == count);
        let mut check = Check::new(&self.reach, at, &read.waiting.members, seen);
        let limit = limit_of_check(info.state, now);
        let mut is_complete = check.query(limit).await.is_ok();
        let since = read.waiting.since(info);
        let waited = now.since(since);
        // A queue that has not answered may know a member.
        let ignores_unknown = read.waiting.has_failed(info) && is_complete;
        let mut verdict = check.verdict(&read.waiting, waited, ignores_unknown);
        if matches!(verdict, Verdict::Deliver(_)) {
            let has_results = check.query_results(limit).await.is_ok();
            if !has_results && waited < read.waiting.at_most {
                (verdict, is_complete) = (Verdict::Wait(0), false);
            }
        }
        let pause = match verdict {
            Verdict::Deliver(why) => {
                let ends = check.ends.iter().copied().zip(check.results.iter().cloned());
                delivery.message.payload = wire::with_ends(&delivery.message.payload, why, ends);
                let (id, lease) = (info.id.clone(), delivery.lease);
                self.remember(key, check.ends);
                let mut state = self.lock();
                if state.delivered.len() >= MOST_REMEMBERED {
                    state.delivered.clear();
                }
                state.delivered.insert(id, lease);
                return Ok(delivery);
            }
            Verdict::Cancel => {
                self.cancel(at, &delivery).await;
                // The update that has taken its place may be due.
                return Err(now);
            }
            Verdict::Wait(left) => {
                let pause = pause(since, now, left);
                let pause = if is_complete { pause } else { FAILED.max(pause / 4) };
                let end = since.after(millis(read.waiting.at_most)).since(now);
                let in_time = |pause| millis(if end.is_zero() { pause } else { end.min(pause) });
                let hold = (left >= MANY).then(|| Hold::Group(Schedule::In(in_time(HOLD))));
                let pause = in_time(pause);
                let snooze = Outcome::Snooze { schedule: Schedule::In(pause) };
                let end = Settlement::new(info.id.clone(), delivery.lease, snooze).hold(hold);
                self.end(at, end).await;
                pause
            }
        };
        self.remember(key, check.ends);
        Err(now.after(pause))
    }

    fn remember(&self, key: (MessageId, u64), mut ends: Vec<u8>) {
        let mut state = self.lock();
        if let Some(seen) = state.seen.get(&key) {
            keep_ends(&seen.ends, &mut ends);
        } else if state.seen.len() >= MOST_WAITING {
            // A message that waits is checked again within [`LONGEST_PAUSE`]: the message that was
            // not checked for the longest time most likely waits no more.
            let oldest = state.seen.iter().min_by_key(|(_, seen)| seen.check);
            if let Some(oldest) = oldest.map(|(key, _)| key.clone()) {
                state.seen.remove(&oldest);
            }
        }
        state.checks += 1;
        let check = state.checks;
        state.seen.insert(key, Seen { ends, check });
    }

    /// Cancels a leased message, or ends its lease if an update takes its place then. A cancel goes
    /// by id only, so nothing happens if the lease was lost: a check may take longer than a lease.
    async fn cancel(&self, at: At, delivery: &Delivery) {
        let info = &delivery.message.info;
        let id = info.id.clone();
        let found = self.apply(at, &Op::Get(vec![id.clone()])).await;
        let Some(Reply::Get(found)) = found else { return };
        let Some(Found::Live(message)) = found.first() else { return };
        let is_leased = matches!(message.info.state, MessageState::Leased { .. });
        let known = (message.info.sequence, message.info.epoch);
        if !is_leased || known != (info.sequence, info.epoch) {
            return;
        }
        let cancel = Op::Cancel(vec![id.clone()]);
        if message.follower.is_none() && self.apply(at, &cancel).await.is_none() {
            // Its lease expires, and another check follows.
            return;
        }
        let end = Settlement::new(id, delivery.lease, Outcome::Release);
        if self.end(at, end).await == Some(Settled::Done { status: Status::Cancelled })
            && let Some(waiting) = wire::wakes(&delivery.message.headers)
        {
            self.wakeups.add(waiting, &self.reach);
        }
    }

    async fn end(&self, at: At, settlement: Settlement) -> Option<Settled> {
        match self.apply(at, &Op::Settle(vec![settlement])).await? {
            Reply::Settle(results) => results.first().copied(),
            _ => None,
        }
    }

    /// Applies an operation that can be repeated. If it fails, the lease expires in time.
    async fn apply(&self, at: At, op: &Op) -> Option<Reply> {
        for _ in 0..TRIES {
            match self.reach.own().apply(at, op).await {
                Ok(applied) => return Some(applied.reply),
                Err(error) => {
                    tracing::debug!(op = op.name(), %error, "a waiting message stays leased");
                    if error.class() == ErrorClass::Rejected {
                        return None;
                    }
                }
            }
        }
        None
    }

    /// Wakes the waiting message of a message that has ended.
    fn settled(&self, item: &Settlement, result: Settled) {
        let status = match result {
            Settled::Done { status } => Some(status),
            Settled::AlreadyDone { ended } => ended,
            _ => None,
        };
        let mut state = self.lock();
        if state.wakes.is_empty() && state.delivered.is_empty() {
            return;
        }
        if state.delivered.get(&item.id) == Some(&item.lease) {
            state.delivered.remove(&item.id);
        }
        if state.wakes.get(&item.id).is_none_or(|(lease, _)| *lease != item.lease) {
            return;
        }
        let waiting = state.wakes.remove(&item.id);
        drop(state);
        let has_ended = status
            .is_some_and(|it| it == Status::Dead || (it.is_finished() && it != Status::Replaced));
        if let Some((_, waiting)) = waiting.filter(|_| has_ended) {
            self.wakeups.add(waiting, &self.reach);
        }
    }

    /// A message that has waited is snoozed as long as its handler says, although a wake-up takes
    /// it for one that waits: its own group is held until then. A retry is known by its failure,
    /// unless all of it happens between the two calls of a wake-up.
    fn held<'a>(&self, op: &'a Op) -> Cow<'a, Op> {
        let (Op::Settle(_) | Op::HandOff(_)) = op else { return Cow::Borrowed(op) };
        if self.lock().delivered.is_empty() {
            return Cow::Borrowed(op);
        }
        let mut op = op.clone();
        match &mut op {
            Op::Settle(items) => items.iter_mut().for_each(|it| self.hold(it)),
            Op::HandOff(items) => items.iter_mut().for_each(|it| self.hold(&mut it.settlement)),
            _ => {}
        }
        Cow::Owned(op)
    }

    fn hold(&self, item: &mut Settlement) {
        let Outcome::Snooze { schedule } = &item.outcome else { return };
        if self.lock().delivered.get(&item.id) == Some(&item.lease) {
            item.hold = Some(match item.hold {
                None => Hold::Group(*schedule),
                Some(Hold::Group(until)) => Hold::Group(later(until, *schedule)),
                // A settlement has one hold, and a wake-up changes a snooze of up to
                // [`LONGEST_PAUSE`] only.
                Some(hold) => hold,
            });
        }
    }
}

/// How long a check waits for ends, and again for results: the lease must not expire meanwhile.
fn limit_of_check(state: MessageState, now: Timestamp) -> Duration {
    match state {
        MessageState::Leased { deadline, .. } => LONGEST_CHECK.min(deadline.since(now) / 4),
        _ => LONGEST_CHECK,
    }
}

/// The time to the next check, unless a wake-up comes.
fn pause(since: Timestamp, now: Timestamp, left: usize) -> Duration {
    // A clock that was set back may stay behind for hours, and does not tell how long it waited.
    if now < since {
        return LONGEST_PAUSE;
    }
    let waited = now.since(since);
    let shortest = if left >= MANY { HOLD } else { SHORTEST_PAUSE };
    (waited / 8).clamp(shortest, LONGEST_PAUSE)
}

/// Keeps the final ends of another check of the same members, which may have seen more.
fn keep_ends(seen: &[u8], ends: &mut [u8]) {
    if seen.len() != ends.len() {
        return;
    }
    for (end, &seen) in ends.iter_mut().zip(seen) {
        if wire::is_final(seen) && !wire::is_final(*end) {
            *end = seen;
        }
    }
}

fn millis(duration: Duration) -> Millis {
    Millis::try_from(duration).unwrap_or(Millis::MAX)
}

#[async_trait]
impl Backend for Gate {
    fn queue_name(&self) -> Option<&QueueName> {
        self.reach.own().queue_name()
    }

    async fn apply(&self, at: At, op: &Op) -> Result<Applied, Error> {
        let sent = self.held(op);
        let applied = self.reach.own().apply(at, &sent).await?;
        Ok(self.complete(at, &sent, applied).await)
    }

    async fn apply_durably(
        &self,
        at: At,
        op: &Op,
        durability: Durability,
    ) -> Result<Applied, Error> {
        let sent = self.held(op);
        let applied = self.reach.own().apply_durably(at, &sent, durability).await?;
        Ok(self.complete(at, &sent, applied).await)
    }
}

#[async_trait]
impl Wakeup for Gate {
    async fn wait(&self, timeout: Duration) -> Result<bool, Error> {
        Wakeup::wait(self.reach.own(), timeout).await
    }

    async fn ring(&self) -> Result<(), Error> {
        Wakeup::ring(self.reach.own()).await
    }
}

/// With this number of members left, or more, there are at most two checks a second.
const MANY: usize = 10;
/// How long a message with many members left is not checked again.
const HOLD: Duration = Duration::from_millis(500);
/// The shortest pause between two checks without a wake-up.
const SHORTEST_PAUSE: Duration = Duration::from_millis(20);
/// The shortest pause after a check that has failed. With the wait, it grows to a quarter of the
/// others: members may be in queues that cannot be read for long.
const FAILED: Duration = Duration::from_secs(1);
/// How long a check waits for a queue: it must not hold up the other messages of its claim.
const LONGEST_CHECK: Duration = Duration::from_secs(2);
/// How often the end of a lease is tried.
const TRIES: u32 = 3;
/// Maximum number of leased messages whose waiting messages are remembered.
const MOST_REMEMBERED: usize = 100_000;
/// Maximum number of messages whose members' ends are remembered.
const MOST_WAITING: usize = 1_000;

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "test code")]
mod tests {
    use delayline_core::{Completion, DeathReason};

    use super::*;

    #[test]
    fn a_clock_that_was_set_back_makes_no_check_more_frequent() {
        let at = |ms| Timestamp::from_ms(ms).unwrap();
        assert_eq!(pause(at(5_000), at(4_999), 1), LONGEST_PAUSE);
        assert_eq!(pause(at(5_000), at(5_000), 1), SHORTEST_PAUSE);
        assert_eq!(pause(at(5_000), at(13_000), 1), Duration::from_secs(1));
    }

    #[test]
    fn a_check_ends_before_the_lease() {
        let now = Timestamp::from_ms(5_000).unwrap();
        let deadline = now.after(Millis::new(1_000).unwrap());
        let leased = MessageState::Leased { deadline, cancel_requested: false };
        assert_eq!(limit_of_check(leased, now), Duration::from_millis(250));
    }

    #[test]
    fn a_check_that_has_seen_less_loses_no_final_end() {
        let (dead, cancelled) = (wire::code(&Completion::Dead(DeathReason::Rejected)), 3);
        let mut ends = [wire::UNKNOWN, wire::PENDING, wire::PENDING, wire::ACKED];
        keep_ends(&[wire::ACKED, cancelled, dead, wire::PENDING], &mut ends);
        // A dead letter may have been redriven since.
        assert_eq!(ends, [wire::ACKED, cancelled, wire::PENDING, wire::ACKED]);
    }
}
