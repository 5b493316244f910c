//! Operations that the server or the stored data refuse: each wholly, or not at all (G3).

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;

use delayline_redis_protocol::layout::codes::uses;
use delayline_redis_protocol::layout::{Field, control};

use super::*;

pub async fn out_of_memory_refuses_only_what_takes_memory<C: Connect>() {
    let server = Server::start();
    let queue = open::<C>(&server.url()).await.unwrap();
    fill(&queue).await;
    server.command(&["CONFIG", "SET", "maxmemory", "1"]);
    let before = dump(&server, queue.keys().all());
    let enqueue = Op::Enqueue(vec![message("new")]);
    assert_eq!(kind_of(&queue, 10, &enqueue).await, Err(ErrorKind::OutOfMemory));
    assert_eq!(dump(&server, queue.keys().all()), before);
    let refilled = async || {
        server.command(&["CONFIG", "SET", "maxmemory", "0"]);
        server.command(&["FLUSHALL"]);
        fill(&queue).await;
        server.command(&["CONFIG", "SET", "maxmemory", "1"]);
    };
    // Refused calls can be repeated once memory is free.
    for outcome in [Outcome::Ack, Outcome::Release] {
        for next in [&["new"], &["ready"]] {
            refilled().await;
            let before = dump(&server, queue.keys().all());
            let hand_off = hand_off("leased", 1, outcome.clone(), next);
            assert_eq!(kind_of(&queue, 10, &hand_off).await, Err(ErrorKind::OutOfMemory));
            assert_eq!(dump(&server, queue.keys().all()), before, "{hand_off:?}");
            server.command(&["CONFIG", "SET", "maxmemory", "0"]);
            assert!(kind_of(&queue, 11, &hand_off).await.is_ok());
        }
    }
    let takes_memory = |op: &Op| matches!(op, Op::Enqueue(_) | Op::Relay(_) | Op::HandOff(_));
    for op in every_op().into_iter().filter(|op| !takes_memory(op)) {
        for ms in [4_500, 6_000] {
            refilled().await;
            assert!(kind_of(&queue, ms, &op).await.is_ok(), "{} at maxmemory", op.name());
        }
    }
    refilled().await;
    // The queue can be drained, which frees memory.
    let leases = claimed(&queue, 90_000, 20).await.deliveries;
    assert!(!leases.is_empty());
    for delivery in leases {
        let id = delivery.message.info.id;
        let ack = Settlement::new(id, delivery.lease, Outcome::Ack);
        apply(&queue, 90_001, Op::Settle(vec![ack])).await;
    }
    assert_eq!(findings(&queue, 90_002).await, []);
    server.command(&["CONFIG", "SET", "maxmemory", "0"]);
    apply(&queue, 90_003, enqueue).await;
}

pub async fn a_key_of_another_type_is_refused_before_anything_is_done<C: Connect>() {
    let server = Server::start();
    let queue = open::<C>(&server.url()).await.unwrap();
    let keys = queue.keys().all().to_vec();
    let mut refused = 0;
    let cases = every_op().into_iter().flat_map(|op| [(op.clone(), false), (op, true)]);
    let cases: Vec<_> = cases.collect();
    for spoiled in &keys {
        for (op, has_more) in &cases {
            server.command(&["FLUSHALL"]);
            match has_more {
                true => fill_more(&queue).await,
                false => fill(&queue).await,
            }
            server.binary_command(&[b"DEL", &spoiled[..]]);
            server.binary_command(&[b"SADD", &spoiled[..], b"not ours"]);
            let before = dump(&server, &keys);
            let spoiled_before = foreign(&server, spoiled);
            // At 6,000 a lease has expired, so the claim also makes its rare writes.
            match kind_of(&queue, 6_000, op).await {
                Ok(_) => {
                    let spoiled_after = foreign(&server, spoiled);
                    assert_eq!(spoiled_after, spoiled_before, "{} touched {spoiled:?}", op.name());
                }
                Err(ErrorKind::WrongType) => {
                    refused += 1;
                    let after = dump(&server, &keys);
                    assert_eq!(after, before, "{} with {spoiled:?} spoiled", op.name());
                }
                Err(other) => panic!("{} with {spoiled:?} spoiled: {other:?}", op.name()),
            }
        }
    }
    assert!(refused > 60, "only {refused} operations were refused");
}

