//! Missing permissions: found after a refusal, and for inspecting a server.
//!
//! Scripts check for themselves before they write: a permission can be revoked at any time, and
//! Redis does not roll back (G3).

use std::collections::BTreeSet;

use bytes::Bytes;
use delayline_core::{Error, ErrorKind};

use crate::classify::{classify, is_from_inside_a_script_of_redis_6};
use crate::commands::least_arguments;
use crate::keys::{DESTINATION, Keys};
use crate::script::{Need, Script};
use crate::transport::{CallError, ScriptCall, ScriptName, Transport, Value};

const QUESTION: &str = include_str!("../lua/permissions.lua");

/// Names the missing permissions, if `error` says that the user lacks one that `script` needs.
///
/// [`ErrorKind::PermissionDenied`] means that nothing was changed. Redis 6 cannot be asked before
/// the first write, so a writing script that it stops may have been executed in part: that is
/// [`ErrorKind::Server`], whose outcome is unknown.
pub(crate) async fn explained(
    transport: &(impl Transport + ?Sized),
    keys: &Keys,
    script: &Script,
    error: CallError,
) -> CallError {
    let CallError::Reply(line) = &error else { return error };
    let refused = classify(line);
    if refused.kind() != &ErrorKind::PermissionDenied {
        return error;
    }
    if is_from_inside_a_script_of_redis_6(line) && script.needs.contains(&last_write()) {
        let detail = format!("it may have been partly executed: {}", refused.detail());
        return Error::with_detail(ErrorKind::Server, detail).into();
    }
    let needs = script.needs.iter().filter(|(command, key)| keys.need(command, key));
    let needs: Vec<_> = needs.cloned().collect();
    let denied = ask(transport, keys, &needs).await.unwrap_or_default();
    denied.first().map_or(error, |(command, key)| {
        let detail = if *key == DESTINATION {
            let key = keys.named(key).escape_ascii().to_string();
            format!("the user may not run {command} on the destination {key}")
        } else {
            format!("the user may not run {command} on the queue's key {key}")
        };
        Error::with_detail(ErrorKind::PermissionDenied, detail).into()
    })
}

/// What every script needs that can stop half-way: it is the last write of each.
fn last_write() -> Need {
    ("SET".to_owned(), "control")
}

/// The part of `needs` that the user lacks.
pub(crate) async fn ask(
    transport: &(impl Transport + ?Sized),
    keys: &Keys,
    needs: &[Need],
) -> Result<BTreeSet<Need>, CallError> {
    let question = |(command, key): &Need| {
        let arguments = least_arguments(command).unwrap_or(1);
        [command.clone().into(), keys.named(key), arguments.to_string().into()]
    };
    let args: Vec<Bytes> = needs.iter().flat_map(question).collect();
    let script = ScriptName::Source(QUESTION);
    let call = ScriptCall::new(script, keys.all(), &args);
    let unreadable = || Error::with_detail(ErrorKind::Protocol, "the answer about permissions");
    let Value::Array(answers) = transport.call(call).await? else {
        return Err(unreadable().into());
    };
    if answers.len() != needs.len() + 1 {
        return Err(unreadable().into());
    }
    let denied = needs.iter().zip(&answers[1..]).filter(|(_, answer)| **answer == Value::Int(0));
    Ok(denied.map(|(need, _)| need.clone()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::script::all_scripts;

    #[test]
    fn needs_are_read_off_the_scripts() {
        let needs: BTreeSet<_> =
            all_scripts().into_iter().flat_map(|script| script.needs.clone()).collect();
        for (command, key) in [
            ("HSET", "records"),
            ("ZADD", "index"),
            ("ZREM", "index"),
            ("LPUSH", "bell"),
            ("RENAME", "finished_new"),
        ] {
            assert!(needs.contains(&(command.to_owned(), key)), "{command} {key}");
        }
        for (command, _) in needs {
            assert!(least_arguments(&command).is_some(), "{command}");
        }
    }
}
