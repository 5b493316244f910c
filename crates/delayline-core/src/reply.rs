//! The results of operations.
//!
//! Every expected outcome is a value here; [`Error`](crate::Error) is for transport and server
//! faults.

use crate::{
    Completion, DeathReason, Delivery, History, Limits, Message, MessageId, MessageInfo, Millis,
    Position, Status, Timestamp, Totals,
};

/// The result of an operation. Variants are named after the operation; batches are answered item by
/// item, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "snake_case")
)]
#[non_exhaustive]
pub enum Reply {
    /// To [`Op::Enqueue`](crate::Op::Enqueue).
    Enqueue(Vec<Enqueued>),
    /// To [`Op::Claim`](crate::Op::Claim).
    Claim(Claimed),
    /// To [`Op::Relay`](crate::Op::Relay).
    Relay(Relayed),
    /// To [`Op::Settle`](crate::Op::Settle).
    Settle(Vec<Settled>),
    /// To [`Op::HandOff`](crate::Op::HandOff).
    HandOff(Vec<HandedOff>),
    /// To [`Op::Extend`](crate::Op::Extend).
    Extend(Vec<Extended>),
    /// To [`Op::Cancel`](crate::Op::Cancel).
    Cancel(Vec<Cancelled>),
    /// To [`Op::Reschedule`](crate::Op::Reschedule).
    Reschedule(Vec<Rescheduled>),
    /// To [`Op::Redrive`](crate::Op::Redrive).
    Redrive(Vec<Redriven>),
    /// To [`Op::Purge`](crate::Op::Purge).
    Purge(Vec<Purged>),
    /// To [`Op::Pause`](crate::Op::Pause): whether the queue was running before.
    Pause {
        /// Whether this operation paused it.
        changed: bool,
    },
    /// To [`Op::Resume`](crate::Op::Resume): whether the queue was paused before.
    Resume {
        /// Whether this operation resumed it.
        changed: bool,
    },
    /// To [`Op::SetLimits`](crate::Op::SetLimits).
    SetLimits {
        /// Whether this operation changed a limit.
        changed: bool,
    },
    /// To [`Op::Get`](crate::Op::Get).
    Get(Vec<Found>),
    /// To [`Op::Progress`](crate::Op::Progress): one per id, in order, possibly without the last
    /// ones.
    Progress(Vec<Completion>),
    /// To [`Op::List`](crate::Op::List).
    List(Page),
    /// To [`Op::Stats`](crate::Op::Stats).
    Stats(Box<Stats>),
    /// To [`Op::Forecast`](crate::Op::Forecast).
    Forecast(Forecast),
    /// To [`Op::History`](crate::Op::History).
    History(History),
    /// To [`Op::Check`](crate::Op::Check).
    Check(Checked),
    /// To [`Op::Repair`](crate::Op::Repair): the problems that were found and repaired.
    Repair(Checked),
}

/// The result of enqueuing one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "snake_case")
)]
#[non_exhaustive]
pub enum Enqueued {
    /// A new message was created.
    Created {
        /// When the message is due.
        due: Timestamp,
    },
    /// The message with this id, which was waiting or dead, has been updated, revived or replaced.
    Updated {
        /// The new due time.
        due: Timestamp,
    },
    /// A worker holds the message with this id. The update takes its place when the lease ends in
    /// any way.
    Following {
        /// Whether an earlier follower was updated; there is at most one.
        replaced: bool,
    },
    /// The queue knows this id with the same content; nothing changed (G15). Or the token of an
    /// update was known, the id of an update has finished, or an update changed neither content nor
    /// due time.
    Duplicate {
        /// The status of the known message.
        status: Status,
    },
    /// The queue knows this id with different content; nothing changed (G15).
    Conflict {
        /// The status of the known message.
        status: Status,
    },
    /// A message with this id was created less than its [`throttle`](crate::NewMessage::throttle)
    /// ago; nothing changed. A repeated enqueue returns this too if its own message has finished.
    Throttled {
        /// The end of the window.
        until: Timestamp,
    },
    /// The message has a [`throttle`](crate::NewMessage::throttle), but
    /// [`MAX_THROTTLED_IDS`](crate::limits::MAX_THROTTLED_IDS) ids of the queue are already
    /// throttled; nothing changed.
    TooManyThrottled,
}

