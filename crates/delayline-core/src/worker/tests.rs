//! The machine in simulated time.

mod answers;
mod ending;
mod full;
mod leases;
mod one_slot;
mod saves;
mod silence;
mod sim;

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use self::sim::{Fault, Sim, at, ms, plan, queue_plan};
use super::*;
use crate::{ConsumerName, Delivery, Group, Millis, Schedule};

/// The number of handlers started since `before`, of one queue or of all.
fn starts(sim: &Sim, before: usize, queue: Option<usize>) -> usize {
    let wanted = |action: &Action| match action {
        Action::Start { slot, .. } => queue.is_none_or(|queue| slot.queue == queue),
        _ => false,
    };
    sim.log[before..].iter().filter(|(_, action)| wanted(action)).count()
}

fn retry(delay: u64) -> Outcome {
    Outcome::Retry {
        schedule: Schedule::In(Millis::new(delay).unwrap()),
        error: "failed".to_owned(),
    }
}

#[test]
fn messages_start_when_they_are_due_and_the_claims_in_between_are_rare() {
    let mut sim = Sim::new(plan(2));
    for due in [0, 500, 501, 20_000, 3_600_000] {
        sim.send(at(0), 0, &due.to_string(), ms(due));
    }
    sim.run_to(at(3_700_000));
    let started = sim.times(|action| matches!(action, Action::Start { .. }));
    for (started, due) in started.iter().zip([0, 500, 501, 20_000, 3_600_000]) {
        assert!(*started >= at(due) && *started <= at(due + 4), "{started:?} for {due}");
    }
    assert_eq!(started.len(), 5);
    let idle = sim.times(|action| matches!(action, Action::Send { .. } | Action::Wait { .. }));
    assert!(idle.len() < 3_700 * 48 / 100, "{}", idle.len());
    let claims = sim.sent("claim");
    assert!(claims.windows(2).all(|pair| pair[1].0.since(pair[0].0) <= ms(5_001)));
}

#[test]
fn a_message_that_is_due_about_when_the_queue_is_polled_is_in_time() {
    for seed in 0..20 {
        let mut sim = Sim::seeded(plan(2), seed);
        // Each arrives at a queue that has been idle for a while.
        let sends = (0..40).map(|n| (n * 20_000 + n * 123, 4_400 + n * 18));
        for (sent, delay) in sends.clone() {
            sim.send(at(sent), 0, &sent.to_string(), ms(delay));
        }
        sim.run_to(at(1_000_000));
        let started = sim.times(|action| matches!(action, Action::Start { .. }));
        for (started, (sent, delay)) in started.into_iter().zip(sends) {
            let late = started.since(at(sent + delay));
            assert!(late <= ms(4), "{late:?} late after {delay} ms, seed {seed}");
        }
        assert_eq!(sim.machine.summary().acked, 40);
    }
}

#[test]
fn a_claim_that_takes_longer_than_its_lease_starts_nothing_and_says_so() {
    let mut plan = plan(4);
    plan.queues[0].lease = Millis::new(100).unwrap();
    let mut sim = Sim::new(plan);
    sim.latency = ms(150);
    sim.send_many(0, 3);
    sim.run_to(at(10_000));
    assert!(sim.times(|action| matches!(action, Action::Start { .. })).is_empty());
    let claims = sim.sent("claim").len();
    assert!(claims < 20, "{claims} claims of a worker that is too far away");
    let late = |action: &Action| match action {
        Action::LateClaim { queue: 0, ids, lease, round_trip, .. } => {
            ids.len() == 3 && lease.as_ms() == 100 && *round_trip == ms(150)
        }
        _ => false,
    };
    assert!(sim.times(late).len() >= 3);
    // A worker that is closer has lost nothing.
    sim.latency = ms(1);
    sim.run_to(at(20_000));
    let started = sim.log.iter().filter_map(|(_, action)| match action {
        Action::Start { delivery, .. } => Some(delivery.message.info.crashes),
        _ => None,
    });
    assert_eq!(started.collect::<Vec<_>>(), [0; 3]);
    assert_eq!(sim.machine.summary().acked, 3);
}

