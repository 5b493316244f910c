//! The messages that a message waits for, before and after they have ended.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use delayline_core::{Completion, MessageId, MessageInfo, QueueName, Status, Timestamp, Violation};

use super::siblings::Siblings;

/// A message that another one waits for: an id, and the queue if it is another one.
///
/// An id alone, as text or [`MessageId`], is a message of the queue of the waiting message.
/// [`Queue::member`](crate::Queue::member) names a message of another queue.
#[derive(Clone)]
pub struct Member {
    /// The queue, or `None` for the queue of the waiting message.
    pub(crate) queue: Option<QueueName>,
    pub(crate) id: MessageId,
    /// The connection, if it is known.
    pub(crate) home: Option<Siblings>,
}

impl Member {
    /// A message of the queue of this name, on the connection of the waiting message; `None` for
    /// the queue of the waiting message.
    #[must_use]
    pub fn new(queue: impl Into<Option<QueueName>>, id: MessageId) -> Self {
        Self { queue: queue.into(), id, home: None }
    }

    /// The name of its queue, or `None` if it is the queue of the waiting message.
    #[must_use]
    pub const fn queue(&self) -> Option<&QueueName> {
        self.queue.as_ref()
    }

    /// The id.
    #[must_use]
    pub const fn id(&self) -> &MessageId {
        &self.id
    }

    /// The same message, as a message of the queue `own` names it. Refuses one of another
    /// connection.
    pub(crate) fn seen_from(
        mut self,
        own: Option<&QueueName>,
        connection: &Siblings,
    ) -> Result<Self, Violation> {
        let is_own = self.queue.is_none() || self.queue.as_ref() == own;
        let is_near = match &self.home {
            Some(home) => home.is(connection),
            None => is_own || connection.has_queues(),
        };
        if !is_near {
            return Err(Violation::Malformed {
                what: "the member",
                value: self.to_string(),
                reason: "it is on another connection; a message waits for messages of its own \
                         connection only"
                    .to_owned(),
            });
        }
        if is_own {
            self.queue = None;
        }
        self.home = None;
        Ok(self)
    }
}

impl PartialEq for Member {
    fn eq(&self, other: &Self) -> bool {
        (&self.queue, &self.id) == (&other.queue, &other.id)
    }
}

impl Eq for Member {}

impl fmt::Debug for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Member({self})")
    }
}

/// The id, after the name of the queue and a space if it is another queue.
impl fmt::Display for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(queue) = &self.queue {
            write!(f, "{queue} ")?;
        }
        write!(f, "{}", self.id)
    }
}

impl From<MessageId> for Member {
    fn from(id: MessageId) -> Self {
        Self::new(None, id)
    }
}

impl From<&MessageId> for Member {
    fn from(id: &MessageId) -> Self {
        Self::new(None, id.clone())
    }
}

impl TryFrom<&str> for Member {
    type Error = Violation;

    fn try_from(id: &str) -> Result<Self, Violation> {
        Ok(MessageId::try_from(id)?.into())
    }
}

impl TryFrom<String> for Member {
    type Error = Violation;

    fn try_from(id: String) -> Result<Self, Violation> {
        Ok(MessageId::try_from(id)?.into())
    }
}

/// The effect of a member that ends without an ack: as a dead letter, cancelled or purged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OnFailure {
    /// It counts as ended, and the message waits for the others. The default.
    #[default]
    Wait,
    /// It ends the waiting at once: the message is delivered, whatever the others do.
    Deliver,
    /// It ends the waiting at once: the message is cancelled.
    Cancel,
}

impl OnFailure {
    /// All of them.
    pub const ALL: &'static [Self] = &[Self::Wait, Self::Deliver, Self::Cancel];

    /// Returns the name used in JSON: `wait`, `deliver` or `cancel`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Wait => "wait",
            Self::Deliver => "deliver",
            Self::Cancel => "cancel",
        }
    }

    /// Returns the one of this [name](Self::name), if there is one.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|known| known.name() == name)
    }
}

