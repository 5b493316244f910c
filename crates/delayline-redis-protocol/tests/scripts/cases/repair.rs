//! Damage that is mended (G20).

use std::collections::BTreeSet;

use delayline_core::{Claimed, Finding, Found, MessageState, Priority, Redriven};
use delayline_redis_protocol::layout::control;

use super::*;

/// What [`fill`] leaves alive.
const LIVE: [&str; 5] = ["dead", "leased", "expiring", "scheduled", "ready"];

async fn found(queue: &impl Backend, ms: u64, name: &str) -> Found {
    let Reply::Get(mut found) = apply(queue, ms, Op::Get(vec![id(name)])).await else {
        panic!("not the reply to a get")
    };
    found.remove(0)
}

/// Whether a dead letter lives again.
async fn redrive(queue: &impl Backend, ms: u64, name: &str) -> bool {
    let redrive = Op::Redrive(Redrive::new(vec![id(name)], Schedule::NOW));
    let Reply::Redrive(redriven) = apply(queue, ms, redrive).await else {
        panic!("not the reply to a redrive")
    };
    matches!(redriven[..], [Redriven::Done { .. }])
}

async fn assert_delivered(queue: &impl Backend, ms: u64, name: &str) {
    let deliveries = claimed(queue, ms, 99).await.deliveries;
    let one = deliveries.iter().find(|delivery| delivery.message.info.id == id(name));
    assert_eq!(one.map(|one| &one.message.payload), Some(&message(name).payload), "{name}");
}

fn is_dead(found: &Found) -> bool {
    let Found::Live(message) = found else { return false };
    matches!(message.info.state, MessageState::Dead { .. })
}

pub(crate) async fn a_queue_without_a_fault_is_not_changed<C: Connect>() {
    let server = Server::start();
    let queue = open::<C>(&server.url()).await.unwrap();
    assert_eq!(repaired(&queue, 0, 10).await, []);
    fill(&queue).await;
    let before = dump(&server, queue.keys().all());
    for limit in [1, 2, 100] {
        assert_eq!(repaired(&queue, 6_000, limit).await, []);
        // It looks at the same entries in the same order as an audit.
        let mut after = None;
        loop {
            let check = || Check::new(limit).after(after);
            let Reply::Check(audited) = apply(&queue, 6_000, Op::Check(check())).await else {
                panic!("not the reply to a check")
            };
            let repaired = apply(&queue, 6_000, Op::Repair(check())).await;
            assert_eq!(repaired, Reply::Repair(audited.clone()));
            after = audited.next;
            if after.is_none() {
                break;
            }
        }
    }
    assert!(before == dump(&server, queue.keys().all()));
}