#[test]
fn a_claim_that_may_have_been_executed_is_sent_again_under_its_own_id() {
    let faults = [Fault::LostReply, Fault::LostRequest, Fault::Busy];
    let mut sim = Sim::new(plan(10)).first("claim", &faults);
    sim.send_many(0, 5);
    sim.run_to(at(3_000));
    let claims = sim.sent("claim");
    assert!(claims[..4].windows(2).all(|pair| pair[0].1 == pair[1].1));
    assert_ne!(claims[3].1, claims[4].1);
    for (pair, full) in claims[..4].windows(2).zip([100, 200, 400]) {
        let pause = pair[1].0.since(pair[0].0);
        assert!(pause >= ms(full / 2) && pause <= ms(full + 1), "{pause:?} of {full}");
    }
    assert_eq!(sim.machine.summary().acked, 5);
}

#[test]
fn a_claim_is_given_up_when_what_it_may_have_leased_has_run_out() {
    let mut first = true;
    let mut sim = Sim::new(plan(10))
        .faults(move |_| if std::mem::take(&mut first) { Fault::LostReply } else { Fault::Busy });
    sim.send_many(0, 1);
    sim.run_to(at(10_000));
    let claims = sim.sent("claim");
    let again = claims.iter().filter(|(_, op)| *op == claims[0].1).count();
    assert!(again >= 3 && again < claims.len(), "{again} of {}", claims.len());
    assert!(claims.iter().all(|(at, op)| *op != claims[0].1 || at.since_start() < ms(5_100)));
}

#[test]
fn settlements_go_out_together_and_until_they_are_confirmed() {
    let faults = [Fault::LostReply, Fault::LostRequest, Fault::Busy];
    let mut sim = Sim::new(plan(100)).first("settle", &faults);
    sim.send_many(0, 300);
    sim.run_to(at(5_000));
    assert_eq!(sim.machine.summary().acked, 300);
    let settles = sim.sent("settle");
    assert!(settles.len() < 10, "{}", settles.len());
    let failing = settles[0].0..settles[3].0;
    let claims = sim.sent("claim");
    assert!(!claims.iter().any(|(at, _)| *at > failing.start && *at < failing.end));
}

#[test]
fn one_settlement_names_no_message_twice() {
    let tries = Rc::new(Cell::new(0));
    let count = Rc::clone(&tries);
    let mut sim = Sim::new(plan(4)).handling(move |_| {
        count.set(count.get() + 1);
        Some((ms(1), if count.get() < 50 { Outcome::Release } else { Outcome::Ack }))
    });
    sim.send_many(0, 1);
    sim.run_to(at(6_000));
    assert_eq!((sim.machine.summary().released, sim.machine.summary().acked), (49, 1));
}

#[test]
fn a_handler_that_gives_everything_back_at_once_is_no_hot_loop() {
    let is_healthy = |delivery: &Delivery| delivery.message.info.id.to_string() == "healthy";
    let again = |schedule| Outcome::Snooze { schedule };
    let past = Schedule::At(Timestamp::MIN);
    for outcome in [Outcome::Release, again(Schedule::NOW), again(past)] {
        let mut sim = Sim::new(plan(4)).handling(move |delivery| {
            let outcome = if is_healthy(delivery) { Outcome::Ack } else { outcome.clone() };
            Some((ms(0), outcome))
        });
        sim.send_many(0, 2);
        sim.send(at(5_000), 0, "healthy", Duration::ZERO);
        sim.run_to(at(10_000));
        let claims = sim.sent("claim").len();
        assert!((100..=220).contains(&claims), "{claims} claims in 10 s");
        let starts = |(at, action): &(Moment, Action)| match action {
            Action::Start { delivery, .. } => is_healthy(delivery).then_some(*at),
            _ => None,
        };
        let healthy: Vec<_> = sim.log.iter().filter_map(starts).collect();
        assert!(healthy.len() == 1 && healthy[0] <= at(5_110), "{healthy:?}");
    }
}

