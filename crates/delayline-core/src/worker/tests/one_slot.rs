//! Workers with one slot, which settle and claim by turns.

use std::cell::Cell;
use std::rc::Rc;

use super::super::*;
use super::sim::{Fault, Sim, at, ms, plan, queue_plan};
use super::{retry, starts};
use crate::{Claim, ClaimId, ConsumerName, MessageId, Millis, Schedule, SetLimits};

#[test]
fn a_settlement_and_the_next_claim_are_sent_together() {
    let mut sim = Sim::new(plan(1));
    sim.send_many(0, 20);
    sim.run_to(at(1_000));
    assert_eq!(sim.machine.summary().acked, 20);
    let claims: Vec<_> = sim.sent("claim").into_iter().map(|(when, _)| when).collect();
    let settlements = sim.sent("settle");
    assert_eq!(settlements.len(), 20);
    // Nothing more is known to be due after the last one.
    assert!(settlements[..19].iter().all(|(when, _)| claims.contains(when)), "{claims:?}");
}

/// Where the queue allows no more leases, the end of one makes room, and its worker knows first.
#[test]
fn a_worker_of_a_capped_queue_claims_as_it_settles() {
    for (slots, leased) in [(1, 1), (4, 1), (4, 3)] {
        let mut sim = Sim::new(plan(slots));
        sim.apply(0, &Op::SetLimits(SetLimits::new().leased(leased)));
        sim.send_many(0, 60);
        sim.run_to(at(1_000));
        assert_eq!(sim.machine.summary().acked, 60);
        let claims: Vec<_> = sim.sent("claim").into_iter().map(|(when, _)| when).collect();
        let settlements = sim.sent("settle");
        for (when, op) in &settlements {
            assert!(claims.contains(when) && op.claims_next(), "{op:?} at {when:?}");
        }
        assert!(claims.len() <= settlements.len() + 4, "{} claims", claims.len());
        let other = |action: &Action| matches!(action, Action::Wait { .. } | Action::Ring { .. });
        assert!(sim.times(other).len() <= 2, "{:?}", sim.times(other));
    }
}

#[test]
fn a_message_that_is_retried_is_claimed_when_it_is_due() {
    let failed = Rc::new(Cell::new(false));
    let mut sim = Sim::new(plan(1)).handling({
        let failed = Rc::clone(&failed);
        move |_| Some((ms(10), if failed.replace(true) { Outcome::Ack } else { retry(200) }))
    });
    sim.send_many(0, 2);
    sim.run_to(at(2_000));
    let summary = sim.machine.summary();
    assert_eq!((summary.failed, summary.acked), (1, 2));
    let claims = sim.sent("claim");
    let before = claims.iter().filter(|(when, _)| *when > at(50) && *when < at(205));
    assert_eq!(before.count(), 0, "{claims:?}");
    assert_eq!(starts(&sim, 0, None), 3);
}

#[test]
fn nothing_is_claimed_while_settlements_fail() {
    let mut sim = Sim::new(plan(1)).faults(|op| match op {
        Op::Settle(_) => Fault::LostRequest,
        _ => Fault::None,
    });
    sim.send_many(0, 5);
    sim.run_to(at(2_500));
    // The second one was sent with the first settlement.
    assert!(starts(&sim, 0, None) <= 2);
    assert!(sim.sent("claim").len() <= 3, "{:?}", sim.sent("claim"));
}

#[test]
fn a_loop_of_claims_and_releases_is_slowed_down() {
    let again = |schedule| Outcome::Snooze { schedule };
    let past = Schedule::At(Timestamp::MIN);
    for outcome in [Outcome::Release, again(Schedule::NOW), again(past)] {
        let mut sim = Sim::new(plan(1)).handling(move |_| Some((ms(0), outcome.clone())));
        sim.send_many(0, 1);
        sim.run_to(at(2_000));
        let started = starts(&sim, 0, None);
        assert!(started > 10 && started < 100, "{started}");
    }
}

#[test]
fn the_queue_that_was_served_least_is_claimed_from() {
    let queues = vec![queue_plan(1), queue_plan(1)];
    let mut sim = Sim::new(Plan { slots: 1, queues, until_empty: false });
    for queue in [0, 1] {
        let message = |n: usize| NewMessage::new(MessageId::try_from(&*n.to_string()).unwrap(), "");
        sim.apply(queue, &Op::Enqueue((0..50).map(message).collect()));
    }
    sim.run_to(at(400));
    let (one, other) = (starts(&sim, 0, Some(0)), starts(&sim, 0, Some(1)));
    assert!(one > 10 && one.abs_diff(other) <= 1, "{one} and {other}");
}

#[test]
fn a_retry_whose_reply_is_lost_is_not_counted_as_lost_when_another_worker_has_the_message() {
    let mut sim = Sim::new(plan(1))
        .handling(|_| Some((ms(10), retry(0))))
        .first("settle", &[Fault::LostReply]);
    sim.send_many(0, 1);
    sim.run_to(at(15));
    let thief = Claim::new(
        ConsumerName::new("thief").unwrap(),
        ClaimId::from_bytes([9; 16]),
        1,
        Millis::new(60_000).unwrap(),
    );
    sim.apply(0, &Op::Claim(thief));
    sim.run_to(at(1_000));
    let summary = sim.machine.summary();
    assert_eq!((summary.failed, summary.lost, summary.unclear), (0, 0, 1));
}
