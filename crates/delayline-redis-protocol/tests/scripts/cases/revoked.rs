//! Rights that are taken away while a queue is in use (G3).

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use delayline_core::{ErrorClass, Priority};
use delayline_redis_protocol::{AclRole, Script};

use super::*;

/// Every command of every operation is taken away between two calls, for one key at a time. Nothing
/// may change then, and the refusal must name both.
pub(crate) async fn a_right_that_is_taken_away_leaves_no_half_of_an_operation<C: Connect>() {
    let rules =
        AclRole::Admin.rules(&QueueName::new("q").unwrap()) + &format!(" ~{LIST} ~{STREAM}");
    let server = Server::builder().acl_user(&format!("worker >secret {rules}")).start();
    let asks = Capability::RightsAreAsked.is_of(&server);
    let queue = open::<C>(&server.url_with_login("worker", "secret")).await.unwrap();
    let keys = queue.keys().all().to_vec();
    let mut refused: BTreeMap<&str, BTreeSet<(String, &str)>> = BTreeMap::new();
    for (age, cases) in [
        (Age::Busy, cases_of_a_busy_queue()),
        (Age::Quiet, cases_of_a_quiet_queue()),
        (Age::Forgotten, cases_of_a_forgetful_queue()),
        (Age::Paused, vec![(4_500, Op::Resume)]),
        (Age::Awaited, vec![(5, extend("leased", 1, 1))]),
        (Age::Grouped, cases_of_groups()),
        (Age::InOrder, cases_in_order()),
    ] {
        prepare(&server, &queue, age).await;
        let state = dump_of(&server, &keys);
        for (ms, op) in cases {
            let script = Script::of(&op).unwrap();
            for (command, key) in calls_of(script) {
                restore(&server, &keys, &state);
                let before = contents_of(&server, &keys);
                // Else there are no rights for one key.
                let others =
                    keys.iter().filter(|name| !name.ends_with(format!(":{key}").as_bytes()));
                let others: Vec<_> =
                    others.map(|name| format!("~{}", String::from_utf8_lossy(name))).collect();
                let elsewhere = format!("(+{command} {})", others.join(" "));
                let taken = format!("-{command}");
                let rules = ["ACL", "SETUSER", "worker", &taken, &elsewhere];
                server.command(&rules[..if asks { 5 } else { 4 }]);
                let outcome = queue.apply(at(ms), &op).await;
                let given = format!("+{command}");
                let rules = ["ACL", "SETUSER", "worker", &given, "clearselectors"];
                server.command(&rules[..if asks { 5 } else { 4 }]);
                let Err(error) = outcome else { continue };
                let case = format!("{} at {ms} without {command} on {key}: {error}", op.name());
                if !asks && error.kind() == &ErrorKind::Server {
                    assert_eq!(error.class(), ErrorClass::Ambiguous, "{case}");
                    repaired(&queue, ms, 100).await;
                    continue;
                }
                assert_eq!(error.kind(), &ErrorKind::PermissionDenied, "{case}");
                assert_eq!(error.class(), ErrorClass::Rejected, "{case}");
                assert_eq!(contents_of(&server, &keys), before, "{case}");
                if asks {
                    let names = |text: &str| error.detail().contains(text);
                    assert!(names(&command) && names(key), "{case}");
                }
                refused.entry(&script.sha1).or_default().insert((command, key));
            }
            restore(&server, &keys, &state);
            assert!(queue.apply(at(ms), &op).await.is_ok(), "{} at {ms}", op.name());
        }
    }
    if asks {
        let mut unseen = Vec::new();
        for (_, op) in cases_of_a_busy_queue() {
            let script = Script::of(&op).unwrap();
            let mut missed = calls_of(script);
            missed.retain(|(command, _)| WRITES.contains(&&**command));
            let Some(refused) = refused.remove(&*script.sha1) else { continue };
            missed.retain(|call| !refused.contains(call));
            unseen.extend(missed.into_iter().map(|call| (op.name(), call)));
        }
        assert_eq!(unseen, [], "writes that no case needs");
    }
}

/// The commands that stand in a script, each with the name of a key that it is called on.
fn calls_of(script: &Script) -> BTreeSet<(String, &'static str)> {
    let mut calls = BTreeSet::new();
    for call in script.source.split("redis.call('").skip(1) {
        let (command, mut rest) = call.split_once('\'').unwrap();
        while let Some((number, after)) =
            rest.strip_prefix(", KEYS[").and_then(|rest| rest.split_once(']'))
        {
            calls.insert((command.to_owned(), script.keys[number.parse::<usize>().unwrap() - 1]));
            rest = after;
        }
    }
    calls
}

