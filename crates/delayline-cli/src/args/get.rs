//! `delayline get`.

use std::ffi::OsString;

/// Show all that is known of messages
///
/// State, due instant, counters, errors, headers and payload.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Get {
    /// Ids of messages
    #[arg(required = true, value_name = "ID")]
    pub(crate) ids: Vec<OsString>,

    /// Print JSON, one line for each id
    #[arg(long)]
    pub(crate) json: bool,

    /// Write the payload to stdout as it is, byte for byte, and nothing else; of one message
    #[arg(long, conflicts_with = "json")]
    pub(crate) raw: bool,
}

const HELP: &str = "\
Examples:
  delayline get order-1234
  delayline get order-1234 --json | jq .state
  delayline get order-1234 --raw > payload.bin

An id that is unknown is said to be so, and the exit code is 1. A message that was acked, cancelled
or purged a short while ago is known, without its content: exit code 0, but 1 with --raw. In JSON
text that is UTF-8 stands under payload, other bytes under payload_base64; the same holds for id and
headers. The other exit codes: see `delayline --help`.";
