//! Directories that the first version of the format has written are read as they were.
//!
//! `DELAYLINE_WRITE=1` writes those of the current version anew: only before it is released.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

use std::fs;
use std::path::{Path, PathBuf};

use delayline_core::{
    At, Backend, Claim, ClaimId, ConsumerName, Found, HandOff, Lease, MessageId, Millis,
    NewMessage, NewResult, Op, Outcome, Reply, Schedule, Settlement, Timestamp,
};
use delayline_file::{Directory, FileBackend, Options};

const START_MS: u64 = 1_800_000_000_000;

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)
}

fn open(path: &Path) -> Directory {
    let small = Options::default().reserve_bytes(2_048).chunk_bytes(1_024).segment_bytes(1 << 20);
    Directory::open(path, small).unwrap()
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for file in fs::read_dir(from).unwrap().map(Result::unwrap) {
        // The lock says nothing but the process.
        if file.file_name() != "delayline.lock" {
            fs::copy(file.path(), to.join(file.file_name())).unwrap();
        }
    }
}

fn id(text: &str) -> MessageId {
    MessageId::try_from(text).unwrap()
}

fn ms(ms: u64) -> Millis {
    Millis::new(ms).unwrap()
}

async fn apply(queue: &FileBackend, second: u64, op: Op) -> Reply {
    let at = Timestamp::from_ms(START_MS + second * 1_000).unwrap();
    queue.apply(At::Fixed(at), &op).await.unwrap().reply
}

async fn claim(queue: &FileBackend, second: u64, max: usize) -> Vec<(MessageId, Lease)> {
    let token = ClaimId::from_bytes(u128::from(second).to_be_bytes());
    let worker = ConsumerName::new("worker").unwrap();
    let claim = Op::Claim(Claim::new(worker, token, max, ms(60_000)));
    let Reply::Claim(claimed) = apply(queue, second, claim).await else { unreachable!() };
    claimed.deliveries.into_iter().map(|it| (it.message.info.id, it.lease)).collect()
}

/// Brings a queue into a state that has something of nearly everything.
async fn fill(directory: &Directory) {
    let queue = directory.queue("shop/orders".parse().unwrap()).unwrap();
    let message = |name: &str| NewMessage::new(id(name), format!("payload of {name}"));
    let later = message("later").schedule(Schedule::In(ms(3_600_000)));
    let throttled = message("rejected").throttle(ms(86_400_000)).max_failures(1);
    apply(&queue, 0, Op::Enqueue(vec![message("acked"), throttled, message("leased"), later]))
        .await;
    for (name, lease) in claim(&queue, 1, 3).await {
        let settled = |outcome| Settlement::new(name.clone(), lease, outcome);
        let op = match name.as_str().unwrap() {
            "acked" => {
                let result = NewResult::new("the result", ms(86_400_000));
                let next = vec![message("next")];
                Op::HandOff(vec![HandOff::new(settled(Outcome::Ack), next).with_result(result)])
            }
            "rejected" => {
                let error = "no such customer".to_owned();
                Op::Settle(vec![settled(Outcome::Reject { error })])
            }
            _ => continue,
        };
        apply(&queue, 2, op).await;
    }
    let paused = directory.queue("mails".parse().unwrap()).unwrap();
    apply(&paused, 3, Op::Enqueue(vec![message("mail")])).await;
    apply(&paused, 4, Op::Pause).await;
}

/// What a queue was like, in words that no version of the format changes.
async fn described(directory: &Directory) -> String {
    let mut text = String::new();
    for name in directory.queues() {
        let queue = directory.queue(name.clone()).unwrap();
        let Reply::Stats(stats) = apply(&queue, 5, Op::Stats).await else { unreachable!() };
        text += &format!(
            "{name}: {} scheduled, {} ready, {} leased, {} dead, {} acked, {} enqueued, paused: {}\n",
            stats.scheduled,
            stats.ready,
            stats.leased,
            stats.dead,
            stats.totals.acked,
            stats.totals.enqueued,
            stats.paused
        );
        for message in ["acked", "leased", "later", "mail", "rejected"] {
            let Reply::Get(found) = apply(&queue, 5, Op::Get(vec![id(message)])).await else {
                unreachable!()
            };
            let Reply::Progress(progress) = apply(&queue, 5, Op::Progress(vec![id(message)])).await
            else {
                unreachable!()
            };
            text += &format!("  {message}: {}, {:?}\n", in_words(&found[0]), progress[0]);
        }
    }
    text
}

fn in_words(found: &Found) -> String {
    let Found::Live(message) = found else { return format!("{found:?}") };
    let (info, payload) = (&message.info, String::from_utf8_lossy(&message.payload));
    let (state, due, error) = (info.state, info.due, &info.last_error);
    format!("{payload:?}, {state:?}, due {due}, {} failures, {error:?}", info.failures)
}

#[tokio::test]
async fn directories_of_version_1_are_read_as_they_were() {
    let parent = tempfile::tempdir().unwrap();
    if std::env::var_os("DELAYLINE_WRITE").is_some() {
        let path = parent.path().join("new");
        let directory = open(&path);
        fill(&directory).await;
        for (name, is_closed) in [("1-log", false), ("1-snapshot", true)] {
            if is_closed {
                directory.close().unwrap();
            }
            let _ = fs::remove_dir_all(golden(name));
            copy(&path, &golden(name));
        }
        drop(directory);
        fs::write(golden("1.txt"), described(&open(&path)).await).unwrap();
    }
    let expected = fs::read_to_string(golden("1.txt")).unwrap();
    for name in ["1-log", "1-snapshot"] {
        let path = parent.path().join(name);
        copy(&golden(name), &path);
        for again in [false, true] {
            let directory = open(&path);
            assert_eq!(described(&directory).await, expected, "{name}, opened again: {again}");
        }
    }
}
