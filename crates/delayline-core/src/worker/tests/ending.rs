//! The shutdown of a worker, stage by stage.

use super::super::*;
use super::sim::{Fault, Sim, at, ms, plan};
use crate::MessageState;

#[test]
fn a_stop_waits_for_handlers_and_claims_nothing_more() {
    let mut sim = Sim::new(plan(2)).handling(|_| Some((ms(30_000), Outcome::Ack)));
    sim.send_many(0, 3);
    sim.stop(at(1_000), ms(60_000));
    let end = sim.run();
    assert!(end >= at(30_000) && end <= at(30_010), "{end:?}");
    let summary = sim.machine.summary();
    assert_eq!((summary.acked, summary.released, summary.unsettled), (2, 0, 0));
}

#[test]
fn handlers_are_told_to_stop_and_then_dropped() {
    let mut sim = Sim::new(plan(2)).forever();
    sim.send_many(0, 2);
    sim.stop(at(1_000), ms(60_000));
    sim.stop(at(2_000), ms(1_000));
    sim.stop(at(2_500), ms(60_000));
    let end = sim.run();
    let told =
        |action: &Action| matches!(action, Action::Cancel { reason: CancelReason::Stopping, .. });
    assert_eq!(sim.times(told), [at(3_000); 2]);
    assert_eq!(sim.times(|action| matches!(action, Action::Abort { .. })), [at(8_000); 2]);
    assert!(end <= at(8_010), "{end:?}");
    assert_eq!((sim.machine.summary().failed, sim.machine.summary().unsettled), (2, 0));
}

#[test]
fn an_idle_worker_stops_at_once() {
    let mut sim = Sim::new(plan(2));
    sim.stop(at(7_777), ms(60_000));
    assert_eq!(sim.run(), at(7_777));
}

#[test]
fn a_worker_that_stops_hands_on_what_the_queue_expects_of_it() {
    let mut sim = Sim::new(plan(2));
    sim.send(at(0), 0, "soon", ms(3_000));
    sim.stop(at(1_000), ms(0));
    assert!(sim.run() <= at(1_010));
    let rings = sim.times(|action| matches!(action, Action::Ring { .. }));
    assert_eq!(rings[0], at(1_000));
}

#[test]
fn a_stop_is_bounded_if_nothing_is_answered() {
    let mut sim = Sim::new(plan(2)).forever();
    sim.latency = ms(1_000_000_000);
    sim.send_many(0, 2);
    sim.stop(at(1_000), ms(1_500));
    assert!(sim.run() <= at(12_500));

    let mut sim = Sim::new(plan(2))
        .handling(|_| Some((ms(2_000), Outcome::Ack)))
        .faults(|op| if matches!(op, Op::Settle(_)) { Fault::LostRequest } else { Fault::None });
    sim.send_many(0, 2);
    sim.stop(at(1_000), ms(1_500));
    let end = sim.run();
    assert!(end <= at(7_010), "{end:?}");
    assert_eq!(sim.machine.summary().unsettled, 2);
}

#[test]
fn what_was_leased_and_never_started_is_given_back_uncounted() {
    let mut sim = Sim::new(plan(2)).first("claim", &[Fault::LostReply, Fault::Busy]);
    sim.send_many(0, 1);
    sim.stop(at(10), ms(0));
    sim.run();
    let summary = sim.machine.summary();
    assert_eq!((summary.released, summary.unsettled), (1, 0));
    assert!(sim.times(|action| matches!(action, Action::Start { .. })).is_empty());
    let Reply::Stats(stats) = sim.apply(0, &Op::Stats) else { unreachable!() };
    assert_eq!((stats.ready, stats.leased), (1, 0));
    let list = crate::List { status: crate::Status::Ready, after: None, limit: 10 };
    let Reply::List(page) = sim.apply(0, &Op::List(list)) else { unreachable!() };
    assert_eq!(page.messages[0].state, MessageState::Ready);
    assert_eq!((page.messages[0].failures, page.messages[0].crashes), (0, 0));
}
