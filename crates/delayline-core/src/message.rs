//! Messages: as enqueued, as delivered, and as shown by lookups.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use xxhash_rust::xxh3::Xxh3;

use crate::limits::{MAX_ATTEMPT_LIMIT, MAX_PAYLOAD_BYTES, MAX_THROTTLE_MS};
use crate::{
    Attempt, Group, Headers, Known, MessageId, MessageState, Millis, ProcessId, Progress, Schedule,
    Timestamp, Violation,
};

/// The priority of a message. Among ready messages, a higher priority always comes first (G12).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "snake_case", deny_unknown_fields)
)]
pub enum Priority {
    /// Before everything else.
    Urgent,
    /// Before normal messages.
    High,
    /// The default.
    #[default]
    Normal,
    /// After all other messages.
    Low,
}

impl Priority {
    /// All priorities, the most urgent first.
    pub const ALL: [Self; 4] = [Self::Urgent, Self::High, Self::Normal, Self::Low];

    /// Returns the index of the priority in [`ALL`](Self::ALL): 0 goes first.
    #[must_use]
    pub const fn level(self) -> u8 {
        match self {
            Self::Urgent => 0,
            Self::High => 1,
            Self::Normal => 2,
            Self::Low => 3,
        }
    }

    /// Returns the name used in JSON: `urgent`, `high`, `normal` or `low`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Urgent => "urgent",
            Self::High => "high",
            Self::Normal => "normal",
            Self::Low => "low",
        }
    }

    /// Returns the priority at an index of [`ALL`](Self::ALL), if there is one.
    #[must_use]
    pub fn from_level(level: u8) -> Option<Self> {
        Self::ALL.get(usize::from(level)).copied()
    }
}

/// The effect of an enqueue whose id belongs to a recently finished message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "snake_case", deny_unknown_fields)
)]
pub enum FinishedIds {
    /// Creates nothing: a producer that repeats an enqueue after a lost reply creates no second
    /// message, even if the first has finished in the meantime (G15). The default.
    #[default]
    Refuse,
    /// Creates a new message. For ids that recur, such as one reminder per shop.
    Reuse,
}

/// A message to enqueue.
///
/// Its `Debug` output omits the payload.
#[derive(Clone, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(deny_unknown_fields)
)]
#[non_exhaustive]
pub struct NewMessage {
    /// The id, unique within the queue.
    pub id: MessageId,
    /// The payload, at most [`MAX_PAYLOAD_BYTES`]; delivered byte for byte (G2).
    #[cfg_attr(
        feature = "serde",
        serde(default, with = "crate::form::bytes", skip_serializing_if = "Bytes::is_empty")
    )]
    pub payload: Bytes,
    /// The headers, delivered with the payload.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "crate::form::is_default"))]
    pub headers: Headers,
    /// The group of the message: groups with due messages take turns (G35). A message with a group
    /// has normal priority.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub group: Option<Group>,
    /// The priority of the message once it is due.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "crate::form::is_default"))]
    pub priority: Priority,
    /// When the message is due. It is never delivered earlier (G4).
    #[cfg_attr(
        feature = "serde",
        serde(default = "crate::form::now", skip_serializing_if = "crate::form::is_now")
    )]
    pub schedule: Schedule,
    /// When the message expires. From then on it is no longer delivered, but becomes a dead letter
    /// with [`DeathReason::Expired`](crate::DeathReason::Expired) and is counted.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub expires: Option<Schedule>,
    /// Failures after which it becomes a dead letter: 1 to [`MAX_ATTEMPT_LIMIT`].
    #[cfg_attr(
        feature = "serde",
        serde(
            default = "crate::form::max_failures",
            skip_serializing_if = "crate::form::is_max_failures"
        )
    )]
    pub max_failures: u32,
    /// Expired leases after which it becomes a dead letter: 1 to [`MAX_ATTEMPT_LIMIT`].
    ///
    /// A claim whose reply was lost also counts: the server cannot tell it from a worker that died
    /// at once. With a limit of 1, a message can die without ever reaching a worker.
    #[cfg_attr(
        feature = "serde",
        serde(
            default = "crate::form::max_crashes",
            skip_serializing_if = "crate::form::is_max_crashes"
        )
    )]
    pub max_crashes: u32,
    /// The effect if a message with this id finished recently.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "crate::form::is_default"))]
    pub finished_ids: FinishedIds,
    /// The effect if a message with this id is in the queue.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "crate::form::is_default"))]
    pub known: Known,
    /// Throttles the id: once this message has been created, no other message with `throttle` is
    /// created under its id during this time, even if the first one ends. Range: 1 to
    /// [`MAX_THROTTLE_MS`]. See [`Enqueued::Throttled`](crate::Enqueued::Throttled). With
    /// [`Known::Update`], this limits only the creation of a message: an update of a message that
    /// is in the queue is never throttled, and begins no window.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub throttle: Option<Millis>,
}

