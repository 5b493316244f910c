//! The end of leases: each goes to the shard that has granted it.

use delayline_core::{
    Change, Enqueued, Error, HandOff, HandedOff, Hold, Lease, NewMessage, Op, Outcome, Reply,
    Schedule, SetLimits, Settled, Settlement, Status,
};

use super::batch::complete;
use super::{How, Parts, Shards, failure, unexpected};

/// The lease on a message of this shard, which carries the shard. Only a message with a group needs
/// it, if its id alone names another shard.
pub(super) fn marked(lease: Lease, shard: usize) -> Lease {
    let mark = (shard as u64 + 1) << EPOCH_BITS;
    Lease { epoch: lease.epoch | mark, ..lease }
}

/// The shard of a marked lease.
pub(super) fn home_of(lease: Lease, shards: usize) -> Option<usize> {
    let shard = usize::try_from(lease.epoch >> EPOCH_BITS).ok()?.checked_sub(1)?;
    (shard < shards).then_some(shard)
}

/// The lease as its shard has granted it.
pub(super) fn plain(lease: Lease, shards: usize) -> Lease {
    let epoch = lease.epoch & ((1 << EPOCH_BITS) - 1);
    if home_of(lease, shards).is_some() { Lease { epoch, ..lease } } else { lease }
}

impl Shards {
    fn home(&self, item: &Settlement) -> usize {
        home_of(item.lease, self.shards.len()).unwrap_or_else(|| self.of_id(&item.id))
    }

    pub(super) async fn settle(
        &self,
        how: How,
        items: &[Settlement],
    ) -> Result<Parts<Vec<Settled>>, Error> {
        let count = self.shards.len();
        let op =
            |items: Vec<_>| Op::Settle(items.into_iter().map(|it| unmarked(it, count)).collect());
        let read = |reply| if let Reply::Settle(all) = reply { Some(all) } else { None };
        let is_unknown = |result: &Settled| *result == Settled::Missing;
        let place = |item: &Settlement| self.home(item);
        let done = complete(self.find(how, items, place, op, read, is_unknown).await?)?;
        if let Some((shard, until)) = self.settled(items, &done) {
            self.hold_others(how, shard, until).await;
        }
        Ok(done.results())
    }

    /// Follow-ups for other shards are sent before the leases end, so that none is lost: those of
    /// a hand-off that is repeated are duplicates (G15).
    pub(super) async fn hand_off(
        &self,
        how: How,
        items: &[HandOff],
    ) -> Result<Parts<Vec<HandedOff>>, Error> {
        let stays = |item: &HandOff, message: &NewMessage| {
            self.of_message(message) == self.home(&item.settlement)
        };
        let (mut own, mut sent) = (items.to_vec(), Vec::new());
        for item in &mut own {
            let (stay, leave): (Vec<_>, Vec<_>) =
                std::mem::take(&mut item.messages).into_iter().partition(|it| stays(item, it));
            item.messages = stay;
            sent.extend(leave);
        }
        let sent = if sent.is_empty() { None } else { Some(self.enqueue(how, &sent).await?) };
        let is_bare = |item: &HandOff| item.messages.is_empty() && item.result.is_none();
        let (bare, full): (Vec<_>, Vec<_>) = own.iter().cloned().partition(is_bare);
        let bare: Vec<_> = bare.into_iter().map(|item| item.settlement).collect();
        let is_first = |is_first, error| failure(vec![error], is_first).unwrap_or_else(unexpected);
        let settled = match &bare[..] {
            [] => None,
            bare => {
                let settled = self.settle(how, bare).await;
                Some(settled.map_err(|error| is_first(sent.is_none(), error))?)
            }
        };
        let handed = match &full[..] {
            [] => None,
            full => {
                let handed = self.hand_off_own(how, full).await;
                let nothing = sent.is_none() && settled.is_none();
                Some(handed.map_err(|error| is_first(nothing, error))?)
            }
        };
        let instants = [sent.as_ref().map(|it| it.at), settled.as_ref().map(|it| it.at)];
        let at = instants.into_iter().chain([handed.as_ref().map(|it| it.at)]).flatten().max();
        let revisions =
            [settled.as_ref().map(|it| it.revision), handed.as_ref().map(|it| it.revision)];
        let revision = revisions.into_iter().flatten().fold(0, u64::saturating_add);
        let mut sent = sent.into_iter().flat_map(|parts| parts.replies);
        let mut settled = settled.into_iter().flat_map(|parts| parts.replies);
        let mut handed = handed.into_iter().flat_map(|parts| parts.replies);
        let mut merged = Vec::new();
        for (item, own) in items.iter().zip(&own) {
            let result =
                if is_bare(own) { settled.next().map(HandedOff::from) } else { handed.next() };
            let mut result = result.ok_or_else(unexpected)?;
            let mut stayed = std::mem::take(&mut result.messages).into_iter();
            let is_done = matches!(result.settled, Settled::Done { .. });
            for message in &item.messages {
                let stays = stays(item, message);
                let outcome = if stays { stayed.next() } else { sent.next() };
                result.messages.extend(outcome.filter(|_| is_done));
            }
            merged.push(result);
        }
        Ok(Parts { replies: merged, at: at.unwrap_or_default(), revision })
    }

    /// Hand-offs without messages for other shards.
    async fn hand_off_own(
        &self,
        how: How,
        items: &[HandOff],
    ) -> Result<Parts<Vec<HandedOff>>, Error> {
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
        let done = complete(self.find(how, items, place, op, read, is_unknown).await?)?;
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
        Ok(done.results())
    }

    /// Remembers what may be claimable now. Returns the longest hold of the queue, with the shard
    /// that has it already.
    fn settled(
        &self,
        items: &[Settlement],
        done: &Parts<Vec<(usize, Settled)>>,
    ) -> Option<(usize, Schedule)> {
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

/// The bits of an epoch that count the claims of a message. The mark is above them, and both are
/// within the integers that JavaScript represents exactly.
const EPOCH_BITS: u32 = 46;
