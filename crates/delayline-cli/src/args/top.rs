//! `delayline top`.

/// Show all queues with rates and lateness, continuously
///
/// The queue that has waited longest is on top. With --queue, only that queue is shown.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Top {
    /// Interval between two tables, which also applies to the rates: 200ms or more
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

A terminal shows the latest table; q or Ctrl-C ends it. Other output gets a table each time. Rates
are per second, over the last interval. LATE is the lateness that 99 % of its deliveries stayed
below, rounded up to a power of two. OLDEST is how long the oldest ready message has been due.

The list of queues is read once, at the start, with at most 500 queues; the user needs SCAN for
that. If a queue cannot be counted, its line shows the reason. For exit codes, see `delayline
--help`.";
