//! `delayline stats`.

/// Count the messages of a queue
///
/// Counts them by state, and shows how many were ever sent and finished.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Stats {
    /// Repeat at this interval until Ctrl-C: 100ms or more [default: 2s]
    #[arg(long, value_name = "INTERVAL", num_args = 0..=1, default_missing_value = "2s")]
    pub(crate) watch: Option<String>,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

const HELP: &str = "\
Examples:
  delayline stats
  delayline stats --json | jq .dead
  delayline stats --watch 5s

With --watch, a terminal shows the latest counts; other output gets a line each time. Ctrl-C,
SIGTERM and a closed stdout end it with exit code 0. If the server is unreachable for 10 s, the exit
code is 3 or 4. For other exit codes, see `delayline --help`.";
