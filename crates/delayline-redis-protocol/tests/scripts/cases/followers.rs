//! Followers without the message that they follow, and damaged ones (G20, G30).

use delayline_core::{Enqueued, Finding, Found, MessageState, Settled};

use delayline_redis_protocol::layout::updates;

use super::*;

async fn found(queue: &impl Backend, ms: u64, name: &str) -> Found {
    let Reply::Get(mut found) = apply(queue, ms, Op::Get(vec![id(name)])).await else {
        panic!("not the reply to a get")
    };
    found.remove(0)
}

/// Whether this is the follower, which waits for a worker.
fn is_follower(found: &Found, name: &str) -> bool {
    let Found::Live(message) = found else { return false };
    message.info.state == MessageState::Ready && message.payload == format!("update of {name}")
}

/// What stands in `updates` about an id.
fn stored(server: &Server, key: &[u8], name: &str) -> Option<Vec<u8>> {
    match server.binary_command(&[b"HGET", key, name.as_bytes()]) {
        Raw::BulkString(bytes) => Some(bytes),
        _ => None,
    }
}

pub(crate) async fn a_follower_outlives_its_message<C: Connect>() {
    let server = Server::start();
    let queue = open::<C>(&server.url()).await.unwrap();
    let keys = queue.keys().all().to_vec();
    let anew = async || {
        server.command(&["FLUSHALL"]);
        fill(&queue).await;
        apply(&queue, 4, Op::Enqueue(vec![update("leased", 1)])).await;
    };
    let remove_entry = || {
        let entry = member(&server, &keys[INDEX], "leased");
        server.binary_command(&[b"ZREM", &keys[INDEX][..], &entry]);
    };
    let remove = |key: usize| server.binary_command(&[b"HDEL", &keys[key][..], b"leased"]);
    let damages: [(&str, &dyn Fn()); 5] = [
        ("no record", &|| drop(remove(RECORDS))),
        ("no details", &|| drop(remove(DETAILS))),
        ("neither", &|| drop((remove(RECORDS), remove(DETAILS)))),
        ("no entry and no record", &|| drop((remove_entry(), remove(RECORDS)))),
        ("nothing but the follower", &|| {
            drop((remove_entry(), remove(RECORDS), remove(DETAILS)));
        }),
    ];
    for (what, damage) in damages {
        anew().await;
        damage();
        assert!(!repaired(&queue, 10, 100).await.is_empty(), "{what}");
        let left = found(&queue, 11, "leased").await;
        assert!(is_follower(&left, "leased"), "{what}: {left:?}");
    }
    // A lease that has only lost its entry continues, and the follower waits for it.
    anew().await;
    remove_entry();
    repaired(&queue, 10, 100).await;
    let Reply::Settle(settled) = apply(&queue, 11, settle("leased", 1, Outcome::Ack)).await else {
        panic!("not the reply to a settlement")
    };
    assert_eq!(settled, [Settled::Done { status: Status::Acked }]);
    assert!(is_follower(&found(&queue, 12, "leased").await, "leased"));
}

pub(crate) async fn a_follower_of_a_message_that_nobody_holds_is_found<C: Connect>() {
    let server = Server::start();
    let queue = open::<C>(&server.url()).await.unwrap();
    let keys = queue.keys().all().to_vec();
    fill(&queue).await;
    apply(&queue, 4, Op::Enqueue(vec![update("leased", 1)])).await;
    let follower = stored(&server, &keys[UPDATES], "leased").unwrap();
    for name in ["ready", "dead", "acked", "never"] {
        let mut follower = follower.clone();
        if let Some(record) = stored(&server, &keys[RECORDS], name) {
            let from = updates::FOLLOWS.offset.unwrap();
            follower[from..from + 8].copy_from_slice(&record[..8]);
        }
        server.binary_command(&[b"HSET", &keys[UPDATES][..], name.as_bytes(), &follower]);
    }
    let all = repaired(&queue, 10, 100).await;
    for name in ["ready", "dead", "acked", "never"] {
        assert!(all.contains(&Finding::Orphan { id: id(name) }), "{name}: {all:?}");
    }
    for name in ["ready", "dead", "never"] {
        assert!(is_follower(&found(&queue, 11, name).await, "leased"), "{name}");
    }
    assert_eq!(found(&queue, 11, "acked").await, Found::Finished(Status::Acked));
    assert_eq!(stored(&server, &keys[UPDATES], "acked"), None, "its message has finished");
}

/// As a torn file keeps it: its tokens stay known, and it does not come a second time.
pub(crate) async fn a_follower_that_has_taken_its_place_is_found<C: Connect>() {
    let server = Server::start();
    let queue = open::<C>(&server.url()).await.unwrap();
    let keys = queue.keys().all().to_vec();
    fill(&queue).await;
    apply(&queue, 4, Op::Enqueue(vec![update("leased", 1)])).await;
    let follower = stored(&server, &keys[UPDATES], "leased").unwrap();
    apply(&queue, 5, settle("leased", 1, Outcome::Ack)).await;
    server.binary_command(&[b"HSET", &keys[UPDATES][..], b"leased", &follower]);
    assert_eq!(findings(&queue, 6).await, [Finding::Orphan { id: id("leased") }]);
    repaired(&queue, 7, 100).await;
    let tokens = stored(&server, &keys[UPDATES], "leased").unwrap();
    assert_eq!(tokens, follower[..updates::FOLLOWS.offset.unwrap()]);
    assert!(is_follower(&found(&queue, 8, "leased").await, "leased"));
}

