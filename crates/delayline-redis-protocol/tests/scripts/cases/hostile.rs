//! Corrupt and missing data (G20, G24).

use std::time::Duration;

use delayline_core::limits::MAX_BATCH_BYTES;
use delayline_core::{
    Cancelled, Claimed, Death, DeathReason, Delivery, Finding, Found, MessageState, Priority,
    Purged, Redriven, Rescheduled, Settled,
};
use delayline_redis_protocol::layout::control;

use super::*;

pub(crate) async fn a_vanished_record_becomes_a_dead_letter_and_harms_nobody<C: Connect>() {
    let server = Server::start();
    let queue = open::<C>(&server.url()).await.unwrap();
    apply(&queue, 0, Op::Enqueue(vec![message("a"), message("gone"), message("z")])).await;
    let records = queue.keys().all()[RECORDS].clone();
    server.binary_command(&[b"HDEL", &records[..], b"gone"]);
    let missing = Finding::MissingRecord { id: id("gone") };
    assert!(findings(&queue, 1).await.contains(&missing));

    let Claimed { deliveries, deaths, .. } = claimed(&queue, 2, 1).await;
    assert_eq!(names(deliveries), ["a", "z"], "the neighbours are delivered");
    assert_eq!(deaths, [Death::new(id("gone"), DeathReason::Unreadable)]);
    assert_eq!(death_of(&queue, "gone").await, Some(DeathReason::Unreadable));
    assert_eq!(findings(&queue, 4).await, []);
    let redrive = Op::Redrive(Redrive::new(vec![id("gone")], Schedule::NOW));
    assert_eq!(apply(&queue, 5, redrive).await, Reply::Redrive(vec![Redriven::Unreadable]));
    let purge = Op::Purge(vec![id("gone")]);
    assert_eq!(apply(&queue, 6, purge).await, Reply::Purge(vec![Purged::Purged]));
    assert_eq!(findings(&queue, 7).await, []);
}

pub(crate) async fn junk_in_the_indexes_harms_nobody<C: Connect>() {
    let server = Server::start();
    let queue = open::<C>(&server.url()).await.unwrap();
    apply(&queue, 0, Op::Enqueue(vec![message("a"), message("z")])).await;
    let keys = queue.keys().all().to_vec();
    // Before everything that is ours.
    let (normal, leased) = (score(Priority::Normal.level(), 0), score(Position::LEASED, 5));
    for member in
        [&b""[..], b"x", b"12345678", b"12345678a", b"\0\0\0\0\0\0\0\x01nobody", &[b'j'; 500]]
    {
        server.binary_command(&[b"ZADD", &keys[INDEX][..], normal.as_bytes(), member]);
        let other = [member, b"!"].concat();
        server.binary_command(&[b"ZADD", &keys[INDEX][..], leased.as_bytes(), &other]);
    }
    server.binary_command(&[b"ZADD", &keys[INDEX][..], b"-inf", b"12345678z"]);
    assert!(!findings(&queue, 1).await.is_empty());
    let mut names = Vec::new();
    for round in 0..4 {
        names.extend(delivered(&queue, 2 + round, 1 + u8::try_from(round).unwrap()).await);
    }
    assert_eq!(names, ["a", "z"]);
    let (first, last) = (score(0, 0), score(Position::LEASED, 10));
    let left =
        server.binary_command(&[b"ZCOUNT", &keys[INDEX][..], first.as_bytes(), last.as_bytes()]);
    assert_eq!(left, Raw::Int(0), "junk does not come again");
}

