//! When to claim, and what happens to a claim.

use std::time::Duration;

use super::Moment;
use super::plan::FAILURES;
use super::rng::Rng;
use crate::{Backoff, Claim, Claimed, ConsumerName, ErrorClass, Millis, Timestamp};

/// One claim at a time. A claim that may have been executed without a reply is repeated with its
/// id, so that whatever it leased is found (G16).
#[derive(Debug)]
pub(super) struct Claims {
    consumer: ConsumerName,
    lease: Millis,
    /// The longest time between two polls of the queue.
    longest_poll: Duration,
    open: Open,
    /// When there will be something to claim, as far as is known.
    due: Moment,
    /// When to poll regardless.
    poll: Moment,
    /// No new claim is sent earlier, whatever becomes known.
    not_before: Moment,
    sent: Moment,
    /// When the latest claim was answered.
    answered: Moment,
    /// The server's clock at the latest claim.
    now_there: Timestamp,
    /// Whether the queue expects this worker at `due`: the reply to its claim announced a message
    /// for then, so other workers are not woken for it.
    pub(super) promised: bool,
    failing: bool,
    /// Whether the latest reply found as many messages leased as the queue allows.
    capped: bool,
    /// Whether more messages with a group are due than the latest claim moved to their lanes.
    unsorted: bool,
    /// Whether other queues may use the slots of the open claim.
    lent: bool,
    /// How long replies have taken recently, at most [`LONGEST_USUAL`].
    usual: Duration,
    backoff: Backoff,
}

/// A claim without a known reply.
#[derive(Debug)]
enum Open {
    None,
    UnderWay {
        max: usize,
        first_sent: Moment,
        sent: Moment,
        /// When an earlier attempt was sent that may have been executed.
        suspect: Option<Moment>,
    },
    /// Must be repeated.
    Unanswered {
        claim: Claim,
        first_sent: Moment,
        suspect: Moment,
    },
}

impl Claims {
    pub(super) const fn new(consumer: ConsumerName, lease: Millis, longest_poll: Duration) -> Self {
        Self {
            consumer,
            lease,
            longest_poll,
            open: Open::None,
            due: Moment::START,
            poll: Moment::START,
            not_before: Moment::START,
            sent: Moment::START,
            answered: Moment::START,
            now_there: Timestamp::MIN,
            promised: false,
            failing: false,
            capped: false,
            unsorted: false,
            lent: false,
            usual: Duration::ZERO,
            backoff: FAILURES,
        }
    }

    /// What the server's clock shows at least, unless it has stepped back.
    pub(super) const fn now_there(&self) -> Timestamp {
        self.now_there
    }

    pub(super) const fn is_open(&self) -> bool {
        !matches!(self.open, Open::None)
    }

    pub(super) const fn is_under_way(&self) -> bool {
        matches!(self.open, Open::UnderWay { .. })
    }

    /// Whether the latest attempt failed.
    pub(super) const fn is_failing(&self) -> bool {
        self.failing
    }

    /// Whether the end of a lease may let the next message be claimed, as far as is known.
    pub(super) const fn is_capped(&self) -> bool {
        self.capped
    }

    /// The number of slots to keep free for the open claim.
    pub(super) const fn reserved(&self) -> usize {
        match &self.open {
            Open::UnderWay { max, .. } if !self.lent => *max,
            Open::Unanswered { claim, .. } if !self.lent => claim.max,
            _ => 0,
        }
    }

    /// When to lend the slots of the open claim to other queues, if they have it to themselves now.
    pub(super) fn lend_at(&self) -> Option<Moment> {
        match self.open {
            Open::UnderWay { first_sent, .. } | Open::Unanswered { first_sent, .. }
                if !self.lent =>
            {
                Some(first_sent.after(self.usual.saturating_mul(4).max(SHORTEST_PATIENCE)))
            }
            _ => None,
        }
    }

    /// Lends the slots of the open claim to other queues. Messages that it returns beyond the slots
    /// that are free by then are released (G10).
    pub(super) const fn lend(&mut self) {
        self.lent = true;
    }

    /// When to repeat the open claim. It already has its slots, or has lent them.
    pub(super) const fn resend_at(&self) -> Option<Moment> {
        match self.open {
            Open::Unanswered { .. } => Some(self.due),
            Open::None | Open::UnderWay { .. } => None,
        }
    }

