//! Whether the user may run what a script calls, asked before the script runs.
//!
//! Redis checks permissions call by call and rolls nothing back, so a script that lacks one would
//! stop half-way (G3). The scripts name their commands and keys literally, so what they need can be
//! read off them.

use std::collections::BTreeSet;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use delayline_core::{Error, ErrorKind};

use crate::commands::least_arguments;
use crate::keys::Keys;
use crate::script::{Script, all_scripts};
use crate::transport::{CallError, ScriptCall, ScriptName, Transport, Value};

const QUESTION: &str = include_str!("../lua/permissions.lua");

/// A command and the name of the key that a script calls it on.
pub(crate) type Need = (String, &'static str);

/// What any script needs.
static NEEDS: LazyLock<Vec<Need>> = LazyLock::new(|| {
    let needs: BTreeSet<_> = all_scripts().into_iter().flat_map(Script::needs).collect();
    needs.into_iter().collect()
});

/// Which scripts the user is known to be permitted.
///
/// Only a permission is remembered, so that one that is granted later takes effect.
#[derive(Debug, Default)]
pub(crate) struct Permissions(Vec<(&'static str, AtomicBool)>);

impl Permissions {
    pub(crate) fn unknown() -> Self {
        Self(all_scripts().into_iter().map(|s| (s.sha1.as_str(), AtomicBool::new(false))).collect())
    }

    /// Asks the server, unless it is known, whether the user may run everything that `script` calls.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::PermissionDenied`] with the command and the key, or the failure of the call.
    pub(crate) async fn require(
        &self,
        transport: &impl Transport,
        keys: &Keys,
        script: &Script,
    ) -> Result<(), CallError> {
        if self.is_permitted(script) {
            return Ok(());
        }
        let denied = ask(transport, keys, &NEEDS).await?;
        for (sha1, permitted) in &self.0 {
            let script = all_scripts().into_iter().find(|script| script.sha1 == *sha1);
            let lacks = |script: &Script| script.needs().any(|need| denied.contains(&need));
            permitted.store(script.is_some_and(|script| !lacks(script)), Ordering::Relaxed);
        }
        match script.needs().find(|need| denied.contains(need)) {
            None => Ok(()),
            Some((command, key)) => {
                let detail = format!("the user may not run {command} on the queue's key {key}");
                Err(Error::with_detail(ErrorKind::PermissionDenied, detail).into())
            }
        }
    }

    fn is_permitted(&self, script: &Script) -> bool {
        let known = self.0.iter().find(|(sha1, _)| *sha1 == script.sha1);
        known.is_some_and(|(_, permitted)| permitted.load(Ordering::Relaxed))
    }
}

/// What of `needs` the user may not do.
pub(crate) async fn ask(
    transport: &impl Transport,
    keys: &Keys,
    needs: &[Need],
) -> Result<BTreeSet<Need>, CallError> {
    let question = |(command, key): &Need| {
        let arguments = least_arguments(command).unwrap_or(1);
        [command.clone().into(), keys.named(key), arguments.to_string().into()]
    };
    let args: Vec<Bytes> = needs.iter().flat_map(question).collect();
    let call = ScriptCall { script: ScriptName::Source(QUESTION), keys: keys.all(), args: &args };
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

    #[test]
    fn needs_are_read_off_the_scripts() {
        for need in [
            ("HSET", "records"),
            ("ZADD", "due"),
            ("ZREM", "leased"),
            ("LPUSH", "bell"),
            ("RENAME", "finished_new"),
        ] {
            assert!(NEEDS.contains(&(need.0.to_owned(), need.1)), "{need:?}");
        }
    }

    #[test]
    fn it_is_known_how_many_arguments_each_command_takes() {
        for (command, _) in NEEDS.iter() {
            assert!(least_arguments(command).is_some(), "{command}");
        }
    }
}
