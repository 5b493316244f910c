//! `delayline relay`.

use clap::ArgGroup;
use clap::builder::RangedU64ValueParser;
use delayline::limits::{MAX_BATCH, MAX_DESTINATION_LENGTH};

/// Move messages to a Redis list or stream as they fall due
///
/// Each message becomes one element, never before it is due, and is then finished. Consumers of the
/// list or stream do not need Delayline. Any number of relays and workers can serve a queue.
#[derive(clap::Args)]
#[command(after_help = HELP)]
#[command(group(ArgGroup::new("destination").required(true).args(["to_list", "to_stream"])))]
pub(crate) struct Relay {
    /// Append payloads to this list
    #[arg(long, value_name = "KEY")]
    pub(crate) to_list: Option<String>,

    /// Add entries to this stream, with the fields id, due (milliseconds since 1970), payload, and
    /// header:NAME for each header
    #[arg(long, value_name = "KEY")]
    pub(crate) to_stream: Option<String>,

    /// Hold messages back while the list has this many elements
    #[arg(long, value_name = "N", conflicts_with = "to_stream", value_parser = length())]
    pub(crate) max_len: Option<u64>,

    /// Consumer group that --max-backlog applies to
    #[arg(long, value_name = "GROUP", requires = "max_backlog", conflicts_with = "to_list")]
    pub(crate) group: Option<String>,

    /// Hold messages back while the group has this many entries that it has not read or not
    /// acknowledged; needs Redis 7 or later
    #[arg(long, value_name = "N", requires = "group", conflicts_with = "to_list")]
    #[arg(value_parser = length())]
    pub(crate) max_backlog: Option<u64>,

    /// Maximum number of messages per operation: 1 to 1000
    #[arg(long, value_name = "N", default_value_t = 100)]
    #[arg(value_parser = RangedU64ValueParser::<usize>::new().range(1..=MAX_BATCH as u64))]
    pub(crate) batch: usize,

    /// Exit when no message is scheduled, ready or leased
    #[arg(long)]
    pub(crate) until_empty: bool,

    /// Print the count as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// The length at which a destination is full.
fn length() -> RangedU64ValueParser {
    RangedU64ValueParser::new().range(1..=MAX_DESTINATION_LENGTH)
}

const HELP: &str = "\
Examples:
  delayline relay --queue orders --to-list due-orders --max-len 10000
  delayline relay --queue orders --to-stream due-orders --group shop --max-backlog 10000
  delayline relay --queue orders --to-list 'due{orders}'     # on a cluster

At the end, after Ctrl-C or SIGTERM, it prints how many messages it has moved. This lacks calls
whose reply was lost: `delayline stats` counts all. It keeps trying while the server is unreachable
or out of memory. It ends with an error if the destination has another type, if the user may not
write to it, or if it is in another hash slot of a cluster than the queue. `delayline acl relay
--destination KEY` prints the rules that its user needs. For exit codes, see `delayline --help`.";
