//! Claims, and how their leases end.

use std::time::Duration;

use delayline::admin::Stats;
use delayline::backend::{
    Claim, ClaimId, ConsumerName, Delivery, FinishedIds, HandOff, MessageInfo, Millis, NewMessage,
    NewResult, Op, Outcome, Reply, Schedule, Settled, Settlement,
};
use delayline::limits::{MAX_ATTEMPT_LIMIT, MAX_CONSUMER_BYTES};
use delayline::{Enqueued, ErrorKind, Found, MessageId};
use ring::digest::{Digest, SHA256, digest};
use uuid::Uuid;

use crate::attributes::{self, Extras};
use crate::digest::hex;
use crate::error::Error;
use crate::queues::Open;
use crate::receipt::Receipt;

/// A consumer, and a new claim id. With the id of an attempt, both depend on it alone, so that
/// repeating the attempt returns the same messages.
pub(crate) fn claim_ids(
    visitor: &str,
    queue: &str,
    attempt: Option<&str>,
) -> Result<(ConsumerName, ClaimId), Error> {
    let hashed = |parts: &[&str]| digest(&SHA256, parts.join("\0").as_bytes());
    let mut bytes = *Uuid::new_v4().as_bytes();
    // The first half depends on the visitor alone, so that leases are grouped by visitor.
    let of_visitor = hashed(&["sqs", visitor]);
    bytes.iter_mut().take(8).zip(of_visitor.as_ref()).for_each(|(to, from)| *to = *from);
    let Some(attempt) = attempt else {
        // A consumer makes one claim at a time, and a queue remembers 1,000 consumers.
        let number = format!("-{:02x}", bytes.last().copied().unwrap_or_default());
        let visitor = visitor.chars().filter(char::is_ascii_graphic);
        let name: String = visitor.take(MAX_CONSUMER_BYTES - number.len()).collect();
        let consumer = ConsumerName::try_from(name + &number)?;
        return Ok((consumer, ClaimId::from_bytes(bytes)));
    };
    let of_attempt = hashed(&[visitor, queue, attempt]);
    let rest = of_attempt.as_ref();
    bytes.iter_mut().skip(8).zip(rest).for_each(|(to, from)| *to = *from);
    let consumer = ConsumerName::try_from(hex(rest.get(..16).unwrap_or(rest)))?;
    Ok((consumer, ClaimId::from_bytes(bytes)))
}

/// Reclaims expired leases.
pub(crate) async fn reclaim(open: &Open) -> Result<(), Error> {
    // A claim for no messages does it.
    let (consumer, claim_id) = claim_ids("sqs", &open.name, None)?;
    open.queue.apply(&Op::Claim(Claim::new(consumer, claim_id, 0, Millis::new(1)?))).await?;
    Ok(())
}

/// The counts of a queue, without expired leases.
pub(crate) async fn counted(open: &Open) -> Result<Stats, Error> {
    let stats = open.queue.stats().await?;
    if stats.leased == 0 {
        return Ok(stats);
    }
    reclaim(open).await?;
    Ok(open.queue.stats().await?)
}

/// Acks messages. A FIFO queue keeps their sequence numbers while the deduplication ids count.
///
/// # Errors
///
/// If the queue cannot be reached.
pub(crate) async fn ack(open: &Open, receipts: &[Receipt]) -> Result<Vec<Settled>, Error> {
    if open.is_fifo() {
        // An expired lease stays valid until it is reclaimed.
        reclaim(open).await?;
    }
    settle(open, receipts).await
}

