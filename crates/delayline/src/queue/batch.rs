//! Operations on many messages, split into operations within the limits.

use std::collections::{HashSet, VecDeque};

use delayline_core::{MessageId, NewMessage, Op, Reply};
use futures_util::StreamExt;
use futures_util::stream::FuturesOrdered;
use tokio::sync::watch;

use super::Queue;
use super::enqueue::{Answered, Progress, Turn, enqueue};
use super::sendable::{Parts, Sendable, same_queue};
use super::sent::Sent;
use crate::Error;
use crate::batches::{fitting, next_batch};
use crate::client::Client;
use crate::error::message_id;

impl<T: ?Sized, C> Queue<T, C> {
    /// Sends many messages, created by [`message`](Self::message), in as few operations as
    /// possible. Returns one result per message, in order. If an id occurs twice, the second
    /// message is a duplicate or a conflict ([G18](crate::guarantees#g18)). The durability is that
    /// of this queue, not of the queue that created the drafts.
    ///
    /// Messages are created in order. There is one exception: two operations, of up to 1,000
    /// messages each, are in flight at a time if no message has a group and no id occurs twice. If
    /// the first one fails and is repeated, the second one may precede it.
    ///
    /// ```
    /// # use delayline::Queue;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), delayline::Error> {
    /// # let queue: Queue<u64> = delayline::connect("memory:").await?.queue("numbers").await?;
    /// for sent in queue.send_many((0..2_000).map(|n| queue.message(&n))).await {
    ///     assert!(sent?.is_accepted());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, some of the messages may be in the queue. To finish, send the same
    /// drafts again: clones of drafts that have arrived become duplicates.
    ///
    /// # Errors
    ///
    /// For each message like [`Draft::send`](super::Draft::send), except that a batch is never
    /// refused because too many sends are waiting. A draft of a queue with another name is invalid
    /// ([`Violation::OtherQueue`](crate::Violation::OtherQueue)). After a failed operation, messages
    /// of the same shard are not sent and fail with
    /// [`ErrorClass::NotExecuted`](crate::ErrorClass::NotExecuted) or with the error of that
    /// operation. Only the next operation may already be in flight.
    pub async fn send_many<M: Sendable>(
        &self,
        messages: impl IntoIterator<Item = M>,
    ) -> Vec<Result<Sent, Error>> {
        let mut results = Vec::new();
        let mut waiting = VecDeque::new();
        for message in messages {
            // An invalid message must not fail the others.
            let checked = message.into_parts().and_then(|Parts { queue, message }| {
                same_queue(queue.as_ref(), self.client().queue_name())?;
                Ok(message.validate().map(|()| message)?)
            });
            match checked {
                Ok(message) => {
                    waiting.push_back((results.len(), message));
                    results.push(None);
                }
                Err(error) => results.push(Some(Err(error))),
            }
        }
        let overlaps = may_overtake(waiting.iter().map(|(_, it)| it));
        send_all(self.client(), waiting, overlaps, &mut results).await;
        // Every slot is filled, because `enqueue` returns one result per message.
        results.into_iter().map(|it| it.unwrap_or_else(|| Err(Error::unexpected_reply()))).collect()
    }

    /// Runs operations on ids one after the other, with up to `most` ids each, and returns the
    /// results in order.
    pub(super) async fn each<I, R>(
        &self,
        most: usize,
        ids: impl IntoIterator<Item = I>,
        op: impl Fn(Vec<MessageId>) -> Op,
        pick: impl Fn(Reply) -> Option<Vec<R>>,
    ) -> Result<Vec<R>, Error>
    where
        I: TryInto<MessageId, Error: Into<Error>>,
    {
        let ids = ids.into_iter().map(message_id);
        let mut waiting = ids.collect::<Result<VecDeque<_>, _>>()?;
        let mut results = Vec::with_capacity(waiting.len());
        while !waiting.is_empty() {
            let count = fitting(waiting.iter().take(most).map(|id| (id, 0)));
            let batch: Vec<_> = waiting.drain(..count).collect();
            let asked = batch.len();
            let reply = self.client().apply(&op(batch)).await?.reply;
            match pick(reply) {
                Some(items) if items.len() == asked => results.extend(items),
                _ => return Err(Error::unexpected_reply()),
            }
        }
        Ok(results)
    }
}

/// Sends messages to one queue, and puts the result of each into its place.
///
/// If operations may overlap, two are in flight at a time, so that the server has the next one when
/// it has executed the first. If an attempt fails, the next operation is repeated only after this
/// one has ended.
pub(super) async fn send_all(
    client: &Client,
    mut waiting: VecDeque<(usize, NewMessage)>,
    overlaps: bool,
    results: &mut [Option<Result<Sent, Error>>],
) {
    let (mut in_flight, mut started) = (FuturesOrdered::new(), 0);
    let progress = watch::Sender::new(Progress::default());
    loop {
        // The first one may have to wait for a connection, for which two would race.
        let most = if overlaps && progress.borrow().over > 0 { 2 } else { 1 };
        while in_flight.len() < most && !waiting.is_empty() {
            let batch = next_batch(&mut waiting, |(_, it)| &it.id, |(_, it)| it.content_bytes());
            let mut sending = Vec::with_capacity(batch.len());
            for (place, message) in batch {
                let shard = client.shard_of(&message);
                match progress.borrow().failed.get(&shard) {
                    Some(error) => results[place] = Some(Err(error.clone())),
                    None => sending.push(((place, shard), message)),
                }
            }
            if !sending.is_empty() {
                let turn = Turn { before: started, progress: progress.subscribe() };
                in_flight.push_back(enqueue(client, client.give_up(), sending, turn));
                started += 1;
            }
        }
        let Some(answered) = in_flight.next().await else { return };
        progress.send_modify(|progress| {
            progress.over += 1;
            for Answered { key: (place, shard), result } in answered {
                if let Err(error) = &result {
                    // Messages of other shards are sent.
                    progress.failed.entry(shard).or_insert_with(|| error.of_unsent());
                }
                results[place] = Some(result);
            }
        });
    }
}

/// Whether a later one of these messages may be created before an earlier one: none has an id that
/// another has, or a group, in which order is promised.
fn may_overtake<'a>(mut messages: impl Iterator<Item = &'a NewMessage>) -> bool {
    let mut ids = HashSet::new();
    messages.all(|message| message.group.is_none() && ids.insert(&message.id))
}
