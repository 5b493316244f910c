//! `delayline acl`.

use std::process::ExitCode;

use clap::ValueEnum;
use delayline::admin::QueueName;

use crate::args::Target;
use crate::failure::Failure;
use crate::print::write;

/// Print the access rules that a producer, a worker, a relay or an admin needs
///
/// Prints an `ACL SETUSER` line with exactly the permissions that the role needs on the queue. Does
/// not connect to a server.
#[derive(clap::Args)]
#[command(after_help = "\
Example:
  delayline acl worker --queue orders --user billing | redis-cli

The user has no password yet and cannot log in: `ACL SETUSER billing >PASSWORD` sets one. Redis
distinguishes only commands and keys: a user who may call scripts may call any script, within the
commands of its role and the keys of the queue.")]
pub(crate) struct Acl {
    /// What the user does
    #[arg(value_enum)]
    role: Role,

    /// Name of the user
    #[arg(long, value_name = "NAME")]
    user: String,

    /// Key of a list or stream that a relay may write to; may be repeated
    #[arg(long, value_name = "KEY", required_if_eq("role", "relay"))]
    destination: Vec<String>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Role {
    /// Sends, cancels, reschedules, looks up by id, counts
    Producer,
    /// Handles messages, counts
    Worker,
    /// Moves due messages to a list or stream, counts
    Relay,
    /// Everything
    Admin,
}

pub(crate) fn run(target: &Target, args: &Acl) -> Result<ExitCode, Failure> {
    let name = &args.user;
    let fits = |c: char| c.is_ascii_graphic() && !"\"'\\".contains(c);
    let names = std::iter::once(name).chain(&args.destination);
    if names.into_iter().any(|name| name.is_empty() || !name.chars().all(fits)) {
        return Err(Failure::usage(
            "user names and keys may have letters, digits and punctuation, but no quotes",
        ));
    }
    // In rules, keys are patterns. A backslash would escape that, but `redis-cli` takes it away.
    if args.destination.iter().any(|key| key.contains(['*', '?', '[', ']'])) {
        return Err(Failure::usage("a destination is a key, not a pattern with *, ?, [ or ]"));
    }
    let queue =
        QueueName::new(target.queue()?).map_err(|error| Failure::usage(error.to_string()))?;
    let role = match args.role {
        Role::Producer => delayline::admin::AclRole::Producer,
        Role::Worker => delayline::admin::AclRole::Worker,
        Role::Relay => delayline::admin::AclRole::Relay,
        Role::Admin => delayline::admin::AclRole::Admin,
    };
    let destinations: String = args.destination.iter().map(|key| format!(" ~{key}")).collect();
    write(&format!("ACL SETUSER {name} {}{destinations}\n", role.rules(&queue)))?;
    Ok(ExitCode::SUCCESS)
}
