//! `delayline workers`.

/// Show which processes have workers, and the messages that they hold
///
/// Of all queues, or of the queue that is named.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Workers {
    /// Leases to read of each queue at most: 1 to 1000
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(crate) leases: u16,

    /// Print JSON: one object with all processes
    #[arg(long)]
    pub(crate) json: bool,
}

const HELP: &str = "\
Examples:
  delayline workers
  delayline workers --queue orders --json

Each line has a process: its id, machine and number, the version of its library, the maximum number
of handlers at once, when its first worker started, its queues, and the number of messages that it
holds. A process introduces itself by the names of its connections, which needs CLIENT SETNAME; this
command needs CLIENT LIST, and SCAN unless a queue is named. A process that has not introduced
itself is listed with its id only, if it holds messages. If the list is incomplete, the exit code is
1. For other exit codes, see `delayline --help`.";
