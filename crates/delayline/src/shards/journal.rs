//! The claims that are repeated.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use delayline_core::limits::{JOURNAL_RETENTION_MS, MAX_JOURNAL};
use delayline_core::{Applied, Claim, ClaimId, ConsumerName, Error, ErrorClass, Reply};
use tokio::sync::Mutex;
use tokio::time::Instant;

/// The latest claim of each consumer, by which a claim with the same id asks the same shards again.
#[derive(Default)]
pub(super) struct Journal(HashMap<ConsumerName, Latest>);

struct Latest {
    claim_id: ClaimId,
    since: Instant,
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
        let now = Instant::now();
        if self.0.len() >= MAX_JOURNAL && !self.0.contains_key(&claim.consumer) {
            let recent = Duration::from_millis(JOURNAL_RETENTION_MS);
            self.0.retain(|_, latest| now - latest.since < recent);
        }
        let latest = self.0.entry(claim.consumer.clone()).or_insert_with(|| Latest {
            claim_id: claim.claim_id,
            since: now,
            turn: Arc::default(),
            answered: Vec::new(),
            sent: Vec::new(),
            open: Vec::new(),
        });
        latest.since = now;
        if latest.claim_id != claim.claim_id {
            (latest.claim_id, latest.turn) = (claim.claim_id, Arc::default());
            latest.answered.clear();
            latest.sent.clear();
        }
        Arc::clone(&latest.turn)
    }

    /// The parts to repeat, if the claim has leased messages before, or its future was dropped. Not
    /// those whose replies are lost: a silent shard must not hold up the messages of the others.
    pub(super) fn again(&self, claim: &Claim) -> Vec<(usize, Claim)> {
        let latest = self.0.get(&claim.consumer).filter(|it| it.claim_id == claim.claim_id);
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
        let Some(latest) = self.0.get_mut(&claim.consumer) else { return Vec::new() };
        // The leases of an older one have expired, and are reclaimed like any others.
        let lease = Duration::from(claim.lease);
        latest.open.retain(|(_, _, since)| since.elapsed() < lease);
        let part = |(shard, max)| {
            // One that asks for more would deliver more than there is room for.
            latest.open.retain(|(open, part, _)| *open != shard || part.max <= max);
            if let Some((_, open, _)) = latest.open.iter().find(|(open, ..)| *open == shard) {
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
            let latest = self.0.get_mut(&part.consumer);
            if let Some(latest) = latest.filter(|it| it.claim_id == part.claim_id) {
                latest.sent.retain(|(sent, _)| sent != shard);
                latest.sent.push((*shard, part.max));
            }
        }
    }

    /// Remembers what a shard has done with its part.
    pub(super) fn note(&mut self, shard: usize, part: &Claim, result: &Result<Applied, Error>) {
        let Some(latest) = self.0.get_mut(&part.consumer) else { return };
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
