//! What holds between any two operations.

use super::entry::{Entry, Place};
use super::index::keys_of;
use super::{Index, State};
use crate::{DeathReason, Priority, Timestamp};

impl State {
    /// Checks that the queue's indexes, entries and counters agree (G1, G9, G22).
    ///
    /// # Errors
    ///
    /// A description of the violation. Only a defect of this library causes this; tests call it
    /// after every step.
    pub fn check_invariants(&self) -> Result<(), String> {
        let indexes = self.waiting().chain([&self.lanes, &self.leased, &self.dead]);
        let indexed: usize = indexes.map(Index::len).sum();
        if indexed != self.entries.len() {
            return Err(format!("{} entries, but {indexed} in indexes", self.entries.len()));
        }
        for entry in self.entries.values() {
            let id = &entry.id;
            let index = match entry.place {
                Place::Waiting if entry.group.is_some() => &self.grouped,
                Place::Waiting => &self.due[usize::from(entry.priority.level())],
                Place::Lane => &self.lanes,
                Place::Leased { .. } => &self.leased,
                Place::Dead { .. } => &self.dead,
            };
            if index.get(&entry.key()) != Some(id) {
                return Err(format!("{id} is not in the index that its place belongs to"));
            }
            if entry.life.follower.is_some() && !matches!(entry.place, Place::Leased { .. }) {
                return Err(format!("{id} has a follower, but no worker holds it"));
            }
            if entry.place == Place::Lane && !self.turns.contains(entry.lane()) {
                return Err(format!("{id} is in a lane that has no turn"));
            }
            if entry.has_slot != (self.slots.get(&entry.slot_key()) == Some(id)) {
                return Err(format!("{id} and its group disagree about its slot"));
            }
            let dead = matches!(entry.place, Place::Dead { .. });
            if !dead && (entry.failures >= entry.max_failures || entry.crashes >= entry.max_crashes)
            {
                return Err(format!("{id} is alive beyond its limits"));
            }
            if (entry.epoch == 0) != entry.life.claim_id.is_none() {
                return Err(format!(
                    "{id} has epoch {} and {:?}",
                    entry.epoch, entry.life.claim_id
                ));
            }
            if u64::from(entry.failures) + u64::from(entry.crashes) > entry.epoch {
                return Err(format!("{id} has failed or crashed more often than it was claimed"));
            }
            if entry.sequence == 0 || entry.sequence > self.totals.enqueued {
                return Err(format!("{id} has a sequence number that was never given"));
            }
        }
        let holders = self.entries.values().filter(|entry| entry.has_slot).count();
        if holders != self.slots.len() {
            return Err(format!("{holders} messages hold {} slots", self.slots.len()));
        }
        for lane in self.turns.blocked() {
            if self.slots.range(keys_of(lane)).next().is_none() {
                return Err(format!("lane {lane} waits for a slot that no message holds"));
            }
            if self.next_in_lane(lane, self.share(false)).is_some() {
                return Err(format!("lane {lane} waits for a slot, but may have its turn"));
            }
        }
        debug_assert_eq!(self.due.len(), Priority::ALL.len());
        self.check_totals()?;
        self.check_history()
    }

    /// Checks the totals: what happened to messages adds up to the messages that there are.
    fn check_totals(&self) -> Result<(), String> {
        let totals = &self.totals;
        let count = |n: usize| u64::try_from(n).unwrap_or(u64::MAX);
        let accounted = count(self.entries.len())
            + totals.acked
            + totals.cancelled
            + totals.purged
            + totals.relayed
            + totals.replaced;
        if accounted != totals.enqueued {
            return Err(format!("{} enqueued, {accounted} accounted for", totals.enqueued));
        }
        // A message that was cancelled or replaced was waiting, leased or dead, which is not
        // counted.
        let may_be_cancelled = |what, began: u64, ended: u64| {
            if (ended..=ended + totals.cancelled + totals.replaced).contains(&began) {
                return Ok(());
            }
            Err(format!("{began} {what}, {ended} of them ended, {} cancelled", totals.cancelled))
        };
        let given_back = totals.failed + totals.snoozed + totals.released + totals.died_rejected;
        let over = totals.acked + given_back + totals.crashed;
        may_be_cancelled("leases", totals.delivered(), count(self.leased.len()) + over)?;
        let left = totals.redriven + totals.purged;
        may_be_cancelled("deaths", totals.died(), count(self.dead.len()) + left)?;
        let of_entries = |number: fn(&Entry) -> u64| self.entries.values().map(number).sum::<u64>();
        for (what, counted, known) in [
            ("leases", totals.delivered() + self.skipped_epochs, of_entries(|entry| entry.epoch)),
            ("failures", totals.failed, of_entries(|entry| entry.failures.into())),
            ("crashes", totals.crashed, of_entries(|entry| entry.crashes.into())),
        ] {
            if counted < known {
                return Err(format!("{counted} {what}, but messages know of {known}"));
            }
        }
        for &reason in DeathReason::ALL {
            let is_such = |entry: &Entry| matches!(entry.place, Place::Dead { reason: why, .. } if why == reason);
            let dead = count(self.entries.values().filter(|&entry| is_such(entry)).count());
            if totals.died_of(reason) < dead {
                let name = reason.name();
                return Err(format!("{dead} died of {name}, {} counted", totals.died_of(reason)));
            }
        }
        Ok(())
    }

