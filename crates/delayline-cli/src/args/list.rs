//! `delayline list`.

use clap::ValueEnum;
use delayline::Status;

/// List messages
///
/// 100 of them unless told: the scheduled ones, then the ready, the leased, the dead. Scheduled and
/// ready ones stand in the order of delivery: by priority, then by due instant.
///
/// What changes its state while the list goes on may be seen twice or not at all.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct List {
    /// Only messages of this state
    #[arg(long, value_enum)]
    pub(crate) state: Option<State>,

    #[command(flatten)]
    pub(crate) paging: Paging,

    /// Print JSON: a line for each page of 100 at most
    #[arg(long)]
    pub(crate) json: bool,
}

/// How much of a list, and from where on.
#[derive(clap::Args)]
pub(crate) struct Paging {
    /// How many messages at most [default: 100]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) limit: Option<u64>,

    /// Go on from where another list has ended
    #[arg(long, value_name = "CURSOR")]
    pub(crate) after: Option<String>,

    /// All messages
    #[arg(long, conflicts_with = "limit")]
    pub(crate) all: bool,
}

/// A state that can be listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
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

impl State {
    /// In the order in which they are listed.
    pub(crate) const ALL: [Self; 4] = [Self::Scheduled, Self::Ready, Self::Leased, Self::Dead];

    pub(crate) fn name(self) -> &'static str {
        Status::from(self).name()
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

impl Paging {
    /// How many messages to list.
    pub(crate) fn most(&self) -> u64 {
        if self.all { u64::MAX } else { self.limit.unwrap_or(DEFAULT_LIMIT) }
    }
}

const DEFAULT_LIMIT: u64 = 100;

const HELP: &str = "\
Examples:
  delayline list
  delayline list --state ready --limit 10
  delayline list --all --json | jq -r '.messages[].id'

If there are more, the cursor for --after is printed on stderr, and with --json it is the field
`next` of the last line (null if there are none). A line of JSON is an object {\"messages\": [...],
\"next\": ...}; bytes that are not UTF-8 stand under id_base64. Exit codes: see `delayline --help`.";
