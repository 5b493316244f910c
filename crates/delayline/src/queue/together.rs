//! A message that waits for others, sent together with them.

use delayline_core::{Enqueued, MessageId, NewMessage, Status, Violation};
use uuid::Uuid;

use super::batch::send_all;
use super::draft::{Draft, generated};
use super::sent::Sent;
use crate::Error;
use crate::after::Member;
use crate::client::Client;

/// The result of [`Draft::send_with_members`].
#[derive(Debug)]
#[must_use = "`is_accepted` returns whether all were accepted"]
#[non_exhaustive]
pub struct SentTogether {
    /// The result of the waiting message.
    pub waiting: Sent,
    /// The results of the members, in order. Empty if the waiting message was not accepted, or has
    /// finished already: then no member is sent.
    pub members: Vec<Result<Sent, Error>>,
}

impl SentTogether {
    /// Returns `true` if the waiting message and all members that were sent are
    /// [accepted](Sent::is_accepted).
    #[must_use]
    pub fn is_accepted(&self) -> bool {
        let is_accepted = |sent: &Result<Sent, Error>| sent.as_ref().is_ok_and(Sent::is_accepted);
        self.waiting.is_accepted() && self.members.iter().all(is_accepted)
    }
}

impl Draft {
    /// Sends this message and its members: messages of any queue of the same connection, which it
    /// [waits for](Self::after) and which [wake](Self::wakes) it.
    ///
    /// The call can be repeated: after an error, after a crash, or by another process. For that,
    /// this message must have an [id](Self::id). A member without one gets an id that is derived
    /// from that and from its place, so the members must be in the same order then. The waiting
    /// message is sent first. If the process dies before it has sent all members, the rest is
    /// missing until the call is repeated, and at the latest the limit of the wait ends it. If the
    /// waiting message has been handled already, no member is sent again. Repeat the call while the
    /// queues remember the members that have ended, for at least an hour
    /// ([G15](crate::guarantees#g15)): a member that is forgotten is sent and handled again.
    ///
    /// ```
    /// # use delayline::{Error, Job, Queue, Worker};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Error> {
    /// # let connection = delayline::connect("memory:").await?;
    /// let thumbs: Queue<u64> = connection.queue("thumbs").await?;
    /// let galleries: Queue<u64> = connection.queue("galleries").await?;
    /// let members = (0..3).map(|image| thumbs.message(&image));
    /// let sent = galleries.message(&17).id("gallery-17").send_with_members(members).await?;
    /// assert!(sent.is_accepted());
    ///
    /// let worker = Worker::builder(thumbs).until_empty(true).build()?;
    /// worker.run(async |_: Job<u64>| Ok::<(), Error>(())).await;
    /// let worker = Worker::builder(galleries).until_empty(true).build()?;
    /// let gallery = async |job: Job<u64>| match job.members() {
    ///     Some(members) if members.all_acked() => Ok(()),
    ///     _ => Err("a thumbnail is missing"),
    /// };
    /// assert_eq!(worker.run(gallery).await.acked, 1);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, some of the messages may have been sent. Call it again to finish.
    ///
    /// # Errors
    ///
    /// The errors of [`send`](Self::send) for the waiting message; then no member is sent.
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid), before anything is sent, if it has no id,
    /// if a member is invalid or of another connection, or if a member
    /// [keeps its result](Self::keep_result) for a shorter time than the
    /// [limit](Self::wait_at_most) of the wait. Errors of later sends are in the result.
    #[doc(alias = "batch")]
    #[doc(alias = "fan_out")]
    pub async fn send_with_members(
        self,
        members: impl IntoIterator<Item = Self>,
    ) -> Result<SentTogether, Error> {
        let own = self.as_member()?;
        if !self.named {
            return Err(generated(&own.id).into());
        }
        let mut waiting = self.after(Vec::<Member>::new());
        let mut all = Vec::new();
        for (place, member) in members.into_iter().enumerate() {
            let member = member.or_id(|| derived(&own.id, place)).wakes(own.clone());
            let client = member.client.clone();
            waiting = waiting.after([member.as_member()?]);
            let message = NewMessage::try_from(member)?;
            message.validate()?;
            waiting.outlived_by(&message)?;
            all.push((client, message));
        }
        let waiting = waiting.send().await?;
        let has_finished = matches!(
            waiting.outcome,
            Enqueued::Duplicate { status: Status::Acked | Status::Relayed }
        );
        let members = match waiting.is_accepted() && !has_finished {
            true => send_each(all).await,
            false => Vec::new(),
        };
        Ok(SentTogether { waiting, members })
    }
}

impl Draft {
    /// The message, for a draft that waits for it.
    fn as_member(&self) -> Result<Member, Error> {
        let queue = self.client.queue_name().cloned();
        let id = self.message.as_ref().map_err(Error::clone)?.id.clone();
        Ok(Member { queue, id, home: Some(self.client.siblings().clone()) })
    }

    /// Checks that the results of the first members are still kept when the last one ends.
    fn outlived_by(&self, member: &NewMessage) -> Result<(), Violation> {
        let at_most = self.waiting.at_most;
        match member.headers.result_retention() {
            Some(kept) if kept < at_most => Err(Violation::Malformed {
                what: "the member",
                value: member.id.to_string(),
                reason: format!(
                    "its result is kept for {kept:?}, and the wait may last {at_most:?}; keep the \
                     result for longer, or shorten the wait"
                ),
            }),
            _ => Ok(()),
        }
    }
}

/// Sends messages to their queues. Returns one result per message, in order.
async fn send_each(messages: Vec<(Client, NewMessage)>) -> Vec<Result<Sent, Error>> {
    let mut results: Vec<_> = messages.iter().map(|_| None).collect();
    let mut rest: Vec<_> = messages.into_iter().enumerate().collect();
    while let Some((_, (client, _))) = rest.first() {
        let client = client.clone();
        let is_of_queue = |(_, (its, _)): &(usize, (Client, NewMessage))| its.is(&client);
        let (of_queue, others): (Vec<_>, Vec<_>) = rest.into_iter().partition(is_of_queue);
        rest = others;
        let of_queue = of_queue.into_iter().map(|(place, (_, message))| (place, message)).collect();
        send_all(&client, of_queue, false, &mut results).await;
    }
    results.into_iter().map(|it| it.unwrap_or_else(|| Err(Error::unexpected_reply()))).collect()
}

/// The id of a member that the caller has not named.
fn derived(waiting: &MessageId, place: usize) -> Result<MessageId, Violation> {
    let id = [waiting.as_bytes(), b".", place.to_string().as_bytes()].concat();
    MessageId::new(id.clone())
        .or_else(|_| MessageId::try_from(Uuid::new_v5(&MEMBERS, &id).to_string()))
}

/// The namespace of the ids of members whose waiting message has a long id.
const MEMBERS: Uuid = Uuid::from_u128(0x5a21_7d0c_93fe_4e44_b0c7_18aa_f26d_9b05);