    /// Checks that each snapshot adds up, and that counters have only grown since.
    fn check_history(&self) -> Result<(), String> {
        for ring in [&self.minutes, &self.hours] {
            let mut points: Vec<_> = ring.all().collect();
            points.sort_by_key(|point| point.at);
            if points.last().is_some_and(|last| last.at > self.minute) {
                return Err(format!("a snapshot is later than the latest, {}", self.minute));
            }
            points.push(self.point(Timestamp::MAX));
            for point in &points {
                let live = point.scheduled + point.ready + point.leased + point.dead;
                let totals = &point.totals;
                let finished = totals.acked
                    + totals.cancelled
                    + totals.purged
                    + totals.relayed
                    + totals.replaced;
                if live + finished != totals.enqueued {
                    return Err(format!("the snapshot of {} does not add up", point.at));
                }
            }
            for pair in points.windows(2) {
                if pair[1].totals.has_fallen_since(&pair[0].totals) {
                    return Err(format!("a counter has fallen since {}", pair[0].at));
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Claim, ClaimId, ConsumerName, MessageId, Millis, NewMessage, Op};

    /// A queue with one message that has been claimed.
    fn sound() -> State {
        let mut state = State::new();
        let message = NewMessage::new(MessageId::new("a").unwrap(), "");
        state.apply(Timestamp::MIN, &Op::Enqueue(vec![message]));
        let claim = Claim::new(
            ConsumerName::new("w").unwrap(),
            ClaimId::from_bytes([1; 16]),
            1,
            Millis::MAX,
        );
        state.apply(Timestamp::MIN, &Op::Claim(claim));
        state
    }

    #[test]
    fn every_disagreement_is_found() {
        assert_eq!(sound().check_invariants(), Ok(()));
        let id = MessageId::new("a").unwrap();
        let broken = |harm: &dyn Fn(&mut State)| {
            let mut state = sound();
            harm(&mut state);
            state.check_invariants().unwrap_err()
        };
        let entry = |harm: fn(&mut Entry)| {
            let id = id.clone();
            broken(&move |state| {
                let mut harmed = state.entries.remove(&id).unwrap();
                harm(&mut harmed);
                state.entries.insert(harmed);
            })
        };
        assert!(broken(&|state| state.leased.clear()).contains("in indexes"));
        assert!(broken(&|state| state.turns.block(5)).contains("lane 5 waits for a slot"));
        assert!(broken(&|state| state.totals.enqueued += 1).contains("accounted for"));
        assert!(broken(&|state| state.totals.cancelled += 1).contains("accounted for"));
        assert!(entry(|entry| entry.place = Place::Waiting).contains("not in the index"));
        assert!(
            entry(|entry| entry.id = MessageId::new("b").unwrap()).contains("not in the index")
        );
        assert!(entry(|entry| entry.failures = entry.max_failures).contains("beyond its limits"));
        assert!(entry(|entry| entry.crashes = entry.max_crashes).contains("beyond its limits"));
        assert!(entry(|entry| entry.life.claim_id = None).contains("has epoch 1"));
        assert!(entry(|entry| (entry.failures, entry.crashes) = (1, 1)).contains("more often"));
        assert!(
            broken(&|state| state.totals.lateness[3] += 1).contains("2 leases, 1 of them ended")
        );
        assert!(broken(&|state| state.totals.lateness[0] -= 1).contains("0 leases, 1 of them"));
        assert!(broken(&|state| state.totals.died_expired += 1).contains("1 deaths, 0 of them"));
        assert!(broken(&|state| state.totals.redriven += 1).contains("0 deaths, 1 of them"));
        assert!(entry(|entry| entry.epoch = 2).contains("1 leases, but messages know of 2"));
        assert!(entry(|entry| entry.failures = 1).contains("0 failures, but messages know of 1"));
        assert!(entry(|entry| entry.crashes = 1).contains("0 crashes, but messages know of 1"));
        let mislabelled = broken(&|state| {
            let Some(mut entry) = state.remove(&id) else { return };
            let reason = DeathReason::Rejected;
            entry.place = Place::Dead { reason, since: Timestamp::MIN };
            state.insert(entry);
            (state.totals.crashed, state.totals.died_max_crashes) = (1, 1);
        });
        assert!(mislabelled.contains("1 died of rejected, 0 counted"), "{mislabelled}");
        let numbered = |sequence| {
            broken(&|state| {
                state.leased.clear();
                let Some(mut entry) = state.entries.remove(&id) else { return };
                entry.sequence = sequence;
                state.insert(entry);
            })
        };
        for sequence in [0, 2] {
            assert!(numbered(sequence).contains("never given"), "{sequence}");
        }
    }
}
