//! `delayline top`.

mod keys;
mod rates;

use std::io::IsTerminal as _;
use std::ops::ControlFlow;
use std::process::ExitCode;
use std::time::Duration;

use delayline::codec::Raw;
use delayline::{Bytes, Connection, Error, ErrorClass, Queue};
use delayline_json::harmless_line;
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

use self::keys::Keys;
use self::rates::{Counted, Row};
use super::durations::duration_of;
use crate::args::{Target, Top};
use crate::failure::{Failure, SOME_BAD};
use crate::print::{columns, json_line};
use crate::screen::Screen;
use crate::signals::Signals;

pub(crate) async fn run(target: &Target, args: Top) -> Result<ExitCode, Failure> {
    let interval = duration_of("--interval", &args.interval)?;
    if interval < SHORTEST {
        let why = format!("the interval {} is shorter than 200ms", args.interval);
        return Err(Failure::usage(why).about("--interval"));
    }
    let Found { mut queues, left_out, incomplete } = open(target).await?;
    let code = if incomplete { ExitCode::from(SOME_BAD) } else { ExitCode::SUCCESS };
    if queues.is_empty() {
        eprintln!("no queues");
        return Ok(code);
    }
    let mut signals = Signals::listen()?;
    let draws = !args.json && !args.once && std::io::stdout().is_terminal();
    let mut keys = if draws { Keys::listen() } else { Keys::none() };
    let mut ticks = tokio::time::interval(interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut before: Vec<Option<Counted>> = vec![None; queues.len()];
    let (mut is_first, mut screen) = (true, Screen::default());
    loop {
        let counts = tokio::select! {
            biased;
            () = signals.next() => return Ok(ExitCode::SUCCESS),
            () = keys.quit() => return Ok(ExitCode::SUCCESS),
            counts = async { ticks.tick().await; count(&mut queues).await } => counts,
        };
        let names = queues.iter().map(|queue| queue.name.as_str());
        let rows = names.zip(&counts).zip(&before);
        let mut rows: Vec<Row> =
            rows.map(|((name, now), then)| Row::new(name, then, now)).collect();
        before = counts.into_iter().map(Result::ok).collect();
        // One table has rates, so it needs two counts.
        if std::mem::take(&mut is_first) && !draws {
            continue;
        }
        rows.sort_by_cached_key(Row::order);
        let size = draws.then(Screen::size);
        let text = if args.json {
            rows.iter().map(|row| json_line(&row.json())).collect()
        } else {
            table(&rows, left_out, size)
        };
        let next;
        (screen, next) = tokio::select! {
            biased;
            () = signals.next() => return Ok(ExitCode::SUCCESS),
            () = keys.quit() => return Ok(ExitCode::SUCCESS),
            drawn = screen.draw(text, size) => drawn?,
        };
        if next == ControlFlow::Break(()) {
            return Ok(ExitCode::SUCCESS);
        }
        if args.once {
            return Ok(code);
        }
    }
}

/// A queue of the table.
#[derive(Clone)]
struct Listed {
    name: String,
    place: Place,
}

#[derive(Clone)]
enum Place {
    Open(Queue<Bytes, Raw>),
    /// The queue could not be opened yet.
    On(Connection),
}

impl Listed {
    /// Counts the queue, and opens it first if it is not open; the error is in words.
    async fn count(mut self) -> (Self, Result<Counted, String>) {
        let queue = match &self.place {
            Place::Open(queue) => queue.clone(),
            Place::On(connection) => match open_one(connection, &self.name).await {
                Ok(queue) => queue,
                Err(error) => return (self, Err(error.to_string())),
            },
        };
        let count = Counted::read(&queue).await;
        self.place = Place::Open(queue);
        (self, count)
    }
}

/// The queues that are shown.
struct Found {
    queues: Vec<Listed>,
    left_out: usize,
    /// Whether there may be others, whose names could not be read.
    incomplete: bool,
}

/// The queue of the target, or all that there are.
async fn open(target: &Target) -> Result<Found, Failure> {
    if target.queue.is_some() {
        let queue = target.open_known().await?.patience(PATIENCE);
        let queue = Listed { name: target.queue()?.to_owned(), place: Place::Open(queue) };
        return Ok(Found { queues: vec![queue], left_out: 0, incomplete: false });
    }
    let connection = target.connection().await?;
    let found = connection.queues_within(MOST_KEYS).await?;
    if let Some(error) = &found.failure {
        eprintln!("delayline: some queues are missing: {}", harmless_line(&error.to_string()));
    } else if !found.complete {
        eprintln!("delayline: some queues are missing: the server has more keys than are read");
    }
    let mut queues = Vec::new();
    let left_out = found.names.len().saturating_sub(MOST_QUEUES);
    if left_out > 0 {
        eprintln!("delayline: {left_out} queues are left out; --queue shows one");
    }
    for name in found.names.iter().take(MOST_QUEUES) {
        let name = name.to_string();
        let place = match open_one(&connection, &name).await {
            Ok(queue) => Place::Open(queue),
            // It concerns this queue only.
            Err(error) if error.class() == ErrorClass::Rejected => Place::On(connection.clone()),
            Err(error) => return Err(error.into()),
        };
        queues.push(Listed { name, place });
    }
    Ok(Found { queues, left_out, incomplete: !found.complete })
}

async fn open_one(connection: &Connection, name: &str) -> Result<Queue<Bytes, Raw>, Error> {
    Ok(connection.queue(name).await?.codec(Raw).patience(PATIENCE))
}

/// Counts all queues at the same time. The counts are in the order of the queues.
async fn count(queues: &mut [Listed]) -> Vec<Result<Counted, String>> {
    let mut tasks = JoinSet::new();
    for (index, queue) in queues.iter().cloned().enumerate() {
        tasks.spawn(async move { (index, queue.count().await) });
    }
    let mut counts = vec![Err("not counted".to_owned()); queues.len()];
    while let Some(done) = tasks.join_next().await {
        if let Ok((index, (queue, count))) = done
            && let (Some(listed), Some(slot)) = (queues.get_mut(index), counts.get_mut(index))
        {
            (*listed, *slot) = (queue, count);
        }
    }
    counts
}

/// The table, or as much of it as fits on a screen of this size.
fn table(rows: &[Row], left_out: usize, size: Option<(u16, u16)>) -> String {
    let text = columns(Row::HEADS, rows.iter().map(Row::cells));
    let lines: Vec<&str> = text.lines().collect();
    let shown = size.map_or(lines.len(), |size| Screen::fitting(size, &lines, left_out > 0));
    let mut text: String = lines.iter().take(shown).map(|line| format!("{line}\n")).collect();
    // The first line has the heads.
    let more = left_out + rows.len() - shown.saturating_sub(1);
    if more > 0 {
        text += &format!("and {more} more\n");
    }
    text
}

const SHORTEST: Duration = Duration::from_millis(200);

/// How long a count is repeated while the server is unreachable.
const PATIENCE: Duration = Duration::from_secs(2);

const MOST_QUEUES: usize = 500;

/// Keys of the server that are read to find queues.
const MOST_KEYS: u64 = 10_000_000;
