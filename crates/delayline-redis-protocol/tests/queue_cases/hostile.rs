//! Data that no library of this kind has written, and data that somebody took away (G20, G24).

use delayline_core::{DeathReason, Finding, Found, MessageState, Purged, Redriven};

use super::*;

/// Index of a key in [`Keys`](delayline_redis_protocol::Keys).
const DUE: usize = 1;
const LEASED: usize = 2;
const RECORDS: usize = 4;
const DETAILS: usize = 5;

pub async fn a_vanished_record_becomes_a_dead_letter_and_harms_nobody<C: Connect>() {
    let server = Server::start();
    let queue = open::<C>(&server.url()).await.unwrap();
    apply(&queue, 0, Op::Enqueue(vec![message("a"), message("gone"), message("z")])).await;
    let records = queue.keys().all()[RECORDS].clone();
    server.command(&[b"HDEL", &records[..], b"gone"]);
    let missing = Finding::MissingRecord { id: id("gone") };
    assert!(findings(&queue, 1).await.contains(&missing));

    let names = delivered(&queue, 2, 1).await;
    assert_eq!(names, ["a", "z"], "the neighbours are delivered");
    assert_eq!(death_of(&queue, "gone").await, Some(DeathReason::Unreadable));
    assert_eq!(findings(&queue, 4).await, []);
    let redrive = Op::Redrive(Redrive { ids: vec![id("gone")], schedule: Schedule::NOW });
    assert_eq!(apply(&queue, 5, redrive).await, Reply::Redrive(vec![Redriven::Unreadable]));
    let purge = Op::Purge(vec![id("gone")]);
    assert_eq!(apply(&queue, 6, purge).await, Reply::Purge(vec![Purged::Purged]));
    assert_eq!(findings(&queue, 7).await, []);
}

pub async fn junk_in_the_indexes_harms_nobody<C: Connect>() {
    let server = Server::start();
    let queue = open::<C>(&server.url()).await.unwrap();
    apply(&queue, 0, Op::Enqueue(vec![message("a"), message("z")])).await;
    let keys = queue.keys().all().to_vec();
    let normal = "562949953421312"; // level 2, instant 0: before everything that is ours
    for member in
        [&b""[..], b"x", b"12345678", b"12345678a", b"\0\0\0\0\0\0\0\x01nobody", &[b'j'; 500]]
    {
        server.command(&[b"ZADD", &keys[DUE][..], normal.as_bytes(), member]);
        server.command(&[b"ZADD", &keys[LEASED][..], b"5", member]);
    }
    server.command(&[b"ZADD", &keys[LEASED][..], b"-inf", b"12345678z"]);
    assert!(!findings(&queue, 1).await.is_empty());
    let mut names = Vec::new();
    for round in 0..4 {
        names.extend(delivered(&queue, 2 + round, 1 + u8::try_from(round).unwrap()).await);
    }
    assert_eq!(names, ["a", "z"]);
    let left = server.command(&[b"ZCARD", &keys[DUE][..]]);
    assert_eq!(left, Raw::Int(0), "junk does not come again");
}

pub async fn unreadable_details_become_a_dead_letter<C: Connect>() {
    let server = Server::start();
    let queue = open::<C>(&server.url()).await.unwrap();
    fill(&queue).await;
    let details = queue.keys().all()[DETAILS].clone();
    let long = [0xff; 200];
    for (name, junk) in [("ready", &b"junk"[..]), ("expiring", b""), ("leased", &long)] {
        server.command(&[b"HSET", &details[..], name.as_bytes(), junk]);
    }
    assert_eq!(findings(&queue, 5).await.len(), 3);
    let names = delivered(&queue, 90_000, 9).await;
    assert_eq!(names, ["scheduled"]);
    for name in ["ready", "expiring", "leased"] {
        assert_eq!(death_of(&queue, name).await, Some(DeathReason::Unreadable), "{name}");
    }
    assert_eq!(findings(&queue, 90_001).await, []);
}

pub async fn finished_messages_leave_no_residue<C: Connect>() {
    let server = Server::start();
    let queue = open::<C>(&server.url()).await.unwrap();
    let names: Vec<_> = (0..200).map(|n| format!("m{n}")).collect();
    let messages = names.iter().map(|name| message(name)).collect();
    queue.apply(At::Server, &Op::Enqueue(messages)).await.unwrap();
    let applied = queue.apply(At::Server, &claim(1, 200)).await.unwrap();
    let Reply::Claim(leases) = applied.reply else { panic!("{applied:?}") };
    let ack = |name: &String| Settlement { id: id(name), lease: lease(1), outcome: Outcome::Ack };
    assert_eq!(leases.deliveries.len(), names.len());
    queue.apply(At::Server, &Op::Settle(names.iter().map(ack).collect())).await.unwrap();
    // What is left is the control record, perhaps a ring, and what goes by itself after a while.
    for key in queue.keys().all() {
        let exists = server.command(&[b"EXISTS", &key[..]]) == Raw::Int(1);
        let Raw::Int(ttl_ms) = server.command(&[b"PTTL", &key[..]]) else { panic!() };
        let stays = key.ends_with(b":control") || key.ends_with(b":bell");
        assert!(!exists || stays || (1..=7_200_000).contains(&ttl_ms), "{key:?} {ttl_ms}");
    }
}

async fn delivered(queue: &impl Backend, ms: u64, token: u8) -> Vec<String> {
    let deliveries = claimed(queue, ms, token).await.deliveries;
    deliveries.into_iter().map(|delivery| delivery.message.info.id.to_string()).collect()
}

async fn death_of(queue: &impl Backend, name: &str) -> Option<DeathReason> {
    let Reply::Get(mut found) = apply(queue, 100_000, Op::Get(vec![id(name)])).await else {
        panic!("not the reply to a get")
    };
    match found.pop()? {
        Found::Live(message) => match message.info.state {
            MessageState::Dead { reason, .. } => Some(reason),
            _ => None,
        },
        _ => None,
    }
}
