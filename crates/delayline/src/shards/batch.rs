//! Operations on messages by id, which are split by shard and merged in the order of the request.

use bytes::Bytes;
use delayline_core::limits::MAX_BATCH_BYTES;
use delayline_core::{
    Applied, Cancelled, Completion, Enqueued, Error, ErrorKind, Extend, Extended, Found, Lease,
    MessageId, NewMessage, Op, Purged, Redrive, Redriven, Reply, Reschedule, Rescheduled, Save,
    Timestamp,
};

use super::lease::{home_of, plain};
use super::{How, Parts, Shards, unexpected};

/// The replies to a batch: for each item, its result with the shard that knows it.
pub(super) type Results<R> = Parts<Vec<(usize, R)>>;

impl<R> Parts<Vec<Option<(usize, R)>>> {
    /// The results of a batch in which every item has one.
    pub(super) fn whole(self) -> Result<Results<R>, Error> {
        let Self { replies, at, revision } = self;
        let replies = replies.into_iter().collect::<Option<Vec<_>>>().ok_or_else(unexpected)?;
        Ok(Parts { replies, at, revision })
    }
}

impl Shards {
    /// Applies a batch: each item in its shard, all shards at the same time. Asks all other shards
    /// for the items that their own shard does not know: messages with a group are in the shard of
    /// their group.
    ///
    /// An item has no result if a shard has left it out, unless another one knows it.
    pub(super) async fn split<I: Clone, R>(
        &self,
        how: How,
        items: &[I],
        shard: impl Fn(&I) -> usize,
        op: impl Fn(Vec<I>) -> Op,
        read: impl Fn(Reply) -> Option<Vec<R>>,
        is_unknown: impl Fn(&R) -> bool,
    ) -> Result<Parts<Vec<Option<(usize, R)>>>, Error> {
        let mut results: Vec<Option<(usize, R)>> = items.iter().map(|_| None).collect();
        let (mut at, mut revision) = (Timestamp::MIN, 0_u64);
        let mut left_out: Vec<usize> = Vec::new();
        for is_elsewhere in [false, true] {
            let is_open = |number: &usize| match &results[*number] {
                Some((_, result)) => is_elsewhere && is_unknown(result),
                None => !is_elsewhere,
            };
            let open: Vec<usize> = (0..items.len()).filter(is_open).collect();
            let asked = (0..self.shards.len()).map(|it| {
                let here =
                    open.iter().copied().filter(|&n| (shard(&items[n]) == it) != is_elsewhere);
                (it, here.collect::<Vec<_>>())
            });
            let asked: Vec<_> = asked.filter(|(_, numbers)| !numbers.is_empty()).collect();
            let part = |numbers: &[usize]| op(numbers.iter().map(|&n| items[n].clone()).collect());
            let parts = asked.iter().map(|(shard, numbers)| (*shard, part(numbers))).collect();
            let replied = self.send_all(how, parts).await?;
            (at, revision) = (at.max(replied.at), revision.saturating_add(replied.revision));
            for ((shard, numbers), Applied { reply, at, .. }) in asked.iter().zip(replied.replies) {
                let answers = read(reply).ok_or_else(unexpected)?;
                left_out.extend(numbers.iter().skip(answers.len()));
                for (&number, result) in numbers.iter().zip(answers) {
                    let known = &mut results[number];
                    if known.as_ref().is_none_or(|(_, it)| is_unknown(it) && !is_unknown(&result)) {
                        *known = Some((*shard, result));
                    } else if !is_unknown(&result) {
                        // Another shard has the id, too, and its reply counts. The next message of
                        // this shard may be another one now.
                        self.heads().note(*shard, at);
                    }
                }
            }
        }
        // The shard that has left it out may know it.
        for number in left_out {
            results[number].take_if(|(_, result)| is_unknown(result));
        }
        Ok(Parts { replies: results, at, revision })
    }

    pub(super) async fn enqueue(
        &self,
        how: How,
        messages: &[NewMessage],
    ) -> Result<Results<Enqueued>, Error> {
        let read = |reply| if let Reply::Enqueue(all) = reply { Some(all) } else { None };
        let place = |message: &NewMessage| self.of_message(message);
        let sent = self.split(how, messages, place, Op::Enqueue, read, |_| false).await?.whole()?;
        self.note(&sent, |result| match result {
            Enqueued::Created { due } | Enqueued::Updated { due } => Some(*due),
            _ => None,
        });
        let all = messages.iter().zip(&sent.replies);
        let followed = all.filter(|(_, (_, it))| matches!(it, Enqueued::Following { .. }));
        followed.for_each(|(message, _)| self.heads().follow(&message.id));
        Ok(sent)
    }

