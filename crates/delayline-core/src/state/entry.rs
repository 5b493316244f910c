//! A live message, as the state machine stores it.

use std::ops::{Deref, DerefMut};

use bytes::Bytes;

use super::turns::Turns;
use crate::attempt::Attempts;
use crate::known::Tokens;
use crate::{
    Attempt, AttemptOutcome, ClaimId, DeathReason, Delivery, Element, Follower, Group, Headers,
    Lease, Message, MessageId, MessageInfo, MessageState, NewMessage, Outcome, Position, Priority,
    ProcessId, Save, Status, Timestamp,
};

/// A live message.
#[derive(Clone, Debug)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(deny_unknown_fields)
)]
pub(super) struct Entry {
    // Written once, at enqueue (but a redrive removes the expiry).
    pub(super) id: MessageId,
    pub(super) sequence: u64,
    pub(super) enqueued_at: Timestamp,
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub(super) expires_at: Option<Timestamp>,
    pub(super) digest: u64,
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub(super) group: Option<Group>,
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "crate::form::is_default"))]
    pub(super) priority: Priority,
    #[cfg_attr(
        feature = "serde",
        serde(
            default = "crate::form::max_failures",
            skip_serializing_if = "crate::form::is_max_failures"
        )
    )]
    pub(super) max_failures: u32,
    #[cfg_attr(
        feature = "serde",
        serde(
            default = "crate::form::max_crashes",
            skip_serializing_if = "crate::form::is_max_crashes"
        )
    )]
    pub(super) max_crashes: u32,
    /// Boxed, because most messages have none.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    headers: Option<Box<Headers>>,
    #[cfg_attr(feature = "serde", serde(with = "crate::form::bytes"))]
    payload: Bytes,

    // Changes during the message's life.
    pub(super) due: Timestamp,
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "crate::form::is_default"))]
    pub(super) epoch: u64,
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "crate::form::is_default"))]
    pub(super) failures: u32,
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "crate::form::is_default"))]
    pub(super) crashes: u32,
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Sparse::is_none"))]
    pub(super) life: Sparse,
    /// Whether it holds a slot of its group.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "crate::form::is_default"))]
    pub(super) has_slot: bool,
    pub(super) place: Place,
}

/// What leases and updates leave with a message.
#[derive(Clone, Debug, Default)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(deny_unknown_fields)
)]
pub(super) struct Life {
    /// The latest claim; together with the epoch, it is the lease.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub(super) claim_id: Option<ClaimId>,
    /// How the latest lease was settled, to recognise a repeated settlement, and how that ended the
    /// message whose place this one has taken.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub(super) settled: Option<(OutcomeKind, Option<Status>)>,
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    first_error: Option<Box<str>>,
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    last_error: Option<Box<str>>,
    /// Boxed, because most messages have none.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    attempts: Option<Box<Attempts>>,
    /// Boxed, because most messages have none.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    saved: Option<Box<Saved>>,
    /// The latest updates of this id.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "crate::form::is_default"))]
    pub(super) tokens: Tokens,
    /// What takes the message's place when its lease ends. Only leased messages have one.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub(super) follower: Option<Box<Next>>,
}

/// The [`Life`] of a message, which takes room from its first change on: most messages that wait
/// have none, and there may be millions.
#[derive(Clone, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(transparent))]
pub(super) struct Sparse(Option<Box<Life>>);

impl Sparse {
    #[cfg(feature = "serde")]
    const fn is_none(&self) -> bool {
        self.0.is_none()
    }

    /// What remains if another message takes the place of this one.
    fn of_successor(self) -> Self {
        let Self(Some(life)) = self else { return self };
        let Life { claim_id, settled, tokens, .. } = *life;
        Self(Some(Box::new(Life { claim_id, settled, tokens, ..Life::default() })))
    }

    pub(super) fn take(self) -> Life {
        self.0.map(|life| *life).unwrap_or_default()
    }
}

impl Deref for Sparse {
    type Target = Life;

    fn deref(&self) -> &Life {
        static NONE: Life = Life {
            claim_id: None,
            settled: None,
            first_error: None,
            last_error: None,
            attempts: None,
            saved: None,
            tokens: Tokens::NONE,
            follower: None,
        };
        self.0.as_deref().unwrap_or(&NONE)
    }
}

/// Takes room, even if nothing is written to it.
impl DerefMut for Sparse {
    fn deref_mut(&mut self) -> &mut Life {
        self.0.get_or_insert_default()
    }
}

/// What takes the place of a message.
#[derive(Clone, Debug)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(deny_unknown_fields)
)]
pub(super) struct Next {
    pub(super) message: NewMessage,
    pub(super) digest: u64,
    /// When the first update came that it stems from, or the message that it replaces.
    pub(super) enqueued_at: Timestamp,
    pub(super) due: Timestamp,
    pub(super) expires_at: Option<Timestamp>,
}

/// The latest save of a message, with the parts of earlier ones that it has left out.
#[derive(Clone, Debug)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(deny_unknown_fields)
)]
struct Saved {
    /// The lease under which it was made.
    epoch: u64,
    save: Save,
}

