//! The generator must reach every kind of answer, in a modest run.

use std::collections::{BTreeMap, BTreeSet};

use delayline_core::{Extended, Found, Op, Reply, Settled, State};
use delayline_testkit::{Trace, workload};
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;

const SEQUENCES: usize = 1_000;

/// How often each kind of answer must come.
const LEAST: usize = 1;

fn traces() -> Vec<Trace> {
    let mut runner = TestRunner::deterministic();
    let trees = (0..SEQUENCES).filter_map(|_| workload::moves().new_tree(&mut runner).ok());
    trees.map(|tree| workload::trace(&tree.current())).collect()
}

#[test]
fn every_kind_of_answer_is_common() {
    let mut seen = BTreeMap::<String, usize>::new();
    let mut called = BTreeSet::new();
    for trace in traces() {
        let mut model = State::new();
        for step in trace.steps {
            called.insert(step.op.name());
            if step.op.validate().is_err() {
                *seen.entry("invalid".to_owned()).or_default() += 1;
                continue;
            }
            let reply = model.apply(step.at, &step.op).reply;
            for kind in kinds(&reply) {
                *seen.entry(kind).or_default() += 1;
            }
        }
    }
    let rare: Vec<_> = EXPECTED.iter().filter(|kind| seen.get(**kind) < Some(&LEAST)).collect();
    assert!(rare.is_empty(), "seen less than {LEAST} times in {SEQUENCES} sequences: {rare:?}");

    let regression: Trace = include_str!("../regressions/every_operation.trace").parse().unwrap();
    for name in Op::NAMES {
        assert!(called.contains(name), "no sequence has {name}");
        let has = |name: &str| regression.steps.iter().any(|step| step.op.name() == name);
        assert!(has(name), "every_operation.trace has no {name}");
    }
}

#[test]
fn what_is_printed_is_read_back() {
    for trace in traces() {
        let text = trace.to_string();
        assert_eq!(text.parse::<Trace>().as_ref(), Ok(&trace), "{text}");
        for (step, line) in trace.steps.iter().zip(text.lines()) {
            // {"at":5,"op":{"NAME":...}} or {"at":5,"op":"NAME"}
            assert_eq!(line.split('"').nth(5), Some(step.op.name()), "{line}");
        }
    }
}

#[test]
fn any_bytes_are_a_run() {
    for bytes in [&b""[..], b"\0", &[255; 4096], &[7; 100_000]] {
        let trace = workload::trace_from_bytes(bytes);
        assert!(trace.steps.len() <= workload::MAX_MOVES);
    }
}

/// Names of what an answer holds, without times and contents.
fn kinds(reply: &Reply) -> Vec<String> {
    match reply {
        Reply::Enqueue(items) => items.iter().map(|item| head("enqueue", item)).collect(),
        Reply::Claim(claimed) => vec![
            format!("claim of {}", claimed.deliveries.len().min(2)),
            format!("claim, more: {}", claimed.more),
            format!("claim, next: {}", claimed.next.is_some()),
        ],
        Reply::Relay(relayed) => vec![
            format!("relay of {}", relayed.ids.len().min(2)),
            format!("relay, more: {}", relayed.more),
            format!("relay, held back: {}", relayed.held_back),
        ],
        Reply::Settle(items) => items.iter().map(|item| settled("settle", item)).collect(),
        Reply::HandOff(items) => {
            let sent = items.iter().flat_map(|item| &item.messages);
            let sent = sent.map(|message| head("hand_off", message));
            let kept = items.iter().filter(|item| item.result_kept);
            let sent = sent.chain(kept.map(|_| "hand_off, result kept".to_owned()));
            items.iter().map(|item| settled("hand_off", &item.settled)).chain(sent).collect()
        }
        Reply::Extend(items) => items
            .iter()
            .map(|item| match item {
                Extended::Done { cancel_requested, .. } => {
                    format!("extend Done, cancel requested: {cancel_requested}")
                }
                other => head("extend", other),
            })
            .collect(),
        Reply::Cancel(items) => items.iter().map(|item| head("cancel", item)).collect(),
        Reply::Reschedule(items) => items.iter().map(|item| head("reschedule", item)).collect(),
        Reply::Redrive(items) => items.iter().map(|item| head("redrive", item)).collect(),
        Reply::Purge(items) => items.iter().map(|item| head("purge", item)).collect(),
        Reply::Pause { changed } => vec![format!("pause {changed}")],
        Reply::Resume { changed } => vec![format!("resume {changed}")],
        Reply::SetLimits { changed } => vec![format!("set_limits {changed}")],
        Reply::Get(items) => items
            .iter()
            .map(|found| match found {
                Found::Live(message) => head("get", &message.info.state),
                other => format!("get {other:?}"),
            })
            .collect(),
        Reply::Progress(items) => items
            .iter()
            .map(|progress| match progress.result() {
                Some(_) => "progress, result".to_owned(),
                None => format!("progress {progress:?}"),
            })
            .collect(),
        Reply::List(page) => {
            let states = page.messages.iter();
            let mut kinds: Vec<_> = states.map(|info| head("list", &info.state.status())).collect();
            kinds.push(format!("list, next: {}", page.next.is_some()));
            kinds
        }
        Reply::History(history) => vec![format!("history of {}", history.points.len().min(3))],
        Reply::Check(checked) => vec![format!("check, next: {}", checked.next.is_some())],
        // These have one kind each.
        _ => Vec::new(),
    }
}

