//! What a queue does on servers that are full, of another version or not meant for it, and the
//! operations and queues that its cases use.

pub mod access;
pub mod capabilities;
pub mod refusals;
pub mod servers;
pub mod upgrades;

use std::sync::Arc;

use delayline_core::{
    At, Backend, Backlog, Check, Claim, ClaimId, Claimed, ConsumerName, Destination,
    DestinationKey, Error, ErrorKind, Extend, FinishedIds, GroupName, HandOff, Hold, Known, Lease,
    List, MessageId, Millis, NewMessage, NewResult, Op, Outcome, Position, Priority, Progress,
    QueueName, Rate, Redrive, Relay, Reply, Reschedule, Resolution, Save, Schedule, SetLimits,
    Settlement, Status, Timestamp, Update, UpdateContent, UpdateDue, UpdateToken,
};
use delayline_redis_protocol::layout::bytes_before_id;
use delayline_redis_protocol::{SCHEMA_VERSION, Script, ScriptBackend, all_scripts};
use delayline_test_server::{Reply as Raw, Server};

pub use self::capabilities::Capability;
use crate::Connect;

/// Positions of keys in [`Keys::all`](delayline_redis_protocol::Keys::all).
pub const CONTROL: usize = 0;
pub const INDEX: usize = 1;
pub const RECORDS: usize = 2;
pub const DETAILS: usize = 3;
pub const CONTENTS: usize = 4;
pub const UPDATES: usize = 5;
pub const FINISHED: [usize; 2] = [6, 7];
pub const JOURNAL: [usize; 2] = [8, 9];
pub const BELL: usize = 10;
pub const TOTALS: usize = 12;
pub const HISTORY: usize = 13;
pub const RESULTS: [usize; 2] = [14, 15];
pub const TURNS: usize = 17;

/// The score of a place in the index: a priority level, [`Position::LEASED`] or [`Position::DEAD`],
/// and an instant in ms.
pub fn score(band: u8, ms: u64) -> String {
    ((u64::from(band) << 48) + ms).to_string()
}

/// The member of the index that belongs to an id.
pub fn member(server: &Server, index: &[u8], name: &str) -> Vec<u8> {
    member_if_any(server, index, name).expect(name)
}

pub fn member_if_any(server: &Server, index: &[u8], name: &str) -> Option<Vec<u8>> {
    let Raw::Array(members) = server.binary_command(&[b"ZRANGE", index, b"0", b"-1"]) else {
        panic!("no members")
    };
    let mut members = members.into_iter().filter_map(|member| match member {
        Raw::BulkString(bytes) => Some(bytes),
        _ => None,
    });
    members.find(|bytes| bytes.get(bytes_before_id(bytes)..) == Some(name.as_bytes()))
}

/// A queue named `q` at an address.
pub async fn open<C: Connect>(url: &str) -> Result<ScriptBackend<C::Transport>, Error> {
    let transport = C::connect(&url.parse().unwrap()).await?;
    ScriptBackend::open(Arc::new(transport), QueueName::new("q").unwrap(), false).await
}

pub fn id(text: &str) -> MessageId {
    MessageId::try_from(text).unwrap()
}

pub fn message(text: &str) -> NewMessage {
    NewMessage::new(id(text), format!("payload of {text}"))
}

pub fn at(ms: u64) -> At {
    At::Fixed(Timestamp::from_ms(1_800_000_000_000 + ms).unwrap())
}

pub fn millis(ms: u64) -> Millis {
    Millis::new(ms).unwrap()
}

pub fn lease(token: u8) -> Lease {
    Lease { claim_id: ClaimId::from_bytes([token; 16]), epoch: 1 }
}

pub fn claim(token: u8, max: usize) -> Op {
    Op::Claim(Claim::new(
        ConsumerName::new("c").unwrap(),
        ClaimId::from_bytes([token; 16]),
        max,
        millis(10_000),
    ))
}

pub fn settle(text: &str, token: u8, outcome: Outcome) -> Op {
    Op::Settle(vec![Settlement::new(id(text), lease(token), outcome)])
}

