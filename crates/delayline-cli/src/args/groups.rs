//! `delayline groups`.

use clap::ValueEnum;

/// Show which groups have messages that are due or with a worker
///
/// The ten with the most waiting messages by default. Reads all ready and leased messages.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Groups {
    /// Which group is printed first
    #[arg(long, value_enum, default_value_t = GroupOrder::Waiting)]
    pub(crate) order: GroupOrder,

    /// Maximum number of groups
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) limit: u64,

    /// Print JSON, one line per group
    #[arg(long)]
    pub(crate) json: bool,
}

/// The order of groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum GroupOrder {
    /// The group with the most messages that wait for a worker
    Waiting,
    /// The group with the most messages that workers hold
    Leased,
    /// The group whose message has waited longest
    Oldest,
}

const HELP: &str = "\
Examples:
  delayline groups
  delayline groups --order oldest --limit 3
  delayline list --state ready --group tenant-7

Messages that change state meanwhile may be counted twice or not at all. A group may wait although
workers are free: see `delayline limits` and `delayline explain`. For exit codes, see
`delayline --help`.";
