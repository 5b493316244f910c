//! Workers: their actions, and the faults that hit them.

use std::num::NonZeroU16;
use std::time::Duration;

use delayline_core::worker::{Action, Machine, Plan, QueuePlan, Slot, Summary};
use delayline_core::{
    ConsumerName, Extend, Lease, Limits, MessageId, Millis, NewMessage, NewResult, Op, Outcome,
    Reply, Schedule,
};

use super::{BASE, Caller, Event, PATIENCE, Worker, World, count, number_of};
use crate::ledger::Violation;
use crate::met::Met;
use crate::process::{Handler, Process};
use crate::story::{Answer, HEALED_AT, Handling, Ms, Outage, OutageKind, WoundKind};

impl World<'_> {
    pub(super) fn start(&mut self, process: usize) {
        let plan = self.plan();
        let seed = self.rng.seed();
        if let Some(process) = self.processes.get_mut(process)
            && process.machine.is_none()
        {
            process.machine = Some(Machine::new(plan, seed));
            process.room_since = Some(self.now);
        }
    }

    pub(super) fn plan(&mut self) -> Plan {
        let lease = Millis::saturating(self.story.lease);
        let max_lease_age = self.story.max_lease_age.map(Duration::from_millis);
        let name = format!("worker-{:016x}", self.rng.next());
        let queue = |number: usize| QueuePlan {
            consumer: ConsumerName::new(name.clone())
                .unwrap_or_else(|error| unreachable!("{error}")),
            lease,
            weight: NonZeroU16::MIN.saturating_add(u16::try_from(number).unwrap_or(0)),
            most: usize::MAX,
            cancel_within: None,
            max_lease_age,
            stuck_after: None,
            has_parts: false,
        };
        let queues = (0..self.story.queues).map(queue).collect();
        Plan { slots: self.story.slots, queues, until_empty: false }
    }

    pub(super) fn wound(&mut self, number: usize) {
        let now = self.moment();
        let Some(wound) = self.story.wounds.get(number) else { return };
        let index = wound.worker % self.story.workers;
        match wound.kind {
            WoundKind::Crash { .. } => self.disturbed(self.now),
            WoundKind::Freeze { lasts } => self.disturbed(self.now + lasts),
            WoundKind::Stop { .. } => {}
        }
        let Some(process) = self.processes.get_mut(index) else { return };
        match wound.kind {
            WoundKind::Crash { restart_after } => {
                let met = u64::from(process.end() > 0);
                self.ledger.totals.met.note_many(Met::Crash, met);
                self.push(self.now + restart_after, Event::Start(index));
            }
            WoundKind::Freeze { lasts } => {
                let until = (self.now + lasts).min(HEALED_AT);
                process.frozen_until = process.frozen_until.max(until);
                let late = process.frozen_until + LONGEST_END;
                process.stops_by = process.stops_by.map(|by| by.max(late));
                let met = u64::from(!process.running.is_empty());
                self.ledger.totals.met.note_many(Met::Freeze, met);
                self.push(until, Event::Look);
            }
            WoundKind::Stop { grace } => {
                if let Some(machine) = &mut process.machine {
                    let met = u64::from(!process.running.is_empty());
                    self.ledger.totals.met.note_many(Met::Stop, met);
                    machine.handle_stop(now.after(Duration::from_millis(grace)));
                    process.room_since = None;
                    let by = process.frozen_until.max(self.now + grace) + LONGEST_END;
                    process.stops_by = process.stops_by.or(Some(by));
                }
            }
        }
    }

    /// Lets a process do all that it wants to do now.
    pub(super) fn drive(&mut self, index: usize) -> Result<(), Violation> {
        let now = self.moment();
        let Some(process) = self.processes.get_mut(index) else { return Ok(()) };
        if process.frozen_until > self.now {
            return Ok(());
        }
        let worker = Worker { process: index, incarnation: process.incarnation };
        while let Some(action) = self.machine(index).and_then(|machine| machine.poll(now)) {
            self.perform(worker, action)?;
        }
        let is_over = |machine: &mut Machine| machine.is_over(now).then(|| machine.summary());
        if let Some(summary) = self.machine(index).and_then(is_over) {
            if self.closing && summary.unsettled > 0 {
                return Err(format!("a worker has ended and left {summary:?}"));
            }
            let Some(process) = self.processes.get_mut(index) else { return Ok(()) };
            if process.handled + count(process.running.len()) > all(&summary) {
                return Err(format!("{} handlers have ended: {summary:?}", process.handled));
            }
            process.end();
            // A worker that ends cancels its waits; a worker that crashes leaves them.
            for queue in &mut self.queues {
                queue.sleepers.retain(|sleeper| sleeper.worker != worker);
            }
            if !self.closing {
                self.push(self.now, Event::Start(index));
            }
        }
        let stops_by = self.processes.get(index).and_then(|process| process.stops_by);
        if stops_by.is_some_and(|by| by < self.now) {
            return Err(format!("worker {index} should have stopped by {stops_by:?}"));
        }
        Ok(())
    }

    pub(super) fn perform(&mut self, worker: Worker, action: Action) -> Result<(), Violation> {
        self.note(|| format!("{worker:?} wants {action:?}"));
        match action {
            Action::Send { queue, op } => {
                self.check_call(worker.process, queue, &op)?;
                self.call(Caller::Worker(worker), queue, op);
            }
            Action::Wait { queue, timeout } => {
                self.check_pace(worker.process)?;
                self.wait(worker, queue, timeout);
            }
            Action::Ring { queue } => {
                self.push(self.now + 1, Event::Rung { worker, queue });
                // A full server takes hints.
                if self.outage().is_none_or(|(outage, _)| outage == OutageKind::Full) {
                    self.ring(queue);
                }
            }
            Action::Start { slot, delivery, .. } => {
                let info = &delivery.message.info;
                let set_back = self.story.clock_steps.iter().any(|step| step.by < 0);
                let clock = (!set_back).then(|| self.clock());
                self.ledger.started(slot.queue(), &info.id, delivery.lease, info.due, clock)?;
                self.is_in_time(slot.queue(), &info.id)?;
                self.begin(worker, slot, &info.id.clone(), delivery.lease);
                let running = self.processes.get(worker.process).map_or(0, |p| p.running.len());
                if running == self.story.slots {
                    self.ledger.totals.met.note(Met::LastSlot);
                }
                if running > self.story.slots {
                    return Err(format!("{running} handlers in {} slots", self.story.slots));
                }
            }
            Action::Cancel { slot, .. } => {
                let process = self.processes.get_mut(worker.process);
                if let Some(handler) = process.and_then(|process| process.running.get_mut(&slot)) {
                    handler.cancelled = true;
                    if handler.heeds_token {
                        self.push(self.now + 1, Event::Finished { worker, slot });
                    }
                }
            }
            Action::Abort { slot } => {
                let dropped =
                    Outcome::Retry { schedule: Schedule::NOW, error: "dropped".to_owned() };
                self.finish(worker.process, slot, Some(dropped));
            }
            Action::Stuck { .. } | Action::LateClaim { .. } | Action::SettledLate { .. } => {}
        }
        Ok(())
    }

    /// A message that a worker could have had is not late (G21), once the faults have ended and
    /// their effects are made up for.
    fn is_in_time(&mut self, queue: usize, id: &MessageId) -> Result<(), Violation> {
        let now = self.clock();
        let Some(hosted) = self.queues.get_mut(queue) else { return Ok(()) };
        if let Reply::Stats(stats) = hosted.state.apply(now, &Op::Stats).reply
            && stats.limits != Limits::default()
        {
            return Ok(());
        }
        let over_at = hosted.limited.over_at;
        let (changed_at, ready_at) = self.ledger.ready_since(queue, id);
        let ready_at = ready_at.max(Some(over_at)).map_or(0, |at| {
            at.as_ms().saturating_sub(BASE).saturating_add_signed(-self.clock_offset)
        });
        let calm_since = self.disturbed_until.map_or(0, |until| until + self.recovery());
        let ready_since = changed_at.max(ready_at).max(calm_since);
        let bound = if self.story.queues == 1 { PROMPT } else { PROMPT_AMONG_QUEUES };
        let room = |process: &Process| process.room_since.is_some_and(|at| at + bound < self.now);
        if !self.processes.iter().any(room) {
            return Ok(());
        }
        if ready_since + bound < self.now {
            return Err(format!("{id} is {} ms late, with free slots", self.now - ready_since));
        }
        if self.story.is_peaceful() {
            self.ledger.totals.met.note(Met::Prompt);
        } else if self.disturbed_until.is_some() && calm_since + bound < self.now {
            self.ledger.totals.met.note(Met::PromptAgain);
        }
        Ok(())
    }

    /// How long the effects of what went wrong may last.
    fn recovery(&self) -> Ms {
        if self.story.is_peaceful() {
            return MADE_UP_FOR;
        }
        // A failed call is retried, a lease whose reply was lost expires, and the next poll makes
        // up for a lost hint.
        let poll = POLL.max(POLL * count(self.story.queues) / 2);
        PATIENCE + LONGEST_PAUSE + self.story.lease + poll + MADE_UP_FOR
    }

    pub(super) fn begin(&mut self, worker: Worker, slot: Slot, id: &MessageId, lease: Lease) {
        let number = number_of(id);
        let step = usize::try_from(lease.epoch.saturating_sub(1)).unwrap_or(usize::MAX);
        let handling = self.story.sends.get(number).and_then(|send| send.handlings.get(step));
        let at_once =
            Handling { runs: Some(1), answer: Answer::Ack, follow_ups: 0, heeds_token: true };
        let handling = handling.filter(|_| self.now < HEALED_AT).unwrap_or(&at_once);
        let Handling { runs, answer, follow_ups, heeds_token } = *handling;
        if let Some(runs) = runs {
            self.push(self.now + runs, Event::Finished { worker, slot });
        }
        let id = id.clone();
        let handler = Handler { id, lease, answer, follow_ups, heeds_token, cancelled: false };
        if let Some(process) = self.processes.get_mut(worker.process) {
            process.running.insert(slot, handler);
            process.note_room(self.now, self.story.slots);
        }
    }

    /// Ends a handler, with its own outcome unless another is given.
    pub(super) fn finish(&mut self, process: usize, slot: Slot, outcome: Option<Outcome>) {
        let Some(process) = self.processes.get_mut(process) else { return };
        let Some(handler) = process.running.remove(&slot) else { return };
        process.handled += 1;
        process.note_room(self.now, self.story.slots);
        let Handler { id, lease, answer, follow_ups, .. } = handler;
        // A handler that is dropped has said nothing.
        let follow_ups = if outcome.is_some() { 0 } else { follow_ups };
        let outcome = outcome.unwrap_or_else(|| answer.into());
        let messages = (0..follow_ups).map(|n| NewMessage::new(follow_up_of(&id, lease, n), ""));
        let messages: Vec<_> = messages.collect();
        let has_result = follow_ups > 0 && outcome == Outcome::Ack;
        let result = has_result.then(|| NewResult::new("done", RESULT_RETENTION));
        if follow_ups > 0 {
            process.handed_off.insert((slot.queue(), id.clone(), lease));
        }
        let answer = (outcome.clone(), messages.clone(), result.clone());
        self.ledger.answered(slot.queue(), &id, lease, answer);
        if let Some(machine) = &mut process.machine {
            machine.handle_finished(slot, outcome, messages, result, None);
        }
    }

    /// What no worker may ask for.
    pub(super) fn check_call(
        &mut self,
        process: usize,
        queue: usize,
        op: &Op,
    ) -> Result<(), Violation> {
        op.validate().map_err(|error| format!("an invalid {}: {error}", op.name()))?;
        self.check_pace(process)?;
        let Some(process) = self.processes.get_mut(process) else { return Ok(()) };
        let (running, slots) = (process.running.len(), self.story.slots);
        if running > slots {
            return Err(format!("{running} handlers in {slots} slots"));
        }
        match op {
            // A repeated claim may have lent its slots.
            Op::Claim(claim)
                if process.claims.insert(claim.claim_id) && claim.max + running > slots =>
            {
                Err(format!("a claim of {} while {running} of {slots} run", claim.max))
            }
            Op::Extend(Extend { leases, .. }) => {
                // A full server may refuse a hand-off for long.
                let runs = |id: &MessageId, lease| {
                    if process.handed_off.contains(&(queue, id.clone(), lease)) {
                        return true;
                    }
                    let running = process.running.iter().filter(|(slot, _)| slot.queue() == queue);
                    running.map(|(_, handler)| handler).any(|h| h.id == *id && h.lease == lease)
                };
                match leases.iter().find(|(id, lease)| !runs(id, *lease)) {
                    Some((id, _)) => Err(format!("{id} is prolonged after its handler has ended")),
                    None => Ok(()),
                }
            }
            _ => Ok(()),
        }
    }

    /// While everything fails, a worker makes at most four calls of each kind per second.
    pub(super) fn check_pace(&mut self, process: usize) -> Result<(), Violation> {
        let broken_since = |outage: &Outage| {
            self.now >= outage.from + 1_000 && self.now < outage.from + outage.lasts
        };
        let fails = |kind| !matches!(kind, OutageKind::Frozen | OutageKind::Full);
        let mut outages = self.story.outages.iter().filter(|outage| fails(outage.kind));
        // While two overlap, the server is as in the first.
        let broken =
            self.outage().is_some_and(|(kind, _)| fails(kind)) && outages.any(broken_since);
        let limit = 24 * count(self.story.queues);
        let Some(process) = self.processes.get_mut(process) else { return Ok(()) };
        let second = self.now / 1_000;
        if process.pace.0 != second || !broken {
            process.pace = (second, 0);
        }
        process.pace.1 += 1;
        self.ledger.totals.met.note_many(Met::Outlasting, u64::from(broken));
        if process.pace.1 > limit {
            return Err(format!("{} calls in a second of a broken server", process.pace.1));
        }
        Ok(())
    }
}

