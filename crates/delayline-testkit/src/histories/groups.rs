//! What a history means for each group, without the model.

use std::collections::{HashMap, HashSet};

use delayline_core::{
    Change, Claim, Delivery, Enqueued, Extended, Group, Hold, Lease, MessageId, Op, Reply,
    SetLimits, Settled, Settlement, Status, Timestamp,
};

use super::call::Call;

/// What the limits and holds of groups allow now.
#[derive(Default)]
pub(super) struct Groups {
    each_group: Option<u32>,
    in_order: bool,
    /// The leases of messages with a group.
    leases: HashMap<MessageId, Held>,
    /// In order: messages that were leased under this rule and certainly have not ended, with their
    /// sequence numbers.
    begun: HashMap<MessageId, (Group, u64)>,
    /// Messages that had begun before an update. It may have given them another group.
    updated: HashSet<MessageId>,
    /// The ends of holds.
    held_until: HashMap<Group, Timestamp>,
}

/// A lease, unless its end was observed.
struct Held {
    group: Group,
    lease: Lease,
    deadline: Timestamp,
    /// Whether the queue has had the same rule since it began.
    counts: bool,
}

impl Groups {
    /// Enters a call. A lease or a hold that has ended does not begin again if the clock is set
    /// back, so `latest` is the latest instant so far.
    pub(super) fn enter(&mut self, call: &Call, latest: Timestamp) -> Result<(), String> {
        let at = call.applied.at;
        match (&call.op, &call.applied.reply) {
            (Op::SetLimits(change), _) => self.set_limits(change),
            (Op::Claim(claim), Reply::Claim(claimed)) => {
                claimed.deaths.iter().for_each(|death| self.end(&death.id));
                let mut deliveries = claimed.deliveries.iter();
                return deliveries.try_for_each(|it| self.deliver(at, claim, it, latest));
            }
            (Op::Relay(_), Reply::Relay(relayed)) => {
                let died = relayed.deaths.iter().map(|death| &death.id);
                relayed.ids.iter().chain(died).for_each(|id| self.end(id));
            }
            // The end of a message with a follower, or whose cancellation waits for its lease, may
            // be unseen.
            (Op::Cancel(ids), _) => ids.iter().for_each(|id| self.end(id)),
            (Op::Enqueue(messages), Reply::Enqueue(answers)) => {
                for (message, answer) in messages.iter().zip(answers) {
                    match answer {
                        Enqueued::Created { .. } | Enqueued::Following { .. } => {
                            self.end(&message.id);
                        }
                        Enqueued::Updated { .. } => {
                            let begun = self.begun.remove_entry(&message.id);
                            self.updated.extend(begun.map(|(id, _)| id));
                        }
                        // It has changed nothing.
                        _ => {}
                    }
                }
            }
            (Op::Settle(items), Reply::Settle(answers)) => {
                items.iter().zip(answers).for_each(|(item, it)| self.settle(at, item, it));
            }
            (Op::HandOff(items), Reply::HandOff(answers)) => {
                let ended = items.iter().zip(answers);
                ended.for_each(|(item, it)| self.settle(at, &item.settlement, &it.settled));
            }
            (Op::Extend(extend), Reply::Extend(answers)) => {
                for ((id, lease), answer) in extend.leases.iter().zip(answers) {
                    let held = self.leases.get_mut(id).filter(|held| held.lease == *lease);
                    if let (Some(held), Extended::Done { deadline, .. }) = (held, answer) {
                        held.deadline = *deadline;
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// The most leases that a group may have.
    fn most(&self) -> Option<u32> {
        if self.in_order { Some(1) } else { self.each_group }
    }

    fn set_limits(&mut self, change: &SetLimits) {
        let (before, was_in_order) = (self.most(), self.in_order);
        match change.each_group {
            Change::Set(most) => self.each_group = Some(most),
            Change::Remove => self.each_group = None,
            Change::Keep => {}
        }
        self.in_order = change.in_order.unwrap_or(was_in_order);
        if before.is_none() || self.most().is_none() || self.in_order != was_in_order {
            self.leases.values_mut().for_each(|held| held.counts = false);
        }
        if self.in_order != was_in_order {
            self.begun.clear();
            self.updated.clear();
        }
    }

    fn end(&mut self, id: &MessageId) {
        self.begun.remove(id);
        self.updated.remove(id);
    }

    fn deliver(
        &mut self,
        at: Timestamp,
        claim: &Claim,
        delivery: &Delivery,
        latest: Timestamp,
    ) -> Result<(), String> {
        let (info, lease) = (&delivery.message.info, delivery.lease);
        if self.leases.get(&info.id).is_some_and(|held| held.lease == lease) {
            // A repeated claim.
            return Ok(());
        }
        self.leases.remove(&info.id);
        let Some(group) = info.group.clone() else { return Ok(()) };
        if let Some(until) = self.held_until.get(&group).filter(|until| latest < **until) {
            return Err(format!("G38: {} came, but its group is held until {until}", info.id));
        }
        let deadline = at.after(claim.lease);
        let held = Held { group: group.clone(), lease, deadline, counts: true };
        self.leases.insert(info.id.clone(), held);
        let is_own = |it: &Held| it.lease.claim_id == claim.claim_id;
        let together = self.in_order && claim.several_in_order;
        let is_held = |it: &&Held| {
            it.group == group && it.counts && it.deadline > latest && !(together && is_own(it))
        };
        let held = self.leases.values().filter(is_held).count() + usize::from(together);
        if self.in_order {
            // Messages that were leased before precede the others, in their order.
            let has_begun = self.begun.contains_key(&info.id);
            let overtaken = |(id, (its_group, sequence)): &(&MessageId, &(Group, u64))| {
                let came_before = self.leases.get(*id).is_some_and(is_own);
                let comes_before = !has_begun || *sequence < info.sequence;
                **id != info.id && *its_group == group && comes_before != came_before
            };
            if !self.updated.remove(&info.id)
                && let Some((earlier, _)) = self.begun.iter().find(overtaken)
            {
                return Err(format!("G37: {} came before {earlier} had ended", info.id));
            }
            self.begun.insert(info.id.clone(), (group.clone(), info.sequence));
        }
        match self.most() {
            Some(most) if held > most as usize => {
                let promise = if self.in_order { "G37" } else { "G36" };
                Err(format!("{promise}: {} is message {held} of its group, not {most}", info.id))
            }
            _ => Ok(()),
        }
    }

    fn settle(&mut self, at: Timestamp, settlement: &Settlement, settled: &Settled) {
        let Settlement { id, lease, hold, .. } = settlement;
        if !matches!(settled, Settled::Done { .. }) {
            return;
        }
        if !matches!(settled, Settled::Done { status: Status::Scheduled | Status::Ready }) {
            self.end(id);
        }
        let Some(ended) = self.leases.remove(id) else { return };
        if let (true, Some(Hold::Group(until))) = (ended.lease == *lease, hold) {
            let held_until = self.held_until.entry(ended.group).or_default();
            *held_until = until.instant(at).max(*held_until);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use delayline_core::{
        ClaimId, ConsumerName, Known, Millis, NewMessage, Outcome, Schedule, State, Update,
        UpdateContent, UpdateDue, UpdateToken,
    };

    use super::*;

    /// Executes the second operation of each pair, and enters its reply as that of the first.
    fn judge(calls: Vec<(Op, Op)>) -> Result<(), String> {
        let (mut state, mut groups) = (State::new(), Groups::default());
        calls.into_iter().try_for_each(|(op, executed)| {
            let applied = state.apply(Timestamp::MIN, &executed);
            let (called, returned) = (Duration::ZERO, Duration::ZERO);
            groups.enter(&Call { called, returned, op, applied }, Timestamp::MIN)
        })
    }

    fn same(op: Op) -> (Op, Op) {
        (op.clone(), op)
    }

    fn enqueue() -> (Op, Op) {
        let group = Group::new("g").unwrap();
        let message = |id| NewMessage::new(MessageId::try_from(id).unwrap(), "");
        same(Op::Enqueue(["a", "b"].map(|id| message(id).group(group.clone())).to_vec()))
    }

    fn claim(number: u128, max: usize) -> (Op, Op) {
        let (consumer, id) =
            (ConsumerName::new("c").unwrap(), ClaimId::from_bytes(number.to_be_bytes()));
        same(Op::Claim(Claim::new(consumer, id, max, Millis::saturating(1_000))))
    }

    #[test]
    fn a_message_of_several_that_is_overtaken_is_found() {
        let in_order = || same(Op::SetLimits(SetLimits::new().in_order(true)));
        let forgets = || (Op::Stats, Op::SetLimits(SetLimits::new().in_order(false)));
        let several = |number, max| {
            let (Op::Claim(claim), _) = claim(number, max) else { unreachable!() };
            same(Op::Claim(claim.several_in_order(true)))
        };
        let ends = |number: u128, name, outcome| {
            let lease = Lease { claim_id: ClaimId::from_bytes(number.to_be_bytes()), epoch: 1 };
            let id = MessageId::try_from(name).unwrap();
            same(Op::Settle(vec![Settlement::new(id, lease, outcome)]))
        };
        let retry = || {
            let schedule = Schedule::In(Millis::saturating(5));
            Outcome::Retry { schedule, error: String::new() }
        };
        let both = [in_order(), enqueue(), several(1, 2)];
        assert_eq!(judge(both.to_vec()), Ok(()));
        // One waits for its retry, and the other one is leased again.
        let passed =
            [ends(1, "a", retry()), ends(1, "b", Outcome::Release), forgets(), claim(2, 1)];
        let reason = judge([both.to_vec(), passed.to_vec()].concat()).unwrap_err();
        assert!(reason.starts_with("G37: b came before a"), "{reason}");
        // A send that is throttled ends nothing.
        let throttled = |id, payload| {
            let message = NewMessage::new(MessageId::try_from(id).unwrap(), payload);
            Op::Enqueue(vec![message.throttle(Millis::saturating(9))])
        };
        let kept = [
            (Op::Stats, throttled("c", "first")),
            (throttled("a", ""), throttled("c", "second")),
            ends(1, "a", Outcome::Release),
            ends(1, "b", Outcome::Release),
            several(2, 2),
        ];
        assert_eq!(judge([both.to_vec(), kept.to_vec()].concat()), Ok(()));
        // An update of the due time keeps the place of a message.
        let updated = {
            let message = NewMessage::new(MessageId::try_from("a").unwrap(), "other");
            let token = UpdateToken::from_bytes([1; UpdateToken::BYTES]);
            let update = Update::new(UpdateContent::Keep, UpdateDue::Set, token);
            let message = message.group(Some(Group::new("g").unwrap()));
            same(Op::Enqueue(vec![message.known(Known::Update(update))]))
        };
        let kept = [ends(1, "a", retry()), ends(1, "b", Outcome::Release), updated];
        let kept = [both.to_vec(), kept.to_vec(), vec![claim(2, 1)]].concat();
        assert_eq!(judge(kept), Ok(()));
        // Another claim leases a message while one is leased.
        let overlap = [in_order(), enqueue(), several(1, 1), forgets(), several(2, 1)];
        let reason = judge(overlap.to_vec()).unwrap_err();
        assert!(reason.starts_with("G37: b came before a"), "{reason}");
    }

    #[test]
    fn more_leases_than_a_group_may_have_and_deliveries_in_a_hold_are_found() {
        let limited = |limits: SetLimits| (Op::SetLimits(limits), Op::Stats);
        let one = SetLimits::new().each_group(1);
        for (limits, promise) in [(one, "G36"), (SetLimits::new().in_order(true), "G37")] {
            let reason = judge(vec![limited(limits), enqueue(), claim(1, 2)]).unwrap_err();
            assert!(reason.starts_with(promise), "{reason}");
            // Earlier leases do not count.
            let after = [enqueue(), claim(1, 1), limited(limits), claim(2, 1)];
            assert_eq!(judge(after.to_vec()), Ok(()));
        }
        let lease = Lease { claim_id: ClaimId::from_bytes(1_u128.to_be_bytes()), epoch: 1 };
        let a = MessageId::try_from("a").unwrap();
        let settled = Settlement::new(a, lease, Outcome::Ack);
        let held = settled.clone().hold(Hold::Group(Schedule::In(Millis::saturating(1))));
        let hold = (Op::Settle(vec![held]), Op::Settle(vec![settled]));
        let reason = judge(vec![enqueue(), claim(1, 1), hold, claim(2, 1)]).unwrap_err();
        assert!(reason.starts_with("G38"), "{reason}");
    }
}