pub(crate) async fn unreadable_details_become_a_dead_letter<C: Connect>() {
    let server = Server::start();
    let queue = open::<C>(&server.url()).await.unwrap();
    fill(&queue).await;
    let details = queue.keys().all()[DETAILS].clone();
    let long = [0xff; 200];
    for (name, junk) in [("ready", &b"junk"[..]), ("expiring", b""), ("leased", &long)] {
        server.binary_command(&[b"HSET", &details[..], name.as_bytes(), junk]);
    }
    assert_eq!(findings(&queue, 5).await.len(), 3);
    let Claimed { deliveries, mut deaths, .. } = claimed(&queue, 90_000, 9).await;
    assert_eq!(names(deliveries), ["scheduled"]);
    deaths.sort_by(|a, b| a.id.cmp(&b.id));
    let unreadable =
        ["expiring", "leased", "ready"].map(|name| Death::new(id(name), DeathReason::Unreadable));
    assert_eq!(deaths, unreadable);
    let ids = ["expiring", "leased", "ready"].map(id).to_vec();
    for name in ["ready", "expiring", "leased"] {
        assert_eq!(death_of(&queue, name).await, Some(DeathReason::Unreadable), "{name}");
    }
    assert_eq!(findings(&queue, 90_001).await, []);
    // Their records are whole.
    apply(&queue, 90_001, Op::Redrive(Redrive::new(ids, Schedule::NOW))).await;
    let again = claimed(&queue, 90_001, 10).await.deliveries;
    assert_eq!(again.len(), 3);
    for delivery in again {
        let sent = message(&delivery.message.info.id.to_string());
        assert_eq!(delivery.message.payload, sent.payload);
    }
}

/// One byte of one value is damaged, each byte in turn: the neighbours are delivered, and the
/// message itself is delivered, or stands where it can be seen. It is not lost, and nothing fails
/// for ever.
pub(crate) async fn a_damaged_byte_harms_only_its_message<C: Connect>() {
    let server = Server::start();
    let queue = open::<C>(&server.url()).await.unwrap();
    let targets = [
        (RECORDS, "ready"),
        (RECORDS, "leased"),
        (RECORDS, "expiring"),
        (DETAILS, "expiring"),
        (DETAILS, "leased"),
        (DETAILS, "released"),
        (DETAILS, "dead"),
        (FINISHED[0], "acked"),
        (JOURNAL[0], "c"),
    ];
    for (index, field) in targets {
        for position in 0.. {
            let mut inside = true;
            for junk in [0, 1, 3, 9, 0x7f, 0x80, 0xff] {
                server.command(&["FLUSHALL"]);
                fill_with_released(&queue).await;
                let key = queue.keys().all()[index].clone();
                let Raw::BulkString(mut value) =
                    server.binary_command(&[b"HGET", &key[..], field.as_bytes()])
                else {
                    panic!("there is no {field}")
                };
                inside = position < value.len();
                if !inside {
                    break;
                }
                value[position] = junk;
                server.binary_command(&[b"HSET", &key[..], field.as_bytes(), &value]);
                let what = format!("byte {position} of {field} in key {index} set to {junk}");
                survives(&queue, field, &what).await;
            }
            if !inside {
                break;
            }
        }
    }
}

/// A corrupt, large count without entries costs the server no work.
pub(crate) async fn a_damaged_journal_bounds_its_own_work<C: Connect>() {
    let server = Server::start();
    let queue = open::<C>(&server.url()).await.unwrap();
    apply(&queue, 0, Op::Enqueue(vec![message("a")])).await;
    assert_eq!(claimed(&queue, 1, 7).await.deliveries.len(), 1);
    let journal = queue.keys().all()[JOURNAL[0]].clone();
    let Raw::BulkString(mut value) = server.binary_command(&[b"HGET", &journal[..], b"c"]) else {
        panic!("the claim is not in the journal")
    };
    value[16..18].fill(0xff);
    server.binary_command(&[b"HSET", &journal[..], b"c", &value]);

    server.command(&["CONFIG", "RESETSTAT"]);
    assert_eq!(claimed(&queue, 2, 7).await.deliveries, [], "what it leased cannot be found");
    let calls = server.info("commandstats", "cmdstat_hget");
    let calls = calls.strip_prefix("calls=").and_then(|calls| calls.split(',').next());
    assert!(calls.unwrap().parse::<u32>().unwrap() < 10, "{calls:?}");
    assert_eq!(claimed(&queue, 90_000, 8).await.deliveries.len(), 1, "the lease has run out");
}