/// The id of a message that follows from a handling.
fn follow_up_of(id: &MessageId, lease: Lease, number: usize) -> MessageId {
    MessageId::try_from(format!("{id}-{}-{number}", lease.epoch).as_str())
        .unwrap_or_else(|error| unreachable!("{error}"))
}

impl From<Answer> for Outcome {
    fn from(answer: Answer) -> Self {
        let error = || "failed".to_owned();
        match answer {
            Answer::Ack => Self::Ack,
            Answer::Retry(delay) => {
                Self::Retry { schedule: Schedule::In(Millis::saturating(delay)), error: error() }
            }
            Answer::Undecodable(delay) => Self::Undecodable {
                schedule: Schedule::In(Millis::saturating(delay)),
                error: error(),
            },
            Answer::Snooze(delay) => {
                Self::Snooze { schedule: Schedule::In(Millis::saturating(delay)) }
            }
            Answer::Release => Self::Release,
            Answer::Reject => Self::Reject { error: error() },
        }
    }
}

impl Process {
    /// Notes since when there has been room for one more handler.
    fn note_room(&mut self, now: Ms, slots: usize) {
        if self.stops_by.is_some() || self.running.len() >= slots {
            self.room_since = None;
        } else if self.room_since.is_none() {
            self.room_since = Some(now);
        }
    }
}

/// How many messages a worker has accounted for.
const fn all(summary: &Summary) -> u64 {
    let Summary { acked, failed, rejected, cancelled, snoozed, released, .. } = *summary;
    let settled = acked + failed + rejected + cancelled + snoozed + released;
    settled + summary.lost + summary.unclear + summary.unsettled
}

/// How long a worker may take after its grace.
const LONGEST_END: Ms = 10_000;
/// A few round trips, and the longest pause of a worker whose handlers give everything back.
const PROMPT: Ms = 130;
/// With several queues a worker looks at those it did not hear after half a second.
const PROMPT_AMONG_QUEUES: Ms = 600;
/// How long two mild faults may keep a message.
const MADE_UP_FOR: Ms = 1_500;
/// How long the results of handlers are kept.
const RESULT_RETENTION: Millis = Millis::saturating(3_600_000);
/// Maximum time between two polls of a queue.
const POLL: Ms = delayline_core::limits::WORKER_POLL_MS;
/// Between the tries of a call that fails.
const LONGEST_PAUSE: Ms = 2_000;
