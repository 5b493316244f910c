//! `delayline acl`.

use std::process::ExitCode;

use delayline::admin::QueueName;

use crate::args::{Acl, Role, Target};
use crate::failure::Failure;
use crate::print::write;

pub(crate) fn run(target: &Target, args: &Acl) -> Result<ExitCode, Failure> {
    let name = &args.user;
    let fits = |c: char| c.is_ascii_graphic() && !"\"'\\".contains(c);
    let mut names = std::iter::once(name).chain(&args.destination);
    if let Some(name) = names.find(|name| name.is_empty() || !name.chars().all(fits)) {
        return Err(Failure::usage(format!(
            "{name:?}: user names and keys may have letters, digits and punctuation, but no quotes"
        )));
    }
    // In rules, keys are patterns. A backslash would escape that, but `redis-cli` takes it away.
    if let Some(key) = args.destination.iter().find(|key| key.contains(['*', '?', '[', ']'])) {
        let why = format!("{key:?}: a destination is a key, not a pattern with *, ?, [ or ]");
        return Err(Failure::usage(why));
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
