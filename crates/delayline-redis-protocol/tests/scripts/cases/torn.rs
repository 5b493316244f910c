//! Operations of which only the beginning has happened (G20).
//!
//! A script's writes stand in the append-only file as one transaction. A machine that dies while
//! the server appends it leaves a part of it there. Some servers do not remove that part: they
//! execute it, together with what was written next, at the start after the next
//! (<https://github.com/valkey-io/valkey/pull/4342>). So what a torn operation leaves is the first
//! few of its commands, and then the whole of a later operation that knew nothing of them.
//!
//! [`every_operation_can_be_torn_anywhere`] plays each operation up to each of its commands,
//! without restarts. [`a_torn_file_leaves_the_first_commands_of_an_operation`] shows with real
//! files that this is what servers do. Neither knows keys or layouts.

mod before;
mod tears;
mod updates;

use std::collections::{BTreeMap, BTreeSet};

use delayline_core::limits::FINISHED_RETENTION_MS;
use delayline_core::{
    Cancelled, DeathReason, Enqueued, Found, HandedOff, Message, MessageState, Priority, Purged,
    Redriven, Settled,
};

use self::before::Before;
use self::tears::tears;
pub(crate) use self::updates::{
    a_torn_end_of_a_lease_brings_its_follower_once, a_torn_first_update_is_not_lost,
};
use super::recorded::{Recorded, Shown, words};
use super::*;

/// One operation to be torn.
struct Tear {
    what: &'static str,
    /// What happens to the populated queue before.
    before: Vec<Op>,
    at: u64,
    op: Op,
    /// The messages that it is about; all others must be as they were.
    touches: Vec<&'static str>,
    /// The messages that may be gone afterwards.
    finishes: Vec<&'static str>,
    creates: Vec<&'static str>,
}

/// What every server has done before the operation that is torn.
const POPULATED: u64 = 5;
/// All leases of the populated queue have run out, and `stale` has expired.
const LATER: u64 = 16_000;
/// How messages finish.
const ENDS: [Status; 4] = [Status::Acked, Status::Cancelled, Status::Purged, Status::Relayed];
/// All messages have ended.
const END: u64 = 900_000;

const WAITING: [&str; 7] = ["ready", "second", "big", "again", "stale", "soon", "urgent"];
const LEASED: [&str; 5] = ["leased", "last", "weary", "heavy", "flagged"];
const DEAD: [&str; 3] = ["dead", "expired", "large"];

fn content(name: &str) -> NewMessage {
    let mut message = message(name);
    if ["big", "heavy", "large", "new-big"].contains(&name) {
        message.payload = format!("{name} ").repeat(1_000).into();
        message.headers.set("size", "large").unwrap();
    }
    match name {
        "last" => message.max_crashes = 1,
        "weary" => message.max_failures = 1,
        "urgent" => message.priority = Priority::Urgent,
        "stale" => message.expires = Some(Schedule::In(millis(1_000))),
        "expired" => message.expires = Some(Schedule::In(millis(1))),
        "new-low" => message.priority = Priority::Low,
        "new-expiring" => message.expires = Some(Schedule::In(millis(500_000))),
        "acked" => message.finished_ids = FinishedIds::Reuse,
        _ => {}
    }
    let group = match name {
        "ready" | "second" | "leased" | "dead" | "expired" | "soon" | "new" | "acked" => "g",
        "big" | "last" | "large" | "new-big" | "new-expiring" => "h",
        _ => return message,
    };
    message.group = Some(group.parse().unwrap());
    message
}

/// When the queue has finished a message before. Only the first three differ from each other and
/// from the last in what the operation that is torn does with the memory of finished messages.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Past {
    Never,
    /// Long enough ago that all is forgotten.
    TwoHoursAgo,
    /// The messages that finished first are forgotten, and the others are not.
    AnHourAgo,
    Lately,
}

impl Past {
    const ALL: [Self; 4] = [Self::Never, Self::TwoHoursAgo, Self::AnHourAgo, Self::Lately];

    fn at(self) -> Option<At> {
        let At::Fixed(now) = at(0) else { unreachable!() };
        let before = |retentions: u64| {
            let ms = now.as_ms() - retentions * FINISHED_RETENTION_MS;
            At::Fixed(Timestamp::from_ms(ms).unwrap())
        };
        match self {
            Self::Never => None,
            Self::TwoHoursAgo => Some(before(2)),
            Self::AnHourAgo => Some(before(1)),
            Self::Lately => Some(before(0)),
        }
    }
}