impl Enqueued {
    /// Returns the name used in logs and metrics: `created`, `updated`, `following`, `duplicate`,
    /// `conflict`, `throttled` or `too_many_throttled`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Created { .. } => "created",
            Self::Updated { .. } => "updated",
            Self::Following { .. } => "following",
            Self::Duplicate { .. } => "duplicate",
            Self::Conflict { .. } => "conflict",
            Self::Throttled { .. } => "throttled",
            Self::TooManyThrottled => "too_many_throttled",
        }
    }
}

/// The leases of one claim, and when to claim again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct Claimed {
    /// The leased messages, in delivery order.
    pub deliveries: Vec<Delivery>,
    /// Whether more messages can be claimed at once.
    pub more: bool,
    /// The earliest instant at which there will be something to claim, unless a new message comes:
    /// a due time or the end of a lease. `None` if there is none, or while paused.
    pub next: Option<Timestamp>,
    /// Whether as many messages are leased as the queue allows, so that the end of a lease may let
    /// the next one be claimed. `false` while paused.
    #[cfg_attr(feature = "serde", serde(default))]
    pub capped: bool,
    /// Whether more messages with a group are due than one claim moves to the lanes of their groups
    /// ([`MAX_LOOK_AHEAD`](crate::limits::MAX_LOOK_AHEAD)), so that others may be hidden behind them
    /// (G35). Workers claim again at once, for no messages if they have no room.
    #[cfg_attr(feature = "serde", serde(default))]
    pub unsorted: bool,
    /// The messages that this claim made dead letters, in order of death. A repeated claim does not
    /// report them again (G16).
    pub deaths: Vec<Death>,
}

/// The messages that a relay has moved, and when to relay again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct Relayed {
    /// The moved messages, in the order of their elements.
    pub ids: Vec<MessageId>,
    /// Whether more messages can be moved at once.
    pub more: bool,
    /// Whether due messages stay in the queue because the destination is full. No hint announces
    /// that it has room again: retry now and then.
    pub held_back: bool,
    /// Whether the queue limits leases. While as many messages are leased as may be, hints announce
    /// none that only a relay could move: poll often. `false` while paused.
    #[cfg_attr(feature = "serde", serde(default))]
    pub leases_limited: bool,
    /// The earliest instant at which there will be something to move, unless a new message comes:
    /// a due time or the end of a lease. `None` if there is none, or while paused.
    pub next: Option<Timestamp>,
    /// The messages that this relay made dead letters, in order of death.
    pub deaths: Vec<Death>,
}

/// A message that a claim or relay made a dead letter: expired, unreadable, or with its last
/// allowed lease expired.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct Death {
    /// The message.
    pub id: MessageId,
    /// Why it died.
    pub reason: DeathReason,
}

impl Death {
    /// The death of a message.
    #[must_use]
    pub const fn new(id: MessageId, reason: DeathReason) -> Self {
        Self { id, reason }
    }
}

/// The result of one settlement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "snake_case")
)]
#[non_exhaustive]
pub enum Settled {
    /// The lease has ended.
    Done {
        /// The new status of the message. After any outcome but an ack, it is [`Status::Cancelled`]
        /// if a cancel was requested. It is [`Status::Replaced`] if an update followed the message
        /// and has now taken its place.
        status: Status,
    },
    /// This lease was already ended by the same kind of outcome; nothing changed (G8). The reply to
    /// that settlement was lost, or nothing waited for it.
    AlreadyDone {
        /// How that settlement ended the message: [`Status::Acked`], [`Status::Cancelled`],
        /// [`Status::Replaced`] or [`Status::Dead`]. This is still its status, unless an update has
        /// replaced it since. `None` if the settlement returned the message to the queue, where it
        /// still is.
        ended: Option<Status>,
    },
    /// The lease is not, or is no longer, the current one; nothing changed (G6). An earlier attempt
    /// of this settlement may have returned the message to the queue, if it has been claimed since.
    Stale,
    /// The message does not exist; nothing changed. As with `Stale`, an earlier attempt may have
    /// returned it to the queue.
    Missing,
}

