//! Messages: what is enqueued, what is delivered, and what can be looked at.

use std::fmt;

use bytes::Bytes;
use xxhash_rust::xxh3::Xxh3;

use crate::limits::{MAX_ATTEMPT_LIMIT, MAX_PAYLOAD_BYTES};
use crate::{Headers, MessageId, Schedule, Timestamp, Violation};

/// How urgent a message is. Among ready messages a higher level always goes first (G12).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Priority {
    /// Before everything else.
    Urgent,
    /// Before normal messages.
    High,
    /// The default.
    #[default]
    Normal,
    /// When there is nothing else to do.
    Low,
}

impl Priority {
    /// All levels, from the one that goes first.
    pub const ALL: [Self; 4] = [Self::Urgent, Self::High, Self::Normal, Self::Low];

    /// The level's place in [`ALL`](Self::ALL): 0 goes first.
    #[must_use]
    pub const fn level(self) -> u8 {
        match self {
            Self::Urgent => 0,
            Self::High => 1,
            Self::Normal => 2,
            Self::Low => 3,
        }
    }

    /// The priority as JSON has it: `urgent`, `high`, `normal` or `low`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Urgent => "urgent",
            Self::High => "high",
            Self::Normal => "normal",
            Self::Low => "low",
        }
    }

    /// The priority at a place in [`ALL`](Self::ALL).
    #[must_use]
    pub fn from_level(level: u8) -> Option<Self> {
        Self::ALL.get(usize::from(level)).copied()
    }
}

/// What an enqueue does when its id belongs to a message that has finished a short while ago.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum FinishedIds {
    /// Nothing: a producer that repeats an enqueue after a lost reply makes no second message,
    /// even if the first has been handled meanwhile (G15). The default.
    #[default]
    Refuse,
    /// Enqueue a new message. For ids that come round again, such as one reminder per shop.
    Reuse,
}

/// A message to be enqueued.
///
/// Its payload is not in its `Debug` output.
#[derive(Clone, PartialEq, Eq)]
pub struct NewMessage {
    /// The id, unique in its queue.
    pub id: MessageId,
    /// The payload, up to [`MAX_PAYLOAD_BYTES`]; it is delivered byte for byte (G2).
    pub payload: Bytes,
    /// Headers, delivered with the payload.
    pub headers: Headers,
    /// How urgent it is once it is due.
    pub priority: Priority,
    /// When it is due. It is never delivered before (G4).
    pub schedule: Schedule,
    /// When it loses its worth: not delivered from then on, but moved to the dead letters with
    /// [`DeathReason::Expired`] and counted.
    pub expires: Option<Schedule>,
    /// With how many failures it goes to the dead letters: 1 to [`MAX_ATTEMPT_LIMIT`].
    pub max_failures: u32,
    /// With how many expired leases it goes to the dead letters: 1 to [`MAX_ATTEMPT_LIMIT`].
    ///
    /// A claim whose reply was lost counts as well: the server cannot tell it from a worker that
    /// died at once. With a limit of 1 a message can die unseen.
    pub max_crashes: u32,
    /// What to do if a message of this id has finished a short while ago.
    pub finished_ids: FinishedIds,
}

impl NewMessage {
    /// Failures allowed by default.
    pub const DEFAULT_MAX_FAILURES: u32 = 20;

    /// Expired leases allowed by default.
    pub const DEFAULT_MAX_CRASHES: u32 = 5;

    /// A message that is due at once, with the default limits and no headers.
    #[must_use]
    pub fn new(id: MessageId, payload: impl Into<Bytes>) -> Self {
        Self {
            id,
            payload: payload.into(),
            headers: Headers::default(),
            priority: Priority::default(),
            schedule: Schedule::NOW,
            expires: None,
            max_failures: Self::DEFAULT_MAX_FAILURES,
            max_crashes: Self::DEFAULT_MAX_CRASHES,
            finished_ids: FinishedIds::default(),
        }
    }

    /// Payload and header bytes, which count towards
    /// [`MAX_BATCH_BYTES`](crate::limits::MAX_BATCH_BYTES).
    #[must_use]
    pub fn content_bytes(&self) -> usize {
        self.payload.len().saturating_add(self.headers.encoded_len())
    }

