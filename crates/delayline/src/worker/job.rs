//! The argument of a handler.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use delayline_core::{Group, Headers, Lease, MessageId, MessageInfo, Timestamp};
use uuid::Uuid;

use super::control::Control;
use super::{CancelReason, Cancellation, Outcome};
use crate::after::Members;
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
    lease: Lease,
    lateness: Duration,
    members: Option<Members>,
    control: Arc<Control>,
    queue: Label,
}

impl<T> Job<T> {
    pub(super) const fn new(
        payload: T,
        info: MessageInfo,
        headers: Headers,
        lease: Lease,
        lateness: Duration,
        control: Arc<Control>,
        queue: Label,
    ) -> Self {
        Self { payload, info, headers, lease, lateness, members: None, control, queue }
    }

    /// The same job with its payload decoded.
    pub(crate) fn with_payload<U>(self, payload: U) -> Job<U> {
        let Self { info, headers, lease, lateness, members, control, queue, .. } = self;
        Job { payload, info, headers, lease, lateness, members, control, queue }
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
        self.lease.epoch
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
