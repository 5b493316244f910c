//! Heartbeats, lost leases, old leases and stuck handlers.

use std::time::Duration;

use super::super::*;
use super::retry;
use super::sim::{Fault, Sim, at, ms, plan};
use crate::{Claim, ClaimId, ConsumerName, MessageId, Millis};

/// The only handler.
fn only(sim: &Sim) -> Slot {
    *sim.running.keys().next().unwrap()
}

fn cancelled(sim: &Sim) -> Option<(Moment, CancelReason)> {
    sim.running[&only(sim)].cancelled
}

fn steal(sim: &mut Sim) -> Reply {
    let claim = Claim::new(
        ConsumerName::new("thief").unwrap(),
        ClaimId::from_bytes([9; 16]),
        10,
        Millis::new(60_000).unwrap(),
    );
    sim.apply(0, &Op::Claim(claim))
}

#[test]
fn all_leases_are_prolonged_together_after_a_third_of_their_time() {
    let mut sim = Sim::new(plan(10)).forever();
    sim.send_many(0, 5);
    sim.run_to(at(100_000));
    let beats = sim.sent("extend");
    assert!((95..=100).contains(&beats.len()), "{}", beats.len());
    assert!(sim.running.values().all(|handler| handler.cancelled.is_none()));
    for slot in sim.running.keys().copied().collect::<Vec<_>>() {
        sim.finish(slot, Outcome::Ack);
    }
    sim.run_to(at(200_000));
    assert_eq!(sim.sent("extend").len(), beats.len(), "no heart beats after its handler");
    assert_eq!(sim.machine.summary().acked, 5);
}

#[test]
fn leases_of_a_part_that_is_away_cost_no_others() {
    let mut plan = plan(10);
    plan.queues[0].has_parts = true;
    let away = |id: &MessageId| id.as_str() == Some("away");
    let mut sim = Sim::new(plan).forever().faults(move |op| match op {
        Op::Extend(extend) if extend.leases.iter().any(|(id, _)| away(id)) => Fault::LostRequest,
        _ => Fault::None,
    });
    sim.send_many(0, 5);
    sim.send(at(0), 0, "away", ms(0));
    sim.run_to(at(100_000));
    let (lost, kept): (Vec<_>, Vec<_>) =
        sim.running.values().partition(|handler| handler.cancelled.is_some());
    assert!(!lost.is_empty() && lost.iter().all(|handler| away(&handler.id)));
    assert_eq!(kept.iter().filter(|handler| !away(&handler.id)).count(), 5);
    assert!(sim.sent("extend").len() < 500, "{}", sim.sent("extend").len());
}

#[test]
fn failed_beats_are_made_up_for_before_the_lease_runs_out() {
    let mut sim = Sim::new(plan(1)).forever().first("extend", &[Fault::LostRequest; 3]);
    sim.send_many(0, 1);
    sim.run_to(at(20_000));
    assert_eq!(cancelled(&sim), None);
}

#[test]
fn a_handler_is_told_when_its_lease_has_run_out_unheard_and_may_still_settle() {
    let mut sim = Sim::new(plan(1)).forever().faults(|op| match op {
        Op::Extend(_) => Fault::LostRequest,
        _ => Fault::None,
    });
    sim.send_many(0, 1);
    sim.run_to(at(10_000));
    assert_eq!(cancelled(&sim), Some((at(3_002), CancelReason::LeaseLost)));
    sim.finish(only(&sim), Outcome::Ack);
    sim.run_to(at(11_000));
    assert_eq!((sim.machine.summary().acked, sim.machine.summary().lost), (1, 0));
}

#[test]
fn a_lease_that_another_worker_took_is_not_settled() {
    let mut sim = Sim::new(plan(1)).forever().first("extend", &[Fault::LostRequest; 8]);
    sim.send_many(0, 1);
    sim.run_to(at(3_500));
    steal(&mut sim);
    sim.run_to(at(20_000));
    assert_eq!(cancelled(&sim).unwrap().1, CancelReason::LeaseLost);
    let settles = sim.sent("settle").len();
    sim.finish(only(&sim), Outcome::Ack);
    sim.run_to(at(21_000));
    assert_eq!(sim.machine.summary().lost, 1);
    // It tries to settle a lease that its own clock calls expired; the queue refuses (G6).
    assert!(sim.sent("settle").len() <= settles + 1);
    assert_eq!(sim.machine.summary().acked, 0);
}

#[test]
fn a_handler_learns_of_a_cancellation_at_its_next_beat() {
    let mut sim = Sim::new(plan(1)).forever();
    sim.send_many(0, 1);
    sim.run_to(at(1_500));
    sim.apply(0, &Op::Cancel(vec![MessageId::try_from("0-0").unwrap()]));
    sim.run_to(at(10_000));
    let (told, reason) = cancelled(&sim).unwrap();
    assert_eq!(reason, CancelReason::Requested);
    assert!(told <= at(2_010), "{told:?}");
    sim.finish(only(&sim), retry(0));
    sim.run_to(at(11_000));
    let summary = sim.machine.summary();
    assert_eq!((summary.cancelled, summary.failed, summary.dead), (1, 0, 0));
}

fn cancel(sim: &mut Sim) {
    sim.apply(0, &Op::Cancel(vec![MessageId::try_from("0-0").unwrap()]));
    sim.machine.handle_cancel(0, &MessageId::try_from("0-0").unwrap());
}

