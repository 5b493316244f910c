//! What must hold of a queue whose deliveries are limited.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use delayline_core::{
    Applied, Change, ClaimId, Group, Lease, MessageId, Op, Rate, Reply, Schedule, Timestamp,
};

use super::{Loss, Seen, is_lossy};
use crate::log::{Entry, Outcome};

/// Judges the calls to one queue by its limits. The first ones are on all of its servers before the
/// first fault; later ones have the same rate, and let no more through.
///
/// Calls that may be lost do not count: a server that never had them cannot count them.
///
/// # Errors
///
/// More messages were leased or delivered than the limits let through.
pub(in crate::topology) fn judge_limits(
    entries: &[Entry],
    losses: &[Loss],
    seen: &mut Seen,
) -> Result<(), String> {
    let kept: Vec<_> = entries.iter().filter(|entry| !is_lossy(entry, losses)).collect();
    let delivered = delivered(entries, &kept);
    let (mut leased, mut each_group) = (None, None);
    for entry in entries {
        let Op::SetLimits(set) = &entry.op else { continue };
        if let Change::Set(most) = set.leased {
            leased = leased.max(Some(most));
        }
        if let Change::Set(most) = set.each_group {
            each_group = each_group.max(Some(most));
        }
        if let Change::Set(rate) = set.rate {
            check_rate(&delivered, rate, seen)?;
        }
    }
    check_held(&kept, &delivered, seen)?;
    let held = certainly_held(entries, &kept);
    if let Some(most) = leased {
        seen.capped += check_leased(held.values(), most).map_err(|(leased, at)| {
            format!("G34: {leased} messages are leased at {at:?}, not {most}")
        })?;
    }
    if let Some(most) = each_group {
        for group in held.values().filter_map(|held| held.group).collect::<HashSet<_>>() {
            let of_group = held.values().filter(|held| held.group == Some(group));
            seen.capped_groups += check_leased(of_group, most).map_err(|(leased, at)| {
                format!("G36: {leased} messages of {group} are leased at {at:?}, not {most}")
            })?;
        }
    }
    Ok(())
}

/// Nothing is delivered between a hold and its end. Each hold is as long as the others, so a later
/// one ends none.
fn check_held(kept: &[&Entry], delivered: &[Delivered], seen: &mut Seen) -> Result<(), String> {
    for entry in kept {
        let Op::SetLimits(set) = &entry.op else { continue };
        let (Change::Set(Schedule::In(hold)), Outcome::Answered(applied)) =
            (set.hold, &entry.outcome)
        else {
            continue;
        };
        let until = applied.at.after(hold);
        let mut later = delivered.iter().filter(|it| it.revision > applied.revision);
        if let Some(early) = later.clone().find(|it| it.at < until) {
            return Err(format!(
                "G34: the queue is held until {until} by {entry:?}, and {early:?}"
            ));
        }
        seen.held += usize::from(later.next().is_some());
    }
    Ok(())
}

/// At no time do more than `most` callers hold a lease that certainly has begun and not yet ended.
/// Returns how many began while more than three quarters of these were held, or when more were.
fn check_leased<'a>(
    held: impl Iterator<Item = &'a Held<'a>>,
    most: u32,
) -> Result<usize, (i64, Duration)> {
    let mut changes = BTreeMap::<Duration, i64>::new();
    for held in held.filter(|held| held.from < held.to) {
        *changes.entry(held.from).or_default() += 1;
        *changes.entry(held.to).or_default() -= 1;
    }
    let (mut leased, mut capped, most) = (0, 0, i64::from(most));
    for (at, change) in changes {
        let before = leased;
        leased += change;
        if leased > most {
            return Err((leased, at));
        }
        capped += usize::from(leased > before && leased * 4 > most * 3);
    }
    Ok(capped)
}

/// Between these times a message was leased, whatever happened to calls and replies.
#[derive(Debug)]
struct Held<'a> {
    from: Duration,
    to: Duration,
    group: Option<&'a Group>,
}

