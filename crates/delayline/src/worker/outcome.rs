//! The result of a handler.

use std::fmt;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use delayline_core::limits::MAX_ERROR_BYTES;
use delayline_core::{
    ClaimId, HandOff, Hold, Lease, MessageId, Millis, NewMessage, NewResult, Op,
    Outcome as Settled, QueueName, Schedule, Settlement, Timestamp, Violation,
};

use super::holds::both;
use crate::Error;
use crate::message::Sendable;
use crate::queue::same_queue;

/// The result of a handler, which settles its message.
///
/// Delays and instants are rounded up to the millisecond, and limited to 100 years and to the end
/// of the year 9999. The server's clock decides when they are reached. Error texts are cut off
/// after 1024 bytes.
///
/// Its `Debug` output omits results.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// Handled: the message is finished.
    Ack,
    /// Handled, with a result of up to 64 KiB. The queue keeps it for as long as the sender has
    /// requested with [`Draft::keep_result`](crate::Draft::keep_result)
    /// ([G32](crate::guarantees#g32)). If the sender has not requested a result, or if the queue
    /// would keep more than 64 MiB or 1,000,000 results, the message is acked without it. A result
    /// that is too large counts as a failure.
    AckWith(Bytes),
    /// Failed: a failure is counted. The message is retried, or becomes a dead letter after its
    /// last allowed failure ([G9](crate::guarantees#g9)).
    #[doc(alias = "nack")]
    Retry {
        /// The delay from now until the retry; `None` to use the worker's retry policy.
        after: Option<Duration>,
        /// What went wrong.
        error: String,
    },
    /// Failed, like [`Retry`](Self::Retry), with the instant of the retry.
    RetryAt {
        /// When the retry is due. A past instant means now.
        at: SystemTime,
        /// What went wrong.
        error: String,
    },
    /// The payload could not be decoded; the text is that of the codec. It counts as a failure, and
    /// the message is retried according to the worker's retry policy. At the last allowed failure,
    /// the reason of its death is
    /// [`DeathReason::Undecodable`](crate::message::DeathReason::Undecodable).
    ///
    /// Workers use this for payloads that their codec cannot decode. Return it from a handler that
    /// decodes part of the payload itself.
    Undecodable(String),
    /// Not now: nothing is counted. The message is due again after this delay.
    ///
    /// With no delay it is a [`Release`](Self::Release).
    #[doc(alias = "defer")]
    Snooze(Duration),
    /// Not until this instant: nothing is counted. The message is due again exactly then
    /// ([G4](crate::guarantees#g4)).
    ///
    /// If the instant has passed by the server's clock, the message is ready at once, ahead of
    /// messages that are due later, and its lateness counts from the instant. As with
    /// [`Release`](Self::Release), that does not cause a busy loop.
    ///
    /// A message that has [waited](crate::Draft::after) for members may have to wait again after a
    /// snooze of an hour or more, if their ends are forgotten by then
    /// ([G39](crate::guarantees#g39)).
    ///
    /// ```
    /// use std::time::{Duration, SystemTime};
    ///
    /// use delayline::Outcome;
    ///
    /// let opens = SystemTime::UNIX_EPOCH + Duration::from_secs(1_900_000_000);
    /// let outcome = Outcome::SnoozeUntil(opens);
    /// # assert_eq!(format!("{outcome:?}").get(..11), Some("SnoozeUntil"));
    /// ```
    SnoozeUntil(SystemTime),
    /// Not here: nothing is counted. The message is ready again at once, for any worker.
    ///
    /// While handlers return only this, the worker claims less and less often, down to ten times a
    /// second. So a message that no worker wants does not cause a busy loop.
    #[doc(alias = "requeue")]
    Release,
    /// Hopeless: the message becomes a dead letter, with this text as the error.
    #[doc(alias = "DLQ")]
    Reject(String),
    /// An outcome with further messages to send: created by [`then`](Self::then).
    Then {
        /// The outcome of the handled message.
        outcome: Box<Self>,
        /// The messages to send.
        messages: Vec<NewMessage>,
        /// The name of the queue that created their drafts, if it is known. If the handled message
        /// is in another queue, the delivery is a failure.
        queue: Option<QueueName>,
    },
    /// An outcome that holds the queue or the group of the message: created by
    /// [`hold_queue`](Self::hold_queue), [`hold_group`](Self::hold_group), and others.
    Hold {
        /// The outcome of the handled message.
        outcome: Box<Self>,
        /// The queue or the group, and until when.
        hold: Hold,
    },
}

