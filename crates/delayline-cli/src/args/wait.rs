//! `delayline wait`.

use std::ffi::OsString;

/// Wait until a message is handled, and print its result
///
/// If the message was sent with --keep-result, prints the handler's result. Reports on stderr how
/// the message ended (acked, cancelled, purged, relayed or dead), or that it is still pending at
/// the timeout.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Wait {
    /// Message id
    #[arg(value_name = "ID")]
    pub(crate) id: OsString,

    /// Maximum time to wait
    #[arg(long, value_name = "DURATION", default_value = "1m")]
    pub(crate) timeout: String,

    /// Print the progress of the message's handler on stderr whenever it changes
    #[arg(long)]
    pub(crate) progress: bool,

    /// Print JSON: the state, the reason of a dead letter, and the result
    #[arg(long)]
    pub(crate) json: bool,
}

const HELP: &str = "\
Examples:
  delayline send --id square-7 --payload 7 --keep-result 1h
  delayline wait square-7 --timeout 30s > result
  delayline wait crawl-9 --timeout 2h --progress
  delayline wait square-7 --json | jq -r .state

The exit code is 0 if the message was acked, and 1 if it ended in another way, is still pending, or
is unknown. For other exit codes, see `delayline --help`.";
