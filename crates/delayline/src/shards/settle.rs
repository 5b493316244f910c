//! The end of leases: each goes to the shard that has granted it.

use delayline_core::{
    Applied, Change, Enqueued, Error, HandOff, HandedOff, Hold, NewMessage, Op, Outcome, Reply,
    Schedule, SetLimits, Settled, Settlement, Status, Timestamp,
};

use super::batch::Results;
use super::lease::{home_of, plain};
use super::{How, Parts, Shards, failure, unexpected};

impl Shards {
    fn home(&self, item: &Settlement) -> usize {
        home_of(item.lease, self.shards.len()).unwrap_or_else(|| self.of_id(&item.id))
    }

    pub(super) async fn settle(
        &self,
        how: How,
        items: &[Settlement],
    ) -> Result<Results<Settled>, Error> {
        let count = self.shards.len();
        let op =
            |items: Vec<_>| Op::Settle(items.into_iter().map(|it| unmarked(it, count)).collect());
        let read = |reply| if let Reply::Settle(all) = reply { Some(all) } else { None };
        let is_unknown = |result: &Settled| *result == Settled::Missing;
        let place = |item: &Settlement| self.home(item);
        let done = self.split(how, items, place, op, read, is_unknown).await?.whole()?;
        if let Some((shard, until)) = self.settled(items, &done) {
            self.hold_others(how, shard, until).await;
        }
        Ok(done)
    }

    /// Follow-ups for other shards are sent before the leases end, so that none is lost: those of
    /// a hand-off that is repeated are duplicates (G15).
    pub(super) async fn hand_off(&self, how: How, items: &[HandOff]) -> Result<Applied, Error> {
        let stays = |item: &HandOff, message: &NewMessage| {
            self.of_message(message) == self.home(&item.settlement)
        };
        let is_bare = |item: &HandOff| item.messages.is_empty() && item.result.is_none();
        let (mut own, mut leaving) = (items.to_vec(), Vec::new());
        for item in &mut own {
            let (stay, leave): (Vec<_>, Vec<_>) =
                std::mem::take(&mut item.messages).into_iter().partition(|it| stays(item, it));
            item.messages = stay;
            leaving.extend(leave);
        }
        let (bare, full): (Vec<_>, Vec<_>) = own.iter().cloned().partition(is_bare);
        let bare: Vec<_> = bare.into_iter().map(|item| item.settlement).collect();
        let (mut at, mut revision) = (None, 0_u64);
        let (mut sent, mut settled, mut handed) = (Vec::new(), Vec::new(), Vec::new());
        if !leaving.is_empty() {
            let done = self.enqueue(how, &leaving).await?;
            (at, sent) = (Some(done.at), done.replies);
        }
        let failed = |error, at: Option<Timestamp>| {
            failure(vec![error], at.is_none()).unwrap_or_else(unexpected)
        };
        if !bare.is_empty() {
            let done = self.settle(how, &bare).await.map_err(|error| failed(error, at))?;
            (at, revision, settled) = (at.max(Some(done.at)), done.revision, done.replies);
        }
        if !full.is_empty() {
            let done = self.hand_off_own(how, &full).await.map_err(|error| failed(error, at))?;
            (at, handed) = (at.max(Some(done.at)), done.replies);
            revision = revision.saturating_add(done.revision);
        }
        let (mut sent, mut settled) = (sent.into_iter(), settled.into_iter());
        let mut handed = handed.into_iter();
        let mut merged = Vec::new();
        for (item, own) in items.iter().zip(&own) {
            let mut result = match is_bare(own) {
                true => settled.next().map(|(_, result)| HandedOff::from(result)),
                false => handed.next().map(|(_, result)| result),
            }
            .ok_or_else(unexpected)?;
            let mut stayed = std::mem::take(&mut result.messages).into_iter();
            for message in &item.messages {
                let outcome = match stays(item, message) {
                    true => stayed.next(),
                    false => sent.next().map(|(_, outcome)| outcome),
                };
                let is_done = matches!(result.settled, Settled::Done { .. });
                result.messages.extend(outcome.filter(|_| is_done));
            }
            merged.push(result);
        }
        Ok(Applied::new(at.unwrap_or_default(), revision, Reply::HandOff(merged)))
    }