impl Outcome {
    /// Failed; to be retried according to the worker's retry policy.
    #[must_use]
    pub fn retry(error: impl Into<String>) -> Self {
        Self::Retry { after: None, error: error.into() }
    }

    /// Failed; to be retried after this delay.
    #[must_use]
    pub fn retry_in(after: Duration, error: impl Into<String>) -> Self {
        Self::Retry { after: Some(after), error: error.into() }
    }

    /// Failed; to be retried at this instant.
    #[must_use]
    pub fn retry_at(at: SystemTime, error: impl Into<String>) -> Self {
        Self::RetryAt { at, error: error.into() }
    }

    /// Hopeless; to become a dead letter.
    #[must_use]
    pub fn reject(error: impl Into<String>) -> Self {
        Self::Reject(error.into())
    }

    /// Holds the queue for this long: no worker gets a message. Use it after "429 Too Many
    /// Requests, Retry-After: 30" ([G34](crate::guarantees#g34)). The hold takes effect in one step
    /// with the outcome, if the outcome is accepted. If holds overlap, the latest end counts.
    /// Running handlers continue. [`Queue::set_limits`](crate::Queue::set_limits) can end a hold.
    ///
    /// An outcome holds either the queue or the group. If both are called, it holds the queue only,
    /// which stops the group as well. A message that has waited for others, and is snoozed for less
    /// than 30 s with a hold of the queue, can return when one of them ends.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use delayline::Outcome;
    ///
    /// # fn call() -> Outcome {
    /// // The message is tried again after the hold, and nothing is counted.
    /// Outcome::Release.hold_queue(Duration::from_secs(30))
    /// # }
    /// # assert!(format!("{:?}", call()).starts_with("Hold"));
    /// ```
    #[must_use]
    #[doc(alias = "rate_limit")]
    #[doc(alias = "retry_after")]
    pub fn hold_queue(self, duration: Duration) -> Self {
        self.holding(Hold::Queue(Schedule::In(millis(duration))))
    }

    /// Like [`hold_queue`](Self::hold_queue), until this instant. A past instant has no effect.
    #[must_use]
    pub fn hold_queue_until(self, until: SystemTime) -> Self {
        self.holding(Hold::Queue(Schedule::At(timestamp(until))))
    }

    /// Holds the group of the message for this long: no worker gets a message of it, and other
    /// groups continue ([G38](crate::guarantees#g38)). Use it after an answer such as "429 Too Many
    /// Requests" that concerns one tenant. Without a [group](crate::Draft::group), there is no
    /// hold.
    ///
    /// The hold takes effect in one step with the outcome, if the outcome is accepted. If holds of
    /// a group overlap, the latest end counts. Running handlers continue, and their messages wait
    /// if they are released. With a hold of the [queue](Self::hold_queue), this one is dropped.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use delayline::Outcome;
    ///
    /// # fn call() -> Outcome {
    /// // The message is tried again after the hold, and nothing is counted.
    /// Outcome::Release.hold_group(Duration::from_secs(30))
    /// # }
    /// # assert!(format!("{:?}", call()).starts_with("Hold"));
    /// ```
    #[must_use]
    pub fn hold_group(self, duration: Duration) -> Self {
        self.holding(Hold::Group(Schedule::In(millis(duration))))
    }

    /// Like [`hold_group`](Self::hold_group), until this instant. A past instant has no effect.
    #[must_use]
    pub fn hold_group_until(self, until: SystemTime) -> Self {
        self.holding(Hold::Group(Schedule::At(timestamp(until))))
    }

    fn holding(self, hold: Hold) -> Self {
        Self::Hold { outcome: Box::new(self), hold }
    }

