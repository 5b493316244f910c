//! `delayline top`.

/// Show all queues with rates and lateness, again and again
///
/// The queue that has waited longest is on top. With --queue, only that queue is shown.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Top {
    /// Time between two tables, and of the rates: 200ms or more
    #[arg(long, value_name = "DURATION", default_value = "2s")]
    pub(crate) interval: String,

    /// Print one table, after one interval
    #[arg(long)]
    pub(crate) once: bool,

    /// Print JSON, one line per queue and interval
    #[arg(long)]
    pub(crate) json: bool,
}

const HELP: &str = "\
Examples:
  delayline top
  delayline top --interval 10s --queue orders
  delayline top --once --json | jq 'select(.ready > 100)'

A terminal shows the latest table; q or Ctrl-C ends it. Other output gets a table each time. The
rates are per second, of the last interval. LATE is the lateness below which 99 % of its deliveries
were, by powers of two. OLDEST is how long the oldest ready message has been due.

All queues are listed once, at the start, at most 500; the user needs SCAN for that. A queue that
cannot be counted is shown with the reason. For exit codes, see `delayline --help`.";
