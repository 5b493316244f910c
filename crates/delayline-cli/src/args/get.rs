//! `delayline get`.

use std::ffi::OsString;

/// Show all that is known about messages
///
/// State, due time, counters, errors, the latest attempts, headers and payload.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Get {
    /// Message ids
    #[arg(required = true, value_name = "ID")]
    pub(crate) ids: Vec<OsString>,

    /// Print JSON, one line per id
    #[arg(long)]
    pub(crate) json: bool,

    /// Write only the payload of one message to stdout, unchanged
    #[arg(long, conflicts_with = "json")]
    pub(crate) raw: bool,
}

const HELP: &str = "\
Examples:
  delayline get order-1234
  delayline get order-1234 --json | jq .state
  delayline get order-1234 --raw > payload.bin

Unknown ids are reported, and the exit code is 1. A message that was recently acked, cancelled or
purged is known, but its content is gone: exit code 0, or 1 with --raw. In JSON, UTF-8 text is in
payload, other bytes are in payload_base64; the same applies to id and headers. For other exit
codes, see `delayline --help`.";
