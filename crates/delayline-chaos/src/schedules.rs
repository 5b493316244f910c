//! Schedulers in real processes that are killed and frozen while their schedules change, counted
//! from outside by the messages that reach the target queue.

mod fleet;
mod judge;
mod kinds;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::{Parser, Subcommand};
use delayline::Error;
use delayline::schedules::{Overlap, Schedules, Spec};

use self::fleet::Fleet;
use self::judge::{Judge, Seen};
use self::kinds::{INTERVAL, Kind, LEAD, TARGET, kind_of, numbers};

/// Kills and freezes schedulers, deploys changed schedules, and counts ticks
#[derive(Parser)]
struct Args {
    #[command(subcommand)]
    part: Option<Part>,

    /// Number of scheduler processes
    #[arg(long, default_value_t = 20)]
    processes: usize,

    /// Seconds to run
    #[arg(long, default_value_t = 90)]
    seconds: u64,

    /// Milliseconds between two faults
    #[arg(long, default_value_t = 1_500)]
    fault_ms: u64,

    /// Seed of the random choices
    #[arg(long, default_value_t = 0)]
    seed: u64,
}

#[derive(Subcommand)]
enum Part {
    /// One scheduler process of the fleet
    Scheduler {
        /// Server of the queues
        url: String,
        /// Version of the schedules to declare
        version: u64,
    },
}

/// Plays what the command line asks for.
pub async fn run() -> ExitCode {
    let args = Args::parse();
    let result = match &args.part {
        Some(Part::Scheduler { url, version }) => scheduler(url, *version).await.map(|()| true),
        None => play(&args).await,
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("schedules: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn play(args: &Args) -> Result<bool> {
    let mut fleet = Fleet::start(args.processes, args.seed)?;
    let seen = Seen::listen(&fleet.url()).await?;
    fleet.torment(Duration::from_secs(args.seconds), Duration::from_millis(args.fault_ms)).await?;
    // Messages created ahead are delivered without schedulers; only messages due by now are judged.
    let (faults, times) = fleet.end()?;
    let ticks = seen.finish().await;
    let judge = Judge::of(&ticks, &times);
    println!("schedules: {faults}\nschedules: {judge}");
    Ok(judge.is_fine())
}

/// A process of the fleet: declares the schedules of its version, and runs a scheduler. The server
/// may be down when it starts.
async fn scheduler(url: &str, version: u64) -> Result<()> {
    let schedules = loop {
        match declared(url, version).await {
            Ok(schedules) => break schedules,
            Err(error) if error.is_retryable() => tokio::time::sleep(RETRY).await,
            Err(error) => return Err(error.into()),
        }
    };
    let worker = schedules.worker().build()?;
    worker.run(schedules.handler()).await;
    Ok(())
}

async fn declared(url: &str, version: u64) -> Result<Schedules, Error> {
    let schedules = Schedules::open(&delayline::connect(url).await?).await?;
    schedules.declare(OWNER, specs(version)?).await?;
    Ok(schedules)
}

/// The schedules of a version. Each version has another payload.
fn specs(version: u64) -> Result<Vec<(String, Spec)>, Error> {
    let mut all = Vec::new();
    for number in numbers(version) {
        let spec = Spec::every(INTERVAL, TARGET)?.payload(&version)?;
        let spec = match kind_of(number) {
            Kind::Ahead => spec.lead(LEAD)?,
            Kind::AtOnce => spec.lead(Duration::ZERO)?,
            Kind::Skipping => spec.overlap(Overlap::Skip),
        };
        all.push((format!("s{number}"), spec));
    }
    Ok(all)
}

const OWNER: &str = "fleet";
/// How long a process waits before it tries to connect again.
const RETRY: Duration = Duration::from_millis(200);