impl NewMessage {
    /// The default of `max_failures`.
    pub const DEFAULT_MAX_FAILURES: u32 = 20;

    /// The default of `max_crashes`.
    pub const DEFAULT_MAX_CRASHES: u32 = 5;

    /// Creates a message that is due at once, with the default limits, no headers and no group.
    #[must_use]
    pub fn new(id: MessageId, payload: impl Into<Bytes>) -> Self {
        Self {
            id,
            payload: payload.into(),
            headers: Headers::default(),
            group: None,
            priority: Priority::default(),
            schedule: Schedule::NOW,
            expires: None,
            max_failures: Self::DEFAULT_MAX_FAILURES,
            max_crashes: Self::DEFAULT_MAX_CRASHES,
            finished_ids: FinishedIds::default(),
            known: Known::default(),
            throttle: None,
        }
    }

    /// Replaces the payload.
    #[must_use]
    pub fn payload(mut self, payload: impl Into<Bytes>) -> Self {
        self.payload = payload.into();
        self
    }

    /// Sets the headers.
    #[must_use]
    pub fn headers(mut self, headers: Headers) -> Self {
        self.headers = headers;
        self
    }

    /// Sets the group of the message; `None` for none.
    #[must_use]
    pub fn group(mut self, group: impl Into<Option<Group>>) -> Self {
        self.group = group.into();
        self
    }

    /// Sets the priority of the message.
    #[must_use]
    pub const fn priority(mut self, priority: Priority) -> Self {
        self.priority = priority;
        self
    }

    /// Sets when the message is due.
    #[must_use]
    pub const fn schedule(mut self, schedule: Schedule) -> Self {
        self.schedule = schedule;
        self
    }

    /// Sets when the message expires; `None` for never.
    #[must_use]
    pub fn expires(mut self, expires: impl Into<Option<Schedule>>) -> Self {
        self.expires = expires.into();
        self
    }

    /// Sets the number of failures after which it becomes a dead letter: 1 to
    /// [`MAX_ATTEMPT_LIMIT`].
    #[must_use]
    pub const fn max_failures(mut self, failures: u32) -> Self {
        self.max_failures = failures;
        self
    }

    /// Sets the number of expired leases after which it becomes a dead letter: 1 to
    /// [`MAX_ATTEMPT_LIMIT`].
    #[must_use]
    pub const fn max_crashes(mut self, crashes: u32) -> Self {
        self.max_crashes = crashes;
        self
    }

    /// Sets the effect if a message with this id finished recently.
    #[must_use]
    pub const fn finished_ids(mut self, finished_ids: FinishedIds) -> Self {
        self.finished_ids = finished_ids;
        self
    }

    /// Sets the effect if a message with this id is in the queue.
    #[must_use]
    pub const fn known(mut self, known: Known) -> Self {
        self.known = known;
        self
    }

    /// Sets how long the id is throttled once the message is created; `None` disables it.
    #[must_use]
    pub fn throttle(mut self, window: impl Into<Option<Millis>>) -> Self {
        self.throttle = window.into();
        self
    }

    /// Returns the number of payload and header bytes, which count towards
    /// [`MAX_BATCH_BYTES`](crate::limits::MAX_BATCH_BYTES).
    #[must_use]
    pub fn content_bytes(&self) -> usize {
        self.payload.len().saturating_add(self.headers.encoded_len())
    }