/// A settlement, messages that follow and, of an ack, a result.
pub fn hand_off(text: &str, token: u8, outcome: Outcome, next: &[&str]) -> Op {
    let result = (outcome == Outcome::Ack).then(|| NewResult::new("42", millis(60_000)));
    let settlement = Settlement::new(id(text), lease(token), outcome);
    let messages = next.iter().map(|it| message(it)).collect();
    Op::HandOff(vec![HandOff::new(settlement, messages).with_result(result)])
}

/// Where [`relay_to_list`] and [`relay_to_stream`] put messages.
pub const LIST: &str = "a-list";
pub const STREAM: &str = "a-stream";

/// Limits that stop none of the few messages here.
pub fn set_limits() -> Op {
    let rate = Rate::per_second(1_000, 1_000);
    Op::SetLimits(SetLimits::new().leased(1_000).rate(rate))
}

/// A settlement that holds the queue for a moment.
pub fn hold(text: &str, token: u8) -> Op {
    let settlement = Settlement::new(id(text), lease(token), Outcome::Release);
    Op::Settle(vec![settlement.hold(Hold::Queue(Schedule::In(millis(1))))])
}

pub fn destination(key: &str) -> DestinationKey {
    DestinationKey::try_from(key).unwrap()
}

pub fn relay_to_list(max: usize, max_len: Option<u64>) -> Op {
    Op::Relay(Relay::new(Destination::List { key: destination(LIST), max_len }, max))
}

/// With the backlog of the group `g`.
pub fn relay_to_stream(max: usize, most: Option<u64>) -> Op {
    let group = GroupName::try_from("g").unwrap();
    let backlog = most.map(|max| Backlog::new(group, max));
    Op::Relay(Relay::new(Destination::Stream { key: destination(STREAM), backlog }, max))
}

pub async fn apply(queue: &impl Backend, ms: u64, op: Op) -> Reply {
    queue.apply(at(ms), &op).await.unwrap_or_else(|error| panic!("{}: {error}", op.name())).reply
}

pub async fn claimed(queue: &impl Backend, ms: u64, token: u8) -> Claimed {
    match apply(queue, ms, claim(token, 100)).await {
        Reply::Claim(claimed) => claimed,
        other => panic!("{other:?}"),
    }
}

pub async fn kind_of(queue: &impl Backend, ms: u64, op: &Op) -> Result<Reply, ErrorKind> {
    let applied = queue.apply(at(ms), op).await;
    applied.map(|applied| applied.reply).map_err(|error| error.kind().clone())
}

/// A queue with a message in every state: `scheduled`, `ready`, `leased` (claim 1), `expiring` (a
/// lease that runs out at 5,000), `dead`, `acked`.
pub async fn fill(queue: &impl Backend) {
    let mut dead = message("dead");
    dead.max_failures = 1;
    dead.expires = Some(Schedule::In(millis(86_400_000)));
    apply(queue, 0, Op::Enqueue(vec![dead, message("acked"), message("leased")])).await;
    apply(queue, 0, claim(1, 3)).await;
    let retry = Outcome::Retry { schedule: Schedule::In(millis(1)), error: "no".to_owned() };
    apply(queue, 1, settle("dead", 1, retry)).await;
    apply(queue, 1, settle("acked", 1, Outcome::Ack)).await;
    apply(queue, 2, Op::Enqueue(vec![message("expiring")])).await;
    let Op::Claim(mut short) = claim(2, 1) else { unreachable!() };
    short.lease = millis(4_998);
    apply(queue, 2, Op::Claim(short)).await;
    let mut scheduled = message("scheduled");
    scheduled.schedule = Schedule::In(millis(60_000));
    apply(queue, 3, Op::Enqueue(vec![scheduled, message("ready")])).await;
}