    pub(super) fn with_hold(self, hold: Option<Hold>) -> Self {
        match hold {
            Some(hold) => self.holding(hold),
            None => self,
        }
    }

    /// Separates the outcome from its hold: the latest one of the queue, or else of the group.
    pub(crate) fn held(self) -> (Self, Option<Hold>) {
        match self {
            Self::Hold { outcome, hold } => {
                let (outcome, inner) = outcome.held();
                (outcome, Some(inner.map_or(hold, |inner| both(inner, hold))))
            }
            Self::Then { outcome, messages, queue } => {
                let (outcome, hold) = outcome.held();
                (Self::Then { outcome: Box::new(outcome), messages, queue }, hold)
            }
            outcome => (outcome, None),
        }
    }

    /// Sends messages together with this outcome, in one atomic step
    /// ([G31](crate::guarantees#g31)). They are created if and only if the outcome is accepted,
    /// even if replies are lost or this process dies. If the lease is lost, or the server is full,
    /// neither happens. So a chain of messages neither breaks nor forks.
    ///
    /// The messages go to the queue of the handled message, so their drafts must be of that queue,
    /// or of one with the same name. For another queue, use
    /// [`Job::hand_over`](crate::Job::hand_over). A message whose id the queue already knows is not
    /// created, but the outcome still counts ([G15](crate::guarantees#g15)).
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use delayline::{Error, Job, Outcome, Queue, Worker};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Error> {
    /// # let queue: Queue<u64> = delayline::connect("memory:").await?.queue("steps").await?;
    /// let _ = queue.message(&1).id("step-1").send().await?;
    ///
    /// let next = queue.clone();
    /// let worker = Worker::builder(queue).until_empty(true).build()?;
    /// let summary = worker
    ///     .run(move |job: Job<u64>| {
    ///         let next = next.clone();
    ///         async move {
    ///             let step = job.payload() + 1;
    ///             if step > 3 {
    ///                 return Ok(Outcome::Ack);
    ///             }
    ///             let draft = next.message(&step).id(format!("step-{step}"));
    ///             Outcome::Ack.then([draft.due_in(Duration::from_millis(5))])
    ///         }
    ///     })
    ///     .await;
    /// assert_eq!(summary.acked, 3);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Encode`](crate::ErrorKind::Encode) if a value cannot be encoded.
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) if a message is outside its limits, is an
    /// update, or has the id of another one. Also if there are no messages, more than
    /// [`MAX_FOLLOW_UPS`](crate::limits::MAX_FOLLOW_UPS), or more than
    /// [`MAX_BATCH_BYTES`](crate::limits::MAX_BATCH_BYTES). Drafts of two queues are invalid as
    /// well ([`Violation::OtherQueue`](crate::Violation::OtherQueue)).
    ///
    /// The worker checks the rest when the handler has ended. If a message has the id of the
    /// handled one, or a draft is of another queue, nothing is sent, and the delivery fails with
    /// that error.
    #[doc(alias = "chain")]
    #[doc(alias = "follow_up")]
    pub fn then<M: Sendable>(self, messages: impl IntoIterator<Item = M>) -> Result<Self, Error> {
        let (outcome, hold) = self.held();
        let (outcome, mut all, mut queue) = outcome.parts();
        for message in messages {
            let parts = message.into_parts()?;
            same_queue(parts.queue.as_ref(), queue.as_ref())?;
            queue = queue.or(parts.queue);
            all.push(parts.message);
        }
        // The id of the handled message is not known here.
        let other = MessageId::try_from(uuid::Uuid::new_v4().simple().to_string())?;
        let messages = validated(other, all, None)?.0;
        let then = Self::Then { outcome: Box::new(outcome), messages, queue };
        Ok(then.with_hold(hold))
    }

    /// Separates the outcome, the messages to send, and their queue.
    fn parts(self) -> (Self, Vec<NewMessage>, Option<QueueName>) {
        match self {
            Self::Then { outcome, mut messages, queue } => {
                let (outcome, earlier, earlier_queue) = outcome.parts();
                messages.splice(0..0, earlier);
                (outcome, messages, queue.or(earlier_queue))
            }
            outcome => (outcome, Vec::new(), None),
        }
    }

