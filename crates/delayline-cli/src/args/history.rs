//! `delayline history`.

/// Show what happened in a queue in the last hours or days
///
/// The server keeps the history, even without monitoring: six hours by the minute, and 31 days by
/// the hour.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct History {
    /// Go back 31 days, hour by hour, instead of six hours, minute by minute
    #[arg(long)]
    pub(crate) hours: bool,

    /// Print every point as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

const HELP: &str = "\
Examples:
  delayline history
  delayline history --hours
  delayline history --json | jq '.points[] | [.at, .delivered_total, .ready]'

Each column covers 6 minutes, or 12 hours with --hours; the last one has not ended yet. `sent` to
`died` count the events in it. So do `relayed`, `replaced`, `cancelled` and `purged`, which are
shown only if there were any. `waiting` (scheduled or ready), `leased` and `dead` are the numbers of
messages at the end of the column.

For exit codes, see `delayline --help`.";
