//! Operations on messages by id, which are split by shard and merged in the order of the request.

use bytes::Bytes;
use delayline_core::limits::MAX_BATCH_BYTES;
use delayline_core::{
    Cancelled, Completion, Enqueued, Error, Extend, Extended, Found, Lease, MessageId, NewMessage,
    Op, Purged, Redrive, Redriven, Reply, Reschedule, Rescheduled, Save, Timestamp,
};

use super::settle::{home_of, plain};
use super::{How, Parts, Shards, unexpected};

impl Shards {
    /// Applies a batch: each item in its shard, all shards at the same time. Returns one result per
    /// item with its shard, in order; `None` for the items without one.
    pub(super) async fn split<I: Clone, R>(
        &self,
        how: How,
        items: &[I],
        shard: impl Fn(&I) -> usize,
        op: impl Fn(Vec<I>) -> Op,
        read: impl Fn(Reply) -> Option<Vec<R>>,
    ) -> Result<Parts<Vec<Option<(usize, R)>>>, Error> {
        let mut by_shard = vec![Vec::new(); self.shards.len()];
        for (number, item) in items.iter().enumerate() {
            by_shard[shard(item)].push(number);
        }
        let asked = by_shard.iter().enumerate().filter(|(_, numbers)| !numbers.is_empty());
        let part = |numbers: &[usize]| op(numbers.iter().map(|&n| items[n].clone()).collect());
        let parts = asked.clone().map(|(shard, numbers)| (shard, part(numbers))).collect();
        let Parts { replies, at, revision } = self.send_all(how, parts).await?;
        let mut results: Vec<_> = items.iter().map(|_| None).collect();
        for ((shard, numbers), reply) in asked.zip(replies) {
            for (&number, result) in numbers.iter().zip(read(reply).ok_or_else(unexpected)?) {
                results[number] = Some((shard, result));
            }
        }
        Ok(Parts { replies: results, at, revision })
    }

    /// Like [`split`](Self::split), and asks all other shards for the items that their own shard
    /// does not know: messages with a group are in the shard of their group.
    pub(super) async fn find<I: Clone, R>(
        &self,
        how: How,
        items: &[I],
        shard: impl Fn(&I) -> usize,
        op: impl Fn(Vec<I>) -> Op,
        read: impl Fn(Reply) -> Option<Vec<R>>,
        is_unknown: impl Fn(&R) -> bool,
    ) -> Result<Parts<Vec<Option<(usize, R)>>>, Error> {
        let mut found = self.split(how, items, &shard, &op, &read).await?;
        let is_open = |result: &Option<(usize, R)>| {
            result.as_ref().is_some_and(|(_, result)| is_unknown(result))
        };
        let unknown: Vec<usize> =
            (0..items.len()).filter(|&number| is_open(&found.replies[number])).collect();
        if unknown.is_empty() {
            return Ok(found);
        }
        let asked = (0..self.shards.len()).map(|other| {
            let elsewhere = unknown.iter().copied().filter(|&n| shard(&items[n]) != other);
            (other, elsewhere.collect::<Vec<_>>())
        });
        let asked: Vec<_> = asked.filter(|(_, numbers)| !numbers.is_empty()).collect();
        let part = |numbers: &[usize]| op(numbers.iter().map(|&n| items[n].clone()).collect());
        let parts = asked.iter().map(|(other, numbers)| (*other, part(numbers))).collect();
        let Parts { replies, at, revision } = self.send_all(how, parts).await?;
        for ((other, numbers), reply) in asked.iter().zip(replies) {
            for (&number, result) in numbers.iter().zip(read(reply).ok_or_else(unexpected)?) {
                if is_open(&found.replies[number]) && !is_unknown(&result) {
                    found.replies[number] = Some((*other, result));
                }
            }
        }
        found.at = found.at.max(at);
        found.revision = found.revision.saturating_add(revision);
        Ok(found)
    }

    pub(super) async fn enqueue(
        &self,
        how: How,
        messages: &[NewMessage],
    ) -> Result<Parts<Vec<Enqueued>>, Error> {
        let read = |reply| if let Reply::Enqueue(all) = reply { Some(all) } else { None };
        let place = |message: &NewMessage| self.of_message(message);
        let sent = complete(self.split(how, messages, place, Op::Enqueue, read).await?)?;
        self.note(&sent, |result| match result {
            Enqueued::Created { due } | Enqueued::Updated { due } => Some(*due),
            _ => None,
        });
        let all = messages.iter().zip(&sent.replies);
        let followed = all.filter(|(_, (_, it))| matches!(it, Enqueued::Following { .. }));
        followed.for_each(|(message, _)| self.heads().follow(&message.id));
        Ok(sent.results())
    }

    pub(super) async fn extend(
        &self,
        how: How,
        extend: &Extend,
    ) -> Result<Parts<Vec<Extended>>, Error> {
        let saves = extend.saves_in_order().map(Option::<&Save>::cloned);
        let items: Vec<_> = extend.leases.iter().cloned().zip(saves).collect();
        type Item = ((MessageId, Lease), Option<Save>);
        let count = self.shards.len();
        let op = |items: Vec<Item>| {
            let leases = items
                .iter()
                .map(|((id, lease), _): &((MessageId, _), _)| (id.clone(), plain(*lease, count)));
            let part = Extend::new(leases.collect(), extend.lease);
            let saves = items.iter().filter_map(|it| Some((it.0.0.clone(), it.1.clone()?)));
            Op::Extend(part.saves(saves.collect()))
        };
        let read = |reply| if let Reply::Extend(all) = reply { Some(all) } else { None };
        let place = |((id, lease), _): &Item| {
            home_of(*lease, self.shards.len()).unwrap_or_else(|| self.of_id(id))
        };
        let is_unknown = |result: &Extended| *result == Extended::Missing;
        let done = complete(self.find(how, &items, place, op, read, is_unknown).await?)?;
        self.note(&done, |result| match result {
            Extended::Done { deadline, .. } => Some(*deadline),
            _ => None,
        });
        Ok(done.results())
    }