/// Nothing may fail after the first write, and a key that the script has not touched may hold
/// another type.
pub async fn no_script_writes_to_a_key_that_it_has_not_touched_before<C: Connect>() {
    let server = Server::start();
    let queue = open::<C>(&server.url()).await.unwrap();
    let mut monitor = Monitor::of(&server);
    let (mut runs, mut untouched) = (0, BTreeSet::new());
    for op in every_op() {
        for (ms, has_more) in
            [4_500, 6_000, 70_000, 7_300_000].map(|ms| [(ms, false), (ms, true)]).as_flattened()
        {
            server.command(&["FLUSHALL"]);
            match has_more {
                true => fill_more(&queue).await,
                false => fill(&queue).await,
            }
            monitor.calls(&server);
            apply(&queue, *ms, op.clone()).await;
            let calls = monitor.calls(&server);
            let is_write = |call: &Call| WRITES.contains(&&*call.command) && !call.is_idle;
            let Some(first) = calls.iter().position(is_write) else { continue };
            runs += 1;
            let (before, after) = calls.split_at(first + 1);
            for Call { command, key, .. } in after {
                let is_touched = before.iter().any(|call| call.key == *key);
                if TYPED.contains(&&**command) && !is_touched {
                    untouched.insert(format!("{} at {ms}: {command} {key}", op.name()));
                }
            }
        }
    }
    assert_eq!(untouched, BTreeSet::new());
    assert!(runs > 100, "only {runs} runs have written");
}

/// Commands that fail on a key of another type.
const TYPED: [&str; 8] = ["BITFIELD", "HDEL", "HSET", "LPUSH", "RPUSH", "XADD", "ZADD", "ZREM"];
const WRITES: [&str; 12] = [
    "BITFIELD", "HDEL", "HSET", "LPUSH", "PEXPIRE", "RENAME", "RPUSH", "SET", "UNLINK", "XADD",
    "ZADD", "ZREM",
];

struct Call {
    command: String,
    /// Its first key.
    key: String,
    /// It is a write that changes nothing.
    is_idle: bool,
}

/// A connection that reports the commands of scripts.
struct Monitor(BufReader<UnixStream>);

impl Monitor {
    fn of(server: &Server) -> Self {
        let mut stream = UnixStream::connect(server.unix_path()).unwrap();
        stream.write_all(b"MONITOR\r\n").unwrap();
        let mut monitor = Self(BufReader::new(stream));
        assert_eq!(monitor.line(), "+OK");
        monitor
    }

    fn line(&mut self) -> String {
        let mut line = Vec::new();
        self.0.read_until(b'\n', &mut line).unwrap();
        assert!(!line.is_empty(), "the server has hung up");
        String::from_utf8_lossy(&line).trim_end().to_owned()
    }

    /// What scripts have called since the last time.
    fn calls(&mut self, server: &Server) -> Vec<Call> {
        server.command(&["ECHO", "so far"]);
        let mut calls = Vec::new();
        loop {
            let line = self.line();
            let (origin, words) = line.split_once("] ").unwrap();
            let words: Vec<_> = words.split('"').skip(1).step_by(2).collect();
            if words == ["ECHO", "so far"] {
                return calls;
            }
            // `XINFO` has a subcommand, and `TIME` no key.
            let key = words.get(if words[0] == "XINFO" { 2 } else { 1 }).copied();
            if let Some(key) = key.filter(|_| origin.ends_with(" lua")) {
                let is_idle = matches!(words[..], ["HDEL", _, ""] | ["BITFIELD", _]);
                calls.push(Call { command: words[0].to_owned(), key: key.to_owned(), is_idle });
            }
        }
    }
}

/// A value that is not ours, and its time to live.
fn foreign(server: &Server, key: &[u8]) -> [Raw; 2] {
    [&b"DUMP"[..], b"PTTL"].map(|command| server.command(&[command, key]))
}