/// What a message waits for: set by [`Draft::after`](crate::Draft::after), and shown by
/// [`Queue::get`](crate::Queue::get).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Waiting {
    /// The members, in the order in which the sender named them, each once.
    pub members: Vec<Member>,
    /// The effect of a member that ends without an ack.
    pub on_failure: OnFailure,
    /// The maximum time from the send to the delivery: 1 ms to 100 years.
    pub at_most: Duration,
    /// What the message has done in another queue, if it was moved from there.
    pub(crate) moved: Option<Moved>,
}

/// What a moved message has done before: its first queue counts neither its time nor its failures
/// for the new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Moved {
    /// When it was sent.
    pub(crate) since: Timestamp,
    /// Whether it has failed, so that it was delivered.
    pub(crate) has_failed: bool,
}

impl Waiting {
    /// Maximum number of members of one message.
    pub const MAX_MEMBERS: usize = 10_000;

    /// The default of [`at_most`](Self::at_most): one day.
    pub const DEFAULT_AT_MOST: Duration = Duration::from_secs(86_400);

    /// Waits for nothing.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            members: Vec::new(),
            on_failure: OnFailure::Wait,
            at_most: Self::DEFAULT_AT_MOST,
            moved: None,
        }
    }

    /// When the wait has begun.
    pub(crate) fn since(&self, info: &MessageInfo) -> Timestamp {
        self.moved.map_or(info.enqueued_at, |moved| moved.since)
    }

    /// Whether the message was delivered and has failed, in this queue or another one.
    pub(crate) fn has_failed(&self, info: &MessageInfo) -> bool {
        // A redrive resets the failures, but keeps the error.
        let has_failed = info.failures > 0 || info.last_error.is_some();
        has_failed || self.moved.is_some_and(|moved| moved.has_failed)
    }
}

impl Default for Waiting {
    fn default() -> Self {
        Self::new()
    }
}

/// Why a message was delivered that waited for others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Why {
    /// All members have ended.
    AllEnded,
    /// A member has ended without an ack, and the message has [`OnFailure::Deliver`].
    Failure,
    /// The time limit of the wait has passed.
    TimeLimit,
}

impl Why {
    /// All of them.
    pub const ALL: &'static [Self] = &[Self::AllEnded, Self::Failure, Self::TimeLimit];

    /// Returns the name used in JSON: `all_ended`, `failure` or `time_limit`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::AllEnded => "all_ended",
            Self::Failure => "failure",
            Self::TimeLimit => "time_limit",
        }
    }
}

/// How a member had ended when the waiting message was delivered.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Ended {
    /// The message.
    pub member: Member,
    /// Its end, with the result of its ack if the queue still had one. After a failure or a time
    /// limit, it may be [`Completion::Pending`], or [`Completion::Unknown`] if the queue did not
    /// know the id.
    pub completion: Completion,
}

/// What a message has waited for: returned by [`Job::members`](crate::Job::members).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Members {
    /// Why the message was delivered.
    pub why: Why,
    /// The members, in the order in which the sender named them.
    pub ended: Vec<Ended>,
}

impl Members {
    /// Returns `true` if all of them were acked, or moved by a relay.
    #[must_use]
    pub fn all_acked(&self) -> bool {
        self.ended.iter().all(|ended| is_success(&ended.completion))
    }

    /// Iterates over the members that were neither acked nor moved by a relay.
    pub fn not_acked(&self) -> impl Iterator<Item = &Ended> {
        self.ended.iter().filter(|ended| !is_success(&ended.completion))
    }

    /// Iterates over the results of the members, in order; `None` for a member without a result.
    pub fn results(&self) -> impl Iterator<Item = Option<&Bytes>> {
        self.ended.iter().map(|ended| ended.completion.result())
    }
}

fn is_success(completion: &Completion) -> bool {
    matches!(completion, Completion::Finished { status: Status::Acked | Status::Relayed, .. })
}
