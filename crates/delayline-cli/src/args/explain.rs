//! `delayline explain`.

use std::ffi::OsString;

/// Explain why messages are not delivered, or how they ended
///
/// Says in words whether a message is not due, paused, held by a worker, dead, finished or unknown.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Explain {
    /// Message ids
    #[arg(required = true, value_name = "ID")]
    pub(crate) ids: Vec<OsString>,

    /// Print JSON, one line per id
    #[arg(long)]
    pub(crate) json: bool,
}

const HELP: &str = "\
Examples:
  delayline explain order-1234
  delayline explain order-1234 --json | jq -r .explanation

Unknown ids are reported, and the exit code is 1. For other exit codes, see `delayline --help`.";