    /// When to claim even without room: a flood of due messages may hide others, until claims have
    /// moved it to its lane.
    pub(super) fn sort_at(&self) -> Option<Moment> {
        (self.unsorted && !self.is_open() && !self.failing).then_some(self.answered)
    }

    /// When to send a new claim, if there is room for its messages. If this worker has not waited
    /// for the queue's hints since `unheard_since`, it polls the queue more often.
    pub(super) fn new_at(&self, unheard_since: Option<Moment>) -> Option<Moment> {
        if self.is_open() {
            return None;
        }
        let known = self.due.min(self.poll);
        let unheard = unheard_since
            .filter(|_| !self.failing)
            .map_or(known, |since| since.max(self.sent.after(UNHEARD_POLL)));
        Some(known.min(unheard).max(self.not_before))
    }

    /// There may be something to claim at `moment`. After a failure, the pause still counts: a hint
    /// does not repair the backend.
    pub(super) fn hurry(&mut self, moment: Moment) {
        if !self.failing {
            self.due = self.due.min(moment);
        }
    }

    /// Sends no new claim before `moment`, whatever becomes known.
    pub(super) fn hold(&mut self, moment: Moment) {
        self.not_before = self.not_before.max(moment);
    }

    /// A worker of this process polled at `moment` and left nothing. That worker polls next, and
    /// this one only if that worker has not polled by then. This worker's own polls have no effect:
    /// their replies have already set the next one.
    ///
    /// A fortieth of the time lies between both: 125 ms of 5 s. If replies take longer, several
    /// workers may poll at the same time.
    pub(super) fn looked(&mut self, moment: Moment, rng: &mut Rng) {
        if !self.failing && moment > self.answered {
            let longest = self.longest_poll;
            self.poll = self.poll.max(moment.after(rng.between(longest * 39 / 40, longest)));
        }
    }

    /// Returns the claim to send: the unanswered one, or a new one for `room` free slots.
    pub(super) fn send(&mut self, now: Moment, room: usize, rng: &mut Rng) -> Claim {
        let open = std::mem::replace(&mut self.open, Open::None);
        let (claim, first_sent, suspect) = match open {
            Open::Unanswered { claim, first_sent, suspect } => (claim, first_sent, Some(suspect)),
            Open::None | Open::UnderWay { .. } => {
                // A queue that fails must not hold up the others at each attempt.
                self.lent = self.failing;
                let (consumer, claim_id) = (self.consumer.clone(), rng.claim_id());
                (Claim::new(consumer, claim_id, room, self.lease), now, None)
            }
        };
        self.open = Open::UnderWay { max: claim.max, first_sent, sent: now, suspect };
        // Only changes during the claim can be news to it.
        self.due = now.after(FAR);
        self.poll = now.after(FAR);
        self.sent = now;
        self.promised = false;
        claim
    }

    /// Returns since when the leases may have been running, and whether they have expired.
    pub(super) fn answered(
        &mut self,
        now: Moment,
        (at, micros): (Timestamp, u16),
        claimed: &Claimed,
        rng: &mut Rng,
    ) -> Leased {
        let (first_sent, max) = match std::mem::replace(&mut self.open, Open::None) {
            Open::UnderWay { first_sent, max, .. } => (first_sent, max),
            Open::None | Open::Unanswered { .. } => (now, 0),
        };
        self.answered = now;
        self.now_there = at;
        self.capped = claimed.capped;
        self.unsorted = claimed.unsorted;
        // One quick reply does not make a distant server near.
        self.usual = now.since(self.sent).min(LONGEST_USUAL).max(self.usual / 2);
        let run_out = !claimed.deliveries.is_empty() && now >= first_sent.after(self.lease.into());
        let leased = Leased { since: first_sent, lasting: self.lease, run_out };
        if run_out {
            // The next claim would be too late as well; another worker may be closer.
            self.pause(now, rng);
            return leased;
        }
        self.failing = false;
        self.backoff.reset();
        let longest = self.longest_poll;
        self.poll = now.after(rng.between(longest * 9 / 10, longest * 19 / 20));
        // Both instants are on the server's clock, so this process's clock does not matter.
        let told = claimed.next.map(|next| next.since(at));
        self.promised = told.is_some() && !claimed.more && claimed.deliveries.len() < max;
        let due = match (claimed.more, told) {
            // There is more, but not for us: other messages are being reclaimed or buried. Continue
            // step by step, not in a hot loop.
            (true, _) if claimed.deliveries.is_empty() => now.after(STEP),
            (true, _) => now,
            // The server computed this some time after the claim was sent. A claim sent this much
            // later arrives in time if it takes as long.
            (false, Some(told)) => {
                let past = Duration::from_micros(micros.into());
                self.sent.after(told.saturating_sub(past))
            }
            (false, None) => now.after(FAR),
        };
        self.due = self.due.min(due);
        leased
    }