pub async fn a_queue_of_another_version_is_refused_unchanged<C: Connect>() {
    for found in [SCHEMA_VERSION - 1, SCHEMA_VERSION + 1, 254] {
        let server = Server::start();
        let queue = open::<C>(&server.url()).await.unwrap();
        fill(&queue).await;
        let control = &queue.keys().all()[CONTROL];
        server.binary_command(&[b"SETRANGE", &control[..], b"0", &[u8::try_from(found).unwrap()]]);
        let before = dump(&server, queue.keys().all());
        let supported = SCHEMA_VERSION;
        let refused = match found < supported {
            true => ErrorKind::OlderVersion { found, supported },
            false => ErrorKind::NewerVersion { found, supported },
        };
        for op in every_op() {
            assert_eq!(kind_of(&queue, 6_000, &op).await, Err(refused.clone()), "{}", op.name());
        }
        assert_eq!(dump(&server, queue.keys().all()), before);
        assert_eq!(open::<C>(&server.url()).await.unwrap_err().kind(), &refused);
    }
}

/// A version that uses a new structure in a queue sets a bit, and names the version that knows it.
pub async fn a_queue_with_a_feature_of_a_newer_version_is_refused_unchanged<C: Connect>() {
    let server = Server::start();
    // The lowest bits are known, without a gap.
    for bit in u32::from(uses::ALL).trailing_ones()..u32::BITS {
        server.command(&["FLUSHALL"]);
        let queue = open::<C>(&server.url()).await.unwrap();
        fill(&queue).await;
        let key = &queue.keys().all()[CONTROL];
        let set = |field: Field, bytes: &[u8]| {
            let offset = field.offset.unwrap().to_string();
            server.binary_command(&[b"SETRANGE", &key[..], offset.as_bytes(), bytes]);
        };
        set(control::USES, &(u32::from(uses::ALL) | 1 << bit).to_be_bytes());
        let damaged = dump(&server, queue.keys().all());
        assert_eq!(kind_of(&queue, 6_000, &Op::Stats).await, Err(ErrorKind::Damaged), "{bit}");
        assert_eq!(dump(&server, queue.keys().all()), damaged);
        set(control::NEEDS, &[3, 1]);
        let before = dump(&server, queue.keys().all());
        let refused = ErrorKind::NewerFeature { major: 3, minor: 1 };
        for op in every_op().iter().skip(bit as usize % 3).step_by(3) {
            assert_eq!(kind_of(&queue, 6_000, op).await, Err(refused.clone()), "{}", op.name());
        }
        assert_eq!(dump(&server, queue.keys().all()), before);
        let error = open::<C>(&server.url()).await.unwrap_err();
        assert_eq!(error.kind(), &refused);
        assert!(error.to_string().contains("a feature of version 3.1"), "{error}");
    }
}

pub async fn a_damaged_control_record_is_refused_unchanged_with_its_remedy<C: Connect>() {
    let server = Server::start();
    let queue = open::<C>(&server.url()).await.unwrap();
    fill(&queue).await;
    let key = queue.keys().all()[CONTROL].clone();
    let version = u8::try_from(SCHEMA_VERSION).unwrap();
    let lengths = [1, control::BYTES - 1].map(|length| vec![version; length]);
    // Neither without limits nor with them.
    let mut longer = vec![0; control::BYTES + 1];
    longer[0] = version;
    let others = [vec![], vec![0], vec![0; control::BYTES], longer];
    for junk in lengths.into_iter().chain(others) {
        server.binary_command(&[b"SET", &key[..], &junk]);
        let before = dump(&server, queue.keys().all());
        for op in every_op() {
            assert_eq!(kind_of(&queue, 6_000, &op).await, Err(ErrorKind::Damaged));
        }
        assert_eq!(dump(&server, queue.keys().all()), before);
        let error = queue.apply(at(6_000), &Op::Stats).await.unwrap_err().to_string();
        assert!(error.contains("delete the key delayline:{q}:control"), "{error}");
        server.binary_command(&[b"DEL", &key[..]]);
        repaired(&queue, 6_000, 100).await;
        assert!(!claimed(&queue, 6_000, 20).await.deliveries.is_empty());
        server.command(&["FLUSHALL"]);
        fill(&queue).await;
    }
}
