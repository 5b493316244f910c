//! Updates that are torn.

use super::*;

/// Updates of these messages, with other limits, so that their contents differ.
fn updates(names: &[&str], content_is: UpdateContent, due: UpdateDue) -> Op {
    let token = UpdateToken::from_bytes([1; UpdateToken::BYTES]);
    let update = |name: &&str| NewMessage {
        known: Known::Update(Update { content: content_is, due, token }),
        finished_ids: FinishedIds::Reuse,
        max_failures: 18,
        ..content(name)
    };
    Op::Enqueue(names.iter().map(update).collect())
}

/// The same for messages that wait, are leased, and so on.
pub(super) fn tears_of_updates(
    tear: &impl Fn(&'static str, &[&'static str], Op) -> Tear,
) -> Vec<Tear> {
    use UpdateContent::{Keep, Replace};
    let replace = |names: &[&str]| updates(names, Replace, UpdateDue::Set);
    let keep = |names: &[&str]| updates(names, Keep, UpdateDue::Set);
    let followed = |tear: Tear| Tear { before: vec![replace(&LEASED)], ..tear };
    let each = |outcome: &Outcome| {
        let item =
            |name: &&str| Settlement { id: id(name), lease: lease(3), outcome: outcome.clone() };
        Op::Settle(LEASED.iter().map(item).collect())
    };
    let error = "no".to_owned();
    let due = ["ready", "second", "big", "again", "stale"];
    let all_due = [&due[..], &LEASED[..]].concat();
    let new = ["new", "new-low", "new-expiring", "acked"];
    vec![
        Tear { creates: new.to_vec(), ..tear("update that creates", &[], replace(&new)) },
        tear("update of waiting ones", &WAITING, replace(&WAITING)),
        tear("update of due times", &WAITING, keep(&WAITING)),
        tear("update of leased ones", &LEASED, replace(&LEASED)),
        tear("update of dead ones", &DEAD, replace(&DEAD)),
        followed(tear("update of followers", &LEASED, updates(&LEASED, Keep, UpdateDue::Keep))),
        followed(tear("ack of followed ones", &LEASED, each(&Outcome::Ack))),
        followed(tear("release of followed ones", &LEASED, each(&Outcome::Release))),
        followed(tear("reject of followed ones", &LEASED, each(&Outcome::Reject { error }))),
        followed(Tear {
            at: LATER,
            ..tear("claim that takes back followed ones", &all_due, claim(9, 100))
        }),
        followed(tear("cancel of followed ones", &LEASED, Op::Cancel(ids(&LEASED)))),
        Tear {
            before: vec![keep(&WAITING)],
            finishes: WAITING.to_vec(),
            ..tear("cancel of updated ones", &WAITING, Op::Cancel(ids(&WAITING)))
        },
    ]
}
