//! Settlements that carry messages or a result.

use super::{Changes, State};
use crate::{HandOff, HandedOff, Settled, Timestamp};

impl State {
    /// Ends leases, keeps the results of acks, and then enqueues the messages of the settlements
    /// that this has ended.
    pub(super) fn hand_off(
        &mut self,
        now: Timestamp,
        items: &[HandOff],
        changes: &mut Changes,
    ) -> Vec<HandedOff> {
        let settled = items.iter().map(|item| self.settle(now, &item.settlement, changes));
        let settled: Vec<_> = settled.collect();
        let kept = self.keep_results(now, items, &settled);
        let send = |((item, settled), result_kept): ((&HandOff, Settled), bool)| {
            let messages =
                if matches!(settled, Settled::Done { .. }) { &item.messages[..] } else { &[] };
            let messages = messages.iter().map(|message| self.enqueue(now, message, changes));
            HandedOff { settled, messages: messages.collect(), result_kept }
        };
        items.iter().zip(settled).zip(kept).map(send).collect()
    }

    /// Keeps the results of the acks that are done. Returns for each item whether its result is
    /// kept, now or since an earlier attempt.
    ///
    /// New results make room by removing a bounded number of expired ones, at least two for each,
    /// so that nothing stays for ever.
    pub(super) fn keep_results(
        &mut self,
        now: Timestamp,
        items: &[HandOff],
        settled: &[Settled],
    ) -> Vec<bool> {
        let pairs = || items.iter().zip(settled);
        let is_new = |(item, settled): &(&HandOff, &Settled)| {
            item.result.is_some() && matches!(settled, Settled::Done { .. })
        };
        let new = pairs().filter(is_new).filter_map(|(item, _)| item.result.as_ref());
        let bytes = new.clone().map(|result| result.bytes.len()).sum();
        self.results.make_room(now, new.count(), bytes);
        let keep = |(item, settled): (&HandOff, &Settled)| {
            let Some(result) = &item.result else { return false };
            let (id, lease) = (&item.settlement.id, item.settlement.lease);
            match settled {
                Settled::Done { .. } => self.results.keep(now, id, lease, result),
                Settled::AlreadyDone { .. } => {}
                Settled::Stale | Settled::Missing => return false,
            }
            self.results.is_kept(now, id, lease)
        };
        pairs().map(keep).collect()
    }
}
