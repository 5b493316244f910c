//! `delayline check`.

/// Audit the queue, and repair it with --repair
///
/// Checks all stored data of the queue, page by page, while workers run. For a directory
/// (file:DIR), also shows the size of the files, the free space and the sync times.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Check {
    /// Repair the findings
    #[arg(long)]
    pub(crate) repair: bool,

    /// Skip confirmation of a repair
    #[arg(long, requires = "repair")]
    pub(crate) yes: bool,

    /// Print a JSON object per finding, and one with the counts
    #[arg(long)]
    pub(crate) json: bool,
}

const HELP: &str = "\
Examples:
  delayline check
  delayline check --repair --yes

A repair makes the stored data of each message consistent. A message that cannot be read, or whose
due time is lost, becomes a dead letter: see `delayline dead list --reason unreadable`. The exit
code is 1 if something is wrong, or still wrong after a repair.";
