//! Ready messages, for claims and relays.

use super::entry::Entry;
use super::index::up_to;
use super::{Changes, State};
use crate::limits::{MAX_BATCH_BYTES, MAX_BURIALS};
use crate::{Death, DeathReason, Timestamp};

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
        let (mut bytes, mut buried) = (0, 0);
        while taken.len() < max && buried < MAX_BURIALS {
            let ready = self.due.iter().find_map(|index| up_to(index, now).next());
            let Some(mut entry) = ready.cloned().and_then(|id| self.remove(&id)) else {
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
            changes.any = true;
        }
        taken
    }
}
