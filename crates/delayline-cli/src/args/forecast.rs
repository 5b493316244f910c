//! `delayline forecast`.

use super::Window;

/// Count the waiting messages by due time
///
/// Each line counts the messages that fall due within its delay from now, including those of the
/// shorter delays but not the ready ones. With --json, the counts exclude the shorter delays.
///
/// With --from or --until, counts the messages that fall due in the window, before it and later.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Forecast {
    /// Delays from now in ascending order, at most 100
    #[arg(
        long,
        value_name = "DURATION,...",
        default_value = delayline_json::FORECAST_DELAYS,
        conflicts_with_all = ["from", "until"]
    )]
    pub(crate) within: String,

    #[command(flatten)]
    pub(crate) window: Window,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

const HELP: &str = "\
Examples:
  delayline forecast
  delayline forecast --within 5m,10m,15m,20m
  delayline forecast --within 1h --json | jq '.due[0].count'
  delayline forecast --from 'tomorrow 09:00' --until 'tomorrow 17:00'
  delayline forecast --until midnight --json | jq '.due[0].count'

A window contains its beginning, but not its end, and can end up to 100 years from now. Its bounds
are printed in the time zone of this machine and in UTC. `delayline list` with the same flags lists
its messages.

For exit codes, see `delayline --help`.";
