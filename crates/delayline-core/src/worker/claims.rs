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
    sent: Moment,
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
            sent: Moment::START,
            promised: false,
            failing: false,
            pauses: Pauses::new(),
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

    /// When there is a claim to be sent, with or without room for a new one.
    pub(super) fn next(&self, has_room: bool) -> Option<Moment> {
        match self.open {
            Open::UnderWay { .. } => None,
            Open::Unanswered { .. } => Some(self.due),
            Open::None if has_room => Some(self.due.min(self.poll)),
            Open::None => None,
        }
    }

    /// There may be something to claim at `moment`. After a failure the pause counts: a hint does
    /// not mend the backend.
    pub(super) fn hurry(&mut self, moment: Moment) {
        if !self.failing {
            self.due = self.due.min(moment);
        }
    }

    /// Another worker of this process has looked at `moment` and left nothing.
    pub(super) fn looked(&mut self, moment: Moment, dice: &mut Dice) {
        if !self.failing {
            self.poll = self.poll.max(moment.after(dice.nearly(self.longest_poll)));
        }
    }

    /// Nothing can be heard of the queue: it is to be looked at more often.
    pub(super) fn hurry_unheard(&mut self) {
        self.hurry(self.sent.after(UNHEARD_POLL));
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

    /// Answers since when the leases may have been running.
    pub(super) fn answered(
        &mut self,
        now: Moment,
        at: Timestamp,
        claimed: &Claimed,
        dice: &mut Dice,
    ) -> Moment {
        let (first_sent, max) = match std::mem::replace(&mut self.open, Open::None) {
            Open::UnderWay { first_sent, max, .. } => (first_sent, max),
            Open::None | Open::Unanswered { .. } => (now, 0),
        };
        self.failing = false;
        self.pauses.reset();
        let poll = dice.nearly(self.longest_poll);
        self.poll = now.after(poll);
        // Both instants are of the server's clock, so this process's clock does not matter.
        let told = claimed.next.map(|next| next.since(at)).filter(|told| *told < poll);
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
        first_sent
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
        self.failing = true;
        self.due = now.after(self.pauses.next(dice));
        self.poll = self.due;
    }
}

const STEP: Duration = Duration::from_millis(1);
/// How long a queue that shares its worker goes without a look while all slots are taken.
const UNHEARD_POLL: Duration = Duration::from_millis(500);
/// Longer than any time to the next claim.
const FAR: Duration = Duration::from_secs(3_600);
