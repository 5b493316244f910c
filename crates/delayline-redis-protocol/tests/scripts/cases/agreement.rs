//! What one script takes for readable, all do (G20).
//!
//! Values of many kinds, some at their bounds, are changed one byte at a time and cut off at each
//! length. Nothing here knows where which field stands.

use std::collections::BTreeSet;

use delayline_core::{
    Cancelled, Death, DeathReason, Extended, Finding, Found, Message, MessageState, Priority,
    Purged, Redriven, Rescheduled, Settled,
};

use super::recorded::{Command, Recorded};
use super::*;

/// The messages that can be claimed at once, those that can be claimed after the leases have
/// expired, and the dead ones.
const DUE: [&str; 6] = ["plain", "all", "headed", "large", "grouped", "again"];
const HELD: [&str; 2] = ["held", "flagged"];
const BURIED: [&str; 3] = ["dead", "lost", "large dead"];

/// The last second there is, so that bounds can be met and passed by one.
fn late(ms: u64) -> At {
    At::Fixed(Timestamp::from_ms(Timestamp::MAX.as_ms() - 1_000 + ms).unwrap())
}

async fn ask(queue: &impl Backend, ms: u64, op: Op) -> Reply {
    let applied = queue.apply(late(ms), &op).await;
    applied.unwrap_or_else(|error| panic!("{}: {error}", op.name())).reply
}

fn content(name: &str) -> NewMessage {
    let mut new = message(name);
    new.schedule = Schedule::At(Timestamp::from_ms(Timestamp::MAX.as_ms() - 1_000).unwrap());
    if ["all", "headed", "large", "large dead"].contains(&name) {
        new.headers.set("k", "v").unwrap();
    }
    if name.starts_with("large") {
        new.payload = vec![b'l'; 4_100].into();
    }
    match name {
        "all" | "large dead" => {
            new.priority = Priority::Low;
            (new.max_failures, new.max_crashes) = (3, 4);
            new.expires = Some(Schedule::At(Timestamp::MAX));
        }
        "headed" => new.priority = Priority::Urgent,
        "again" => new.priority = Priority::Low,
        "grouped" | "held" => new.group = Some("g".parse().unwrap()),
        "dead" => new.max_failures = 1,
        _ => {}
    }
    new
}

async fn populate(server: &Server, queue: &ScriptBackend<impl Transport>) {
    let retry = |name| {
        settle(
            name,
            1,
            Outcome::Retry { schedule: Schedule::In(millis(2_000)), error: "e".to_owned() },
        )
    };
    let reject = |name| settle(name, 1, Outcome::Reject { error: "e".to_owned() });
    let enqueue = |names: &[&str]| Op::Enqueue(names.iter().map(|name| content(name)).collect());
    // Enqueued at the end of time.
    ask(queue, 1_000, enqueue(&["dead", "lost", "large dead", "again"])).await;
    ask(queue, 0, claim(1, 10)).await;
    ask(queue, 0, retry("dead")).await;
    ask(queue, 0, retry("again")).await;
    ask(queue, 0, reject("lost")).await;
    ask(queue, 0, reject("large dead")).await;
    let lost = Op::Redrive(Redrive::new(vec![id("lost")], Schedule::NOW));
    ask(queue, 0, lost).await;
    server.binary_command(&[b"HSET", &queue.keys().all()[DETAILS][..], b"lost", b"junk"]);
    ask(queue, 0, claim(2, 10)).await;
    ask(queue, 0, enqueue(&HELD)).await;
    let Op::Claim(mut short) = claim(3, 10) else { unreachable!() };
    short.lease = millis(500);
    ask(queue, 0, Op::Claim(short)).await;
    ask(queue, 0, Op::Cancel(vec![id("flagged")])).await;
    // What its details say of its due instant is the end of time.
    let now = Reschedule::new(id("again"), Schedule::NOW);
    ask(queue, 0, Op::Reschedule(vec![now])).await;
    ask(queue, 1_000, enqueue(&DUE[..5])).await;
}

