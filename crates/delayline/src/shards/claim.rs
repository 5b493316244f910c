//! Claims: from the shard whose head is oldest, within a bound also from every other one.

use std::collections::VecDeque;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use delayline_core::{
    Applied, Claim, Claimed, Delivery, Error, ErrorKind, MessageState, Op, Reply, Timestamp, Wakeup,
};
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::runtime::Handle;
use tokio::time::{Instant, timeout_at};

use super::journal::Journal;
use super::lease::marked;
use super::{How, Shards, failure, unexpected};

/// The replies of shards to the parts of one claim.
#[derive(Default)]
struct Merged {
    /// The clock that counts.
    first: Option<Reference>,
    claimed: Claimed,
    /// What else each shard replied.
    replied: Vec<(usize, Claimed)>,
    /// The deliveries of each shard, in their order.
    deliveries: Vec<VecDeque<Delivery>>,
    /// Shards that count on this process for their next message, although it has no room left.
    waiting: Vec<usize>,
    errors: Vec<Error>,
    revision: u64,
}

/// What the clock of a shard shows when it is the first to reply: the earliest of all.
struct Reference {
    shard: usize,
    at: Timestamp,
    micros: u16,
}

impl Shards {
    fn journal(&self) -> MutexGuard<'_, Journal> {
        // Nothing panics while it is locked.
        self.journal.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Why claims go without some shards, if they do.
    pub(crate) fn failure_of_claims(&self) -> Option<Error> {
        self.heads().failure()
    }

    pub(super) async fn claim(&self, how: How, claim: &Claim) -> Result<Applied, Error> {
        let mut merged = Merged::default();
        let turn = self.journal().begin(claim);
        let _turn = turn.lock().await;
        let repeated = self.journal().again(claim);
        if !repeated.is_empty() {
            self.ask(how, repeated, &mut merged).await?;
        } else if claim.max == 0 {
            let mut shards = self.heads().unsorted();
            if shards.is_empty() {
                // Each reclaims its expired leases.
                shards.extend(0..self.shards.len());
            }
            let parts = shards.into_iter().map(|shard| (shard, claim.clone())).collect();
            self.ask(how, parts, &mut merged).await?;
        } else {
            let mut asked = vec![false; self.shards.len()];
            loop {
                let room = claim.max.saturating_sub(merged.count());
                let shares = self.heads().share(how.at, room, &asked);
                if shares.is_empty() {
                    break;
                }
                shares.iter().for_each(|&(shard, _)| asked[shard] = true);
                let parts = self.journal().parts(claim, shares);
                self.ask(how, parts, &mut merged).await?;
            }
        }
        self.merged(how, claim, merged)
    }

    /// Claims from shards at the same time. Once one has replied, the others get little more time:
    /// a server that does not reply must not hold up their messages.
    async fn ask(
        &self,
        how: How,
        parts: Vec<(usize, Claim)>,
        merged: &mut Merged,
    ) -> Result<(), Error> {
        let sent = Instant::now();
        self.journal().sent(&parts);
        let calls = parts.iter().enumerate().map(|(n, (shard, part))| async move {
            (n, self.send(*shard, how, &Op::Claim(part.clone())).await)
        });
        let mut calls: FuturesUnordered<_> = calls.collect();
        let mut results: Vec<Option<Result<Applied, Error>>> = parts.iter().map(|_| None).collect();
        let all_failing = parts.iter().all(|(shard, _)| self.heads().is_failing(*shard));
        let mut until = all_failing.then(|| sent + PATIENCE_ALONE);
        loop {
            let next = match until {
                Some(until) => timeout_at(until, calls.next()).await.unwrap_or_default(),
                None => calls.next().await,
            };
            let Some((n, result)) = next else { break };
            if result.is_ok() {
                until = Some(until.unwrap_or_else(|| sent + (sent.elapsed() * 4).max(PATIENCE)));
            }
            results[n] = Some(result);
        }
        drop(calls);
        if merged.first.is_none() {
            let replied = results.iter().zip(&parts).filter_map(|(result, (shard, _))| {
                let Some(Ok(applied)) = result else { return None };
                Some(Reference { shard: *shard, at: applied.at, micros: applied.micros })
            });
            merged.first = replied.min_by_key(|it| (it.at, it.micros));
        }
        for ((shard, part), result) in parts.into_iter().zip(results) {
            let result = result.unwrap_or_else(|| {
                let detail = format!("{}: no reply to a claim", self.shards[shard].name);
                Err(Error::with_detail(ErrorKind::Timeout, detail))
            });
            self.journal().note(shard, &part, &result);
            let applied = match result {
                Ok(applied) => applied,
                Err(error) => {
                    self.heads().failed(shard, &error);
                    merged.errors.push(error);
                    continue;
                }
            };
            let Reply::Claim(claimed) = &applied.reply else { return Err(unexpected()) };
            self.heads().answered(shard, sent, &applied, claimed);
            merged.add(shard, &part, applied, |delivery| {
                let info = &delivery.message.info;
                if info.group.is_some() && self.of_id(&info.id) != shard {
                    delivery.lease = marked(delivery.lease, shard);
                }
            });
        }
        Ok(())
    }

