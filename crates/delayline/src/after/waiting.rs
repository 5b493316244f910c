//! What a message waits for, as its sender says.

use std::collections::HashSet;
use std::time::Duration;

use bytes::Bytes;
use delayline_core::limits::{MAX_DELAY_MS, MAX_PAYLOAD_BYTES};
use delayline_core::{Group, Known, MessageId, NewMessage, Priority, Schedule, Violation};
use uuid::Uuid;

use super::member::{Member, OnFailure};
use super::wire;
use crate::error::millis;

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
}

impl Waiting {
    /// Maximum number of members of one message.
    pub const MAX_MEMBERS: usize = 10_000;

    /// The default of [`at_most`](Self::at_most): one day.
    pub const DEFAULT_AT_MOST: Duration = Duration::from_secs(86_400);

    /// Waits for nothing.
    #[must_use]
    pub const fn new() -> Self {
        Self { members: Vec::new(), on_failure: OnFailure::Wait, at_most: Self::DEFAULT_AT_MOST }
    }

    /// Makes the message wait: its members go behind its payload, and it gets a group of its own,
    /// with which workers hold it while it must not be looked at.
    ///
    /// Refuses what a waiting message cannot have.
    pub(crate) fn put(&self, message: &mut NewMessage) -> Result<(), Violation> {
        let reason = if message.group.is_some() {
            "a message that waits for others has a group of its own; leave it out"
        } else if message.priority != Priority::Normal {
            "a message that waits for others has normal priority"
        } else if message.schedule != Schedule::NOW {
            "a message that waits for others is due when they have ended; leave the due time out"
        } else if message.known != Known::Refuse || message.throttle.is_some() {
            "a message that waits for others is neither an update nor throttled"
        } else if self.members.iter().any(|it| it.queue.is_none() && it.id == message.id) {
            "it would wait for itself"
        } else {
            return self.put_into(message);
        };
        let (what, value) = ("the waiting message", message.id.to_string());
        Err(Violation::Malformed { what, value, reason: reason.to_owned() })
    }

    fn put_into(&self, message: &mut NewMessage) -> Result<(), Violation> {
        millis("wait_at_most: the duration in ms", self.at_most, 1..=MAX_DELAY_MS)?;
        let mut seen = HashSet::new();
        let is_new = |it: &&Member| seen.insert((it.queue.clone(), it.id.clone()));
        let members: Vec<_> = self.members.iter().filter(is_new).cloned().collect();
        let (actual, limit) = (members.len(), Self::MAX_MEMBERS);
        if actual > limit {
            let (what, unit) = ("the list of members", "items");
            return Err(Violation::TooLong { what, unit, actual, limit });
        }
        let waiting = Self { members, ..self.clone() };
        wire::write(&waiting, message)?;
        let (actual, limit) = (message.payload.len(), MAX_PAYLOAD_BYTES);
        if actual > limit {
            let (what, unit) = ("the payload with the ids of the members", "bytes");
            return Err(Violation::TooLong { what, unit, actual, limit });
        }
        message.group = Some(own_group(&message.id)?);
        Ok(())
    }

    /// Separates the payload of a message from what it waits for; `None` if it waits for nothing.
    ///
    /// # Errors
    ///
    /// A text if the stored list of members cannot be read.
    pub fn of(
        headers: &delayline_core::Headers,
        payload: &Bytes,
    ) -> Result<Option<(Bytes, Self)>, String> {
        Ok(wire::read(headers, payload)?.map(|read| (read.payload, read.waiting)))
    }
}

impl Default for Waiting {
    fn default() -> Self {
        Self::new()
    }
}

/// The group of a waiting message, in which it is alone.
fn own_group(id: &MessageId) -> Result<Group, Violation> {
    Group::new(format!("after:{}", Uuid::new_v5(&GROUPS, id.as_bytes())))
}

/// The namespace of the groups of waiting messages.
const GROUPS: Uuid = Uuid::from_u128(0x1b0c_9e6d_40a7_4f53_8f0e_6c5d_92ab_7e31);
