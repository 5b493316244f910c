//! `delayline queues`.

/// List the queues of the server, or of all primaries of a cluster
///
/// Reads the names of all keys, 1,000 at a time, so it takes a while on a large server.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Queues {
    /// Print JSON: one array of names
    #[arg(long)]
    pub(crate) json: bool,
}

const HELP: &str = "\
Examples:
  delayline queues
  delayline queues | xargs -I{} delayline stats --queue={}

A queue is listed once a message has been sent to it, or once limits or a pause have been set. The
user needs SCAN, which the rules of `delayline acl` do not include. If some primaries of a cluster
cannot be read, the exit code is 1, and the queues of the others are listed. For other exit codes,
see `delayline --help`.";
