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
            if let Op::Settle(_) | Op::HandOff(_) = step.op {
                let kind = format!("settlements that claim next: {}", step.op.claims_next());
                *seen.entry(kind).or_default() += 1;
            }
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
    let expected = EXPECTED.iter().flat_map(|(begin, ends)| {
        ends.split('|').map(move |end| format!("{begin} {end}").trim_end().to_owned())
    });
    let rare: Vec<_> = expected.filter(|kind| seen.get(kind) < Some(&LEAST)).collect();
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
            format!("claim, capped: {}", claimed.capped),
            format!("claim, deaths: {}", claimed.deaths.len().min(2)),
        ],
        Reply::Relay(relayed) => vec![
            format!("relay of {}", relayed.ids.len().min(2)),
            format!("relay, more: {}", relayed.more),
            format!("relay, held back: {}", relayed.held_back),
            format!("relay, leases limited: {}", relayed.leases_limited),
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
        Reply::Stats(stats) => vec![format!("stats, groups wait: {}", stats.waiting_groups > 0)],
        Reply::Forecast(forecast) => vec![
            format!("forecast, ready: {}", forecast.ready.min(1)),
            format!("forecast, due: {}", forecast.due.iter().sum::<u64>().min(1)),
            format!("forecast, later: {}", forecast.later.min(1)),
        ],
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

/// The beginning of each kind, and its ends.
const EXPECTED: &[(&str, &str)] = &[
    ("cancel", "Cancelled|InFlight|NotFound"),
    ("check, next:", "false|true"),
    ("claim of", "0|1|2"),
    ("claim, capped:", "false|true"),
    ("claim, deaths:", "0|1|2"),
    ("claim, more:", "false|true"),
    ("claim, next:", "false|true"),
    ("enqueue", "Created|Following|Throttled|Updated"),
    ("enqueue Conflict", "Acked|Cancelled|Dead|Leased|Purged|Ready|Scheduled"),
    ("enqueue Duplicate", "Acked|Cancelled|Dead|Leased|Purged|Ready|Relayed|Scheduled"),
    ("extend", "Missing|Stale"),
    ("extend Done, cancel requested:", "false|true"),
    ("forecast, due:", "0|1"),
    ("forecast, later:", "0|1"),
    ("forecast, ready:", "0|1"),
    (
        "get",
        "Finished(Acked)|Finished(Cancelled)|Finished(Purged)|Finished(Relayed)|Leased|Ready|Scheduled|Unknown",
    ),
    ("get Dead", "Expired|MaxCrashes|MaxFailures|Rejected|Undecodable"),
    ("hand_off", "Created|Missing|Stale"),
    ("hand_off AlreadyDone", "None|Some(Acked)"),
    ("hand_off Conflict", "Ready"),
    ("hand_off Done", "Acked|Cancelled|Dead|Ready|Replaced|Scheduled"),
    ("hand_off Duplicate", "Ready"),
    ("hand_off, result", "kept"),
    ("history of", "1|2|3"),
    ("invalid", ""),
    ("list", "Dead|Leased|Ready|Scheduled"),
    ("list, next:", "false|true"),
    ("pause", "false|true"),
    ("progress", "Dead(Rejected)|Finished { status: Acked, result_bytes: None }|Pending|Unknown"),
    ("progress,", "result"),
    ("purge", "NotDead|NotFound|Purged"),
    ("redrive", "Done|NotDead|NotFound"),
    ("relay of", "0|1|2"),
    ("relay, held back:", "false|true"),
    ("relay, leases limited:", "false|true"),
    ("relay, more:", "false|true"),
    ("reschedule", "Dead|Done|InFlight|NotFound"),
    ("resume", "false|true"),
    ("set_limits", "false|true"),
    ("stats, groups wait:", "false|true"),
    ("settle", "Missing|Stale"),
    ("settle AlreadyDone", "None|Some(Acked)|Some(Cancelled)|Some(Dead)|Some(Replaced)"),
    ("settlements that claim next:", "false|true"),
    ("settle Done", "Acked|Cancelled|Dead|Ready|Replaced|Scheduled"),
];