#[test]
fn a_handler_learns_of_a_cancellation_by_its_own_process_at_once() {
    let mut sim = Sim::new(plan(3)).forever();
    sim.send_many(0, 3);
    sim.run_to(at(100));
    cancel(&mut sim);
    sim.machine.handle_cancel(0, &MessageId::try_from("unknown").unwrap());
    sim.run_to(at(200));
    assert_eq!(cancelled(&sim), Some((at(101), CancelReason::Requested)));
    // The other leases are fresh, and are left alone.
    let Op::Extend(extend) = &sim.sent("extend")[0].1 else { unreachable!() };
    assert_eq!(extend.leases.len(), 1);
    sim.run_to(at(900));
    assert_eq!(sim.sent("extend").len(), 1);
}

#[test]
fn what_is_cancelled_while_an_extension_is_under_way_or_fails_is_asked_about_again() {
    // The extension in progress was executed before the cancel.
    let mut sim = Sim::new(plan(1)).forever();
    sim.send_many(0, 1);
    sim.run_to(at(500));
    sim.latency = ms(300);
    sim.run_to(at(1_100));
    assert_eq!(sim.sent("extend").len(), 1);
    cancel(&mut sim);
    sim.run_to(at(1_800));
    let (told, _) = cancelled(&sim).unwrap();
    assert!(told <= at(1_700), "{told:?}");

    let mut sim = Sim::new(plan(1)).forever().first("extend", &[Fault::LostRequest; 2]);
    sim.send_many(0, 1);
    sim.run_to(at(100));
    cancel(&mut sim);
    sim.run_to(at(900));
    let (told, _) = cancelled(&sim).unwrap();
    assert!(told > at(150) && told <= at(500), "{told:?}");
    assert_eq!(sim.sent("extend").len(), 3);
}

#[test]
fn a_handler_learns_of_a_cancellation_within_the_bound() {
    let mut plan = plan(1);
    plan.queues[0].cancel_within = Some(ms(200));
    let mut sim = Sim::new(plan).forever();
    sim.send_many(0, 1);
    sim.run_to(at(1_550));
    sim.apply(0, &Op::Cancel(vec![MessageId::try_from("0-0").unwrap()]));
    sim.run_to(at(1_752));
    assert_eq!(cancelled(&sim).map(|(_, reason)| reason), Some(CancelReason::Requested));
    assert!((7..=8).contains(&sim.sent("extend").len()), "{}", sim.sent("extend").len());
}

#[test]
fn a_message_that_comes_back_to_the_same_worker_ends_the_earlier_handlers_lease() {
    let mut sim = Sim::new(plan(2)).forever().first("extend", &[Fault::LostRequest; 6]);
    sim.send_many(0, 1);
    sim.run_to(at(9_000));
    let handlers: Vec<_> = sim.running.values().map(|handler| handler.cancelled).collect();
    assert_eq!(handlers.len(), 2);
    assert_eq!(handlers[0].map(|(_, reason)| reason), Some(CancelReason::LeaseLost));
    assert_eq!(handlers[1], None);
    sim.finish(only(&sim), Outcome::Ack);
    assert_eq!(sim.machine.summary().lost, 1);
}

#[test]
fn a_lease_that_is_too_old_is_prolonged_no_more_and_its_handler_is_told() {
    let mut plan = plan(1);
    plan.queues[0].max_lease_age = Some(ms(10_000));
    let mut sim = Sim::new(plan).forever();
    sim.send_many(0, 1);
    sim.run_to(at(11_000));
    assert_eq!(cancelled(&sim), Some((at(10_002), CancelReason::LeaseTooOld)));
    let beats = sim.sent("extend").len();
    sim.run_to(at(12_000));
    sim.finish(only(&sim), Outcome::Ack);
    sim.run_to(at(13_000));
    assert_eq!((sim.sent("extend").len(), sim.machine.summary().acked), (beats, 1));
}

#[test]
fn a_lease_that_is_too_old_and_expired_is_not_prolonged_for_a_hand_off() {
    // It expires after it is too old, or before.
    for expires_first in [false, true] {
        let mut plan = plan(1);
        plan.queues[0].max_lease_age = Some(ms(10_000));
        let mut sim = Sim::new(plan).forever().faults(move |op| match op {
            Op::Extend(_) if expires_first => Fault::LostRequest,
            Op::HandOff(_) => Fault::Full,
            _ => Fault::None,
        });
        sim.has_result = |_| true;
        sim.send_many(0, 1);
        sim.run_to(at(100));
        // No worker takes the message back.
        sim.apply(0, &Op::Pause);
        sim.run_to(at(15_000));
        assert!(cancelled(&sim).is_some());
        let beats = sim.sent("extend").len();
        sim.finish(only(&sim), Outcome::Ack);
        sim.run_to(at(30_000));
        assert!(sim.sent("hand_off").len() > 1);
        assert_eq!(sim.sent("extend").len(), beats, "{expires_first}");
    }
}

#[test]
fn a_stuck_handler_is_reported_once() {
    let mut plan = plan(3);
    plan.queues[0].stuck_after = Some(ms(5_000));
    let mut sim = Sim::new(plan).handling(|delivery| {
        let quick = delivery.message.info.sequence == 1;
        quick.then_some((Duration::from_millis(4_999), Outcome::Ack))
    });
    sim.send_many(0, 3);
    sim.run_to(at(60_000));
    let reports: Vec<_> = sim
        .log
        .iter()
        .filter_map(|(at, action)| match action {
            Action::Stuck { running, .. } => Some((*at, *running)),
            _ => None,
        })
        .collect();
    assert_eq!(reports, [(at(5_003), ms(5_000)); 2]);
}
