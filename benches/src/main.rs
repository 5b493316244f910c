//! Measures whole systems.

mod backlog;
mod bursts;
mod cost;
mod drivers;
mod durable;
mod floor;
mod groups;
mod http;
mod idle;
mod instructions;
mod lateness;
mod limits;
mod machine;
mod many_queues;
mod memory;
mod pull;
mod scale;
mod schedules;
mod shards;
mod sqs;
mod table;
mod throughput;
mod transport;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use clap::{Parser, ValueEnum};
use delayline_benches::plot;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};
use tokio::runtime::Builder;

use self::table::Table;

/// Measures Delayline on private servers, on this machine
///
/// Each subject has its own servers. Compare only figures of one run: machines differ, and one
/// machine varies over time.
#[derive(Parser)]
struct Args {
    /// What to measure (default: everything)
    what: Vec<Subject>,

    /// Approximate number of messages for each figure
    #[arg(long, default_value_t = 100_000, value_parser = at_least_100)]
    messages: usize,

    /// Number of messages that become due at once
    #[arg(long, default_value_t = 1_000_000, value_parser = at_least_100)]
    burst: usize,

    /// Number of messages of the largest backlog; 10000000 needs 4 GB
    #[arg(long, default_value_t = 1_000_000, value_parser = at_least_1000)]
    backlog: usize,

    /// Write a page with tables, plots and the figures as JSON to this directory
    #[arg(long)]
    save: Option<PathBuf>,

    /// Compare `instructions` with the figures in this directory; fails if one has grown by 2 %
    #[arg(long, value_name = "DIRECTORY", conflicts_with_all = ["save", "redraw"])]
    compare: Option<PathBuf>,

    /// Measure nothing: draw the plots anew from the `figures.json` in this directory
    #[arg(long, value_name = "DIRECTORY", conflicts_with_all = ["what", "save"])]
    redraw: Option<PathBuf>,
}

/// Something to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Subject {
    /// Processor time of the server for enqueue, claim and ack of a message
    Cost,
    /// Bytes in the server for a waiting and for a leased message
    Memory,
    /// Messages per second: sent in bulk and one by one, and handled by a worker
    Throughput,
    /// Messages per second with and without the confirmation of a replica
    Durable,
    /// How late lone messages are handled on an idle server, with up to 10^6 others waiting
    LatenessIdle,
    /// How late messages are handled under 5,000 a second
    LatenessLoaded,
    /// Duration of the longest script when very many messages become due, or leases end, at once
    Bursts,
    /// Costs of a message while up to 10^7 others wait
    Backlog,
    /// Processor time for a message while one worker has up to 1,000 queues
    ManyQueues,
    /// Commands per second of a worker without work
    Idle,
    /// How exactly five workers together keep a rate, and how much of it they use
    Limits,
    /// Costs of messages with groups, and how evenly and late they are delivered; not part of
    /// everything
    Groups,
    /// Costs of six shards on three nodes, compared with one queue; not part of everything
    Shards,
    /// How late recurring messages are handled, and the costs of schedules; not part of everything
    Schedules,
    /// Claims and acks over HTTP beside the library's; lateness over a long poll, and the memory of
    /// polls that wait
    Pull,
    /// Sends, and receives with deletions, over the wire of SQS and over the pull API; not part of
    /// everything
    Sqs,
    /// Instructions of the server for each operation; needs valgrind, and is not part of everything
    Instructions,
    /// Calls and memory with up to 10^7 messages, 10^4 queues and 5,000 workers; not part of
    /// everything
    Scale,
    /// Client costs of a queue behind sentinels and in a cluster, and the time of a failover; not
    /// part of everything
    Topologies,
    /// Comparison of redis-rs and fred: the page "Which driver?"; not part of everything
    Drivers,
}

const NEEDS_SAVE: &str = "`drivers` writes a page: give --save";

fn at_least_100(text: &str) -> Result<usize, String> {
    at_least(100, text)
}

fn at_least_1000(text: &str) -> Result<usize, String> {
    at_least(1000, text)
}

