//! `delayline stats`.

use std::io::IsTerminal as _;
use std::process::ExitCode;
use std::time::Duration;

use delayline::{Bytes, Queue, Raw};
use serde_json::json;
use tokio::time::{MissedTickBehavior, interval};

use crate::args::{Stats, Target};
use crate::failure::Failure;
use crate::print::{json_line, one_line, write};
use crate::time::{duration, rfc3339};

pub(crate) async fn run(target: &Target, args: Stats) -> Result<ExitCode, Failure> {
    let period = args.watch.as_deref().map(duration).transpose().map_err(Failure::usage)?;
    if period.is_some_and(|period| period < SHORTEST_PERIOD) {
        return Err(Failure::usage("--watch takes 100ms at least"));
    }
    let queue = target.open().await?;
    let name = one_line(target.queue()?);
    let Some(period) = period else {
        show(&queue, &name, args.json, View::Table).await?;
        return Ok(ExitCode::SUCCESS);
    };
    let view = if std::io::stdout().is_terminal() { View::Screen } else { View::Line };
    let mut ticks = interval(period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = ticks.tick() => show(&queue, &name, args.json, view).await?,
            _ = tokio::signal::ctrl_c() => return Ok(ExitCode::SUCCESS),
        }
    }
}

#[derive(Clone, Copy)]
enum View {
    Table,
    /// The same again and again in one place.
    Screen,
    /// One line each time.
    Line,
}

async fn show(
    queue: &Queue<Bytes, Raw>,
    name: &str,
    as_json: bool,
    view: View,
) -> Result<(), Failure> {
    let stats = queue.stats().await?;
    let earliest_due = stats.earliest_due.map(rfc3339);
    let counts = [
        ("scheduled", stats.scheduled),
        ("ready", stats.ready),
        ("leased", stats.leased),
        ("dead", stats.dead),
        ("enqueued_total", stats.enqueued_total),
        ("acked_total", stats.acked_total),
        ("cancelled_total", stats.cancelled_total),
        ("purged_total", stats.purged_total),
        ("expired_total", stats.expired_total),
    ];
    if as_json {
        let mut object = json!({
            "queue": name,
            "paused": stats.paused,
            "earliest_due": earliest_due,
        });
        for (name, count) in counts {
            object[name] = json!(count);
        }
        return write(&json_line(&object));
    }
    if let View::Line = view {
        let counts = counts.map(|(name, count)| format!("{name} {count}"));
        return write(&format!("{}\n", counts.join("  ")));
    }
    // To the upper left, and nothing below.
    let mut table = if let View::Screen = view { "\u{1b}[H\u{1b}[J" } else { "" }.to_owned();
    table += &format!("{:<16}{name}\n", "queue");
    for (name, count) in counts {
        let name = name.replace('_', " ");
        table += &format!("{name:<16}{count:>12}\n");
    }
    let due = earliest_due.unwrap_or_else(|| "-".to_owned());
    table += &format!("{:<16}{due}\n", "earliest due");
    table += &format!("{:<16}{}\n", "paused", if stats.paused { "yes" } else { "no" });
    write(&table)
}

const SHORTEST_PERIOD: Duration = Duration::from_millis(100);
