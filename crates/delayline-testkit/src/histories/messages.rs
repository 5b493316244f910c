//! What a history means for each message, without the model.

use std::collections::HashMap;

use delayline_core::{
    Cancelled, Claim, Claimed, Delivery, Enqueued, Extended, Lease, MessageId, NewMessage, Op,
    Outcome, Purged, Redriven, Reply, Rescheduled, Settled, Settlement, Status, Timestamp,
};

use super::call::Call;
use super::groups::Groups;
use crate::oracle;

/// Follows every message through the calls, in execution order.
pub(super) fn check<'a>(order: impl IntoIterator<Item = &'a Call>) -> Result<(), String> {
    let mut books = Books::default();
    for (n, call) in order.into_iter().enumerate() {
        books.enter(call).map_err(|reason| format!("call {n}, {:?}: {reason}", call.op))?;
    }
    books.close()
}

/// Every message ever created, by its id.
#[derive(Default)]
struct Books {
    lives: HashMap<MessageId, Life>,
    groups: Groups,
    created: u64,
    deliveries: u64,
    /// The latest instant so far.
    latest: Timestamp,
    /// Whether any message was updated.
    updated: bool,
    /// Whether the latest counters showed a drained queue.
    drained: bool,
}

/// The known facts about a message.
struct Life {
    message: NewMessage,
    due: Timestamp,
    /// The latest lease and its deadline, unless its end was observed.
    lease: Option<(Lease, Timestamp)>,
    claims: u64,
    /// Claims since the latest redrive that were not released or snoozed.
    attempts: u32,
    cancel_requested: bool,
    dead: bool,
    ended: bool,
    /// The contents of the updates of this message. The model judges their effects on due times,
    /// limits and counters.
    updates: Vec<NewMessage>,
    /// Whether an update has followed it. The moment when it takes its place may be unseen, and so
    /// nothing more is said here about the end of either; the model has it.
    followed: bool,
}

impl Books {
    fn enter(&mut self, call: &Call) -> Result<(), String> {
        // A lease that has expired stays expired after the clock is set back.
        self.latest = self.latest.max(call.applied.at);
        let at = call.applied.at;
        self.groups.enter(call, self.latest)?;
        match (&call.op, &call.applied.reply) {
            (Op::Enqueue(messages), Reply::Enqueue(answers)) => self.enqueue(messages, answers),
            (Op::HandOff(items), Reply::HandOff(answers)) => {
                items.iter().zip(answers).try_for_each(|(item, answer)| match answer.settled {
                    Settled::Done { status } => {
                        self.settle(at, &item.settlement, status)?;
                        self.enqueue(&item.messages, &answer.messages)
                    }
                    _ if answer.messages.is_empty() => Ok(()),
                    _ => Err(format!("G31: {} sent messages", item.settlement.id)),
                })
            }
            (Op::Claim(claim), Reply::Claim(claimed)) => self.deliver_all(at, claim, claimed),
            (Op::Relay(_), Reply::Relay(relayed)) => {
                relayed.ids.iter().try_for_each(|id| self.relay(at, id))
            }
            (Op::Settle(items), Reply::Settle(answers)) => self.settle_all(at, items, answers),
            (Op::Extend(extend), Reply::Extend(answers)) => {
                extend.leases.iter().zip(answers).try_for_each(|((id, lease), answer)| {
                    if let Extended::Done { deadline, .. } = answer {
                        let life = self.live(id)?;
                        life.held_as(*lease)?;
                        life.lease = Some((*lease, *deadline));
                    }
                    Ok(())
                })
            }
            (Op::Cancel(ids), Reply::Cancel(answers)) => {
                for (id, answer) in ids.iter().zip(answers) {
                    if let Some(life) = self.lives.get_mut(id) {
                        life.ended |= *answer == Cancelled::Cancelled;
                        life.cancel_requested |= *answer == Cancelled::InFlight;
                    }
                }
                Ok(())
            }
            (Op::Purge(ids), Reply::Purge(answers)) => {
                for (id, answer) in ids.iter().zip(answers) {
                    if let Some(life) = self.lives.get_mut(id) {
                        life.ended |= *answer == Purged::Purged;
                    }
                }
                Ok(())
            }
            (Op::Redrive(redrive), Reply::Redrive(answers)) => {
                redrive.ids.iter().zip(answers).try_for_each(|(id, answer)| {
                    if let Redriven::Done { due } = answer {
                        let life = self.live(id)?;
                        life.put_back(*due);
                        (life.attempts, life.dead) = (0, false);
                    }
                    Ok(())
                })
            }
            (Op::Reschedule(items), Reply::Reschedule(answers)) => {
                items.iter().zip(answers).try_for_each(|(item, answer)| {
                    if let Rescheduled::Done { due } = answer {
                        self.live(&item.id)?.put_back(*due);
                    }
                    Ok(())
                })
            }
            (Op::List(list), Reply::List(page)) if list.status == Status::Dead => {
                for info in &page.messages {
                    self.live(&info.id)?.dead = true;
                }
                Ok(())
            }
            (Op::Stats, Reply::Stats(counts)) => {
                self.drained = oracle::is_drained(counts);
                let updated = self.updated && counts.totals.enqueued >= self.created;
                if updated || counts.totals.enqueued == self.created {
                    return Ok(());
                }
                Err(format!(
                    "G22: {} were created, {} counted",
                    self.created, counts.totals.enqueued
                ))
            }
            (Op::Check(_), Reply::Check(checked)) if !checked.findings.is_empty() => {
                Err(format!("G22: the audit found {:?}", checked.findings))
            }
            _ => Ok(()),
        }
    }