    /// A 64-bit digest (XXH3) of what makes two messages the same content: priority, limits,
    /// headers and payload; not the schedule and expiry, which a repeated `In` would shift.
    ///
    /// An enqueue of a known id is a `Duplicate` if the digests are equal and a `Conflict` if not.
    #[must_use]
    pub fn digest(&self) -> u64 {
        let mut hasher = Xxh3::new();
        hasher.update(&[self.priority.level()]);
        hasher.update(&self.max_failures.to_be_bytes());
        hasher.update(&self.max_crashes.to_be_bytes());
        let headers = self.headers.encode();
        hasher.update(&u64::try_from(headers.len()).unwrap_or(u64::MAX).to_be_bytes());
        hasher.update(&headers);
        hasher.update(&self.payload);
        hasher.digest()
    }

    /// Checks that payload, headers and limits are within their bounds, as
    /// [`Op::validate`](crate::Op::validate) does for whole operations.
    ///
    /// # Errors
    ///
    /// [`Violation`] names the value and the limit.
    pub fn validate(&self) -> Result<(), Violation> {
        Violation::at_most("the payload", "bytes", self.payload.len(), MAX_PAYLOAD_BYTES)?;
        self.headers.validate()?;
        let most = u64::from(MAX_ATTEMPT_LIMIT);
        Violation::within("max_failures", u64::from(self.max_failures), 1, most)?;
        Violation::within("max_crashes", u64::from(self.max_crashes), 1, most)
    }
}

impl fmt::Debug for NewMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewMessage")
            .field("id", &self.id)
            .field("payload_bytes", &self.payload.len())
            .field("headers", &self.headers)
            .field("priority", &self.priority)
            .field("schedule", &self.schedule)
            .field("expires", &self.expires)
            .field("max_failures", &self.max_failures)
            .field("max_crashes", &self.max_crashes)
            .field("finished_ids", &self.finished_ids)
            .finish()
    }
}

/// A message handed to a worker, with the lease that lets it settle the message.
///
/// Its payload is not in its `Debug` output.
#[derive(Clone, PartialEq, Eq)]
pub struct Delivery {
    /// The message.
    pub message: Message,
    /// The lease's claim id and epoch.
    pub lease: crate::Lease,
}

impl fmt::Debug for Delivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Delivery")
            .field("message", &self.message)
            .field("lease", &self.lease)
            .finish()
    }
}

/// A live message: all there is to know about it.
///
/// Its payload is not in its `Debug` output.
#[derive(Clone, PartialEq, Eq)]
pub struct Message {
    /// Everything but the content.
    pub info: MessageInfo,
    /// Headers.
    pub headers: Headers,
    /// Payload.
    pub payload: Bytes,
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Message")
            .field("info", &self.info)
            .field("headers", &self.headers)
            .finish_non_exhaustive()
    }
}

/// A live message without its content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MessageInfo {
    /// The id.
    pub id: MessageId,
    /// Where it stands.
    pub state: MessageState,
    /// How urgent it is.
    pub priority: Priority,
    /// Its place in the order of all messages ever enqueued in this queue, from 1. Messages of
    /// one priority and one due instant are delivered in this order (G12).
    pub sequence: u64,
    /// When it was enqueued, by the server's clock.
    pub enqueued_at: Timestamp,
    /// When it is, or was, due.
    pub due: Timestamp,
    /// When it loses its worth.
    pub expires_at: Option<Timestamp>,
    /// How often it has been claimed. Never falls, not even by a redrive.
    pub epoch: u64,
    /// How often a handler has failed, since it was enqueued or redriven.
    pub failures: u32,
    /// How often a lease has run out, since it was enqueued or redriven.
    pub crashes: u32,
    /// With how many failures it goes to the dead letters.
    pub max_failures: u32,
    /// With how many expired leases it goes to the dead letters.
    pub max_crashes: u32,
    /// Length of the payload, in bytes.
    pub payload_bytes: usize,
    /// What the first failure said.
    pub first_error: Option<String>,
    /// What the latest failure said.
    pub last_error: Option<String>,
}

