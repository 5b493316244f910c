//! `delayline stats`.

/// Count the messages of a queue
///
/// By state, and those that were ever sent and finished.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Stats {
    /// Count again and again until Ctrl-C, every so often: 100ms or more [default: 2s]
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

With --watch a terminal shows the latest counts; anything else gets a line each time. Ctrl-C,
SIGTERM and a reader that goes away end it with exit code 0, a server that stays away for 10 s with
3 or 4. The other exit codes: see `delayline --help`.";
