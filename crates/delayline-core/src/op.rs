//! Everything a queue can be asked to do.

use std::collections::HashSet;

use crate::limits::{
    MAX_BATCH, MAX_BATCH_BYTES, MAX_ERROR_BYTES, MAX_LEASE_MS, MAX_LOOK_UP, MAX_PAGE, MIN_LEASE_MS,
};
use crate::{
    ClaimId, ConsumerName, Lease, MessageId, Millis, NewMessage, Schedule, Status, Timestamp,
    Violation,
};

/// One atomic operation on one queue.
///
/// A batch obeys the order of its items, answers item by item, and names no id twice (G18).
/// Sending an operation again after an ambiguous failure is safe: see each variant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// Takes new messages in. Repeated: answers `Duplicate` instead of `Created` (G15), except for a
    /// message that may reuse a finished id and has finished in between.
    Enqueue(Vec<NewMessage>),
    /// Leases ready messages. Repeated with its claim id: answers the same leases (G16).
    Claim(Claim),
    /// Ends leases. Repeated: answers `AlreadyDone`, and how that ended the message
    /// (G8).
    Settle(Vec<Settlement>),
    /// Prolongs leases. Repeated: prolongs them again.
    Extend(Extend),
    /// Takes messages out before they are delivered. Repeated: answers `Cancelled` again (G13).
    Cancel(Vec<MessageId>),
    /// Moves waiting messages to another instant. Repeated: moves them again.
    Reschedule(Vec<Reschedule>),
    /// Gives dead letters a new life. Repeated: answers `NotDead`.
    Redrive(Redrive),
    /// Deletes dead letters. Repeated: answers `Purged` again.
    Purge(Vec<MessageId>),
    /// Stops claims until [`Op::Resume`]; everything else goes on (G17). Repeated: no change.
    Pause,
    /// Lets claims go on. Repeated: no change.
    Resume,
    /// Looks up to [`MAX_LOOK_UP`] messages up by id. Changes nothing.
    Get(Vec<MessageId>),
    /// Looks through the messages of one status. Changes nothing.
    List(List),
    /// Counts. Changes nothing.
    Stats,
    /// Audits a page of the queue's structures (G1, G22). Changes nothing.
    Check(Check),
    /// Audits a page and mends what is wrong there (G20): each message gets into the one place that
    /// it belongs to. If only half of an operation has happened to it, that is the place where it was
    /// or where it was going. What cannot be read, or whose due instant is lost, becomes a dead letter
    /// ([`DeathReason::Unreadable`](crate::DeathReason::Unreadable)); [`Op::Redrive`] revives it if its
    /// record is whole. What is left of a message that has finished is removed. Leases that can be
    /// read are kept. A queue without a fault is not changed. Repeated: finds less.
    Repair(Check),
}

/// Leases up to `max` ready messages, in the order of priority, due instant and sequence (G12).
///
/// First it takes back expired leases, up to [`MAX_RECLAIM`](crate::limits::MAX_RECLAIM). Ready
/// messages that have expired go to the dead letters, up to
/// [`MAX_BURIALS`](crate::limits::MAX_BURIALS), and it stops at
/// [`MAX_BATCH_BYTES`](crate::limits::MAX_BATCH_BYTES). So it may answer fewer than `max`, or none,
/// although there are more: then the answer says `more`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Who claims.
    pub consumer: ConsumerName,
    /// The claim's random token. A new one for every new claim.
    pub claim_id: ClaimId,
    /// How many messages at most: 1 to [`MAX_BATCH`].
    pub max: usize,
    /// How long the leases last: [`MIN_LEASE_MS`] to [`MAX_LEASE_MS`].
    pub lease: Millis,
}

/// The end of one lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settlement {
    /// The message.
    pub id: MessageId,
    /// The lease to end. Any but the current one changes nothing (G6).
    pub lease: Lease,
    /// How it ended.
    pub outcome: Outcome,
}

