//! `delayline pause` and `delayline resume`.

/// Stop deliveries
///
/// Applies to all workers, until `delayline resume`. Everything else continues: messages are
/// accepted and fall due, and workers can finish their messages.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  delayline pause --queue orders
  delayline pause --queue orders --create   # before its first message

Pausing a paused queue has no effect: exit code 0. For other exit codes, see `delayline --help`.")]
pub(crate) struct Pause {
    /// Create the queue if the server has none of this name
    #[arg(long)]
    pub(crate) create: bool,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Resume deliveries
///
/// Messages that fell due during the pause are delivered at once.
#[derive(clap::Args)]
#[command(after_help = "\
Example:
  delayline resume --queue orders

Resuming a queue that is not paused has no effect: exit code 0. For other exit codes, see
`delayline --help`.")]
pub(crate) struct Resume {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}
