//! Files of users.

use std::collections::HashSet;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use delayline::admin::QueueName;
use delayline_sqs::AccessKey;
use delayline_web::{Credential, Rights, Role};

use crate::failure::Failure;

/// The users of a file: their logins for the pages and the API, and their access keys.
#[derive(Debug, Default)]
pub(super) struct Users {
    pub(super) credentials: Vec<Credential>,
    pub(super) keys: Vec<AccessKey>,
}

/// Reads a file of users. No error repeats a secret.
pub(super) fn read(path: &Path) -> Result<Users, Failure> {
    let shown = path.display();
    let cannot = |error| Failure::usage(format!("{shown} cannot be read: {error}"));
    let mode = std::fs::metadata(path).map_err(cannot)?.permissions().mode();
    let open = match mode {
        _ if mode & 0o007 != 0 => Some("can be read by every user of this machine"),
        _ if mode & 0o020 != 0 => Some("can be changed by every user of its group"),
        _ => None,
    };
    if let Some(why) = open {
        let sentence = format!("{shown} {why}");
        return Err(Failure::usage(sentence).hint("make it private with chmod 600"));
    }
    let text = std::fs::read_to_string(path).map_err(cannot)?;
    let users = parse(&text).map_err(|why| Failure::usage(format!("{shown}, {why}")))?;
    if users.credentials.is_empty() {
        return Err(Failure::usage(format!("{shown} has no users")));
    }
    Ok(users)
}

fn parse(text: &str) -> Result<Users, String> {
    let mut users = Users::default();
    let (mut names, mut tokens) = (HashSet::new(), HashSet::new());
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let wrong = |why: &str| format!("line {number}: {why}");
        let User { name, secret, is_basic, rights, queues } =
            User::read(line).map_err(|why| wrong(&why))?;
        // The log of actions would not tell them apart.
        if !names.insert(name) {
            return Err(wrong("another line has this name; names must be unique"));
        }
        if !is_basic && !tokens.insert(secret) {
            return Err(wrong("another line has this token"));
        }
        let new = if is_basic { Credential::basic } else { Credential::bearer };
        let (credential, key) = (new(name, secret, rights), AccessKey::new(name, secret, rights));
        let (credential, key) = match queues {
            Some(queues) => (
                credential.only_queues(queues.iter().copied()),
                key.only_queues(queues.iter().copied()),
            ),
            None => (credential, key),
        };
        users.credentials.push(credential);
        users.keys.push(key);
    }
    Ok(users)
}

/// A line.
struct User<'a> {
    rights: Rights,
    /// The only queues that the user knows.
    queues: Option<Vec<&'a str>>,
    is_basic: bool,
    name: &'a str,
    secret: &'a str,
}

impl<'a> User<'a> {
    fn read(line: &'a str) -> Result<Self, String> {
        let (permitted, rest) = word(line);
        let (kind, rest) = word(rest);
        let (name, secret) = word(rest);
        let (roles, queues) = match permitted.split_once('@') {
            Some((roles, queues)) => (roles, Some(queues.split(',').collect::<Vec<_>>())),
            None => (permitted, None),
        };
        let rights = rights(roles)?;
        if name.is_empty() || secret.is_empty() {
            return Err("it must have a role, basic or bearer, a name and a secret".to_owned());
        }
        let is_basic = match kind {
            // A browser sends both with a colon between them.
            "basic" if name.contains(':') => {
                return Err("a user name may contain no colon".to_owned());
            }
            "basic" => true,
            "bearer" => false,
            _ => return Err("the role must be followed by basic or bearer".to_owned()),
        };
        // Only now: in a line without a role, these could be parts of a secret.
        for queue in queues.iter().flatten() {
            let name = queue.strip_suffix('*').unwrap_or(queue);
            QueueName::new(name).map_err(|violation| violation.to_string())?;
        }
        Ok(Self { rights, queues, is_basic, name, secret })
    }
}

/// Returns the rights of roles with `+` between them.
fn rights(roles: &str) -> Result<Rights, String> {
    let known = [Role::Viewer, Role::Operator, Role::Admin, Role::Worker];
    roles.split('+').try_fold(Rights::NONE, |rights, name| {
        let role = known.into_iter().find(|role| role.name() == name);
        let role = role.ok_or("it must begin with viewer, operator, admin or worker")?;
        Ok(rights | role)
    })
}

/// The first word, and the rest.
fn word(text: &str) -> (&str, &str) {
    let (word, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    (word, rest.trim_start())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_read_line_by_line() {
        let text =
            "# comment\n\n admin basic  anna   a long password \nviewer\tbearer\trobot\tt0ken";
        let shown = format!("{:?}", parse(text).unwrap());
        for part in ["anna", "Admin", "robot", "Viewer"] {
            assert!(shown.contains(part), "{shown}");
        }
        assert!(!shown.contains("password") && !shown.contains("t0ken"), "{shown}");
    }

    #[test]
    fn roles_are_combined_and_limited_to_queues() {
        let text = "operator+worker@orders,shop:7/texts,eu/* bearer robot t0ken@x";
        let shown = format!("{:?}", parse(text).unwrap());
        for part in ["Operator", "Worker", "\"orders\"", "\"shop:7/texts\"", "\"eu/*\""] {
            assert!(shown.contains(part), "{shown}");
        }
        assert!(!shown.contains("Admin"), "{shown}");
    }

    #[test]
    fn names_and_tokens_are_there_once() {
        for (text, why) in [
            ("admin basic anna hunter2\nviewer basic anna hunter3", "has this name"),
            ("admin basic anna hunter2\nviewer bearer anna hunter3", "has this name"),
            ("admin bearer a hunter2\nviewer bearer b hunter2", "has this token"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.starts_with("line 2: ") && error.contains(why), "{error}");
            assert!(!error.contains("hunter"), "{error}");
        }
        parse("admin basic anna hunter2\nviewer basic berta hunter2").unwrap();
    }

    #[test]
    fn what_is_wrong_is_said_without_the_secret() {
        for (line, why) in [
            ("hunter2", "begin with"),
            ("root basic anna hunter2", "begin with"),
            ("worker+root basic anna hunter2", "begin with"),
            ("worker+ basic anna hunter2", "begin with"),
            ("worker@ basic anna hunter2", "the queue name is empty"),
            ("worker@* basic anna hunter2", "the queue name is empty"),
            ("worker@a,b}c basic anna hunter2", "the queue name"),
            ("worker@hunter2 basic", "a name and a secret"),
            ("admin anna hunter2", "a name and a secret"),
            ("admin basic anna", "a name and a secret"),
            ("admin digest anna hunter2", "basic or bearer"),
            ("admin basic an:na hunter2", "no colon"),
        ] {
            let error = parse(&format!("\n{line}")).unwrap_err();
            assert!(error.starts_with("line 2: ") && error.contains(why), "{line}: {error}");
            assert!(!error.contains("hunter2"), "{error}");
        }
    }
}
