//! Queues in a directory: beside SQLite with the same group commit, and beside Redis.

mod lateness;
mod sends;
mod size;
mod sqlite;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, ValueEnum};
use tokio::runtime::{Builder, Runtime};

/// Measures queues in a directory on this machine, and prints tables
///
/// Compare only figures of one run: machines differ, and one machine varies over time.
#[derive(Parser)]
struct Args {
    /// What to measure (default: everything)
    what: Vec<Subject>,

    /// Seconds of each round of sends and of the load
    #[arg(long, default_value_t = 3)]
    seconds: u64,

    /// Number of messages in the directory that is opened
    #[arg(long, default_value_t = 1_000_000)]
    messages: usize,

    /// Parent of the directories, on a local disk that keeps synced data
    #[arg(long, default_value = ".")]
    on: PathBuf,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Subject {
    /// Durable sends per second by 1, 64 and 256 tasks, beside SQLite
    Sends,
    /// How late handlers begin, beside Redis
    Lateness,
    /// Bytes on disk and in memory, the time to open, and what a checkpoint costs
    Size,
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("delayline-embedded: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<()> {
    let measures = |what| args.what.is_empty() || args.what.contains(&what);
    let parent = tempfile::tempdir_in(&args.on)?;
    if measures(Subject::Sends) {
        sends::measure(parent.path(), args.seconds)?;
    }
    if measures(Subject::Lateness) {
        lateness::measure(parent.path(), args.seconds)?;
    }
    if measures(Subject::Size) {
        size::measure(parent.path(), args.messages)?;
    }
    Ok(())
}

fn runtime() -> Result<Runtime> {
    Ok(Builder::new_multi_thread().worker_threads(2).enable_all().build()?)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}

const PAYLOAD: [u8; 100] = [0x5a; 100];

/// Returns an id of 20 bytes.
fn id(number: usize) -> String {
    format!("order-{number:014}")
}
