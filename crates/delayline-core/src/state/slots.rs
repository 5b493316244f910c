//! The slots of groups: how many of a group's messages are handled at once (G36), and in which
//! order (G37).

use super::entry::{Entry, Place};
use super::index::keys_of;
use super::turns::Turns;
use super::{Changes, State};
use crate::{MessageId, SetLimits, Timestamp};

impl State {
    /// The next message of a lane that a claim may lease, where `most` messages may hold slots of
    /// the group. In a queue in order, that is the holder of the slot, if there is one.
    pub(super) fn next_in_lane(&self, lane: u64, most: Option<usize>) -> Option<&MessageId> {
        let Some(most) = most else { return self.head(lane) };
        let mut holders = self.slots.range(keys_of(lane));
        if self.limiter.is_in_order() {
            return holders.next().map_or_else(|| self.head(lane), |(key, _)| self.lanes.get(key));
        }
        if holders.take(most).count() < most { self.head(lane) } else { None }
    }

    /// Lets a message that is about to be leased hold a slot of its group.
    pub(super) fn take_slot(&mut self, entry: &mut Entry) {
        if entry.group.is_some() && !entry.has_slot {
            entry.has_slot = true;
            self.slots.insert(entry.slot_key(), entry.id.clone());
        }
    }

    /// Frees a message's slot, if it has one: its group may have its turn again.
    pub(super) fn free_slot(&mut self, entry: &mut Entry) {
        if entry.has_slot {
            entry.has_slot = false;
            self.slots.remove(&entry.slot_key());
            self.turns.unblock(entry.lane());
        }
    }

    /// Frees the slot of a message whose lease has ended, or which has died. In a queue in order, a
    /// message keeps its slot until it ends.
    pub(super) fn look_at_slot(&mut self, entry: &mut Entry) {
        if !self.limiter.is_in_order() || matches!(entry.place, Place::Dead { .. }) {
            self.free_slot(entry);
        }
    }

    /// Changes the limits of the queue. All lanes get a turn, and the next claims meet the new
    /// limits. If the rule for slots changes, slots that are held now do not count.
    pub(super) fn set_limits(
        &mut self,
        now: Timestamp,
        set: &SetLimits,
        changes: &mut Changes,
    ) -> bool {
        let (in_order, most) = (self.limiter.is_in_order(), self.limiter.slots_of_group());
        changes.any = self.limiter.set(now, set);
        if most != self.limiter.slots_of_group() || in_order != self.limiter.is_in_order() {
            self.turns.unblock_all();
        }
        if self.limiter.slots_of_group().is_none() || in_order != self.limiter.is_in_order() {
            for id in std::mem::take(&mut self.slots).into_values() {
                self.entries.get_mut(&id).into_iter().for_each(|entry| entry.has_slot = false);
            }
        }
        changes.any
    }

    /// What becomes of the lane whose turn it is: it goes to the end of the ring, waits for a slot,
    /// or leaves the ring, since it has no messages.
    pub(super) fn end_turn(&mut self, now: Timestamp, most: Option<usize>) {
        let Some(lane) = self.turns.leave() else { return };
        let has_next = match lane {
            Turns::NO_GROUP => self.first_normal(now).is_some(),
            lane => self.next_in_lane(lane, most).is_some(),
        };
        if has_next {
            self.turns.join(lane);
        } else if self.head(lane).is_some() {
            self.turns.block(lane);
        }
    }
}
