//! `delayline stats`.

use std::io::IsTerminal as _;
use std::ops::ControlFlow;
use std::process::ExitCode;
use std::time::Duration;

use console::Term;
use delayline::codec::Raw;
use delayline::{Bytes, Queue};
use delayline_json::{self as json, duration, harmless};
use tokio::time::MissedTickBehavior;

use crate::args::{Stats, Target};
use crate::clock::now;
use crate::failure::Failure;
use crate::print::{write, write_on};
use crate::signals::Signals;

pub(crate) async fn run(target: &Target, args: Stats) -> Result<ExitCode, Failure> {
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
                table(name, &stats)
            })?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn interval(text: &str) -> Result<Duration, Failure> {
    let interval = duration(text).map_err(Failure::usage)?;
    if interval < SHORTEST {
        return Err(Failure::usage(format!("the interval {text} is shorter than 100ms")));
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
    let mut drawn = 0;
    loop {
        let stats = tokio::select! {
            biased;
            () = signals.next() => return Ok(()),
            stats = async { ticks.tick().await; queue.stats().await } => stats?,
        };
        let text = match (as_json, redraw) {
            (true, _) => {
                let mut object = json::stats(name, &stats);
                object["at"] = now().to_string().into();
                format!("{object}\n")
            }
            (false, true) => table(name, &stats),
            (false, false) => line(&stats),
        };
        if redraw {
            // A terminal that cannot do that shows one table below the other.
            let _ = Term::stdout().clear_last_lines(drawn);
            drawn = text.lines().count();
        }
        if write_on(&text)? == ControlFlow::Break(()) {
            return Ok(());
        }
    }
}

fn table(queue: &str, stats: &delayline::admin::Stats) -> String {
    let mut table = format!("{:<24}{}\n", "queue", harmless(queue));
    for (name, count) in json::counts(stats) {
        let name = name.replace('_', " ");
        table += &format!("{name:<24}{count:>12}\n");
    }
    let due = stats.earliest_due.map_or_else(|| "-".to_owned(), |due| due.to_string());
    table += &format!("{:<24}{due}\n", "earliest due");
    table += &format!("{:<24}{}\n", "paused", if stats.paused { "yes" } else { "no" });
    table
}

fn line(stats: &delayline::admin::Stats) -> String {
    // Events that have never happened are left out.
    let counts = json::counts(stats)
        .into_iter()
        .filter(|(name, count)| *count > 0 || !name.ends_with("_total"));
    let counts = counts.map(|(name, count)| format!("{name} {count}")).collect::<Vec<_>>();
    let counts = counts.join("  ");
    let paused = if stats.paused { "  paused" } else { "" };
    format!("{}  {counts}{paused}\n", now())
}

const SHORTEST: Duration = Duration::from_millis(100);
