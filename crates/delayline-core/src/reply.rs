//! What a queue answers.
//!
//! Everything that can be expected to happen is a value here; [`Error`](crate::Error) is for
//! transport and server faults.

use crate::{DeathReason, Delivery, Message, MessageId, MessageInfo, Position, Status, Timestamp};

/// An operation that was executed: when, at which point of the queue's history, with what result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    /// The server's clock when it was executed, or the instant of [`At::Fixed`](crate::At::Fixed).
    pub at: Timestamp,
    /// How many operations have changed this queue so far. An operation that changed something
    /// has raised it by one; one that changed nothing tells the number it saw. So a log of calls
    /// can be put in the order of their execution and replayed.
    pub revision: u64,
    /// The result.
    pub reply: Reply,
}

/// The result of an operation: the variant is named after the operation, and a batch is answered
/// item by item in the order asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// To [`Op::Enqueue`](crate::Op::Enqueue).
    Enqueue(Vec<Enqueued>),
    /// To [`Op::Claim`](crate::Op::Claim).
    Claim(Claimed),
    /// To [`Op::Settle`](crate::Op::Settle).
    Settle(Vec<Settled>),
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
    /// To [`Op::Get`](crate::Op::Get).
    Get(Vec<Found>),
    /// To [`Op::List`](crate::Op::List).
    List(Page),
    /// To [`Op::Stats`](crate::Op::Stats).
    Stats(Stats),
    /// To [`Op::Check`](crate::Op::Check).
    Check(Checked),
    /// To [`Op::Repair`](crate::Op::Repair): what was wrong, and is mended.
    Repair(Checked),
}

/// What became of one message of an enqueue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Enqueued {
    /// It was taken in.
    Created {
        /// When it is due.
        due: Timestamp,
    },
    /// The queue knows this id with the same content; nothing was changed (G15).
    Duplicate {
        /// Where the known message stands.
        status: Status,
    },
    /// The queue knows this id with another content; nothing was changed (G15).
    Conflict {
        /// Where the known message stands.
        status: Status,
    },
}

/// The leases of one claim, and when to come back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Claimed {
    /// The leased messages, in delivery order.
    pub deliveries: Vec<Delivery>,
    /// Whether there is more to be had at once.
    pub more: bool,
    /// The earliest instant at which there will be something to claim, unless something new comes:
    /// a due instant or the end of a lease. `None` while there is nothing, or while paused.
    pub next: Option<Timestamp>,
    /// The messages that this claim made dead letters, in the order of their deaths. A claim that
    /// is repeated does not report them again (G16).
    pub deaths: Vec<Death>,
}

/// A message that a claim found expired, unreadable, or at the end of its last lease, and made a
/// dead letter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Death {
    /// The message.
    pub id: MessageId,
    /// Why it died.
    pub reason: DeathReason,
}

/// What became of one settlement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Settled {
    /// The lease has ended.
    Done {
        /// Where the message stands now. A message that was asked to be cancelled is
        /// [`Status::Cancelled`] after any outcome but an ack.
        status: Status,
    },
    /// This lease was ended before, by the same kind of outcome; nothing was changed (G8). The
    /// reply to that settlement was lost, or nobody waited for it.
    AlreadyDone {
        /// How that settlement ended the message: [`Status::Acked`], [`Status::Cancelled`], or
        /// [`Status::Dead`], and it still is what this says. `None` if the settlement gave the
        /// message back, whatever has become of it since.
        ended: Option<Status>,
    },
    /// The lease is no longer, or never was, the current one; nothing was changed (G6).
    Stale,
    /// There is no such message; nothing was changed.
    Missing,
}

/// What became of one lease to be prolonged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Extended {
    /// It lasts until `deadline`.
    Done {
        /// The new deadline.
        deadline: Timestamp,
        /// Somebody wants the message cancelled (G13).
        cancel_requested: bool,
    },
    /// The lease is no longer, or never was, the current one; nothing was changed (G6).
    Stale,
    /// There is no such message; nothing was changed.
    Missing,
}