/// And what few queues have: large messages, updates, followers, results.
pub async fn fill_more(queue: &impl Backend) {
    fill(queue).await;
    apply(queue, 4, Op::Enqueue(vec![message("large").payload(vec![b'l'; 5_000])])).await;
    apply(queue, 4, Op::Enqueue(["leased", "expiring", "ready"].map(|it| update(it, 1)).to_vec()))
        .await;
    apply(queue, 4, Op::Enqueue(vec![throttled("throttled")])).await;
    apply(queue, 4, Op::Enqueue(vec![message("done").priority(Priority::Urgent)])).await;
    apply(queue, 4, claim(3, 1)).await;
    apply(queue, 4, hand_off("done", 3, Outcome::Ack, &[])).await;
}

/// A message that replaces the one of this id.
pub fn update(text: &str, token: u8) -> NewMessage {
    let token = UpdateToken::from_bytes([token; UpdateToken::BYTES]);
    let (content, due) = (UpdateContent::Replace, UpdateDue::Set);
    message(text)
        .payload(format!("update of {text}"))
        .known(Known::Update(Update::new(content, due, token)))
        .finished_ids(FinishedIds::Reuse)
}

/// A message whose id is throttled for a minute, and may be reused then.
pub fn throttled(text: &str) -> NewMessage {
    message(text).throttle(millis(60_000)).finished_ids(FinishedIds::Reuse)
}

/// One operation of every kind, each with an effect on a queue that was filled.
pub fn every_op() -> Vec<Op> {
    let list = |status| Op::List(List::new(status, 10));
    let schedule = Schedule::In(millis(50));
    let every = vec![
        Op::Enqueue(vec![message("new"), message("ready"), message("acked")]),
        Op::Enqueue(
            ["new", "ready", "leased", "dead", "acked"].map(|text| update(text, 1)).to_vec(),
        ),
        Op::Enqueue(["new", "ready", "acked"].map(throttled).to_vec()),
        claim(9, 10),
        relay_to_list(10, Some(1_000_000)),
        relay_to_stream(10, Some(1_000_000)),
        settle("leased", 1, Outcome::Ack),
        settle(
            "leased",
            1,
            Outcome::Retry { schedule: Schedule::In(millis(5)), error: "e".to_owned() },
        ),
        settle("leased", 1, Outcome::Reject { error: "e".to_owned() }),
        settle("leased", 1, Outcome::Release),
        hand_off("leased", 1, Outcome::Ack, &["new", "ready"]),
        hand_off("leased", 1, Outcome::Release, &["new", "acked"]),
        hand_off("leased", 1, Outcome::Ack, &[]),
        Op::Extend(
            Extend::new(vec![(id("leased"), lease(1))], millis(9_000))
                .saves(vec![(id("leased"), Save::new(1).progress(Progress::new(0.4, "saved")))]),
        ),
        Op::Cancel(vec![id("leased")]),
        Op::Cancel(vec![id("ready"), id("dead")]),
        Op::Reschedule(vec![Reschedule::new(id("scheduled"), schedule)]),
        Op::Redrive(Redrive::new(vec![id("dead")], schedule)),
        Op::Purge(vec![id("dead")]),
        Op::Pause,
        Op::Resume,
        set_limits(),
        hold("leased", 1),
        Op::Get(vec![id("ready"), id("leased"), id("acked")]),
        Op::Progress(vec![id("ready"), id("leased"), id("acked")]),
        list(Status::Scheduled),
        list(Status::Leased),
        list(Status::Dead),
        Op::Stats,
        Op::Forecast([1, 60_000].map(Millis::saturating).to_vec()),
        Op::History(Resolution::Minutes),
        Op::History(Resolution::Hours),
        Op::Check(Check::new(100)),
        Op::Repair(Check::new(100)),
    ];
    let called: Vec<_> = every.iter().filter_map(Script::of).map(|script| script.name).collect();
    let rings = Script::of_ring().name;
    for script in all_scripts().iter().filter(|script| script.name != rings) {
        assert!(called.contains(&script.name), "no operation here calls {}", script.name);
    }
    every
}

