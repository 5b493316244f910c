//! What holds between any two operations.

use super::entry::Place;
use super::{Index, State};
use crate::Priority;

impl State {
    /// Checks that the queue's indexes, entries and counters agree (G1, G9, G22).
    ///
    /// # Errors
    ///
    /// A description of what is wrong. Only a defect of this library causes this; tests call it
    /// after every step.
    pub fn check_invariants(&self) -> Result<(), String> {
        let indexes = self.due.iter().chain([&self.leased, &self.dead]);
        let indexed: usize = indexes.map(Index::len).sum();
        if indexed != self.entries.len() {
            return Err(format!("{} entries, but {indexed} in indexes", self.entries.len()));
        }
        for (id, entry) in &self.entries {
            let index = match entry.place {
                Place::Waiting => &self.due[usize::from(entry.priority.level())],
                Place::Leased { .. } => &self.leased,
                Place::Dead { .. } => &self.dead,
            };
            if index.get(&entry.key()) != Some(id) || entry.id != *id {
                return Err(format!("{id} is not in the index that its place belongs to"));
            }
            let dead = matches!(entry.place, Place::Dead { .. });
            if !dead && (entry.failures >= entry.max_failures || entry.crashes >= entry.max_crashes)
            {
                return Err(format!("{id} is alive beyond its limits"));
            }
            if (entry.epoch == 0) != entry.claim_id.is_none() {
                return Err(format!("{id} has epoch {} and {:?}", entry.epoch, entry.claim_id));
            }
            if u64::from(entry.failures) + u64::from(entry.crashes) > entry.epoch {
                return Err(format!("{id} has failed or crashed more often than it was claimed"));
            }
            if entry.sequence == 0 || entry.sequence > self.sequence {
                return Err(format!("{id} has a sequence number that was never given"));
            }
        }
        let live = u64::try_from(self.entries.len()).unwrap_or(u64::MAX);
        let accounted = live + self.acked + self.cancelled + self.purged + self.relayed;
        if accounted != self.sequence {
            return Err(format!("{} enqueued, {accounted} accounted for", self.sequence));
        }
        debug_assert_eq!(self.due.len(), Priority::ALL.len());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Claim, ClaimId, ConsumerName, MessageId, Millis, NewMessage, Op, Timestamp};

    /// A queue with one message that has been claimed.
    fn sound() -> State {
        let mut state = State::new();
        let message = NewMessage::new(MessageId::new("a").unwrap(), "");
        state.apply(Timestamp::MIN, &Op::Enqueue(vec![message]));
        let claim = Claim {
            consumer: ConsumerName::new("w").unwrap(),
            claim_id: ClaimId::from_bytes([1; 16]),
            max: 1,
            lease: Millis::MAX,
        };
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
        let entry = |harm: fn(&mut super::super::Entry)| {
            let id = id.clone();
            broken(&move |state| state.entries.get_mut(&id).into_iter().for_each(harm))
        };
        assert!(broken(&|state| state.leased.clear()).contains("in indexes"));
        assert!(broken(&|state| state.sequence += 1).contains("accounted for"));
        assert!(broken(&|state| state.cancelled += 1).contains("accounted for"));
        assert!(entry(|entry| entry.place = Place::Waiting).contains("not in the index"));
        assert!(
            entry(|entry| entry.id = MessageId::new("b").unwrap()).contains("not in the index")
        );
        assert!(entry(|entry| entry.failures = entry.max_failures).contains("beyond its limits"));
        assert!(entry(|entry| entry.crashes = entry.max_crashes).contains("beyond its limits"));
        assert!(entry(|entry| entry.claim_id = None).contains("has epoch 1"));
        assert!(entry(|entry| (entry.failures, entry.crashes) = (1, 1)).contains("more often"));
        let numbered = |sequence| {
            broken(&|state| {
                state.leased.clear();
                let Some(entry) = state.entries.get_mut(&id) else { return };
                entry.sequence = sequence;
                let key = entry.key();
                state.leased.insert(key, id.clone());
            })
        };
        for sequence in [0, 2] {
            assert!(numbered(sequence).contains("never given"), "{sequence}");
        }
    }
}