#[test]
fn queues_share_the_slots_by_their_weights() {
    for slots in [1, 4, 10] {
        let queues = vec![queue_plan(1), queue_plan(3), queue_plan(6)];
        let mut sim = Sim::new(Plan { slots, queues, until_empty: false });
        for queue in 0..3 {
            sim.send_many(queue, 2_000);
        }
        // By then, all queues are known to hold messages.
        sim.run_to(at(2_000));
        let before = sim.log.len();
        sim.run_to(at(2_000 + 6_000 / u64::try_from(slots).unwrap()));
        let started = |wanted: Option<usize>| starts(&sim, before, wanted);
        let starts = |queue| started(Some(queue)) * 1_000 / started(None);
        for (queue, share) in [(0, 100), (1, 300), (2, 600)] {
            let got = starts(queue);
            assert!(got.abs_diff(share) <= 40, "{got} instead of {share} with {slots} slots");
        }
    }
}

#[test]
fn a_queue_that_was_idle_gets_no_more_than_its_share_afterwards() {
    let queues = vec![queue_plan(1), queue_plan(1)];
    let mut sim = Sim::new(Plan { slots: 1, queues, until_empty: false });
    sim.send_many(0, 2_000);
    sim.run_to(at(5_000));
    sim.send_many(1, 2_000);
    sim.run_to(at(5_600));
    let before = sim.log.len();
    sim.run_to(at(7_000));
    let starts = |queue| starts(&sim, before, Some(queue));
    assert!(starts(0) > 20 && starts(0).abs_diff(starts(1)) <= 2, "{} {}", starts(0), starts(1));
}

#[test]
fn a_queue_has_no_more_handlers_than_it_may_and_leaves_the_rest_to_others() {
    let queues = vec![QueuePlan { most: 2, ..queue_plan(9) }, queue_plan(1)];
    let mut sim = Sim::new(Plan { slots: 10, queues, until_empty: false })
        .handling(|_| Some((ms(100), Outcome::Ack)));
    sim.send_many(0, 100);
    sim.send_many(1, 1_000);
    sim.run_to(at(3_000));
    let mut running = [0_usize; 2];
    for slot in sim.running.keys() {
        running[slot.queue()] += 1;
    }
    assert_eq!(running, [2, 8]);
    for (_, op) in sim.sent("claim") {
        let Op::Claim(claim) = op else { unreachable!() };
        assert!(claim.max <= 10);
    }
    let (limited, free) = (starts(&sim, 0, Some(0)), starts(&sim, 0, Some(1)));
    assert!((50..=60).contains(&limited) && free >= 200, "{limited} {free}");
    // It gets its turn, even if the other queue is idle.
    sim.run_to(at(60_000));
    assert_eq!(sim.machine.summary().acked, 1_100);
}

#[test]
fn idle_queues_are_looked_at_in_turn() {
    for queues in [1_u32, 2, 3, 20] {
        let plans = (0..queues).map(|_| queue_plan(1)).collect();
        let mut sim = Sim::new(Plan { slots: 4, queues: plans, until_empty: false });
        sim.run_to(at(1_000_000));
        // One wait covers all queues.
        let of_one = |action: &Action| matches!(action, Action::Wait { queue: 0, .. });
        let sent = sim.sent("claim").len() + sim.times(of_one).len();
        assert!(sent <= 500 + usize::try_from(queues).unwrap(), "{sent} with {queues} queues");
        let longest = ms(5_001).max(ms(2_501) * queues);
        for queue in 0..queues {
            let of_it = |action: &Action| matches!(action, Action::Send { queue: at, .. } if *at == queue as usize);
            let looks = sim.times(of_it);
            assert!(looks.windows(2).all(|pair| pair[1].since(pair[0]) <= longest), "{queues}");
        }
    }
}