    /// Returns the outcome of the message `id` of a queue, the messages to send, and the result, if
    /// it is `wanted`. If the messages cannot be sent, the outcome is a failure.
    pub(crate) fn of(
        self,
        id: &MessageId,
        queue: Option<&QueueName>,
        wanted: Option<Duration>,
    ) -> (Self, Vec<NewMessage>, Option<NewResult>) {
        let (outcome, messages, made_for) = self.parts();
        let result = match &outcome {
            // A result of any size is validated, wanted or not.
            Self::AckWith(bytes) => Some(bytes.clone()),
            _ => None,
        };
        if messages.is_empty() && result.is_none() {
            return (outcome, Vec::new(), None);
        }
        let retention = wanted.map_or(SHORTEST, millis);
        let result = result.map(|bytes| NewResult::new(bytes, retention));
        let is_ours = same_queue(made_for.as_ref(), queue);
        match is_ours.and_then(|()| validated(id.clone(), messages, result)) {
            Ok((messages, result)) => (outcome, messages, result.filter(|_| wanted.is_some())),
            Err(violation) => {
                let error = format!("the handler's outcome cannot be sent: {violation}");
                (Self::retry(error), Vec::new(), None)
            }
        }
    }

    /// Converts to the outcome of the contract. `policy` returns the delay for a retry without one,
    /// given its error.
    pub(crate) fn settled(self, policy: impl FnOnce(&str) -> Millis) -> Settled {
        match self {
            Self::Ack | Self::AckWith(_) => Settled::Ack,
            Self::Retry { after, error } => {
                let error = truncated(error);
                let delay = after.map_or_else(|| policy(&error), millis);
                Settled::Retry { schedule: Schedule::In(delay), error }
            }
            Self::RetryAt { at, error } => {
                Settled::Retry { schedule: Schedule::At(timestamp(at)), error: truncated(error) }
            }
            Self::Undecodable(error) => {
                let error = truncated(error);
                Settled::Undecodable { schedule: Schedule::In(policy(&error)), error }
            }
            Self::Snooze(Duration::ZERO) | Self::Release => Settled::Release,
            Self::Snooze(delay) => Settled::Snooze { schedule: Schedule::In(millis(delay)) },
            Self::SnoozeUntil(at) => Settled::Snooze { schedule: Schedule::At(timestamp(at)) },
            Self::Reject(error) => Settled::Reject { error: truncated(error) },
            Self::Then { outcome, .. } | Self::Hold { outcome, .. } => outcome.settled(policy),
        }
    }
}

impl From<()> for Outcome {
    fn from((): ()) -> Self {
        Self::Ack
    }
}

impl fmt::Debug for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ack => f.write_str("Ack"),
            Self::AckWith(result) => {
                f.debug_struct("AckWith").field("bytes", &result.len()).finish()
            }
            Self::Retry { after, error } => {
                f.debug_struct("Retry").field("after", after).field("error", error).finish()
            }
            Self::RetryAt { at, error } => {
                f.debug_struct("RetryAt").field("at", at).field("error", error).finish()
            }
            Self::Undecodable(error) => f.debug_tuple("Undecodable").field(error).finish(),
            Self::Snooze(delay) => f.debug_tuple("Snooze").field(delay).finish(),
            Self::SnoozeUntil(at) => f.debug_tuple("SnoozeUntil").field(at).finish(),
            Self::Release => f.write_str("Release"),
            Self::Reject(error) => f.debug_tuple("Reject").field(error).finish(),
            Self::Then { outcome, messages, .. } => f
                .debug_struct("Then")
                .field("outcome", outcome)
                .field("messages", messages)
                .finish(),
            Self::Hold { outcome, hold } => {
                f.debug_struct("Hold").field("outcome", outcome).field("hold", hold).finish()
            }
        }
    }
}

