//! The claims that are repeated.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use delayline_core::limits::MAX_JOURNAL;
use delayline_core::{Applied, Claim, ClaimId, ConsumerName, Error, ErrorClass, Reply};
use tokio::sync::Mutex;
use tokio::time::Instant;

/// The latest claim of each consumer, by which a claim with the same id asks the same shards again.
/// A consumer is forgotten once [`MAX_JOURNAL`] others, or up to twice as many, have claimed.
#[derive(Default)]
pub(super) struct Journal {
    younger: HashMap<ConsumerName, Latest>,
    older: HashMap<ConsumerName, Latest>,
}

struct Latest {
    claim_id: ClaimId,
    /// Held while the claim runs.
    turn: Arc<Mutex<()>>,
    /// The shards that have leased messages, each with its share. The claim is repeated with these.
    answered: Vec<(usize, usize)>,
    /// Parts of the claim that were sent, and whose replies may still come.
    sent: Vec<(usize, usize)>,
    /// Parts whose replies are lost, with which shards may have leased messages. The next claim
    /// that asks the shard repeats them, whatever its own id.
    open: Vec<(usize, Claim, Instant)>,
}

impl Journal {
    /// Begins a claim. Returns a lock to hold while it runs: a claim that is repeated meanwhile
    /// would ask other shards.
    pub(super) fn begin(&mut self, claim: &Claim) -> Arc<Mutex<()>> {
        if self.younger.len() >= MAX_JOURNAL && !self.younger.contains_key(&claim.consumer) {
            let known = self.older.remove_entry(&claim.consumer);
            self.older = std::mem::take(&mut self.younger);
            self.younger.extend(known);
        }
        let older = &mut self.older;
        let latest = self.younger.entry(claim.consumer.clone()).or_insert_with_key(|consumer| {
            older.remove(consumer).unwrap_or_else(|| Latest {
                claim_id: claim.claim_id,
                turn: Arc::default(),
                answered: Vec::new(),
                sent: Vec::new(),
                open: Vec::new(),
            })
        });
        if latest.claim_id != claim.claim_id {
            (latest.claim_id, latest.turn) = (claim.claim_id, Arc::default());
            latest.answered.clear();
            latest.sent.clear();
        }
        Arc::clone(&latest.turn)
    }

    fn latest(&mut self, consumer: &ConsumerName) -> Option<&mut Latest> {
        self.younger.get_mut(consumer).or_else(|| self.older.get_mut(consumer))
    }

    /// The parts to repeat, if the claim has leased messages before, or its future was dropped. Not
    /// those whose replies are lost: a silent shard must not hold up the messages of the others.
    pub(super) fn again(&mut self, claim: &Claim) -> Vec<(usize, Claim)> {
        let latest = self.latest(&claim.consumer).filter(|it| it.claim_id == claim.claim_id);
        let Some(latest) = latest else { return Vec::new() };
        let shares: BTreeMap<_, _> = latest.sent.iter().chain(&latest.answered).copied().collect();
        let is_alone = shares.len() == 1;
        let part = |(shard, share): (usize, usize)| {
            let mut part = claim.clone();
            part.max = if is_alone { claim.max } else { share.min(claim.max) };
            (shard, part)
        };
        shares.into_iter().map(part).collect()
    }

    /// The parts of a claim, for shards with their shares.
    pub(super) fn parts(
        &mut self,
        claim: &Claim,
        shares: Vec<(usize, usize)>,
    ) -> Vec<(usize, Claim)> {
        // The consumer may have been forgotten meanwhile.
        let mut unknown = Vec::new();
        let open = self.latest(&claim.consumer).map_or(&mut unknown, |latest| &mut latest.open);
        // The leases of an older one have expired, and are reclaimed like any others.
        let lease = Duration::from(claim.lease);
        open.retain(|(_, _, since)| since.elapsed() < lease);
        let part = |(shard, max)| {
            // One that asks for more would deliver more than there is room for.
            open.retain(|(open, part, _)| *open != shard || part.max <= max);
            if let Some((_, open, _)) = open.iter().find(|(open, ..)| *open == shard) {
                return (shard, open.clone());
            }
            let mut part = claim.clone();
            part.max = max;
            (shard, part)
        };
        shares.into_iter().map(part).collect()
    }

    /// Remembers parts that are sent: the future that waits for the replies may be dropped.
    pub(super) fn sent(&mut self, parts: &[(usize, Claim)]) {
        for (shard, part) in parts {
            let latest = self.latest(&part.consumer);
            if let Some(latest) = latest.filter(|it| it.claim_id == part.claim_id) {
                latest.sent.retain(|(sent, _)| sent != shard);
                latest.sent.push((*shard, part.max));
            }
        }
    }

    /// Remembers what a shard has done with its part.
    pub(super) fn note(&mut self, shard: usize, part: &Claim, result: &Result<Applied, Error>) {
        let Some(latest) = self.latest(&part.consumer) else { return };
        // Another claim of the consumer may have begun.
        let is_latest = latest.claim_id == part.claim_id;
        if is_latest {
            latest.sent.retain(|(sent, _)| *sent != shard);
        }
        let repeats =
            |open: &(usize, Claim, Instant)| open.0 == shard && open.1.claim_id == part.claim_id;
        let since = latest.open.iter().position(repeats).map(|it| latest.open.swap_remove(it).2);
        match result {
            Ok(Applied { reply: Reply::Claim(claimed), .. }) => {
                let is_known = latest.answered.iter().any(|(answered, _)| *answered == shard);
                if !claimed.deliveries.is_empty() && is_latest && !is_known {
                    latest.answered.push((shard, part.max));
                }
            }
            Err(error) if error.class() == ErrorClass::Ambiguous => {
                latest.open.push((shard, part.clone(), since.unwrap_or_else(Instant::now)));
            }
            _ => {}
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "test code")]
mod tests {
    use delayline_core::Millis;

    use super::*;

    #[test]
    fn a_consumer_is_remembered_for_as_many_others_as_promised_and_not_for_ever() {
        let claim = |number: usize| {
            let consumer = ConsumerName::new(number.to_string()).unwrap();
            let id = ClaimId::from_bytes([7; ClaimId::BYTES]);
            Claim::new(consumer, id, 1, Millis::saturating(600_000))
        };
        let mut journal = Journal::default();
        for number in 0..5 * MAX_JOURNAL {
            journal.begin(&claim(number));
            journal.sent(&[(number % 2, claim(number))]);
            assert!(journal.younger.len() + journal.older.len() <= 2 * MAX_JOURNAL);
        }
        for number in 4 * MAX_JOURNAL - 1..5 * MAX_JOURNAL {
            assert_eq!(journal.again(&claim(number)).len(), 1, "{number}");
        }
        // The next claim of a consumer makes it the youngest.
        let back = claim(4 * MAX_JOURNAL - 1);
        journal.begin(&back);
        (0..MAX_JOURNAL).for_each(|number| drop(journal.begin(&claim(number))));
        assert_eq!(journal.again(&back).len(), 1);
        let forgotten = claim(4 * MAX_JOURNAL);
        assert!(journal.again(&forgotten).is_empty());
        assert_eq!(journal.parts(&forgotten, vec![(0, 1)]), [(0, forgotten)]);
    }
}