/// The history of a queue.
#[derive(Clone, Copy, PartialEq)]
enum Age {
    /// Finished messages and claims are forgotten.
    Forgotten,
    Busy,
    /// No message is leased any more.
    Quiet,
    Paused,
    /// A worker waits for the next due message.
    Awaited,
    /// Groups take turns, one of them without messages, and one has lost its turn.
    Grouped,
    /// Groups are handled in order: one of them waits for a worker, and one for a retry.
    InOrder,
}

/// A queue with a message in every state, and some that are large, expired or damaged.
async fn prepare(server: &Server, queue: &ScriptBackend<impl Transport>, age: Age) {
    server.command(&["FLUSHALL"]);
    fill(queue).await;
    if age == Age::Paused {
        apply(queue, 4, Op::Pause).await;
        server.binary_command(&[b"DEL", &queue.keys().all()[BELL][..]]);
        return;
    }
    if age == Age::Awaited {
        apply(queue, 4, claim(9, 100)).await;
        server.binary_command(&[b"DEL", &queue.keys().all()[BELL][..]]);
        return;
    }
    if age == Age::Forgotten {
        let mut again = message("acked");
        again.finished_ids = FinishedIds::Reuse;
        apply(queue, 4, Op::Enqueue(vec![again])).await;
        for key in &queue.keys().all()[JOURNAL[0]..=JOURNAL[1]] {
            server.binary_command(&[b"DEL", &key[..]]);
        }
        return;
    }
    if age == Age::Grouped {
        let all = ["g1", "g2", "g3", "g4", "h1", "lost"].map(grouped);
        apply(queue, 4, Op::Enqueue(all.to_vec())).await;
        let later = Schedule::In(millis(4_000));
        apply(queue, 4, Op::Enqueue(vec![grouped("k1").schedule(later)])).await;
        apply(queue, 4, claim(7, 2)).await;
        apply(queue, 4, settle("g1", 7, Outcome::Release)).await;
        apply(queue, 4, Op::Cancel(vec![id("h1")])).await;
        let group = grouped("lost").group.unwrap();
        let lane = &group.lane().to_be_bytes()[2..];
        server.binary_command(&[b"ZREM", &queue.keys().all()[TURNS][..], lane]);
        server.binary_command(&[b"DEL", &queue.keys().all()[BELL][..]]);
        return;
    }
    if age == Age::InOrder {
        apply(queue, 4, Op::SetLimits(SetLimits::new().in_order(true))).await;
        apply(queue, 4, Op::Enqueue(["g1", "g2", "h1", "h2"].map(grouped).to_vec())).await;
        apply(queue, 4, claim(7, 3)).await;
        let schedule = Schedule::In(millis(5));
        apply(queue, 4, settle("h1", 7, Outcome::Retry { schedule, error: String::new() })).await;
        server.binary_command(&[b"DEL", &queue.keys().all()[BELL][..]]);
        return;
    }
    if age == Age::Quiet {
        for (text, token) in [("leased", 1), ("expiring", 2)] {
            apply(queue, 4, settle(text, token, Outcome::Ack)).await;
        }
    }
    let mut held = update("held", 1);
    held.priority = Priority::Urgent;
    apply(queue, 4, Op::Enqueue(vec![held])).await;
    apply(queue, 4, claim(3, 1)).await;
    apply(queue, 4, Op::Enqueue(vec![update("held", 2)])).await;
    apply(queue, 4, Op::Enqueue(vec![throttled("window")])).await;
    apply(queue, 4, Op::Cancel(vec![id("window")])).await;
    let mut expiring = message("expired");
    expiring.expires = Some(Schedule::In(millis(100)));
    let mut large = message("large");
    large.payload = vec![b'l'; 5_000].into();
    let damaged = ["lost", "stray"].map(message);
    let [lost, stray] = damaged;
    apply(queue, 5, Op::Enqueue(vec![expiring, large, lost, stray])).await;
    let keys = queue.keys();
    server.binary_command(&[b"HDEL", &keys.all()[RECORDS][..], b"lost"]);
    server.binary_command(&[b"DEL", &keys.all()[BELL][..]]);
    server.binary_command(&[b"HSET", &keys.all()[DETAILS][..], b"orphan", b"x"]);
    server.binary_command(&[b"HSET", &keys.all()[CONTENTS][..], b"orphan", b"x"]);
    server.binary_command(&[b"HSET", &keys.all()[RECORDS][..], b"unindexed", b"x"]);
}

/// A message of the group with its first letter.
fn grouped(name: &str) -> NewMessage {
    message(name).group(delayline_core::Group::new(&name[..1]).unwrap())
}