/// The index that contains a message. Whether a waiting one is scheduled or ready depends on the
/// clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "snake_case", deny_unknown_fields)
)]
pub(super) enum Place {
    Waiting,
    /// The lane of its group. It was due when it got there, and stays ready if the clock steps
    /// back.
    Lane,
    Leased {
        deadline: Timestamp,
        cancel_requested: bool,
    },
    Dead {
        reason: DeathReason,
        since: Timestamp,
    },
}

/// An [`Outcome`] without its details.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "snake_case", deny_unknown_fields)
)]
pub(super) enum OutcomeKind {
    Ack,
    Retry,
    Undecodable,
    Snooze,
    Release,
    Reject,
}

impl Outcome {
    pub(super) const fn kind(&self) -> OutcomeKind {
        match self {
            Self::Ack => OutcomeKind::Ack,
            Self::Retry { .. } => OutcomeKind::Retry,
            Self::Undecodable { .. } => OutcomeKind::Undecodable,
            Self::Snooze { .. } => OutcomeKind::Snooze,
            Self::Release => OutcomeKind::Release,
            Self::Reject { .. } => OutcomeKind::Reject,
        }
    }

    /// Returns how an attempt with this outcome ended, which did not succeed.
    pub(super) const fn of_attempt(&self) -> AttemptOutcome {
        match self {
            Self::Undecodable { .. } => AttemptOutcome::Undecodable,
            Self::Reject { .. } => AttemptOutcome::Rejected,
            _ => AttemptOutcome::Failed,
        }
    }

    /// Returns the reason of the death if this failure is the last one allowed.
    pub(super) const fn last_failure(&self) -> DeathReason {
        match self {
            Self::Undecodable { .. } => DeathReason::Undecodable,
            _ => DeathReason::MaxFailures,
        }
    }
}

impl Entry {
    pub(super) fn new(now: Timestamp, sequence: u64, digest: u64, message: &NewMessage) -> Self {
        Self {
            id: message.id.clone(),
            sequence,
            enqueued_at: now,
            expires_at: message.expires.map(|expires| expires.instant(now)),
            digest,
            group: message.group.clone(),
            priority: message.priority,
            max_failures: message.max_failures,
            max_crashes: message.max_crashes,
            headers: (!message.headers.is_empty()).then(|| Box::new(message.headers.clone())),
            // A copy is smaller than a share of the request's buffer.
            payload: Bytes::copy_from_slice(&message.payload),
            due: message.schedule.instant(now),
            epoch: 0,
            failures: 0,
            crashes: 0,
            life: Sparse::default(),
            has_slot: false,
            place: Place::Waiting,
        }
    }

    /// The message that takes the place of this one. It keeps what is remembered of the id: its
    /// latest lease, how that was settled, and the tokens.
    pub(super) fn succeeded_by(self, sequence: u64, next: &Next) -> Self {
        Self {
            expires_at: next.expires_at,
            due: next.due,
            epoch: self.epoch,
            life: self.life.of_successor(),
            ..Self::new(next.enqueued_at, sequence, next.digest, &next.message)
        }
    }

    /// Returns the number of the group's lane.
    pub(super) fn lane(&self) -> u64 {
        self.group.as_ref().map_or(Turns::NO_GROUP, Group::lane)
    }

    /// Returns the message's key in its index: an instant, or the number of the lane, and the
    /// sequence number.
    pub(super) fn key(&self) -> (Timestamp, u64) {
        let instant = match self.place {
            Place::Waiting => self.due,
            Place::Lane => return self.slot_key(),
            Place::Leased { deadline, .. } => deadline,
            Place::Dead { since, .. } => since,
        };
        (instant, self.number())
    }

    /// Returns its key among the holders of slots, and in its lane.
    pub(super) fn slot_key(&self) -> (Timestamp, u64) {
        (Timestamp::from_ms(self.lane()).unwrap_or_default(), self.number())
    }

    /// Returns the sequence number, as it stands in indexes.
    fn number(&self) -> u64 {
        let of_groups = if self.group.is_some() { Position::OF_GROUPS } else { 0 };
        self.sequence | of_groups
    }

    pub(super) fn state(&self, now: Timestamp) -> MessageState {
        match self.place {
            Place::Waiting if self.due > now => MessageState::Scheduled,
            Place::Waiting | Place::Lane => MessageState::Ready,
            Place::Leased { deadline, cancel_requested } => {
                MessageState::Leased { deadline, cancel_requested }
            }
            Place::Dead { reason, since } => MessageState::Dead { reason, since },
        }
    }

    fn headers(&self) -> Headers {
        self.headers.as_deref().cloned().unwrap_or_default()
    }

    /// Returns what a relay hands over.
    pub(super) fn element(&self) -> Element {
        Element {
            id: self.id.clone(),
            due: self.due,
            headers: self.headers(),
            payload: self.payload.clone(),
        }
    }

    pub(super) const fn cancel_requested(&self) -> bool {
        matches!(self.place, Place::Leased { cancel_requested: true, .. })
    }

