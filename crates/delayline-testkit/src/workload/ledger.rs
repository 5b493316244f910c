//! What a random run has seen so far.

use std::collections::{BTreeSet, HashMap, HashSet};

use delayline_core::{
    Check, ClaimId, Delivery, Enqueued, Extend, Extended, HandOff, Lease, List, MessageId, Millis,
    NewMessage, NewResult, Op, Outcome, Position, Redriven, Reply, Rescheduled, Settlement, Status,
    Timestamp,
};

use super::action::{Action, Cursor, Ending, LeasePart, LeaseRef, Tick};

/// The number of operations that can be repeated.
const REMEMBERED: usize = 6;

/// Leases, instants, pages and operations for later moves to refer to.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    /// The leases of each message, the latest last.
    leases: HashMap<MessageId, Vec<Lease>>,
    /// All leases, the latest last.
    deliveries: Vec<(MessageId, Lease)>,
    /// Known due times, deadlines and expiries.
    instants: BTreeSet<Timestamp>,
    /// Positions in listings, the latest last.
    positions: Vec<Position>,
    /// The latest operations, the latest last.
    sent: Vec<Op>,
    claims: u64,
}

impl Ledger {
    /// The time on the clock after a movement.
    pub(super) fn tick(&self, now: Timestamp, tick: Tick) -> Timestamp {
        let back = |from: Timestamp, ms: u64| {
            Timestamp::from_ms(from.as_ms().saturating_sub(ms)).unwrap_or(from)
        };
        match tick {
            Tick::Stay => now,
            Tick::Forward(ms) => now.after(Millis::saturating(ms)),
            Tick::Back(ms) => back(now, ms),
            Tick::Near { which, offset } => {
                let to_come: Vec<_> = self.instants.range(now..).collect();
                let Some(instant) = to_come.get(which % to_come.len().max(1)) else {
                    return now.after(Millis::saturating(offset));
                };
                // An instant decades ahead would end most runs: all else would be in the past.
                if instant.since(now).as_millis() > 100_000_000 {
                    return now.after(Millis::saturating(offset));
                }
                back(instant.after(Millis::saturating(offset)), 1)
            }
        }
    }

    /// The operation that an action refers to.
    pub(super) fn concrete(&mut self, action: &Action) -> Op {
        let op = match action {
            Action::Send(op) => op.clone(),
            Action::Settle(items) => Op::Settle(self.settlements(items)),
            Action::HandOff(items, messages, result) => {
                hand_off(self.settlements(items), messages, result.as_ref())
            }
            Action::Extend(leases, lease) => {
                let items = leases.iter().map(|(id, lease, save)| {
                    let (id, lease) = self.lease(id, *lease);
                    (id.clone(), ((id.clone(), lease), save.clone().map(|save| (id, save))))
                });
                let (leases, saves): (Vec<_>, Vec<_>) =
                    without_repetitions(items).into_iter().unzip();
                let saves = saves.into_iter().flatten().collect();
                Op::Extend(Extend::new(leases, *lease).saves(saves))
            }
            Action::ClaimAnew(claim) => {
                let mut anew = claim.clone();
                anew.claim_id = self.new_token();
                Op::Claim(anew)
            }
            Action::List(status, after, limit) => {
                Op::List(List::new(*status, *limit).after(self.position(*after)))
            }
            Action::Check(after, limit) => {
                Op::Check(Check::new(*limit).after(self.position(*after)))
            }
            Action::Repair(after, limit) => {
                Op::Repair(Check::new(*limit).after(self.position(*after)))
            }
            Action::Again(back) => recent(&self.sent, *back).cloned().unwrap_or(Op::Stats),
        };
        if self.sent.len() == REMEMBERED {
            self.sent.remove(0);
        }
        self.sent.push(op.clone());
        op
    }

    fn new_token(&mut self) -> ClaimId {
        self.claims += 1;
        numbered(self.claims)
    }

    /// Learns from a reply.
    pub(super) fn observe(&mut self, now: Timestamp, op: &Op, reply: &Reply) {
        let messages: Vec<_> = match op {
            Op::Enqueue(messages) => messages.iter().collect(),
            Op::HandOff(items) => items.iter().flat_map(|item| &item.messages).collect(),
            _ => Vec::new(),
        };
        let expiries = messages.into_iter().filter_map(|message| message.expires);
        self.instants.extend(expiries.map(|expires| expires.instant(now)));
        match reply {
            Reply::Enqueue(items) => self.instants.extend(items.iter().filter_map(created)),
            Reply::HandOff(items) => {
                let answers = items.iter().flat_map(|item| &item.messages);
                self.instants.extend(answers.filter_map(created));
            }
            Reply::Claim(claimed) => {
                self.instants.extend(claimed.next);
                claimed
                    .deliveries
                    .iter()
                    .for_each(|delivery| self.observe_lease(op, now, delivery));
            }
            Reply::Relay(relayed) => self.instants.extend(relayed.next),
            Reply::Extend(items) => self.instants.extend(items.iter().filter_map(extended)),
            Reply::Reschedule(items) => self.instants.extend(items.iter().filter_map(rescheduled)),
            Reply::Redrive(items) => self.instants.extend(items.iter().filter_map(redriven)),
            Reply::List(page) => {
                self.positions.extend(page.next);
                // Where a waiting message is; it will have moved by the time this is used.
                let last = page.messages.first();
                self.positions.extend(last.map(|info| Position {
                    index: match info.state.status() {
                        Status::Leased => Position::LEASED,
                        Status::Dead => Position::DEAD,
                        _ => info.priority.level(),
                    },
                    instant: info.due,
                    sequence: info.sequence,
                }));
            }
            Reply::Check(checked) => self.positions.extend(checked.next),
            _ => {}
        }
    }

