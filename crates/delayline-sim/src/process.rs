//! The process of one worker.

use std::collections::{BTreeMap, HashSet};

use delayline_core::worker::{Machine, Slot};
use delayline_core::{ClaimId, Lease, MessageId};

use crate::story::{Answer, Ms};

/// A process that lives, is frozen, or has ended.
pub(crate) struct Process {
    /// `None` between two incarnations.
    pub(crate) machine: Option<Machine>,
    /// Replies meant for an earlier one are dropped.
    pub(crate) incarnation: u64,
    /// Until then it does nothing.
    pub(crate) frozen_until: Ms,
    pub(crate) running: BTreeMap<Slot, Handler>,
    /// The messages that its handlers have ended with a hand-off.
    pub(crate) handed_off: HashSet<(usize, MessageId, Lease)>,
    /// The ids of its claims.
    pub(crate) claims: HashSet<ClaimId>,
    /// How many of its handlers have ended.
    pub(crate) handled: u64,
    /// It takes nothing more, and must have ended by then.
    pub(crate) stops_by: Option<Ms>,
    /// Since when it has had a free slot.
    pub(crate) room_since: Option<Ms>,
    /// The second of the last call, and how many calls it has seen.
    pub(crate) pace: (Ms, u64),
}

/// A running handler.
pub(crate) struct Handler {
    pub(crate) id: MessageId,
    pub(crate) lease: Lease,
    pub(crate) answer: Answer,
    pub(crate) follow_ups: usize,
    pub(crate) heeds_token: bool,
    /// Its token has fired.
    pub(crate) cancelled: bool,
}

impl Process {
    pub(crate) fn new() -> Self {
        Self {
            machine: None,
            incarnation: 0,
            frozen_until: 0,
            running: BTreeMap::new(),
            handed_off: HashSet::new(),
            claims: HashSet::new(),
            handled: 0,
            stops_by: None,
            room_since: None,
            pace: (0, 0),
        }
    }

    /// Ends the process with all its handlers. Returns the number of handlers.
    pub(crate) fn end(&mut self) -> usize {
        self.machine = None;
        self.incarnation += 1;
        self.frozen_until = 0;
        (self.handled, self.stops_by) = (0, None);
        self.room_since = None;
        self.handed_off.clear();
        self.claims.clear();
        std::mem::take(&mut self.running).len()
    }
}