/// A queue with messages in every state and of every kind.
async fn populate(queue: &impl Backend, past: Past) {
    if let Some(then) = past.at() {
        let acked = Op::Enqueue(vec![content("acked")]);
        for op in [acked, claim(7, 1), settle("acked", 7, Outcome::Ack)] {
            queue.apply(then, &op).await.unwrap();
        }
    }
    let enqueue = |names: &[&str]| Op::Enqueue(names.iter().map(|name| content(name)).collect());
    let reject =
        |name: &str, token| settle(name, token, Outcome::Reject { error: "rejected".to_owned() });
    apply(queue, 0, enqueue(&["dead", "large"])).await;
    apply(queue, 0, claim(1, 10)).await;
    apply(queue, 0, reject("dead", 1)).await;
    apply(queue, 0, reject("large", 1)).await;
    apply(queue, 0, enqueue(&["expired", "again"])).await;
    apply(queue, 1, claim(2, 10)).await;
    apply(queue, 1, settle("again", 2, Outcome::Snooze { schedule: Schedule::In(millis(3)) }))
        .await;
    apply(queue, 2, enqueue(&LEASED)).await;
    apply(queue, 2, claim(3, 10)).await;
    apply(queue, 2, Op::Cancel(vec![id("flagged")])).await;
    let mut soon = content("soon");
    soon.schedule = Schedule::In(millis(60_000));
    let mut urgent = content("urgent");
    urgent.schedule = Schedule::In(millis(50_000));
    apply(queue, 3, Op::Enqueue(vec![soon, urgent])).await;
    apply(queue, 3, enqueue(&["ready", "second", "big", "stale"])).await;
}

fn ids(names: &[&str]) -> Vec<MessageId> {
    names.iter().map(|name| id(name)).collect()
}

/// Whichever operation is torn, wherever, and whatever comes next: what was there is there after a
/// repair, whole, and in the end it is delivered, whether or not workers came before the repair.
pub(crate) async fn every_operation_can_be_torn_anywhere<C: Connect>() {
    let server = Recorded::start("no");
    let queue = open::<C>(&server.server.url()).await.unwrap();
    let (mut torn, mut torn_repairs) = (0, 0);
    let pasts = |tear: &Tear| match tear.finishes[..] {
        [] => vec![Past::Lately],
        _ => vec![Past::Lately, Past::Never],
    };
    for (tear, past) in
        tears().iter().flat_map(|tear| pasts(tear).into_iter().map(move |it| (tear, it)))
    {
        server.server.command(&["FLUSHALL"]);
        populate(&queue, past).await;
        for op in &tear.before {
            apply(&queue, POPULATED, op.clone()).await;
        }
        let sound = server.keys();
        let known = Before::of(&queue, tear).await;
        let commands = server.record(&queue, tear.at, &tear.op).await;
        for (next, next_op) in [
            ("an enqueue", Op::Enqueue(vec![message("after")])),
            ("a claim", claim(8, 3)),
            ("the same again", tear.op.clone()),
        ] {
            server.restore(&sound);
            let follow = server.record(&queue, tear.at + 1, &next_op).await;
            if follow.len() < 2 {
                continue; // no transaction, and only the end of one executes what was left open
            }
            for kept in 1..commands.len() {
                for work in [false, true] {
                    let what = format!(
                        "{} torn before command {kept} of {}, finished {past:?}, then {next}{}: {:?}",
                        tear.what,
                        commands.len(),
                        if work { ", then workers" } else { "" },
                        Shown(&commands[..kept]),
                    );
                    server.restore(&sound);
                    server.server.commands(&commands[..kept]);
                    server.server.commands(&follow);
                    if work {
                        known.work(&queue, &what).await;
                    }
                    let broken = server.keys();
                    let gone = known.finished(&queue, LATER + 9).await;
                    let repair = Op::Repair(Check::new(100));
                    let mending = server.record(&queue, LATER + 10, &repair).await;
                    torn += 1;
                    known.judge(&queue, work, next, &gone, &what).await;
                    // The repair itself is torn, by a repair that nothing follows but another one.
                    for mended in 1..mending.len() {
                        let what =
                            format!("{what}; then a repair up to {:?}", Shown(&mending[..mended]));
                        server.restore(&broken);
                        server.server.commands(&mending[..mended]);
                        torn_repairs += 1;
                        known.judge(&queue, work, next, &gone, &what).await;
                    }
                }
            }
        }
    }
    assert!(torn > 500 && torn_repairs > 100, "{torn} operations and {torn_repairs} repairs torn");
}

