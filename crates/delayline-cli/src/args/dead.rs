//! `delayline dead`.

use std::ffi::OsString;

use clap::{ArgGroup, Subcommand, ValueEnum};
use delayline::message::{DeathReason, Group};
use delayline_admin::GroupOrder;

use super::Paging;

/// Manage dead letters
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
    Groups(DeadGroups),
    Redrive(Redrive),
    Purge(Purge),
}

/// List dead letters, the oldest death first
///
/// At most 100 by default.
#[derive(clap::Args)]
#[command(after_help = LIST_HELP)]
pub(crate) struct DeadList {
    #[command(flatten)]
    pub(crate) filter: Filter,

    #[command(flatten)]
    pub(crate) paging: Paging,

    /// Print JSON: one line per page of up to 100, or with --all one line per message
    #[arg(long)]
    pub(crate) json: bool,
}

/// Group dead letters by reason and error
///
/// Ignores ids and numbers in errors, so that errors with the same cause are in one group. Reads
/// all matching dead letters.
#[derive(clap::Args)]
#[command(after_help = GROUPS_HELP)]
pub(crate) struct DeadGroups {
    #[command(flatten)]
    pub(crate) filter: Filter,

    /// Which group is printed first
    #[arg(long, value_enum, default_value_t = Order::Largest)]
    pub(crate) order: Order,

    /// Print JSON, one line per group
    #[arg(long)]
    pub(crate) json: bool,
}

/// The order of groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Order {
    /// The group with the latest death
    Newest,
    /// The group with the earliest death
    Oldest,
    /// The group with the most letters
    Largest,
}

impl From<Order> for GroupOrder {
    fn from(order: Order) -> Self {
        match order {
            Order::Newest => Self::Newest,
            Order::Oldest => Self::Oldest,
            Order::Largest => Self::Largest,
        }
    }
}

/// Redrive dead letters: make them due again
///
/// Resets failures and crashes and removes the expiry; keeps id, payload, headers and errors.
///
/// --all means messages that were dead when the command started; messages that die again are left
/// alone. Ctrl-C stops between two operations and reports progress.
#[derive(clap::Args)]
#[command(after_help = REDRIVE_HELP)]
pub(crate) struct Redrive {
    #[command(flatten)]
    pub(crate) selection: Selection,

    /// Maximum messages per second: 1 to 100000; a low rate protects the handlers
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) rate: Option<u32>,

    /// Delay before they are due [default: at once]
    #[arg(long, value_name = "DURATION")]
    pub(crate) delay: Option<String>,
}

/// Delete dead letters permanently
///
/// --all means messages that were dead when the command started. Ctrl-C stops between two
/// operations and reports progress.
#[derive(clap::Args)]
#[command(after_help = PURGE_HELP)]
pub(crate) struct Purge {
    #[command(flatten)]
    pub(crate) selection: Selection,
}

/// The dead letters to redrive or purge.
#[derive(clap::Args)]
#[command(group(ArgGroup::new("which").required(true).args(["ids", "all"])))]
pub(crate) struct Selection {
    /// Ids of dead letters
    #[arg(
        conflicts_with_all = [
            "limit", "reason", "error", "error_like", "group", "died_before", "died_after"
        ],
        value_name = "ID"
    )]
    pub(crate) ids: Vec<OsString>,

    /// All dead letters that match the filters
    #[arg(long)]
    pub(crate) all: bool,

    #[command(flatten)]
    pub(crate) filter: Filter,

    /// Maximum number, oldest death first
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) limit: Option<u64>,

    /// Only print the count
    #[arg(long)]
    pub(crate) dry_run: bool,

    /// Skip confirmation; required without a terminal
    #[arg(long, short)]
    pub(crate) yes: bool,

    /// Print JSON: one line per id, or a single line with --all
    #[arg(long)]
    pub(crate) json: bool,
}

/// Conditions that each dead letter must meet.
#[derive(clap::Args)]
pub(crate) struct Filter {
    /// Only with this reason; repeatable
    #[arg(long, value_enum)]
    pub(crate) reason: Vec<Reason>,

    /// Only if the last error contains this text
    #[arg(long, value_name = "TEXT")]
    pub(crate) error: Option<String>,

    /// Only if the last error equals this one, apart from ids and numbers; empty for no error
    #[arg(long, value_name = "TEXT")]
    pub(crate) error_like: Option<String>,

    /// Only if they have this group
    #[arg(long, value_name = "NAME", value_parser = |name: &str| Group::new(name))]
    pub(crate) group: Option<Group>,

    /// Only if they died before this: an instant, or an age like 2h
    #[arg(long, value_name = "INSTANT|AGE")]
    pub(crate) died_before: Option<String>,

    /// Only if they died at or after this: an instant, or an age like 2h
    #[arg(long, value_name = "INSTANT|AGE")]
    pub(crate) died_after: Option<String>,
}

/// Why a message is a dead letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Reason {
    /// It failed too often
    #[value(alias = "max_failures")]
    MaxFailures,
    /// Its lease expired too often
    #[value(alias = "max_crashes")]
    MaxCrashes,
    /// A handler rejected it
    Rejected,
    /// It failed too often, and the last time a worker could not decode its payload
    Undecodable,
    /// It expired while it waited for its first or next delivery
    Expired,
    /// Its stored data is damaged; redrive revives it if its record is intact
    Unreadable,
}

impl From<Reason> for DeathReason {
    fn from(reason: Reason) -> Self {
        match reason {
            Reason::MaxFailures => Self::MaxFailures,
            Reason::MaxCrashes => Self::MaxCrashes,
            Reason::Rejected => Self::Rejected,
            Reason::Undecodable => Self::Undecodable,
            Reason::Expired => Self::Expired,
            Reason::Unreadable => Self::Unreadable,
        }
    }
}

const LIST_HELP: &str = "\
Examples:
  delayline dead list
  delayline dead list --reason max-failures --error 'timed out' --died-after 2h
  delayline dead list --all --json | jq -r '[.id, .last_error] | @tsv'

--died-after 2h means within the last two hours, by the server's clock. Cursors and JSON work as in
`delayline list`. For exit codes, see `delayline --help`.";

const GROUPS_HELP: &str = "\
Examples:
  delayline dead groups --died-after 2h
  delayline dead redrive --all --reason rejected --error-like 'no such customer: #' --dry-run

To act on a group, pass its --reason and --error-like to `dead redrive` or `dead purge`. At most
1000 groups are kept; the rest is counted on stderr. For exit codes, see `delayline --help`.";

const REDRIVE_HELP: &str = "\
Examples:
  delayline dead redrive order-1234
  delayline dead redrive --all --error 'bank is down' --rate 50 --yes
  delayline dead redrive --all --limit 10 --dry-run

The exit code is 1 if a message is unknown, not dead, or unreadable (such a message can only be
purged), if you answer no, or after Ctrl-C; messages redriven so far stay redriven. For other exit
codes, see `delayline --help`.";

const PURGE_HELP: &str = "\
Examples:
  delayline dead purge order-1234 --yes
  delayline dead purge --all --reason expired --died-before '7 days' --yes
  delayline dead purge --all --dry-run

The exit code is 1 if a message is unknown or not dead, if you answer no, or after Ctrl-C; messages
deleted so far stay deleted. For other exit codes, see `delayline --help`.";
