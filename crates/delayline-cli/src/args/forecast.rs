//! `delayline forecast`.

/// Count the waiting messages by due time
///
/// Each line counts the messages that fall due within its delay from now, including those of the
/// shorter delays but not the ready ones. With --json, the counts exclude the shorter delays.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Forecast {
    /// Delays from now in ascending order, at most 100
    #[arg(long, value_name = "DURATION,...", default_value = delayline_json::FORECAST_DELAYS)]
    pub(crate) within: String,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

const HELP: &str = "\
Examples:
  delayline forecast
  delayline forecast --within 5m,10m,15m,20m
  delayline forecast --within 1h --json | jq '.due[0].count'

For exit codes, see `delayline --help`.";