#[test]
fn a_look_of_another_worker_counts_and_what_is_known_to_come_does_not_wait_for_it() {
    let mut sim = Sim::new(plan(1));
    sim.run_to(at(100));
    for n in 1..=20 {
        sim.machine.handle_looked(at(n * 1_000), 0);
        sim.run_to(at(n * 1_000));
    }
    assert_eq!(sim.sent("claim").len(), 1);
    sim.send(at(20_100), 0, "a", ms(300));
    sim.run_to(at(20_200));
    sim.machine.handle_looked(at(20_200), 0);
    sim.run_to(at(20_500));
    assert_eq!(sim.machine.summary().acked, 1);
    let claims = sim.sent("claim").len();
    // Without polls by others, its own resume.
    sim.run_to(at(26_000));
    assert_eq!(sim.sent("claim").len(), claims + 1);
}

#[test]
fn a_queue_that_cannot_be_reached_does_not_stop_another() {
    let queues = vec![queue_plan(1), queue_plan(1)];
    let broken = ConsumerName::new("broken").unwrap();
    let mut plan = Plan { slots: 4, queues, until_empty: false };
    plan.queues[0].consumer = broken.clone();
    let mut sim = Sim::new(plan).faults(move |op| match op {
        Op::Claim(claim) if claim.consumer == broken => Fault::LostRequest,
        _ => Fault::None,
    });
    sim.send_many(1, 100);
    sim.run_to(at(3_000));
    assert_eq!(sim.machine.summary().acked, 100);
    let asked = sim.times(|action| {
        matches!(action, Action::Send { queue: 0, .. } | Action::Wait { queue: 0, .. })
    });
    assert!(asked.len() < 40, "{}", asked.len());
}

#[test]
fn a_hint_that_finds_no_free_slot_is_handed_on_and_not_waited_for_again_until_there_is_one() {
    let mut sim = Sim::new(plan(2)).handling(|_| Some((ms(8_000), Outcome::Ack)));
    sim.run_to(at(1_000));
    // Two messages fill the slots; the third arrives while the earlier wait is still open.
    for n in 0..3 {
        sim.send(at(1_000 + n * 100), 0, &n.to_string(), Duration::ZERO);
    }
    sim.run_to(at(10_000));
    let waits = sim.times(|action| matches!(action, Action::Wait { .. }));
    let full: Vec<_> = waits.iter().filter(|wait| **wait > at(1_110)).collect();
    assert!(!full.is_empty() && *full[0] > at(9_000), "{waits:?}");
    // Both hints were used, and the wait was not renewed.
    assert!(sim.times(|action| matches!(action, Action::Ring { .. })).is_empty());

    let mut sim = Sim::new(plan(1)).handling(|_| Some((ms(3_000), Outcome::Ack)));
    sim.send(at(100), 0, "a", ms(1_000));
    // Claimed by the timer when it is due; the wait for hints continues, and brings one that is
    // useful only to others.
    sim.send(at(2_000), 0, "b", Duration::ZERO);
    sim.run_to(at(4_000));
    assert_eq!(sim.times(|action| matches!(action, Action::Ring { .. })), [at(2_001)]);
    let waits = sim.times(|action| matches!(action, Action::Wait { .. }));
    assert!(!waits.iter().any(|wait| *wait > at(1_102) && *wait < at(4_000)), "{waits:?}");
}

#[test]
fn hints_that_arrive_while_claims_have_the_slots_are_used_and_not_handed_on() {
    let queues = (0..100).map(|_| queue_plan(1)).collect();
    let mut sim = Sim::new(Plan { slots: 4, queues, until_empty: false });
    sim.bells.fill(true);
    sim.run_to(at(2_000));
    assert!(sim.times(|action| matches!(action, Action::Ring { .. })).is_empty());
    // Two per queue: the first claim, and one after the hint.
    assert_eq!(sim.sent("claim").len(), 200);
}

#[test]
fn what_a_queue_expects_of_a_worker_without_room_is_handed_on() {
    let queues = vec![queue_plan(1), queue_plan(1)];
    let mut sim = Sim::new(Plan { slots: 1, queues, until_empty: false }).forever();
    sim.send(at(0), 0, "later", ms(2_000));
    sim.send(at(1_000), 1, "now", Duration::ZERO);
    sim.run_to(at(10_000));
    let rings = sim.times(|action| matches!(action, Action::Ring { queue: 0 }));
    // Its own wait may hear it first, and is not renewed.
    assert_eq!(rings, [at(2_000), at(2_001)]);
}