    fn observe_lease(&mut self, op: &Op, now: Timestamp, delivery: &Delivery) {
        if let Op::Claim(claim) = op {
            self.instants.insert(now.after(claim.lease));
        }
        let id = &delivery.message.info.id;
        let leases = self.leases.entry(id.clone()).or_default();
        if leases.last() != Some(&delivery.lease) {
            leases.push(delivery.lease);
            self.deliveries.push((id.clone(), delivery.lease));
        }
    }

    fn lease(&self, id: &MessageId, lease: LeaseRef) -> (MessageId, Lease) {
        let known = match lease {
            LeaseRef::MadeUp(lease) => return (id.clone(), lease),
            LeaseRef::Delivery(back) => recent(&self.deliveries, back).cloned(),
            LeaseRef::HalfWrong { delivery, part } => {
                let delivery = recent(&self.deliveries, delivery).cloned();
                delivery.map(|(id, lease)| (id, half_wrong(lease, part)))
            }
            LeaseRef::Recent(back) => {
                let leases = self.leases.get(id);
                let lease = leases.and_then(|leases| recent(leases, back));
                lease.map(|lease| (id.clone(), *lease))
            }
        };
        known.unwrap_or_else(|| (id.clone(), Lease { claim_id: numbered(1), epoch: 1 }))
    }

    fn settlements(&self, items: &[Ending]) -> Vec<Settlement> {
        let claims_next = self.claims.is_multiple_of(2);
        without_repetitions(items.iter().map(|(id, lease, outcome, hold, save)| {
            let (id, lease) = self.lease(id, *lease);
            let settlement = Settlement::new(id.clone(), lease, outcome.clone());
            (id, settlement.hold(*hold).save(save.clone()).claims_next(claims_next))
        }))
    }

    fn position(&self, cursor: Cursor) -> Option<Position> {
        match cursor {
            Cursor::Start => None,
            Cursor::MadeUp(position) => Some(position),
            Cursor::Recent(back) => recent(&self.positions, back).copied(),
        }
    }
}

/// Hand-offs of the messages whose ids are not settled, and of a result of each ack, or else just
/// the settlements.
fn hand_off(
    settlements: Vec<Settlement>,
    messages: &[NewMessage],
    result: Option<&NewResult>,
) -> Op {
    let is_settled = |id: &MessageId| settlements.iter().any(|item| item.id == *id);
    let messages: Vec<_> = messages.iter().filter(|message| !is_settled(&message.id)).collect();
    let has_result = |item: &Settlement| result.is_some() && item.outcome == Outcome::Ack;
    let carriers = match messages.len() {
        0 => settlements.iter().filter(|item| has_result(item)).count(),
        most => settlements.len().min(most),
    };
    if carriers == 0 {
        return Op::Settle(settlements);
    }
    let carries = |item: &Settlement| !messages.is_empty() || has_result(item);
    let items = settlements.into_iter().filter(carries).take(carriers).enumerate();
    let items = items.map(|(n, settlement)| {
        let own = messages.iter().skip(n).step_by(carriers).map(|message| (*message).clone());
        let own_result = if has_result(&settlement) { result.cloned() } else { None };
        HandOff::new(settlement, own.collect()).with_result(own_result)
    });
    Op::HandOff(items.collect())
}

/// The item `back` from the end, or the first if there are fewer.
fn recent<T>(items: &[T], back: usize) -> Option<&T> {
    items.iter().rev().nth(back).or_else(|| items.first())
}

/// The lease with one part changed.
fn half_wrong(lease: Lease, part: LeasePart) -> Lease {
    match part {
        LeasePart::ClaimId => Lease { claim_id: numbered(0), ..lease },
        LeasePart::Epoch => Lease { epoch: lease.epoch + 1, ..lease },
    }
}

/// The items without those whose id has appeared before.
fn without_repetitions<T>(items: impl Iterator<Item = (MessageId, T)>) -> Vec<T> {
    let mut seen = HashSet::new();
    items.filter_map(|(id, item)| seen.insert(id).then_some(item)).collect()
}

/// A token that shows its number.
fn numbered(n: u64) -> ClaimId {
    let mut token = *b"claim-0000000000";
    let digits = n.to_string();
    // No run has more claims than ten digits can count; the last ten would do in any case.
    let digits = &digits.as_bytes()[digits.len().saturating_sub(10)..];
    token[ClaimId::BYTES - digits.len()..].copy_from_slice(digits);
    ClaimId::from_bytes(token)
}

fn created(item: &Enqueued) -> Option<Timestamp> {
    match item {
        Enqueued::Created { due } | Enqueued::Updated { due } => Some(*due),
        _ => None,
    }
}

fn extended(item: &Extended) -> Option<Timestamp> {
    if let Extended::Done { deadline, .. } = item { Some(*deadline) } else { None }
}

fn rescheduled(item: &Rescheduled) -> Option<Timestamp> {
    if let Rescheduled::Done { due } = item { Some(*due) } else { None }
}

fn redriven(item: &Redriven) -> Option<Timestamp> {
    if let Redriven::Done { due } = item { Some(*due) } else { None }
}
