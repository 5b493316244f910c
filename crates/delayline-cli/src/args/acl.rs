//! `delayline acl`.

use clap::ValueEnum;

/// Print the access rules that a producer, a worker, a relay or an admin needs
///
/// Prints an `ACL SETUSER` line with exactly the permissions that the role needs on the queue. Does
/// not connect to a server.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Acl {
    /// What the user does
    #[arg(value_enum)]
    pub(crate) role: Role,

    /// Name of the user
    #[arg(long, value_name = "NAME")]
    pub(crate) user: String,

    /// Key of a list or stream that a relay may write to; repeatable
    #[arg(long, value_name = "KEY", required_if_eq("role", "relay"))]
    pub(crate) destination: Vec<String>,
}

#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum Role {
    /// Sends, cancels, reschedules, looks up by id, counts
    Producer,
    /// Handles messages, counts
    Worker,
    /// Moves due messages to a list or stream, counts
    Relay,
    /// Everything
    Admin,
}

const HELP: &str = "\
Example:
  delayline acl worker --queue orders --user billing | redis-cli

The user has no password yet and cannot log in: `ACL SETUSER billing >PASSWORD` sets one. Redis
restricts only commands and keys: a user who may call scripts may call any script, but only with the
commands of its role and the keys of the queue.";