/// Values that are one step away, in as many ways for each byte.
fn damaged(value: &[u8], ways: usize) -> Vec<Vec<u8>> {
    let mut all = BTreeSet::new();
    // Of a large content only the beginning has a meaning.
    for position in 0..value.len().min(80) {
        // One more of a number that ends here.
        let mut more = value.to_vec();
        for byte in more[..=position].iter_mut().rev() {
            *byte = byte.wrapping_add(1);
            if *byte != 0 {
                break;
            }
        }
        let byte = value[position];
        let others = [byte.wrapping_sub(1), byte ^ 0x10, byte ^ 0x20, byte ^ 0x40];
        let others = others.map(|other| {
            let mut changed = value.to_vec();
            changed[position] = other;
            changed
        });
        all.extend([more].into_iter().chain(others).take(ways));
    }
    let first = if ways > 1 { 0 } else { value.len().saturating_sub(14) };
    let ends = first..value.len().min(first + 80);
    all.extend(ends.chain([0, 1, 8, 20, 40]).filter_map(|end| Some(value.get(..end)?.to_vec())));
    all.insert([value, b"x"].concat());
    all.remove(value);
    all.into_iter().collect()
}

pub(crate) async fn all_scripts_agree_which_records_are_readable<C: Connect>() {
    let trial = Trial::<C>::start().await;
    for (name, ways) in [("all", 2), ("headed", 2), ("large", 5), ("held", 1), ("large dead", 1)] {
        trial.damage(RECORDS, name, ways).await;
    }
}

pub(crate) async fn all_scripts_agree_which_details_are_readable<C: Connect>() {
    let trial = Trial::<C>::start().await;
    for name in ["again", "dead"] {
        trial.damage(DETAILS, name, 2).await;
    }
    for name in ["held", "flagged", "lost"] {
        trial.damage(DETAILS, name, 1).await;
    }
}

pub(crate) async fn all_scripts_agree_which_contents_are_readable<C: Connect>() {
    let trial = Trial::<C>::start().await;
    for name in ["large", "large dead"] {
        trial.damage(CONTENTS, name, 1).await;
    }
}

struct Trial<C: Connect> {
    server: Recorded,
    queue: ScriptBackend<C::Transport>,
    /// The commands that bring the sound queue back.
    sound: Vec<Command>,
}

impl<C: Connect> Trial<C> {
    async fn start() -> Self {
        let server = Recorded { server: Server::start() };
        let queue = open::<C>(&server.server.url()).await.unwrap();
        populate(&server.server, &queue).await;
        let mut sound = vec![vec![b"FLUSHALL".to_vec()]];
        sound.extend(server.keys());
        let trial = Self { server, queue, sound };
        // The first and the last instants, the longest and the shortest values are in order.
        for name in [&DUE[..], &HELD, &BURIED].concat() {
            let sound = trial.judge(name, &trial.sound, None, true, name).await;
            assert!(sound, "{name}");
        }
        trial
    }

    async fn damage(&self, index: usize, name: &str, ways: usize) {
        let key = self.queue.keys().all()[index].clone();
        self.server.server.commands(&self.sound);
        let Raw::BulkString(value) =
            self.server.server.binary_command(&[b"HGET", &key[..], name.as_bytes()])
        else {
            panic!("there is no {name}")
        };
        let (mut sound, mut damage) = (0, 0);
        for changed in damaged(&value, ways) {
            let shown = changed[..changed.len().min(90)].escape_ascii();
            let what = format!("{name} is {shown} in {key:?}");
            let set = [&b"HSET"[..], &key, name.as_bytes(), &changed];
            let set = set.iter().map(|word| word.to_vec()).collect();
            let state = [&self.sound[..], &[set]].concat();
            match self.judge(name, &state, Some(index), sound % 5 == 0, &what).await {
                true => sound += 1,
                false => damage += 1,
            }
        }
        assert!(damage > 10, "{name}: {damage} damaged, {sound} sound");
    }

    async fn again(&self, state: &[Command], ms: u64, op: Op) -> Reply {
        self.server.server.commands(state);
        ask(&self.queue, ms, op).await
    }

    async fn get(&self, ms: u64, name: &str) -> Found {
        let Reply::Get(mut found) = ask(&self.queue, ms, Op::Get(vec![id(name)])).await else {
            panic!("not the reply to a look-up")
        };
        found.remove(0)
    }