/// Lanes join the ring, move in it and leave it, and due instants are kept apart from places.
fn cases_of_groups() -> Vec<(u64, Op)> {
    let next = vec![grouped("l1")];
    let settlement = Settlement::new(id("leased"), lease(1), Outcome::Release);
    let later = |name| Reschedule::new(id(name), Schedule::In(millis(9_000)));
    let moved = Update::new(UpdateContent::Keep, UpdateDue::Set, UpdateToken::from_bytes([8; 8]));
    let all = [
        claim(9, 3),
        relay_to_list(3, None),
        Op::Enqueue(next.clone()),
        Op::Enqueue(vec![grouped("l1").throttle(millis(9_000))]),
        Op::Enqueue(vec![
            grouped("g2").known(Known::Update(moved)).schedule(Schedule::In(millis(9))),
        ]),
        Op::HandOff(vec![HandOff::new(settlement, next)]),
        Op::Reschedule(vec![later("g1"), later("g2")]),
        Op::Repair(Check::new(100)),
    ];
    all.into_iter().map(|op| (4_500, op)).collect()
}

/// Slots are taken and freed, and lanes wait for them.
fn cases_in_order() -> Vec<(u64, Op)> {
    let replace =
        Update::new(UpdateContent::Replace, UpdateDue::Set, UpdateToken::from_bytes([9; 8]));
    let all = [
        claim(9, 3),
        relay_to_list(3, None),
        settle("g1", 7, Outcome::Ack),
        hand_off("g1", 7, Outcome::Ack, &["new"]),
        Op::Cancel(vec![id("h1")]),
        Op::Enqueue(vec![grouped("h1").payload("other").known(Known::Update(replace))]),
        Op::SetLimits(SetLimits::new().in_order(false)),
    ];
    all.into_iter().map(|op| (4_500, op)).collect()
}

const MINUTES: u64 = 60_000;
const WRITES: [&str; 12] = [
    "BITFIELD", "HDEL", "HSET", "LPUSH", "PEXPIRE", "RENAME", "RPUSH", "SET", "UNLINK", "XADD",
    "ZADD", "ZREM",
];

fn cases_of_a_busy_queue() -> Vec<(u64, Op)> {
    let mut cases: Vec<_> = every_op().into_iter().map(|op| (4_500, op)).collect();
    // The first change of a minute.
    let others = every_op()
        .into_iter()
        .filter(|op| matches!(op, Op::Extend(_) | Op::Pause | Op::SetLimits(_)));
    cases.extend(others.map(|op| (5 * MINUTES, op)));
    cases.extend([
        // Takes leases back.
        (6_000, claim(9, 10)),
        // The memory of claims and of finished messages is trimmed.
        (12 * MINUTES, claim(9, 10)),
        (6_000, relay_to_list(10, None)),
        (70 * MINUTES, relay_to_list(10, None)),
        (130 * MINUTES, relay_to_stream(10, None)),
        (4_500, relay_to_stream(1, Some(1_000_000))),
        (70 * MINUTES, settle("leased", 1, Outcome::Ack)),
        (130 * MINUTES, settle("leased", 1, Outcome::Ack)),
        // They ring.
        (5 * MINUTES, settle("leased", 1, Outcome::Release)),
        (5 * MINUTES, Op::Enqueue(vec![message("new")])),
        (5 * MINUTES, Op::Reschedule(vec![Reschedule::new(id("scheduled"), Schedule::NOW)])),
        (5 * MINUTES, Op::Redrive(Redrive::new(vec![id("dead")], Schedule::NOW))),
        // A follower.
        (4_500, settle("held", 3, Outcome::Ack)),
        (4_500, settle("held", 3, Outcome::Release)),
        (4_500, Op::Cancel(vec![id("held")])),
        (4_500, Op::Enqueue(vec![update("large", 3), message("a new one")])),
        (5 * MINUTES, Op::Enqueue(vec![update("new", 3), large()])),
        // Windows that have ended make room.
        (5 * MINUTES, Op::Enqueue(vec![throttled("new"), throttled("a new one")])),
        // Messages that follow.
        (70 * MINUTES, hand_off("leased", 1, Outcome::Ack, &["new"])),
        (130 * MINUTES, hand_off("leased", 1, Outcome::Ack, &["new"])),
        (5 * MINUTES, hand_off("leased", 1, Outcome::Release, &["new"])),
        (4_500, hand_off_of_every_kind()),
        // The memory of finished messages and of claims is trimmed, and a bell rings. A repeated
        // claim.
        (4_500, claim(2, 1)),
        (4_500, enqueue_large()),
    ]);
    cases
}

