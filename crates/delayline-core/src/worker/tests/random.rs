//! Random faults, handlers and shutdowns.

use proptest::collection::vec;
use proptest::prelude::*;

use super::super::*;
use super::retry;
use super::sim::{Fault, Sim, at, ms, queue_plan};
use crate::{Millis, Schedule};

#[derive(Clone, Debug)]
struct Story {
    slots: usize,
    queues: Vec<u16>,
    latency: u64,
    max_age: Option<u64>,
    /// When it is sent, to which queue, and its delay.
    messages: Vec<(u64, usize, u64)>,
    /// How long handlers run, and how they end; 6 is never.
    handlers: Vec<(u64, u8)>,
    faults: Vec<Fault>,
    stop: (u64, u64),
}

fn stories() -> impl Strategy<Value = Story> {
    let fault = prop_oneof![
        6 => Just(Fault::None),
        1 => Just(Fault::LostReply),
        1 => Just(Fault::LostRequest),
        1 => Just(Fault::Busy),
    ];
    (
        1..5_usize,
        vec(1..5_u16, 1..3),
        prop_oneof![0..5_u64, 0..4_000_u64],
        proptest::option::of(100..10_000_u64),
        vec((0..20_000_u64, 0..2_usize, 0..10_000_u64), 0..30),
        vec((prop_oneof![0..50_u64, 0..9_000_u64], 0..7_u8), 1..20),
        vec(fault, 1..40),
        (0..40_000_u64, 0..10_000_u64),
    )
        .prop_map(|(slots, queues, latency, max_age, messages, handlers, faults, stop)| {
            Story { slots, queues, latency, max_age, messages, handlers, faults, stop }
        })
}

fn outcome(kind: u8) -> Option<Outcome> {
    match kind {
        0 | 1 => Some(Outcome::Ack),
        2 => Some(retry(500)),
        3 => Some(Outcome::Snooze { schedule: Schedule::In(Millis::new(300).unwrap()) }),
        4 => Some(Outcome::Release),
        5 => Some(Outcome::Reject { error: "no".to_owned() }),
        _ => None,
    }
}

fn play(story: &Story) {
    let queue =
        |weight: &u16| QueuePlan { max_lease_age: story.max_age.map(ms), ..queue_plan(*weight) };
    let queues: Vec<_> = story.queues.iter().map(queue).collect();
    let (count, slots) = (queues.len(), story.slots);
    let mut handlers = story.handlers.clone().into_iter().cycle();
    let mut faults = story.faults.clone().into_iter().cycle();
    let mut sim = Sim::new(Plan { slots, queues, until_empty: false })
        .faults(move |_| faults.next().unwrap())
        .handling(move |_| {
            let (time, kind) = handlers.next().unwrap();
            outcome(kind).map(|outcome| (ms(time), outcome))
        });
    sim.latency = ms(story.latency);
    for (n, (when, queue, delay)) in story.messages.iter().enumerate() {
        sim.send(at(*when), queue % count, &n.to_string(), ms(*delay));
    }
    let (stop, grace) = story.stop;
    sim.stop(at(stop), ms(grace));
    // The simulation checks slots, and extensions of ended handlers, at every step.
    let end = sim.run();
    assert!(end <= at(stop + grace + 10_000), "{end:?}");
    assert!(sim.running.is_empty() || end == at(stop + grace + 10_000));

    // Every delivery whose handler ended was settled with its outcome, was lost, or is reported as
    // unsettled.
    let mut settled = std::collections::HashMap::new();
    for (_, op) in sim.sent("settle") {
        let Op::Settle(items) = op else { unreachable!() };
        for item in items {
            let known = settled.insert((item.id, item.lease), item.outcome.clone());
            assert!(known.is_none_or(|known| known == item.outcome), "settled in two ways");
        }
    }
    let unsent = sim.ended.iter().filter(|(lease, outcome)| {
        let sent = settled.get(lease);
        assert!(sent.is_none_or(|sent| sent == *outcome), "settled in another way");
        sent.is_none()
    });
    let summary = sim.machine.summary();
    let unsent = u64::try_from(unsent.count()).unwrap();
    assert!(unsent <= summary.lost + summary.unsettled, "{unsent} {summary:?}");
    let answered = summary.acked
        + summary.failed
        + summary.rejected
        + summary.cancelled
        + summary.snoozed
        + summary.released
        + summary.lost
        + summary.unclear
        + summary.unsettled;
    let known = sim.ended.len() + sim.running.len();
    assert!(answered >= u64::try_from(known).unwrap(), "{known} deliveries, {summary:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn slots_leases_settlements_and_the_end_are_in_order_whatever_happens(story in stories()) {
        play(&story);
    }
}
