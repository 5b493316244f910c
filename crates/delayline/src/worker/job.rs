//! The argument of a handler.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use delayline_core::limits::MAX_PROGRESS_TEXT_BYTES;
use delayline_core::{Group, Headers, Lease, MessageId, MessageInfo, Progress, Timestamp};
use uuid::Uuid;

use super::control::Control;
use super::{CancelReason, Cancellation, Outcome};
use crate::after::Members;
#[cfg(feature = "json")]
use crate::codec::{Decode, Encode, Json};
use crate::telemetry::Label;
use crate::{Draft, Error};

/// A delivered message with its decoded payload: the argument of a handler.
///
/// Its `Debug` output does not contain the payload.
#[doc(alias = "delivery")]
pub struct Job<T> {
    payload: T,
    info: MessageInfo,
    headers: Headers,
    checkpoint: Option<Bytes>,
    lease: Lease,
    lateness: Duration,
    members: Option<Members>,
    control: Arc<Control>,
    queue: Label,
}

impl<T> Job<T> {
    #[expect(clippy::too_many_arguments, reason = "a constructor")]
    pub(super) const fn new(
        payload: T,
        info: MessageInfo,
        headers: Headers,
        checkpoint: Option<Bytes>,
        lease: Lease,
        lateness: Duration,
        control: Arc<Control>,
        queue: Label,
    ) -> Self {
        let members = None;
        Self { payload, info, headers, checkpoint, lease, lateness, members, control, queue }
    }

    /// The same job with its payload decoded.
    pub(crate) fn with_payload<U>(self, payload: U) -> Job<U> {
        let Self { info, headers, checkpoint, lease, lateness, members, control, queue, .. } = self;
        Job { payload, info, headers, checkpoint, lease, lateness, members, control, queue }
    }

    /// The same job with the members that it has waited for.
    pub(super) fn with_members(self, members: Option<Members>) -> Self {
        Self { members, ..self }
    }

    pub(crate) const fn control(&self) -> &Arc<Control> {
        &self.control
    }

    /// The payload.
    pub const fn payload(&self) -> &T {
        &self.payload
    }

    /// Takes the payload out of the job.
    pub fn into_payload(self) -> T {
        self.payload
    }

    /// The message's id.
    pub const fn id(&self) -> &MessageId {
        &self.info.id
    }

    /// The message's group, if it has one.
    pub const fn group(&self) -> Option<&Group> {
        self.info.group.as_ref()
    }

    /// The headers that travel with the payload.
    pub const fn headers(&self) -> &Headers {
        &self.headers
    }

    /// The number of claims of the message, including this one.
    ///
    /// Use it as a fencing token for conditional writes elsewhere: a store that has seen this epoch
    /// or a higher one refuses the write. If a failover or a crash of the server loses a claim, the
    /// next claim gets the same epoch. To prevent that, confirm claims with
    /// [`claim_durability`](super::WorkerBuilder::claim_durability). A new message that reuses an
    /// id starts at 1.
    #[doc(alias = "fencing token")]
    pub const fn epoch(&self) -> u64 {
        self.info.epoch
    }

    /// The number of failures of handlers of this message.
    pub const fn failures(&self) -> u32 {
        self.info.failures
    }

    /// The number of expired leases of this message, because workers crashed or hung, or the
    /// replies to claims were lost.
    pub const fn crashes(&self) -> u32 {
        self.info.crashes
    }

    /// The number of this attempt, from 1: failures and crashes so far, plus one. Snoozes and
    /// releases do not count; [`epoch`](Self::epoch) rises with every delivery.
    pub const fn attempt(&self) -> u32 {
        self.info.failures.saturating_add(self.info.crashes).saturating_add(1)
    }

    /// When the message was due, by the server's clock; after a retry, when the retry was due.
    pub const fn due(&self) -> Timestamp {
        self.info.due
    }

    /// The time from the due time to the claim, both by the server's clock.
    pub const fn lateness(&self) -> Duration {
        self.lateness
    }

    /// The messages that this one has waited for, with their ends and results; `None` if it waited
    /// for none: see [`Draft::after`].
    pub const fn members(&self) -> Option<&Members> {
        self.members.as_ref()
    }

    /// Everything about the message except headers and payload.
    pub const fn info(&self) -> &MessageInfo {
        &self.info
    }

    /// The lease, for settling or extending the message with your own [`Op`](crate::backend::Op)s.
    pub const fn lease(&self) -> Lease {
        self.lease
    }