/// The serialized value of every key of the queue, to see whether anything was changed.
pub fn dump(server: &Server, keys: &[bytes::Bytes]) -> Vec<Raw> {
    keys.iter().map(|key| server.binary_command(&[b"DUMP", &key[..]])).collect()
}

/// Audits the queue. Returns the findings.
pub async fn findings(queue: &impl Backend, ms: u64) -> Vec<delayline_core::Finding> {
    match apply(queue, ms, Op::Check(Check::new(100))).await {
        Reply::Check(checked) => checked.findings,
        other => panic!("{other:?}"),
    }
}

/// Repairs page by page until a pass has no findings. Returns all findings.
pub async fn repaired(queue: &impl Backend, ms: u64, limit: usize) -> Vec<delayline_core::Finding> {
    let mut all = Vec::new();
    for _ in 0..5 {
        let (mut found, mut after) = (Vec::new(), None::<Position>);
        for pages in 0.. {
            assert!(pages < 500, "it goes on for ever: {all:?}");
            let reply = apply(queue, ms, Op::Repair(Check::new(limit).after(after))).await;
            let Reply::Repair(page) = reply else { panic!("{reply:?}") };
            found.extend(page.findings);
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        if found.is_empty() {
            assert_eq!(findings(queue, ms).await, [], "after {all:?}");
            return all;
        }
        all.extend(found);
    }
    panic!("five passes are not enough: {all:?}");
}

/// Tests of queues over a driver, one for each case: servers that are full, evict, lose data or
/// take rights away, with the server's error lines and unusual replies.
///
/// Takes a type that implements [`Connect`]. Write it once in a test program.
///
/// On a server that lacks what a case needs, the case checks less and says so on stderr.
#[macro_export]
macro_rules! queue_cases {
    ($connect:ty) => {
        $crate::each_queue_case!(@each tests $connect);
    };
    // Names and functions, for programs that run them in their own way.
    (list $connect:ty) => {
        $crate::each_queue_case!(@each list $connect)
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! each_queue_case {
    (@each $what:ident $connect:ty) => {
        $crate::each_queue_case! { @$what $connect;
            refusals: out_of_memory_refuses_only_what_takes_memory;
            refusals: a_key_of_another_type_is_refused_before_anything_is_done;
            refusals: no_script_writes_to_a_key_that_it_has_not_touched_before;
            refusals: a_queue_of_another_version_is_refused_unchanged;
            refusals: a_queue_with_a_feature_of_a_newer_version_is_refused_unchanged;
            refusals: a_damaged_control_record_is_refused_unchanged_with_its_remedy;
            servers: a_replica_is_refused;
            servers: a_demoted_primary_is_an_error_that_may_be_repeated;
            servers: an_evicting_server_is_refused_unless_allowed;
            servers: flushed_scripts_go_unnoticed;
            servers: a_busy_server_is_an_error_that_may_be_repeated;
            servers: missing_replicas_are_an_error_that_may_be_repeated;
            servers: a_failed_snapshot_is_an_error_that_may_be_repeated;
            servers: lost_data_does_not_stop_the_queue;
            servers: a_server_without_commands_for_checks_is_used;
            upgrades: a_conversion_keeps_all_that_a_queue_holds;
            upgrades: an_upgrade_of_a_queue_that_is_not_there_creates_none;
            upgrades: a_damaged_mark_of_an_upgrade_is_refused_with_its_remedy;
            upgrades: an_upgrade_that_is_refused_midway_goes_on_later;
            access: the_documented_permissions_are_enough;
            access: a_missing_permission_is_named_before_anything_is_done;
        }
    };
    (@list $connect:ty; $($module:ident: $case:ident;)+) => {
        [$((
            concat!(stringify!($module), "::", stringify!($case)),
            (|| $crate::run($crate::queue::$module::$case::<$connect>())) as fn(),
        )),+]
    };
    (@tests $connect:ty; $($module:ident: $case:ident;)+) => {$(
        #[test]
        fn $case() {
            $crate::run($crate::queue::$module::$case::<$connect>());
        }
    )+};
}
