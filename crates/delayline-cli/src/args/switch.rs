//! `delayline pause` and `delayline resume`.

/// Stop deliveries
///
/// For all workers, until `delayline resume`. Everything else goes on: messages are taken in and
/// fall due, and those that are with a worker may be finished.
#[derive(clap::Args)]
#[command(after_help = "\
Example:
  delayline pause --queue orders

A queue that is paused stays so: exit code 0. The other exit codes: see `delayline --help`.")]
pub(crate) struct Pause {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Let deliveries go on
///
/// What fell due during the pause is delivered at once.
#[derive(clap::Args)]
#[command(after_help = "\
Example:
  delayline resume --queue orders

A queue that is not paused stays so: exit code 0. The other exit codes: see `delayline --help`.")]
pub(crate) struct Resume {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}