/// Where a live message stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MessageState {
    /// Waiting for its due instant, the first or the one of a retry.
    Scheduled,
    /// Due, and waiting for a worker.
    Ready,
    /// With a worker.
    Leased {
        /// When the lease runs out, unless it is extended. A lease that has run out still counts
        /// until a claim takes it back (G7).
        deadline: Timestamp,
        /// Somebody wants it cancelled: whatever ends this lease, except an ack, ends the message.
        cancel_requested: bool,
    },
    /// A dead letter.
    Dead {
        /// Why.
        reason: DeathReason,
        /// Since when.
        since: Timestamp,
    },
}

impl MessageState {
    /// The state without its details.
    #[must_use]
    pub const fn status(self) -> Status {
        match self {
            Self::Scheduled => Status::Scheduled,
            Self::Ready => Status::Ready,
            Self::Leased { .. } => Status::Leased,
            Self::Dead { .. } => Status::Dead,
        }
    }
}

/// Why a message is a dead letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DeathReason {
    /// It failed `max_failures` times.
    MaxFailures,
    /// Its lease ran out `max_crashes` times.
    MaxCrashes,
    /// A handler rejected it.
    Rejected,
    /// It was not delivered before it expired.
    Expired,
    /// Its record has vanished from the server, or what is stored about it cannot be read.
    ///
    /// If the record is whole, a redrive revives the message, and it is a message like any other
    /// again; its epoch and its errors may be lost. Otherwise only the id is left, and the redrive
    /// answers [`Redriven::Unreadable`](crate::Redriven::Unreadable).
    Unreadable,
}

impl DeathReason {
    /// The reason as JSON and metric labels have it: `max_failures`, `max_crashes`, `rejected`,
    /// `expired` or `unreadable`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::MaxFailures => "max_failures",
            Self::MaxCrashes => "max_crashes",
            Self::Rejected => "rejected",
            Self::Expired => "expired",
            Self::Unreadable => "unreadable",
        }
    }
}

/// Every state of a message, the finished ones included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Status {
    /// Waiting for its due instant.
    Scheduled,
    /// Due, and waiting for a worker.
    Ready,
    /// With a worker.
    Leased,
    /// A dead letter.
    Dead,
    /// Finished: handled and acked.
    Acked,
    /// Finished: cancelled.
    Cancelled,
    /// Finished: purged from the dead letters.
    Purged,
}

impl Status {
    /// All states.
    pub const ALL: [Self; 7] = [
        Self::Scheduled,
        Self::Ready,
        Self::Leased,
        Self::Dead,
        Self::Acked,
        Self::Cancelled,
        Self::Purged,
    ];

    /// The state as JSON has it: `scheduled`, `ready` and so on.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Scheduled => "scheduled",
            Self::Ready => "ready",
            Self::Leased => "leased",
            Self::Dead => "dead",
            Self::Acked => "acked",
            Self::Cancelled => "cancelled",
            Self::Purged => "purged",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{At, ClaimId, Lease, Op, Reply, State};

    #[test]
    fn every_level_has_its_priority() {
        for (level, priority) in (0..).zip(Priority::ALL) {
            assert_eq!(priority.level(), level);
            assert_eq!(Priority::from_level(level), Some(priority));
        }
        assert_eq!(Priority::from_level(4), None);
    }

    #[test]
    fn payloads_are_not_in_debug_output() {
        let message = NewMessage::new(MessageId::new("order-1").unwrap(), "hunter2");
        let mut state = State::new();
        state.apply(Timestamp::MIN, &Op::Enqueue(vec![message.clone()]));
        let Reply::Get(found) =
            state.apply(Timestamp::MIN, &Op::Get(vec![message.id.clone()])).reply
        else {
            panic!("not the reply to a get")
        };
        let [crate::Found::Live(stored)] = &found[..] else { panic!("{found:?}") };
        let lease = Lease { claim_id: ClaimId::from_bytes([7; 16]), epoch: 1 };
        let delivery = Delivery { message: (**stored).clone(), lease };
        let shown = [
            format!("{message:?}"),
            format!("{stored:?}"),
            format!("{delivery:?}"),
            format!("{:?} {:?}", At::Server, Op::Enqueue(vec![message])),
        ];
        for text in shown {
            assert!(!text.contains("hunter2"), "{text}");
            assert!(text.contains("order-1") && text.contains("payload_bytes: 7"), "{text}");
        }
        assert!(format!("{delivery:?}").contains("epoch: 1"));
    }
}
