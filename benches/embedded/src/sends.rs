//! Durable sends per second.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use delayline_core::{At, Backend, MessageId, Millis, NewMessage, Op, Schedule};
use delayline_file::{Directory, FileBackend, Options};

use crate::sqlite::Sqlite;
use crate::{PAYLOAD, id, median, runtime};

const ROUNDS: usize = 5;
const TASKS: [usize; 3] = [1, 64, 256];

enum Store {
    File(FileBackend),
    Sqlite(Sqlite),
}

impl Store {
    async fn send(&self, number: usize) -> Result<()> {
        match self {
            Self::File(queue) => {
                let message = NewMessage::new(MessageId::try_from(id(number))?, PAYLOAD.to_vec())
                    .schedule(Schedule::In(Millis::new(3_600_000)?));
                queue.apply(At::Server, &Op::Enqueue(vec![message])).await?;
                Ok(())
            }
            Self::Sqlite(table) => table.send(id(number), 3_600_000, PAYLOAD.to_vec()).await,
        }
    }
}

/// Prints the medians of all rounds, also of the ratio of each round.
pub(crate) fn measure(parent: &Path, seconds: u64) -> Result<()> {
    println!(
        "\n| durable sends/s | directory | SQLite | ratio | bytes written per message: directory | SQLite |"
    );
    println!("|---|---|---|---|---|---|");
    for tasks in TASKS {
        let mut rounds = Vec::new();
        for round in 0..ROUNDS {
            let path = parent.join(format!("sends-{tasks}-{round}"));
            std::fs::create_dir(&path)?;
            let directory = Directory::open(path.join("queues"), Options::default())?;
            let file = Store::File(directory.queue("orders".parse()?)?);
            let sqlite = Store::Sqlite(Sqlite::open(&path.join("messages.db"))?);
            // They take turns, so that neither is always the first.
            let (file, sqlite) = if round % 2 == 0 {
                let file = rate(file, tasks, seconds)?;
                (file, rate(sqlite, tasks, seconds)?)
            } else {
                let sqlite = rate(sqlite, tasks, seconds)?;
                (rate(file, tasks, seconds)?, sqlite)
            };
            rounds.push((file, sqlite));
            drop(directory);
            std::fs::remove_dir_all(path)?;
        }
        let of = |value: fn(&(Rate, Rate)) -> f64| median(rounds.iter().map(value).collect());
        println!(
            "| {tasks} tasks | {:.0} | {:.0} | {:.2} | {:.0} | {:.0} |",
            of(|it| it.0.sends),
            of(|it| it.1.sends),
            of(|it| it.0.sends / it.1.sends),
            of(|it| it.0.bytes),
            of(|it| it.1.bytes),
        );
    }
    Ok(())
}

struct Rate {
    /// Per second.
    sends: f64,
    /// Written to the disk per message.
    bytes: f64,
}

fn rate(store: Store, tasks: usize, seconds: u64) -> Result<Rate> {
    let runtime = runtime()?;
    let (store, next) = (Arc::new(store), Arc::new(AtomicUsize::new(0)));
    let (written, start) = (written_bytes()?, Instant::now());
    let end = start + Duration::from_secs(seconds);
    let sending: Vec<_> = (0..tasks)
        .map(|_| {
            let (store, next) = (Arc::clone(&store), Arc::clone(&next));
            runtime.spawn(async move {
                while Instant::now() < end {
                    store.send(next.fetch_add(1, Ordering::Relaxed)).await?;
                }
                anyhow::Ok(())
            })
        })
        .collect();
    for task in sending {
        runtime.block_on(task)??;
    }
    let took = start.elapsed().as_secs_f64();
    #[expect(clippy::cast_precision_loss, reason = "counts are small")]
    let (sent, bytes) = (next.load(Ordering::Relaxed) as f64, (written_bytes()? - written) as f64);
    Ok(Rate { sends: sent / took, bytes: bytes / sent })
}

/// Returns the bytes that this process has had written to disks.
pub(crate) fn written_bytes() -> Result<u64> {
    let io = std::fs::read_to_string("/proc/self/io")?;
    let line = io.lines().find_map(|line| line.strip_prefix("write_bytes: "));
    Ok(line.unwrap_or("0").parse()?)
}
