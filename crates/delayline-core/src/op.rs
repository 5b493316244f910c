//! The operations of a queue.

use std::collections::{HashMap, HashSet};

use crate::limits::{MAX_BATCH, MAX_BATCH_BYTES, MAX_FORECAST, MAX_LOOK_UP, MAX_PAGE};
use crate::validate::{batch, count, lease_duration};
use crate::{
    ClaimId, ConsumerName, Group, HandOff, Lease, MessageId, Millis, NewMessage, Relay, Resolution,
    Save, Schedule, SetLimits, Settlement, Status, Timestamp, Violation,
};

/// One atomic operation on one queue.
///
/// Batches are processed in order and answered item by item; an id may appear only once (G18).
/// Repeating an operation after an ambiguous failure is safe: see each variant.
///
/// Later versions may add operations. A [`Backend`](crate::Backend) that does not know one refuses
/// it with [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) and its [`name`](Self::name).
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "snake_case", deny_unknown_fields)
)]
#[non_exhaustive]
pub enum Op {
    /// Enqueues messages. Repeated: returns `Duplicate` instead of `Created` (G15). The exception
    /// is a message that may reuse a finished id and has finished in the meantime: it is created
    /// again, or `Throttled` while its [`throttle`](NewMessage::throttle) lasts. An update
    /// ([`Known::Update`](crate::Known::Update)) changes nothing either when it is repeated, as
    /// long as its token is remembered.
    Enqueue(Vec<NewMessage>),
    /// Leases ready messages. Repeated with the same claim id: returns the same leases (G16).
    Claim(Claim),
    /// Moves ready messages to a list or stream. Repeated: moves the next ready messages.
    Relay(Relay),
    /// Ends leases. Repeated: returns `AlreadyDone`, and how that ended the message (G8).
    Settle(Vec<Settlement>),
    /// Ends leases, enqueues the messages that each settlement carries (G31), and keeps the results
    /// of acks (G32). Repeated: returns `AlreadyDone`, and stores nothing.
    HandOff(Vec<HandOff>),
    /// Extends leases, and saves what their holders want to keep (G40). Repeated: extends them
    /// again.
    Extend(Extend),
    /// Cancels messages before they are delivered. Repeated: returns `Cancelled` again (G13).
    Cancel(Vec<MessageId>),
    /// Changes the due time of waiting messages. Repeated: changes it again.
    Reschedule(Vec<Reschedule>),
    /// Redrives dead letters. Repeated: returns `NotDead`.
    Redrive(Redrive),
    /// Deletes dead letters. Repeated: returns `Purged` again.
    Purge(Vec<MessageId>),
    /// Stops claims until [`Op::Resume`]; everything else continues (G17). Repeated: no change.
    Pause,
    /// Allows claims again. Repeated: no change.
    Resume,
    /// Changes limits of the queue (G34). Repeated: no change, unless it holds the queue for a
    /// time.
    SetLimits(SetLimits),
    /// Looks up at most [`MAX_LOOK_UP`] messages by id. Changes nothing.
    Get(Vec<MessageId>),
    /// Returns the progress of these messages, with the results of acked ones (G32). If the results
    /// would exceed [`MAX_BATCH_BYTES`], the reply is shorter than the list, but always has the
    /// first one. Changes nothing.
    Progress(Vec<MessageId>),
    /// Lists the messages of one status. Changes nothing.
    List(List),
    /// Returns the counters. Changes nothing.
    Stats,
    /// Counts the waiting messages by due time: now, within each of these delays from now, and
    /// later. There are 1 to [`MAX_FORECAST`] delays, in ascending order. Changes nothing.
    Forecast(Vec<Millis>),
    /// Returns the queue's history of the last hours or days (G22). Changes nothing.
    History(Resolution),
    /// Audits one page of the queue's structures (G1, G22). Changes nothing.
    Check(Check),
    /// Audits one page and repairs it (G20), so that each message is in exactly one state. If an
    /// operation was only half executed, that is the state before or after it. A message that
    /// cannot be read, or whose due time is lost, becomes a dead letter
    /// ([`DeathReason::Unreadable`](crate::DeathReason::Unreadable)); [`Op::Redrive`] revives it if
    /// its record is intact. Remains of finished messages are removed. Readable leases are kept. An
    /// intact queue is not changed. Repeated: finds fewer problems.
    Repair(Check),
}

