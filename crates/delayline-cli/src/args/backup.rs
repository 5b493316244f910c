//! `delayline backup`.

use std::path::PathBuf;

/// Copy a directory of queues, also while a process uses it
///
/// The copy has every change that was acknowledged before the command started, and is itself a
/// directory of queues. It is read again and compared before it gets its name. The process that has
/// the directory open does not notice.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Backup {
    /// New directory for the copy, on a local disk
    #[arg(value_name = "TO")]
    pub(crate) to: PathBuf,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

const HELP: &str = "\
Examples:
  delayline backup --url file:/var/lib/orders /var/backups/orders-2026-12-01
  delayline --url file:/var/backups/orders-2026-12-01 list --queue orders

To restore a backup, stop the process, move its directory away, and copy the backup to its place.
Messages that were sent since the backup are then missing, and those handled since are delivered
again.

Run this as the user who owns the directory. It needs memory for all messages, and room for them at
TO. If it is killed, a directory .NAME.delayline-backup stays beside TO: it can be removed, and the
next backup to TO replaces it. If TO exists, the exit code is 2. If TO is within the directory or
cannot be written, it is 3, and there is no copy. For other exit codes, see `delayline --help`.";
