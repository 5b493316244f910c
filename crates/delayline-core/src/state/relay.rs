//! Relays.

use super::{Changes, State, first};
use crate::{Death, DestinationKey, Element, MessageId, Relay, Relayed, Status, Timestamp};

impl State {
    pub(super) fn relay(
        &mut self,
        now: Timestamp,
        relay: &Relay,
        changes: &mut Changes,
    ) -> Relayed {
        let mut deaths = Vec::new();
        let room = self.room(relay);
        // In a queue in order, messages behind an ended lease follow with the next relay.
        let waits = self.limiter.is_in_order() && first(&self.leased).is_some_and(|it| it <= now);
        let max = if waits { 0 } else { relay.max.min(room) };
        let ids = if self.paused {
            Vec::new()
        } else {
            self.hand_over(now, relay.to.key(), max, &mut deaths, changes)
        };
        self.reclaim(now, &mut deaths, changes);
        let next = self.next_deliverable(None);
        let is_due = next.is_some_and(|next| next <= now);
        let held_back = is_due && ids.len() >= room;
        let leases_limited = !self.paused && self.limiter.limits_leases();
        Relayed { ids, more: is_due && !held_back, held_back, leases_limited, next, deaths }
    }

    /// Returns how many more elements the destination takes.
    fn room(&self, relay: &Relay) -> usize {
        let length = self.destinations.get(relay.to.key()).map_or(0, Vec::len);
        let length = u64::try_from(length).unwrap_or(u64::MAX);
        let room = relay.to.limit().map(|limit| limit.saturating_sub(length));
        room.and_then(|room| usize::try_from(room).ok()).unwrap_or(usize::MAX)
    }

    /// Moves ready messages to the destination, and makes expired ones dead letters.
    fn hand_over(
        &mut self,
        now: Timestamp,
        to: &DestinationKey,
        max: usize,
        deaths: &mut Vec<Death>,
        changes: &mut Changes,
    ) -> Vec<MessageId> {
        let mut ids = Vec::new();
        let (admitted, caught_up) = self.limiter.admit(now, None);
        changes.any |= caught_up;
        let share = self.share_of_relay();
        for entry in self.take_ready(now, max.min(admitted), share, deaths, changes) {
            self.destinations.entry(to.clone()).or_default().push(entry.element());
            ids.push(entry.id.clone());
            self.finish(now, entry, Status::Relayed, None, changes);
        }
        self.limiter.spend(now, ids.len());
        ids
    }

    /// Takes all elements out of a destination, as its consumers would. Where a list and a stream
    /// have the same key, both are here, while a server refuses the second.
    pub fn take_relayed(&mut self, key: &DestinationKey) -> Vec<Element> {
        self.destinations.remove(key).unwrap_or_default()
    }
}
