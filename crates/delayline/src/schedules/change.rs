//! Changing a schedule while schedulers run, and the messages it has created ahead of time.

use std::collections::HashSet;

use delayline_core::{Completion, Enqueued, MessageId, MessageState, Status, UpdateContent};
use tokio::time::Instant;

use super::{PAUSED_MS, Put, Schedules, Spec, fire, first_due, ids};
use crate::queue::UpdateDue;
use crate::queue::lookups::completions;
use crate::{Error, Found};

impl Schedules {
    /// Completes a put, whose plain send had this outcome.
    pub(super) async fn complete(
        &self,
        name: &str,
        spec: &Spec,
        now: u64,
        outcome: Enqueued,
    ) -> Result<Put, Error> {
        let is_dead = match outcome {
            Enqueued::Created { .. } => return Ok(Put::Created),
            // Only a schedule that a scheduler holds can have a pending change.
            Enqueued::Duplicate { status: Status::Scheduled | Status::Ready } => {
                return self.complete_unchanged(name, spec, now).await;
            }
            Enqueued::Duplicate { status } | Enqueued::Conflict { status } => {
                status == Status::Dead
            }
            _ => return Err(Error::unexpected_reply()),
        };
        let Found::Live(message) = self.queue.get(name).await? else {
            return self.update(name, spec, first_due(spec, now), UpdateDue::Set).await;
        };
        let is_leaving = message.follower.is_some()
            || matches!(message.info.state, MessageState::Leased { cancel_requested: true, .. });
        if matches!(outcome, Enqueued::Duplicate { .. }) && !is_dead && !is_leaving {
            return self.complete_unchanged(name, spec, now).await;
        }
        let (old, old_due) = (message.payload, message.info.due.as_ms());
        let has_same_times = !is_dead && old.has_times_of(spec);
        if !is_dead && old_due >= PAUSED_MS {
            return self.update(name, spec, old_due, UpdateDue::Keep).await;
        }
        if has_same_times && old.queue_name() == spec.queue_name() {
            let put = self.update(name, spec, old_due, UpdateDue::Keep).await?;
            self.replace_ahead(name, spec).await?;
            return Ok(put);
        }
        // With the same instants, an overdue one is not lost.
        let due = first_due(spec, now);
        let due = if has_same_times { due.min(old_due) } else { due };
        // This comes first, because a scheduler creates messages as soon as the spec has changed.
        // Messages that it creates between the two calls are cancelled afterwards, except at
        // instants of the new spec.
        self.cancel_ahead(name, &old, None).await?;
        let put = self.update(name, spec, due, UpdateDue::Set).await;
        // Also if the scheduler still holds the schedule: a repeated put may not find the old spec.
        let cancelled = self.cancel_ahead(name, &old, Some(spec)).await;
        put.and_then(|put| cancelled.map(|()| put))
    }

    /// Completes a put that finds its spec in place. An earlier call may have ended after it had
    /// changed the spec, and before the messages created ahead of time.
    async fn complete_unchanged(&self, name: &str, spec: &Spec, now: u64) -> Result<Put, Error> {
        if spec.ahead(now).next().is_some() {
            self.replace_ahead(name, spec).await?;
        }
        Ok(Put::Unchanged)
    }

    /// Changes the spec, and waits for a scheduler that holds the old one.
    pub(super) async fn update(
        &self,
        name: &str,
        spec: &Spec,
        due: u64,
        how: UpdateDue,
    ) -> Result<Put, Error> {
        let update = self.draft(name, spec, due)?.update(UpdateContent::Replace, how);
        match update.send().await?.outcome {
            Enqueued::Created { .. } => return Ok(Put::Created),
            Enqueued::Following { .. } => self.settled(name).await?,
            _ => {}
        }
        Ok(Put::Changed)
    }