    /// Hand-offs without messages for other shards.
    async fn hand_off_own(&self, how: How, items: &[HandOff]) -> Result<Results<HandedOff>, Error> {
        let count = self.shards.len();
        let op = |items: Vec<HandOff>| {
            let part = |HandOff { settlement, messages, result, .. }| {
                HandOff::new(unmarked(settlement, count), messages).with_result(result)
            };
            Op::HandOff(items.into_iter().map(part).collect())
        };
        let read = |reply| if let Reply::HandOff(all) = reply { Some(all) } else { None };
        let is_unknown = |result: &HandedOff| result.settled == Settled::Missing;
        let place = |item: &HandOff| self.home(&item.settlement);
        let done = self.split(how, items, place, op, read, is_unknown).await?.whole()?;
        let settlements: Vec<_> = items.iter().map(|item| item.settlement.clone()).collect();
        let replies = done.replies.iter().map(|(shard, result)| (*shard, result.settled)).collect();
        let settled = Parts { replies, at: done.at, revision: done.revision };
        if let Some((shard, until)) = self.settled(&settlements, &settled) {
            self.hold_others(how, shard, until).await;
        }
        self.note(&done, |result| {
            let due = result.messages.iter().filter_map(|result| match result {
                Enqueued::Created { due } => Some(*due),
                _ => None,
            });
            due.min()
        });
        Ok(done)
    }

    /// Remembers what may be claimable now. Returns the longest hold of the queue, with the shard
    /// that has it already.
    fn settled(&self, items: &[Settlement], done: &Results<Settled>) -> Option<(usize, Schedule)> {
        let mut holds: Vec<(usize, Schedule)> = Vec::new();
        let mut heads = self.heads();
        for (item, &(shard, result)) in items.iter().zip(&done.replies) {
            let Settled::Done { status } = result else { continue };
            match &item.outcome {
                Outcome::Retry { schedule, .. }
                | Outcome::Undecodable { schedule, .. }
                | Outcome::Snooze { schedule } => heads.note(shard, schedule.instant(done.at)),
                Outcome::Release => heads.note(shard, done.at),
                // It has freed a slot of its group or of the queue, or made way for a follower.
                _ if status == Status::Replaced
                    || home_of(item.lease, self.shards.len()).is_some()
                    || heads.frees(shard, &item.id) =>
                {
                    heads.note(shard, done.at);
                }
                _ => {}
            }
            if let Some(Hold::Queue(until)) = item.hold {
                holds.push((shard, until));
            }
        }
        holds.into_iter().max_by_key(|(_, until)| until.instant(done.at))
    }

    /// Holds the shards but this one, unless they are held for longer. If it fails for one, that
    /// shard delivers meanwhile, and the next answer of that kind holds it again.
    async fn hold_others(&self, how: How, shard: usize, until: Schedule) {
        let others = (0..self.shards.len()).filter(|&other| other != shard);
        let hold = async |other| {
            let stats = self.send(other, how, &Op::Stats).await?;
            if let Reply::Stats(found) = &stats.reply
                && found.limits.held_until.is_none_or(|held| held < until.instant(stats.at))
            {
                let mut set = SetLimits::new();
                set.hold = Change::Set(until);
                self.send(other, how, &Op::SetLimits(set)).await?;
            }
            Ok::<_, Error>(())
        };
        for held in futures_util::future::join_all(others.map(hold)).await {
            if let Err(error) = held {
                tracing::warn!(queue = %self.name, %error, "a shard is not held");
            }
        }
    }
}

/// The settlement for its shard. The caller may claim from other shards next, so it promises
/// nothing about this one.
fn unmarked(mut item: Settlement, shards: usize) -> Settlement {
    item.lease = plain(item.lease, shards);
    item.claims_next(false)
}