/// A torn end has happened or has not, also before a repair: it can be looked up and repeated, and
/// sending such a message again returns a correct reply. An old lease does not affect the new
/// message.
pub(crate) async fn after_a_torn_end_messages_can_be_sent_again<C: Connect>() {
    let server = Recorded::start("no");
    let queue = open::<C>(&server.server.url()).await.unwrap();
    let mut created = 0;
    let tears: Vec<_> = tears().into_iter().filter(|tear| !tear.finishes.is_empty()).collect();
    for (tear, past) in tears.iter().flat_map(|tear| Past::ALL.map(|past| (tear, past))) {
        server.server.command(&["FLUSHALL"]);
        populate(&queue, past).await;
        for op in &tear.before {
            apply(&queue, POPULATED, op.clone()).await;
        }
        let sound = server.keys();
        let known = Before::of(&queue, tear).await;
        let commands = server.record(&queue, tear.at, &tear.op).await;
        for kept in 1..commands.len() {
            for again in [Again::Refused, Again::Reused, Again::Extended, Again::Updated] {
                let what = format!(
                    "{} torn before command {kept}, finished {past:?}, sent {again:?}: {:?}",
                    tear.what,
                    Shown(&commands[..kept])
                );
                server.restore(&sound);
                server.server.commands(&commands[..kept]);
                created += known.send_again(&queue, again, &what).await;
            }
            server.restore(&sound);
            server.server.commands(&commands[..kept]);
            let what =
                format!("{} torn before command {kept}, finished {past:?}, repeated", tear.what);
            known.repeat(&queue, &what).await;
        }
    }
    assert!(created > 50, "{created} messages were sent again");
}

/// A producer that gets no reply sends its messages again. However much of the first attempt was
/// written, they are complete afterwards, and are delivered without a repair.
pub(crate) async fn a_torn_send_can_be_repeated<C: Connect>() {
    let server = Recorded::start("no");
    let queue = open::<C>(&server.server.url()).await.unwrap();
    let mut torn = 0;
    for tear in tears().into_iter().filter(|tear| !tear.creates.is_empty()) {
        server.server.command(&["FLUSHALL"]);
        populate(&queue, Past::Lately).await;
        for op in &tear.before {
            apply(&queue, POPULATED, op.clone()).await;
        }
        let sound = server.keys();
        let known = Before::of(&queue, &tear).await;
        let known_names = known.before.keys().copied().collect();
        let commands = server.record(&queue, tear.at, &tear.op).await;
        for kept in 1..commands.len() {
            let what = format!("{} torn before command {kept}, sent again", tear.what);
            server.restore(&sound);
            server.server.commands(&commands[..kept]);
            apply(&queue, tear.at + 1, tear.op.clone()).await;
            for (name, found) in
                tear.creates.iter().zip(look_up(&queue, tear.at + 1, &tear.creates).await)
            {
                let Found::Live(found) = found else { panic!("{name} is {found:?}: {what}") };
                assert_content(&found, &what);
            }
            known.revive(&queue, tear.at + 2, &known_names, &what).await;
            let delivered = drain(&queue, &what).await;
            for name in &tear.creates {
                assert!(delivered.contains(*name), "{name} is not delivered: {what}");
            }
            torn += 1;
        }
    }
    assert!(torn > 10, "{torn} sends torn");
}

/// How messages are sent again.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Again {
    Refused,
    /// Under ids that may be reused.
    Reused,
    /// And the leases are extended.
    Extended,
    Updated,
}