pub(crate) async fn each_kind_of_damage_is_mended<C: Connect>() {
    let server = Server::start();
    let queue = open::<C>(&server.url()).await.unwrap();
    let keys = queue.keys().all().to_vec();
    let anew = async || {
        server.command(&["FLUSHALL"]);
        fill(&queue).await;
    };

    // A record that is gone: a dead letter, that can be purged.
    anew().await;
    server.binary_command(&[b"HDEL", &keys[RECORDS][..], b"scheduled"]);
    assert_eq!(repaired(&queue, 10, 2).await, [Finding::MissingRecord { id: id("scheduled") }]);
    assert!(is_dead(&found(&queue, 10, "scheduled").await));
    let purge = Op::Purge(vec![id("scheduled")]);
    apply(&queue, 10, purge).await;
    assert_eq!(findings(&queue, 11).await, []);

    // An index entry that is gone: its due time is unknown, so the message is not delivered.
    anew().await;
    let entry = member(&server, &keys[INDEX], "scheduled");
    server.binary_command(&[b"ZREM", &keys[INDEX][..], &entry]);
    let all = repaired(&queue, 10, 100).await;
    assert!(all.contains(&Finding::Orphan { id: id("scheduled") }), "{all:?}");
    assert!(is_dead(&found(&queue, 10, "scheduled").await));
    assert!(redrive(&queue, 11, "scheduled").await, "its record is whole");
    assert_delivered(&queue, 12, "scheduled").await;

    // Details that cannot be read: a dead letter, that can be redriven.
    anew().await;
    server.binary_command(&[b"HSET", &keys[DETAILS][..], b"ready", b"junk"]);
    repaired(&queue, 10, 100).await;
    assert!(is_dead(&found(&queue, 10, "ready").await));
    assert!(redrive(&queue, 11, "ready").await, "its record is whole");
    assert_delivered(&queue, 12, "ready").await;

    // A record that cannot be read: what stood in its place is kept, but never delivered.
    anew().await;
    server.binary_command(&[b"HSET", &keys[RECORDS][..], b"ready", b"junk"]);
    repaired(&queue, 10, 100).await;
    let Found::Live(junk) = found(&queue, 10, "ready").await else { panic!("it is lost") };
    assert_eq!(junk.payload, &b"junk"[..]);
    assert!(!redrive(&queue, 11, "ready").await);

    // The deadline of a lease is lost: the lease has ended, and counts as a crash.
    anew().await;
    let entry = member(&server, &keys[INDEX], "leased");
    server.binary_command(&[b"ZREM", &keys[INDEX][..], &entry]);
    repaired(&queue, 10, 100).await;
    let deliveries = claimed(&queue, 11, 9).await.deliveries;
    let again = deliveries.iter().find(|delivery| delivery.message.info.id == id("leased"));
    assert_eq!(again.map(|delivery| delivery.message.info.crashes), Some(1));

    // The details say leased, the index says waiting: it waits, and the lease is void.
    anew().await;
    let entry = member(&server, &keys[INDEX], "leased");
    let waiting = score(Priority::Normal.level(), 0);
    server.binary_command(&[b"ZADD", &keys[INDEX][..], waiting.as_bytes(), &entry]);
    let wrong = Finding::MissingDetails { id: id("leased") };
    assert_eq!(repaired(&queue, 10, 100).await, [wrong]);
    let Reply::Settle(settled) = apply(&queue, 11, settle("leased", 1, Outcome::Ack)).await else {
        panic!("not the reply to a settlement")
    };
    assert_eq!(settled, [delayline_core::Settled::Stale]);
    assert_delivered(&queue, 12, "leased").await;

    // One says released, the other says leased: it was released.
    anew().await;
    apply(&queue, 10, settle("leased", 1, Outcome::Release)).await;
    let leased = score(Position::LEASED, Timestamp::MAX.as_ms());
    server.binary_command(&[b"ZADD", &keys[INDEX][..], leased.as_bytes(), &entry]);
    let wrong = Finding::MissingDetails { id: id("leased") };
    assert_eq!(repaired(&queue, 11, 100).await, [wrong]);
    assert_delivered(&queue, 12, "leased").await;

    // A message that is in the band of another priority.
    anew().await;
    let entry = member(&server, &keys[INDEX], "ready");
    let urgent = score(Priority::Urgent.level(), 1_800_000_000_003);
    server.binary_command(&[b"ZADD", &keys[INDEX][..], urgent.as_bytes(), &entry]);
    let wrong = Finding::WrongRecord { id: id("ready") };
    assert_eq!(repaired(&queue, 10, 100).await, [wrong]);
    assert_delivered(&queue, 12, "ready").await;

    // Junk goes, whatever its score.
    anew().await;
    let late = 253_402_300_800_000; // the first millisecond that cannot be
    let gaps =
        (0..=Position::GROUPED).flat_map(|band| [score(band, late), score(band, (1 << 48) - 6)]);
    let gaps: Vec<_> = gaps.chain(["-inf", "-5", "+inf", "1e18"].map(str::to_owned)).collect();
    let bands = (0..=Position::GROUPED).map(|band| score(band, 5));
    for (n, score) in bands.chain(gaps.clone()).enumerate() {
        server.binary_command(&[
            b"ZADD",
            &keys[INDEX][..],
            score.as_bytes(),
            format!("junk{n}").as_bytes(),
        ]);
        let stray = format!("{n:08}stray");
        server.binary_command(&[b"ZADD", &keys[INDEX][..], score.as_bytes(), stray.as_bytes()]);
    }
    repaired(&queue, 10, 3).await;
    assert!(is_dead(&found(&queue, 10, "stray").await), "an id that may have been a message's");
    for score in gaps {
        anew().await;
        server.binary_command(&[b"ZADD", &keys[INDEX][..], score.as_bytes(), b"junk"]);
        let all = repaired(&queue, 10, 100).await;
        let band = score.parse::<f64>().unwrap() / 2_f64.powi(48);
        let before = (0..=Position::GROUPED).rfind(|known| f64::from(*known) <= band);
        let gap = Finding::MalformedEntry { index: before.unwrap_or(0) };
        assert_eq!(all, [gap], "{score}");
    }

    // Counters that have lost something.
    anew().await;
    server.binary_command(&[b"DEL", &keys[0][..]]);
    let all = repaired(&queue, 10, 100).await;
    assert!(matches!(all[..], [Finding::Conservation { .. }]), "{all:?}");
}

