//! Workers of several queues, of which some do not reply.

use std::time::Duration;

use super::super::*;
use super::sim::{Fault, Lag, Sim, at, ms, plan, queue_plan};
use super::starts;
use crate::{ConsumerName, List, Millis, Status};

/// A worker of `queues` queues with the default lease.
fn sim(slots: usize, queues: usize) -> Sim {
    let queue = || QueuePlan { lease: Millis::new(30_000).unwrap(), ..queue_plan(1) };
    let queues = (0..queues).map(|_| queue()).collect();
    Sim::new(Plan { slots, queues, until_empty: false })
}

/// How late the handlers of the first queue started since `since`, sorted.
fn lateness(sim: &Sim, since: Moment) -> Vec<Duration> {
    let late = |(started, action): &(Moment, Action)| match action {
        Action::Start { slot, lateness, .. } if slot.queue == 0 && *started >= since => {
            Some(*lateness)
        }
        _ => None,
    };
    let mut late: Vec<_> = sim.log.iter().filter_map(late).collect();
    late.sort();
    late
}

/// Makes the second queue slow.
fn lag(lag: u64) -> Lag {
    Box::new(move |queue, _| if queue == 1 { ms(lag) } else { Duration::ZERO })
}

/// Sends a message each 50 ms in `from..to`.
fn send_steadily(sim: &mut Sim, queue: usize, from: u64, to: u64) {
    for n in (from..to).step_by(50) {
        sim.send(at(n), queue, &format!("{queue}-{n}"), Duration::ZERO);
    }
}

#[test]
fn a_silent_queue_holds_up_no_other() {
    for (slots, silent) in [(1, 1), (10, 1), (10, 4)] {
        let mut sim = sim(slots, silent + 1);
        for queue in 0..=silent {
            send_steadily(&mut sim, queue, 0, 60_000);
        }
        sim.run_to(at(10_000));
        for queue in 1..=silent {
            sim.silent_until[queue] = at(50_000);
        }
        sim.run_to(at(50_000));
        let late = lateness(&sim, at(10_000));
        let (median, longest) = (late[late.len() / 2], late[late.len() - 1]);
        assert!(late.len() >= 798, "{} with {slots} slots", late.len());
        assert!(median <= ms(10), "{median:?} with {slots} slots");
        assert!(longest <= ms(160) * u32::try_from(silent).unwrap(), "{longest:?}");
        // What the queues have kept for it meanwhile is handled as well.
        sim.run_to(at(200_000));
        let sent = 1_200 * (u64::try_from(silent).unwrap() + 1);
        assert_eq!(sim.machine.summary().acked, sent, "with {slots} slots");
    }
}

#[test]
fn a_late_reply_starts_what_has_room_and_releases_the_rest_uncounted() {
    let mut sim = sim(4, 2).handling(|_| Some((ms(20_000), Outcome::Ack)));
    sim.run_to(at(1_000));
    sim.silent_until[1] = at(9_000);
    sim.send_many(1, 4);
    sim.run_to(at(2_000));
    sim.send_many(0, 3);
    sim.run_to(at(8_999));
    assert_eq!(starts(&sim, 0, Some(0)), 3);
    sim.run_to(at(12_000));
    // One slot was left over.
    assert_eq!((starts(&sim, 0, Some(1)), sim.running.len()), (1, 4));
    assert_eq!(sim.machine.summary().released, 3);
    let list = List { status: Status::Ready, after: None, limit: 10 };
    let Reply::List(page) = sim.apply(1, &Op::List(list)) else { unreachable!() };
    let counted = page.messages.iter().map(|info| (info.failures, info.crashes));
    assert_eq!(counted.collect::<Vec<_>>(), [(0, 0); 3]);
    // They are claimed again when there is room.
    sim.run_to(at(60_000));
    assert_eq!(sim.machine.summary().acked, 7);
}

#[test]
fn a_queue_whose_claims_fail_slowly_holds_up_no_other() {
    for fault in [Fault::Busy, Fault::LostRequest, Fault::LostReply] {
        let broken = ConsumerName::new("broken").unwrap();
        let queues = vec![queue_plan(1), QueuePlan { consumer: broken.clone(), ..queue_plan(1) }];
        let plan = Plan { slots: 1, queues, until_empty: false };
        let mut sim = Sim::new(plan).faults(move |op| match op {
            Op::Claim(claim) if claim.consumer == broken => fault,
            _ => Fault::None,
        });
        sim.lag = lag(1_000);
        send_steadily(&mut sim, 0, 0, 60_000);
        sim.run_to(at(60_000));
        let late = lateness(&sim, at(2_000));
        let longest = late[late.len() - 1];
        assert!(late.len() > 1_100 && longest <= ms(20), "{longest:?} of {}", late.len());
    }
}

#[test]
fn a_queue_whose_replies_always_take_long_is_not_starved() {
    for round_trip in [150, 300, 1_500] {
        let mut sim = sim(4, 2).handling(|_| Some((ms(50), Outcome::Ack)));
        sim.lag = lag(round_trip);
        for queue in [0, 1] {
            sim.send_many(queue, 4_000);
        }
        sim.run_to(at(10_000));
        let before = sim.machine.summary().released;
        sim.run_to(at(40_000));
        let released = sim.machine.summary().released - before;
        assert_eq!(released, 0, "with {round_trip} ms");
        assert!(starts(&sim, 0, Some(1)) > 20, "with {round_trip} ms");
    }
}

#[test]
fn a_worker_that_ends_on_empty_queues_waits_for_a_silent_one() {
    let mut plan = plan(1);
    plan.queues.push(queue_plan(1));
    plan.until_empty = true;
    let mut sim = Sim::new(plan);
    sim.silent_until[1] = at(2_000);
    sim.send(at(1_500), 1, "late", Duration::ZERO);
    let end = sim.run();
    assert!(end >= at(2_000), "{end:?}");
    assert_eq!(sim.machine.summary().acked, 1);
}

#[test]
fn a_claim_that_is_repeated_soon_keeps_its_slots_until_then() {
    for seed in 0..20 {
        let queues = vec![queue_plan(1), queue_plan(1)];
        let plan = Plan { slots: 1, queues, until_empty: false };
        let mut sim = Sim::seeded(plan, seed).first("claim", &[Fault::LostReply]);
        for queue in [0, 1] {
            sim.send_many(queue, 20);
        }
        sim.run_to(at(2_000));
        let summary = sim.machine.summary();
        assert_eq!((summary.acked, summary.released), (40, 0), "seed {seed}");
    }
}
