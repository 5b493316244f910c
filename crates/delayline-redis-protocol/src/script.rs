//! The scripts: one for each operation, all with the same beginning.

use std::sync::LazyLock;

use delayline_core::Op;

use crate::keys::KEY_NAMES;

/// A script as the server gets it.
#[derive(Debug)]
pub struct Script {
    /// Its text.
    pub source: String,
    /// The SHA-1 of its text, in 40 lowercase hexadecimal digits: its name in the server's cache.
    pub sha1: String,
}

macro_rules! scripts {
    ($($name:ident: $($file:literal),+;)+) => {
        $(pub(crate) static $name: LazyLock<Script> = LazyLock::new(|| {
            Script::new(&[include_str!("../lua/prelude.lua"), $(include_str!(concat!("../lua/", $file))),+])
        });)+

        /// All scripts, for tests and for loading them ahead.
        #[must_use]
        pub fn all_scripts() -> Vec<&'static Script> {
            vec![$(&*$name),+]
        }
    };
}

scripts! {
    ENQUEUE: "enqueue.lua";
    CLAIM: "remains.lua", "claim.lua";
    SETTLE: "settle.lua";
    EXTEND: "extend.lua";
    CANCEL: "cancel.lua";
    RESCHEDULE: "reschedule.lua";
    REDRIVE: "redrive.lua";
    PURGE: "purge.lua";
    PAUSE: "pause.lua";
    GET: "get.lua";
    LIST: "walk.lua", "list.lua";
    STATS: "stats.lua";
    CHECK: "walk.lua", "audit.lua", "check.lua";
    REPAIR: "walk.lua", "audit.lua", "remains.lua", "repair.lua";
    RING: "ring.lua";
}

impl Script {
    /// The script that carries out `op`.
    #[must_use]
    pub fn of(op: &Op) -> &'static Self {
        match op {
            Op::Enqueue(_) => &ENQUEUE,
            Op::Claim(_) => &CLAIM,
            Op::Settle(_) => &SETTLE,
            Op::Extend(_) => &EXTEND,
            Op::Cancel(_) => &CANCEL,
            Op::Reschedule(_) => &RESCHEDULE,
            Op::Redrive(_) => &REDRIVE,
            Op::Purge(_) => &PURGE,
            Op::Pause | Op::Resume => &PAUSE,
            Op::Get(_) => &GET,
            Op::List(_) => &LIST,
            Op::Stats => &STATS,
            Op::Check(_) => &CHECK,
            Op::Repair(_) => &REPAIR,
        }
    }

    /// The script that gives a hint.
    #[must_use]
    pub fn of_ring() -> &'static Self {
        &RING
    }

    fn new(parts: &[&str]) -> Self {
        let source = with_literal_keys(&parts.concat());
        let sha1 = sha1_smol::Sha1::from(&source).digest().to_string();
        Self { source, sha1 }
    }
}

/// Puts `KEYS[i]` for `key.NAME`: some servers and proxies accept a key in a script only as a
/// literal `KEYS[i]` (<https://github.com/HDT3213/delayqueue/issues/12>).
fn with_literal_keys(source: &str) -> String {
    let mut names: Vec<_> = KEY_NAMES.into_iter().zip(1..).collect();
    // A name may begin with another one.
    names.sort_by_key(|(name, _)| std::cmp::Reverse(name.len()));
    names.into_iter().fold(source.to_owned(), |text, (name, position)| {
        text.replace(&format!("key.{name}"), &format!("KEYS[{position}]"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_is_a_literal_and_declared() {
        for script in all_scripts() {
            let code: String = script
                .source
                .lines()
                .filter(|line| !line.trim_start().starts_with("--"))
                .collect::<Vec<_>>()
                .join("\n");
            assert!(!code.contains("key."), "a key that keys.rs does not know");
            for call in code.split("redis.call(").skip(1) {
                let arguments = call.split(')').next().unwrap_or_default();
                let mut arguments = arguments.splitn(3, ',').map(str::trim);
                let command = arguments.next().unwrap_or_default();
                assert!(command.starts_with('\'') && command.ends_with('\''), "{call:.60}");
                if command != "'TIME'" {
                    let key = arguments.next().unwrap_or_default();
                    assert!(key.starts_with("KEYS["), "{call:.60}");
                }
            }
        }
    }

    #[test]
    fn numbers_that_both_sides_know_agree() {
        use delayline_core::limits::{
            FINISHED_RETENTION_MS, JOURNAL_RETENTION_MS, MAX_FINISHED, MAX_JOURNAL,
            MAX_TIMESTAMP_MS, SAFETY_POLL_MS,
        };
        for line in [
            format!("local MAX_TIMESTAMP = {MAX_TIMESTAMP_MS}\n"),
            format!(
                "local FINISHED_RETENTION, MAX_FINISHED = {FINISHED_RETENTION_MS}, {MAX_FINISHED}\n"
            ),
            format!(
                "local JOURNAL_RETENTION, MAX_JOURNAL = {JOURNAL_RETENTION_MS}, {MAX_JOURNAL}\n"
            ),
            format!("local SAFETY_POLL = {SAFETY_POLL_MS} "),
        ] {
            assert!(all_scripts().iter().all(|script| script.source.contains(&line)), "{line}");
        }
    }

    #[test]
    fn scripts_are_plain_lua_that_every_server_takes() {
        for script in all_scripts() {
            assert!(script.source.is_ascii());
            assert!(!script.source.starts_with("#!"));
            for word in ["cjson", "math.random", "redis.pcall", "KEYS[#", "loadstring"] {
                assert!(!script.source.contains(word), "{word}");
            }
            assert_eq!(script.sha1.len(), 40);
        }
    }
}