    /// Returns a 64-bit digest (XXH3) of the content: group, priority, limits, headers and payload.
    /// The schedule and the expiry do not count, since a repeated `In` would shift them. Neither do
    /// the headers [`TRACEPARENT`](Headers::TRACEPARENT) and [`TRACESTATE`](Headers::TRACESTATE),
    /// since a send may be repeated in another trace, and [`WAITS_SINCE`](Headers::WAITS_SINCE),
    /// which only a moved message has.
    ///
    /// Enqueuing a known id returns `Duplicate` if the digests are equal, else `Conflict`.
    #[must_use]
    pub fn digest(&self) -> u64 {
        let mut hasher = Xxh3::new();
        if let Some(group) = &self.group {
            hasher.update(&[Group::LEVEL]);
            hasher.update(&u64::try_from(group.as_str().len()).unwrap_or(u64::MAX).to_be_bytes());
            hasher.update(group.as_str().as_bytes());
        } else {
            hasher.update(&[self.priority.level()]);
        }
        hasher.update(&self.max_failures.to_be_bytes());
        hasher.update(&self.max_crashes.to_be_bytes());
        let headers = self.headers.encode_content();
        hasher.update(&u64::try_from(headers.len()).unwrap_or(u64::MAX).to_be_bytes());
        hasher.update(&headers);
        hasher.update(&self.payload);
        hasher.digest()
    }

    /// Checks that payload, headers and limits are in bounds.
    pub(crate) fn validate_limits(&self) -> Result<(), Violation> {
        Violation::at_most("the payload", "bytes", self.payload.len(), MAX_PAYLOAD_BYTES)?;
        self.headers.validate()?;
        let most = u64::from(MAX_ATTEMPT_LIMIT);
        Violation::within("max_failures", u64::from(self.max_failures), 1, most)?;
        Violation::within("max_crashes", u64::from(self.max_crashes), 1, most)?;
        if self.group.is_some() && self.priority != Priority::Normal {
            return Err(Violation::Malformed {
                what: "the priority",
                value: self.priority.name().to_owned(),
                reason: "a message with a group has normal priority".to_owned(),
            });
        }
        if let Some(window) = self.throttle {
            Violation::within("throttle in ms", window.as_ms(), 1, MAX_THROTTLE_MS)?;
        }
        match self.known {
            Known::Refuse => Ok(()),
            Known::Update(update) => update.validate(self.content_bytes()),
        }
    }
}

impl fmt::Debug for NewMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewMessage")
            .field("id", &self.id)
            .field("payload_bytes", &self.payload.len())
            .field("headers", &self.headers)
            .field("group", &self.group)
            .field("priority", &self.priority)
            .field("schedule", &self.schedule)
            .field("expires", &self.expires)
            .field("max_failures", &self.max_failures)
            .field("max_crashes", &self.max_crashes)
            .field("finished_ids", &self.finished_ids)
            .field("known", &self.known)
            .field("throttle", &self.throttle)
            .finish()
    }
}

/// A message delivered to a worker, with the lease needed to settle it.
///
/// Its `Debug` output omits the payload.
#[derive(Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct Delivery {
    /// The message.
    pub message: Message,
    /// The lease: claim id and epoch.
    pub lease: crate::Lease,
}

impl Delivery {
    /// A message and the lease on it.
    #[must_use]
    pub const fn new(message: Message, lease: crate::Lease) -> Self {
        Self { message, lease }
    }

    /// Returns how long after its due instant the message was claimed at `at`; zero if it was not
    /// late.
    #[must_use]
    pub fn lateness(&self, at: Timestamp) -> Duration {
        at.since(self.message.info.due)
    }
}

impl fmt::Debug for Delivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Delivery")
            .field("message", &self.message)
            .field("lease", &self.lease)
            .finish()
    }
}

/// A live message with its content.
///
/// Its `Debug` output omits the payload.
#[derive(Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct Message {
    /// The metadata of the message.
    pub info: MessageInfo,
    /// The headers.
    pub headers: Headers,
    /// The payload.
    #[cfg_attr(feature = "serde", serde(with = "crate::form::bytes"))]
    pub payload: Bytes,
    /// The update that will replace this message when its lease ends, if there is one. Only
    /// [`Op::Get`](crate::Op::Get) returns it.
    pub follower: Option<Follower>,
    /// The latest attempts that did not succeed, oldest first: at most
    /// [`MAX_ATTEMPTS`](crate::limits::MAX_ATTEMPTS). A redrive keeps them. Snoozes and releases do
    /// not count. Only [`Op::Get`](crate::Op::Get) shows them.
    #[cfg_attr(feature = "serde", serde(default))]
    pub attempts: Vec<Attempt>,
    /// The checkpoint that its handlers have saved (G40). It is content, as the payload is.
    #[cfg_attr(feature = "serde", serde(default, with = "crate::form::optional_bytes"))]
    pub checkpoint: Option<Bytes>,
    /// If the message is ready, in a queue in order: the message of its group that must end before
    /// (G37), if one is known. Only [`Op::Get`](crate::Op::Get) returns it.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub behind: Option<MessageId>,
    /// If the message is ready, and its group is held: the end of the hold (G38). Only
    /// [`Op::Get`](crate::Op::Get) returns it.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub group_held_until: Option<Timestamp>,
}

