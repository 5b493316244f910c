//! `delayline cancel`.

use std::ffi::OsString;
use std::path::PathBuf;

/// Cancel messages before delivery
///
/// Also cancels dead letters. If a worker has the message, the worker is notified, and the message
/// ends with its lease unless the worker acks it.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Cancel {
    /// Message ids
    #[arg(required_unless_present = "file", value_name = "ID")]
    pub(crate) ids: Vec<OsString>,

    /// File of ids, one per line, or of JSON lines with the id in id or id_base64; - is stdin
    #[arg(long, value_name = "PATH", conflicts_with = "ids")]
    pub(crate) file: Option<PathBuf>,

    /// Skip confirmation; required for several messages without a terminal
    #[arg(long, short)]
    pub(crate) yes: bool,

    /// Print JSON, one line per id
    #[arg(long)]
    pub(crate) json: bool,
}

const HELP: &str = "\
Examples:
  delayline cancel order-1234
  delayline cancel --yes order-1234 order-1235
  delayline list --state scheduled --all --json | delayline cancel --file - --yes

An id that has line breaks, is not UTF-8, or is itself a JSON object needs a JSON line.

The exit code is 0 if all messages are cancelled, now or recently. It is 1 if one is unknown or with
a worker (in flight), or if a line of the file is not a valid id; the others are still cancelled.
For other exit codes, see `delayline --help`.";
