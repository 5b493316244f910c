//! `delayline cancel`, `reschedule`, `pause` and `resume`.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use delayline::{Bytes, Cancelled, Queue, Raw, Rescheduled};
use serde_json::json;

use crate::args::Target;
use crate::confirm::confirm;
use crate::failure::{Failure, SOME_BAD};
use crate::print::{json_line, one_line, write};
use crate::time::{duration, instant, rfc3339};

/// Takes messages out before they are delivered. A message that is with a worker is flagged: the
/// worker is told, and unless it acks, the message is finished.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  delayline cancel order-1234
  delayline cancel --file paid-orders.txt --yes

The exit code is 1 if an id is unknown; the others are cancelled.")]
pub(crate) struct Cancel {
    /// The ids
    #[arg(value_name = "ID", required_unless_present = "file")]
    ids: Vec<String>,

    /// File with an id a line; - is stdin
    #[arg(long, value_name = "PATH", conflicts_with = "ids")]
    file: Option<PathBuf>,

    /// Do not ask before the ids of a file are cancelled
    #[arg(long)]
    yes: bool,

    /// Print a JSON object a line
    #[arg(long)]
    json: bool,
}

/// Changes when messages are due that no worker has.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  delayline reschedule order-1234 --delay 2h
  delayline reschedule order-1234 --at 2026-12-01T09:00:00+01:00[Europe/Berlin]

The exit code is 1 if a message is unknown, dead (see `delayline dead redrive`) or with a worker; the
others are rescheduled.")]
pub(crate) struct Reschedule {
    /// The ids
    #[arg(required = true, value_name = "ID")]
    ids: Vec<String>,

    /// How long from now they are due: 90s, 30m, 1h30m, 2 days
    #[arg(long, value_name = "DURATION", required_unless_present = "at")]
    delay: Option<String>,

    /// When they are due: 2026-12-01T09:00:00Z, 2026-12-01T09:00:00+01:00[Europe/Berlin]
    #[arg(long, value_name = "INSTANT", conflicts_with = "delay")]
    at: Option<String>,

    /// Print a JSON object a line
    #[arg(long)]
    json: bool,
}

pub(crate) async fn cancel(target: &Target, args: Cancel) -> Result<ExitCode, Failure> {
    let ids = match &args.file {
        Some(path) => ids_of(path)?,
        None => args.ids,
    };
    if args.file.is_some() {
        confirm(&format!("cancel {} messages", ids.len()), args.yes)?;
    }
    let queue = target.open().await?;
    let outcomes = queue.cancel_many(ids.iter().map(String::as_str)).await?;
    let mut missing = false;
    for (id, outcome) in ids.iter().zip(outcomes) {
        let word = match outcome {
            Cancelled::Cancelled => "cancelled",
            Cancelled::InFlight => "in flight",
            Cancelled::NotFound => "not found",
        };
        missing |= outcome == Cancelled::NotFound;
        report(id, word, None, args.json)?;
    }
    Ok(if missing { ExitCode::from(SOME_BAD) } else { ExitCode::SUCCESS })
}

pub(crate) async fn reschedule(target: &Target, args: Reschedule) -> Result<ExitCode, Failure> {
    let when = match (&args.delay, &args.at) {
        (Some(delay), _) => When::In(duration(delay).map_err(Failure::usage)?),
        (None, Some(at)) => When::At(instant(at).map_err(Failure::usage)?),
        (None, None) => return Err(Failure::usage("--delay or --at says when")),
    };
    let queue = target.open().await?;
    let mut refused = false;
    for id in &args.ids {
        let outcome = move_to(&queue, id, &when).await?;
        let (word, due) = match outcome {
            Rescheduled::Done { due } => ("rescheduled", Some(rfc3339(due))),
            Rescheduled::InFlight => ("in flight", None),
            Rescheduled::Dead => ("dead", None),
            Rescheduled::NotFound => ("not found", None),
        };
        refused |= due.is_none();
        report(id, word, due, args.json)?;
    }
    Ok(if refused { ExitCode::from(SOME_BAD) } else { ExitCode::SUCCESS })
}

/// Stops or lets go on the deliveries of a queue.
pub(crate) async fn pause(target: &Target, paused: bool) -> Result<ExitCode, Failure> {
    let queue = target.open().await?;
    let name = one_line(target.queue()?);
    if paused {
        queue.pause().await?;
        eprintln!("{name} is paused: messages are taken in, and none is delivered");
    } else {
        queue.resume().await?;
        eprintln!("{name} delivers");
    }
    Ok(ExitCode::SUCCESS)
}

enum When {
    In(std::time::Duration),
    At(std::time::SystemTime),
}

async fn move_to(
    queue: &Queue<Bytes, Raw>,
    id: &str,
    when: &When,
) -> Result<Rescheduled, delayline::Error> {
    match when {
        When::In(delay) => queue.reschedule_in(id, *delay).await,
        When::At(due) => queue.reschedule_at(id, *due).await,
    }
}

fn report(id: &str, outcome: &str, due: Option<String>, json: bool) -> Result<(), Failure> {
    if json {
        let mut object = json!({"id": id, "outcome": outcome.replace(' ', "_")});
        if let Some(due) = due {
            object["due"] = json!(due);
        }
        return write(&json_line(&object));
    }
    let due = due.map(|due| format!(", due {due}")).unwrap_or_default();
    write(&format!("{}: {outcome}{due}\n", one_line(id)))
}

/// The lines of a file that are not empty.
pub(crate) fn ids_of(path: &Path) -> Result<Vec<String>, Failure> {
    let mut text = String::new();
    let read = if path == Path::new("-") {
        std::io::stdin().lock().read_to_string(&mut text)
    } else {
        std::fs::File::open(path).and_then(|mut file| file.read_to_string(&mut text))
    };
    read.map_err(|error| Failure::usage(format!("{} cannot be read: {error}", path.display())))?;
    let ids = text.lines().map(str::trim_end).filter(|line| !line.is_empty());
    Ok(ids.map(str::to_owned).collect())
}
