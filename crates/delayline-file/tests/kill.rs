//! Kills a process under load again and again, and counts the acknowledged messages. Backs the
//! directory up meanwhile, and kills backups.
//!
//! `DELAYLINE_KILLS` is the number of kills of each: 10 if unset. `DELAYLINE_SEED` is the seed of
//! the times of kills: a new one if unset. It is printed.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by a panic")]

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use delayline_core::{
    At, Backend, Claim, ClaimId, Completion, ConsumerName, MessageId, Millis, NewMessage, Op,
    Outcome, Reply, Settlement, Status,
};
use delayline_file::{Directory, FileBackend, Options};
use libtest_mimic::{Arguments, Trial};

const DIRECTORY: &str = "DELAYLINE_KILL_DIRECTORY";
const ROUND: &str = "DELAYLINE_KILL_ROUND";
const BACKUP: &str = "DELAYLINE_KILL_BACKUP";
const QUEUES: [&str; 2] = ["orders", "mails/urgent"];
const TASKS: usize = 8;

fn main() {
    if let Some(directory) = std::env::var_os(DIRECTORY) {
        let directory = PathBuf::from(directory);
        return match std::env::var_os(BACKUP) {
            Some(to) => drop(delayline_file::backup(directory, to).unwrap()),
            None => load(&directory, &std::env::var(ROUND).unwrap()),
        };
    }
    let trial = |name: &str, run: fn()| {
        Trial::test(name, move || {
            run();
            Ok(())
        })
    };
    let tests = vec![
        trial("no_kill_loses_or_repeats_an_acknowledged_message", kill),
        trial("a_killed_backup_is_never_taken_for_a_whole_one", kill_backups),
    ];
    libtest_mimic::run(&Arguments::from_args(), tests).exit();
}

/// Small segments, so that some kills hit a checkpoint.
fn open(path: &Path) -> Directory {
    let options = Options::default().segment_bytes(256 << 10).reserve_bytes(1 << 20);
    Directory::open(path, options).unwrap()
}

/// What a process has acknowledged: ids sent and ids acked, with the queue's number in front.
#[derive(Clone, Default)]
struct Acknowledged {
    sent: BTreeSet<(usize, String)>,
    acked: BTreeSet<(usize, String)>,
}

fn kills() -> u32 {
    std::env::var("DELAYLINE_KILLS").map_or(10, |text| text.parse().unwrap())
}

/// Random numbers whose seed is printed, once.
fn random() -> fastrand::Rng {
    static SEED: OnceLock<u64> = OnceLock::new();
    let seed = SEED.get_or_init(|| {
        let seed = std::env::var("DELAYLINE_SEED");
        let seed = seed.map_or_else(|_| fastrand::u64(..), |text| text.parse().unwrap());
        println!("DELAYLINE_SEED={seed}");
        seed
    });
    fastrand::Rng::with_seed(*seed)
}

fn kill() {
    let (kills, mut random) = (kills(), random());
    let parent = tempfile::tempdir().unwrap();
    let path = parent.path().join("queues");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let mut before = Acknowledged::default();
    let (mut sent, mut acked) = (0, 0);
    for round in 0..kills {
        let backup = parent.path().join(format!("backup-{round}"));
        let life = Duration::from_millis(random.u64(1..300));
        let (now, backed_up) = killed(&path, round, &backup, life);
        for (path, acknowledged) in [(&path, &before), (&path, &now), (&backup, &backed_up)] {
            let directory = open(path);
            let queues = QUEUES.map(|name| directory.queue(name.parse().unwrap()).unwrap());
            runtime.block_on(check(&queues, acknowledged, round));
        }
        sent += now.sent.len();
        acked += now.acked.len();
        before = now;
    }
    println!("{kills} kills: {sent} messages sent and {acked} acked, none lost, none twice");
    assert!(sent > 0 && acked > 0);
}

/// Starts a process, backs its directory up, and kills it after `life`. Returns the acknowledged
/// calls, and those before the backup.
fn killed(path: &Path, round: u32, backup: &Path, life: Duration) -> (Acknowledged, Acknowledged) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .env(DIRECTORY, path)
        .env(ROUND, round.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let first = lines.next().unwrap().unwrap();
    assert_eq!(first, "ready");
    let started = Instant::now();
    let mut acknowledged = Acknowledged::default();
    let (mut killed, mut backed_up) = (false, None);
    for line in lines {
        // A line that the kill has cut is none.
        let Ok(line) = line else { break };
        if let [what, queue, id, "."] = line.split(' ').collect::<Vec<_>>()[..] {
            let entry = (queue.parse().unwrap(), id.to_owned());
            match what {
                "sent" => assert!(acknowledged.sent.insert(entry), "{id} was created twice"),
                "acked" => assert!(acknowledged.acked.insert(entry), "{id} was acked twice"),
                other => panic!("{other}"),
            }
        }
        if backed_up.is_none() && started.elapsed() >= life / 2 {
            backed_up = Some(acknowledged.clone());
            delayline_file::backup(path, backup).unwrap();
        }
        if !killed && started.elapsed() >= life {
            // SIGKILL. What is in the pipe is still read.
            child.kill().unwrap();
            killed = true;
        }
    }
    assert!(!child.wait().unwrap().success());
    (acknowledged, backed_up.unwrap())
}

