//! Ready messages, for claims and relays.

use super::entry::{Entry, Place};
use super::index::up_to;
use super::turns::Turns;
use super::{Changes, Index, State};
use crate::limits::{MAX_BATCH_BYTES, MAX_BURIALS, MAX_LOOK_AHEAD};
use crate::{Death, DeathReason, MessageId, Position, Priority, Timestamp};

impl State {
    /// Removes ready messages, up to `max` and the bytes of a batch, and makes expired ones dead
    /// letters.
    #[expect(clippy::vec_box, reason = "they go back into the map of boxes")]
    pub(super) fn take_ready(
        &mut self,
        now: Timestamp,
        max: usize,
        deaths: &mut Vec<Death>,
        changes: &mut Changes,
    ) -> Vec<Box<Entry>> {
        let mut taken = Vec::new();
        let (mut bytes, mut buried, mut passed) = (0, 0, 0);
        let by_turns = self.look_ahead(now, max, changes);
        while taken.len() < max && buried < MAX_BURIALS {
            let next = self.next_ready(now, by_turns, MAX_LOOK_AHEAD - passed);
            let Some(mut entry) = next.id.as_ref().and_then(|id| self.remove(id)) else {
                changes.any |= next.passed > 0;
                self.serve(now, &next);
                break;
            };
            if entry.expires_at.is_some_and(|expires_at| expires_at <= now) {
                buried += 1;
                entry.place = self.bury(now, DeathReason::Expired);
                deaths.push(Death { id: entry.id.clone(), reason: DeathReason::Expired });
                self.insert(entry);
            } else {
                bytes += entry.content_bytes();
                if bytes > MAX_BATCH_BYTES && !taken.is_empty() {
                    self.insert(entry);
                    break;
                }
                taken.push(entry);
            }
            passed += next.passed;
            self.serve(now, &next);
            changes.any = true;
        }
        taken
    }

    /// Moves due messages with a group into their lanes, unless this claim can take all that is
    /// ready. Returns whether groups take turns.
    fn look_ahead(&mut self, now: Timestamp, max: usize, changes: &mut Changes) -> bool {
        let due: Vec<_> = up_to(&self.grouped, now).take(MAX_LOOK_AHEAD + 1).cloned().collect();
        let [urgent, high, normal, _] = &self.due;
        let before = [urgent, high, normal].map(|index| up_to(index, now).take(max + 1).count());
        let fits = due.is_empty() || due.len() + before.iter().sum::<usize>() <= max;
        if fits && self.turns.is_empty() {
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
            self.turns.join(entry.lane());
            self.insert(entry);
            changes.any = true;
        }
        true
    }

    /// Finds the next ready message: by priority, and among normal ones by turns of their groups,
    /// or else by due time. Passes over at most this many empty lanes.
    fn next_ready(&self, now: Timestamp, by_turns: bool, most: usize) -> NextReady {
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
            Turns::NO_GROUP => first(normal),
            lane => self.head(lane).cloned(),
        };
        let mut passed = 0;
        for lane in self.turns.all() {
            if passed == most {
                return found(None, passed, false);
            }
            if let Some(id) = next_of(lane) {
                return found(Some(id), passed, true);
            }
            passed += 1;
        }
        found(first(low), passed, false)
    }

    /// Gives the turn of a message that was taken to the next lane.
    fn serve(&mut self, now: Timestamp, next: &NextReady) {
        for _ in 0..next.passed {
            self.turns.leave();
        }
        if !next.is_turn {
            return;
        }
        let Some(lane) = self.turns.leave() else { return };
        let has_more = match lane {
            Turns::NO_GROUP => {
                let normal = &self.due[usize::from(Priority::Normal.level())];
                up_to(normal, now).next().is_some()
            }
            lane => self.head(lane).is_some(),
        };
        if has_more {
            self.turns.join(lane);
        }
    }

    /// The first message of a lane.
    pub(super) fn head(&self, lane: u64) -> Option<&MessageId> {
        let number = Timestamp::from_ms(lane).unwrap_or_default();
        let mut messages = self.lanes.range((number, 0)..=(number, u64::MAX));
        messages.next().map(|(_, id)| id)
    }
}

/// The message that comes next, if there is one.
struct NextReady {
    id: Option<MessageId>,
    /// How many empty lanes come before its turn.
    passed: usize,
    /// Whether it is the turn of a lane.
    is_turn: bool,
}