#[test]
fn a_worker_without_room_moves_a_flood_to_its_lane() {
    let mut sim = Sim::new(plan(1)).forever();
    let flood: Vec<_> = (0..4_500)
        .map(|n| {
            let message = NewMessage::new(MessageId::try_from(n.to_string()).unwrap(), "");
            let message = message.schedule(Schedule::In(Millis::saturating(1)));
            message.group(Group::try_from("flood").unwrap())
        })
        .collect();
    for batch in flood.chunks(1_000) {
        sim.apply(0, &Op::Enqueue(batch.to_vec()));
    }
    sim.run_to(at(2_000));
    let asked: Vec<_> = sim
        .log
        .iter()
        .filter_map(|(_, action)| match action {
            Action::Send { op: Op::Claim(claim), .. } => Some(claim.max),
            _ => None,
        })
        .collect();
    // The first claim comes before the flood is due.
    assert_eq!(asked, [1, 1, 0, 0, 0, 0]);
}

#[test]
fn the_next_claim_is_sent_for_the_due_millisecond_and_not_for_the_one_after() {
    let mut machine = Machine::new(plan(1), [0; 16]);
    let Some(Action::Send { queue, op }) = machine.poll(at(100)) else { panic!("no claim") };
    let next = Timestamp::from_ms(5_010).unwrap();
    let claimed = Claimed { next: Some(next), ..Claimed::default() };
    let applied = Applied::new(Timestamp::from_ms(5_000).unwrap(), 1, Reply::Claim(claimed));
    // The server read its clock 9.3 ms before the due time.
    machine.handle_answer(at(101), queue, op, Ok(applied.with_micros(700)));
    while let Some(action) = machine.poll(at(101)) {
        assert!(matches!(action, Action::Wait { .. }), "{action:?}");
    }
    assert_eq!(machine.wake_at(), Some(Moment::at(Duration::from_micros(109_300))));
}

#[test]
fn hints_are_not_waited_for_where_there_are_none() {
    let mut machine = Machine::new(plan(1), [0; 16]);
    let mut waits = 0;
    let mut now = Moment::START;
    for _ in 0..100 {
        while let Some(action) = machine.poll(now) {
            match action {
                Action::Send { queue, op } => {
                    let reply = Reply::Claim(Claimed::default());
                    let applied = Applied::new(Timestamp::MIN, 0, reply);
                    machine.handle_answer(now, queue, op, Ok(applied));
                }
                Action::Wait { queue, .. } => {
                    waits += 1;
                    let error = Error::new(ErrorKind::Unsupported("hints"));
                    machine.handle_waited(now, queue, &Err(error));
                }
                other => panic!("{other:?}"),
            }
        }
        now = machine.wake_at().unwrap();
    }
    assert_eq!(waits, 1);
}

#[test]
fn a_worker_ends_when_all_its_queues_are_empty() {
    let queues = vec![queue_plan(1), queue_plan(1)];
    let mut sim = Sim::new(Plan { slots: 4, queues, until_empty: true });
    sim.send_many(0, 3);
    sim.send(at(0), 1, "later", ms(60_000));
    let end = sim.run();
    assert!(end >= at(60_000) && end <= at(60_100), "{end:?}");
    assert_eq!(sim.machine.summary().acked, 4);
}

#[test]
fn a_queue_that_was_empty_is_asked_again_when_a_handler_may_have_sent_to_it() {
    let queues = vec![queue_plan(1), queue_plan(1)];
    let mut sim = Sim::new(Plan { slots: 4, queues, until_empty: true });
    sim.send(at(0), 0, "first", ms(10_000));
    // While the first handler is running.
    sim.send(at(10_005), 1, "second", ms(60_000));
    let end = sim.run();
    assert!(end >= at(70_000), "{end:?}");
    assert_eq!(sim.machine.summary().acked, 2);
}
