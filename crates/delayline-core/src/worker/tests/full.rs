//! Workers of a server that is out of memory: it refuses hand-offs.

use std::cell::Cell;
use std::rc::Rc;

use super::super::*;
use super::sim::{Fault, Sim, at, ms, plan, queue_plan};
use super::starts;
use crate::Delivery;

/// Every fourth message leaves a result.
fn leaves_result(id: &MessageId) -> bool {
    id.to_string().rsplit('-').next().unwrap().parse::<usize>().unwrap() % 4 == 0
}

/// A queue of a server that refuses hand-offs until it has executed `settled` settlements.
fn full_until_settled(plan: Plan, settled: usize) -> Sim {
    let seen = Rc::new(Cell::new(0));
    let mut sim = Sim::new(plan).faults(move |op| match op {
        Op::Settle(items) => {
            seen.set(seen.get() + items.len());
            Fault::None
        }
        Op::HandOff(_) if seen.get() < settled => Fault::Full,
        _ => Fault::None,
    });
    sim.has_result = leaves_result;
    sim
}

#[test]
fn a_full_server_is_emptied_however_many_hand_offs_it_refuses() {
    let mut sim = full_until_settled(plan(4), 300);
    sim.send_many(0, 400);
    sim.run_to(at(20_000));
    let summary = sim.machine.summary();
    assert_eq!((summary.acked, summary.unsettled), (400, 0));
    assert_eq!(starts(&sim, 0, None), 400);
}

#[test]
fn refused_hand_offs_keep_their_leases_and_are_not_handled_twice() {
    // More than one extension can name, and with only one plain message in between.
    let mut sim = full_until_settled(plan(4), 1);
    sim.has_result = |id| id.to_string() != "0-3000";
    sim.send_many(0, 1_500);
    sim.send(at(60_000), 0, "0-3000", ms(0));
    sim.run_to(at(80_000));
    let summary = sim.machine.summary();
    assert_eq!((summary.acked, summary.lost, summary.unsettled), (1_501, 0, 0));
    assert_eq!(starts(&sim, 0, None), 1_501);
    let Reply::Stats(stats) = sim.apply(0, &Op::Stats) else { unreachable!() };
    assert_eq!(stats.totals.crashed, 0);
    let beats = sim.sent("extend").len();
    sim.run_to(at(200_000));
    assert_eq!(sim.sent("extend").len(), beats);
}

#[test]
fn a_refused_hand_off_is_renewed_no_longer_than_a_handler_may_hold_its_lease() {
    let mut plan = plan(1);
    plan.queues[0].max_lease_age = Some(ms(10_000));
    let mut sim = full_until_settled(plan, 1);
    sim.send(at(0), 0, "0-0", ms(0));
    sim.run_to(at(9_000));
    assert_eq!(sim.sent("extend").len(), 8);
    sim.run_to(at(11_900));
    assert_eq!(starts(&sim, 0, None), 1);
    // Its lease has ended, and it is delivered again.
    sim.run_to(at(13_000));
    assert_eq!(starts(&sim, 0, None), 2);
}

#[test]
fn a_message_that_comes_back_is_extended_once() {
    let mut sim = full_until_settled(plan(2), 1).handling(|_| Some((ms(2_500), Outcome::Ack)));
    let mut faults = sim.faults;
    let mut beats = 0;
    sim.faults = Box::new(move |op| {
        beats += usize::from(matches!(op, Op::Extend(_)));
        let is_lost = matches!(op, Op::Extend(_)) && beats < 6;
        if is_lost { Fault::LostRequest } else { faults(op) }
    });
    sim.send(at(0), 0, "0-0", ms(0));
    // Each extension is validated: it may name a message only once.
    sim.run_to(at(20_000));
    assert_eq!(starts(&sim, 0, None), 2);
    sim.send(at(20_000), 0, "0-1", ms(0));
    sim.run_to(at(30_000));
    let summary = sim.machine.summary();
    assert_eq!((summary.acked, summary.lost, summary.unsettled), (2, 1, 0));
}

#[test]
fn hand_offs_that_are_accepted_are_not_renewed() {
    let mut sim = full_until_settled(plan(4), 0);
    sim.has_result = |_| true;
    sim.send_many(0, 100);
    sim.run_to(at(20_000));
    assert_eq!((sim.machine.summary().acked, sim.sent("extend").len()), (100, 0));
}

#[test]
fn settlements_of_a_silent_queue_hold_up_no_other() {
    let queues = vec![queue_plan(1), queue_plan(1)];
    let mut sim = Sim::new(Plan { slots: 4, queues, until_empty: false })
        .handling(|_| Some((ms(20), Outcome::Ack)));
    sim.lag = Box::new(|_, op| ms(if matches!(op, Op::Settle(_)) { 15 } else { 0 }));
    sim.send_many(1, 100);
    // As many handlers run as settlements are under way when it falls silent.
    let busy = |sim: &Sim| sim.running.len() == 4 && sim.machine.summary().unsettled == 8;
    let busy_at = (1..200).find(|now| {
        sim.run_to(at(*now));
        busy(&sim)
    });
    sim.silent_until[1] = at(30_000);
    sim.run_to(at(busy_at.unwrap() + 200));
    assert_eq!(sim.machine.summary().unsettled, 8);
    sim.send_many(0, 1_000);
    sim.run_to(at(20_000));
    assert_eq!(starts(&sim, 0, Some(0)), 1_000);
}

#[test]
fn settlements_that_are_answered_slowly_do_not_pile_up() {
    for last in [0, 1] {
        let queues = (0..=last).map(|_| queue_plan(1)).collect();
        let time = |delivery: &Delivery| 10 + delivery.message.info.sequence * 137 % 900;
        let mut sim = Sim::new(Plan { slots: 4, queues, until_empty: false })
            .handling(move |delivery| Some((ms(time(delivery)), Outcome::Ack)));
        sim.lag = Box::new(|_, op| ms(if matches!(op, Op::Settle(_)) { 1_000 } else { 0 }));
        sim.send_many(last, 200);
        let mut most = 0;
        for now in 0..5_000 {
            sim.run_to(at(now));
            most = most.max(sim.machine.summary().unsettled);
        }
        assert_eq!(most, 8, "with {last} other queues");
    }
}