    pub(super) fn failed(&mut self, now: Moment, claim: Claim, class: ErrorClass, rng: &mut Rng) {
        if let Open::UnderWay { first_sent, sent, suspect, .. } = self.open {
            let suspect = if class == ErrorClass::Ambiguous { Some(sent) } else { suspect };
            // Once its leases have expired, they are reclaimed like any others, and the claim no
            // longer needs to hold slots.
            let lasting = |suspect: &Moment| now < suspect.after(self.lease.into());
            self.open = match suspect.filter(lasting) {
                Some(suspect) => Open::Unanswered { claim, first_sent, suspect },
                None => Open::None,
            };
        }
        self.pause(now, rng);
    }

    fn pause(&mut self, now: Moment, rng: &mut Rng) {
        self.failing = true;
        self.due = now.after(self.backoff.next(rng.chance()));
        self.poll = self.due;
    }
}

/// The knowledge about the leases from a claim.
#[derive(Clone, Copy, Debug)]
pub(super) struct Leased {
    /// They may have been running since then.
    pub(super) since: Moment,
    /// Their duration.
    pub(super) lasting: Millis,
    /// Whether they expired before the reply came.
    pub(super) run_out: bool,
}

const STEP: Duration = Duration::from_millis(1);
/// How long an open claim keeps its slots at least: a lost reply and one repetition. If replies
/// usually take longer, it is four times as long as they do.
const SHORTEST_PATIENCE: Duration = Duration::from_millis(150);
/// Longer replies are not usual: a server that was silent may be silent again.
const LONGEST_USUAL: Duration = Duration::from_millis(500);
/// How often to claim from a queue that shares its worker while the worker is not waiting for its
/// hints.
const UNHEARD_POLL: Duration = Duration::from_millis(500);
/// Longer than any time between claims.
const FAR: Duration = Duration::from_secs(3_600);

#[cfg(test)]
mod tests {
    use super::*;

    /// One worker of a process polls, and the others learn of its reply before their own polls.
    #[test]
    fn idle_workers_of_a_process_do_not_poll_together() {
        let reply_takes = Duration::from_millis(100);
        let longest_poll = Duration::from_secs(5);
        let end = Moment::START.after(Duration::from_secs(1_000));
        let mut workers: Vec<(Claims, Rng, Option<Moment>)> = (0..4_u8)
            .map(|n| {
                let consumer = ConsumerName::new("worker").unwrap();
                let lease = Millis::saturating(30_000);
                (Claims::new(consumer, lease, longest_poll), Rng::new([n; 16]), None)
            })
            .collect();
        let mut sent = 0;
        let (mut polled, mut longest) = (Moment::START, Duration::ZERO);
        loop {
            let next = |(claims, _, reply): &(Claims, Rng, Option<Moment>)| {
                reply.or_else(|| claims.new_at(None)).unwrap()
            };
            let (n, now) = workers.iter().map(next).enumerate().min_by_key(|at| at.1).unwrap();
            if now >= end {
                break;
            }
            let (claims, rng, reply) = &mut workers[n];
            if reply.take().is_none() {
                claims.send(now, 1, rng);
                *reply = Some(now.after(reply_takes));
                sent += 1;
                longest = longest.max(now.since(polled));
                polled = now;
            } else {
                claims.answered(now, (Timestamp::MIN, 0), &Claimed::default(), rng);
                workers.iter_mut().for_each(|(claims, rng, _)| claims.looked(now, rng));
            }
        }
        // All four at the start, and then one every 4.6 to 4.85 s with its reply.
        assert!(sent < 4 + 1_000_000 / 4_600, "{sent} polls in 1,000 s");
        assert!(longest <= longest_poll + reply_takes, "{longest:?}");
    }
}
