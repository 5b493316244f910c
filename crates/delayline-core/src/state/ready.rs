//! Ready messages, for claims and relays.

use std::collections::HashSet;

use super::entry::{Entry, Place};
use super::index::{keys_of, up_to};
use super::slots::Share;
use super::turns::Turns;
use super::{Changes, Index, State};
use crate::limits::{MAX_BATCH_BYTES, MAX_BURIALS, MAX_LOOK_AHEAD};
use crate::{Death, DeathReason, MessageId, Position, Priority, Timestamp};

impl State {
    /// Removes ready messages, up to `max` and the bytes of a batch, and makes expired ones dead
    /// letters. Of each group it takes a share. A group of which it takes several keeps its turn
    /// until it has no more.
    #[expect(clippy::vec_box, reason = "they go back into the map of boxes")]
    pub(super) fn take_ready(
        &mut self,
        now: Timestamp,
        max: usize,
        share: Share,
        deaths: &mut Vec<Death>,
        changes: &mut Changes,
    ) -> Vec<Box<Entry>> {
        let (mut taken, mut freed) = (Vec::new(), Vec::new());
        let (mut bytes, mut buried, mut passed) = (0, 0, 0);
        let by_turns = self.look_ahead(now, max, share, changes);
        let mut keeps_turn = false;
        while taken.len() < max && buried < MAX_BURIALS {
            let next = self.next_ready(now, by_turns, share, MAX_LOOK_AHEAD - passed);
            let Some(mut entry) = next.id.as_ref().and_then(|id| self.remove(id)) else {
                changes.any |= next.passed > 0;
                (0..next.passed).for_each(|_| self.end_turn(now, share));
                break;
            };
            if entry.expires_at.is_some_and(|expires_at| expires_at <= now) {
                buried += 1;
                entry.place = self.bury(now, DeathReason::Expired);
                deaths.push(Death { id: entry.id.clone(), reason: DeathReason::Expired });
                if share != Share::All {
                    // It uses up a slot until the end of this call.
                    self.take_slot(&mut entry);
                    freed.push(entry.id.clone());
                } else {
                    self.free_slot(&mut entry);
                }
                self.insert(entry);
            } else {
                bytes += entry.delivered_bytes();
                if bytes > MAX_BATCH_BYTES && !taken.is_empty() {
                    self.insert(entry);
                    break;
                }
                if share != Share::All {
                    self.take_slot(&mut entry);
                }
                taken.push(entry);
            }
            passed += next.passed;
            (0..next.passed).for_each(|_| self.end_turn(now, share));
            if next.is_turn {
                keeps_turn = share == Share::Several && self.continues(share);
                if !keeps_turn {
                    self.end_turn(now, share);
                }
            }
            changes.any = true;
        }
        if keeps_turn {
            self.end_turn(now, share);
        }
        if share == Share::Several {
            let lanes: HashSet<_> = taken.iter().map(|entry| entry.lane()).collect();
            self.turns.block_all(&lanes);
        }
        for id in freed {
            let Some(mut entry) = self.remove(&id) else { continue };
            self.free_slot(&mut entry);
            self.insert(entry);
        }
        taken
    }

    /// Moves due messages with a group into their lanes, unless this claim can take all that is
    /// ready, and nothing limits groups. Returns whether groups take turns.
    fn look_ahead(
        &mut self,
        now: Timestamp,
        max: usize,
        share: Share,
        changes: &mut Changes,
    ) -> bool {
        changes.any |= self.turns.end_holds(now, MAX_LOOK_AHEAD);
        let due: Vec<_> = up_to(&self.grouped, now).take(MAX_LOOK_AHEAD + 1).cloned().collect();
        if due.is_empty() && self.turns.is_empty() {
            return false;
        }
        let [urgent, high, normal, _] = &self.due;
        let before = [urgent, high, normal].map(|index| up_to(index, now).take(max + 1).count());
        let fits = share == Share::All && due.len() + before.iter().sum::<usize>() <= max;
        // Where a lane is held or waits for a slot, its group gets nothing in another way either.
        let is_free = self.turns.blocked().next().is_none() && self.turns.first_hold().is_none();
        if fits && is_free && self.turns.is_empty() {
            return false;
        }
        if before[2] > 0 && !self.turns.contains(Turns::NO_GROUP) {
            self.turns.join(Turns::NO_GROUP);
            changes.any = true;
        }
        changes.unsorted = due.len() > MAX_LOOK_AHEAD;
        for id in due.iter().take(MAX_LOOK_AHEAD) {
            let Some(mut entry) = self.remove(id) else { continue };
            entry.place = Place::Lane;
            if entry.has_slot {
                // In a queue in order, its group waits for it.
                self.turns.unblock(entry.lane());
            }
            self.turns.join(entry.lane());
            self.insert(entry);
            changes.any = true;
        }
        true
    }

    /// Finds the next ready message: by priority, and among normal ones by turns of their groups,
    /// or else by due time. Passes over at most `farthest` lanes that have none.
    fn next_ready(
        &self,
        now: Timestamp,
        by_turns: bool,
        share: Share,
        farthest: usize,
    ) -> NextReady {
        let first = |index: &Index| up_to(index, now).next().cloned();
        let [urgent, high, normal, low] = &self.due;
        let found = |id, passed, is_turn| NextReady { id, passed, is_turn };
        if let Some(id) = first(urgent).or_else(|| first(high)) {
            return found(Some(id), 0, false);
        }
        if !by_turns {
            let heads = [normal, &self.grouped].into_iter().filter_map(|it| it.first_key_value());
            let due = heads.filter(|((due, _), _)| *due <= now);
            let next =
                due.min_by_key(|((due, sequence), _)| (*due, sequence % Position::OF_GROUPS));
            return found(next.map(|(_, id)| id.clone()).or_else(|| first(low)), 0, false);
        }
        let next_of = |lane| match lane {
            Turns::NO_GROUP => self.first_normal(now).cloned(),
            lane => self.next_in_lane(lane, share).cloned(),
        };
        let mut passed = 0;
        for lane in self.turns.ring().take(farthest) {
            if let Some(id) = next_of(lane) {
                return found(Some(id), passed, true);
            }
            passed += 1;
        }
        found(first(low).filter(|_| passed < farthest), passed, false)
    }

    /// Whether the group whose turn it is has another message for this call.
    fn continues(&self, share: Share) -> bool {
        let lane = self.turns.ring().next().filter(|lane| *lane != Turns::NO_GROUP);
        lane.is_some_and(|lane| self.next_in_lane(lane, share).is_some())
    }

    /// The first message without a group that is due and has normal priority.
    pub(super) fn first_normal(&self, now: Timestamp) -> Option<&MessageId> {
        up_to(&self.due[usize::from(Priority::Normal.level())], now).next()
    }

    /// The first message of a lane.
    pub(super) fn head(&self, lane: u64) -> Option<&MessageId> {
        self.lanes.range(keys_of(lane)).next().map(|(_, id)| id)
    }
}

/// The next ready message, if there is one.
struct NextReady {
    id: Option<MessageId>,
    /// How many lanes come before its turn that have none.
    passed: usize,
    /// Whether it is the turn of a lane.
    is_turn: bool,
}
