//! `delayline delete-queue`.

/// Remove a queue that holds nothing
///
/// In one step: a message that is sent at the same time is kept, with its queue. Messages in any state,
/// results that are kept, and throttled ids prevent it, and nothing forces it. Counters, history and a
/// pause go with the queue, and so does what it remembers of messages that finished in the last hour: a
/// repeated send of one of them would be delivered again.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  delayline delete-queue --queue misspelt
  delayline dead purge --all --queue old && delayline delete-queue --queue old

The user needs UNLINK on all keys of the queue (delayline:{NAME}:*), which the rules of `delayline acl`
do not include. A worker may go on; the first message creates the queue anew. If the queue holds
something, the exit code is 1. For other exit codes, see `delayline --help`.")]
pub(crate) struct DeleteQueue {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}