fn at_least(least: usize, text: &str) -> Result<usize, String> {
    let number = text.parse().map_err(|error| format!("{error}"))?;
    if number < least { Err(format!("it must be at least {least}")) } else { Ok(number) }
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<()> {
    if let Some(directory) = &args.redraw {
        return redraw(directory).with_context(|| format!("redrawing {}", directory.display()));
    }
    // Fails now rather than after a quarter of an hour.
    match &args.save {
        Some(directory) => fs::create_dir_all(directory)
            .with_context(|| format!("writing to {}", directory.display()))?,
        None if args.what.contains(&Subject::Drivers) => {
            bail!(NEEDS_SAVE);
        }
        None => {}
    }
    let runtime = Builder::new_multi_thread().enable_all().build()?;
    let circumstances = machine::circumstances()?;
    if let Some(directory) = &args.compare {
        ensure!(args.what == [Subject::Instructions], "--compare is for `instructions`");
        let hidden = ProgressBar::hidden();
        return runtime.block_on(instructions::compare(directory, &circumstances, &hidden));
    }
    println!("{circumstances}\n");
    let apart = [
        Subject::Drivers,
        Subject::Topologies,
        Subject::Instructions,
        Subject::Schedules,
        Subject::Groups,
        Subject::Shards,
        Subject::Sqs,
        Subject::Scale,
    ];
    let all = Subject::value_variants().iter().filter(|subject| !apart.contains(subject));
    let all: Vec<_> = all.copied().collect();
    let subjects = if args.what.is_empty() { &all } else { &args.what };
    let progress = ProgressBar::new(u64::try_from(subjects.len())?);
    progress.set_style(ProgressStyle::with_template("{bar:20} {pos}/{len} {elapsed} {msg}")?);
    progress.enable_steady_tick(Duration::from_millis(250));
    let mut tables: Vec<Table> = Vec::new();
    for subject in subjects {
        if *subject == Subject::Drivers {
            let directory = args.save.as_deref().context(NEEDS_SAVE)?;
            let page = drivers::write_page(directory, &circumstances, args.messages, &progress);
            runtime.block_on(page)?;
            progress.inc(1);
            continue;
        }
        if *subject == Subject::Topologies {
            let section = runtime.block_on(drivers::topologies(args.messages, &progress))?;
            progress.suspend(|| println!("{section}"));
            progress.inc(1);
            continue;
        }
        for table in runtime.block_on(measure(*subject, args, &progress))? {
            progress.suspend(|| println!("{table}\n"));
            tables.push(table);
        }
        progress.inc(1);
    }
    progress.finish_and_clear();
    if let (Some(directory), false) = (&args.save, tables.is_empty()) {
        save(directory, &title(&args.what), &circumstances, &tables)
            .with_context(|| format!("writing to {}", directory.display()))?;
    }
    Ok(())
}

async fn measure(subject: Subject, args: &Args, progress: &ProgressBar) -> Result<Vec<Table>> {
    let table = match subject {
        Subject::Pull => {
            let mut tables = vec![pull::rates(args.messages, progress).await?];
            tables.extend(pull::idle((args.messages / 500).max(10), progress).await?);
            return Ok(tables);
        }
        Subject::Sqs => return sqs::run(args.messages / 10, progress).await,
        Subject::Cost => return cost::measure(args.messages, progress).await,
        Subject::Memory => memory::measure(args.messages, progress).await,
        Subject::Throughput => throughput::measure(args.messages, progress).await,
        Subject::Durable => durable::measure(args.messages, progress).await,
        Subject::LatenessIdle => lateness::idle((args.messages / 500).max(10), progress).await,
        Subject::LatenessLoaded => {
            let time = Duration::from_millis(u64::try_from(args.messages / 5)?);
            lateness::loaded(time, progress).await
        }
        Subject::Bursts => bursts::measure(args.burst, progress).await,
        Subject::Backlog => backlog::measure(args.messages, args.backlog, progress).await,
        Subject::ManyQueues => many_queues::measure(args.messages / 5, progress).await,
        Subject::Idle => idle::measure(Duration::from_secs(30), progress).await,
        Subject::Limits => {
            let time = Duration::from_secs(u64::try_from(args.messages / 5_000)?.max(1));
            limits::measure(time, progress).await
        }
        Subject::Groups => return groups::measure(args.messages, args.burst, progress).await,
        Subject::Shards => return shards::measure(args.messages, progress).await,
        Subject::Scale => return scale::measure(args.backlog, progress).await,
        Subject::Schedules => return schedules::measure(args.messages, progress).await,
        Subject::Instructions => instructions::measure(progress).await,
        Subject::Drivers | Subject::Topologies => bail!("it is a page, not a table"),
    };
    Ok(vec![table?])
}

/// Returns the title of a page. It names the subjects that were chosen.
fn title(what: &[Subject]) -> String {
    let names = what.iter().filter_map(ValueEnum::to_possible_value);
    let names: Vec<_> = names.map(|it| it.get_name().to_owned()).collect();
    if names.is_empty() {
        "Benchmarks".to_owned()
    } else {
        format!("Benchmarks: {}", names.join(", "))
    }
}

/// Writes the figures and their plots, and a page with all of them.
fn save(directory: &Path, title: &str, circumstances: &str, tables: &[Table]) -> Result<()> {
    save_figures(directory, circumstances, tables)?;
    let sections: Vec<_> = tables.iter().map(Table::to_markdown).collect();
    let page =
        format!("# {title}\n\n{HEAD}```text\n{circumstances}\n```\n\n{}", sections.join("\n"));
    Ok(fs::write(directory.join("README.md"), page)?)
}

/// Writes the figures as JSON, and a plot of each table.
fn save_figures(directory: &Path, circumstances: &str, tables: &[Table]) -> Result<()> {
    let figures: Vec<Value> = tables.iter().map(Table::to_json).collect();
    let report = json!({ "circumstances": circumstances, "tables": figures });
    fs::write(directory.join(FIGURES), plot::in_lines(&report))?;
    redraw(directory)
}

/// Draws the plots of the figures in a directory, and of the comparison with other queues if it
/// exists.
fn redraw(directory: &Path) -> Result<()> {
    let peers = Some(PEERS).filter(|peers| directory.join(peers).exists());
    for report in [FIGURES].into_iter().chain(peers) {
        let report: Value = serde_json::from_str(&fs::read_to_string(directory.join(report))?)?;
        for table in report["tables"].as_array().context("there are no tables")? {
            let name = table["name"].as_str().context("a table has no name")?;
            plot::draw(table, &directory.join(name).with_extension("svg"))?;
        }
    }
    Ok(())
}

const FIGURES: &str = "figures.json";
/// The figures that `cargo xtask bench peers` writes.
const PEERS: &str = "peers.json";

const HEAD: &str = "\
Written by `cargo xtask bench --save DIRECTORY`; the figures are also in [figures.json](figures.json). Compare
only figures of one run: machines differ, and one machine varies over time. This run:

";