/// Like [`ack`], but also if a lease has expired and was not reclaimed.
async fn settle(open: &Open, receipts: &[Receipt]) -> Result<Vec<Settled>, Error> {
    receipts.iter().for_each(|receipt| open.latest.forget(receipt));
    let settlements = receipts.iter().map(|Receipt { id, lease, sequence }| {
        (Settlement::new(id.clone(), *lease, Outcome::Ack), *sequence)
    });
    if open.is_fifo() {
        let retention = Millis::try_from(DEDUPLICATION)?;
        let acks = settlements.clone().map(|(settlement, sequence)| {
            let number = NewResult::new(sequence.to_be_bytes().to_vec(), retention);
            HandOff::new(settlement, Vec::new()).with_result(number)
        });
        match open.queue.apply(&Op::HandOff(acks.collect())).await.map(|it| it.reply) {
            Ok(Reply::HandOff(all)) => return Ok(all.into_iter().map(|it| it.settled).collect()),
            Ok(_) => return Err(Error::internal()),
            // A full server or disk forgets the numbers, and keeps no messages that have been
            // handled. If some shards are full, the others know by now that theirs are acked.
            Err(error) if may_be_full(error.kind()) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let settlements = settlements.map(|(settlement, _)| settlement).collect();
    let reply = open.queue.apply(&Op::Settle(settlements)).await?.reply;
    let Reply::Settle(settled) = reply else { return Err(Error::internal()) };
    Ok(settled)
}

const fn may_be_full(kind: &ErrorKind) -> bool {
    matches!(kind, ErrorKind::OutOfMemory | ErrorKind::DiskFull | ErrorKind::Partial)
}

/// Moves a leased message to another queue: sends it, and then acks it. Repeated after a failure in
/// between, it sends nothing, because the other queue knows the id and the content, even if the
/// message there has been deleted. With a new id, that is the same one each time.
pub(crate) async fn transfer(
    from: &Open,
    delivery: &Delivery,
    to: &Open,
    expiry: Option<Duration>,
    mut extras: Extras,
    has_new_id: bool,
) -> Result<(), Error> {
    let message = &delivery.message;
    let place = place(from, &message.info);
    extras.place = place.as_ref().first_chunk().map(|bytes| u64::from_be_bytes(*bytes));
    let (headers, has_extras) = attributes::set_what_fits(&message.headers, extras);
    let mut moved = NewMessage::new(message.info.id.clone(), message.payload.clone())
        .headers(headers)
        .group(message.info.group.clone())
        .max_failures(MAX_ATTEMPT_LIMIT)
        .max_crashes(MAX_ATTEMPT_LIMIT);
    if let Some(after) = expiry {
        moved = moved.expires(Schedule::In(Millis::try_from(after)?));
    }
    if message.info.group.is_none() {
        moved = moved.priority(message.info.priority);
    }
    let of_place = place.as_ref().first_chunk().copied().ok_or_else(Error::internal)?;
    let of_place = uuid::Builder::from_random_bytes(of_place).into_uuid().to_string();
    let of_place = MessageId::try_from(of_place)?;
    // Without extras, the content does not distinguish it from an earlier message with this id.
    if has_new_id || !has_extras {
        moved.id = of_place.clone();
    }
    let mut sent = sent(to, moved.clone()).await?;
    if let Enqueued::Conflict { status } = sent {
        if status.is_finished() && to.queue.get(&of_place).await? == Found::Unknown {
            // The other message with this id has ended, and this move has sent none.
            moved = moved.finished_ids(FinishedIds::Reuse);
        } else {
            // Another message has this id, or had it when this move began: a FIFO queue uses it
            // again after five minutes.
            moved.id = of_place;
        }
        sent = self::sent(to, moved).await?;
    }
    if !matches!(sent, Enqueued::Created { .. } | Enqueued::Duplicate { .. }) {
        return Err(Error::internal());
    }
    let MessageInfo { id, sequence, .. } = &message.info;
    let receipt = Receipt { id: id.clone(), lease: delivery.lease, sequence: *sequence };
    settle(from, &[receipt]).await.map(drop)
}

/// A hash of the place of a message in its queue, which no other message has or had.
fn place(open: &Open, info: &MessageInfo) -> Digest {
    let numbers = [info.sequence, info.enqueued_at.as_ms()].map(u64::to_be_bytes).concat();
    let parts = [&numbers, open.name.as_bytes(), &[0], info.id.as_bytes()];
    digest(&SHA256, &parts.concat())
}

async fn sent(to: &Open, message: NewMessage) -> Result<Enqueued, Error> {
    let (id, place) = (message.id.clone(), Extras::of(&message.headers).place);
    let sent = to.queue.send_many(vec![message]).await.into_iter().next();
    let sent = sent.ok_or_else(Error::internal)??.outcome;
    // The policy that the headers tell of may have changed before the move was repeated.
    if let Enqueued::Conflict { status } = sent
        && place.is_some()
        && let Found::Live(known) = to.queue.get(&id).await?
        && Extras::of(&known.headers).place == place
    {
        return Ok(Enqueued::Duplicate { status });
    }
    Ok(sent)
}

/// How long a deduplication id counts.
pub(crate) const DEDUPLICATION: Duration = Duration::from_secs(300);

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use async_trait::async_trait;
    use delayline::backend::{Applied, At, Backend, Error as BackendError, QueueBackend, Wakeup};
    use delayline::codec::Raw;
    use delayline::{Bytes, Durability, Queue};

    use super::*;
    use crate::queues::Queues;

    async fn queues() -> Queues {
        let connection = delayline::connect("memory:").await.unwrap();
        Queues::open(connection, "s".to_owned(), None, Durability::None, false).await.unwrap()
    }

    async fn claimed(open: &Open) -> Delivery {
        let (consumer, claim_id) = claim_ids("test", &open.name, None).unwrap();
        let claim = Claim::new(consumer, claim_id, 1, Millis::new(60_000).unwrap());
        let reply = open.queue.apply(&Op::Claim(claim)).await.unwrap().reply;
        let Reply::Claim(mut claimed) = reply else { panic!("a reply to a claim") };
        claimed.deliveries.remove(0)
    }

    /// Refuses hand-offs for lack of space: if in part, then all but the first one.
    #[derive(Debug)]
    struct Full(Arc<dyn QueueBackend>, ErrorKind);

    #[async_trait]
    impl Backend for Full {
        async fn apply(&self, at: At, op: &Op) -> Result<Applied, BackendError> {
            let Op::HandOff(all) = op else { return self.0.apply(at, op).await };
            if self.1 == ErrorKind::Partial {
                self.0.apply(at, &Op::HandOff(all[..1].to_vec())).await?;
            }
            Err(BackendError::new(self.1.clone()))
        }
    }

    #[async_trait]
    impl Wakeup for Full {
        async fn wait(&self, timeout: Duration) -> Result<bool, BackendError> {
            self.0.wait(timeout).await
        }
    }

    #[tokio::test]
    async fn a_fifo_queue_without_space_takes_acks() {
        for kind in [ErrorKind::OutOfMemory, ErrorKind::DiskFull, ErrorKind::Partial] {
            let opened = queues().await.opened("q.fifo").await.unwrap();
            let mut open = Arc::into_inner(opened).unwrap();
            let mut receipts = Vec::new();
            for body in ["a", "b"] {
                let body = Bytes::from_static(body.as_bytes());
                open.queue.send(&body).await.unwrap();
                let Delivery { message, lease, .. } = claimed(&open).await;
                let MessageInfo { id, sequence, .. } = message.info;
                receipts.push(Receipt { id, lease, sequence });
            }
            let full = Full(Arc::clone(open.queue.backend()), kind.clone());
            open.queue = Queue::new(Arc::new(full)).codec(Raw);
            ack(&open, &receipts).await.unwrap_or_else(|error| panic!("{kind:?}: {error}"));
            assert_eq!(open.queue.stats().await.unwrap().totals.acked, 2, "{kind:?}");
        }
    }

    #[tokio::test]
    async fn a_repeated_move_makes_no_second_copy() {
        let queues = queues().await;
        let (from, to) =
            (queues.opened("orders").await.unwrap(), queues.opened("dead").await.unwrap());
        let send = async |queue: &Queue<Bytes, Raw>, body: &'static str| {
            let draft = queue.message(&Bytes::from_static(body.as_bytes())).id("order-1");
            assert!(draft.reuse_finished_id().send().await.unwrap().is_accepted());
        };
        let enqueued = async || to.queue.stats().await.unwrap().totals.enqueued;
        // The copy of the first message is deleted before its move is repeated. The second message
        // has the same content. The third one meets another message of its id, which is deleted.
        for (count, body) in [(1, "x"), (2, "x"), (4, "y")] {
            send(&from.queue, body).await;
            let delivery = claimed(&from).await;
            if count == 4 {
                send(&to.queue, "z").await;
            }
            for _ in 0..2 {
                transfer(&from, &delivery, &to, None, Extras::default(), false).await.unwrap();
                assert_eq!(enqueued().await, count, "{body}");
                to.queue.cancel("order-1").await.unwrap();
            }
        }
        assert_eq!(to.queue.stats().await.unwrap().ready, 1);
    }

    #[tokio::test]
    async fn a_move_that_is_repeated_with_another_policy_makes_no_second_copy() {
        let queues = queues().await;
        let (from, to) =
            (queues.opened("orders").await.unwrap(), queues.opened("dead").await.unwrap());
        // The id of the second message is taken by the first. The third one has a new id.
        for (count, has_new_id) in [(1, false), (2, false), (3, true)] {
            let draft = from.queue.message(&Bytes::from_static(b"x")).id("order-1");
            assert!(draft.reuse_finished_id().send().await.unwrap().is_accepted());
            let delivery = claimed(&from).await;
            for receives in [1, 2] {
                let extras = Extras { receives, ..Extras::default() };
                transfer(&from, &delivery, &to, None, extras, has_new_id).await.unwrap();
            }
            assert_eq!(to.queue.stats().await.unwrap().ready, count);
        }
    }
}
