//! The results that a queue keeps.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use crate::limits::{MAX_EXPIRED_RESULTS, MAX_RESULTS_BYTES};
use crate::{Lease, MessageId, NewResult, Timestamp};

/// Results of acks by id. Each id has the latest one only.
#[derive(Clone, Debug, Default)]
pub(super) struct Results {
    by_id: BTreeMap<MessageId, Kept>,
    by_end: BTreeSet<(Timestamp, MessageId)>,
    /// The sum over all results, including expired ones that are not removed yet.
    bytes: usize,
}

#[derive(Clone, Debug)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(deny_unknown_fields)
)]
pub(super) struct Kept {
    /// The lease whose ack had it.
    pub(super) lease: Lease,
    until: Timestamp,
    #[cfg_attr(feature = "serde", serde(with = "crate::form::bytes"))]
    pub(super) bytes: Bytes,
}

impl Results {
    #[cfg(feature = "serde")]
    pub(super) const fn all(&self) -> &BTreeMap<MessageId, Kept> {
        &self.by_id
    }

    #[cfg(feature = "serde")]
    pub(super) fn of(by_id: BTreeMap<MessageId, Kept>) -> Self {
        let by_end = by_id.iter().map(|(id, kept)| (kept.until, id.clone())).collect();
        let bytes = by_id.values().map(|kept| kept.bytes.len()).sum();
        Self { by_id, by_end, bytes }
    }

    pub(super) fn get(&self, now: Timestamp, id: &MessageId) -> Option<&Kept> {
        self.by_id.get(id).filter(|kept| kept.until > now)
    }

    /// Returns the number of results that are still kept.
    pub(super) fn kept(&self, now: Timestamp) -> usize {
        self.by_end.iter().rev().take_while(|(until, _)| *until > now).count()
    }

    pub(super) fn is_kept(&self, now: Timestamp, id: &MessageId, lease: Lease) -> bool {
        self.get(now, id).is_some_and(|kept| kept.lease == lease)
    }

    fn remove(&mut self, id: &MessageId) {
        if let Some(Kept { until, bytes, .. }) = self.by_id.remove(id) {
            self.by_end.remove(&(until, id.clone()));
            self.bytes -= bytes.len();
        }
    }

    /// Makes room for `new` results of `bytes` in all. Removes the oldest expired results: two for
    /// each new one, or up to [`MAX_EXPIRED_RESULTS`] if the new results do not fit otherwise.
    pub(super) fn make_room(&mut self, now: Timestamp, new: usize, bytes: usize) {
        let fits = self.bytes + bytes <= MAX_RESULTS_BYTES;
        let most = if fits || new == 0 { 2 * new } else { MAX_EXPIRED_RESULTS };
        let over = self.by_end.iter().take_while(|(until, _)| *until <= now).take(most);
        let over: Vec<_> = over.map(|(_, id)| id.clone()).collect();
        over.iter().for_each(|id| self.remove(id));
    }

    /// Keeps a result if there is room for it.
    pub(super) fn keep(
        &mut self,
        now: Timestamp,
        id: &MessageId,
        lease: Lease,
        result: &NewResult,
    ) {
        let before = self.by_id.get(id).map_or(0, |kept| kept.bytes.len());
        if self.bytes - before + result.bytes.len() > MAX_RESULTS_BYTES {
            return;
        }
        self.remove(id);
        let until = now.after(result.retention);
        self.bytes += result.bytes.len();
        self.by_end.insert((until, id.clone()));
        self.by_id.insert(id.clone(), Kept { lease, until, bytes: result.bytes.clone() });
    }
}