    /// Runs every operation on a queue in that state, in which one message may be damaged. Returns
    /// whether the audit reports it as sound.
    async fn judge(
        &self,
        name: &str,
        state: &[Command],
        damaged: Option<usize>,
        wholly: bool,
        what: &str,
    ) -> bool {
        let check = || Check::new(100);
        let Reply::Check(audit) = self.again(state, 0, Op::Check(check())).await else { panic!() };
        let got = self.get(0, name).await;
        let live = match &got {
            Found::Live(message) => Some(&**message),
            _ => None,
        };
        // An audit does not read contents that stand apart.
        let is_read = damaged != Some(CONTENTS);
        let unseen = !is_read && audit.findings.is_empty() && live.is_none();
        let is_sound = audit.findings.is_empty() && !unseen;
        assert!(live.is_some() || got == Found::Unreadable && !is_sound, "{what}: {got:?}");
        if let (Some(live), true) = (live, is_sound) {
            if wholly {
                self.assert_served(name, state, live, what).await;
            }
        } else {
            // Nothing that cannot be read is in the way of the others.
            for status in [Status::Scheduled, Status::Ready, Status::Leased, Status::Dead] {
                let list = List::new(status, 100);
                let Reply::List(page) = ask(&self.queue, 0, Op::List(list)).await else { panic!() };
                let listed = page.messages.iter().find(|info| info.id == id(name));
                let is_small = !name.starts_with("large");
                if let Some(listed) = listed
                    && damaged == Some(RECORDS)
                    && is_small
                    && live.is_none()
                {
                    assert_eq!(listed.payload_bytes, 0, "{what}");
                }
            }
            let all = Op::Reschedule(vec![Reschedule::new(id(name), Schedule::NOW)]);
            ask(&self.queue, 0, all).await;
            let redrive = Redrive::new(vec![id(name)], Schedule::NOW);
            let redriven = self.again(state, 0, Op::Redrive(redrive)).await;
            if live.is_none() && is_read {
                let revived = matches!(&redriven, Reply::Redrive(items) if matches!(items[..], [Redriven::Done { .. }]));
                assert!(!revived, "{what}: {redriven:?}");
            }
        }
        self.assert_claimed(name, state, live, is_sound, what).await;
        if !unseen {
            self.assert_mended(name, state, &audit.findings, what).await;
        }
        is_sound
    }

    /// A sound message can be listed, moved, kept and ended.
    async fn assert_served(&self, name: &str, state: &[Command], live: &Message, what: &str) {
        let status = live.info.state.status();
        let list = List::new(status, 100);
        let Reply::List(page) = self.again(state, 0, Op::List(list)).await else { panic!() };
        let listed = page.messages.iter().find(|info| info.id == id(name));
        assert_eq!(listed, Some(&live.info), "{what}");
        let moved = Reschedule::new(id(name), Schedule::NOW);
        let moved = self.again(state, 0, Op::Reschedule(vec![moved])).await;
        let cancelled = self.again(state, 0, Op::Cancel(vec![id(name)])).await;
        let purged = self.again(state, 0, Op::Purge(vec![id(name)])).await;
        let expected = match status {
            Status::Leased => (Rescheduled::InFlight, Cancelled::InFlight, Purged::NotDead),
            Status::Dead => (Rescheduled::Dead, Cancelled::Cancelled, Purged::Purged),
            _ => {
                let At::Fixed(due) = late(0) else { unreachable!() };
                (Rescheduled::Done { due }, Cancelled::Cancelled, Purged::NotDead)
            }
        };
        let replies = (
            Reply::Reschedule(vec![expected.0]),
            Reply::Cancel(vec![expected.1]),
            Reply::Purge(vec![expected.2]),
        );
        assert_eq!((moved, cancelled, purged), replies, "{what}");

        // They take the lease for the same one.
        let leases = vec![(id(name), lease(3))];
        let extend = Op::Extend(Extend::new(leases, millis(300)));
        let Reply::Extend(extended) = self.again(state, 0, extend).await else { panic!() };
        let Reply::Settle(settled) = self.again(state, 0, settle(name, 3, Outcome::Ack)).await
        else {
            panic!()
        };
        let Reply::Claim(repeated) = self.again(state, 0, claim(3, 10)).await else { panic!() };
        let holds = repeated
            .deliveries
            .iter()
            .any(|delivery| delivery.message.info.id == id(name) && delivery.lease == lease(3));
        let results = (
            matches!(extended[..], [Extended::Done { .. }]),
            matches!(settled[..], [Settled::Done { .. }]),
        );
        assert_eq!(results, (holds, holds), "{what}");
    }

