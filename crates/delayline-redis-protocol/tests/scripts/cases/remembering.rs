//! The memory of finished messages and of claims, and how long it lasts.

use delayline_core::limits::{
    FINISHED_RETENTION_MS, JOURNAL_RETENTION_MS, MAX_FINISHED, MAX_RESULT_RETENTION_MS, MAX_RESULTS,
};
use delayline_core::{Cancelled, Found};

use super::*;

/// How a message ends.
#[derive(Clone, Copy, Debug)]
enum End {
    Acked,
    Cancelled,
    Purged,
    /// While it was leased, by the claim that takes the lease back.
    CancelledByClaim,
}

/// Claims a message and ends it.
async fn finish(queue: &impl Backend, ms: u64, token: u8, end: End) {
    let name = token.to_string();
    apply(queue, ms, Op::Enqueue(vec![message(&name)])).await;
    assert_eq!(claimed(queue, ms, token).await.deliveries.len(), 1);
    let reject = Outcome::Reject { error: String::new() };
    match end {
        End::Acked => drop(apply(queue, ms, settle(&name, token, Outcome::Ack)).await),
        End::Cancelled => {
            apply(queue, ms, settle(&name, token, Outcome::Release)).await;
            apply(queue, ms, Op::Cancel(vec![id(&name)])).await;
        }
        End::Purged => {
            apply(queue, ms, settle(&name, token, reject)).await;
            apply(queue, ms, Op::Purge(vec![id(&name)])).await;
        }
        End::CancelledByClaim => {
            apply(queue, ms, Op::Cancel(vec![id(&name)])).await;
            assert_eq!(claimed(queue, ms + 10_000, token + 100).await.deliveries, []);
        }
    }
    let Reply::Get(found) = apply(queue, ms, Op::Get(vec![id(&name)])).await else { panic!() };
    assert!(matches!(found[..], [Found::Finished(_)]), "{found:?} is not {end:?}");
}

/// A file may end just before the command that sets the expiry of this memory.
pub(crate) async fn a_repair_limits_the_life_of_what_is_remembered<C: Connect>() {
    let server = Server::start();
    let queue = open::<C>(&server.url()).await.unwrap();
    let instants = [0, FINISHED_RETENTION_MS, FINISHED_RETENTION_MS + JOURNAL_RETENTION_MS];
    for (token, ms) in (1..).zip(instants) {
        finish(&queue, ms, token, End::Acked).await;
    }
    let keys = queue.keys().all();
    let now = instants[2];
    for ([new, old], retention) in
        [(FINISHED, FINISHED_RETENTION_MS), (JOURNAL, JOURNAL_RETENTION_MS)]
    {
        for (key, most) in [(new, 2 * retention), (old, retention)] {
            let before = dump(&server, keys);
            assert_eq!(server.binary_command(&[b"PERSIST", &keys[key][..]]), Raw::Int(1));
            assert_eq!(repaired(&queue, now, 100).await, []);
            let Raw::Int(ttl_ms) = server.binary_command(&[b"PTTL", &keys[key][..]]) else {
                panic!()
            };
            let most = i64::try_from(most).unwrap();
            assert!((most - 60_000..=most).contains(&ttl_ms), "{:?} {ttl_ms}", keys[key]);
            let after = dump(&server, keys);
            let changed = (0..before.len()).filter(|key| before[*key] != after[*key]);
            // The revision, and a ring.
            assert!(changed.into_iter().all(|key| [CONTROL, BELL].contains(&key)));
        }
    }
    assert_eq!(server.binary_command(&[b"PERSIST", &keys[HISTORY][..]]), Raw::Int(1));
    assert_eq!(repaired(&queue, now, 100).await, []);
    let Raw::Int(ttl_ms) = server.binary_command(&[b"PTTL", &keys[HISTORY][..]]) else { panic!() };
    assert!((2_678_340_000..=2_678_400_000).contains(&ttl_ms), "{ttl_ms}");
    let before = dump(&server, keys);
    assert_eq!(repaired(&queue, now, 100).await, []);
    assert_eq!(dump(&server, keys), before, "there is nothing left to do");
}

pub(crate) async fn what_is_remembered_goes_by_itself<C: Connect>() {
    let server = Server::start();
    let queue = open::<C>(&server.url()).await.unwrap();
    for end in [End::Acked, End::Cancelled, End::Purged, End::CancelledByClaim] {
        server.command(&["FLUSHALL"]);
        // The last two are of different generations of claims, and the first two of finished ids.
        let instants = [0, FINISHED_RETENTION_MS, FINISHED_RETENTION_MS + JOURNAL_RETENTION_MS];
        let keys = queue.keys().all();
        for (token, ms) in (1..).zip(instants) {
            finish(&queue, ms, token, end).await;
            for [new, _] in [FINISHED, JOURNAL] {
                let ttl_ms = server.binary_command(&[b"PTTL", &keys[new][..]]);
                assert!(matches!(ttl_ms, Raw::Int(1..)), "{end:?} at {ms}: {:?}", keys[new]);
            }
        }
        for ([new, old], retention) in
            [(FINISHED, FINISHED_RETENTION_MS), (JOURNAL, JOURNAL_RETENTION_MS)]
        {
            let ttl_ms = |key: usize| match server.binary_command(&[b"PTTL", &keys[key][..]]) {
                Raw::Int(ttl_ms) => ttl_ms,
                other => panic!("{other:?}"),
            };
            let retention = i64::try_from(retention).unwrap();
            let ttl_ms = (ttl_ms(new), ttl_ms(old));
            assert!((retention + 1..=2 * retention).contains(&ttl_ms.0), "{end:?} {ttl_ms:?}");
            assert!((1..=retention).contains(&ttl_ms.1), "{end:?} {ttl_ms:?}");
        }
    }
}