fn kill_backups() {
    let parent = tempfile::tempdir().unwrap();
    let [path, to] = ["queues", "backup"].map(|name| parent.path().join(name));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let directory = open(&path);
    let queue = directory.queue(QUEUES[0].parse().unwrap()).unwrap();
    for batch in 0..10 {
        let id = |number| MessageId::try_from(format!("{batch}-{number}")).unwrap();
        let messages = (0..1_000).map(|number| NewMessage::new(id(number), vec![7; 500]));
        runtime.block_on(queue.apply(At::Server, &Op::Enqueue(messages.collect()))).unwrap();
    }
    let start = || {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.env(DIRECTORY, &path).env(BACKUP, &to).spawn().unwrap()
    };
    let started = Instant::now();
    assert!(start().wait().unwrap().success());
    let whole = started.elapsed();
    let (mut unfinished, mut finished, mut random) = (0, 0, random());
    for _ in 0..kills() {
        if to.exists() {
            let directory = open(&to);
            let queue = directory.queue(QUEUES[0].parse().unwrap()).unwrap();
            let stats = runtime.block_on(queue.apply(At::Server, &Op::Stats)).unwrap().reply;
            let Reply::Stats(stats) = stats else { unreachable!() };
            assert_eq!(stats.ready, 10_000);
            drop((directory, queue));
            std::fs::remove_dir_all(&to).unwrap();
            finished += 1;
        }
        let mut child = start();
        std::thread::sleep(whole.mul_f64(random.f64()));
        child.kill().unwrap();
        child.wait().unwrap();
        unfinished += u32::from(parent.path().join(".backup.delayline-backup").exists());
    }
    println!("{finished} backups were whole, {unfinished} kills left unfinished ones");
    if !to.exists() {
        assert!(start().wait().unwrap().success());
    }
    let mut names: Vec<_> =
        std::fs::read_dir(&parent).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["backup", "queues"]);
    assert!(finished > 0 && unfinished > 0);
}

async fn check(queues: &[FileBackend; QUEUES.len()], acknowledged: &Acknowledged, round: u32) {
    for (number, queue) in queues.iter().enumerate() {
        let of_queue = |ids: &BTreeSet<(usize, String)>| -> Vec<MessageId> {
            let ids = ids.iter().filter(|(queue, _)| *queue == number);
            ids.map(|(_, id)| MessageId::try_from(id).unwrap()).collect()
        };
        for (ids, acked) in
            [(of_queue(&acknowledged.sent), false), (of_queue(&acknowledged.acked), true)]
        {
            for batch in ids.chunks(500) {
                let op = Op::Progress(batch.to_vec());
                let Reply::Progress(found) = queue.apply(At::Server, &op).await.unwrap().reply
                else {
                    unreachable!()
                };
                for (id, found) in batch.iter().zip(found) {
                    let finished = Completion::finished(Status::Acked);
                    let is_kept = found == finished || !acked && found == Completion::Pending;
                    assert!(is_kept, "after kill {round}, {id} is {found:?}, acked: {acked}");
                }
            }
        }
    }
}

/// Sends, claims and acks until the process is killed.
fn load(path: &Path, round: &str) {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_time().build().unwrap();
    let directory = open(path);
    say("ready");
    let tasks: Vec<_> = (0..TASKS)
        .map(|task| {
            let number = task % QUEUES.len();
            let queue = Arc::new(directory.queue(QUEUES[number].parse().unwrap()).unwrap());
            runtime.spawn(work(queue, number, format!("{round}-{task}")))
        })
        .collect();
    for task in tasks {
        runtime.block_on(task).unwrap();
    }
}

async fn work(queue: Arc<FileBackend>, number: usize, name: String) {
    for count in 0.. {
        let ids = [0, 1].map(|part| format!("{name}-{count}-{part}"));
        let message = |id: &String| NewMessage::new(MessageId::try_from(id).unwrap(), vec![7; 100]);
        let enqueue = Op::Enqueue(ids.iter().map(message).collect());
        queue.apply(At::Server, &enqueue).await.unwrap();
        ids.iter().for_each(|id| say(&format!("sent {number} {id} .")));
        let token = ClaimId::from_bytes(fastrand::u128(..).to_be_bytes());
        let worker = ConsumerName::try_from(&name).unwrap();
        let claim = Op::Claim(Claim::new(worker, token, 2, Millis::new(200).unwrap()));
        let Reply::Claim(claimed) = queue.apply(At::Server, &claim).await.unwrap().reply else {
            unreachable!()
        };
        for delivery in claimed.deliveries {
            let id = delivery.message.info.id;
            let ack = Settlement::new(id.clone(), delivery.lease, Outcome::Ack);
            let applied = queue.apply(At::Server, &Op::Settle(vec![ack])).await.unwrap();
            let Reply::Settle(settled) = applied.reply else { unreachable!() };
            if matches!(settled[..], [delayline_core::Settled::Done { .. }]) {
                say(&format!("acked {number} {} .", id.as_str().unwrap()));
            }
        }
    }
}

/// Writes a line at once.
fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    // The reader may be gone.
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}
