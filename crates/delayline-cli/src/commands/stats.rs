//! `delayline stats`.

use std::io::IsTerminal as _;
use std::ops::ControlFlow;
use std::process::ExitCode;
use std::time::Duration;

use delayline::admin::Stats;
use delayline::codec::Raw;
use delayline::{Bytes, Queue};
use delayline_json::{self as json, harmless};
use tokio::time::MissedTickBehavior;

use super::durations::duration_of;
use crate::args::{self, Target};
use crate::clock::now;
use crate::failure::Failure;
use crate::print::write;
use crate::screen::Screen;
use crate::signals::Signals;

pub(crate) async fn run(target: &Target, args: args::Stats) -> Result<ExitCode, Failure> {
    let interval = args.watch.as_deref().map(interval).transpose()?;
    let queue = target.open_known().await?;
    let name = target.queue()?;
    match interval {
        Some(interval) => watch(&queue, name, interval, args.json).await?,
        None => {
            let stats = queue.stats().await?;
            write(&if args.json {
                json::stats(name, &stats).to_string() + "\n"
            } else {
                table(name, &stats, |_| true)
            })?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn interval(text: &str) -> Result<Duration, Failure> {
    let interval = duration_of("--watch", text)?;
    if interval < SHORTEST {
        let why = format!("the interval {text} is shorter than 100ms");
        return Err(Failure::usage(why).about("--watch"));
    }
    Ok(interval)
}

/// Prints counts until the process is interrupted or stdout is closed.
async fn watch(
    queue: &Queue<Bytes, Raw>,
    name: &str,
    interval: Duration,
    as_json: bool,
) -> Result<(), Failure> {
    let mut signals = Signals::listen()?;
    let mut ticks = tokio::time::interval(interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let redraw = !as_json && std::io::stdout().is_terminal();
    let mut screen = Screen::default();
    loop {
        let stats = tokio::select! {
            biased;
            () = signals.next() => return Ok(()),
            stats = async { ticks.tick().await; queue.stats().await } => stats?,
        };
        let size = redraw.then(Screen::size);
        let text = if as_json {
            let mut object = json::stats(name, &stats);
            object["at"] = now().to_string().into();
            format!("{object}\n")
        } else if let Some(size) = size {
            fitting(name, &stats, size)
        } else {
            line(&stats)
        };
        let next;
        (screen, next) = tokio::select! {
            biased;
            () = signals.next() => return Ok(()),
            drawn = screen.draw(text, size) => drawn?,
        };
        if next == ControlFlow::Break(()) {
            return Ok(());
        }
    }
}

/// The table, or what fits on the screen: without events that have never happened, and then only
/// its beginning.
fn fitting(queue: &str, stats: &Stats, size: (u16, u16)) -> String {
    let all = table(queue, stats, |_| true);
    let lines: Vec<&str> = all.lines().collect();
    if Screen::fitting(size, &lines, false) == lines.len() {
        return all;
    }
    let short = table(queue, stats, has_happened);
    let lines: Vec<&str> = short.lines().collect();
    let shown = Screen::fitting(size, &lines, false);
    lines.iter().take(shown).map(|line| format!("{line}\n")).collect()
}

/// Whether a count says anything: totals begin with 0.
fn has_happened((name, count): &(&str, u64)) -> bool {
    *count > 0 || !name.ends_with("_total")
}

/// A table of the counts that are wanted.
fn table(queue: &str, stats: &Stats, wanted: impl Fn(&(&str, u64)) -> bool) -> String {
    let mut table = format!("{:<24}{}\n", "queue", harmless(queue));
    for (name, count) in json::counts(stats).into_iter().filter(wanted) {
        let name = name.replace('_', " ");
        table += &format!("{name:<24}{count:>12}\n");
    }
    let due = stats.earliest_due.map_or_else(|| "-".to_owned(), |due| due.to_string());
    table += &format!("{:<24}{due}\n", "earliest due");
    if stats.waiting_groups > 0 {
        table += &format!("{:<24}{:>12}\n", "waiting groups", stats.waiting_groups);
    }
    if let Some(skew) = stats.shard_skew {
        table += &format!("{:<24}{:>12}\n", "shard skew", format!("{} ms", skew.as_ms()));
    }
    table += &format!("{:<24}{}\n", "paused", if stats.paused { "yes" } else { "no" });
    table
}

fn line(stats: &Stats) -> String {
    let counts = json::counts(stats).into_iter().filter(has_happened);
    let counts = counts.map(|(name, count)| format!("{name} {count}")).collect::<Vec<_>>();
    let counts = counts.join("  ");
    let paused = if stats.paused { "  paused" } else { "" };
    format!("{}  {counts}{paused}\n", now())
}

const SHORTEST: Duration = Duration::from_millis(100);