/// The last instant is one, and the next is not.
pub(crate) async fn a_follower_is_due_by_the_last_instant<C: Connect>() {
    let server = Server::start();
    let queue = open::<C>(&server.url()).await.unwrap();
    let keys = queue.keys().all().to_vec();
    for (beyond, is_one) in [(0, true), (1, false)] {
        server.command(&["FLUSHALL"]);
        fill(&queue).await;
        apply(&queue, 4, Op::Enqueue(vec![update("leased", 1)])).await;
        let mut follower = stored(&server, &keys[UPDATES], "leased").unwrap();
        let (from, due) = (updates::DUE.offset.unwrap(), Timestamp::MAX.as_ms() + beyond);
        follower[from..from + 6].copy_from_slice(&due.to_be_bytes()[2..]);
        server.binary_command(&[b"HSET", &keys[UPDATES][..], b"leased", &follower]);
        for key in [RECORDS, DETAILS] {
            server.binary_command(&[b"HDEL", &keys[key][..], b"leased"]);
        }
        repaired(&queue, 10, 100).await;
        let left = found(&queue, 11, "leased").await;
        let is_left = matches!(&left, Found::Live(it) if it.info.state == MessageState::Scheduled);
        assert_eq!(is_left, is_one, "{left:?}");
        assert_eq!(findings(&queue, 12).await, []);
    }
}

/// It would take a place among the leased messages.
pub(crate) async fn a_follower_of_an_unknown_priority_is_none<C: Connect>() {
    let server = Server::start();
    let queue = open::<C>(&server.url()).await.unwrap();
    let keys = queue.keys().all().to_vec();
    let ack = || Outcome::Ack;
    for op in [settle("leased", 1, ack()), hand_off("leased", 1, ack(), &[])] {
        server.command(&["FLUSHALL"]);
        fill(&queue).await;
        apply(&queue, 4, Op::Enqueue(vec![update("leased", 1)])).await;
        let mut follower = stored(&server, &keys[UPDATES], "leased").unwrap();
        follower[updates::LEVEL.offset.unwrap()] = 4;
        server.binary_command(&[b"HSET", &keys[UPDATES][..], b"leased", &follower]);
        let name = op.name();
        apply(&queue, 5, op).await;
        let left = found(&queue, 6, "leased").await;
        assert_eq!(left, Found::Finished(Status::Acked), "{name}");
    }
}

/// What stood apart goes with the large message, even if nothing else does.
pub(crate) async fn a_small_message_in_place_of_a_large_one_leaves_no_content<C: Connect>() {
    let server = Server::start();
    let queue = open::<C>(&server.url()).await.unwrap();
    let contents = queue.keys().all()[CONTENTS].clone();
    let ends = [
        // No worker holds the message: the update itself takes its place.
        None,
        Some(settle("a", 1, Outcome::Ack)),
        Some(settle("a", 1, Outcome::Release)),
        Some(hand_off("a", 1, Outcome::Ack, &[])),
        // The lease has expired.
        Some(claim(2, 1)),
        Some(relay_to_list(1, None)),
        Some(Op::Repair(Check::new(100))),
    ];
    for end in ends {
        server.command(&["FLUSHALL"]);
        let name = end.as_ref().map_or("nothing", Op::name);
        apply(&queue, 0, Op::Enqueue(vec![message("a").payload(vec![b'l'; 5_000])])).await;
        if end.is_some() {
            claimed(&queue, 1, 1).await;
        }
        apply(&queue, 2, Op::Enqueue(vec![update("a", 1)])).await;
        let is_over = matches!(end, Some(Op::Claim(_) | Op::Relay(_)));
        let now = if is_over { 20_000 } else { 3 };
        if matches!(end, Some(Op::Repair(_))) {
            server.binary_command(&[b"HDEL", &queue.keys().all()[RECORDS][..], b"a"]);
        }
        if let Some(op) = end {
            apply(&queue, now, op).await;
        }
        let left = server.binary_command(&[b"HLEN", &contents[..]]);
        assert_eq!(left, Raw::Int(0), "contents after {name}");
        assert_eq!(findings(&queue, now).await, [], "after {name}");
    }
}

pub(crate) async fn junk_in_place_of_updates_harms_nobody<C: Connect>() {
    let server = Server::start();
    let queue = open::<C>(&server.url()).await.unwrap();
    let keys = queue.keys().all().to_vec();
    for junk in [&b""[..], b"x", &[0; 31], &[255; 33], &[255; 65], &[255; 66], &[255; 300]] {
        server.command(&["FLUSHALL"]);
        fill(&queue).await;
        apply(&queue, 4, Op::Enqueue(vec![update("leased", 1)])).await;
        for name in ["leased", "expiring", "ready", "dead"] {
            server.binary_command(&[b"HSET", &keys[UPDATES][..], name.as_bytes(), junk]);
        }
        let names = ["leased", "ready", "dead"];
        apply(&queue, 5, Op::Get(names.map(id).to_vec())).await;
        apply(&queue, 5, Op::Cancel(vec![id("leased")])).await;
        let updates = names.map(|name| update(name, 2)).to_vec();
        let Reply::Enqueue(answers) = apply(&queue, 6, Op::Enqueue(updates)).await else {
            panic!("not the reply to an enqueue")
        };
        let due = Timestamp::from_ms(1_800_000_000_006).unwrap();
        let expected = [
            Enqueued::Following { replaced: false },
            Enqueued::Updated { due },
            Enqueued::Updated { due },
        ];
        assert_eq!(answers, expected, "{junk:?}");
        apply(&queue, 7, settle("leased", 1, Outcome::Release)).await;
        for name in names {
            assert!(is_follower(&found(&queue, 8, name).await, name), "{name}: {junk:?}");
        }
        repaired(&queue, 9, 100).await;
        assert_eq!(claimed(&queue, 6_000, 7).await.deliveries.len(), 4, "{junk:?}");
        assert_eq!(findings(&queue, 6_001).await, [], "{junk:?}");
    }
}