    /// Cancels the messages that a spec has created ahead of time, except at instants of the spec
    /// that has replaced it. If a later spec has the same instants, they get [other
    /// ids](ids::tick_id).
    pub(super) async fn cancel_ahead(
        &self,
        name: &str,
        spec: &Spec,
        replaced_by: Option<&Spec>,
    ) -> Result<(), Error> {
        if spec.lead_ms() == 0 {
            return Ok(());
        }
        let now = self.now().await?;
        let kept = replaced_by.filter(|new| new.queue_name() == spec.queue_name());
        let kept: HashSet<_> = kept.into_iter().flat_map(|new| new.ahead(now)).collect();
        let ids: Vec<_> = spec
            .ahead(now)
            .filter(|tick| !kept.contains(tick))
            .flat_map(|tick| (0..fire::MOST_REVISIONS).map(move |n| ids::tick_id(name, tick, n)))
            .collect();
        if !ids.is_empty() {
            self.target(spec.queue_name()).await?.cancel_many(ids).await?;
        }
        Ok(())
    }

    /// Gives the messages created ahead of time the content of a new spec. Messages due in the next
    /// seconds keep the old content: an update of a message that has just been handled would create
    /// it again.
    async fn replace_ahead(&self, name: &str, spec: &Spec) -> Result<(), Error> {
        if spec.lead_ms() == 0 {
            return Ok(());
        }
        let (now, begin) = (self.now().await?, Instant::now());
        for tick in self.outdated(name, spec, now).await? {
            let passed = u64::try_from(begin.elapsed().as_millis()).unwrap_or(u64::MAX);
            if tick > now.saturating_add(passed).saturating_add(TOO_LATE_MS) {
                self.replace(name, spec, tick).await?;
            }
        }
        Ok(())
    }

    /// The ticks after `now` of which a message has another content than that of the spec.
    async fn outdated(&self, name: &str, spec: &Spec, now: u64) -> Result<Vec<u64>, Error> {
        let ids =
            |tick| (0..fire::MOST_REVISIONS).map(move |n| (tick, ids::tick_id(name, tick, n)));
        let ahead: Vec<(u64, String)> = spec.ahead(now).flat_map(ids).collect();
        if ahead.is_empty() {
            return Ok(Vec::new());
        }
        let ids = ahead.iter().map(|(_, id)| MessageId::try_from(&**id));
        let ids = ids.collect::<Result<Vec<_>, _>>()?;
        let target = self.target(spec.queue_name()).await?;
        // Few of them exist, and contents are read in small batches.
        let known = completions(target.client(), &ids).await?;
        let waiting = ahead.into_iter().zip(known);
        let waiting = waiting.filter(|(_, known)| *known == Completion::Pending);
        let (mut ticks, ids): (Vec<_>, Vec<_>) = waiting.map(|(ahead, _)| ahead).unzip();
        let (payload, kind) = spec.content()?;
        let found = target.get_many(ids).await?;
        let mut are_outdated = found.into_iter().map(|found| {
            matches!(found, Found::Live(live) if live.payload != payload
                || live.headers.kind() != kind
                || live.info.group.as_ref() != spec.message_group())
        });
        ticks.retain(|_| are_outdated.next() == Some(true));
        ticks.dedup();
        Ok(ticks)
    }

    /// Gives the waiting message of a tick the content of a new spec. If there is none, it was
    /// cancelled, or a scheduler creates it with that content.
    async fn replace(&self, name: &str, spec: &Spec, tick: u64) -> Result<(), Error> {
        let ids = (0..fire::MOST_REVISIONS).map(|n| ids::tick_id(name, tick, n));
        for found in self.target(spec.queue_name()).await?.get_many(ids).await? {
            let Found::Live(live) = found else { continue };
            if matches!(live.info.state, MessageState::Scheduled | MessageState::Ready) {
                let draft = self.message(name, spec, tick).await?.id(live.info.id);
                let _ = draft.update(UpdateContent::Replace, UpdateDue::Keep).send().await?;
            }
        }
        Ok(())
    }
}

/// How long before its instant a message is no longer replaced.
const TOO_LATE_MS: u64 = 5_000;
