//! `delayline upgrade`.

/// Convert the queue to the layout of this version
///
/// A new version with another layout refuses queues of the old one until this has converted them.
/// While it runs, every other call fails, and workers wait. Messages, due times and leases stay as
/// they are. Afterwards, older versions refuse the queue.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Upgrade {
    /// Count what would be converted, and change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,

    /// Skip confirmation
    #[arg(long)]
    pub(crate) yes: bool,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

const HELP: &str = "\
Examples:
  delayline upgrade --dry-run
  delayline upgrade --yes

Stop the workers of the older version first: a lease that ends during the upgrade counts as a crash.
If the upgrade is interrupted, run it again, anywhere: it continues. The user needs INFO, and what
the admin of `delayline acl` has. A queue that is up to date is left alone, with exit code 0. If
the queue does not exist, the exit code is 1. For other exit codes, see `delayline --help`.";
