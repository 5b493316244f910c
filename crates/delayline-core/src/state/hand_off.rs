//! Settlements that carry messages.

use super::{Changes, State};
use crate::{HandOff, HandedOff, Settled, Timestamp};

impl State {
    /// Ends leases, and then enqueues what follows from those that this has ended.
    pub(super) fn hand_off(
        &mut self,
        now: Timestamp,
        items: &[HandOff],
        changes: &mut Changes,
    ) -> Vec<HandedOff> {
        let settled = items.iter().map(|item| self.settle(now, &item.settlement, changes));
        let settled: Vec<_> = settled.collect();
        let send = |(item, settled): (&HandOff, Settled)| {
            let messages =
                if matches!(settled, Settled::Done { .. }) { &item.messages[..] } else { &[] };
            let messages = messages.iter().map(|message| self.enqueue(now, message, changes));
            HandedOff { settled, messages: messages.collect() }
        };
        items.iter().zip(settled).map(send).collect()
    }
}