/// Details and contents of a message whose record is missing.
/// Otherwise, the first claim that finds nothing would have to look at all levels.
pub(crate) async fn a_repair_finds_the_levels_that_are_used<C: Connect>() {
    let server = Server::start();
    let queue = open::<C>(&server.url()).await.unwrap();
    let key = queue.keys().all()[CONTROL].clone();
    let offset = control::USES.offset.unwrap().to_string();
    for level in Priority::ALL {
        server.command(&["FLUSHALL"]);
        apply(&queue, 0, Op::Enqueue(vec![message("a").priority(level)])).await;
        server.binary_command(&[b"SETRANGE", &key[..], offset.as_bytes(), &[0; 4]]);
        assert_eq!(repaired(&queue, 1, 10).await, []);
        assert_eq!(claimed(&queue, 2, 1).await.deliveries.len(), 1, "{level:?}");
    }
}

pub(crate) async fn all_entries_with_impossible_scores_are_mended_in_one_pass<C: Connect>() {
    let server = Server::start();
    let queue = open::<C>(&server.url()).await.unwrap();
    let index = queue.keys().all()[INDEX].clone();
    for n in 0..25 {
        let stray = format!("12345678stray-{n}");
        server.binary_command(&[b"ZADD", &index[..], b"1e18", stray.as_bytes()]);
    }
    let (mut found, mut after) = (0, None);
    for _ in 0..20 {
        let reply = apply(&queue, 0, Op::Repair(Check::new(10).after(after))).await;
        let Reply::Repair(page) = reply else { panic!("{reply:?}") };
        found +=
            page.findings.iter().filter(|it| matches!(it, Finding::MalformedEntry { .. })).count();
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!((found, after), (25, None));
}

/// As a torn reject may leave it: the lease is still open, and its message among the dead letters.
pub(crate) async fn a_repair_ends_an_open_lease_among_the_dead_letters<C: Connect>() {
    let server = Server::start();
    let queue = open::<C>(&server.url()).await.unwrap();
    let index = queue.keys().all()[INDEX].clone();
    apply(&queue, 0, Op::Enqueue(vec![message("a")])).await;
    claimed(&queue, 1, 1).await;
    let (score, place) = (score(Position::DEAD, 1_800_000_000_002), member(&server, &index, "a"));
    server.binary_command(&[b"ZADD", &index[..], score.as_bytes(), &place]);
    assert_ne!(repaired(&queue, 3, 10).await, []);
    let Claimed { deliveries, .. } = claimed(&queue, 4, 2).await;
    let crashes: Vec<_> = deliveries.iter().map(|it| it.message.info.crashes).collect();
    assert_eq!(crashes, [1]);
}

pub(crate) async fn what_is_left_without_a_record_harms_no_later_message<C: Connect>() {
    let server = Server::start();
    let queue = open::<C>(&server.url()).await.unwrap();
    let keys = queue.keys().all().to_vec();
    let orphan = async || {
        server.command(&["FLUSHALL"]);
        apply(&queue, 0, Op::Enqueue(vec![message("a"), message("b")])).await;
        assert_eq!(claimed(&queue, 0, 1).await.deliveries.len(), 2);
        server.binary_command(&[b"ZREM", &keys[INDEX][..], &member(&server, &keys[INDEX], "a")]);
        server.binary_command(&[b"HDEL", &keys[RECORDS][..], b"a"]);
        server.binary_command(&[b"HSET", &keys[CONTENTS][..], b"c", b"content"]);
        // The names of no messages.
        server.binary_command(&[b"HSET", &keys[DETAILS][..], b"", b"junk"]);
        server.binary_command(&[b"HSET", &keys[CONTENTS][..], &[b'n'; 129], b"junk"]);
    };

    orphan().await;
    let found = findings(&queue, 1).await;
    for name in ["a", "c"] {
        assert!(found.contains(&Finding::Orphan { id: id(name) }), "{name}: {found:?}");
    }
    for index in [9, 10] {
        assert!(found.contains(&Finding::MalformedEntry { index }), "{index}: {found:?}");
    }
    assert_eq!(repaired(&queue, 1, 100).await, found);
    for (key, left) in [(DETAILS, 1), (CONTENTS, 0)] {
        assert_eq!(server.binary_command(&[b"HLEN", &keys[key][..]]), Raw::Int(left));
    }

    // Another message of that id is sent, cancelled, moved and delivered as if nothing were there.
    orphan().await;
    let new = || Op::Enqueue(vec![message("a")]);
    apply(&queue, 1, new()).await;
    let cancel = apply(&queue, 1, Op::Cancel(vec![id("a")])).await;
    assert_eq!(cancel, Reply::Cancel(vec![delayline_core::Cancelled::Cancelled]));

    orphan().await;
    apply(&queue, 1, new()).await;
    let again = apply(&queue, 1, new()).await;
    let ready = delayline_core::Enqueued::Duplicate { status: Status::Ready };
    assert_eq!(again, Reply::Enqueue(vec![ready]));
    let soon = Reschedule::new(id("a"), Schedule::In(millis(1)));
    let moved = apply(&queue, 1, Op::Reschedule(vec![soon])).await;
    assert!(
        matches!(&moved, Reply::Reschedule(items) if matches!(items[..], [delayline_core::Rescheduled::Done { .. }])),
        "{moved:?}"
    );
    assert!(!redrive(&queue, 1, "a").await);
    let purged = apply(&queue, 1, Op::Purge(vec![id("a")])).await;
    assert_eq!(purged, Reply::Purge(vec![delayline_core::Purged::NotDead]));
    let Reply::Get(live) = apply(&queue, 1, Op::Get(vec![id("a")])).await else { panic!() };
    assert!(matches!(&live[..], [Found::Live(a)] if a.info.state == MessageState::Scheduled));
    assert_delivered(&queue, 3, "a").await;

    // The lease of the earlier message does not end it.
    for outcome in [Outcome::Ack, Outcome::Release] {
        orphan().await;
        apply(&queue, 1, new()).await;
        apply(&queue, 2, settle("a", 1, outcome)).await;
        assert_delivered(&queue, 3, "a").await;
        repaired(&queue, 4, 100).await;
    }
}

/// A repaired entry keeps its instant, even if it is the first or the last possible one.
pub(crate) async fn a_repair_keeps_the_first_and_the_last_instant<C: Connect>() {
    let server = Server::start();
    let queue = open::<C>(&server.url()).await.unwrap();
    let keys = queue.keys().all().to_vec();
    for instant in [Timestamp::MIN, Timestamp::MAX] {
        server.command(&["FLUSHALL"]);
        let at = At::Fixed(instant);
        let apply = async |op| queue.apply(at, &op).await.unwrap().reply;
        apply(Op::Enqueue(vec![message("dead"), message("leased")])).await;
        apply(claim(1, 2)).await;
        apply(settle("dead", 1, Outcome::Reject { error: String::new() })).await;
        let mut due = message("due");
        due.priority = Priority::Urgent;
        apply(Op::Enqueue(vec![due])).await;
        let get = || Op::Get(["dead", "leased", "due"].map(id).to_vec());
        let before = apply(get()).await;
        for name in ["dead", "leased", "due"] {
            for band in [Priority::Urgent.level(), Position::LEASED, Position::DEAD] {
                let stray = [b"12345678", name.as_bytes()].concat();
                server.binary_command(&[
                    b"ZADD",
                    &keys[INDEX][..],
                    score(band, 5).as_bytes(),
                    &stray,
                ]);
                let repair = Op::Repair(Check::new(100));
                let Reply::Repair(repaired) = apply(repair).await else { panic!("no repair") };
                assert_eq!(repaired.findings.len(), 1, "{name} in {band}");
                assert_eq!(apply(get()).await, before, "{name} in {band}");
            }
        }
    }
}

/// An id that was used again: the memory of the earlier message does not end the new one.
pub(crate) async fn a_reused_id_is_not_taken_for_what_has_finished<C: Connect>() {
    let server = Server::start();
    let queue = open::<C>(&server.url()).await.unwrap();
    let keys = queue.keys().all().to_vec();
    for later in [1, delayline_core::limits::FINISHED_RETENTION_MS] {
        server.command(&["FLUSHALL"]);
        for (ms, name) in [(0, "a"), (later, "b")] {
            apply(&queue, ms, Op::Enqueue(vec![message(name)])).await;
            apply(&queue, ms, Op::Cancel(vec![id(name)])).await;
        }
        let mut again = message("a");
        again.finished_ids = FinishedIds::Reuse;
        apply(&queue, later, Op::Enqueue(vec![again])).await;
        server.binary_command(&[b"DEL", &keys[INDEX][..]]);
        repaired(&queue, later, 100).await;
        assert!(is_dead(&found(&queue, later, "a").await), "it is not gone, {later} later");
        assert!(redrive(&queue, later, "a").await);
    }
}

/// More details without a record than one page of an audit looks at.
pub(crate) async fn many_details_without_a_record_are_found_page_by_page<C: Connect>() {
    let server = Server::start();
    let queue = open::<C>(&server.url()).await.unwrap();
    let names: Vec<_> = (0..2_000).map(|n| format!("m{n}")).collect();
    for names in names.chunks(1_000) {
        apply(&queue, 0, Op::Enqueue(names.iter().map(|name| message(name)).collect())).await;
    }
    for token in 1..3 {
        apply(&queue, 0, claim(token, 1_000)).await;
    }
    server.binary_command(&[b"DEL", &queue.keys().all()[RECORDS][..]]);
    server.binary_command(&[b"DEL", &queue.keys().all()[INDEX][..]]);
    let (mut after, mut found) = (None, BTreeSet::new());
    loop {
        let Reply::Check(page) = apply(&queue, 1, Op::Check(Check::new(100).after(after))).await
        else {
            panic!("not the reply to a check")
        };
        let ids = page.findings.into_iter().filter_map(|finding| match finding {
            Finding::Orphan { id } => Some(id.to_string()),
            _ => None,
        });
        found.extend(ids);
        after = page.next;
        let Some(next) = after else { break };
        // Without an index there is no instant.
        assert!(next.index <= 5 || next.instant == Timestamp::MIN, "{next:?}");
    }
    assert_eq!(found.len(), names.len());
    repaired(&queue, 2, 100).await;
}

/// Random damage to random messages: the others are unchanged, and the queue works.
pub(crate) async fn whatever_is_damaged_the_rest_is_as_it_was<C: Connect>() {
    let server = Server::start();
    let queue = open::<C>(&server.url()).await.unwrap();
    let keys = queue.keys().all().to_vec();
    let mut chance = 7_u64;
    let mut below = |end: usize| {
        chance =
            chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(chance >> 33).unwrap() % end
    };
    let mut mended = 0;
    for round in 0..200 {
        server.command(&["FLUSHALL"]);
        fill(&queue).await;
        let mut before = Vec::new();
        for name in LIVE {
            before.push(found(&queue, 4, name).await);
        }
        let mut touched = BTreeSet::new();
        for _ in 0..=below(3) {
            let name = LIVE[below(LIVE.len())];
            touched.insert(name);
            let whole = member_if_any(&server, &keys[INDEX], name);
            let stray = [b"12345678", name.as_bytes()].concat();
            let entry = whole.filter(|_| below(3) > 0).unwrap_or(stray);
            let junk = [&b""[..], b"junk", &[0; 70], &[0xff; 90]][below(4)];
            let band = u8::try_from(below(7)).unwrap();
            let possible = [score(band, 5), score(band, 1_800_000_000_050)];
            let impossible = ["-inf", "9e15", "+inf"].map(str::to_owned);
            let score = possible.into_iter().chain(impossible).nth(below(5)).unwrap();
            match below(6) {
                0 => server.binary_command(&[b"HDEL", &keys[RECORDS][..], name.as_bytes()]),
                1 => server.binary_command(&[b"HDEL", &keys[DETAILS][..], name.as_bytes()]),
                2 => server.binary_command(&[b"HSET", &keys[RECORDS][..], name.as_bytes(), junk]),
                3 => server.binary_command(&[b"HSET", &keys[DETAILS][..], name.as_bytes(), junk]),
                4 => server.binary_command(&[b"ZREM", &keys[INDEX][..], &entry]),
                _ => server.binary_command(&[b"ZADD", &keys[INDEX][..], score.as_bytes(), &entry]),
            };
        }
        mended += repaired(&queue, 4, 1 + below(4)).await.len();
        for (name, before) in LIVE.iter().zip(&before) {
            if !touched.contains(name) {
                assert_eq!(&found(&queue, 4, name).await, before, "{name} in round {round}");
            }
        }
        // Whatever became of the others, nothing is in the way of the next message.
        apply(&queue, 5, Op::Enqueue(vec![message("fresh")])).await;
        let mut names = Vec::new();
        for (ms, token) in (0..).map(|n| 100_000 + 20_000 * n).zip(20..24) {
            let deliveries = claimed(&queue, ms, token).await.deliveries;
            names.extend(
                deliveries.into_iter().map(|delivery| delivery.message.info.id.to_string()),
            );
        }
        assert!(names.iter().any(|name| name == "fresh"), "round {round}: {names:?}");
        assert_eq!(repaired(&queue, 200_000, 3).await, [], "round {round}");
    }
    assert!(mended >= 150, "{mended} findings in 200 rounds");
}

pub(crate) async fn many_orphans_are_found_page_by_page<C: Connect>() {
    let server = Server::start();
    let queue = open::<C>(&server.url()).await.unwrap();
    let names: Vec<_> = (0..700).map(|n| format!("m{n}")).collect();
    apply(&queue, 0, Op::Enqueue(names.iter().map(|name| message(name)).collect())).await;
    let index = queue.keys().all()[INDEX].clone();
    server.binary_command(&[b"DEL", &index[..]]);
    let all = repaired(&queue, 1, 50).await;
    assert_eq!(all.len(), 700);
    let Reply::Stats(stats) = apply(&queue, 2, Op::Stats).await else { panic!("no counts") };
    assert_eq!((stats.dead, stats.totals.enqueued), (700, 700));
}
