//! `delayline dead`: dead letters.

mod filter;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Subcommand;
use delayline::{Bytes, MessageId, Purged, Queue, Raw, Redriven, Status};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use tokio::time::{Instant, sleep_until};

use self::filter::Filter;
use super::change::ids_of;
use super::list::show;
use crate::args::Target;
use crate::confirm::confirm;
use crate::failure::{Failure, SOME_BAD};
use crate::print::{json_line, write};
use crate::time::duration;

/// Looks after dead letters: messages that failed or crashed too often, were rejected, expired, or
/// cannot be read.
#[derive(clap::Args)]
pub(crate) struct Dead {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// List dead letters, the oldest death first
    #[command(after_help = "Example:\n  delayline dead list --reason rejected --error timeout")]
    List {
        #[command(flatten)]
        filter: Filter,
        /// How many at the most
        #[arg(long, value_name = "N", default_value_t = 100)]
        limit: usize,
        /// Print a JSON object a line
        #[arg(long)]
        json: bool,
    },
    /// Let dead letters live again: due at once, with failures and crashes counted from 0
    #[command(after_help = "\
Examples:
  delayline dead redrive order-1234
  delayline dead redrive --all --error 'connection refused' --rate 50 --yes")]
    Redrive {
        #[command(flatten)]
        which: Which,
        /// How long from now they are due
        #[arg(long, value_name = "DURATION", default_value = "0s")]
        delay: String,
    },
    /// Delete dead letters for good
    #[command(after_help = "\
Examples:
  delayline dead purge order-1234 --yes
  delayline dead purge --all --dead-before 30d --dry-run")]
    Purge {
        #[command(flatten)]
        which: Which,
    },
}

/// Which dead letters, and how fast.
#[derive(clap::Args)]
struct Which {
    /// The ids
    #[arg(value_name = "ID", required_unless_present_any = ["all", "file"])]
    ids: Vec<String>,

    /// File with an id a line; - is stdin
    #[arg(long, value_name = "PATH", conflicts_with_all = ["ids", "all"])]
    file: Option<PathBuf>,

    /// All that the filters let through
    #[arg(long, conflicts_with = "ids")]
    all: bool,

    #[command(flatten)]
    filter: Filter,

    /// How many at the most
    #[arg(long, value_name = "N", requires = "all")]
    limit: Option<u64>,

    /// How many a second at the most
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    rate: Option<u32>,

    /// Only say how many it would be
    #[arg(long, conflicts_with = "yes")]
    dry_run: bool,

    /// Do not ask
    #[arg(long)]
    yes: bool,

    /// Print the counts as JSON
    #[arg(long)]
    json: bool,
}

/// What is done to dead letters.
#[derive(Clone, Copy)]
enum Deed {
    Redrive(Duration),
    Purge,
}

pub(crate) async fn run(target: &Target, args: Dead) -> Result<ExitCode, Failure> {
    match args.verb {
        Verb::List { filter, limit, json } => list(target, &filter, limit, json).await,
        Verb::Redrive { which, delay } => {
            let delay = duration(&delay).map_err(Failure::usage)?;
            change(target, which, Deed::Redrive(delay)).await
        }
        Verb::Purge { which } => change(target, which, Deed::Purge).await,
    }
}

async fn list(
    target: &Target,
    filter: &Filter,
    limit: usize,
    json: bool,
) -> Result<ExitCode, Failure> {
    let filter = filter.read()?;
    let queue = target.open().await?;
    let mut listing = queue.list(Status::Dead);
    let mut left = limit;
    while left > 0 {
        let Some(mut page) = listing.next_page().await? else { break };
        page.retain(|info| filter.passes(info));
        page.truncate(left);
        left -= page.len();
        show(&page, json)?;
    }
    if left == limit {
        eprintln!("none");
    }
    Ok(ExitCode::SUCCESS)
}

