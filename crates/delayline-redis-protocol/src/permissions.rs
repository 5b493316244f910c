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

use crate::keys::{KEY_NAMES, Keys};
use crate::script::{Script, all_scripts};
use crate::transport::{CallError, ScriptCall, ScriptName, Transport, Value};

const QUESTION: &str = include_str!("../lua/permissions.lua");

/// A command and the number of the key (from 1) that a script calls it on.
pub(crate) type Need = (String, usize);

/// What any script needs.
static NEEDS: LazyLock<Vec<Need>> = LazyLock::new(|| {
    let needs: BTreeSet<_> = all_scripts().into_iter().flat_map(|s| needs_of(&s.source)).collect();
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
            let lacks =
                |script: &Script| needs_of(&script.source).any(|need| denied.contains(&need));
            permitted.store(script.is_some_and(|script| !lacks(script)), Ordering::Relaxed);
        }
        match needs_of(&script.source).find(|need| denied.contains(need)) {
            None => Ok(()),
            Some((command, key)) => {
                let key = KEY_NAMES.get(key - 1).copied().unwrap_or_default();
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
    let name = |key: &usize| keys.all().get(key - 1).cloned().unwrap_or_default();
    let pair = |(command, key): &Need| [command.clone().into(), name(key)];
    let args: Vec<Bytes> = needs.iter().flat_map(pair).collect();
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

/// The commands and keys that stand in a script.
pub(crate) fn needs_of(source: &str) -> impl Iterator<Item = Need> {
    source.split("redis.call('").skip(1).filter_map(|call| {
        let (command, rest) = call.split_once('\'')?;
        let key = rest.strip_prefix(", KEYS[")?.split(']').next()?.parse().ok()?;
        Some((command.to_owned(), key))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn needs_are_read_off_the_scripts() {
        let needs: Vec<_> = needs_of("redis.call('TIME') redis.call('ZADD', KEYS[2], 1)").collect();
        assert_eq!(needs, [("ZADD".to_owned(), 2)]);
        for need in [("HSET", 5), ("ZADD", 2), ("ZREM", 3), ("LPUSH", 12), ("RENAME", 8)] {
            assert!(NEEDS.contains(&(need.0.to_owned(), need.1)), "{need:?}");
        }
    }
}