/// Handles all messages until none is left, and returns the deliveries.
async fn drain(queue: &impl Backend, what: &str) -> BTreeSet<String> {
    let mut delivered = BTreeSet::new();
    // Something waits for later all the time, so that nothing is looked for because all else is
    // gone.
    let mut far = message("far");
    far.schedule = Schedule::In(millis(10 * END));
    apply(queue, 100_000, Op::Enqueue(vec![far])).await;
    let At::Fixed(end) = at(END) else { unreachable!() };
    for (ms, token) in (0..).map(|n| 100_000 + 100_000 * n).zip(50..56) {
        let claimed = claimed(queue, ms, token).await;
        let mut acks = Vec::new();
        for delivery in claimed.deliveries {
            assert_content(&delivery.message, what);
            let id = delivery.message.info.id.clone();
            delivered.insert(id.to_string());
            acks.push(Settlement::new(id, delivery.lease, Outcome::Ack));
        }
        let is_last = acks.is_empty() && claimed.next > Some(end);
        if !acks.is_empty() {
            apply(queue, ms, Op::Settle(acks)).await;
        }
        // Some have expired meanwhile, and some bear no crash.
        let list = List::new(Status::Dead, 100);
        let Reply::List(page) = apply(queue, ms, Op::List(list)).await else { panic!() };
        if is_last && page.messages.is_empty() {
            break;
        }
        for info in page.messages {
            let ids = vec![info.id.clone()];
            match info.state {
                MessageState::Dead { reason: DeathReason::Expired, .. } => {
                    delivered.insert(info.id.to_string());
                    apply(queue, ms, Op::Purge(ids)).await;
                }
                MessageState::Dead { reason: DeathReason::MaxCrashes, .. } => {
                    let redrive = Redrive::new(ids, Schedule::NOW);
                    apply(queue, ms, Op::Redrive(redrive)).await;
                }
                other => panic!("{} ends as {other:?}: {what}", info.id),
            }
        }
    }
    apply(queue, END, Op::Cancel(vec![id("far")])).await;
    delivered
}

/// Every delivered or looked-up message was sent, byte for byte (G2).
fn assert_content(message: &Message, what: &str) {
    let sent = content(&message.info.id.to_string());
    let same = (&message.headers, &message.payload) == (&sent.headers, &sent.payload);
    assert!(same, "{} has another content: {what}", message.info.id);
}

async fn look_up(queue: &impl Backend, ms: u64, names: &[&str]) -> Vec<Found> {
    let Reply::Get(found) = apply(queue, ms, Op::Get(ids(names))).await else {
        panic!("not the reply to a get")
    };
    found
}

/// With real files and restarts: the remaining data is the same as in the test above.
pub(crate) async fn a_torn_file_leaves_the_first_commands_of_an_operation<C: Connect>() {
    let server = Recorded::start("always");
    let chosen = [
        "enqueue of all kinds",
        "claim that takes back and buries",
        "settlements of all kinds",
        "redrive",
        "update of waiting ones",
        "ack of followed ones",
    ];
    for tear in tears().into_iter().filter(|tear| chosen.contains(&tear.what)) {
        server.server.command(&["FLUSHALL"]);
        let queue = open::<C>(&server.server.url()).await.unwrap();
        populate(&queue, Past::Lately).await;
        let (sound, before) = (server.keys(), server.holdings());
        let file = server.append_only_file();
        let start = std::fs::read(&file).unwrap().len();
        let commands = server.record(&queue, tear.at, &tear.op).await;
        let text = std::fs::read(&file).unwrap();
        // The last byte of each command but the first, which is MULTI, and the last, which is EXEC.
        let mut cuts = Vec::new();
        let mut position = start;
        while words(&text, &mut position).is_some() {
            cuts.push(position - 1);
        }
        assert_eq!(cuts.len(), commands.len() + 2, "{}", tear.what);
        for (kept, cut) in cuts[1..].iter().take(commands.len()).enumerate() {
            let what = format!("{} cut to {kept} of {} commands", tear.what, commands.len());
            server.server.kill();
            std::fs::write(&file, &text[..*cut]).unwrap();
            server.server.restart();
            let queue = open::<C>(&server.server.url()).await.unwrap();
            assert!(server.holdings() == before, "{what}: the half is dropped at first");
            let next = Op::Enqueue(vec![message("after")]);
            let follow = server.record(&queue, tear.at + 1, &next).await;
            server.server.kill();
            server.server.restart();
            let left = server.holdings();
            let mut played = Vec::new();
            // Servers that mend the file leave nothing of the operation.
            for kept in [kept, 0] {
                server.restore(&sound);
                server.server.commands(&commands[..kept]);
                server.server.commands(&follow);
                played.push(server.holdings());
            }
            assert!(played.contains(&left), "{what}: {left:?} instead of {played:?}");
        }
    }
}
