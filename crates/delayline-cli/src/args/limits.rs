//! `delayline limits`.

use delayline::limits::MAX_RATE_COUNT;

/// Show or change the limits on deliveries
///
/// The limits apply to all workers together, and take effect at once. Without options, shows the
/// limits.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  delayline limits --queue calls
  delayline limits --queue calls --leased 3               # at most 3 with workers at once
  delayline limits --queue calls --rate 10/1s --burst 2   # at most 10 a second, 2 at once
  delayline limits --queue calls --each-group 2           # at most 2 of a group at once
  delayline limits --queue calls --in-order yes           # one message of a group at a time
  delayline limits --queue calls --hold 30s               # nothing is delivered for 30 s
  delayline limits --queue calls --leased 3 --create      # before its first message
  delayline limits --queue calls --rate none --hold none

It prints the resulting limits. A limit without an option is not changed. A relay has no leases, so
it respects the rate, the hold, and groups that wait for a lease. For exit codes, see
`delayline --help`.")]
pub(crate) struct Limits {
    /// Maximum number of messages that workers hold at once: 1 to 1000000, or none
    #[arg(long, value_name = "N|none")]
    pub(crate) leased: Option<String>,

    /// Maximum number of messages of one group that workers hold at once: 1 to 1000000, or none
    #[arg(long, value_name = "N|none")]
    pub(crate) each_group: Option<String>,

    /// Handle the messages of a group one after the other, in the order sent, retries included
    #[arg(long, value_name = "yes|no", value_parser = ["yes", "no"])]
    pub(crate) in_order: Option<String>,

    /// Maximum number of messages delivered per period (1s to 1d), such as 10/1s, or none
    #[arg(long, value_name = "COUNT/PERIOD|none")]
    pub(crate) rate: Option<String>,

    /// Maximum number of messages delivered at once: 1 to COUNT of --rate [default: COUNT]
    #[arg(long, value_name = "N", requires = "rate")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_RATE_COUNT)))]
    pub(crate) burst: Option<u32>,

    /// Deliver nothing for this long, or none to end a hold
    #[arg(long, value_name = "DURATION|none")]
    pub(crate) hold: Option<String>,

    /// Create the queue if the server has none of this name
    #[arg(long)]
    pub(crate) create: bool,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}
