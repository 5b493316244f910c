//! `delayline list`.

use std::process::ExitCode;
use std::str::FromStr;

use clap::ValueEnum;
use delayline::{MessageInfo, Position, Status, Timestamp};
use serde_json::Value;

use crate::args::Target;
use crate::failure::Failure;
use crate::messages::{ROW_HEAD, info_json, row};
use crate::print::{json_line, table, write};

/// Lists the messages of one state, in the order in which they come up.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  delayline list --state ready
  delayline list --state scheduled --limit 1000 --json
  delayline list --state dead --after 5.1796112000000.42")]
pub(crate) struct List {
    /// Which messages
    #[arg(long, value_enum, default_value_t = State::Scheduled)]
    state: State,

    /// How many at the most
    #[arg(long, value_name = "N", default_value_t = 100, conflicts_with = "all")]
    limit: usize,

    /// All of them
    #[arg(long)]
    all: bool,

    /// Go on where another list of the same state has ended: the cursor that it printed
    #[arg(long, value_name = "CURSOR")]
    after: Option<Cursor>,

    /// Print a JSON object a line; the last one holds the cursor if there is more
    #[arg(long)]
    json: bool,
}

/// A state of live messages.
#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum State {
    /// Not due yet
    Scheduled,
    /// Due, and waiting for a worker
    Ready,
    /// With a worker
    Leased,
    /// Dead letters
    Dead,
}

/// A position in a list, as text.
#[derive(Clone, Copy)]
pub(crate) struct Cursor(Position);

pub(crate) async fn run(target: &Target, args: List) -> Result<ExitCode, Failure> {
    let queue = target.open().await?;
    let limit = if args.all { usize::MAX } else { args.limit };
    let mut listing = queue.list(args.state.into());
    if let Some(Cursor(position)) = args.after {
        listing = listing.after(position);
    }
    let mut left = limit;
    while left > 0 {
        listing = listing.page_size(left.min(PAGE));
        let Some(page) = listing.next_page().await? else { break };
        left = left.saturating_sub(page.len());
        show(&page, args.json)?;
    }
    if let Some(position) = listing.position() {
        let cursor = Cursor(position).to_string();
        if args.json {
            write(&json_line(&serde_json::json!({ "after": cursor })))?;
        } else {
            eprintln!("there is more: --after {cursor}");
        }
    } else if left == limit {
        eprintln!("none");
    }
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn show(page: &[MessageInfo], json: bool) -> Result<(), Failure> {
    if json {
        let lines = page.iter().map(|info| json_line(&Value::Object(info_json(info))));
        write(&lines.collect::<String>())
    } else {
        write(&table(&ROW_HEAD, page.iter().map(row)))
    }
}

impl From<State> for Status {
    fn from(state: State) -> Self {
        match state {
            State::Scheduled => Self::Scheduled,
            State::Ready => Self::Ready,
            State::Leased => Self::Leased,
            State::Dead => Self::Dead,
        }
    }
}

impl std::fmt::Display for Cursor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Position { index, instant, sequence } = self.0;
        write!(f, "{index}.{}.{sequence}", instant.as_ms())
    }
}

impl FromStr for Cursor {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut parts = text.splitn(3, '.');
        let mut next = || parts.next().and_then(|part| part.parse::<u64>().ok());
        let position = next().zip(next()).zip(next()).and_then(|((index, instant), sequence)| {
            let index = u8::try_from(index).ok()?;
            Some(Position { index, instant: Timestamp::from_ms(instant).ok()?, sequence })
        });
        position.map(Self).ok_or_else(|| "not a cursor that a list has printed".to_owned())
    }
}

const PAGE: usize = 100;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursors_come_back_as_they_were() {
        for text in ["0.0.0", "5.1796112000000.42", "4.253402300799999.18446744073709551615"] {
            assert_eq!(text.parse::<Cursor>().map(|cursor| cursor.to_string()).unwrap(), text);
        }
        for text in ["", "1", "1.2", "a.b.c", "256.0.0", "0.253402300800000.0", "0.0.0.0", "-1.0.0"]
        {
            assert!(text.parse::<Cursor>().is_err(), "{text}");
        }
    }
}
