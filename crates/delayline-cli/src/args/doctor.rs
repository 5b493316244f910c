//! `delayline doctor`.

/// Check whether the servers or the directory are suitable, and suggest fixes
///
/// Asks the server, or all servers of the cluster or behind the sentinels, including replicas.
/// Reports what a crash or a failover could lose. From the load of the queue, also reports when the
/// memory will be full, whether deliveries are getting later, and whether leases expire. For a
/// directory (file:DIR), reports its files, the free space, and how long syncs take. Changes
/// nothing.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Doctor {
    /// Print a JSON object per check, per server (`server`) and per sentinel (`sentinel`)
    #[arg(long)]
    pub(crate) json: bool,
}

const HELP: &str = "\
Examples:
  delayline doctor --queue orders
  delayline --url file:/var/lib/orders doctor

A directory needs no --queue. While `delayline serve` has it open, the command asks that process.

A user who may also run CONFIG GET and CLUSTER NODES gets more details. Servers that are unreachable
or refuse to answer are reported.

The exit code is 0 if nothing is wrong, 1 if something is, and 3 if no server can be reached.";
