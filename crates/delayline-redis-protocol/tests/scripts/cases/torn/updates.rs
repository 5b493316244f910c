//! Updates that are torn.

use super::*;

/// Updates of these messages, with other limits, so that their contents differ.
fn updates(names: &[&str], content_is: UpdateContent, due: UpdateDue) -> Op {
    let token = UpdateToken::from_bytes([1; UpdateToken::BYTES]);
    let update = |name: &&str| {
        content(name)
            .known(Known::Update(Update::new(content_is, due, token)))
            .finished_ids(FinishedIds::Reuse)
            .max_failures(18)
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
        let item = |name: &&str| Settlement::new(id(name), lease(3), outcome.clone());
        Op::Settle(LEASED.iter().map(item).collect())
    };
    let error = "no".to_owned();
    let throttled = |name| content(name).throttle(millis(60_000)).finished_ids(FinishedIds::Reuse);
    let due = ["ready", "second", "big", "again", "stale"];
    let all_due = [&due[..], &LEASED[..]].concat();
    let new = ["new", "new-low", "new-expiring", "acked"];
    vec![
        Tear { creates: new.to_vec(), ..tear("update that creates", &[], replace(&new)) },
        Tear {
            creates: new.to_vec(),
            ..tear("enqueue that throttles", &[], Op::Enqueue(new.map(throttled).to_vec()))
        },
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

const UPDATED: &str = "update of leased";

/// When all leases have run out.
const ALL_OVER: u64 = 30_000;

/// A server with a leased message that has no follower.
async fn with_a_lease<C: Connect>() -> (Recorded, ScriptBackend<C::Transport>) {
    let server = Recorded::start("no");
    let queue = open::<C>(&server.server.url()).await.unwrap();
    fill(&queue).await;
    (server, queue)
}

/// Claims and acks all that is due. Answers how many of the acks handled the update, and whether
/// each was accepted.
async fn handle(queue: &impl Backend, ms: u64, token: u8) -> usize {
    let deliveries = claimed(queue, ms, token).await.deliveries;
    let updated = deliveries.iter().filter(|delivery| delivery.message.payload == UPDATED);
    let count = updated.count();
    let acks = deliveries
        .into_iter()
        .map(|delivery| Settlement::new(delivery.message.info.id, delivery.lease, Outcome::Ack));
    let acks: Vec<_> = acks.collect();
    if !acks.is_empty() {
        apply(queue, ms + 1, Op::Settle(acks)).await;
    }
    count
}

/// The first update of a queue can be torn anywhere: once repeated, it takes effect when the lease
/// ends (G30).
pub(crate) async fn a_torn_first_update_is_not_lost<C: Connect>() {
    let (server, queue) = with_a_lease::<C>().await;
    let sound = server.keys();
    let first = Op::Enqueue(vec![update("leased", 1)]);
    let commands = server.record(&queue, 10, &first).await;
    assert!(commands.len() > 2, "{:?}", Shown(&commands));
    for kept in 1..commands.len() {
        for repair in [false, true] {
            let what = format!("torn to {:?}, repair {repair}", Shown(&commands[..kept]));
            server.restore(&sound);
            server.server.commands(&commands[..kept]);
            if repair {
                repaired(&queue, 11, 100).await;
            }
            apply(&queue, 12, first.clone()).await;
            apply(&queue, 13, settle("leased", 1, Outcome::Ack)).await;
            assert_eq!(handle(&queue, 14, 50).await, 1, "{what}");
            assert_eq!(handle(&queue, ALL_OVER, 51).await, 0, "{what}");
        }
    }
}

/// However a lease ends and wherever that is torn, the follower is handled once (G30).
pub(crate) async fn a_torn_end_of_a_lease_brings_its_follower_once<C: Connect>() {
    let (server, queue) = with_a_lease::<C>().await;
    apply(&queue, 10, Op::Enqueue(vec![update("leased", 1)])).await;
    let sound = server.keys();
    let ends = [
        (11, settle("leased", 1, Outcome::Ack)),
        (11, settle("leased", 1, Outcome::Release)),
        (ALL_OVER, claim(9, 100)),
    ];
    for (ms, end) in ends {
        server.restore(&sound);
        let commands = server.record(&queue, ms, &end).await;
        for kept in 1..commands.len() {
            let what = format!("{} torn to {:?}", end.name(), Shown(&commands[..kept]));
            for repair in [false, true] {
                server.restore(&sound);
                server.server.commands(&commands[..kept]);
                let mut handled = handle(&queue, ms + 1, 50).await;
                if repair {
                    repaired(&queue, ms + 3, 100).await;
                }
                for round in 1..4 {
                    handled += handle(&queue, ms + u64::from(round) * ALL_OVER, 50 + round).await;
                }
                assert_eq!(handled, 1, "{what}, repair {repair}");
            }
        }
    }
}