/// What became of one cancellation (G13).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cancelled {
    /// It is cancelled and will not be delivered; also if it was cancelled before.
    Cancelled,
    /// A worker has it. The worker learns of the request at its next extend; unless it acks, the
    /// message is finished when the lease ends.
    InFlight,
    /// There is no such message.
    NotFound,
}

/// What became of one rescheduling.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rescheduled {
    /// It is due at another instant now.
    Done {
        /// That instant.
        due: Timestamp,
    },
    /// A worker has it; nothing was changed.
    InFlight,
    /// It is a dead letter; nothing was changed. [`Op::Redrive`](crate::Op::Redrive) revives it.
    Dead,
    /// There is no such message.
    NotFound,
}

/// What became of one redrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Redriven {
    /// It lives again.
    Done {
        /// When it is due.
        due: Timestamp,
    },
    /// It is no dead letter; nothing was changed.
    NotDead,
    /// Its record is lost or unreadable, so there is nothing to deliver; nothing was changed.
    Unreadable,
    /// There is no such message.
    NotFound,
}

/// What became of one purge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Purged {
    /// It is deleted; also if it was before.
    Purged,
    /// It is no dead letter; nothing was changed.
    NotDead,
    /// There is no such message.
    NotFound,
}

/// What is known of one id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// A live message.
    Live(Box<Message>),
    /// A message that has finished a short while ago: [`Status::Acked`], [`Status::Cancelled`] or
    /// [`Status::Purged`].
    Finished(Status),
    /// A message whose record is damaged. The next claim that comes upon it makes it a dead letter.
    Unreadable,
    /// Nothing.
    Unknown,
}

/// A page of messages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// The messages, in order.
    pub messages: Vec<MessageInfo>,
    /// Where the next page begins; `None` after the last.
    pub next: Option<Position>,
}

/// Counts of a queue (G22).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Messages that are not due yet.
    pub scheduled: u64,
    /// Messages that are due and wait for a worker.
    pub ready: u64,
    /// Messages with a worker, including those whose lease has run out and was not taken back yet.
    pub leased: u64,
    /// Dead letters.
    pub dead: u64,
    /// Whether claims are stopped.
    pub paused: bool,
    /// The earliest due instant among scheduled and ready messages.
    pub earliest_due: Option<Timestamp>,
    /// How many messages were ever enqueued.
    pub enqueued_total: u64,
    /// How many were acked.
    pub acked_total: u64,
    /// How many were cancelled.
    pub cancelled_total: u64,
    /// How many were purged.
    pub purged_total: u64,
    /// How often a message went to the dead letters because it had expired.
    pub expired_total: u64,
}

/// A page of the audit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// How many messages this page looked at.
    pub examined: u64,
    /// What is wrong. Empty is good.
    pub findings: Vec<Finding>,
    /// Where the next page begins; `None` after the last.
    pub next: Option<Position>,
}

/// Something that must not be.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Finding {
    /// An index entry that no library of this kind has written.
    MalformedEntry {
        /// The index it stands in, as in [`Position::index`].
        index: u8,
    },
    /// An id in an index without a readable record.
    MissingRecord {
        /// The id.
        id: MessageId,
    },
    /// An id whose record belongs to another entry, or to another priority.
    WrongRecord {
        /// The id.
        id: MessageId,
    },
    /// An id that stands in two indexes.
    InTwoStates {
        /// The id.
        id: MessageId,
    },
    /// A leased or dead message without the details that its state needs.
    MissingDetails {
        /// The id.
        id: MessageId,
    },
    /// What stands about an id without a message: details or a content without a record, or a record
    /// that is in no index. Of such records an audit tells the number only, and a repair the ids.
    Orphan {
        /// The id.
        id: MessageId,
    },
    /// Records without an index entry, or the other way round. Only on the last page.
    RecordCount {
        /// How many records there are.
        records: u64,
        /// How many index entries there are.
        indexed: u64,
    },
    /// Messages enqueued that are neither live nor finished. Only on the last page.
    Conservation {
        /// How many were ever enqueued.
        enqueued: u64,
        /// How many are live, acked, cancelled or purged.
        accounted: u64,
    },
}
