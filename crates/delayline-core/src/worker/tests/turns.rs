//! Settlements and claims in one call.

use std::cell::Cell;
use std::rc::Rc;

use super::super::*;
use super::sim::{Fault, Sim, at, ms, plan, queue_plan};
use super::{retry, starts};
use crate::{MessageId, Millis};

fn turning(slots: usize) -> Plan {
    let queues = vec![QueuePlan { turns: true, ..queue_plan(1) }];
    Plan { slots, queues, until_empty: false }
}

#[test]
fn a_worker_of_one_slot_makes_one_call_a_message() {
    let mut sim = Sim::new(turning(1));
    sim.send_many(0, 20);
    sim.run_to(at(1_000));
    assert_eq!(sim.machine.summary().acked, 20);
    // The first claim came before the messages.
    assert_eq!((sim.sent("claim").len(), sim.sent("turn").len()), (2, 19));
    // Behind the last one there is nothing more.
    assert_eq!(sim.sent("settle").len(), 1);
    for (_, op) in sim.sent("turn") {
        let Op::Turn(turn) = op else { unreachable!() };
        assert_eq!((turn.settlements.len(), turn.claim.max), (1, 1));
    }
}

#[test]
fn only_where_it_is_allowed() {
    let mut sim = Sim::new(plan(1));
    sim.send_many(0, 5);
    sim.run_to(at(1_000));
    assert_eq!(sim.sent("turn").len(), 0);
    assert_eq!(sim.machine.summary().acked, 5);
}

#[test]
fn with_several_slots_both_go_apart() {
    let mut sim = Sim::new(turning(2));
    sim.send_many(0, 10);
    sim.run_to(at(1_000));
    assert_eq!(sim.sent("turn").len(), 0);
    assert_eq!(sim.machine.summary().acked, 10);
}

#[test]
fn a_queue_that_is_empty_is_only_settled() {
    let mut sim = Sim::new(turning(1));
    for n in 0..5 {
        sim.send(at(n * 1_000), 0, &n.to_string(), ms(0));
    }
    sim.run_to(at(4_500));
    assert_eq!((sim.sent("turn").len(), sim.sent("settle").len()), (0, 5));
}

#[test]
fn what_a_turn_gives_back_is_claimed_when_it_is_due() {
    let failed = Rc::new(Cell::new(false));
    let mut sim = Sim::new(turning(1)).handling({
        let failed = Rc::clone(&failed);
        move |_| Some((ms(10), if failed.replace(true) { Outcome::Ack } else { retry(200) }))
    });
    sim.send_many(0, 2);
    sim.run_to(at(2_000));
    let summary = sim.machine.summary();
    assert_eq!((summary.failed, summary.acked), (1, 2));
    // The claim with it told when: no claim looks before.
    let claims = sim.sent("claim");
    let before = claims.iter().filter(|(when, _)| *when > at(50) && *when < at(205));
    assert_eq!(before.count(), 0, "{claims:?}");
    assert_eq!(starts(&sim, 0, None), 3);
}

#[test]
fn a_turn_without_an_answer_is_repeated_in_two_calls() {
    for fault in [Fault::LostReply, Fault::LostRequest] {
        let mut sim = Sim::new(turning(1)).first("turn", &[fault]);
        sim.send_many(0, 3);
        sim.run_to(at(2_000));
        assert_eq!(sim.machine.summary().acked, 3, "{fault:?}");
        let Some((_, Op::Turn(turn))) = sim.sent("turn").into_iter().next() else {
            panic!("no turn")
        };
        let (when, first) = sim.sent("settle").remove(0);
        assert_eq!(first, Op::Settle(turn.settlements), "{fault:?}");
        let claims = sim.sent("claim");
        let again: Vec<_> =
            claims.iter().filter(|(_, op)| *op == Op::Claim(turn.claim.clone())).collect();
        // Not while nothing can be settled.
        assert!(again.len() == 1 && again[0].0 > when, "{fault:?}: {claims:?}");
        assert_eq!(starts(&sim, 0, None), 3, "each message once");
    }
}

#[test]
fn a_turn_that_is_refused_claims_anew() {
    let mut sim = Sim::new(turning(1)).first("turn", &[Fault::Busy]);
    sim.send_many(0, 3);
    sim.run_to(at(2_000));
    assert_eq!(sim.machine.summary().acked, 3);
    assert_eq!(starts(&sim, 0, None), 3);
}

#[test]
fn a_backend_without_turns_is_asked_for_one_only() {
    let mut sim = Sim::new(turning(1)).faults(|op| match op {
        Op::Turn(_) => Fault::Unsupported,
        _ => Fault::None,
    });
    sim.send_many(0, 5);
    sim.run_to(at(1_000));
    assert_eq!((sim.sent("turn").len(), sim.machine.summary().acked), (1, 5));
}

#[test]
fn while_settlements_fail_nothing_is_claimed() {
    let mut sim = Sim::new(turning(1)).faults(|op| match op {
        Op::Settle(_) | Op::Turn(_) => Fault::LostRequest,
        _ => Fault::None,
    });
    sim.send_many(0, 5);
    sim.run_to(at(2_500));
    assert_eq!((sim.sent("claim").len(), sim.sent("turn").len()), (2, 1));
    assert_eq!(starts(&sim, 0, None), 1);
}

#[test]
fn a_loop_of_claims_and_releases_is_slowed_down() {
    for outcome in [Outcome::Release, Outcome::Snooze { delay: Millis::ZERO }] {
        let mut sim = Sim::new(turning(1)).handling(move |_| Some((ms(0), outcome.clone())));
        sim.send_many(0, 1);
        sim.run_to(at(2_000));
        let started = starts(&sim, 0, None);
        assert!(started > 10 && started < 100, "{started}");
        assert_eq!(sim.sent("turn").len(), 0);
    }
}

#[test]
fn the_queue_that_was_served_least_is_claimed_from() {
    let queue = || QueuePlan { turns: true, ..queue_plan(1) };
    let queues = vec![queue(), queue()];
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
fn a_worker_that_stops_claims_nothing_with_its_last_settlement() {
    let mut sim = Sim::new(turning(1)).handling(|_| Some((ms(100), Outcome::Ack)));
    sim.send_many(0, 3);
    sim.stop(at(50), ms(1_000));
    sim.run();
    assert_eq!((sim.sent("turn").len(), starts(&sim, 0, None)), (0, 1));
    assert_eq!(sim.machine.summary().acked, 1);
}