/// The result of one hand-off.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct HandedOff {
    /// The result of the settlement.
    pub settled: Settled,
    /// The result for each message, in order, if the settlement is [`Settled::Done`]; empty
    /// otherwise. With [`Settled::AlreadyDone`], they were sent by the earlier attempt. A message
    /// whose id is known is a duplicate or a conflict, and the settlement is still done.
    pub messages: Vec<Enqueued>,
    /// Whether the queue keeps the result of this lease. `false` if there was none, if the
    /// settlement did not ack the message, or if the queue's results would be too large. Then the
    /// message is still acked.
    pub result_kept: bool,
}

impl HandedOff {
    /// The result of a settlement, and of each message if the settlement is done.
    #[must_use]
    pub const fn new(settled: Settled, messages: Vec<Enqueued>) -> Self {
        Self { settled, messages, result_kept: false }
    }

    /// Sets whether the result is kept.
    #[must_use]
    pub const fn with_result_kept(mut self, result_kept: bool) -> Self {
        self.result_kept = result_kept;
        self
    }
}

/// The result of a settlement without messages or a result.
impl From<Settled> for HandedOff {
    fn from(settled: Settled) -> Self {
        Self::new(settled, Vec::new())
    }
}

/// The result of extending one lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "snake_case")
)]
#[non_exhaustive]
pub enum Extended {
    /// The lease was extended.
    Done {
        /// The new deadline.
        deadline: Timestamp,
        /// Whether a cancel was requested (G13).
        cancel_requested: bool,
    },
    /// The lease is not, or is no longer, the current one; nothing changed (G6).
    Stale,
    /// There is no such message; nothing changed.
    Missing,
}

/// The result of one cancel (G13).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "snake_case")
)]
#[non_exhaustive]
pub enum Cancelled {
    /// The message is cancelled and will not be delivered, even if it was cancelled earlier.
    Cancelled,
    /// A worker holds it. The worker learns of the request when it next extends the lease: at once,
    /// within a third of the lease, or within its own bound. Unless it acks, the message is
    /// finished when the lease ends. A follower is dropped.
    InFlight,
    /// There is no such message.
    NotFound,
}

impl Cancelled {
    /// Returns the name used in JSON: `cancelled`, `in_flight` or `not_found`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cancelled => "cancelled",
            Self::InFlight => "in_flight",
            Self::NotFound => "not_found",
        }
    }
}

/// The result of one reschedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "snake_case")
)]
#[non_exhaustive]
pub enum Rescheduled {
    /// The message has a new due time.
    Done {
        /// The new due time.
        due: Timestamp,
    },
    /// A worker holds it; nothing changed.
    InFlight,
    /// It is a dead letter; nothing changed. [`Op::Redrive`](crate::Op::Redrive) revives it.
    Dead,
    /// There is no such message.
    NotFound,
}

impl Rescheduled {
    /// Returns the name used in JSON: `rescheduled`, `in_flight`, `dead` or `not_found`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Done { .. } => "rescheduled",
            Self::InFlight => "in_flight",
            Self::Dead => "dead",
            Self::NotFound => "not_found",
        }
    }
}

/// The result of one redrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "snake_case")
)]
#[non_exhaustive]
pub enum Redriven {
    /// The message is live again.
    Done {
        /// When the message is due.
        due: Timestamp,
    },
    /// It is not a dead letter; nothing changed.
    NotDead,
    /// Its record is lost or unreadable, so there is nothing to deliver; nothing changed.
    Unreadable,
    /// There is no such message.
    NotFound,
}

impl Redriven {
    /// Returns the name used in JSON: `redriven`, `not_dead`, `unreadable` or `not_found`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Done { .. } => "redriven",
            Self::NotDead => "not_dead",
            Self::Unreadable => "unreadable",
            Self::NotFound => "not_found",
        }
    }
}

/// The result of one purge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "snake_case")
)]
#[non_exhaustive]
pub enum Purged {
    /// The message is deleted, now or earlier.
    Purged,
    /// It is not a dead letter; nothing changed.
    NotDead,
    /// There is no such message.
    NotFound,
}

impl Purged {
    /// Returns the name used in JSON: `purged`, `not_dead` or `not_found`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Purged => "purged",
            Self::NotDead => "not_dead",
            Self::NotFound => "not_found",
        }
    }
}