    fn create(&mut self, message: &NewMessage, due: Timestamp) -> Result<(), String> {
        // A cancelled message may end unobserved, when its lease expires.
        let known = self.lives.get(&message.id);
        if known.is_some_and(|life| !life.ended && !life.cancel_requested && !life.followed) {
            return Err(format!("G14: {} was created twice", message.id));
        }
        self.created += 1;
        let life = Life {
            message: message.clone(),
            due,
            lease: None,
            claims: 0,
            attempts: 0,
            cancel_requested: false,
            dead: false,
            ended: false,
            updates: Vec::new(),
            followed: false,
        };
        self.lives.insert(message.id.clone(), life);
        Ok(())
    }

    fn deliver_all(
        &mut self,
        at: Timestamp,
        claim: &Claim,
        claimed: &Claimed,
    ) -> Result<(), String> {
        claimed.deliveries.iter().try_for_each(|delivery| self.deliver(at, claim, delivery))
    }

    fn deliver(&mut self, at: Timestamp, claim: &Claim, delivery: &Delivery) -> Result<(), String> {
        self.deliveries += 1;
        let latest = self.latest;
        // In its lane, a message stays ready when the clock is set back.
        let shown = if delivery.message.info.group.is_some() { latest } else { at };
        let id = &delivery.message.info.id;
        let life = self.live(id)?;
        let is_this = |content: &NewMessage| {
            delivery.message.payload == content.payload
                && delivery.message.headers == content.headers
        };
        if !is_this(&life.message) && !life.updates.iter().any(is_this) {
            return Err(format!("G2: {id} was delivered with different content"));
        }
        let lease = delivery.lease;
        match life.lease {
            // A repeated claim.
            Some((held, _)) if held == lease => return Ok(()),
            Some((held, deadline)) if deadline > latest => {
                return Err(format!("G5: {id} is leased as {held:?} until {deadline}"));
            }
            // Ended or expired.
            None | Some(_) => {}
        }
        if shown < life.due {
            return Err(format!("G4: {id} is due at {} and came at {at}", life.due));
        }
        life.claims += 1;
        life.attempts += 1;
        if lease != (Lease { claim_id: claim.claim_id, epoch: life.claims }) {
            return Err(format!("G6: {id} was leased as {lease:?} at its claim {}", life.claims));
        }
        let (failures, crashes) = (life.message.max_failures, life.message.max_crashes);
        if life.updates.is_empty() && life.attempts >= failures + crashes {
            return Err(format!("G9: {id} was delivered {} times", life.attempts));
        }
        life.lease = Some((lease, at.after(claim.lease)));
        Ok(())
    }

    fn relay(&mut self, at: Timestamp, id: &MessageId) -> Result<(), String> {
        self.deliveries += 1;
        let latest = self.latest;
        let life = self.live(id)?;
        match life.lease {
            Some((held, deadline)) if deadline > latest => {
                return Err(format!("G5: {id} is leased as {held:?} until {deadline}"));
            }
            None | Some(_) => {}
        }
        let shown = if life.message.group.is_some() { latest } else { at };
        if shown < life.due {
            return Err(format!("G4: {id} is due at {} and was moved at {at}", life.due));
        }
        life.ended = true;
        Ok(())
    }

    fn enqueue(&mut self, messages: &[NewMessage], answers: &[Enqueued]) -> Result<(), String> {
        messages.iter().zip(answers).try_for_each(|(message, answer)| {
            match answer {
                Enqueued::Created { due } => self.create(message, *due)?,
                Enqueued::Updated { .. } | Enqueued::Following { .. } => {
                    let follows = matches!(answer, Enqueued::Following { .. });
                    self.updated = true;
                    let life = self.live(&message.id)?;
                    life.updates.push(message.clone());
                    (life.due, life.attempts) = (Timestamp::MIN, 0);
                    life.followed |= follows;
                    life.dead &= follows;
                }
                Enqueued::Duplicate { .. }
                | Enqueued::Conflict { .. }
                | Enqueued::Throttled { .. }
                | Enqueued::TooManyThrottled => {}
                other => return Err(format!("{other:?} is not known here")),
            }
            Ok(())
        })
    }

    fn settle_all(
        &mut self,
        at: Timestamp,
        items: &[Settlement],
        answers: &[Settled],
    ) -> Result<(), String> {
        items.iter().zip(answers).try_for_each(|(item, answer)| match answer {
            Settled::Done { status } => self.settle(at, item, *status),
            _ => Ok(()),
        })
    }