fn settled(op: &str, item: &Settled) -> String {
    match item {
        Settled::Done { status } => format!("{op} Done {status:?}"),
        Settled::AlreadyDone { ended } => format!("{op} AlreadyDone {ended:?}"),
        other => head(op, other),
    }
}

fn head(op: &str, item: &impl std::fmt::Debug) -> String {
    let text = format!("{item:?}");
    let text = match text.split_once("reason: ") {
        Some((name, reason)) if name.starts_with("Dead") => format!("Dead {reason}"),
        _ => text,
    };
    let status = text.split_once("status: ").map(|(_, status)| status.trim_end_matches(" }"));
    let name = text.split([',', '{', '(']).next().unwrap_or_default().trim().to_owned();
    format!("{op} {name}{}", status.map(|status| format!(" {status}")).unwrap_or_default())
}

const EXPECTED: &[&str] = &[
    "set_limits false",
    "set_limits true",
    "hand_off AlreadyDone None",
    "hand_off AlreadyDone Some(Acked)",
    "hand_off Conflict Ready",
    "hand_off Created",
    "hand_off Done Acked",
    "hand_off Done Cancelled",
    "hand_off Done Dead",
    "hand_off Done Ready",
    "hand_off Done Replaced",
    "hand_off Done Scheduled",
    "hand_off Duplicate Ready",
    "hand_off Missing",
    "hand_off Stale",
    "hand_off, result kept",
    "progress Dead(Rejected)",
    "progress Finished { status: Acked, result_bytes: None }",
    "progress Pending",
    "progress Unknown",
    "progress, result",
    "cancel Cancelled",
    "cancel InFlight",
    "cancel NotFound",
    "check, next: false",
    "check, next: true",
    "claim of 0",
    "claim of 1",
    "claim of 2",
    "claim, more: false",
    "claim, more: true",
    "claim, next: false",
    "claim, next: true",
    "enqueue Conflict Acked",
    "enqueue Conflict Cancelled",
    "enqueue Conflict Dead",
    "enqueue Conflict Leased",
    "enqueue Conflict Purged",
    "enqueue Conflict Ready",
    "enqueue Conflict Scheduled",
    "enqueue Created",
    "enqueue Duplicate Acked",
    "enqueue Duplicate Cancelled",
    "enqueue Duplicate Dead",
    "enqueue Duplicate Leased",
    "enqueue Duplicate Purged",
    "enqueue Duplicate Ready",
    "enqueue Duplicate Relayed",
    "enqueue Duplicate Scheduled",
    "enqueue Following",
    "enqueue Updated",
    "extend Done, cancel requested: false",
    "extend Done, cancel requested: true",
    "extend Missing",
    "extend Stale",
    "history of 1",
    "history of 2",
    "history of 3",
    "get Dead Expired",
    "get Dead MaxCrashes",
    "get Dead MaxFailures",
    "get Dead Rejected",
    "get Finished(Acked)",
    "get Finished(Cancelled)",
    "get Finished(Purged)",
    "get Finished(Relayed)",
    "get Leased",
    "get Ready",
    "get Scheduled",
    "get Unknown",
    "invalid",
    "list Dead",
    "list Leased",
    "list Ready",
    "list Scheduled",
    "list, next: false",
    "list, next: true",
    "pause false",
    "pause true",
    "purge NotDead",
    "purge NotFound",
    "purge Purged",
    "redrive Done",
    "redrive NotDead",
    "redrive NotFound",
    "relay of 0",
    "relay of 1",
    "relay of 2",
    "relay, held back: false",
    "relay, held back: true",
    "relay, more: false",
    "relay, more: true",
    "reschedule Dead",
    "reschedule Done",
    "reschedule InFlight",
    "reschedule NotFound",
    "resume false",
    "resume true",
    "settle AlreadyDone None",
    "settle AlreadyDone Some(Acked)",
    "settle AlreadyDone Some(Cancelled)",
    "settle AlreadyDone Some(Dead)",
    "settle AlreadyDone Some(Replaced)",
    "settle Done Acked",
    "settle Done Cancelled",
    "settle Done Dead",
    "settle Done Ready",
    "settle Done Replaced",
    "settle Done Scheduled",
    "settle Missing",
    "settle Stale",
];