impl Message {
    /// A message without headers, follower, attempts and checkpoint.
    #[must_use]
    pub fn new(info: MessageInfo, payload: Bytes) -> Self {
        Self {
            info,
            headers: Headers::default(),
            payload,
            follower: None,
            attempts: Vec::new(),
            checkpoint: None,
            behind: None,
            group_held_until: None,
        }
    }
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Message")
            .field("info", &self.info)
            .field("headers", &self.headers)
            .field("follower", &self.follower)
            .field("attempts", &self.attempts)
            .field("behind", &self.behind)
            .field("group_held_until", &self.group_held_until)
            .finish_non_exhaustive()
    }
}

/// A follower: an update that replaces a leased message when the lease ends. It has no sequence
/// number until then.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct Follower {
    /// When its first update was enqueued.
    pub enqueued_at: Timestamp,
    /// When it is due, unless the lease ends later: then it is due at once.
    pub due: Timestamp,
    /// When it expires.
    pub expires_at: Option<Timestamp>,
    /// Its group.
    #[cfg_attr(feature = "serde", serde(default))]
    pub group: Option<Group>,
    /// Its priority.
    pub priority: Priority,
    /// Length of its payload, in bytes.
    pub payload_bytes: usize,
}

impl Follower {
    /// A follower of normal priority, without an expiry and with an empty payload.
    #[must_use]
    pub fn new(enqueued_at: Timestamp, due: Timestamp) -> Self {
        let priority = Priority::default();
        Self { enqueued_at, due, expires_at: None, group: None, priority, payload_bytes: 0 }
    }
}

/// A live message without its content.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct MessageInfo {
    /// The id.
    pub id: MessageId,
    /// The current state.
    pub state: MessageState,
    /// The group of the message.
    #[cfg_attr(feature = "serde", serde(default))]
    pub group: Option<Group>,
    /// The priority of the message.
    pub priority: Priority,
    /// Its position among all messages ever enqueued in this queue, starting at 1. Messages with
    /// the same priority and due time are delivered in this order (G12).
    pub sequence: u64,
    /// When the message was enqueued, by the server's clock.
    pub enqueued_at: Timestamp,
    /// When the message is, or was, due.
    pub due: Timestamp,
    /// When the message expires.
    pub expires_at: Option<Timestamp>,
    /// The number of claims. A redrive keeps it. It decreases only if the server loses claims, in a
    /// failover or a crash.
    pub epoch: u64,
    /// The number of failures since the message was enqueued or redriven.
    pub failures: u32,
    /// The number of expired leases since the message was enqueued or redriven.
    pub crashes: u32,
    /// Failures after which it becomes a dead letter.
    pub max_failures: u32,
    /// Expired leases after which it becomes a dead letter.
    pub max_crashes: u32,
    /// Length of the payload, in bytes.
    pub payload_bytes: usize,
    /// The error text of the first failure.
    pub first_error: Option<String>,
    /// The error text of the latest failure.
    pub last_error: Option<String>,
    /// The process that holds the message. `None` unless it is leased, or if the backend does not
    /// report it.
    #[cfg_attr(feature = "serde", serde(default))]
    pub holder: Option<ProcessId>,
    /// The progress that its handlers have saved (G40).
    #[cfg_attr(feature = "serde", serde(default))]
    pub progress: Option<Progress>,
}

impl MessageInfo {
    /// A message that was never claimed, with the default limits, normal priority and an empty
    /// payload.
    #[must_use]
    pub fn new(
        id: MessageId,
        state: MessageState,
        sequence: u64,
        enqueued_at: Timestamp,
        due: Timestamp,
    ) -> Self {
        Self {
            id,
            state,
            group: None,
            priority: Priority::default(),
            sequence,
            enqueued_at,
            due,
            expires_at: None,
            epoch: 0,
            failures: 0,
            crashes: 0,
            max_failures: NewMessage::DEFAULT_MAX_FAILURES,
            max_crashes: NewMessage::DEFAULT_MAX_CRASHES,
            payload_bytes: 0,
            first_error: None,
            last_error: None,
            holder: None,
            progress: None,
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