/// Leases up to `max` ready messages, ordered by priority, due time and sequence (G12).
///
/// First, it reclaims up to [`MAX_RECLAIM`](crate::limits::MAX_RECLAIM) expired leases. It moves up
/// to [`MAX_BURIALS`](crate::limits::MAX_BURIALS) expired messages to the dead letters, and stops
/// at [`MAX_BATCH_BYTES`](crate::limits::MAX_BATCH_BYTES). So it may return fewer than `max`
/// messages, or none, although more are ready; then `more` is set in the reply.
///
/// Messages with a group take turns (G35). In a queue in order, it leases one message of a group,
/// or several if it [asks for them](Self::several_in_order) (G37): all that it can of one group
/// before the next.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(deny_unknown_fields)
)]
#[non_exhaustive]
pub struct Claim {
    /// The claiming consumer.
    pub consumer: ConsumerName,
    /// The claim's random token, new for every new claim.
    pub claim_id: ClaimId,
    /// Maximum number of messages to lease: 1 to [`MAX_BATCH`], or 0 to continue after
    /// [`Claimed::unsorted`](crate::Claimed::unsorted) without a lease.
    pub max: usize,
    /// The duration of the leases: [`MIN_LEASE_MS`](crate::limits::MIN_LEASE_MS)
    /// to [`MAX_LEASE_MS`](crate::limits::MAX_LEASE_MS).
    pub lease: Millis,
    /// Whether to lease several messages of a group together in a queue in order.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "crate::form::is_default"))]
    pub several_in_order: bool,
}

impl Claim {
    /// A claim by `consumer` of up to `max` messages, for `lease`.
    #[must_use]
    pub const fn new(consumer: ConsumerName, claim_id: ClaimId, max: usize, lease: Millis) -> Self {
        Self { consumer, claim_id, max, lease, several_in_order: false }
    }

    /// Sets whether to lease several messages of a group together in a queue in order (G37). The
    /// reply has them in their order, and the caller must handle them in that order, one after the
    /// other. In other queues, it makes no difference.
    #[must_use]
    pub const fn several_in_order(mut self, several: bool) -> Self {
        self.several_in_order = several;
        self
    }
}

/// Extends leases: each lasts for `lease` from now.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(deny_unknown_fields)
)]
#[non_exhaustive]
pub struct Extend {
    /// Messages and their leases. A lease that is not the current one changes nothing (G6).
    pub leases: Vec<(MessageId, Lease)>,
    /// The duration of the leases from now: [`MIN_LEASE_MS`](crate::limits::MIN_LEASE_MS)
    /// to [`MAX_LEASE_MS`](crate::limits::MAX_LEASE_MS).
    pub lease: Millis,
    /// The saves of some of these messages (G40). They are stored if the lease is extended.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "crate::form::is_default"))]
    pub saves: Vec<(MessageId, Save)>,
}

impl Extend {
    /// Lets each of `leases` last for `lease` from now.
    #[must_use]
    pub const fn new(leases: Vec<(MessageId, Lease)>, lease: Millis) -> Self {
        Self { leases, lease, saves: Vec::new() }
    }

    /// Saves something with some of the messages.
    #[must_use]
    pub fn saves(mut self, saves: Vec<(MessageId, Save)>) -> Self {
        self.saves = saves;
        self
    }

    /// Returns the saves in the order of the leases: one for each, if it has one.
    pub fn saves_in_order(&self) -> impl Iterator<Item = Option<&Save>> {
        let saves: HashMap<_, _> = self.saves.iter().map(|(id, save)| (id, save)).collect();
        self.leases.iter().map(move |(id, _)| saves.get(id).copied())
    }