/// Where details are lost, the record or content is read to find the rest of the message.
pub(crate) async fn damaged_leases_are_taken_back_a_few_megabytes_at_a_time<C: Connect>() {
    const LEASES: usize = 12;
    let server = Server::start();
    let queue = open::<C>(&server.url()).await.unwrap();
    let keys = queue.keys().all().to_vec();
    let junk = vec![b'j'; 1024 * 1024];
    let relay = || relay_to_list(1, None);
    for (key, relays) in [RECORDS, CONTENTS].into_iter().flat_map(|key| [(key, false), (key, true)])
    {
        server.command(&["FLUSHALL"]);
        let messages = (0..LEASES).map(|n| message(&n.to_string()).payload(vec![b'l'; 5_000]));
        apply(&queue, 0, Op::Enqueue(messages.collect())).await;
        assert_eq!(claimed(&queue, 0, 1).await.deliveries.len(), LEASES);
        server.binary_command(&[b"DEL", &keys[DETAILS][..]]);
        for n in 0..LEASES {
            server.binary_command(&[b"HSET", &keys[key][..], n.to_string().as_bytes(), &junk]);
        }
        let mut deaths = Vec::new();
        for call in 2.. {
            let (buried, more) = match relays {
                true => match apply(&queue, 20_000, relay()).await {
                    Reply::Relay(relayed) => (relayed.deaths.len(), relayed.more),
                    other => panic!("{other:?}"),
                },
                false => {
                    let claimed = claimed(&queue, 20_000, call).await;
                    (claimed.deaths.len(), claimed.more)
                }
            };
            deaths.push(buried);
            assert_eq!(more, deaths.iter().sum::<usize>() < LEASES, "{deaths:?}");
            if !more {
                break;
            }
        }
        let fitting = MAX_BATCH_BYTES / junk.len();
        assert!(deaths.iter().all(|count| (1..=fitting).contains(count)), "{deaths:?}");
        assert!(deaths.len() <= LEASES / (fitting - 1), "{deaths:?}");
    }
}

/// [`fill`], and a message that was claimed and released.
async fn fill_with_released(queue: &impl Backend) {
    apply(queue, 0, Op::Enqueue(vec![message("released")])).await;
    apply(queue, 0, claim(7, 1)).await;
    apply(
        queue,
        0,
        settle("released", 7, Outcome::Snooze { schedule: Schedule::In(millis(20_000)) }),
    )
    .await;
    fill(queue).await;
}

async fn survives(queue: &impl Backend, damaged: &str, what: &str) {
    let every = ["ready", "leased", "expiring", "scheduled", "released"];
    apply(queue, 4, Op::Get(every.iter().map(|name| id(name)).collect())).await;
    let again = apply(queue, 5, Op::Enqueue(vec![message("acked"), message("fresh")])).await;
    let Reply::Enqueue(again) = again else { panic!("{again:?}") };
    assert!(matches!(again[1], delayline_core::Enqueued::Created { .. }), "{what}: {again:?}");
    // The latest claim once more, then new ones until nothing is left.
    let mut delivered: Vec<String> = Vec::new();
    for (ms, token) in (0..).map(|n| 70_000 + 15_000 * n).zip([2, 20, 21, 22, 23]) {
        let claimed = claimed(queue, ms, token).await;
        let acks: Vec<_> = claimed
            .deliveries
            .iter()
            .map(|delivery| {
                let id = delivery.message.info.id.clone();
                Settlement::new(id, delivery.lease, Outcome::Ack)
            })
            .collect();
        delivered.extend(acks.iter().map(|ack| ack.id.to_string()));
        if !acks.is_empty() {
            apply(queue, ms + 1, Op::Settle(acks)).await;
        }
    }
    for name in every.into_iter().chain(["fresh"]) {
        let seen = delivered.iter().filter(|known| *known == name).count();
        if name != damaged {
            assert_eq!(seen, 1, "{what}: {name} was delivered {seen} times");
        } else if seen == 0 {
            // A damaged instant may be a possible one.
            let Reply::Get(found) = apply(queue, 200_000, Op::Get(vec![id(name)])).await else {
                panic!("not the reply to a get")
            };
            assert!(matches!(found[..], [Found::Live(_)]), "{what}: {name} is lost");
        }
    }
    let dead = List::new(Status::Dead, 100);
    apply(queue, 200_000, Op::List(dead)).await;
    apply(queue, 200_000, Op::Stats).await;
    findings(queue, 200_000).await;
}