    /// Whether `lease` is the latest lease, whether current or ended.
    pub(super) fn was_leased_as(&self, lease: Lease) -> bool {
        self.life.claim_id == Some(lease.claim_id) && self.epoch == lease.epoch
    }

    /// Whether the settlement of its latest lease made it a dead letter.
    pub(super) fn died_of_settlement(&self) -> bool {
        use DeathReason::{MaxFailures, Rejected, Undecodable};
        matches!(self.place, Place::Dead { reason: MaxFailures | Rejected | Undecodable, .. })
    }

    /// Notes an attempt, and keeps the first and the latest error. An empty text is no error.
    pub(super) fn note_attempt(&mut self, at: Timestamp, outcome: AttemptOutcome, error: &str) {
        self.life.attempts.get_or_insert_default().note(Attempt::new(at, outcome, error));
        if error.is_empty() {
            return;
        }
        self.life.first_error.get_or_insert_with(|| error.into());
        self.life.last_error = Some(error.into());
    }

    /// Keeps what the holder of its latest lease saves, unless a newer save of that lease is kept.
    pub(super) fn save(&mut self, save: &Save) {
        let mut save = save.clone();
        if let Some(kept) = self.life.saved.take() {
            if kept.epoch == self.epoch && kept.save.number >= save.number {
                self.life.saved = Some(kept);
                return;
            }
            save.progress = save.progress.or(kept.save.progress);
            save.checkpoint = save.checkpoint.or(kept.save.checkpoint);
        }
        self.life.saved = Some(Box::new(Saved { epoch: self.epoch, save }));
    }

    /// The bytes of a delivery that count towards a batch: payload, headers and saves.
    pub(super) fn delivered_bytes(&self) -> usize {
        let saved = self.life.saved.as_ref().map_or(0, |saved| saved.save.bytes());
        self.payload.len() + self.headers.as_deref().map_or(0, Headers::encoded_len) + saved
    }

    pub(super) fn delivery(&self, now: Timestamp) -> Delivery {
        let claim_id = self.life.claim_id.unwrap_or(ClaimId::from_bytes([0; ClaimId::BYTES]));
        Delivery { message: self.message(now), lease: Lease { claim_id, epoch: self.epoch } }
    }

    pub(super) fn message(&self, now: Timestamp) -> Message {
        Message {
            info: self.info(now),
            headers: self.headers(),
            payload: self.payload.clone(),
            follower: None,
            attempts: Vec::new(),
            checkpoint: self.life.saved.as_ref().and_then(|saved| saved.save.checkpoint.clone()),
            behind: None,
            group_held_until: None,
        }
    }

    /// Returns the message with its follower and its attempts, as look-ups show it.
    pub(super) fn looked_up(&self, now: Timestamp) -> Message {
        Message {
            follower: self.life.follower.as_deref().map(Next::shown),
            attempts: self.life.attempts.iter().flat_map(|it| it.as_slice()).cloned().collect(),
            ..self.message(now)
        }
    }

    pub(super) fn info(&self, now: Timestamp) -> MessageInfo {
        MessageInfo {
            id: self.id.clone(),
            state: self.state(now),
            group: self.group.clone(),
            priority: self.priority,
            sequence: self.sequence,
            enqueued_at: self.enqueued_at,
            due: self.due,
            expires_at: self.expires_at,
            epoch: self.epoch,
            failures: self.failures,
            crashes: self.crashes,
            max_failures: self.max_failures,
            max_crashes: self.max_crashes,
            payload_bytes: self.payload.len(),
            first_error: self.life.first_error.as_deref().map(str::to_owned),
            last_error: self.life.last_error.as_deref().map(str::to_owned),
            holder: self.holder(),
            progress: self.life.saved.as_ref().and_then(|saved| saved.save.progress.clone()),
        }
    }

    /// The process that holds the message.
    fn holder(&self) -> Option<ProcessId> {
        let is_leased = matches!(self.place, Place::Leased { .. });
        self.life.claim_id.filter(|_| is_leased).map(|claim_id| claim_id.process())
    }
}

impl Next {
    /// A message as it is due and expires if it is created now.
    pub(super) fn new(now: Timestamp, digest: u64, message: &NewMessage) -> Self {
        Self {
            message: message.clone(),
            digest,
            enqueued_at: now,
            due: message.schedule.instant(now),
            expires_at: message.expires.map(|expires| expires.instant(now)),
        }
    }

    pub(super) fn shown(&self) -> Follower {
        Follower {
            enqueued_at: self.enqueued_at,
            due: self.due,
            expires_at: self.expires_at,
            group: self.message.group.clone(),
            priority: self.message.priority,
            payload_bytes: self.message.payload.len(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::State;
    use super::*;
    use crate::Op;

    #[test]
    fn a_message_that_waits_takes_little_memory() {
        let mut state = State::new();
        let id = MessageId::try_from("a").unwrap();
        let message = NewMessage::new(id.clone(), "payload");
        state.apply(Timestamp::MIN, &Op::Enqueue(vec![message]));
        assert!(state.entries.get(&id).unwrap().life.0.is_none());
        assert!(size_of::<Entry>() <= 176, "{}", size_of::<Entry>());
    }
}