/// How the handling of a message ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Handled. The message is finished.
    Ack,
    /// Failed. It counts as a failure; the message is due again after `delay`, or dead if that
    /// was its last failure allowed.
    Retry {
        /// From now to the next try.
        delay: Millis,
        /// What went wrong, up to [`MAX_ERROR_BYTES`] bytes.
        error: String,
    },
    /// Not now. Nothing is counted; the message is due again after `delay`.
    Snooze {
        /// From now to the next try.
        delay: Millis,
    },
    /// Never started. Nothing is counted; the message is ready again at once (G10).
    Release,
    /// Hopeless. The message goes to the dead letters.
    Reject {
        /// What went wrong, up to [`MAX_ERROR_BYTES`] bytes.
        error: String,
    },
}

/// Prolongs leases: each lasts `lease` from now on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extend {
    /// Messages and their leases. Any lease but the current one changes nothing (G6).
    pub leases: Vec<(MessageId, Lease)>,
    /// How long they last from now: [`MIN_LEASE_MS`] to [`MAX_LEASE_MS`].
    pub lease: Millis,
}

/// A new due instant for one waiting message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reschedule {
    /// The message.
    pub id: MessageId,
    /// When it is due instead.
    pub schedule: Schedule,
}

/// A new life for dead letters: their failures and crashes count from 0 again, and they expire no
/// more. Id, epoch and the errors of their former life stay.
///
/// The reason of their death does not matter: a dead letter that is
/// [`Unreadable`](crate::DeathReason::Unreadable) lives again if its record is whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redrive {
    /// The messages.
    pub ids: Vec<MessageId>,
    /// When they are due.
    pub schedule: Schedule,
}

/// A page of the live messages of one status: scheduled and ready ones by priority, due instant
/// and sequence, leased ones by deadline, dead ones by the instant of their death.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct List {
    /// [`Status::Scheduled`], [`Status::Ready`], [`Status::Leased`] or [`Status::Dead`].
    pub status: Status,
    /// Where the page before ended.
    pub after: Option<Position>,
    /// How many messages at most: 1 to [`MAX_PAGE`].
    pub limit: usize,
}

/// A page of the audit or of the repair: the messages of all statuses, index by index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// Where the page before ended.
    pub after: Option<Position>,
    /// How many messages at most: 1 to [`MAX_PAGE`].
    pub limit: usize,
}

/// A place in the order of a queue's indexes, to go on from. It stays valid whatever happens to
/// the message that stood there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// Which index: 0 to 3 for the priorities, [`LEASED`](Self::LEASED), [`DEAD`](Self::DEAD). Behind
    /// the last index an audit may go on through what the backend keeps beside them.
    pub index: u8,
    /// The due instant, deadline or instant of death there.
    pub instant: Timestamp,
    /// The sequence number there.
    pub sequence: u64,
}

impl Position {
    /// The index of the leased messages.
    pub const LEASED: u8 = 4;

    /// The index of the dead letters.
    pub const DEAD: u8 = 5;
}

