//! Enqueues that update what the queue knows of their id.

use super::entry::{Entry, Next, Place};
use super::index::up_to;
use super::{Changes, Finished, State};
use crate::known::Tokens;
use crate::limits::MAX_LOOK_AHEAD;
use crate::{
    Enqueued, FinishedIds, MessageId, NewMessage, Status, Timestamp, Update, UpdateContent,
};

impl State {
    /// Updates the message of an id: one that waits is changed, one that is leased gets a follower,
    /// one that is dead is replaced. If there is none, creates it.
    pub(super) fn update(
        &mut self,
        now: Timestamp,
        message: &NewMessage,
        update: Update,
        changes: &mut Changes,
    ) -> Enqueued {
        let digest = message.digest();
        let Some(mut entry) = self.remove(&message.id) else {
            let past = self.finished.get(now, &message.id).cloned();
            let reuses = message.finished_ids == FinishedIds::Reuse;
            if let Some(Finished { status, tokens, .. }) = &past
                && (!reuses || tokens.contain(update.token))
            {
                return Enqueued::Duplicate { status: *status };
            }
            let mut tokens = past.map(|past| past.tokens).unwrap_or_default();
            tokens.note(update.token);
            return self.create(now, message, digest, tokens, changes);
        };
        let status = entry.state(now).status();
        if entry.life.tokens.contain(update.token) {
            self.insert(entry);
            return Enqueued::Duplicate { status };
        }
        changes.any = true;
        entry.life.tokens.note(update.token);
        let next = Next::new(now, digest, message);
        match entry.place {
            Place::Waiting | Place::Lane => self.change(now, entry, next, update),
            Place::Leased { .. } => {
                let replaced = entry.life.follower.is_some();
                let follower = match entry.life.follower.take() {
                    None => next,
                    Some(earlier) => {
                        let schedule = message.schedule;
                        let since = earlier.enqueued_at;
                        let due = update.due_after(now, schedule, earlier.due, since);
                        let chosen = match update.content {
                            UpdateContent::Keep => *earlier,
                            UpdateContent::Replace => next,
                        };
                        Next { due, enqueued_at: since, ..chosen }
                    }
                };
                entry.life.follower = Some(Box::new(follower));
                self.insert(entry);
                Enqueued::Following { replaced }
            }
            Place::Dead { .. } => {
                if entry.died_of_settlement() {
                    entry.life.settled =
                        entry.life.settled.map(|(kind, _)| (kind, Some(Status::Dead)));
                }
                self.replace(entry, &next)
            }
        }
    }

    /// Creates a message whose id is free, unless it is throttled.
    pub(super) fn create(
        &mut self,
        now: Timestamp,
        message: &NewMessage,
        digest: u64,
        tokens: Tokens,
        changes: &mut Changes,
    ) -> Enqueued {
        if let Some(refused) = self.throttle(now, message) {
            return refused;
        }
        if let Some(window) = message.throttle
            && !self.windows.begin(now, &message.id, window)
        {
            return Enqueued::TooManyThrottled;
        }
        self.forget(now, &message.id, changes);
        self.totals.enqueued += 1;
        let mut entry = Box::new(Entry::new(now, self.totals.enqueued, digest, message));
        if tokens != Tokens::NONE {
            entry.life.tokens = tokens;
        }
        let due = entry.due;
        if entry.group.is_some() && due <= now && changes.into_lanes {
            entry.place = Place::Lane;
            self.turns.join(entry.lane());
        }
        self.insert(entry);
        changes.any = true;
        Enqueued::Created { due }
    }

    /// Whether messages of groups that are sent already due go to their lanes at once, because they
    /// could be behind a flood that no claim has moved to its lane yet. In a queue in order, the
    /// flood may hold earlier messages of the same group.
    pub(super) fn sends_into_lanes(&self, now: Timestamp) -> bool {
        let is_flood = || up_to(&self.grouped, now).nth(MAX_LOOK_AHEAD - 1).is_some();
        !self.limiter.is_in_order() && (self.turns.has_any() || is_flood())
    }

    /// Refuses a message that is throttled.
    pub(super) fn throttle(&self, now: Timestamp, message: &NewMessage) -> Option<Enqueued> {
        message.throttle?;
        self.windows.end(now, &message.id).map(|until| Enqueued::Throttled { until })
    }

    /// Forgets a finished message whose id is used again.
    pub(super) fn forget(&self, now: Timestamp, id: &MessageId, changes: &mut Changes) {
        if self.finished.get(now, id).is_some() {
            changes.reused.push(id.clone());
        }
    }

    /// Updates a removed message that waits.
    fn change(
        &mut self,
        now: Timestamp,
        mut entry: Box<Entry>,
        next: Next,
        update: Update,
    ) -> Enqueued {
        let due = update.due_after(now, next.message.schedule, entry.due, entry.enqueued_at);
        let is_same = entry.digest == next.digest && entry.expires_at == next.expires_at;
        if update.content == UpdateContent::Replace && !is_same {
            let enqueued_at = entry.enqueued_at;
            return self.replace(entry, &Next { due, enqueued_at, ..next });
        }
        let status = entry.state(now).status();
        let is_moved = entry.due != due;
        if is_moved {
            entry.place = Place::Waiting;
        }
        entry.due = due;
        self.insert(entry);
        if is_moved { Enqueued::Updated { due } } else { Enqueued::Duplicate { status } }
    }

    /// Puts another message in the place of a removed one that is not leased.
    fn replace(&mut self, mut entry: Box<Entry>, next: &Next) -> Enqueued {
        self.free_slot(&mut entry);
        self.totals.replaced += 1;
        self.totals.enqueued += 1;
        self.insert(Box::new(entry.succeeded_by(self.totals.enqueued, next)));
        Enqueued::Updated { due: next.due }
    }

    /// Puts a follower in the place of a removed message, whose lease has ended.
    pub(super) fn take_over(&mut self, now: Timestamp, entry: Entry, follower: Next) {
        self.totals.enqueued += 1;
        let due = follower.due.max(now);
        self.insert(Box::new(entry.succeeded_by(self.totals.enqueued, &Next { due, ..follower })));
    }
}
