//! `delayline history`.

/// Show what happened in a queue in the last hours or days
///
/// The server keeps it, whether or not anything monitors the queue: six hours by the minute, 31
/// days by the hour.
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

Each column is 6 minutes, with --hours 12 hours; the last one is not over yet. `sent` to `died`
count what happened in it; so do `relayed`, `replaced`, `cancelled` and `purged`, which are shown
only if any was. `waiting`, `leased` and `dead` are the messages that were there at its end, and
`waiting` are those that were scheduled or ready.

For exit codes, see `delayline --help`.";
