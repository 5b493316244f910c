//! `delayline delete-queue`.

/// Remove a queue that holds nothing
///
/// Messages in any state, kept results and throttled ids prevent the removal; no flag forces it.
/// The check and the removal are one step, so no concurrent send is lost. A queue with shards is
/// removed shard by shard: stop the programs that use it first.
///
/// The removal deletes the queue's counters, history, pause, limits and order, and the ids of
/// recently finished messages: if one of these is sent again, it is delivered again.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  delayline delete-queue --queue misspelt
  delayline dead purge --all --queue old && delayline delete-queue --queue old

On a server, the user needs UNLINK on all keys of the queue (delayline:{NAME}:*). The rules of
`delayline acl` include it for every role, so producers and workers can remove an empty queue, too.
Without shards, you need not stop workers; the next message creates the queue again. If the queue is
not empty, the exit code is 1. For other exit codes, see `delayline --help`.")]
pub(crate) struct DeleteQueue {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}