    /// Saves a checkpoint with the message, as JSON: the state from which the next attempt
    /// continues ([`saved`](Self::saved)), after a failure, a snooze, a crash or a redrive
    /// ([G40](crate::guarantees#g40)). For another format, encode the state and use
    /// [`save_bytes`](Self::save_bytes). The guide [Resume a long
    /// job](crate::guides::resume_a_long_job) has a program.
    ///
    /// Returns at once. The worker stores the latest checkpoint when it renews leases: at once, and
    /// then at most once a second. The last one is stored in the same step as the outcome of the
    /// handler; an ack removes the message with its checkpoint. So a crash can lose the last second
    /// of saves: a handler must be able to repeat that work. If the lease is lost, nothing is
    /// saved.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Encode`](crate::ErrorKind::Encode) if the state cannot be encoded, and
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) beyond
    /// [`MAX_CHECKPOINT_BYTES`](crate::limits::MAX_CHECKPOINT_BYTES). The latest checkpoint stays
    /// then.
    #[cfg(feature = "json")]
    #[doc(alias = "checkpoint")]
    pub fn save<S: ?Sized>(&self, state: &S) -> Result<(), Error>
    where
        Json: Encode<S>,
    {
        self.save_bytes(Json.encode(state).map_err(Error::encode)?)
    }

    /// Saves a checkpoint as bytes: like [`save`](Self::save).
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) beyond
    /// [`MAX_CHECKPOINT_BYTES`](crate::limits::MAX_CHECKPOINT_BYTES).
    pub fn save_bytes(&self, state: impl Into<Bytes>) -> Result<(), Error> {
        Ok(self.control.saves.put(None, Some(state.into()))?)
    }

    /// Shows how far the handler is: a share from 0 to 1, and a short text, such as "page 12 of
    /// 30". Users who see the message see both. A text of more than 256 bytes is cut, and a
    /// share beyond the limits becomes the nearest one. It is stored as a checkpoint is, which
    /// stays as it was: see [`save`](Self::save).
    pub fn progress(&self, done: f64, text: impl Into<String>) {
        let mut text = text.into();
        let mut ends = (0..=text.len().min(MAX_PROGRESS_TEXT_BYTES)).rev();
        let end = ends.find(|end| text.is_char_boundary(*end));
        text.truncate(end.unwrap_or(0));
        // It is within its limits.
        let _ = self.control.saves.put(Some(Progress::new(done, text)), None);
    }

    /// Returns the checkpoint that an earlier attempt has saved with [`save`](Self::save); `None`
    /// if none has. What this attempt saves does not change it.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Decode`](crate::ErrorKind::Decode) if it is no JSON of this type, as after a
    /// deployment that changed the type.
    #[cfg(feature = "json")]
    pub fn saved<S>(&self) -> Result<Option<S>, Error>
    where
        Json: Decode<S>,
    {
        let checkpoint = self.checkpoint.as_ref();
        checkpoint.map(|bytes| Json.decode(bytes).map_err(Error::decode)).transpose()
    }

    /// Returns the bytes of the checkpoint that an earlier attempt has saved.
    pub const fn saved_bytes(&self) -> Option<&Bytes> {
        self.checkpoint.as_ref()
    }

    /// Sends a message to another queue, on any server, and returns [`Outcome::Ack`] once that
    /// queue has accepted it. Return this outcome from the handler. Within the job's own queue,
    /// [`Outcome::then`] does both in one atomic step.
    ///
    /// A draft without an id gets one that is derived from this queue and from the job's id,
    /// sequence number and time of enqueuing. So if the handler runs again because its ack was
    /// lost, the other queue recognizes the message. It remembers the id for at least an hour after
    /// that message has finished ([G15](crate::guarantees#g15)). The message is sent at least once,
    /// and within that time exactly once. If the other queue refuses the message, as a conflict or
    /// because it knows it as dead, cancelled or purged, this returns a failure:
    /// [`Outcome::Retry`].
    ///
    /// ```
    /// # use delayline::{Error, Job, Queue, Worker};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Error> {
    /// # let connection = delayline::connect("memory:").await?;
    /// let orders: Queue<u64> = connection.queue("orders").await?;
    /// let invoices: Queue<u64> = connection.queue("invoices").await?;
    /// let _ = orders.message(&17).send().await?;
    ///
    /// let target = invoices.clone();
    /// let worker = Worker::builder(orders).until_empty(true).build()?;
    /// let summary = worker
    ///     .run(move |job: Job<u64>| {
    ///         let draft = target.message(job.payload());
    ///         async move { job.hand_over(draft).await }
    ///     })
    ///     .await;
    /// assert_eq!((summary.acked, invoices.stats().await?.ready), (1, 1));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Cancel safety
    ///
    /// Dropping the future may leave the message in the other queue. The next run of the handler
    /// finds it there.
    ///
    /// # Errors
    ///
    /// Those of [`Draft::send`].
    pub async fn hand_over(&self, draft: Draft) -> Result<Outcome, Error> {
        let draft = draft.or_id(|| {
            let (queue, info) = (self.queue.as_str(), &self.info);
            let (id, sent_at) = (info.id.as_bytes(), info.enqueued_at.as_ms());
            // A queue that was removed and made anew counts its messages from the beginning.
            let numbers = format!("{} {} {} {sent_at} ", queue.len(), id.len(), info.sequence);
            let name = [numbers.as_bytes(), queue.as_bytes(), id].concat();
            MessageId::try_from(Uuid::new_v5(&HAND_OVER, &name).to_string())
        });
        let sent = draft.send().await?;
        Ok(if sent.is_accepted() {
            Outcome::Ack
        } else {
            Outcome::retry(format!("the other queue refuses {}: {:?}", sent.id, sent.outcome))
        })
    }

    /// Returns the token that fires when there is no use in continuing: see [`CancelReason`]. The
    /// handler is not forced to end; its result counts as long as the lease is valid.
    pub fn cancellation(&self) -> &Cancellation {
        &self.control.cancellation
    }

    /// Returns why the [`cancellation`](Self::cancellation) has fired; `None` if it has not.
    #[must_use]
    pub fn cancel_reason(&self) -> Option<CancelReason> {
        self.control.reason()
    }
}

/// The namespace of the ids of messages that are handed over to other queues.
const HAND_OVER: Uuid = Uuid::from_u128(0x6df1_a7c2_53e0_4b8e_9a0b_27d1_4cf3_60f5);

impl<T> fmt::Debug for Job<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Job")
            .field("info", &self.info)
            .field("headers", &self.headers)
            .field("lateness", &self.lateness)
            .finish_non_exhaustive()
    }
}
