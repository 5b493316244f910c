//! When to claim, and what becomes of a claim.

use std::time::Duration;

use super::Moment;
use super::dice::Dice;
use super::pauses::Pauses;
use crate::{Claim, Claimed, Class, ConsumerName, Millis, Timestamp};

/// One claim at a time. A claim that may have been executed unheard is sent again under its own id,
/// so that whatever it has leased is found (G16).
#[derive(Debug)]
pub(super) struct Claims {
    consumer: ConsumerName,
    lease: Millis,
    /// How long to go without a look at the queue at the most.
    longest_poll: Duration,
    open: Open,
    /// When there will be something to claim, as far as is known.
    due: Moment,
    /// When to look whatever is known.
    poll: Moment,
    /// No new claim is sent before, whatever is known.
    not_before: Moment,
    sent: Moment,
    /// When the latest claim was answered.
    answered: Moment,
    /// The queue counts on this worker to come at `due`: its claim was told that there would be
    /// something, and others are not woken for it.
    pub(super) promised: bool,
    failing: bool,
    pauses: Pauses,
}

/// A claim whose answer is not known.
#[derive(Debug)]
enum Open {
    None,
    UnderWay {
        max: usize,
        first_sent: Moment,
        sent: Moment,
        /// When an earlier try was sent that may have been executed.
        suspect: Option<Moment>,
    },
    /// To be sent again.
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
            promised: false,
            failing: false,
            pauses: Pauses::of_failures(),
        }
    }

    pub(super) const fn is_open(&self) -> bool {
        !matches!(self.open, Open::None)
    }

    pub(super) const fn is_under_way(&self) -> bool {
        matches!(self.open, Open::UnderWay { .. })
    }

    /// Whether the latest try has failed.
    pub(super) const fn is_failing(&self) -> bool {
        self.failing
    }

    /// How many slots must stay free for the open claim.
    pub(super) const fn reserved(&self) -> usize {
        match &self.open {
            Open::None => 0,
            Open::UnderWay { max, .. } => *max,
            Open::Unanswered { claim, .. } => claim.max,
        }
    }

    /// When to send the open claim again. It has its slots already.
    pub(super) const fn resend_at(&self) -> Option<Moment> {
        match self.open {
            Open::Unanswered { .. } => Some(self.due),
            Open::None | Open::UnderWay { .. } => None,
        }
    }

    /// When to send a new claim, if there is room for what it may bring. A queue whose hints have
    /// not been waited for since `unheard_since` is claimed from more often.
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

    /// There may be something to claim at `moment`. After a failure the pause counts: a hint does
    /// not mend the backend.
    pub(super) fn hurry(&mut self, moment: Moment) {
        if !self.failing {
            self.due = self.due.min(moment);
        }
    }

    /// Sends no new claim before `moment`, whatever becomes known.
    pub(super) fn hold(&mut self, moment: Moment) {
        self.not_before = self.not_before.max(moment);
    }

    /// A worker of this process has looked at `moment` and left nothing. A look of this worker's
    /// own says nothing new: its answer has set the next one.
    pub(super) fn looked(&mut self, moment: Moment, dice: &mut Dice) {
        if !self.failing && moment > self.answered {
            self.poll = self.poll.max(moment.after(dice.nearly(self.longest_poll)));
        }
    }

    /// The claim to send: the unanswered one, or a new one for `room` free slots.
    pub(super) fn send(&mut self, now: Moment, room: usize, dice: &mut Dice) -> Claim {
        let open = std::mem::replace(&mut self.open, Open::None);
        let (claim, first_sent, suspect) = match open {
            Open::Unanswered { claim, first_sent, suspect } => (claim, first_sent, Some(suspect)),
            Open::None | Open::UnderWay { .. } => {
                let (consumer, claim_id) = (self.consumer.clone(), dice.claim_id());
                (Claim { consumer, claim_id, max: room, lease: self.lease }, now, None)
            }
        };
        self.open = Open::UnderWay { max: claim.max, first_sent, sent: now, suspect };
        // Only what is heard of while it is under way can be news to it.
        self.due = now.after(FAR);
        self.poll = now.after(FAR);
        self.sent = now;
        self.promised = false;
        claim
    }

    /// Answers since when the leases may have been running, and whether they have run out.
    pub(super) fn answered(
        &mut self,
        now: Moment,
        at: Timestamp,
        claimed: &Claimed,
        dice: &mut Dice,
    ) -> Leased {
        let (first_sent, max) = match std::mem::replace(&mut self.open, Open::None) {
            Open::UnderWay { first_sent, max, .. } => (first_sent, max),
            Open::None | Open::Unanswered { .. } => (now, 0),
        };
        self.answered = now;
        let run_out = !claimed.deliveries.is_empty() && now >= first_sent.after(self.lease.into());
        let leased = Leased { since: first_sent, lasting: self.lease, run_out };
        if run_out {
            // The next claim would come too late as well; another worker may be closer.
            self.pause(now, dice);
            return leased;
        }
        self.failing = false;
        self.pauses.reset();
        self.poll = now.after(dice.nearly(self.longest_poll));
        // Both instants are of the server's clock, so this process's clock does not matter.
        let told = claimed.next.map(|next| next.since(at));
        self.promised = told.is_some() && !claimed.more && claimed.deliveries.len() < max;
        let due = match (claimed.more, told) {
            // More, but nothing for us: other messages are being taken back or buried. That goes
            // on step by step, not as a hot loop.
            (true, _) if claimed.deliveries.is_empty() => now.after(STEP),
            (true, _) => now,
            // The queue has told it some time after the claim was sent. A claim that is sent so
            // much later arrives in time, if it takes as long.
            (false, Some(told)) => self.sent.after(told),
            (false, None) => now.after(FAR),
        };
        self.due = self.due.min(due);
        leased
    }

    pub(super) fn failed(&mut self, now: Moment, claim: Claim, class: Class, dice: &mut Dice) {
        if let Open::UnderWay { first_sent, sent, suspect, .. } = self.open {
            let suspect = if class == Class::Ambiguous { Some(sent) } else { suspect };
            // Once its leases have run out they are taken back like any others, and the claim need
            // not hold slots any more.
            let lasting = |suspect: &Moment| now < suspect.after(self.lease.into());
            self.open = match suspect.filter(lasting) {
                Some(suspect) => Open::Unanswered { claim, first_sent, suspect },
                None => Open::None,
            };
        }
        self.pause(now, dice);
    }

    fn pause(&mut self, now: Moment, dice: &mut Dice) {
        self.failing = true;
        self.due = now.after(self.pauses.next(dice));
        self.poll = self.due;
    }
}

/// What is known of the leases that a claim has brought.
#[derive(Clone, Copy, Debug)]
pub(super) struct Leased {
    /// They may have been running since then.
    pub(super) since: Moment,
    /// For how long.
    pub(super) lasting: Millis,
    /// The answer took longer than they last.
    pub(super) run_out: bool,
}

const STEP: Duration = Duration::from_millis(1);
/// How often a queue that shares its worker is claimed from while its hints are not waited for.
const UNHEARD_POLL: Duration = Duration::from_millis(500);
/// Longer than any time to the next claim.
const FAR: Duration = Duration::from_secs(3_600);