impl Op {
    /// Checks every limit that can be checked without the queue. Backends call it before they send
    /// anything.
    ///
    /// # Errors
    ///
    /// The first [`Violation`] found, with the value and the limit.
    pub fn validate(&self) -> Result<(), Violation> {
        match self {
            Self::Enqueue(messages) => {
                batch("the enqueue", messages.iter().map(|message| &message.id))?;
                messages.iter().try_for_each(NewMessage::validate)?;
                let bytes = messages.iter().map(NewMessage::content_bytes).sum();
                Violation::at_most("the enqueue", "bytes", bytes, MAX_BATCH_BYTES)
            }
            Self::Claim(claim) => {
                count("the claim's max", claim.max, MAX_BATCH)?;
                lease_duration(claim.lease)
            }
            Self::Settle(settlements) => {
                batch("the settlement", settlements.iter().map(|item| &item.id))?;
                settlements.iter().try_for_each(|item| match &item.outcome {
                    Outcome::Retry { error, .. } | Outcome::Reject { error } => {
                        Violation::at_most("the error text", "bytes", error.len(), MAX_ERROR_BYTES)
                    }
                    Outcome::Ack | Outcome::Snooze { .. } | Outcome::Release => Ok(()),
                })
            }
            Self::Extend(extend) => {
                batch("the extension", extend.leases.iter().map(|(id, _)| id))?;
                lease_duration(extend.lease)
            }
            Self::Cancel(ids) => batch("the cancellation", ids),
            Self::Reschedule(items) => batch("the rescheduling", items.iter().map(|item| &item.id)),
            Self::Redrive(redrive) => batch("the redrive", &redrive.ids),
            Self::Purge(ids) => batch("the purge", ids),
            Self::Get(ids) => {
                Violation::at_most("the look-up", "items", ids.len(), MAX_LOOK_UP)?;
                batch("the look-up", ids)
            }
            Self::List(list) => {
                if matches!(list.status, Status::Acked | Status::Cancelled | Status::Purged) {
                    return Err(Violation::Malformed {
                        what: "the status to list",
                        value: format!("{:?}", list.status),
                        reason: "finished messages can be looked up by id only".to_owned(),
                    });
                }
                count("the page's limit", list.limit, MAX_PAGE)
            }
            Self::Check(check) | Self::Repair(check) => {
                count("the page's limit", check.limit, MAX_PAGE)
            }
            Self::Pause | Self::Resume | Self::Stats => Ok(()),
        }
    }

    /// Whether something is gone for good if the effect of this operation is lost: a message, or what
    /// was decided about one. These are worth a [`Durability`](crate::Durability).
    ///
    /// A claim or an extension that is lost lets another worker have the message, as if the lease had
    /// run out; a repair repairs again; the rest changes nothing.
    #[must_use]
    pub const fn changes_for_good(&self) -> bool {
        match self {
            Self::Enqueue(_)
            | Self::Settle(_)
            | Self::Cancel(_)
            | Self::Reschedule(_)
            | Self::Redrive(_)
            | Self::Purge(_)
            | Self::Pause
            | Self::Resume => true,
            Self::Claim(_)
            | Self::Extend(_)
            | Self::Get(_)
            | Self::List(_)
            | Self::Stats
            | Self::Check(_)
            | Self::Repair(_) => false,
        }
    }

    /// The operation's name, for logs and metrics: `enqueue`, `claim` and so on.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Enqueue(_) => "enqueue",
            Self::Claim(_) => "claim",
            Self::Settle(_) => "settle",
            Self::Extend(_) => "extend",
            Self::Cancel(_) => "cancel",
            Self::Reschedule(_) => "reschedule",
            Self::Redrive(_) => "redrive",
            Self::Purge(_) => "purge",
            Self::Pause => "pause",
            Self::Resume => "resume",
            Self::Get(_) => "get",
            Self::List(_) => "list",
            Self::Stats => "stats",
            Self::Check(_) => "check",
            Self::Repair(_) => "repair",
        }
    }
}

fn batch<'a>(
    what: &'static str,
    ids: impl IntoIterator<Item = &'a MessageId>,
) -> Result<(), Violation> {
    let mut seen = HashSet::new();
    for id in ids {
        if !seen.insert(id) {
            return Err(Violation::RepeatedId { id: id.to_string() });
        }
    }
    if seen.is_empty() {
        return Err(Violation::Empty { what });
    }
    Violation::at_most(what, "items", seen.len(), MAX_BATCH)
}

fn count(what: &'static str, actual: usize, most: usize) -> Result<(), Violation> {
    let as_u64 = |n: usize| u64::try_from(n).unwrap_or(u64::MAX);
    Violation::within(what, as_u64(actual), 1, as_u64(most))
}

fn lease_duration(lease: Millis) -> Result<(), Violation> {
    Violation::within("the lease in ms", lease.as_ms(), MIN_LEASE_MS, MAX_LEASE_MS)
}