    fn validate(&self) -> Result<(), Violation> {
        const WHAT: &str = "the extension";
        batch(WHAT, self.leases.iter().map(|(id, _)| id))?;
        lease_duration(self.lease)?;
        if self.saves.is_empty() {
            return Ok(());
        }
        batch("the list of saves", self.saves.iter().map(|(id, _)| id))?;
        let extended: HashSet<_> = self.leases.iter().map(|(id, _)| id).collect();
        if let Some((id, _)) = self.saves.iter().find(|(id, _)| !extended.contains(id)) {
            return Err(Violation::Malformed {
                what: "the save of",
                value: id.to_string(),
                reason: "the extension does not extend its lease".to_owned(),
            });
        }
        self.saves.iter().try_for_each(|(_, save)| save.validate())?;
        let bytes = self.saves.iter().map(|(_, save)| save.bytes()).sum();
        Violation::at_most(WHAT, "bytes", bytes, MAX_BATCH_BYTES)
    }
}

/// A new due time for one waiting message.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(deny_unknown_fields)
)]
#[non_exhaustive]
pub struct Reschedule {
    /// The message.
    pub id: MessageId,
    /// The new due time.
    pub schedule: Schedule,
}

impl Reschedule {
    /// Makes the message `id` due at `schedule`.
    #[must_use]
    pub const fn new(id: MessageId, schedule: Schedule) -> Self {
        Self { id, schedule }
    }
}

/// Redrives dead letters: their failures and crashes count from 0 again, and they no longer expire.
/// Id, epoch and earlier errors are kept.
///
/// The reason of death does not matter: even an [`Unreadable`](crate::DeathReason::Unreadable) dead
/// letter is revived if its record is intact.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(deny_unknown_fields)
)]
#[non_exhaustive]
pub struct Redrive {
    /// The messages.
    pub ids: Vec<MessageId>,
    /// When they are due.
    pub schedule: Schedule,
}

impl Redrive {
    /// Redrives the messages `ids`, to be due at `schedule`.
    #[must_use]
    pub const fn new(ids: Vec<MessageId>, schedule: Schedule) -> Self {
        Self { ids, schedule }
    }
}

/// A page of the live messages of one status: scheduled and ready ones by priority, due time and
/// sequence, and behind them those with a group, lane by lane if they have one, else by due time;
/// leased ones by deadline, dead ones by time of death.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(deny_unknown_fields)
)]
#[non_exhaustive]
pub struct List {
    /// [`Status::Scheduled`], [`Status::Ready`], [`Status::Leased`] or [`Status::Dead`].
    pub status: Status,
    /// Where the previous page ended.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub after: Option<Position>,
    /// Maximum number of messages to return: 1 to [`MAX_PAGE`].
    pub limit: usize,
}

impl List {
    /// The first page of `status`, of at most `limit` messages.
    #[must_use]
    pub const fn new(status: Status, limit: usize) -> Self {
        Self { status, after: None, limit }
    }

    /// Continues after a page that ended at this position; `None` starts at the beginning.
    #[must_use]
    pub fn after(mut self, position: impl Into<Option<Position>>) -> Self {
        self.after = position.into();
        self
    }
}

/// A page of the audit or repair: the messages of all statuses, index by index.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(deny_unknown_fields)
)]
#[non_exhaustive]
pub struct Check {
    /// Where the previous page ended.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub after: Option<Position>,
    /// Maximum number of messages to examine: 1 to [`MAX_PAGE`].
    pub limit: usize,
}

impl Check {
    /// The first page, of at most `limit` messages.
    #[must_use]
    pub const fn new(limit: usize) -> Self {
        Self { after: None, limit }
    }

    /// Continues after a page that ended at this position; `None` starts at the beginning.
    #[must_use]
    pub fn after(mut self, position: impl Into<Option<Position>>) -> Self {
        self.after = position.into();
        self
    }
}

/// A position in the order of a queue's indexes, to continue from. It stays valid whatever happens
/// to the message at that position.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(deny_unknown_fields)
)]
pub struct Position {
    /// The index: 0 to 3 for the priorities, [`LEASED`](Self::LEASED), [`DEAD`](Self::DEAD),
    /// [`LANES`](Self::LANES), [`GROUPED`](Self::GROUPED). After the last index, an audit may
    /// continue through the other data that the backend stores.
    pub index: u8,
    /// The due time, deadline or time of death. Of a message in a lane, the number of the lane.
    pub instant: Timestamp,
    /// The sequence number, plus [`OF_GROUPS`](Self::OF_GROUPS) if the message has a group.
    pub sequence: u64,
}