async fn change(target: &Target, which: Which, deed: Deed) -> Result<ExitCode, Failure> {
    let filter = which.filter.read()?;
    let ids = match &which.file {
        Some(path) => Some(ids_of(path)?),
        None => (!which.all).then(|| which.ids.clone()),
    };
    if ids.is_some() && !which.filter.is_empty() {
        return Err(Failure::usage("filters go with --all"));
    }
    let queue = target.open().await?;
    // What dies from now on is not meant.
    let chosen = match ids {
        Some(ids) => ids
            .iter()
            .map(|id| id.parse())
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error: delayline::Violation| Failure::usage(error.to_string()))?,
        None => choose(&queue, &filter, which.limit.unwrap_or(u64::MAX)).await?,
    };
    if which.dry_run {
        eprintln!("it would {}", deed.on(chosen.len()));
        return counted(&which, deed, 0, chosen.len(), true);
    }
    if which.all || which.file.is_some() || matches!(deed, Deed::Purge) {
        confirm(&deed.on(chosen.len()), which.yes)?;
    }
    let (mut done, mut left_out) = (0, 0);
    let bar = progress(chosen.len());
    let mut next = Instant::now();
    for chunk in chosen.chunks(chunk_size(which.rate)) {
        sleep_until(next).await;
        let results = deed.apply(&queue, chunk).await;
        let results = results.map_err(|error| {
            bar.abandon();
            Failure::from(error).hint("some are done; the same command does the rest")
        })?;
        done += results.iter().filter(|done| **done).count();
        left_out += results.iter().filter(|done| !**done).count();
        bar.inc(u64::try_from(chunk.len()).unwrap_or(0));
        if let Some(rate) = which.rate {
            let chunk = u32::try_from(chunk.len()).unwrap_or(u32::MAX);
            next += Duration::from_secs(1).saturating_mul(chunk) / rate;
        }
    }
    bar.finish_and_clear();
    counted(&which, deed, done, left_out, false)
}

/// The ids of the dead letters that a filter lets through, the oldest death first.
async fn choose(
    queue: &Queue<Bytes, Raw>,
    filter: &filter::Sieve,
    limit: u64,
) -> Result<Vec<MessageId>, Failure> {
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let mut listing = queue.list(Status::Dead);
    let mut chosen = Vec::new();
    while chosen.len() < limit {
        let Some(page) = listing.next_page().await? else { break };
        chosen.extend(page.into_iter().filter(|info| filter.passes(info)).map(|info| info.id));
    }
    chosen.truncate(limit);
    Ok(chosen)
}

fn counted(
    which: &Which,
    deed: Deed,
    done: usize,
    left_out: usize,
    dry_run: bool,
) -> Result<ExitCode, Failure> {
    let name = deed.past();
    if which.json {
        let mut counts = json!({ "left_out": left_out });
        counts[name] = json!(done);
        if dry_run {
            counts = json!({ "would_be": left_out });
        }
        write(&json_line(&counts))?;
    } else if !dry_run {
        eprintln!("{name} {done}, left out {left_out}");
    }
    let missed = !dry_run && !which.all && left_out > 0;
    Ok(if missed { ExitCode::from(SOME_BAD) } else { ExitCode::SUCCESS })
}

impl Deed {
    /// Answers id by id whether it was done.
    async fn apply(
        self,
        queue: &Queue<Bytes, Raw>,
        ids: &[MessageId],
    ) -> Result<Vec<bool>, delayline::Error> {
        let ids = ids.iter().cloned();
        Ok(match self {
            Self::Redrive(delay) => {
                let results = queue.redrive_in(delay, ids).await?;
                results.iter().map(|result| matches!(result, Redriven::Done { .. })).collect()
            }
            Self::Purge => {
                let results = queue.purge(ids).await?;
                results.iter().map(|result| *result == Purged::Purged).collect()
            }
        })
    }

    /// In words, on so many dead letters.
    fn on(self, count: usize) -> String {
        match self {
            Self::Redrive(_) => format!("redrive {count} dead letters"),
            Self::Purge => format!("delete {count} dead letters for good"),
        }
    }

    const fn past(self) -> &'static str {
        match self {
            Self::Redrive(_) => "redriven",
            Self::Purge => "purged",
        }
    }
}

/// A rate is kept in steps of a tenth of a second.
fn chunk_size(rate: Option<u32>) -> usize {
    let chunk = rate.map_or(MAX_CHUNK, |rate| rate.div_ceil(10).min(MAX_CHUNK));
    usize::try_from(chunk).unwrap_or(1)
}

/// A bar on stderr, if that is a terminal.
pub(crate) fn progress(total: usize) -> ProgressBar {
    let style = ProgressStyle::with_template("{wide_bar} {pos}/{len} {per_sec} {eta}");
    let bar = ProgressBar::new(u64::try_from(total).unwrap_or(u64::MAX));
    match style {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

const MAX_CHUNK: u32 = 100;
