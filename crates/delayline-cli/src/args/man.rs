//! `delayline man`.

use std::path::PathBuf;

/// Write man pages
///
/// One for the command and one for each verb, for packages.
#[derive(clap::Args)]
#[command(hide = true, after_help = HELP)]
pub(crate) struct Man {
    /// Directory that exists
    pub(crate) directory: PathBuf,
}

const HELP: &str = "\
Examples:
  delayline man /usr/local/share/man/man1";
