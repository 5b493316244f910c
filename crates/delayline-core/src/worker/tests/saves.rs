//! Checkpoints and progress that handlers save.

use bytes::Bytes;

use super::super::*;
use super::retry;
use super::sim::{Fault, Sim, at, ms, plan};
use crate::{Found, Progress, Save};

fn save(sim: &mut Sim, slot: Slot, text: &'static str) {
    sim.machine.handle_saved(slot, None, Some(Bytes::from_static(text.as_bytes())));
}

/// Returns the slot of the only running handler.
fn only(sim: &Sim) -> Slot {
    *sim.running.keys().next().unwrap()
}

/// Returns the saves of all extensions, and when each was sent.
fn saves(sim: &Sim) -> Vec<(Moment, Save)> {
    let extends = sim.sent("extend").into_iter();
    let saves = extends.filter_map(|(at, op)| match op {
        Op::Extend(extend) => Some(extend.saves.into_iter().map(move |(_, save)| (at, save))),
        _ => None,
    });
    saves.flatten().collect()
}

/// Returns the stored checkpoint of the first message.
fn stored(sim: &mut Sim) -> Option<Bytes> {
    let op = Op::Get(vec![MessageId::try_from("0-0").unwrap()]);
    let Reply::Get(mut found) = sim.apply(0, &op) else { unreachable!() };
    match found.remove(0) {
        Found::Live(message) => message.checkpoint,
        _ => None,
    }
}

#[test]
fn saves_are_merged_to_one_a_second() {
    let mut sim = Sim::new(plan(2)).forever();
    sim.send_many(0, 2);
    sim.run_to(at(100));
    let slots: Vec<_> = sim.running.keys().copied().collect();
    for n in 0..5_000 {
        save(&mut sim, slots[0], if n % 2 == 0 { "even" } else { "odd" });
        sim.machine.handle_saved(slots[1], Some(Progress::new(0.5, "")), None);
        sim.run_to(at(101 + n));
    }
    let all = saves(&sim);
    // Of each handler: the first save at once, then one per second.
    assert!((10..=12).contains(&all.len()), "{all:?}");
    assert_eq!(all[0].0, at(100));
    assert!(all.windows(3).all(|it| it[2].0 >= it[0].0.after(ms(1_000))), "{all:?}");
    sim.run_to(at(7_000));
    assert_eq!(stored(&mut sim).unwrap(), "odd");
    let extensions = sim.sent("extend").len();
    // Saves are sent with the heartbeats.
    assert!(extensions <= 8, "{extensions}");
}

#[test]
fn the_last_save_goes_with_the_settlement() {
    for outcome in [retry(0), Outcome::Release, Outcome::Ack] {
        let mut sim = Sim::new(plan(1)).forever();
        sim.send_many(0, 1);
        sim.run_to(at(100));
        let slot = only(&sim);
        save(&mut sim, slot, "first");
        sim.run_to(at(200));
        save(&mut sim, slot, "last");
        sim.finish(slot, outcome.clone());
        sim.run_to(at(300));
        assert_eq!(saves(&sim).len(), 1);
        let Op::Settle(items) = &sim.sent("settle")[0].1 else { unreachable!() };
        let saved = items[0].save.as_ref().and_then(|save| save.checkpoint.clone());
        let is_ack = outcome == Outcome::Ack;
        assert_eq!(saved, (!is_ack).then(|| Bytes::from_static(b"last")));
        assert_eq!(stored(&mut sim), saved);
    }
}

#[test]
fn a_save_that_was_lost_is_sent_again() {
    let mut sim = Sim::new(plan(1)).forever().first("extend", &[Fault::LostRequest]);
    sim.send_many(0, 1);
    sim.run_to(at(100));
    let slot = only(&sim);
    save(&mut sim, slot, "kept");
    sim.run_to(at(20_000));
    assert_eq!(stored(&mut sim).unwrap(), "kept");
    assert_eq!(saves(&sim).len(), 2);
}