    pub(super) async fn cancel(
        &self,
        how: How,
        ids: &[MessageId],
    ) -> Result<Parts<Vec<Cancelled>>, Error> {
        let read = |reply| if let Reply::Cancel(all) = reply { Some(all) } else { None };
        let is_unknown = |result: &Cancelled| *result == Cancelled::NotFound;
        let place = |id: &MessageId| self.of_id(id);
        complete(self.find(how, ids, place, Op::Cancel, read, is_unknown).await?)
            .map(Parts::results)
    }

    pub(super) async fn reschedule(
        &self,
        how: How,
        items: &[Reschedule],
    ) -> Result<Parts<Vec<Rescheduled>>, Error> {
        let read = |reply| if let Reply::Reschedule(all) = reply { Some(all) } else { None };
        let is_unknown = |result: &Rescheduled| *result == Rescheduled::NotFound;
        let place = |item: &Reschedule| self.of_id(&item.id);
        let done = complete(self.find(how, items, place, Op::Reschedule, read, is_unknown).await?)?;
        self.note(&done, |result| match result {
            Rescheduled::Done { due } => Some(*due),
            _ => None,
        });
        Ok(done.results())
    }

    pub(super) async fn redrive(
        &self,
        how: How,
        redrive: &Redrive,
    ) -> Result<Parts<Vec<Redriven>>, Error> {
        let op = |ids| Op::Redrive(Redrive::new(ids, redrive.schedule));
        let read = |reply| if let Reply::Redrive(all) = reply { Some(all) } else { None };
        let is_unknown = |result: &Redriven| *result == Redriven::NotFound;
        let place = |id: &MessageId| self.of_id(id);
        let done = complete(self.find(how, &redrive.ids, place, op, read, is_unknown).await?)?;
        self.note(&done, |result| match result {
            Redriven::Done { due } => Some(*due),
            _ => None,
        });
        Ok(done.results())
    }

    pub(super) async fn purge(
        &self,
        how: How,
        ids: &[MessageId],
    ) -> Result<Parts<Vec<Purged>>, Error> {
        let read = |reply| if let Reply::Purge(all) = reply { Some(all) } else { None };
        let is_unknown = |result: &Purged| *result == Purged::NotFound;
        let place = |id: &MessageId| self.of_id(id);
        complete(self.find(how, ids, place, Op::Purge, read, is_unknown).await?).map(Parts::results)
    }

    pub(super) async fn get(
        &self,
        how: How,
        ids: &[MessageId],
    ) -> Result<Parts<Vec<Found>>, Error> {
        let read = |reply| if let Reply::Get(all) = reply { Some(all) } else { None };
        let is_unknown = |result: &Found| *result == Found::Unknown;
        let place = |id: &MessageId| self.of_id(id);
        complete(self.find(how, ids, place, Op::Get, read, is_unknown).await?).map(Parts::results)
    }

    pub(super) async fn progress(
        &self,
        how: How,
        ids: &[MessageId],
    ) -> Result<Parts<Vec<Completion>>, Error> {
        let read = |reply| if let Reply::Progress(all) = reply { Some(all) } else { None };
        let is_unknown = |result: &Completion| *result == Completion::Unknown;
        let place = |id: &MessageId| self.of_id(id);
        let found = self.find(how, ids, place, Op::Progress, read, is_unknown).await?;
        // A shard leaves out the last ones if its results are large.
        let all = found.replies.into_iter().map_while(|result| Some(result?.1));
        let mut bytes = 0;
        let replies = all.take_while(|completion| {
            bytes += completion.result().map_or(0, Bytes::len);
            bytes <= MAX_BATCH_BYTES
        });
        let replies = replies.collect();
        Ok(Parts { replies, at: found.at, revision: found.revision })
    }

    /// Remembers when messages of shards are due.
    pub(super) fn note<R>(
        &self,
        done: &Parts<Vec<(usize, R)>>,
        due: impl Fn(&R) -> Option<Timestamp>,
    ) {
        let mut heads = self.heads();
        for (shard, result) in &done.replies {
            due(result).into_iter().for_each(|due| heads.note(*shard, due));
        }
    }
}

impl<R> Parts<Vec<(usize, R)>> {
    /// The results without their shards.
    pub(super) fn results(self) -> Parts<Vec<R>> {
        let Self { replies, at, revision } = self;
        Parts { replies: replies.into_iter().map(|(_, result)| result).collect(), at, revision }
    }
}

/// All results of a batch.
///
/// # Errors
///
/// If an item has none.
pub(super) fn complete<R>(parts: Parts<Vec<Option<R>>>) -> Result<Parts<Vec<R>>, Error> {
    let replies = parts.replies.into_iter().collect::<Option<Vec<_>>>().ok_or_else(unexpected)?;
    Ok(Parts { replies, at: parts.at, revision: parts.revision })
}