pub(crate) async fn a_lost_control_record_stops_nothing<C: Connect>() {
    let server = Server::start();
    let queue = open::<C>(&server.url()).await.unwrap();
    let key = queue.keys().all()[CONTROL].clone();
    let levels = control::USES.offset.unwrap().to_string();
    let none = [b"SETRANGE", &key[..], levels.as_bytes(), &[0; 4]];
    for lose in [&[&b"DEL"[..], &key[..]][..], &none] {
        server.command(&["FLUSHALL"]);
        apply(&queue, 0, Op::Enqueue(vec![message("a"), message("z")])).await;
        server.command(lose);
        let first = delivered(&queue, 1, 1).await;
        let second = delivered(&queue, 2, 2).await;
        assert_eq!([first, second].concat(), ["a", "z"], "{lose:?}");
    }
    // Limits are lost with it, and hold up nothing.
    server.command(&["FLUSHALL"]);
    apply(&queue, 0, Op::SetLimits(SetLimits::new().hold_for(Duration::from_secs(1)))).await;
    apply(&queue, 0, Op::Enqueue(vec![message("a")])).await;
    server.binary_command(&[b"DEL", &key[..]]);
    assert_eq!(delivered(&queue, 1, 1).await, ["a"]);
    // In any order, no stored message is forgotten.
    for op in every_op() {
        server.command(&["FLUSHALL"]);
        fill(&queue).await;
        let mut large = message("large");
        large.payload = vec![b'l'; 5_000].into();
        let mut more = vec![large];
        for (name, priority) in [("urgent", Priority::Urgent), ("low", Priority::Low)] {
            more.push(message(name).priority(priority));
        }
        apply(&queue, 4, Op::Enqueue(more)).await;
        server.binary_command(&[b"DEL", &key[..]]);
        let relayed = match apply(&queue, 4, op.clone()).await {
            Reply::Relay(relayed) => relayed.ids,
            _ => Vec::new(),
        };
        apply(&queue, 4, Op::Resume).await;
        // A hold has ended then.
        let mut seen = delivered(&queue, 5, 20).await;
        seen.extend(relayed.iter().map(ToString::to_string));
        seen.extend(delivered(&queue, 90_000, 21).await);
        for name in ["urgent", "low", "large", "expiring", "scheduled"] {
            assert!(seen.iter().any(|seen| seen == name), "{name} after {}: {seen:?}", op.name());
        }
        apply(&queue, 90_000, settle_at("large", 21, 2)).await;
        let contents = queue.keys().all()[CONTENTS].clone();
        let left = server.binary_command(&[b"EXISTS", &contents[..]]);
        assert_eq!(left, Raw::Int(0), "the content of the large one after {}", op.name());
    }
    // Beyond 2^53 the scripts' numbers are not exact.
    let counters = ["1", "9", "17", "25", "33", "41", "49"];
    let numbers = [&b"\x80"[..], b"\0\x20\0\0\0\0\0\0"];
    for (counter, number) in counters.into_iter().flat_map(|at| numbers.map(|number| (at, number)))
    {
        server.command(&["FLUSHALL"]);
        apply(&queue, 0, Op::Enqueue(vec![message("a")])).await;
        server.binary_command(&[b"SETRANGE", &key[..], counter.as_bytes(), number]);
        let before = dump(&server, queue.keys().all());
        for op in every_op() {
            assert_eq!(kind_of(&queue, 1, &op).await, Err(ErrorKind::Damaged), "{}", op.name());
        }
        assert_eq!(dump(&server, queue.keys().all()), before, "no claim whose reply is lost");
    }
}

pub(crate) async fn impossible_instants_in_the_indexes_harm_nobody<C: Connect>() {
    let server = Server::start();
    let queue = open::<C>(&server.url()).await.unwrap();
    let keys = queue.keys().all().to_vec();
    let late = 260_000_000_000_000; // later than any instant
    let bands = (0..=Position::GROUPED).flat_map(|band| [score(band, 5), score(band, late)]);
    let others = ["-inf", "-5", "1.5", "1e300", "+inf"].map(str::to_owned);
    for score in bands.chain(others).chain([score(Position::GROUPED + 1, 0)]) {
        server.command(&["FLUSHALL"]);
        fill(&queue).await;
        server.binary_command(&[b"ZADD", &keys[INDEX][..], score.as_bytes(), b"12345678junk"]);
        let what = format!("an entry at {score}");
        assert!(!findings(&queue, 4).await.is_empty(), "{what} goes unnoticed");
        for op in every_op() {
            let done = kind_of(&queue, 6_000, &op).await;
            assert!(done.is_ok(), "{what}: {} answers {done:?}", op.name());
        }
        open::<C>(&server.url()).await.unwrap();
        let mut names = delivered(&queue, 90_000, 9).await;
        names.extend(delivered(&queue, 90_001, 10).await);
        assert!(names.iter().any(|name| name == "scheduled"), "{what}: {names:?}");
    }
}

