//! What a drain has handled.

use std::fmt::{self, Display};

use delayline_core::{MessageId, QueueName, Status, Timestamp};

use crate::Outcome;

/// The deliveries that a drain has handled.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Drained {
    /// Each run of the handler, in order. Messages that became dead letters without one, because
    /// they expired, are not included.
    pub handled: Vec<Handled>,
}

impl Drained {
    /// The runs of the handler on one message, or on messages of this id in several queues.
    #[must_use]
    pub fn of(&self, id: impl AsRef<[u8]>) -> Vec<&Handled> {
        self.handled.iter().filter(|handled| handled.id.as_bytes() == id.as_ref()).collect()
    }

    /// How many runs left their message with this status: [`Status::Acked`], [`Status::Dead`],
    /// [`Status::Scheduled`] after a retry or a snooze, and so on.
    #[must_use]
    pub fn count(&self, status: Status) -> usize {
        self.handled.iter().filter(|handled| handled.status == Some(status)).count()
    }
}

/// One run of the handler.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Handled {
    /// The queue. That of a [`TestQueue::new`](super::TestQueue::new) is named `test`.
    pub queue: QueueName,
    /// The message.
    pub id: MessageId,
    /// The number of this delivery, see [`Job::epoch`](crate::Job::epoch).
    pub epoch: u64,
    /// When it was due, by the queue's clock.
    pub due: Timestamp,
    /// When it was claimed, by the queue's clock.
    pub at: Timestamp,
    /// The handler's result. An error is [`Outcome::Retry`], and so is a panic, whose text begins
    /// with `panicked:`. A payload that cannot be decoded is [`Outcome::Undecodable`].
    pub outcome: Outcome,
    /// The message's status afterwards: [`Status::Dead`] after the last allowed failure,
    /// [`Status::Cancelled`] if it was cancelled meanwhile. `None` if the handler has moved the
    /// clock by more than a day and the message has been claimed again.
    pub status: Option<Status>,
}

/// `order-1, delivery 2: Ack, now Acked`.
impl Display for Handled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { id, epoch, outcome, .. } = self;
        write!(f, "{id}, delivery {epoch}: {outcome:?}")?;
        match self.status {
            Some(status) => write!(f, ", now {status:?}"),
            None => f.write_str(", too late"),
        }
    }
}