/// As an interrupted ack may leave it: it becomes no dead letter.
pub(crate) async fn a_place_of_a_finished_message_goes_without_a_word<C: Connect>() {
    let server = Server::start();
    let queue = open::<C>(&server.url()).await.unwrap();
    let index = queue.keys().all()[INDEX].clone();
    let relay = relay_to_list(10, None);
    let ops = [claim(2, 10), relay, Op::Repair(Check::new(10))];
    for (op, is_leased) in ops.iter().flat_map(|op| [(op, false), (op, true)]) {
        server.command(&["FLUSHALL"]);
        apply(&queue, 0, Op::Enqueue(vec![message("a")])).await;
        let place = member(&server, &index, "a");
        let score = || match server.binary_command(&[b"ZSCORE", &index[..], &place]) {
            Raw::BulkString(score) => score,
            other => panic!("{other:?}"),
        };
        let waiting = score();
        claimed(&queue, 0, 1).await;
        let score = if is_leased { score() } else { waiting };
        apply(&queue, 1, settle("a", 1, Outcome::Ack)).await;
        server.binary_command(&[b"ZADD", &index[..], &score, &place]);
        // The lease has ended.
        apply(&queue, 20_000, op.clone()).await;
        let left = server.binary_command(&[b"ZCARD", &index[..]]);
        assert_eq!(left, Raw::Int(0), "{}, leased: {is_leased}", op.name());
    }
}

pub(crate) async fn results_go_by_themselves<C: Connect>() {
    let server = Server::start();
    let queue = open::<C>(&server.url()).await.unwrap();
    apply(&queue, 0, Op::Enqueue(vec![message("a")])).await;
    assert_eq!(claimed(&queue, 0, 1).await.deliveries.len(), 1);
    apply(&queue, 0, hand_off("a", 1, Outcome::Ack, &[])).await;
    let most = i64::try_from(MAX_RESULT_RETENTION_MS).unwrap();
    let are_limited = || {
        RESULTS.iter().all(|key| {
            let ttl_ms = server.binary_command(&[b"PTTL", &queue.keys().all()[*key][..]]);
            matches!(ttl_ms, Raw::Int(ms) if (most - 60_000..=most).contains(&ms))
        })
    };
    assert!(are_limited());
    for key in RESULTS {
        // A file may end just before.
        assert_eq!(server.binary_command(&[b"PERSIST", &queue.keys().all()[key][..]]), Raw::Int(1));
        assert!(!are_limited());
        assert_eq!(repaired(&queue, 0, 100).await, []);
        assert!(are_limited());
    }
    // All that is left of an expired result is its place, for a while.
    let op = |token, name| hand_off(name, token, Outcome::Ack, &[]);
    apply(&queue, 60_000, Op::Enqueue(vec![message("b")])).await;
    assert_eq!(claimed(&queue, 60_000, 2).await.deliveries.len(), 1);
    apply(&queue, 60_000, op(2, "b")).await;
    let [results, until] = RESULTS.map(|key| &queue.keys().all()[key][..]);
    assert_eq!(
        server.binary_command(&[b"HLEN", results]),
        Raw::Int(2),
        "b, and the number of bytes"
    );
    assert_eq!(server.binary_command(&[b"HGET", results, b""]), Raw::BulkString(b"2".to_vec()));
    assert_eq!(server.binary_command(&[b"ZCARD", until]), Raw::Int(1));
}

pub(crate) async fn a_damaged_count_of_result_bytes_stops_nothing<C: Connect>() {
    let server = Server::start();
    let queue = open::<C>(&server.url()).await.unwrap();
    let results = &queue.keys().all()[RESULTS[0]][..];
    let damages: [&[u8]; 8] =
        [b"x", b"", b"-5", b"nan", b"inf", b"1e300", b"9007199254740992", &[0xff; 100]];
    for (token, damage) in (1..).zip(damages) {
        server.binary_command(&[b"DEL", results]);
        server.binary_command(&[b"HSET", results, b"", damage]);
        let name = token.to_string();
        apply(&queue, 1, Op::Enqueue(vec![message(&name)])).await;
        assert_eq!(claimed(&queue, 1, token).await.deliveries.len(), 1);
        let op = hand_off(&name, token, Outcome::Ack, &[]);
        let Reply::HandOff(told) = apply(&queue, 1, op).await else { panic!() };
        assert!(told[0].result_kept, "{damage:?}");
        let bytes = server.binary_command(&[b"HGET", results, b""]);
        assert_eq!(bytes, Raw::BulkString(b"2".to_vec()), "{damage:?}");
    }
}