fn certainly_held<'a>(
    entries: &'a [Entry],
    kept: &[&'a Entry],
) -> HashMap<(&'a MessageId, Lease), Held<'a>> {
    // A repeated claim has the leases of the first call.
    let mut first_called = HashMap::<ClaimId, Duration>::new();
    for entry in entries {
        if let Op::Claim(claim) = &entry.op {
            let called = first_called.entry(claim.claim_id).or_insert(entry.called);
            *called = entry.called.min(*called);
        }
    }
    let mut held = HashMap::<_, Held<'_>>::new();
    for entry in kept {
        let (Op::Claim(claim), Outcome::Answered(Applied { reply: Reply::Claim(claimed), .. })) =
            (&entry.op, &entry.outcome)
        else {
            continue;
        };
        let Some(from) = entry.returned else { continue };
        let called = first_called.get(&claim.claim_id).unwrap_or(&entry.called);
        let to = *called + Duration::from_millis(claim.lease.as_ms());
        for delivery in &claimed.deliveries {
            let key = (&delivery.message.info.id, delivery.lease);
            let group = delivery.message.info.group.as_ref();
            let held = held.entry(key).or_insert(Held { from, to, group });
            held.from = held.from.min(from);
        }
    }
    for entry in entries {
        let mut end = |id, lease| {
            if let Some(held) = held.get_mut(&(id, lease)) {
                held.to = held.to.min(entry.called);
            }
        };
        match &entry.op {
            Op::Settle(items) => items.iter().for_each(|item| end(&item.id, item.lease)),
            Op::HandOff(items) => {
                items.iter().for_each(|item| end(&item.settlement.id, item.settlement.lease));
            }
            // It may make the lease shorter.
            Op::Extend(extend) => extend.leases.iter().for_each(|(id, lease)| end(id, *lease)),
            _ => {}
        }
    }
    held
}

/// The generic cell rate algorithm, with the servers' whole milliseconds as its clock.
fn check_rate(delivered: &[Delivered], rate: Rate, seen: &mut Seen) -> Result<(), String> {
    let per = rate.per().as_nanos() / u128::from(rate.count);
    let interval = u64::try_from(per).unwrap_or(u64::MAX);
    let burst = u64::from(rate.burst) * interval;
    let mut paid_at = 0;
    let mut instants: Vec<_> =
        delivered.iter().flat_map(|it| std::iter::repeat_n(it.at, it.count)).collect();
    instants.sort_unstable();
    for at in instants {
        let now = at.as_ms() * NS_PER_MS;
        paid_at = now.max(paid_at) + interval;
        // The delivery may be as much as a millisecond later than its instant says.
        if paid_at > now + burst + NS_PER_MS {
            let (count, per) = (rate.count, rate.per());
            return Err(format!("G34: the delivery at {at} exceeds {count} in {per:?}"));
        }
        seen.slowed += usize::from(paid_at + interval > now + burst);
    }
    Ok(())
}

/// Messages that a call delivered.
#[derive(Debug)]
struct Delivered {
    revision: u64,
    at: Timestamp,
    count: usize,
}

/// The deliveries. Those of repeated claims are left out: the first call, whose answer is not
/// known, may have made them.
fn delivered(entries: &[Entry], kept: &[&Entry]) -> Vec<Delivered> {
    let mut calls = HashMap::<ClaimId, usize>::new();
    for entry in entries {
        if let Op::Claim(claim) = &entry.op {
            *calls.entry(claim.claim_id).or_default() += 1;
        }
    }
    let mut delivered = Vec::new();
    for entry in kept {
        let Outcome::Answered(Applied { at, revision, reply, .. }) = &entry.outcome else {
            continue;
        };
        let count = match (&entry.op, reply) {
            (Op::Claim(claim), Reply::Claim(claimed)) if calls[&claim.claim_id] == 1 => {
                claimed.deliveries.len()
            }
            (_, Reply::Relay(relayed)) => relayed.ids.len(),
            _ => 0,
        };
        if count > 0 {
            delivered.push(Delivered { revision: *revision, at: *at, count });
        }
    }
    delivered
}

const NS_PER_MS: u64 = 1_000_000;

#[cfg(test)]
mod tests {
    use delayline_core::{
        Claim, ConsumerName, Millis, NewMessage, Outcome as Ending, SetLimits, Settlement,
    };

    use super::super::tests::Primary;
    use super::*;

    impl Primary {
        /// Calls come one per second.
        fn call(&mut self, op: &Op) -> Applied {
            self.answer(self.entries.len() as u64, op)
        }

        fn send(&mut self, count: u8) {
            let group = Group::new("g").unwrap();
            let message = |n| NewMessage::new(MessageId::new(vec![n]).unwrap(), "x");
            let grouped = |n| message(n).group(group.clone());
            self.call(&Op::Enqueue((1..=count).map(grouped).collect()));
        }

        fn claim(&mut self, token: u8) -> Applied {
            let consumer = ConsumerName::new("c").unwrap();
            let id = ClaimId::from_bytes([token; ClaimId::BYTES]);
            self.call(&Op::Claim(Claim::new(consumer, id, 3, Millis::saturating(60_000))))
        }

        /// As a server would that forgot the limits, and whose caller did not.
        fn forget(&mut self, limits: SetLimits) {
            let none = SetLimits::new().leased(None).each_group(None).rate(None);
            self.state.apply(Timestamp::MIN, &Op::SetLimits(none));
            assert_eq!(self.entries[0].op, Op::SetLimits(limits));
        }

        fn verdict(&self) -> Result<Seen, String> {
            let mut seen = Seen::default();
            judge_limits(&self.entries, &[], &mut seen).map(|()| seen)
        }
    }

    #[test]
    fn leases_beyond_the_limit_are_seen_until_they_may_have_ended() {
        let limits = [
            (SetLimits::new().leased(3), "G34: 6 messages are leased"),
            (SetLimits::new().each_group(3), "G36: 6 messages of g are leased"),
        ];
        for (limits, accusation) in limits {
            let mut primary = Primary::default();
            primary.call(&Op::SetLimits(limits));
            primary.send(6);
            let Reply::Claim(claimed) = primary.claim(1).reply else { panic!("no claim") };
            let capped = |seen: Seen| seen.capped + seen.capped_groups;
            assert_eq!(capped(primary.verdict().unwrap()), 1);
            let ack = |held: &delayline_core::Delivery| {
                Settlement::new(held.message.info.id.clone(), held.lease, Ending::Ack)
            };
            primary.call(&Op::Settle(claimed.deliveries.iter().map(ack).collect()));
            primary.claim(2);
            assert_eq!(capped(primary.verdict().unwrap()), 2);
            primary.forget(limits);
            primary.send(9);
            primary.claim(3);
            let reason = primary.verdict().unwrap_err();
            assert!(reason.starts_with(accusation), "{reason}");
        }
    }

    #[test]
    fn deliveries_while_the_queue_is_held_are_seen() {
        let limits = SetLimits::new().hold_for(Duration::from_secs(3));
        let mut primary = Primary::default();
        primary.call(&Op::SetLimits(limits));
        primary.send(9);
        // The call after it comes when the hold ends.
        primary.claim(1);
        primary.claim(2);
        assert_eq!(primary.verdict().unwrap().held, 1);
        primary.call(&Op::SetLimits(limits));
        primary.call(&Op::SetLimits(SetLimits::new().end_hold()));
        primary.claim(3);
        let reason = primary.verdict().unwrap_err();
        assert!(reason.starts_with("G34: the queue is held until"), "{reason}");
    }

    #[test]
    fn deliveries_beyond_the_rate_are_seen() {
        let limits = SetLimits::new().rate(Rate::per_minute(1, 3));
        let mut primary = Primary::default();
        primary.call(&Op::SetLimits(limits));
        primary.send(9);
        primary.claim(1);
        primary.claim(2);
        assert_eq!(primary.verdict().unwrap().slowed, 1);
        primary.forget(limits);
        primary.claim(3);
        let reason = primary.verdict().unwrap_err();
        assert!(reason.ends_with("exceeds 1 in 60s"), "{reason}");
    }
}
