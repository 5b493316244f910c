//! Calls, the server that executes them, and everything that can happen to them.

use std::borrow::Cow;
use std::time::Duration;

use delayline_core::{Applied, Error, ErrorKind, Message, Op, Reply};

use super::{Caller, Event, PATIENCE, Sleeper, Worker, World};
use crate::ledger::Violation;
use crate::met::Met;
use crate::story::{FaultKind, HEALED_AT, Ms, OutageKind};

impl World<'_> {
    /// The server executes an operation.
    pub(super) fn execute(&mut self, queue: usize, op: &Op) -> Result<Applied, Violation> {
        let now = self.clock();
        let op = &asking(op);
        let Some(hosted) = self.queues.get_mut(queue) else { return Err("no such queue".into()) };
        let (applied, hint) = hosted.state.apply_and_hint(now, op);
        hosted.state.check_invariants()?;
        if let Reply::Stats(stats) = hosted.state.apply(now, &Op::Stats).reply {
            let reply = &applied.reply;
            let met = &mut self.ledger.totals.met;
            let limited = hosted.limited.executed(now, op, reply, &stats)?;
            let state = &mut hosted.state;
            let said = hosted.grouped.executed(now, (op, reply), &stats.limits, state)?;
            met.note_many(Met::Limited, u64::from(limited));
            met.note_many(Met::InTurn, u64::from(said.turns));
            met.note_many(Met::OfLimitedGroups, u64::from(said.limited));
        }
        hosted.calls.note(self.now, op.clone().into_owned(), applied.clone());
        self.ledger.executed(self.now, queue, op, &applied)?;
        if let Reply::Claim(claimed) = &applied.reply {
            for delivery in &claimed.deliveries {
                self.no_other_holds(queue, &delivery.message, delivery.lease.epoch)?;
            }
        }
        if hint {
            self.ring(queue);
        }
        Ok(applied)
    }

    /// A message is leased anew: its previous handler knows that it is lost (G5, G7).
    pub(super) fn no_other_holds(
        &mut self,
        queue: usize,
        message: &Message,
        epoch: u64,
    ) -> Result<(), Violation> {
        if !self.story.clock_steps.is_empty() {
            return Ok(());
        }
        let id = &message.info.id;
        for process in self.processes.iter().filter(|process| process.frozen_until < self.now) {
            for (slot, handler) in &process.running {
                let holds = slot.queue() == queue && handler.id == *id;
                if !holds || handler.lease.epoch >= epoch {
                    continue;
                }
                self.ledger.totals.met.note(Met::Overtaken);
                if !handler.cancelled {
                    return Err(format!("two handlers have {id}, and the first knows nothing"));
                }
            }
        }
        Ok(())
    }

    pub(super) fn ring(&mut self, queue: usize) {
        self.hints += 1;
        if self.story.hints_lost > 0
            && self.hints.is_multiple_of(self.story.hints_lost)
            && self.now < HEALED_AT
        {
            self.disturbed(self.now);
            self.ledger.totals.met.note(Met::LostHint);
            return;
        }
        let Some(hosted) = self.queues.get_mut(queue) else { return };
        match hosted.sleepers.pop_front() {
            Some(Sleeper { worker, .. }) => {
                self.push(self.now + 1, Event::Waited { worker, queue, result: Ok(true) });
            }
            None => hosted.kept = true,
        }
    }

    /// Sends a call into whatever happens to it.
    pub(super) fn call(&mut self, caller: Caller, queue: usize, op: Op) {
        let number = self.ledger.totals.calls;
        self.ledger.totals.calls += 1;
        let (there, back) = (1 + self.rng.below(3), 1 + self.rng.below(3));
        let fault = self.fault(number, &op);
        if let Some(fault) = fault {
            self.ledger.totals.met.note(fault.into());
            self.disturbed(self.now + there + fault.lasts());
        }
        let mut execute_at = Some(self.now + there);
        let mut reply_in = Some(back);
        let mut failure = None;
        match fault {
            None => {}
            Some(FaultKind::Refused) => {
                (execute_at, failure) = (None, Some((1, ErrorKind::Unreachable)));
            }
            Some(FaultKind::Busy) => {
                (execute_at, failure) = (None, Some((there + back, ErrorKind::Busy)));
            }
            Some(FaultKind::Full) => {
                (execute_at, failure) = (None, Some((there + back, ErrorKind::OutOfMemory)));
            }
            Some(FaultKind::LostRequest) => {
                (execute_at, failure) = (None, Some((PATIENCE, ErrorKind::Timeout)));
            }
            Some(FaultKind::LostReply) => {
                (reply_in, failure) = (None, Some((there + back, ErrorKind::ConnectionLost)));
            }
            Some(FaultKind::SlowReply(time)) if there + time < PATIENCE => reply_in = Some(time),
            Some(FaultKind::SlowReply(_)) => {
                (reply_in, failure) = (None, Some((PATIENCE, ErrorKind::Timeout)));
            }
            Some(FaultKind::LateExecution(time)) => {
                execute_at = Some(self.now + there + time);
                if there + time + back >= PATIENCE {
                    (reply_in, failure) = (None, Some((PATIENCE, ErrorKind::Timeout)));
                }
            }
            Some(FaultKind::Repeated(time)) => {
                let op = op.clone();
                let again = Event::Execute { caller, queue, op, reply_in: None };
                self.push(self.now + there + time, again);
            }
        }
        if let Some((time, kind)) = failure {
            let (op, result) = (op.clone(), Err(Error::new(kind)));
            self.push(self.now + time, Event::Answer { caller, queue, op, result });
        }
        if let Some(at) = execute_at {
            self.push(at, Event::Execute { caller, queue, op, reply_in });
        }
    }

    pub(super) fn fault(&mut self, call: u64, op: &Op) -> Option<FaultKind> {
        if self.now >= HEALED_AT {
            return None;
        }
        let fault = self.story.faults.iter().find(|fault| fault.call == call);
        fault.map(|fault| fault.kind).or_else(|| {
            let takes_memory = matches!(op, Op::Enqueue(_) | Op::HandOff(_));
            let (outage, left) = self.outage()?;
            if outage == OutageKind::Full && !takes_memory {
                return None;
            }
            self.ledger.totals.met.note(outage.into());
            Some(match outage {
                OutageKind::Down => FaultKind::Refused,
                OutageKind::Silent => FaultKind::LostRequest,
                OutageKind::Deaf => FaultKind::LostReply,
                OutageKind::Frozen => FaultKind::LateExecution(left),
                OutageKind::Full => FaultKind::Full,
            })
        })
    }

    /// The current fault of all calls, and its end.
    pub(super) fn outage(&self) -> Option<(OutageKind, Ms)> {
        let lasts = |from, lasts| (from..from + lasts).contains(&self.now);
        let outage = self.story.outages.iter().find(|outage| lasts(outage.from, outage.lasts))?;
        Some((outage.kind, outage.from + outage.lasts - self.now))
    }

    /// The connections on which workers wait for hints are lost.
    pub(super) fn sever(&mut self) {
        self.disturbed(self.now);
        for queue in 0..self.queues.len() {
            let sleepers = self.queues.get_mut(queue).map(|queue| &mut queue.sleepers);
            for Sleeper { worker, .. } in sleepers.map(std::mem::take).unwrap_or_default() {
                let result = Err(Error::new(ErrorKind::ConnectionLost));
                self.ledger.totals.met.note(Met::LostWait);
                self.push(self.now + 1, Event::Waited { worker, queue, result });
            }
        }
    }

    pub(super) fn wait(&mut self, worker: Worker, queue: usize, timeout: Duration) {
        let timeout = Ms::try_from(timeout.as_millis()).unwrap_or(Ms::MAX);
        let failing = self.now < HEALED_AT
            && matches!(self.outage(), Some((OutageKind::Down | OutageKind::Silent, _)));
        if failing {
            self.disturbed(self.now);
            let result = Err(Error::new(ErrorKind::Unreachable));
            self.push(self.now + 1, Event::Waited { worker, queue, result });
            return;
        }
        let kept = self.queues.get_mut(queue).map(|queue| std::mem::take(&mut queue.kept));
        if kept == Some(true) {
            self.push(self.now + 1, Event::Waited { worker, queue, result: Ok(true) });
            return;
        }
        let ticket = self.serial + 1;
        self.push(self.now + timeout, Event::WaitOver { worker, queue, ticket });
        if let Some(queue) = self.queues.get_mut(queue) {
            // Those whose process is gone do not hear anything any more.
            let processes = &self.processes;
            queue.sleepers.retain(|sleeper| {
                let Worker { process, incarnation } = sleeper.worker;
                processes.get(process).is_some_and(|process| process.incarnation == incarnation)
            });
            queue.sleepers.push_back(Sleeper { worker, ticket });
        }
    }
}

/// Some claims ask for several messages of a group in order, as other consumers do.
fn asking(op: &Op) -> Cow<'_, Op> {
    match op {
        Op::Claim(claim) => {
            let bytes = claim.claim_id.as_bytes().iter();
            let several = bytes.fold(0_u8, |sum, byte| sum.wrapping_add(*byte)) % 4 == 0;
            Cow::Owned(Op::Claim(claim.clone().several_in_order(several)))
        }
        _ => Cow::Borrowed(op),
    }
}
