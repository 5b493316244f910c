//! The results that a queue keeps.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use crate::limits::{MAX_EXPIRED_RESULTS, MAX_RESULTS, MAX_RESULTS_BYTES};
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
        let fits = self.bytes + bytes <= MAX_RESULTS_BYTES && self.by_id.len() + new <= MAX_RESULTS;
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
        let before = self.by_id.get(id);
        let bytes = before.map_or(0, |kept| kept.bytes.len());
        if self.bytes - bytes + result.bytes.len() > MAX_RESULTS_BYTES
            || before.is_none() && self.by_id.len() >= MAX_RESULTS
        {
            return;
        }
        self.remove(id);
        let until = now.after(result.retention);
        self.bytes += result.bytes.len();
        self.by_end.insert((until, id.clone()));
        self.by_id.insert(id.clone(), Kept { lease, until, bytes: result.bytes.clone() });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ClaimId, Millis};

    #[test]
    fn as_many_results_are_kept_as_promised() {
        let id = |number: usize| MessageId::new(number.to_be_bytes().to_vec()).unwrap();
        let lease = Lease { claim_id: ClaimId::from_bytes([1; 16]), epoch: 1 };
        let kept = Kept { lease, until: Timestamp::MIN, bytes: Bytes::new() };
        let by_id = (2..MAX_RESULTS).map(|number| (id(number), kept.clone())).collect();
        let mut results = Results { by_id, ..Results::default() };
        let now = Timestamp::MIN;
        let result = NewResult::new(Bytes::new(), Millis::new(1).unwrap());
        let mut is_kept = |now, number| {
            results.make_room(now, 1, 0);
            results.keep(now, &id(number), lease, &result);
            results.is_kept(now, &id(number), lease)
        };
        assert!(
            [1, 0, 1].into_iter().all(|number| is_kept(now, number)),
            "the last one has a place"
        );
        assert!(!is_kept(now, MAX_RESULTS));
        assert!(is_kept(now.after(Millis::new(1).unwrap()), MAX_RESULTS), "expired ones make room");
    }
}