/// The result of looking up one id.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "snake_case")
)]
#[non_exhaustive]
pub enum Found {
    /// A live message.
    Live(Box<Message>),
    /// A message that finished recently: [`Status::Acked`], [`Status::Cancelled`],
    /// [`Status::Purged`] or [`Status::Relayed`]. (A replaced message does not count: another one
    /// has its id.)
    Finished(Status),
    /// A message whose record is damaged. The next claim that encounters it makes it a dead letter.
    Unreadable,
    /// The id is not known.
    Unknown,
}

/// A page of messages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct Page {
    /// The messages, in order.
    pub messages: Vec<MessageInfo>,
    /// Where the next page starts; `None` after the last page.
    pub next: Option<Position>,
}

/// The counters of a queue (G22).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct Stats {
    /// Messages that are not due yet.
    pub scheduled: u64,
    /// Messages that are due and wait for a worker.
    pub ready: u64,
    /// Messages with a worker, including those whose expired lease has not been reclaimed yet.
    pub leased: u64,
    /// Dead letters.
    pub dead: u64,
    /// Whether the queue is paused.
    pub paused: bool,
    /// The limits on its deliveries.
    pub limits: Limits,
    /// The earliest due time among scheduled and ready messages. Of groups that wait, only the
    /// first messages of [`MAX_OLDEST_LANES`](crate::limits::MAX_OLDEST_LANES) count, beginning
    /// with those whose turn is next.
    pub earliest_due: Option<Timestamp>,
    /// Groups that wait: for their turn, for a slot, or for the end of a hold (G35 to G38). 0 while
    /// workers keep up with a queue without limits of groups. A group whose messages were all
    /// cancelled counts until a claim passes over it, and a held one until its hold ends.
    #[cfg_attr(feature = "serde", serde(default))]
    pub waiting_groups: u64,
    /// How unevenly the shards of a queue are delivered: how much longer the oldest unclaimed
    /// message of the slowest shard has been due than that of the fastest, where a shard without
    /// due messages counts as 0. `None` for a queue without shards.
    #[cfg_attr(feature = "serde", serde(default))]
    pub shard_skew: Option<Millis>,
    /// The number of events of each kind so far.
    pub totals: Totals,
}

/// The waiting messages of a queue, counted by due time (G22).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct Forecast {
    /// Messages that are due and wait for a worker.
    pub ready: u64,
    /// For each delay, the messages that are due within it but not within the previous one.
    pub due: Vec<u64>,
    /// Messages that are due after the longest delay.
    pub later: u64,
}

/// A page of the audit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct Checked {
    /// The number of messages that this page examined.
    pub examined: u64,
    /// The problems found; empty if nothing is wrong.
    pub findings: Vec<Finding>,
    /// Where the next page starts; `None` after the last page.
    pub next: Option<Position>,
}

/// A problem that an audit found.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "snake_case")
)]
#[non_exhaustive]
pub enum Finding {
    /// An index entry that no version of this library has written.
    MalformedEntry {
        /// The index that contains it, as in [`Position::index`].
        index: u8,
    },
    /// An id in an index, without a readable record.
    MissingRecord {
        /// The id.
        id: MessageId,
    },
    /// An id whose record belongs to another entry or another priority.
    WrongRecord {
        /// The id.
        id: MessageId,
    },
    /// A message whose details contradict its place in the index, or a leased or dead one without
    /// details.
    MissingDetails {
        /// The id.
        id: MessageId,
    },
    /// Data about an id that has no message: details, content or a follower without a record, or a
    /// record that is not in the index. Or a follower of a message that no worker holds, or one
    /// that has already taken its place. An audit reports only the number of such records, a repair
    /// their ids.
    Orphan {
        /// The id.
        id: MessageId,
    },
    /// A message whose group has no turn, so that no claim would deliver it, or that holds a slot
    /// of its group in vain.
    MissingTurn {
        /// The id.
        id: MessageId,
    },
    /// Records without an index entry, or vice versa. Only on the last page.
    RecordCount {
        /// The number of records.
        records: u64,
        /// The number of index entries.
        indexed: u64,
    },
    /// Messages that were enqueued but are neither live nor finished. Only on the last page.
    Conservation {
        /// The number of messages ever enqueued.
        enqueued: u64,
        /// The number of messages that are live, acked, cancelled, purged, relayed or replaced.
        accounted: u64,
    },
}