pub(crate) async fn an_audit_of_junk_comes_to_an_end<C: Connect>() {
    let server = Server::start();
    let queue = open::<C>(&server.url()).await.unwrap();
    apply(&queue, 0, Op::Enqueue((0..5).map(|n| message(&n.to_string())).collect())).await;
    let keys = queue.keys().all().to_vec();
    let score = score(Priority::Normal.level(), 1_800_000_000_000);
    for member in [&b""[..], b"x", b"xyz", &[0xff; 8], &[0xff; 12]] {
        server.binary_command(&[b"ZADD", &keys[INDEX][..], score.as_bytes(), member]);
    }
    let (mut after, mut examined) = (None, 0);
    for _ in 0..20 {
        let check = Op::Check(Check::new(3).after(after));
        let Reply::Check(page) = apply(&queue, 1, check).await else { panic!() };
        examined += page.examined;
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert!(after.is_none() && (8..=10).contains(&examined), "{examined} examined, {after:?}");
}

/// Entries with the id of a message, but another sequence number: it stays where it is.
pub(crate) async fn another_entry_of_an_id_moves_nothing<C: Connect>() {
    let server = Server::start();
    let queue = open::<C>(&server.url()).await.unwrap();
    let index = queue.keys().all()[INDEX].clone();
    for name in ["ready", "leased", "dead"] {
        for band in [Priority::Normal.level(), Position::LEASED, Position::DEAD] {
            server.command(&["FLUSHALL"]);
            fill(&queue).await;
            let stray = [b"12345678", name.as_bytes()].concat();
            server.binary_command(&[b"ZADD", &index[..], score(band, 5).as_bytes(), &stray]);
            let what = format!("{name} in band {band}");
            let (mut seen, mut deaths) = (Vec::new(), Vec::new());
            for token in 20..23 {
                let claimed = claimed(&queue, 4_000, token).await;
                deaths.extend(claimed.deaths);
                seen.extend(names(claimed.deliveries));
            }
            assert_eq!((seen, deaths), (vec!["ready".to_owned()], vec![]), "{what}");
            let ended = apply(&queue, 4_000, settle("leased", 1, Outcome::Ack)).await;
            let done = Settled::Done { status: Status::Acked };
            assert_eq!(ended, Reply::Settle(vec![done]), "{what}");
            let redrive = Op::Redrive(Redrive::new(vec![id("dead")], Schedule::NOW));
            let Reply::Redrive(redriven) = apply(&queue, 4_000, redrive).await else { panic!() };
            assert!(matches!(redriven[..], [Redriven::Done { .. }]), "{what}: {redriven:?}");
        }
    }
}

/// Details are written before the index, so a torn file may leave a waiting message whose details
/// say that it is leased or dead. It waits.
pub(crate) async fn where_a_message_is_says_the_index_alone<C: Connect>() {
    let server = Server::start();
    let queue = open::<C>(&server.url()).await.unwrap();
    let index = queue.keys().all()[INDEX].clone();
    let due = score(Priority::Normal.level(), 1_800_000_000_000);
    let half_done = async |name: &str| {
        server.command(&["FLUSHALL"]);
        fill(&queue).await;
        let entry = member(&server, &index, name);
        server.binary_command(&[b"ZADD", &index[..], due.as_bytes(), &entry]);
    };
    for name in ["leased", "dead"] {
        half_done(name).await;
        let Reply::Get(found) = apply(&queue, 4, Op::Get(vec![id(name)])).await else { panic!() };
        assert!(matches!(&found[..], [Found::Live(it)] if it.info.state == MessageState::Ready));
        let cancelled = apply(&queue, 4, Op::Cancel(vec![id(name)])).await;
        assert_eq!(cancelled, Reply::Cancel(vec![Cancelled::Cancelled]), "{name}");

        half_done(name).await;
        let soon = Reschedule::new(id(name), Schedule::NOW);
        let Reply::Reschedule(moved) = apply(&queue, 4, Op::Reschedule(vec![soon])).await else {
            panic!("not the reply to a reschedule")
        };
        assert!(matches!(moved[..], [Rescheduled::Done { .. }]), "{name}: {moved:?}");
        let purged = apply(&queue, 4, Op::Purge(vec![id(name)])).await;
        assert_eq!(purged, Reply::Purge(vec![Purged::NotDead]), "{name}");
        let Claimed { deliveries, deaths, .. } = claimed(&queue, 5, 9).await;
        let again = deliveries.iter().find(|delivery| delivery.message.info.id == id(name));
        assert_eq!(again.map(|delivery| delivery.lease.epoch), Some(2), "{name}");
        assert_eq!(deaths, [], "{name}");
        let stale = apply(&queue, 6, settle(name, 1, Outcome::Ack)).await;
        assert_eq!(stale, Reply::Settle(vec![Settled::Stale]), "{name}");
        assert_eq!(findings(&queue, 7).await, [], "{name}");
        assert_eq!(
            apply(&queue, 8, settle_at(name, 9, 2)).await,
            Reply::Settle(vec![Settled::Done { status: Status::Acked }]),
            "{name}"
        );
    }

    // A lease that has ended, among expired leases: it was settled, and did not crash.
    let over = score(Position::LEASED, 5);
    let reject = Outcome::Reject { error: String::new() };
    for (outcome, reason) in [(Outcome::Release, None), (reject, Some(DeathReason::Rejected))] {
        server.command(&["FLUSHALL"]);
        fill(&queue).await;
        apply(&queue, 4, settle("leased", 1, outcome)).await;
        let entry = member(&server, &index, "leased");
        server.binary_command(&[b"ZADD", &index[..], over.as_bytes(), &entry]);
        let Claimed { deliveries, deaths, .. } = claimed(&queue, 5, 9).await;
        let again = deliveries.iter().find(|delivery| delivery.message.info.id == id("leased"));
        let crashes = again.map(|delivery| delivery.message.info.crashes);
        assert_eq!(crashes, reason.is_none().then_some(0));
        assert_eq!(deaths.iter().map(|death| death.reason).next(), reason);
        assert_eq!(findings(&queue, 6).await, []);
    }
}

/// What stands apart because it is large is read and deleted like any other.
pub(crate) async fn large_contents_come_and_go<C: Connect>() {
    let server = Server::start();
    let queue = open::<C>(&server.url()).await.unwrap();
    let contents = queue.keys().all()[CONTENTS].clone();
    let payload = |n: usize| vec![b'p'; n];
    let mut sent = Vec::new();
    for (n, bytes) in [4_091, 4_096, 4_097, 100_000, 1 << 20].into_iter().enumerate() {
        let mut message = message(&n.to_string());
        message.payload = payload(bytes).into();
        message.headers.set("n", n.to_string()).unwrap();
        sent.push(message.clone());
        apply(&queue, 0, Op::Enqueue(vec![message])).await;
    }
    assert_eq!(
        server.binary_command(&[b"HLEN", &contents[..]]),
        Raw::Int(4),
        "one has its header over"
    );
    let Reply::Get(found) = apply(&queue, 1, Op::Get(vec![id("4")])).await else { panic!() };
    let Found::Live(found) = &found[0] else { panic!("{found:?}") };
    assert_eq!((found.payload.len(), &found.headers), (1 << 20, &sent[4].headers));
    let list = List::new(Status::Ready, 10);
    let Reply::List(page) = apply(&queue, 1, Op::List(list)).await else { panic!() };
    let sizes: Vec<_> = page.messages.iter().map(|info| info.payload_bytes).collect();
    assert_eq!(sizes, [4_091, 4_096, 4_097, 100_000, 1 << 20]);
    assert_eq!(findings(&queue, 1).await, []);

    apply(&queue, 2, Op::Cancel(vec![id("2")])).await;
    server.binary_command(&[b"HDEL", &contents[..], b"3"]);
    let deliveries = claimed(&queue, 3, 1).await.deliveries;
    let names: Vec<_> = deliveries.iter().map(|d| d.message.info.id.to_string()).collect();
    assert_eq!(names, ["0", "1", "4"]);
    assert_eq!(deliveries[2].message.payload, sent[4].payload);
    assert_eq!(death_of(&queue, "3").await, Some(DeathReason::Unreadable));
    for name in names {
        apply(&queue, 4, settle(&name, 1, Outcome::Ack)).await;
    }
    apply(&queue, 5, Op::Purge(vec![id("3")])).await;
    assert_eq!(server.binary_command(&[b"EXISTS", &contents[..]]), Raw::Int(0));
    assert_eq!(findings(&queue, 6).await, []);
}

/// A large message whose details are damaged is buried whole.
pub(crate) async fn a_large_message_is_buried_with_its_content<C: Connect>() {
    let server = Server::start();
    let queue = open::<C>(&server.url()).await.unwrap();
    let details = queue.keys().all()[DETAILS].clone();
    let payload = vec![b'l'; 5_000];
    for bury in [claim(1, 1), relay_to_list(1, None), Op::Repair(Check::new(100))] {
        server.command(&["FLUSHALL"]);
        apply(&queue, 0, Op::Enqueue(vec![message("a").payload(payload.clone())])).await;
        server.binary_command(&[b"HSET", &details[..], b"a", b"junk"]);
        apply(&queue, 1, bury.clone()).await;
        assert_eq!(death_of(&queue, "a").await, Some(DeathReason::Unreadable), "{}", bury.name());
        let Reply::Get(found) = apply(&queue, 2, Op::Get(vec![id("a")])).await else { panic!() };
        let Found::Live(found) = &found[0] else { panic!("{found:?}") };
        assert_eq!(found.payload, payload, "{}", bury.name());
    }
}

/// Together they are one reading of the clock: it never goes back, and it does not stand at full
/// milliseconds.
pub(crate) async fn claims_return_the_microseconds_of_the_servers_clock<C: Connect>() {
    let server = Server::start();
    let queue = open::<C>(&server.url()).await.unwrap();
    let (mut latest, mut most) = (0, 0);
    for number in 1..200 {
        let applied = queue.apply(At::Server, &claim(number, 1)).await.unwrap();
        assert!(applied.micros < 1_000);
        let clock = applied.at.as_ms() * 1_000 + u64::from(applied.micros);
        assert!(clock > latest, "{clock} after {latest}");
        (latest, most) = (clock, most.max(applied.micros));
    }
    assert!(most > 0);
}

pub(crate) async fn finished_messages_leave_no_residue<C: Connect>() {
    let server = Server::start();
    let queue = open::<C>(&server.url()).await.unwrap();
    let names: Vec<_> = (0..200).map(|n| format!("m{n}")).collect();
    let messages = names.iter().map(|name| message(name)).collect();
    queue.apply(At::Server, &Op::Enqueue(messages)).await.unwrap();
    let applied = queue.apply(At::Server, &claim(1, 200)).await.unwrap();
    let Reply::Claim(leases) = applied.reply else { panic!("{applied:?}") };
    let ack = |name: &String| Settlement::new(id(name), lease(1), Outcome::Ack);
    assert_eq!(leases.deliveries.len(), names.len());
    queue.apply(At::Server, &Op::Settle(names.iter().map(ack).collect())).await.unwrap();
    // What is left is the control record, the totals, perhaps a ring, and what goes by itself after
    // a while: what is remembered of messages and claims within hours, the history within a month.
    for key in queue.keys().all() {
        let exists = server.binary_command(&[b"EXISTS", &key[..]]) == Raw::Int(1);
        let Raw::Int(ttl_ms) = server.binary_command(&[b"PTTL", &key[..]]) else { panic!() };
        let is = |name: &[u8]| key.ends_with(name);
        let most = if is(b":history") { 31 * 86_400_000 } else { 7_200_000 };
        let stays = is(b":control") || is(b":totals") || is(b":bell");
        assert!(!exists || stays || (1..=most).contains(&ttl_ms), "{key:?} {ttl_ms}");
    }
    let Raw::Int(bytes) = server.command(&["STRLEN", "delayline:{q}:totals"]) else { panic!() };
    assert!((1..=200).contains(&bytes), "{bytes}");
}

fn settle_at(name: &str, token: u8, epoch: u64) -> Op {
    let lease = Lease { epoch, ..lease(token) };
    Op::Settle(vec![Settlement::new(id(name), lease, Outcome::Ack)])
}

async fn delivered(queue: &impl Backend, ms: u64, token: u8) -> Vec<String> {
    names(claimed(queue, ms, token).await.deliveries)
}

fn names(deliveries: Vec<Delivery>) -> Vec<String> {
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