pub(crate) async fn as_many_results_are_kept_as_promised<C: Connect>() {
    let server = Server::start();
    let queue = open::<C>(&server.url()).await.unwrap();
    let results = &queue.keys().all()[RESULTS[0]][..];
    let fill = b"for i = 2, ARGV[1] do redis.call('HSET', KEYS[1], i, '') end";
    let most = MAX_RESULTS.to_string();
    server.binary_command(&[b"HSET", results, b"", b"0"]);
    server.binary_command(&[b"EVAL", fill, b"1", results, most.as_bytes()]);
    apply(&queue, 1, Op::Enqueue(vec![message("a"), message("b")])).await;
    assert_eq!(claimed(&queue, 1, 1).await.deliveries.len(), 2);
    for (name, is_kept) in [("a", true), ("b", false)] {
        let Reply::HandOff(told) = apply(&queue, 1, hand_off(name, 1, Outcome::Ack, &[])).await
        else {
            panic!()
        };
        assert_eq!(told[0].result_kept, is_kept, "{name}");
    }
}

/// A change of generations may be torn after its first command: then there is only an older one,
/// and it is still to be taken for the younger one.
pub(crate) async fn a_torn_change_of_generations_forgets_nothing<C: Connect>() {
    let server = Server::start();
    let queue = open::<C>(&server.url()).await.unwrap();
    let [new, old] = FINISHED.map(|key| queue.keys().all()[key].clone());
    let begun = message("9");
    let asks = [
        Op::Get(vec![id("1")]),
        Op::Progress(vec![id("1")]),
        Op::Enqueue(vec![message("1")]),
        Op::Enqueue(vec![update("1", 1)]),
        Op::Cancel(vec![id("1")]),
        Op::Purge(vec![id("1")]),
        settle("1", 1, Outcome::Ack),
        hand_off("9", 9, Outcome::Ack, &["1"]),
    ];
    let half = FINISHED_RETENTION_MS / 2;
    for ask in asks {
        let mut replies = Vec::new();
        for is_torn in [false, true] {
            server.command(&["FLUSHALL"]);
            finish(&queue, 0, 2, End::Acked).await;
            finish(&queue, half, 1, End::Acked).await;
            apply(&queue, half, Op::Enqueue(vec![begun.clone()])).await;
            assert_eq!(claimed(&queue, half, 9).await.deliveries.len(), 1);
            if is_torn {
                server.binary_command(&[b"RENAME", &new[..], &old[..]]);
            }
            // The first generation has ended. Ids that finished in its second half are still known.
            replies.push(apply(&queue, FINISHED_RETENTION_MS, ask.clone()).await);
        }
        assert_eq!(replies[0], replies[1], "{}", ask.name());
    }
}

pub(crate) async fn as_many_finished_ids_are_remembered_as_promised<C: Connect>() {
    let server = Server::start();
    let queue = open::<C>(&server.url()).await.unwrap();
    let [new, old] = FINISHED.map(|key| queue.keys().all()[key].clone());
    let finish = async |ms: u64, name: &str| {
        apply(&queue, ms, Op::Enqueue(vec![message(name)])).await;
        let cancelled = apply(&queue, ms, Op::Cancel(vec![id(name)])).await;
        assert_eq!(cancelled, Reply::Cancel(vec![Cancelled::Cancelled]));
    };
    let lengths = || [&new, &old].map(|key| server.binary_command(&[b"HLEN", &key[..]]));
    // Each generation also holds when it began.
    let raw = |ids: usize| Raw::Int(i64::try_from(ids + 1).unwrap());

    finish(0, "first").await;
    // Others like it, all but the last for which there is room.
    let fill = "local one = redis.call('HGET', KEYS[1], 'first') \
                for n = 2, ARGV[1] do redis.call('HSET', KEYS[1], 'other' .. n, one) end";
    let others = (MAX_FINISHED - 1).to_string();
    server.binary_command(&[b"EVAL", fill.as_bytes(), b"1", &new[..], others.as_bytes()]);
    finish(1, "last").await;
    assert_eq!(lengths(), [raw(MAX_FINISHED), Raw::Int(0)], "there was room for one more");
    finish(2, "next").await;
    assert_eq!(lengths(), [raw(1), raw(MAX_FINISHED)], "and for none beside it");
    let known = Op::Get(["first", "last", "next"].map(id).to_vec());
    let Reply::Get(found) = apply(&queue, 3, known).await else { panic!("not the reply to a get") };
    assert!(found.iter().all(|it| matches!(it, Found::Finished(_))), "{found:?}");
}
