//! Settlements that carry messages.

use super::{Changes, State};
use crate::{HandOff, HandedOff, Settled, Timestamp};

impl State {
    /// Ends a lease, and enqueues what follows if that has ended it.
    pub(super) fn hand_off(
        &mut self,
        now: Timestamp,
        item: &HandOff,
        changes: &mut Changes,
    ) -> HandedOff {
        let settled = self.settle(now, &item.settlement, changes);
        let messages = match settled {
            Settled::Done { .. } => {
                item.messages.iter().map(|message| self.enqueue(now, message, changes)).collect()
            }
            _ => Vec::new(),
        };
        HandedOff { settled, messages }
    }
}
