//! `delayline cancel`.

use std::ffi::OsString;
use std::path::PathBuf;

/// Take messages out before they are delivered
///
/// Also dead letters. A worker that has one of the messages is told, and the message ends with its
/// lease, unless the worker acks it.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Cancel {
    /// Ids of messages
    #[arg(required_unless_present = "file", value_name = "ID")]
    pub(crate) ids: Vec<OsString>,

    /// File of ids, one a line; - is stdin
    #[arg(long, value_name = "PATH", conflicts_with = "ids")]
    pub(crate) file: Option<PathBuf>,

    /// Do not ask; needed for more than one message, unless this is a terminal
    #[arg(long, short)]
    pub(crate) yes: bool,

    /// Print JSON, one line for each id
    #[arg(long)]
    pub(crate) json: bool,
}

const HELP: &str = "\
Examples:
  delayline cancel order-1234
  delayline cancel --yes order-1234 order-1235
  delayline list --state scheduled --all --json | jq -r '.messages[].id' |
    delayline cancel --file - --yes

Exit code 0 if all of them are cancelled, now or a short while ago; 1 if one is unknown or with a
worker (in flight), or if a line of the file is no id; the others are cancelled then. The other exit
codes: see `delayline --help`.";
