//! Data of this layout, kept as the commands that write it: what a released version has stored must
//! stay readable, or be converted.
//!
//! The file of a schema version is written by a history that uses every structure; `cargo xtask
//! fix` writes it once. Every server loads it, `redis-cli < FILE` too. Each operation is compared
//! with the model, in which the same history has happened.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::{env, fs};

use delayline_core::{Group, Priority, State, UpdateToken as Token};
use delayline_driver_testkit::next_layout::{Versions, conversions};
use delayline_driver_testkit::queue::upgrades::upgraded;
use delayline_redis_protocol::{KEY_NAMES, SCHEMA_VERSION};

use super::recorded::{Command, Recorded};
use super::*;

const HOUR: u64 = 3_600_000;
const MINUTE: u64 = 60_000;
/// More than an hour before the end: in the older generation of finished messages.
const EARLIER: u64 = 2 * HOUR - MINUTE;
/// In the older generation of claims.
const JUST_BEFORE: u64 = 3 * HOUR - 12 * MINUTE;
/// When every operation is tried.
const NOW: u64 = 3 * HOUR + 10_000;

/// What happens to the queue, and when.
fn history() -> Vec<(u64, Op)> {
    let mut all = Vec::new();
    let mut then = |ms: u64, op: Op| all.push((ms, op));
    let later = |ms: u64| Schedule::In(millis(ms));
    let leasing = |token: u8, max: usize, ms: u64| match claim(token, max) {
        Op::Claim(mut claim) => {
            claim.lease = millis(ms);
            Op::Claim(claim)
        }
        _ => unreachable!(),
    };
    let retry = |ms: u64, error: &str| Outcome::Retry {
        schedule: Schedule::In(millis(ms)),
        error: error.to_owned(),
    };

    // Long ago: remembered in the older generation, by another consumer.
    then(0, Op::Enqueue(vec![message("old-acked"), message("old-purged").max_failures(1)]));
    let Op::Claim(mut old) = claim(20, 5) else { unreachable!() };
    old.consumer = delayline_core::ConsumerName::new("old consumer").unwrap();
    then(1, Op::Claim(old));
    then(2, settle("old-acked", 20, Outcome::Ack));
    then(3, settle("old-purged", 20, retry(1, "old")));
    then(4, Op::Purge(vec![id("old-purged")]));
    then(5, Op::Enqueue(vec![message("old-cancelled"), message("old-relayed")]));
    then(6, Op::Cancel(vec![id("old-cancelled")]));
    then(7, relay_to_list(5, None));

    // Failures of all kinds.
    let failing = ["acked", "dead", "rejected", "redriven", "undecodable", "crashed", "released"];
    let mut messages: Vec<_> = failing.iter().map(|name| message(name)).collect();
    messages[1].max_failures = 2;
    messages[4].max_failures = 1;
    messages[5].max_crashes = 1;
    messages.extend(["snoozed", "retrying"].map(message));
    messages.push(message("expired").expires(later(1)));
    then(EARLIER, Op::Enqueue(messages));
    then(EARLIER + 2, claim(21, 20));
    then(EARLIER + 3, settle("acked", 21, Outcome::Ack));
    then(EARLIER + 3, settle("dead", 21, retry(1, "the first error")));
    for name in ["rejected", "redriven"] {
        let error = format!("{name} for good");
        then(EARLIER + 4, settle(name, 21, Outcome::Reject { error }));
    }
    let error = "not JSON".to_owned();
    then(
        EARLIER + 5,
        settle("undecodable", 21, Outcome::Undecodable { schedule: later(1), error }),
    );
    then(EARLIER + 6, settle("released", 21, Outcome::Release));
    then(EARLIER + 7, settle("snoozed", 21, Outcome::Snooze { schedule: later(2 * HOUR) }));
    then(EARLIER + 8, settle("retrying", 21, retry(2 * HOUR, "once more")));
    then(EARLIER + 9, Op::Redrive(Redrive::new(vec![id("redriven")], later(2 * HOUR))));
    // `dead` and `released` are leased again; `crashed` dies, and later the lease of `released`
    // ends.
    then(JUST_BEFORE, claim(22, 5));
    let second = Lease { epoch: 2, ..lease(22) };
    let last = Settlement::new(id("dead"), second, retry(1, "the last error"));
    then(JUST_BEFORE + 1, Op::Settle(vec![last]));

    // Results, followers, and leases of all kinds.
    then(3 * HOUR, Op::Enqueue(vec![message("done").priority(Priority::Urgent)]));
    then(3 * HOUR + 1, claim(24, 1));
    then(3 * HOUR + 2, hand_off("done", 24, Outcome::Ack, &["next"]));
    let held = ["leased", "followed", "cancelling"].map(|name| message(name).max_failures(7));
    then(3 * HOUR + 3, Op::Enqueue(held.to_vec()));
    then(3 * HOUR + 4, leasing(1, 100, HOUR));
    then(3 * HOUR + 5, Op::Enqueue(vec![update("followed", 1)]));
    then(3 * HOUR + 6, Op::Cancel(vec![id("cancelling")]));
    then(3 * HOUR + 7, Op::Enqueue(vec![message("expiring")]));
    then(3 * HOUR + 8, leasing(2, 1, 1_000));
    let extend = Extend::new(vec![(id("leased"), lease(1))], millis(2 * HOUR));
    then(3 * HOUR + 9, Op::Extend(extend));

    // Waiting messages of all kinds.
    let levels = [Priority::Urgent, Priority::High, Priority::Normal, Priority::Low];
    let of_level = |level: Priority| {
        message(&format!("level-{}", level.level())).priority(level).schedule(later(HOUR))
    };
    then(3 * HOUR + 10, Op::Enqueue(levels.map(of_level).to_vec()));
    let mut headed = message("headed").expires(later(24 * HOUR)).max_crashes(3);
    headed
        .headers
        .set("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
        .unwrap();
    headed.headers.set("kind", "golden").unwrap();
    let large = message("large").payload(vec![b'l'; 5_000]).schedule(later(1));
    let scheduled = message("scheduled").schedule(later(HOUR));
    then(3 * HOUR + 11, Op::Enqueue(vec![message("ready"), headed, large, scheduled]));
    then(3 * HOUR + 12, Op::Enqueue(vec![message("updated"), throttled("throttled")]));
    let debounce = Update::new(UpdateContent::Keep, UpdateDue::Set, Token::from_bytes([3; 8]));
    let moved = message("updated").known(Known::Update(debounce)).schedule(later(MINUTE));
    then(3 * HOUR + 13, Op::Enqueue(vec![update("updated", 2)]));
    then(3 * HOUR + 13, Op::Enqueue(vec![moved]));
    let reschedule = Reschedule::new(id("scheduled"), later(2 * HOUR));
    then(3 * HOUR + 14, Op::Reschedule(vec![reschedule]));
    // Groups that take turns, and are handled in order.
    let grouped = |name: &str| message(name).group(name[..1].parse::<Group>().unwrap());
    let of_groups = ["a-first", "a-second", "b-first", "a-third"].map(grouped);
    then(3 * HOUR + 14, Op::Enqueue(of_groups.to_vec()));
    then(3 * HOUR + 14, Op::SetLimits(SetLimits::new().in_order(true)));
    then(3 * HOUR + 14, claim(25, 3));
    then(3 * HOUR + 14, set_limits());
    then(3 * HOUR + 15, Op::Pause);
    all
}

/// The model of the queue, with the same history.
fn model() -> State {
    let mut state = State::new();
    for (ms, op) in history() {
        state.apply(instant(ms), &op);
    }
    state
}

fn instant(ms: u64) -> Timestamp {
    match at(ms) {
        At::Fixed(instant) => instant,
        At::Server => unreachable!(),
    }
}

fn path() -> PathBuf {
    let name = format!("tests/golden/schema-{SCHEMA_VERSION}.txt");
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(name)
}

/// The commands that bring back what a queue holds, one a line, as `redis-cli` reads them.
fn written(server: &Recorded) -> String {
    let mut text = String::new();
    for (key, kind, items) in server.typed_holdings() {
        if !key.starts_with(b"delayline:") {
            continue;
        }
        let verb = match &*kind {
            "string" => "SET",
            "hash" => "HSET",
            "zset" => "ZADD",
            "list" => "RPUSH",
            other => panic!("{other}"),
        };
        for item in items {
            let words = [vec![key.clone()], item].concat();
            text.push_str(verb);
            for word in words {
                write!(text, " \"{}\"", word.escape_ascii()).unwrap();
            }
            text.push('\n');
        }
        let expires = matches!(server.server.command(&[b"PTTL", &key[..]]), Raw::Int(1..));
        if expires {
            // Its remaining time differs in each run.
            writeln!(text, "PEXPIRE \"{}\" \"{HOUR}\"", key.escape_ascii()).unwrap();
        }
    }
    text
}

/// The commands of such a text.
fn commands(text: &str) -> Vec<Command> {
    let line = |line: &str| {
        let mut words = line.split(" \"");
        let mut command = vec![words.next().unwrap().as_bytes().to_vec()];
        command.extend(words.map(|word| unescaped(word.strip_suffix('"').unwrap())));
        command
    };
    text.lines().map(line).collect()
}

/// What `escape_ascii` has written.
fn unescaped(text: &str) -> Vec<u8> {
    let (mut bytes, mut rest) = (Vec::new(), text.bytes());
    while let Some(byte) = rest.next() {
        let special = (byte == b'\\').then(|| rest.next().unwrap());
        bytes.push(match special {
            None => byte,
            Some(b'n') => b'\n',
            Some(b'r') => b'\r',
            Some(b't') => b'\t',
            Some(b'x') => {
                let digits = [rest.next().unwrap(), rest.next().unwrap()];
                u8::from_str_radix(std::str::from_utf8(&digits).unwrap(), 16).unwrap()
            }
            Some(other) => other,
        });
    }
    bytes
}

/// The layout has not changed since the file was written.
pub(crate) async fn the_golden_data_is_what_this_layout_writes<C: Connect>() {
    let server = Recorded::start("no");
    let queue = open::<C>(&server.server.url()).await.unwrap();
    for (ms, op) in history() {
        apply(&queue, ms, op).await;
    }
    let text = written(&server);
    for name in KEY_NAMES.iter().filter(|name| **name != "fence") {
        assert!(text.contains(&format!("}}:{name}\"")), "no {name} in the history");
    }
    if env::var_os("DELAYLINE_WRITE").is_some() && !path().exists() {
        fs::write(path(), &text).unwrap();
    }
    let kept = fs::read_to_string(path()).unwrap_or_default();
    let differs = || kept.lines().zip(text.lines()).find(|(kept, new)| kept != new);
    assert!(
        kept == text,
        "the layout differs from {}: {:?}. If a version with this schema was released, the layout needs \
         a new one: see RELEASING.md. If none was, remove the file, and `cargo xtask fix` writes it.",
        path().display(),
        differs(),
    );
}

/// Operations that read and change everything, on a queue that is paused or not.
fn trials() -> Vec<Vec<Op>> {
    let alone = every_op().into_iter().map(|op| vec![op]);
    let resumed = every_op().into_iter().map(|op| vec![Op::Resume, op]);
    let ids = |names: &[&str]| names.iter().map(|name| id(name)).collect::<Vec<_>>();
    let dead = ["dead", "rejected", "undecodable", "crashed", "expired"];
    let others =
        ["old-acked", "done", "next", "followed", "cancelling", "large", "headed", "updated"];
    let more = [
        Op::Get(ids(&dead)),
        Op::Get(ids(&others)),
        Op::Progress(ids(&["done"])),
        Op::Redrive(Redrive::new(ids(&dead), Schedule::NOW)),
        hand_off("followed", 1, Outcome::Ack, &["more"]),
        settle("cancelling", 1, Outcome::Release),
        Op::Enqueue(vec![message("old-acked"), message("done"), throttled("throttled")]),
        Op::Enqueue(["updated", "followed", "large"].map(|name| update(name, 7)).to_vec()),
    ];
    alone.chain(resumed).chain(more.into_iter().map(|op| vec![op])).collect()
}

async fn agrees(queue: &impl Backend, model: &State, ops: &[Op]) {
    let mut model = model.clone();
    for op in ops {
        let found =
            queue.apply(at(NOW), op).await.unwrap_or_else(|error| panic!("{op:?}: {error}"));
        assert_eq!(found, model.apply(instant(NOW), op), "{op:?}");
    }
    for op in [Op::Stats, claim(99, 100), Op::List(List::new(Status::Dead, 100))] {
        let found = queue.apply(at(NOW + 1), &op).await.unwrap();
        assert_eq!(found, model.apply(instant(NOW + 1), &op), "{op:?} after {ops:?}");
    }
    assert_eq!(findings(queue, NOW + 2).await, [], "after {ops:?}");
}

/// Every operation has the same effect on the data as in the model.
pub(crate) async fn every_operation_reads_the_golden_data<C: Connect>() {
    let server = Server::start();
    let queue = open::<C>(&server.url()).await.unwrap();
    let (commands, model) = (commands(&fs::read_to_string(path()).unwrap()), model());
    for ops in trials() {
        server.command(&["FLUSHALL"]);
        server.commands(&commands);
        agrees(&queue, &model, &ops).await;
    }
}

/// And so does the next version, once they are converted.
pub(crate) async fn every_operation_reads_the_converted_golden_data<C: Connect>() {
    let server = Server::start();
    let queue = Versions::open::<C>(&server.url(), "q").await.unwrap();
    let (commands, model) = (commands(&fs::read_to_string(path()).unwrap()), model());
    server.commands(&commands);
    let counted = queue.this.upgrade_status(&conversions()).await.unwrap();
    assert!(counted.total > 20, "{counted:?}");
    for ops in trials() {
        server.command(&["FLUSHALL"]);
        server.commands(&commands);
        upgraded(&queue.this).await;
        agrees(&queue.next, &model, &ops).await;
    }
}
