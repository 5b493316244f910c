//! What holds between any two operations.

use super::entry::Place;
use super::{Index, State};
use crate::Priority;

impl State {
    /// Checks that the queue's indexes, entries and counters agree (G1, G9, G22).
    ///
    /// # Errors
    ///
    /// What is wrong, in words. Never, unless this library has a defect; tests call it after every
    /// step.
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
        let accounted = live + self.acked + self.cancelled + self.purged;
        if accounted != self.sequence {
            return Err(format!("{} enqueued, {accounted} accounted for", self.sequence));
        }
        debug_assert_eq!(self.due.len(), Priority::ALL.len());
        Ok(())
    }
}
