//! `delayline doctor`.

use delayline::schedules::DEFAULT_QUEUE;

/// Check whether the servers or the directory are suitable, and suggest fixes
///
/// Asks the server, or all servers of the cluster or behind the sentinels, including replicas.
/// Reports what a crash or a failover could lose. From the load of the queue, also reports when the
/// memory will be full, whether deliveries are getting later, and whether leases expire. For a
/// directory (file:DIR), reports its files, the free space, and how long syncs take. If there are
/// schedules, reports whether a scheduler sends their messages. Changes nothing.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Doctor {
    /// Prometheus server that must have the alerts of monitoring/alerts.yml:
    /// http[s]://[USER:PASSWORD@]HOST[:PORT][/PATH]. Put passwords into the variable
    #[arg(long, value_name = "URL", env = "DELAYLINE_PROMETHEUS", hide_env_values = true)]
    pub(crate) prometheus: Option<String>,

    /// Queue that holds only schedules
    #[arg(long, value_name = "NAME", default_value = DEFAULT_QUEUE)]
    pub(crate) schedules: String,

    /// Print a JSON object per check, per server (`server`) and per sentinel (`sentinel`)
    #[arg(long)]
    pub(crate) json: bool,
}

const HELP: &str = "\
Examples:
  delayline doctor --queue orders
  delayline --url file:/var/lib/orders doctor
  delayline doctor --queue orders --prometheus http://127.0.0.1:9090

A directory needs no --queue. While `delayline serve` has it open, the command asks that process.

A user who may also run CONFIG GET and CLUSTER NODES gets more details. Servers that are unreachable
or refuse to answer are reported.

With --prometheus, the command also reports alerts that Prometheus has not loaded, cannot evaluate,
or that are firing.

The exit code is 0 if nothing is wrong, 1 if something is, and 3 if no server can be reached.";
