//! `delayline dead`.

use std::ffi::OsString;

use clap::{ArgGroup, Subcommand, ValueEnum};
use delayline::DeathReason;

use super::Paging;

/// Look after dead letters
///
/// These are messages that failed or crashed too often, were rejected, or expired.
#[derive(clap::Args)]
pub(crate) struct Dead {
    #[command(subcommand)]
    pub(crate) verb: DeadVerb,
}

#[derive(Subcommand)]
pub(crate) enum DeadVerb {
    List(DeadList),
    Redrive(Redrive),
    Purge(Purge),
}

/// List dead letters, the oldest death first
///
/// 100 of them unless told.
#[derive(clap::Args)]
#[command(after_help = LIST_HELP)]
pub(crate) struct DeadList {
    #[command(flatten)]
    pub(crate) filter: Filter,

    #[command(flatten)]
    pub(crate) paging: Paging,

    /// Print JSON: a line for each page of 100 at most
    #[arg(long)]
    pub(crate) json: bool,
}

/// Send dead letters on their way again
///
/// Their failures and crashes count from 0, they expire no more, and their id, payload, headers and
/// errors stay.
///
/// With --all those are meant that were dead when the command began: one that dies again is left
/// alone. Ctrl-C ends it between two operations and says how far it has come.
#[derive(clap::Args)]
#[command(after_help = REDRIVE_HELP)]
pub(crate) struct Redrive {
    #[command(flatten)]
    pub(crate) selection: Selection,

    /// How many messages a second at most: 1 to 100000; a slow trickle protects the handlers
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) rate: Option<u32>,

    /// How long from now they are due [default: at once]
    #[arg(long, value_name = "DURATION")]
    pub(crate) delay: Option<String>,
}

/// Delete dead letters, for good
///
/// With --all those are meant that were dead when the command began. Ctrl-C ends it between two
/// operations and says how far it has come.
#[derive(clap::Args)]
#[command(after_help = PURGE_HELP)]
pub(crate) struct Purge {
    #[command(flatten)]
    pub(crate) selection: Selection,
}

/// Which dead letters to do something with.
#[derive(clap::Args)]
#[command(group(ArgGroup::new("which").required(true).args(["ids", "all"])))]
pub(crate) struct Selection {
    /// Ids of dead letters
    #[arg(
        conflicts_with_all = ["limit", "reason", "error", "died_before", "died_after"],
        value_name = "ID"
    )]
    pub(crate) ids: Vec<OsString>,

    /// All dead letters that pass the filters
    #[arg(long)]
    pub(crate) all: bool,

    #[command(flatten)]
    pub(crate) filter: Filter,

    /// How many at most, the oldest death first
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) limit: Option<u64>,

    /// Only say how many there are
    #[arg(long)]
    pub(crate) dry_run: bool,

    /// Do not ask; needed unless this is a terminal
    #[arg(long, short)]
    pub(crate) yes: bool,

    /// Print JSON: one line for each id, or with --all one for all
    #[arg(long)]
    pub(crate) json: bool,
}

/// Which dead letters are meant: those that pass all of these.
#[derive(clap::Args)]
pub(crate) struct Filter {
    /// Those that died of this; may be given several times
    #[arg(long, value_enum)]
    pub(crate) reason: Vec<Reason>,

    /// Those whose last error contains this text
    #[arg(long, value_name = "TEXT")]
    pub(crate) error: Option<String>,

    /// Those that died before: an instant, or an age like 2h
    #[arg(long, value_name = "INSTANT|AGE")]
    pub(crate) died_before: Option<String>,

    /// Those that died at or after: an instant, or an age like 2h
    #[arg(long, value_name = "INSTANT|AGE")]
    pub(crate) died_after: Option<String>,
}

/// Why a message is a dead letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Reason {
    /// It failed too often
    #[value(alias = "max_failures")]
    MaxFailures,
    /// Its lease ran out too often
    #[value(alias = "max_crashes")]
    MaxCrashes,
    /// A handler rejected it
    Rejected,
    /// It was not delivered before it expired
    Expired,
    /// What is stored about it is damaged; redrive revives it if its record is whole
    Unreadable,
}

impl From<Reason> for DeathReason {
    fn from(reason: Reason) -> Self {
        match reason {
            Reason::MaxFailures => Self::MaxFailures,
            Reason::MaxCrashes => Self::MaxCrashes,
            Reason::Rejected => Self::Rejected,
            Reason::Expired => Self::Expired,
            Reason::Unreadable => Self::Unreadable,
        }
    }
}

const LIST_HELP: &str = "\
Examples:
  delayline dead list
  delayline dead list --reason max-failures --error 'timed out' --died-after 2h
  delayline dead list --all --json | jq -r '.messages[] | [.id, .last_error] | @tsv'

--died-after 2h means within the last two hours, by the server's clock. Cursor and JSON are those of
`delayline list`. Exit codes: see `delayline --help`.";

const REDRIVE_HELP: &str = "\
Examples:
  delayline dead redrive order-1234
  delayline dead redrive --all --error 'bank is down' --rate 50 --yes
  delayline dead redrive --all --limit 10 --dry-run

Exit code 1 if a message is unknown, not dead, or unreadable (only `purge` helps then), if the
answer at the terminal is no, or after Ctrl-C; what is revived by then stays so. The other exit
codes: see `delayline --help`.";

const PURGE_HELP: &str = "\
Examples:
  delayline dead purge order-1234 --yes
  delayline dead purge --all --reason expired --died-before '7 days' --yes
  delayline dead purge --all --dry-run

Exit code 1 if a message is unknown or not dead, if the answer at the terminal is no, or after
Ctrl-C; what is deleted by then stays so. The other exit codes: see `delayline --help`.";