impl Position {
    /// The index of leased messages.
    pub const LEASED: u8 = 4;

    /// The index of dead letters.
    pub const DEAD: u8 = 5;

    /// The index of ready messages with a group that wait for their group's turn.
    pub const LANES: u8 = 6;

    /// The index of scheduled and ready messages with a group.
    pub const GROUPED: u8 = Group::LEVEL;

    /// The number that is added to the sequence numbers of messages with a group, so that those of
    /// an index are in different ranges.
    pub const OF_GROUPS: u64 = 1 << 56;
}

impl Op {
    /// Returns `true` if it ends leases, and the caller claims next:
    /// [`Settlement::claims_next`] of each.
    #[must_use]
    pub fn claims_next(&self) -> bool {
        match self {
            Self::Settle(items) => items.iter().all(|item| item.claims_next),
            Self::HandOff(items) => items.iter().all(|item| item.settlement.claims_next),
            _ => false,
        }
    }

    /// Checks all limits that can be checked without the queue. Backends call this before they send
    /// anything.
    ///
    /// # Errors
    ///
    /// The first [`Violation`] found, which names the value and the limit.
    pub fn validate(&self) -> Result<(), Violation> {
        match self {
            Self::Enqueue(messages) => {
                batch("the enqueue", messages.iter().map(|message| &message.id))?;
                messages.iter().try_for_each(NewMessage::validate_limits)?;
                let bytes = messages.iter().map(NewMessage::content_bytes).sum();
                Violation::at_most("the enqueue", "bytes", bytes, MAX_BATCH_BYTES)
            }
            Self::Claim(claim) => {
                let max = u64::try_from(claim.max).unwrap_or(u64::MAX);
                let most = u64::try_from(MAX_BATCH).unwrap_or(u64::MAX);
                Violation::within("the claim's max", max, 0, most)?;
                lease_duration(claim.lease)
            }
            Self::Relay(relay) => relay.validate(),
            Self::Settle(settlements) => {
                batch("the settlement", settlements.iter().map(|item| &item.id))?;
                settlements.iter().try_for_each(Settlement::validate)?;
                let bytes = settlements.iter().map(Settlement::save_bytes).sum();
                Violation::at_most("the settlement", "bytes", bytes, MAX_BATCH_BYTES)
            }
            Self::HandOff(items) => crate::hand_off::validate(items),
            Self::Extend(extend) => extend.validate(),
            Self::Cancel(ids) => batch("the cancellation", ids),
            Self::Reschedule(items) => batch("the rescheduling", items.iter().map(|item| &item.id)),
            Self::Redrive(redrive) => batch("the redrive", &redrive.ids),
            Self::Purge(ids) => batch("the purge", ids),
            Self::Get(ids) => {
                Violation::at_most("the look-up", "items", ids.len(), MAX_LOOK_UP)?;
                batch("the look-up", ids)
            }
            Self::Progress(ids) => batch("the look-up", ids),
            Self::List(list) => {
                if list.status.is_finished() {
                    return Err(Violation::Malformed {
                        what: "the status to list",
                        value: format!("{:?}", list.status),
                        reason: "finished messages can be looked up by id only".to_owned(),
                    });
                }
                count("the page's limit", list.limit, MAX_PAGE)
            }
            Self::Forecast(delays) => ascending(delays),
            Self::Check(check) | Self::Repair(check) => {
                count("the page's limit", check.limit, MAX_PAGE)
            }
            Self::SetLimits(set) => set.validate(),
            Self::Pause | Self::Resume | Self::Stats | Self::History(_) => Ok(()),
        }
    }

    /// Returns `true` if losing this operation's effect permanently loses a message, or a decision
    /// about one. Such operations are worth a [`Durability`](crate::Durability).
    ///
    /// If a claim or an extension is lost, another worker can claim the message, as if the lease
    /// had expired. A lost claim repeats its epoch. A lost repair can be repeated. Other operations
    /// change nothing.
    #[must_use]
    pub const fn changes_for_good(&self) -> bool {
        matches!(self.facts().1, Effect::ForGood)
    }