    fn settle(&mut self, at: Timestamp, item: &Settlement, status: Status) -> Result<(), String> {
        let life = self.live(&item.id)?;
        life.held_as(item.lease)?;
        life.lease = None;
        if life.followed {
            return Ok(());
        }
        life.ended = matches!(status, Status::Acked | Status::Cancelled);
        match &item.outcome {
            // An update may have reset them.
            Outcome::Release => life.attempts = life.attempts.saturating_sub(1),
            Outcome::Snooze { schedule } => {
                life.attempts = life.attempts.saturating_sub(1);
                life.due = schedule.instant(at);
            }
            Outcome::Retry { schedule, .. } | Outcome::Undecodable { schedule, .. }
                if status != Status::Dead =>
            {
                life.due = schedule.instant(at);
            }
            Outcome::Retry { .. }
            | Outcome::Undecodable { .. }
            | Outcome::Ack
            | Outcome::Reject { .. } => {}
            other => return Err(format!("{other:?} is not known here")),
        }
        Ok(())
    }

    /// Returns a message that may be delivered or settled.
    fn live(&mut self, id: &MessageId) -> Result<&mut Life, String> {
        match self.lives.get_mut(id) {
            None => Err(format!("G2: {id} was never created")),
            Some(life) if life.ended => Err(format!("G1: {id} has ended before")),
            Some(life) => Ok(life),
        }
    }

    fn close(&self) -> Result<(), String> {
        if !self.drained {
            return Err("G21: the history does not end with a drained queue".to_owned());
        }
        for (id, life) in &self.lives {
            if !life.ended && !life.dead && !life.cancel_requested && !life.followed {
                return Err(format!("G1: {id} was lost"));
            }
        }
        if self.deliveries == 0 {
            return Err("nothing was delivered, so nothing was tested".to_owned());
        }
        Ok(())
    }
}

impl Life {
    fn held_as(&self, lease: Lease) -> Result<(), String> {
        match self.lease {
            Some((held, _)) if held == lease => Ok(()),
            held => Err(format!("G6: {} is leased as {held:?}, not {lease:?}", self.message.id)),
        }
    }

    /// The message was seen without a lease: what followed has taken its place.
    const fn put_back(&mut self, due: Timestamp) {
        (self.due, self.lease, self.followed) = (due, None, false);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use delayline_core::{
        ClaimId, ConsumerName, Known, List, Millis, Redrive, Schedule, State, Update,
        UpdateContent, UpdateDue, UpdateToken,
    };

    use super::*;

    /// A message that an update followed, and that was redriven at 10 ms.
    fn redriven(then: impl IntoIterator<Item = (u64, Op)>) -> Vec<Call> {
        let id = id();
        let update =
            Update::new(UpdateContent::Replace, UpdateDue::Set, UpdateToken::from_bytes([1; 8]));
        let follower = NewMessage::new(id.clone(), "").known(Known::Update(update));
        let reject = |claim| settle(claim, claim, Outcome::Reject { error: String::new() });
        let ops = [
            (0, Op::Enqueue(vec![NewMessage::new(id.clone(), "")])),
            (0, claim(1)),
            (0, Op::Enqueue(vec![follower])),
            (0, reject(1)),
            (0, claim(2)),
            (0, reject(2)),
            (0, Op::List(List::new(Status::Dead, 1))),
            (10, Op::Redrive(Redrive::new(vec![id], Schedule::NOW))),
        ];
        let mut state = State::new();
        let calls = ops.into_iter().chain(then).map(|(ms, op)| {
            let applied = state.apply(Timestamp::from_ms(ms).unwrap(), &op);
            Call { called: Duration::ZERO, returned: Duration::ZERO, op, applied }
        });
        calls.collect()
    }

    fn id() -> MessageId {
        MessageId::try_from("a").unwrap()
    }

    fn claim(n: u8) -> Op {
        let (consumer, id) = (ConsumerName::new("c").unwrap(), ClaimId::from_bytes([n; 16]));
        Op::Claim(Claim::new(consumer, id, 1, Millis::saturating(5)))
    }

    fn settle(claim: u8, epoch: u8, outcome: Outcome) -> Op {
        let lease = Lease { claim_id: ClaimId::from_bytes([claim; 16]), epoch: epoch.into() };
        Op::Settle(vec![Settlement::new(id(), lease, outcome)])
    }

    #[test]
    fn a_redriven_message_that_is_lost_is_found() {
        let mut calls = redriven([(10, Op::Stats)]);
        // As if it was acked meanwhile.
        if let Some(Reply::Stats(stats)) = calls.last_mut().map(|call| &mut call.applied.reply) {
            (stats.ready, stats.totals.acked) = (0, 1);
        }
        assert_eq!(check(&calls).unwrap_err(), "G1: a was lost");
    }

    #[test]
    fn a_redriven_message_is_snoozed_by_a_clock_that_was_set_back() {
        let snooze = Outcome::Snooze { schedule: Schedule::In(Millis::saturating(2)) };
        let calls = redriven([
            (10, claim(3)),
            (5, settle(3, 3, snooze)),
            (7, claim(4)),
            (7, settle(4, 4, Outcome::Ack)),
            (7, Op::Stats),
        ]);
        assert_eq!(check(&calls), Ok(()));
    }
}