    fn merged(&self, how: How, claim: &Claim, merged: Merged) -> Result<Applied, Error> {
        let Merged { first, mut claimed, replied, deliveries, waiting, errors, revision } = merged;
        claimed.deliveries = in_order(deliveries);
        let Some(Reference { shard, at, micros }) = first else {
            return Err(failure(errors, true).unwrap_or_else(unexpected));
        };
        for error in &errors {
            tracing::debug!(queue = %self.name, %error, "a claim goes without a shard");
        }
        self.heads().complete(how.at, (shard, at), &replied, &mut claimed);
        if claimed.deliveries.len() >= claim.max {
            waiting.into_iter().for_each(|shard| self.hand_on(shard));
        }
        Ok(Applied::new(at, revision, Reply::Claim(claimed)).with_micros(micros))
    }

    /// Leaves the next message of a shard to another process.
    fn hand_on(&self, shard: usize) {
        let Ok(runtime) = Handle::try_current() else { return };
        let backend = Arc::clone(&self.shards[shard].backend);
        // Without it, other workers come when they poll.
        runtime.spawn(async move { Wakeup::ring(&backend).await.ok() });
    }
}

impl Merged {
    fn count(&self) -> usize {
        self.deliveries.iter().map(VecDeque::len).sum()
    }

    fn add(&mut self, shard: usize, part: &Claim, applied: Applied, mark: impl Fn(&mut Delivery)) {
        self.revision = self.revision.saturating_add(applied.revision);
        let Applied { at, reply, .. } = applied;
        let Reply::Claim(mut claimed) = reply else { return };
        let has_room = claimed.deliveries.len() < part.max;
        if has_room && claimed.next.is_some() && !claimed.more {
            self.waiting.push(shard);
        }
        for delivery in &mut claimed.deliveries {
            mark(delivery);
            // A lease that was granted now, and not to an earlier claim of this id.
            if let (MessageState::Leased { deadline, .. }, Some(first)) =
                (&mut delivery.message.info.state, &self.first)
                && *deadline == at.after(part.lease)
            {
                *deadline = first.at.after(part.lease);
            }
        }
        self.deliveries.push(std::mem::take(&mut claimed.deliveries).into());
        self.claimed.deaths.append(&mut claimed.deaths);
        self.replied.push((shard, claimed));
    }
}

/// Merges the deliveries of shards, each of which stays in its order: by priority and due instant,
/// as far as turns of groups do not decide otherwise.
fn in_order(mut shards: Vec<VecDeque<Delivery>>) -> Vec<Delivery> {
    let key = |shard: &VecDeque<Delivery>| {
        let info = &shard.front()?.message.info;
        Some((info.priority.level(), info.due, info.sequence))
    };
    let mut merged = Vec::new();
    while let Some(first) = shards.iter_mut().filter(|it| !it.is_empty()).min_by_key(|it| key(it)) {
        merged.extend(first.pop_front());
    }
    merged
}

/// How long a claim waits for the other shards once one has replied; four times as long as the
/// first reply took if that is longer.
const PATIENCE: Duration = Duration::from_millis(250);
/// How long a claim waits for shards whose latest claims have failed.
const PATIENCE_ALONE: Duration = Duration::from_secs(1);