    /// Returns `true` if the operation never changes anything.
    #[must_use]
    pub const fn is_read_only(&self) -> bool {
        matches!(self.facts().1, Effect::Nothing)
    }

    /// Returns the operation's name for logs and metrics: `enqueue`, `claim` and so on.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.facts().0
    }

    /// Returns the ids of the messages that the operation sends, settles, changes or looks up, in
    /// order. For a hand-off, these are the settled messages, not the ones it sends. A claim, for
    /// example, names no messages.
    #[must_use]
    pub fn ids(&self) -> Vec<&MessageId> {
        match self {
            Self::Enqueue(items) => items.iter().map(|item| &item.id).collect(),
            Self::Settle(items) => items.iter().map(|item| &item.id).collect(),
            Self::HandOff(items) => items.iter().map(|item| &item.settlement.id).collect(),
            Self::Extend(extend) => extend.leases.iter().map(|(id, _)| id).collect(),
            Self::Reschedule(items) => items.iter().map(|item| &item.id).collect(),
            Self::Redrive(redrive) => redrive.ids.iter().collect(),
            Self::Cancel(ids) | Self::Purge(ids) | Self::Get(ids) | Self::Progress(ids) => {
                ids.iter().collect()
            }
            Self::Claim(_)
            | Self::Relay(_)
            | Self::Pause
            | Self::Resume
            | Self::SetLimits(_)
            | Self::List(_)
            | Self::Stats
            | Self::Forecast(_)
            | Self::History(_)
            | Self::Check(_)
            | Self::Repair(_) => Vec::new(),
        }
    }
}

/// What an operation can change.
#[derive(Clone, Copy)]
enum Effect {
    Nothing,
    /// Something that can be repeated: a lease, a repair.
    Queue,
    /// A message, or a decision about one.
    ForGood,
}

/// Defines the name and the effect of each operation.
macro_rules! facts {
    ($($operation:pat => $name:literal, $effect:ident;)*) => {
        impl Op {
            /// The [names](Self::name) of all operations.
            pub const NAMES: &[&str] = &[$($name),*];

            const fn facts(&self) -> (&'static str, Effect) {
                match self {
                    $($operation => ($name, Effect::$effect),)*
                }
            }
        }
    };
}

facts! {
    Self::Enqueue(_) => "enqueue", ForGood;
    Self::Claim(_) => "claim", Queue;
    Self::Relay(_) => "relay", ForGood;
    Self::Settle(_) => "settle", ForGood;
    Self::HandOff(_) => "hand_off", ForGood;
    Self::Extend(_) => "extend", Queue;
    Self::Cancel(_) => "cancel", ForGood;
    Self::Reschedule(_) => "reschedule", ForGood;
    Self::Redrive(_) => "redrive", ForGood;
    Self::Purge(_) => "purge", ForGood;
    Self::Pause => "pause", ForGood;
    Self::Resume => "resume", ForGood;
    Self::SetLimits(_) => "set_limits", ForGood;
    Self::Get(_) => "get", Nothing;
    Self::Progress(_) => "progress", Nothing;
    Self::List(_) => "list", Nothing;
    Self::Stats => "stats", Nothing;
    Self::Forecast(_) => "forecast", Nothing;
    Self::History(_) => "history", Nothing;
    Self::Check(_) => "check", Nothing;
    Self::Repair(_) => "repair", Queue;
}

fn ascending(delays: &[Millis]) -> Result<(), Violation> {
    const WHAT: &str = "the forecast";
    if delays.is_empty() {
        return Err(Violation::Empty { what: WHAT });
    }
    Violation::at_most(WHAT, "items", delays.len(), MAX_FORECAST)?;
    match delays.iter().zip(delays.iter().skip(1)).find(|(delay, next)| next <= delay) {
        None => Ok(()),
        Some((delay, next)) => Err(Violation::Malformed {
            what: "the forecast's delay in ms",
            value: next.as_ms().to_string(),
            reason: format!("it must be longer than the one before, {}", delay.as_ms()),
        }),
    }
}