    pub(super) async fn extend(
        &self,
        how: How,
        extend: &Extend,
    ) -> Result<Results<Extended>, Error> {
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
        let done = self.split(how, &items, place, op, read, is_unknown).await?.whole()?;
        self.note(&done, |result| match result {
            Extended::Done { deadline, .. } => Some(*deadline),
            _ => None,
        });
        Ok(done)
    }

    pub(super) async fn by_id(&self, how: How, op: &Op) -> Result<Applied, Error> {
        /// Looks each item up by its id: the ids, the operation on some of them, its reply, and the
        /// result that says that a shard does not know the message.
        macro_rules! find {
            ($items:expr, $id:expr, $op:expr, $reply:path, $unknown:expr) => {{
                let read = |reply| if let $reply(all) = reply { Some(all) } else { None };
                let shard = |item: &_| self.of_id($id(item));
                self.split(how, $items, shard, $op, read, |it| *it == $unknown).await?.whole()?
            }};
        }
        fn itself(id: &MessageId) -> &MessageId {
            id
        }
        Ok(match op {
            Op::Cancel(ids) => find!(ids, itself, Op::Cancel, Reply::Cancel, Cancelled::NotFound)
                .map(Reply::Cancel),
            Op::Purge(ids) => {
                find!(ids, itself, Op::Purge, Reply::Purge, Purged::NotFound).map(Reply::Purge)
            }
            Op::Get(ids) => find!(ids, itself, Op::Get, Reply::Get, Found::Unknown).map(Reply::Get),
            Op::Reschedule(items) => {
                fn id(item: &Reschedule) -> &MessageId {
                    &item.id
                }
                let done =
                    find!(items, id, Op::Reschedule, Reply::Reschedule, Rescheduled::NotFound);
                self.note(&done, |result| match result {
                    Rescheduled::Done { due } => Some(*due),
                    _ => None,
                });
                done.map(Reply::Reschedule)
            }
            Op::Redrive(redrive) => {
                let op = |ids| Op::Redrive(Redrive::new(ids, redrive.schedule));
                let done = find!(&redrive.ids, itself, op, Reply::Redrive, Redriven::NotFound);
                self.note(&done, |result| match result {
                    Redriven::Done { due } => Some(*due),
                    _ => None,
                });
                done.map(Reply::Redrive)
            }
            op => return Err(Error::new(ErrorKind::Unsupported(op.name()))),
        })
    }

    pub(super) async fn progress(&self, how: How, ids: &[MessageId]) -> Result<Applied, Error> {
        let read = |reply| if let Reply::Progress(all) = reply { Some(all) } else { None };
        let is_unknown = |result: &Completion| *result == Completion::Unknown;
        let place = |id: &MessageId| self.of_id(id);
        let found = self.split(how, ids, place, Op::Progress, read, is_unknown).await?;
        // A shard leaves out the last ones if its results are large, but never the first one.
        let all = found.replies.into_iter().map_while(|result| Some(result?.1));
        let mut bytes = 0;
        let replies = all.take_while(|completion| {
            bytes += completion.result().map_or(0, Bytes::len);
            bytes <= MAX_BATCH_BYTES
        });
        Ok(Applied::new(found.at, found.revision, Reply::Progress(replies.collect())))
    }

    /// Remembers when messages of shards are due.
    pub(super) fn note<R>(&self, done: &Results<R>, due: impl Fn(&R) -> Option<Timestamp>) {
        let mut heads = self.heads();
        for (shard, result) in &done.replies {
            due(result).into_iter().for_each(|due| heads.note(*shard, due));
        }
    }
}

impl<R> Results<R> {
    /// The reply, without the shards.
    pub(super) fn map(self, reply: impl FnOnce(Vec<R>) -> Reply) -> Applied {
        let results = self.replies.into_iter().map(|(_, result)| result).collect();
        Applied::new(self.at, self.revision, reply(results))
    }
}
