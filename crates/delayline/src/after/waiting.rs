//! How a message is made to wait.

use std::collections::HashSet;

use bytes::Bytes;
use delayline_core::limits::{MAX_DELAY_MS, MAX_PAYLOAD_BYTES};
use delayline_core::{Group, Headers, Known, MessageId, NewMessage, Priority, Schedule, Violation};
use uuid::Uuid;

use super::member::{Member, Waiting};
use super::wire;
use crate::error::millis;

impl Waiting {
    /// Makes a message of the contract wait, as [`Draft::after`](crate::Draft::after) does. Members
    /// of other queues must be of the connection of its queue, and those of its queue must be named
    /// without it. The members are stored behind the payload, and the message gets its own group.
    ///
    /// # Errors
    ///
    /// [`Violation`] if there are too many members, if the message waits for itself, or if it has a
    /// group, a priority, a due time, an update or a throttle. The message may be changed then.
    pub fn put(&self, message: &mut NewMessage) -> Result<(), Violation> {
        let reason = if message.group.is_some() {
            "a message that waits for others has its own group; leave the group out"
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
    pub(crate) fn of(headers: &Headers, payload: &Bytes) -> Result<Option<(Bytes, Self)>, String> {
        Ok(wire::read(headers, payload)?.map(|read| (read.payload, read.waiting)))
    }
}

/// The group of a waiting message, in which it is alone.
fn own_group(id: &MessageId) -> Result<Group, Violation> {
    Group::new(format!("after:{}", Uuid::new_v5(&GROUPS, id.as_bytes())))
}

/// The namespace of the groups of waiting messages.
const GROUPS: Uuid = Uuid::from_u128(0x1b0c_9e6d_40a7_4f53_8f0e_6c5d_92ab_7e31);
