//! Delayline compared with other queues on Redis, and with one on PostgreSQL.

mod facts;
mod load;
mod measure;
mod page;
mod peers;
mod rounds;

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::{Parser, ValueEnum};
use delayline_benches::plot;
use tokio::runtime::Builder;

use self::measure::{Figures, measure};
use self::page::Page;
use self::peers::apalis::ApalisRedis;
use self::peers::baselines::{Blocking, Polled, Popped, Strings};
use self::peers::bullmq_rust::BullmqOfficial;
use self::peers::delayline::{ByFred, ByRedisRs};
use self::peers::node::{Bullmq, InNode, PgBoss};
use self::peers::oxana;
use self::peers::rsmq::{InBatches, Singly};
use self::rounds::Limits;

/// Measures Delayline and other queues on private servers, on this machine
///
/// Each queue has a separate server, with the same settings. Compare only figures of one run:
/// machines differ, and one machine varies over time.
#[derive(Parser)]
struct Args {
    /// What to measure (default: everything)
    what: Vec<Name>,

    /// Number of messages for each figure; of slow queues fewer
    #[arg(long, default_value_t = 100_000)]
    messages: usize,

    /// Number of rounds, whose medians are printed
    #[arg(long, default_value_t = 3)]
    rounds: usize,

    /// End after this many minutes; figures may then be of fewer rounds
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=1_440))]
    minutes: u64,

    /// Write a page and the figures as JSON to this directory
    #[arg(long)]
    save: Option<PathBuf>,
}

/// Something to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Name {
    /// By the `redis` crate
    Delayline,
    /// By the `fred` crate
    DelaylineFred,
    /// rsmq_async, received in batches of 100
    RsmqAsync,
    /// rsmq_async, received one by one
    RsmqAsyncSingly,
    /// The crate apalis-redis
    ApalisRedis,
    /// The crate oxana
    Oxana,
    /// oxana with a worker of batches
    OxanaBatches,
    /// BullMQ's Rust crate
    BullmqOfficial,
    /// BullMQ itself, in Node.js; needs node and npm
    Bullmq,
    /// pg-boss, on PostgreSQL; needs node, npm and PostgreSQL
    PgBoss,
    /// ZADD, ZRANGEBYSCORE, ZREM
    Zset,
    /// Like `zset`, with a script that pops
    Pop,
    /// LPUSH, BLPOP
    Blocking,
    /// A string for each message, and a sorted set
    Strings,
}

impl Name {
    async fn measure(self, messages: usize) -> Result<Figures> {
        match self {
            Self::Delayline => measure::<ByRedisRs>(messages).await,
            Self::DelaylineFred => measure::<ByFred>(messages).await,
            Self::RsmqAsync => measure::<InBatches>(messages).await,
            Self::RsmqAsyncSingly => measure::<Singly>(messages).await,
            Self::ApalisRedis => measure::<ApalisRedis>(messages).await,
            Self::Oxana => measure::<oxana::Singly>(messages).await,
            Self::OxanaBatches => measure::<oxana::InBatches>(messages).await,
            Self::BullmqOfficial => measure::<BullmqOfficial>(messages).await,
            Self::Bullmq => measure::<InNode<Bullmq>>(messages).await,
            Self::PgBoss => measure::<InNode<PgBoss>>(messages).await,
            Self::Zset => measure::<Polled>(messages).await,
            Self::Pop => measure::<Popped>(messages).await,
            Self::Blocking => measure::<Blocking>(messages).await,
            Self::Strings => measure::<Strings>(messages).await,
        }
    }
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("peers: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<()> {
    ensure!(args.messages >= 10, "--messages is {}; it must be at least 10", args.messages);
    ensure!(args.rounds >= 1, "--rounds is 0; it must be at least 1");
    if let Some(directory) = &args.save {
        // Fails now rather than after all measurements.
        fs::create_dir_all(directory)
            .with_context(|| format!("writing to {}", directory.display()))?;
    }
    let runtime = Builder::new_multi_thread().enable_all().build()?;
    let names = if args.what.is_empty() { Name::value_variants() } else { &args.what };
    let circumstances = page::circumstances(names)?;
    println!("{circumstances}\n");
    let limits = Limits { all: Duration::from_secs(60 * args.minutes), each: LONGEST_ROUND };
    let messages = args.messages;
    let measure = |name: Name| name.measure(messages);
    let played = runtime.block_on(rounds::play(names, args.rounds, limits, measure));
    // A task that hangs must not hold up the results.
    runtime.shutdown_background();
    let page = Page { circumstances, played };
    println!("{page}");
    if let Some(directory) = &args.save {
        fs::write(directory.join("peers.md"), page.to_markdown())?;
        fs::write(directory.join("peers.json"), plot::in_lines(&page.to_json()))?;
        if let Some(table) = page.to_plot() {
            plot::draw(&table, &directory.join("peers.svg"))?;
        }
    }
    let rows = &page.played.rows;
    let has_none = |name: &&Name| !rows.iter().any(|(measured, _)| measured == *name);
    let missing = names.iter().filter(has_none).map(|name| facts::of(*name).title);
    let missing: Vec<_> = missing.collect();
    ensure!(missing.is_empty(), "there are no figures of {}", missing.join(", "));
    Ok(())
}

/// Maximum time of a round: several times as long as the slowest queue takes.
const LONGEST_ROUND: Duration = Duration::from_secs(120);