/// Returns the messages and the result if the message `id` may carry them.
fn validated(
    id: MessageId,
    messages: Vec<NewMessage>,
    result: Option<NewResult>,
) -> Result<(Vec<NewMessage>, Option<NewResult>), Violation> {
    // Leases and outcomes have no limits that matter here.
    let lease = Lease { claim_id: ClaimId::from_bytes([0; ClaimId::BYTES]), epoch: 1 };
    let settlement = Settlement::new(id, lease, Settled::Ack);
    let op = Op::HandOff(vec![HandOff::new(settlement, messages).with_result(result)]);
    op.validate()?;
    let only = match op {
        Op::HandOff(items) => items.into_iter().next(),
        _ => None,
    };
    Ok(only.map_or((Vec::new(), None), |only| (only.messages, only.result)))
}

/// For a result that will not be kept.
const SHORTEST: Millis = Millis::saturating(1);

fn millis(duration: Duration) -> Millis {
    Millis::try_from(duration).unwrap_or(Millis::MAX)
}

fn timestamp(at: SystemTime) -> Timestamp {
    Timestamp::try_from(at).unwrap_or(Timestamp::MAX)
}

/// At most the first [`MAX_ERROR_BYTES`] bytes of a text, cut between characters.
fn truncated(mut text: String) -> String {
    let fits = |end: &usize| text.is_char_boundary(*end);
    if text.len() > MAX_ERROR_BYTES {
        let end = (0..=MAX_ERROR_BYTES).rev().find(fits).unwrap_or(0);
        text.truncate(end);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_errors_are_cut_between_characters() {
        assert_eq!(truncated("x".repeat(2_000)).len(), MAX_ERROR_BYTES);
        // Three bytes each.
        assert_eq!(truncated("\u{20ac}".repeat(500)).len(), 1_023);
        assert_eq!(truncated("short".to_owned()), "short");
    }

    #[test]
    fn delays_and_instants_beyond_the_limit_are_the_limit() {
        let settled = |outcome: Outcome| outcome.settled(|_| Millis::ZERO);
        let longest = Settled::Snooze { schedule: Schedule::In(Millis::MAX) };
        assert_eq!(settled(Outcome::Snooze(Duration::MAX)), longest);
        let far = SystemTime::UNIX_EPOCH + Duration::from_secs(1 << 40);
        let last = Settled::Snooze { schedule: Schedule::At(Timestamp::MAX) };
        assert_eq!(settled(Outcome::SnoozeUntil(far)), last);
    }

    #[test]
    fn a_snooze_without_a_delay_is_a_release() {
        let settled = |outcome: Outcome| outcome.settled(|_| Millis::ZERO);
        assert_eq!(settled(Outcome::Snooze(Duration::ZERO)), Settled::Release);
        let shortest = Settled::Snooze { schedule: Schedule::In(Millis::saturating(1)) };
        assert_eq!(settled(Outcome::Snooze(Duration::from_nanos(1))), shortest);
    }

    #[test]
    fn an_instant_is_kept_to_the_millisecond_and_never_early() {
        let at = SystemTime::UNIX_EPOCH + Duration::from_micros(1_800_000_000_000_001);
        let settled = Outcome::retry_at(at, "busy").settled(|_| panic!("it has its instant"));
        let schedule = Schedule::At(Timestamp::from_ms(1_800_000_000_001).unwrap());
        assert_eq!(settled, Settled::Retry { schedule, error: "busy".to_owned() });
    }

    #[test]
    fn of_several_holds_the_latest_of_the_queue_counts() {
        let seconds = Duration::from_secs;
        let hold = |outcome: Outcome| outcome.held().1;
        let queue = Some(Hold::Queue(Schedule::In(millis(seconds(60)))));
        assert_eq!(hold(Outcome::Ack.hold_queue(seconds(60)).hold_queue(seconds(5))), queue);
        let past = Outcome::Ack.hold_queue_until(SystemTime::UNIX_EPOCH);
        assert_eq!(hold(past.hold_queue(seconds(60)).hold_group(seconds(300))), queue);
        let group = Some(Hold::Group(Schedule::In(millis(seconds(9)))));
        assert_eq!(hold(Outcome::Ack.hold_group(seconds(9)).hold_group(seconds(8))), group);
    }
}
