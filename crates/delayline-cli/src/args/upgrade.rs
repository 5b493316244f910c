//! `delayline upgrade`.

/// Convert the queue to the layout of this version
///
/// A version with a new layout refuses older queues until this command has converted them. During
/// the conversion, all other calls fail, and workers wait. Messages, due times and leases stay as
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
If the upgrade is interrupted, run it again on any machine: it continues. The user needs INFO, and
the rules that `delayline acl admin` prints. If the queue is up to date, nothing is changed, and the
exit code is 0. If the queue does not exist, the exit code is 1. For other exit codes, see
`delayline --help`.";