fn cases_of_a_quiet_queue() -> Vec<(u64, Op)> {
    let mut again = message("acked");
    again.finished_ids = FinishedIds::Reuse;
    vec![
        (4_500, Op::Enqueue(vec![again])),
        (4_500, claim(9, 10)),
        // To the millisecond, since the first of them was claimed and the first of them finished.
        (10 * MINUTES, claim(9, 10)),
        (60 * MINUTES + 1, Op::Cancel(vec![id("ready"), id("large")])),
        (12 * MINUTES, claim(9, 10)),
        (25 * MINUTES, claim(9, 10)),
        (70 * MINUTES, Op::Cancel(vec![id("ready"), id("large")])),
        (130 * MINUTES, Op::Cancel(vec![id("ready"), id("large")])),
        (70 * MINUTES, Op::Purge(vec![id("dead")])),
        (130 * MINUTES, Op::Purge(vec![id("dead")])),
        (4_500, Op::Get(vec![id("large"), id("dead"), id("ready")])),
        (4_500, Op::Repair(Check::new(100))),
    ]
}

fn extend(text: &str, token: u8, for_ms: u64) -> Op {
    Op::Extend(Extend::new(vec![(id(text), lease(token))], millis(for_ms)))
}

fn cases_of_a_forgetful_queue() -> Vec<(u64, Op)> {
    vec![
        (4_500, Op::Cancel(vec![id("ready")])),
        (4_500, Op::Purge(vec![id("dead")])),
        (4_500, settle("leased", 1, Outcome::Ack)),
        (4_500, hand_off("leased", 1, Outcome::Ack, &["new"])),
        (4_500, claim(9, 10)),
        (6_000, claim(9, 10)),
        (4_500, relay_to_list(10, None)),
        // The first update and the first large content are announced in the control record.
        (4_500, Op::Enqueue(vec![update("ready", 1)])),
        (4_500, enqueue_large()),
    ]
}

/// From a message that an update follows: a large one, and one that reuses a finished id.
fn hand_off_of_every_kind() -> Op {
    let settlement = Settlement::new(id("held"), lease(3), Outcome::Release);
    let again = message("acked").finished_ids(FinishedIds::Reuse);
    Op::HandOff(vec![HandOff::new(settlement, vec![large(), again])])
}

fn enqueue_large() -> Op {
    Op::Enqueue(vec![large()])
}

fn large() -> NewMessage {
    let mut large = message("also large");
    large.payload = vec![b'l'; 5_000].into();
    large
}

/// The serialized values of all keys.
fn dump_of(server: &Server, keys: &[Bytes]) -> Vec<Raw> {
    const DUMP: &[u8] =
        b"local r = {} for i, key in ipairs(KEYS) do r[i] = redis.call('DUMP', key) or '' end return r";
    asked_of(server, keys, DUMP)
}

/// As [`dump_of`], except that hashes are in order: a dump has them as the server happens to.
fn contents_of(server: &Server, keys: &[Bytes]) -> Vec<Raw> {
    const CONTENTS: &[u8] = b"local r = {}
        for i, key in ipairs(KEYS) do
            if redis.call('TYPE', key).ok == 'hash' then
                local all, values = redis.call('HGETALL', key), {}
                for n = 1, #all, 2 do
                    values[#values + 1] = #all[n] .. ' ' .. all[n] .. all[n + 1]
                end
                table.sort(values)
                r[i] = values
            else
                r[i] = redis.call('DUMP', key) or ''
            end
        end
        return r";
    asked_of(server, keys, CONTENTS)
}

fn asked_of(server: &Server, keys: &[Bytes], script: &[u8]) -> Vec<Raw> {
    let count = keys.len().to_string();
    let mut command: Vec<&[u8]> = vec![b"EVAL", script, count.as_bytes()];
    command.extend(keys.iter().map(|key| &key[..]));
    server.command(&command).into_sequence().unwrap()
}

fn restore(server: &Server, keys: &[Bytes], dump: &[Raw]) {
    const RESTORE: &[u8] = b"for i, key in ipairs(KEYS) do redis.call('DEL', key) \
        if ARGV[i] ~= '' then redis.call('RESTORE', key, 0, ARGV[i]) end end";
    let count = keys.len().to_string();
    let mut command: Vec<&[u8]> = vec![b"EVAL", RESTORE, count.as_bytes()];
    command.extend(keys.iter().map(|key| &key[..]));
    let value = |value: &Raw| match value {
        Raw::BulkString(bytes) => bytes.clone(),
        other => panic!("{other:?}"),
    };
    let values: Vec<_> = dump.iter().map(value).collect();
    command.extend(values.iter().map(|value| &value[..]));
    server.command(&command);
}
