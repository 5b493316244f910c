//! The slots of groups: how many of a group's messages are handled at once (G36), and in which
//! order (G37).

use super::entry::{Entry, Place};
use super::index::keys_of;
use super::turns::Turns;
use super::{Changes, State};
use crate::{MessageId, SetLimits, Timestamp};

/// How many messages of a group one call may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Share {
    /// Any number: groups have no limit, or the call is a relay of a queue without order.
    All,
    /// As many as slots of the group are free; this is the number of slots.
    Slots(usize),
    /// The next one in order.
    Next,
    /// Several in order, which hold the slot together.
    Several,
    /// Any number in order, in turns with other groups: the call is a relay, which ends them.
    Ended,
}

impl State {
    /// What a claim may take of each group.
    pub(super) fn share(&self, several_in_order: bool) -> Share {
        match self.limiter.slots_of_group() {
            None => Share::All,
            Some(_) if self.limiter.is_in_order() && several_in_order => Share::Several,
            Some(_) if self.limiter.is_in_order() => Share::Next,
            Some(most) => Share::Slots(most),
        }
    }

    /// What a relay may move of each group.
    pub(super) fn share_of_relay(&self) -> Share {
        if self.limiter.is_in_order() { Share::Ended } else { Share::All }
    }

    /// In a queue in order, messages with a slot precede the others, in their order. No message
    /// passes one that waits for its retry, and none is taken while another call has leased one.
    fn next_in_order(&self, lane: u64, share: Share) -> Option<&MessageId> {
        let mut next = None;
        for (_, id) in self.slots.range(keys_of(lane)) {
            match self.entries.get(id).map(|entry| entry.place) {
                Some(Place::Lane) => next = next.or(Some(id)),
                Some(Place::Waiting) if next.is_some() => {}
                // This call has taken it, or has made it a dead letter.
                None | Some(Place::Dead { .. }) if share != Share::Next => {}
                _ => return None,
            }
        }
        next.or_else(|| self.head(lane))
    }

    /// The next message of a lane that a call with this share may take.
    pub(super) fn next_in_lane(&self, lane: u64, share: Share) -> Option<&MessageId> {
        let holders = || self.slots.range(keys_of(lane));
        match share {
            Share::Slots(most) if holders().take(most).count() == most => None,
            Share::All | Share::Slots(_) => self.head(lane),
            Share::Next | Share::Several | Share::Ended => self.next_in_order(lane, share),
        }
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
            self.look_at_lane(entry.lane());
        }
    }

    /// Frees the slot of a message whose lease has ended, or which has died. In a queue in order, a
    /// message keeps its slot until it ends.
    pub(super) fn look_at_slot(&mut self, entry: &mut Entry) {
        if !self.limiter.is_in_order() || matches!(entry.place, Place::Dead { .. }) {
            self.free_slot(entry);
        } else if entry.has_slot {
            self.look_at_lane(entry.lane());
        }
    }

    /// Gives a lane its turn again after the end of a lease. In a queue in order, not before the
    /// first message that holds a slot is in the lane.
    fn look_at_lane(&mut self, lane: u64) {
        let mut holders = self.slots.range(keys_of(lane));
        if !self.limiter.is_in_order()
            || holders.next().is_none_or(|(key, _)| self.lanes.contains_key(key))
        {
            self.turns.unblock(lane);
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
                let Some(mut entry) = self.entries.remove(&id) else { continue };
                entry.has_slot = false;
                self.entries.insert(entry);
            }
        }
        changes.any
    }

    /// What becomes of the lane whose turn it is: it goes to the end of the ring, waits for a slot,
    /// or leaves the ring, since it has no messages.
    pub(super) fn end_turn(&mut self, now: Timestamp, share: Share) {
        let Some(lane) = self.turns.leave() else { return };
        let has_next = match lane {
            Turns::NO_GROUP => self.first_normal(now).is_some(),
            lane => self.next_in_lane(lane, share).is_some(),
        };
        if has_next {
            self.turns.join(lane);
        } else if self.head(lane).is_some() {
            self.turns.block(lane);
        }
    }
}