    /// A claim delivers the message or buries it, and its reply is right in both cases.
    async fn assert_claimed(
        &self,
        name: &str,
        state: &[Command],
        live: Option<&Message>,
        is_sound: bool,
        what: &str,
    ) {
        self.server.server.commands(state);
        // A content that claims to be very long needs a separate claim.
        let (mut messages, mut deaths) = (Vec::new(), Vec::new());
        for token in 9..12 {
            let Reply::Claim(claimed) = ask(&self.queue, 600, claim(token, 100)).await else {
                panic!()
            };
            messages.extend(claimed.deliveries.into_iter().map(|delivery| delivery.message));
            deaths.extend(claimed.deaths);
            if !claimed.more {
                break;
            }
        }
        let delivered: Vec<_> = messages.iter().collect();
        for other in DUE.into_iter().chain(["held"]).filter(|other| *other != name) {
            let other = delivered.iter().find(|message| message.info.id == id(other));
            assert!(other.is_some(), "{what}: {other:?} is not delivered");
        }
        let delivered = delivered.into_iter().find(|message| message.info.id == id(name));
        let death = deaths.iter().find(|death| death.id == id(name));
        let after = self.get(600, name).await;
        match (live, delivered, death) {
            (Some(live), Some(delivered), None) => {
                assert!(!BURIED.contains(&name) || !is_sound, "{what}: the dead are delivered");
                let same = |message: &Message| {
                    (message.headers.clone(), message.payload.clone(), message.info.expires_at)
                };
                assert_eq!(same(live), same(delivered), "{what}");
            }
            (live, None, Some(Death { reason, .. })) => {
                let expected = match live {
                    None => vec![DeathReason::Unreadable],
                    Some(_) if is_sound => vec![DeathReason::Expired, DeathReason::MaxCrashes],
                    // The damage may also look like a message that has expired.
                    Some(_) => vec![
                        DeathReason::Unreadable,
                        DeathReason::MaxFailures,
                        DeathReason::Expired,
                    ],
                };
                assert!(expected.contains(reason), "{what}: {reason:?}");
                let Found::Live(dead) = after else { panic!("{what}: {after:?}") };
                assert!(matches!(dead.info.state, MessageState::Dead { .. }), "{what}: {dead:?}");
            }
            (live, None, None) => {
                let goes = after == Found::Finished(Status::Cancelled);
                let stays = BURIED.contains(&name) || !is_sound && live.is_some();
                assert!(goes || stays, "{what}: {after:?}");
            }
            other => panic!("{what}: {other:?}"),
        }
    }

    /// A repair finds what the audit does, and afterwards the message is in order.
    async fn assert_mended(&self, name: &str, state: &[Command], found: &[Finding], what: &str) {
        self.server.server.commands(state);
        let check = Check::new(100);
        let before = self.queue.apply(late(0), &Op::Stats).await.unwrap().revision;
        let applied = self.queue.apply(late(0), &Op::Repair(check.clone())).await.unwrap();
        let Reply::Repair(repaired) = applied.reply else { panic!() };
        assert_eq!(repaired.findings, found, "{what}");
        assert_eq!(applied.revision, before + u64::from(!found.is_empty()), "{what}");
        let Reply::Check(audit) = ask(&self.queue, 0, Op::Check(check)).await else { panic!() };
        assert_eq!(audit.findings, [], "{what}");
        let mended = self.get(0, name).await;
        let Found::Live(mended) = mended else { panic!("{what}: {mended:?}") };
        let redrive = Redrive::new(vec![id(name)], Schedule::NOW);
        let Reply::Redrive(redriven) = ask(&self.queue, 0, Op::Redrive(redrive)).await else {
            panic!()
        };
        let Reply::Claim(claimed) = ask(&self.queue, 0, claim(9, 100)).await else { panic!() };
        let delivered =
            claimed.deliveries.iter().any(|delivery| delivery.message.info.id == id(name));
        match (&mended.info.state, &redriven[0]) {
            (MessageState::Dead { .. }, Redriven::Done { .. })
            | (MessageState::Ready, Redriven::NotDead) => {
                let At::Fixed(now) = late(0) else { unreachable!() };
                let is_over = mended.info.expires_at.is_some_and(|instant| instant <= now);
                assert!(delivered != (is_over && redriven[0] == Redriven::NotDead), "{what}");
            }
            (MessageState::Dead { reason, .. }, Redriven::Unreadable) => {
                assert!(*reason == DeathReason::Unreadable && !delivered, "{what}");
            }
            (MessageState::Leased { .. }, Redriven::NotDead) => assert!(!delivered, "{what}"),
            other => panic!("{what}: {other:?}"),
        }
    }
}
