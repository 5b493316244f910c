//! `delayline man`.

use std::path::PathBuf;

/// Write man pages
///
/// Writes one page for the command and one for each verb, for use in packages.
#[derive(clap::Args)]
#[command(hide = true, after_help = HELP)]
pub(crate) struct Man {
    /// Existing directory to write to
    pub(crate) directory: PathBuf,
}

const HELP: &str = "\
Examples:
  delayline man /usr/local/share/man/man1";
