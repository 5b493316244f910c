//! The operations that are torn.

use super::*;

#[expect(clippy::too_many_lines, reason = "a table")]
pub(super) fn tears() -> Vec<Tear> {
    let tear = |what, touches: &[&'static str], op| Tear {
        what,
        before: Vec::new(),
        at: 10,
        op,
        touches: touches.to_vec(),
        finishes: Vec::new(),
        creates: Vec::new(),
    };
    let finish = |what, touches: &[&'static str], op| Tear {
        finishes: touches.to_vec(),
        ..tear(what, touches, op)
    };
    let each = |outcome: &Outcome| {
        let item = |name: &&str| Settlement::new(id(name), lease(3), outcome.clone());
        Op::Settle(LEASED.iter().map(item).collect())
    };
    let one_each = || {
        let outcomes = [
            Outcome::Ack,
            Outcome::Release,
            Outcome::Retry { schedule: Schedule::In(millis(7)), error: "no".to_owned() },
            Outcome::Snooze { schedule: Schedule::In(millis(8)) },
            Outcome::Undecodable { schedule: Schedule::In(millis(9)), error: "unknown".to_owned() },
        ];
        let items = LEASED
            .iter()
            .zip(outcomes)
            .map(|(name, outcome)| Settlement::new(id(name), lease(3), outcome));
        Op::Settle(items.collect())
    };
    let error = "no".to_owned();
    let flagged = ["flagged"];
    let due = ["ready", "second", "big", "again", "stale"];
    let in_lanes = ["ready", "second", "big"];
    let all_due = [&due[..], &LEASED[..]].concat();
    let schedule = Schedule::In(millis(50));
    let each_group = |most: Option<u32>| Op::SetLimits(SetLimits::new().each_group(most));
    let move_to = |name| Reschedule::new(id(name), schedule);
    let redrive = |schedule| Op::Redrive(Redrive::new(ids(&DEAD), schedule));
    let new = ["new", "new-big", "new-low", "new-expiring", "acked"];
    let hand_off = |outcome: &Outcome| {
        let item = |(held, next): (&&str, &str)| {
            let outcome = outcome.clone();
            let settlement = Settlement::new(id(held), lease(3), outcome);
            HandOff::new(settlement, vec![content(next)])
        };
        Op::HandOff(LEASED.iter().zip(new).map(item).collect())
    };
    let with_results = || {
        let Op::HandOff(items) = hand_off(&Outcome::Ack) else { unreachable!() };
        let result = || NewResult::new("42", millis(3_600_000));
        Op::HandOff(items.into_iter().map(|item| item.with_result(result())).collect())
    };
    let mut tears = vec![
        Tear { creates: vec!["new"], ..tear("enqueue", &[], Op::Enqueue(vec![content("new")])) },
        Tear {
            creates: new.to_vec(),
            ..tear("enqueue of all kinds", &[], Op::Enqueue(new.map(content).to_vec()))
        },
        tear("claim", &due, claim(9, 100)),
        tear("claim of some", &due, claim(9, 2)),
        Tear { before: vec![claim(6, 1)], ..tear("claim by turns", &due, claim(9, 2)) },
        Tear {
            before: vec![claim(6, 1)],
            creates: new.to_vec(),
            ..tear("enqueue into lanes", &[], Op::Enqueue(new.map(content).to_vec()))
        },
        Tear {
            before: vec![claim(6, 1)],
            ..finish("cancel in lanes", &in_lanes, Op::Cancel(ids(&in_lanes)))
        },
        Tear {
            before: vec![each_group(Some(1))],
            ..tear("claim of limited groups", &due, claim(9, 100))
        },
        Tear {
            before: vec![each_group(Some(1)), claim(6, 9)],
            ..finish("ack of a limited group", &["ready"], settle("ready", 6, Outcome::Ack))
        },
        Tear {
            before: vec![each_group(Some(1)), claim(6, 9)],
            ..tear("limit of groups that goes", &[], each_group(None))
        },
        Tear {
            at: LATER,
            finishes: flagged.to_vec(),
            ..tear("claim that takes back and buries", &all_due, claim(9, 100))
        },
        Tear {
            at: LATER,
            before: vec![Op::Pause],
            finishes: flagged.to_vec(),
            ..tear("claim that only takes back", &LEASED, claim(9, 100))
        },
        finish("relay to a list", &due, relay_to_list(100, None)),
        finish("relay to a stream", &due, relay_to_stream(100, Some(1_000))),
        Tear {
            finishes: vec!["stale", "ready"],
            ..tear("relay of some", &due, relay_to_list(2, None))
        },
        Tear {
            at: LATER,
            finishes: [&due[..], &flagged].concat(),
            ..tear("relay that takes back and buries", &all_due, relay_to_list(100, None))
        },
        finish("ack", &LEASED, each(&Outcome::Ack)),
        Tear { at: LATER, ..finish("late ack", &LEASED, each(&Outcome::Ack)) },
        Tear {
            finishes: flagged.to_vec(),
            ..tear(
                "retry",
                &LEASED,
                each(&Outcome::Retry { schedule: Schedule::In(millis(5)), error: error.clone() }),
            )
        },
        Tear {
            finishes: flagged.to_vec(),
            ..tear("snooze", &LEASED, each(&Outcome::Snooze { schedule: Schedule::In(millis(5)) }))
        },
        Tear { finishes: flagged.to_vec(), ..tear("release", &LEASED, each(&Outcome::Release)) },
        Tear {
            finishes: flagged.to_vec(),
            ..tear("reject", &LEASED, each(&Outcome::Reject { error }))
        },
        Tear {
            finishes: vec!["leased", "flagged"],
            ..tear("settlements of all kinds", &LEASED, one_each())
        },
        Tear {
            creates: new.to_vec(),
            ..finish("hand-off after acks", &LEASED, hand_off(&Outcome::Ack))
        },
        Tear {
            creates: new.to_vec(),
            ..finish("hand-off after acks with results", &LEASED, with_results())
        },
        Tear {
            creates: new.to_vec(),
            finishes: flagged.to_vec(),
            ..tear("hand-off after releases", &LEASED, hand_off(&Outcome::Release))
        },
        tear(
            "extend",
            &LEASED,
            Op::Extend(Extend::new(
                ids(&LEASED).into_iter().map(|id| (id, lease(3))).collect(),
                millis(9_000),
            )),
        ),
        finish("cancel of waiting ones", &WAITING, Op::Cancel(ids(&WAITING))),
        tear("cancel of leased ones", &LEASED, Op::Cancel(ids(&LEASED))),
        finish("cancel of dead ones", &DEAD, Op::Cancel(ids(&DEAD))),
        tear(
            "reschedule",
            &["soon", "again"],
            Op::Reschedule(vec![move_to("soon"), move_to("again")]),
        ),
        tear("redrive", &DEAD, redrive(Schedule::NOW)),
        tear("redrive for later", &DEAD, redrive(Schedule::In(millis(70_000)))),
        finish("purge", &DEAD, Op::Purge(ids(&DEAD))),
        tear("pause", &[], Op::Pause),
        tear("set_limits", &[], set_limits()),
        Tear { before: vec![Op::Pause], ..tear("resume", &[], Op::Resume) },
    ];
    tears.extend(updates::tears_of_updates(&tear));
    tears
}
