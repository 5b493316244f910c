//! Bytes on disk and in memory, the time to open, and what a checkpoint costs.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use delayline_core::{At, Backend, MessageId, Millis, NewMessage, Op, Schedule};
use delayline_file::{Directory, FileBackend, Options};

use crate::sends::written_bytes;
use crate::{PAYLOAD, id, runtime};

/// Messages in one call.
const BATCH: usize = 100;

/// Prints what this many messages take.
pub(crate) fn measure(parent: &Path, messages: usize) -> Result<()> {
    let path = parent.join("size");
    println!("\n| with {messages} messages | |\n|---|---|");
    let (before, written) = (memory("VmRSS")?, written_bytes()?);
    let directory = Directory::open(&path, Options::default())?;
    let queue = Arc::new(directory.queue("orders".parse()?)?);
    let runtime = runtime()?;
    let start = Instant::now();
    for first in (0..messages).step_by(BATCH) {
        runtime.block_on(send(&queue, first, BATCH))?;
    }
    row("time to send them by 100, s", start.elapsed().as_secs_f64());
    row("bytes written a message, checkpoints included", per(written_bytes()? - written, messages));
    wait_for_checkpoint(&directory);
    row("bytes in memory a message, after a checkpoint", per(memory("VmRSS")? - before, messages));
    checkpoint(&directory, &queue, &runtime, messages)?;
    let killed = parent.join("killed");
    copy(&path, &killed)?;
    drop((queue, directory));
    row("bytes on disk a message, closed", per(size(&path)?, messages));
    row("bytes on disk a message, as a kill leaves them", per(size(&killed)?, messages));
    for (what, path) in [("closed", &path), ("killed", &killed)] {
        let start = Instant::now();
        let directory = Directory::open(path, Options::default())?;
        row(&format!("time to open, {what}, s"), start.elapsed().as_secs_f64());
        drop(directory);
    }
    Ok(())
}

/// Sends until a checkpoint begins, and looks how long calls take while it is made.
fn checkpoint(
    directory: &Directory,
    queue: &Arc<FileBackend>,
    runtime: &tokio::runtime::Runtime,
    messages: usize,
) -> Result<()> {
    let start = Instant::now();
    let next = messages;
    let (calm, next) =
        runtime.block_on(probe(queue, next, || Ok(start.elapsed() < Duration::from_secs(3))))?;
    // Payloads of cancelled messages fill the log.
    let mut filler = next;
    while !directory.status().checkpoint_running {
        runtime.block_on(send(queue, filler, BATCH))?;
        filler += BATCH;
    }
    let peak = Peak::start(memory("VmRSS")?);
    let start = Instant::now();
    let (busy, _) =
        runtime.block_on(probe(queue, filler, || Ok(directory.status().checkpoint_running)))?;
    row("time of a checkpoint, s", start.elapsed().as_secs_f64());
    row("longest call without a checkpoint, ms", ms(longest(&calm)));
    row("longest call during a checkpoint, ms", ms(longest(&busy)));
    row("p99 of calls without a checkpoint, ms", ms(p99(calm)));
    row("p99 of calls during a checkpoint, ms", ms(p99(busy)));
    let (before, peak) = peak.end()?;
    row("memory before a checkpoint, MB", mb(before));
    row("peak memory during a checkpoint, MB", mb(peak));
    row("longest sync, ms", ms(directory.status().syncs.max()));
    Ok(())
}

/// Sends one message after the other. Returns how long each took, and the next number.
async fn probe(
    queue: &FileBackend,
    mut number: usize,
    goes_on: impl Fn() -> Result<bool>,
) -> Result<(Vec<Duration>, usize)> {
    let mut took = Vec::new();
    while goes_on()? {
        let start = Instant::now();
        send(queue, number, 1).await?;
        took.push(start.elapsed());
        number += 1;
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    Ok((took, number))
}

async fn send(queue: &FileBackend, first: usize, count: usize) -> Result<()> {
    let message = |number| {
        let message = NewMessage::new(MessageId::try_from(id(number))?, PAYLOAD.to_vec());
        anyhow::Ok(message.schedule(Schedule::In(Millis::new(86_400_000)?)))
    };
    let messages = (first..first + count).map(message).collect::<Result<Vec<_>>>()?;
    queue.apply(At::Server, &Op::Enqueue(messages)).await?;
    Ok(())
}

fn wait_for_checkpoint(directory: &Directory) {
    while directory.status().checkpoint_running {
        thread::sleep(Duration::from_millis(20));
    }
}

/// Samples the memory of this process.
struct Peak {
    before: u64,
    most: Arc<AtomicU64>,
    ends: Arc<AtomicBool>,
    thread: thread::JoinHandle<()>,
}

impl Peak {
    fn start(before: u64) -> Self {
        let (most, ends) = (Arc::new(AtomicU64::new(before)), Arc::new(AtomicBool::new(false)));
        let thread = {
            let (most, ends) = (Arc::clone(&most), Arc::clone(&ends));
            thread::spawn(move || {
                while !ends.load(Ordering::Relaxed) {
                    most.fetch_max(memory("VmRSS").unwrap_or_default(), Ordering::Relaxed);
                    thread::sleep(Duration::from_millis(10));
                }
            })
        };
        Self { before, most, ends, thread }
    }

    fn end(self) -> Result<(u64, u64)> {
        self.ends.store(true, Ordering::Relaxed);
        self.thread.join().ok().context("the sampler has panicked")?;
        Ok((self.before, self.most.load(Ordering::Relaxed)))
    }
}

/// Returns a figure of this process's memory in bytes.
fn memory(what: &str) -> Result<u64> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix(what)).context("no such line")?;
    let kb = line.trim_start_matches(':').trim().trim_end_matches(" kB");
    Ok(kb.parse::<u64>()? * 1_024)
}

fn size(path: &Path) -> Result<u64> {
    let mut bytes = 0;
    for file in fs::read_dir(path)? {
        bytes += file?.metadata()?.len();
    }
    Ok(bytes)
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir(to)?;
    for file in fs::read_dir(from)? {
        let file = file?;
        fs::copy(file.path(), to.join(file.file_name()))?;
    }
    Ok(())
}

fn longest(took: &[Duration]) -> Duration {
    took.iter().copied().max().unwrap_or_default()
}

fn p99(mut took: Vec<Duration>) -> Duration {
    took.sort();
    took.get(took.len() * 99 / 100).copied().unwrap_or_default()
}

fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1_000.0
}

#[expect(clippy::cast_precision_loss, reason = "it is rounded anyway")]
fn mb(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}

#[expect(clippy::cast_precision_loss, reason = "it is rounded anyway")]
fn per(bytes: u64, messages: usize) -> f64 {
    bytes as f64 / messages as f64
}

fn row(what: &str, value: f64) {
    println!("| {what} | {value:.2} |");
}
