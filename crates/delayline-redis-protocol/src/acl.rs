//! The permissions that a user of the server needs: prints them as access rules, and checks them.
//!
//! They are derived from the scripts, so no list of commands can become outdated.

use std::collections::{BTreeMap, BTreeSet};

use delayline_core::{Error, QueueName};

use crate::classify::is_forbidden;
use crate::info::fields_of;
use crate::keys::{BELL, CONTROL, KEY_PREFIX, Keys};
use crate::permissions::ask;
use crate::script::{
    CANCEL, CLAIM, ENQUEUE, EXTEND, GET, HAND_OFF, Need, PROGRESS, RELAY, RESCHEDULE, RING, SETTLE,
    STATS, Script, UPDATE, all_scripts,
};
use crate::transport::{CallError, Transport};

/// What a program does with a queue.
///
/// A server's rules only distinguish commands and keys. A user who may call scripts may call any
/// script, so within the queue's own keys, a role restricts only the commands. A producer needs
/// almost all commands that a worker needs. The rules keep a program to its queue; they do not keep
/// a producer from claiming.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AclRole {
    /// Enqueues, cancels, reschedules, looks up ids, counts.
    Producer,
    /// Claims, settles, extends, waits, counts.
    Worker,
    /// Relays, waits, counts. Add the destination's key to its rules.
    Relay,
    /// Everything.
    Admin,
}

impl AclRole {
    /// All roles.
    pub const ALL: [Self; 4] = [Self::Producer, Self::Worker, Self::Relay, Self::Admin];

    /// Returns the name of the role: `producer`, `worker`, `relay` or `admin`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Producer => "producer",
            Self::Worker => "worker",
            Self::Relay => "relay",
            Self::Admin => "admin",
        }
    }

    /// Returns the commands that the role needs, in lower case and sorted: the commands of its
    /// scripts, and those of a driver.
    #[must_use]
    pub fn commands(self) -> BTreeSet<String> {
        // Every user has `AUTH` and `HELLO`. `INFO` may be denied, but then a server that evicts
        // messages is not detected. `WAIT` is for durability only, and delays no other client.
        // `CLIENT` may be denied: then operators do not see which processes have workers.
        let of_drivers = ["eval", "evalsha", "info", "ping", "wait"].map(str::to_owned);
        let names: &[&str] = match self {
            Self::Producer | Self::Relay => &[],
            Self::Worker => &["client|setname"],
            Self::Admin => &["client|list", "client|setname"],
        };
        let names = names.iter().copied().map(str::to_owned);
        let scripts = self.scripts().into_iter();
        let called = scripts.flat_map(|script| calls_of(&script.source).collect::<Vec<_>>());
        let wait = self.waits().then(|| "blpop".to_owned());
        of_drivers.into_iter().chain(called).chain(wait).chain(names).collect()
    }

    /// Returns the rules for `ACL SETUSER` that permit this role on this queue and nothing else.
    /// The user's passwords are kept.
    #[must_use]
    pub fn rules(self, queue: &QueueName) -> String {
        // No character in a queue's name has a meaning in a pattern. Its shards have its name and
        // `#`, which no other name contains. Channels need no rule, which Redis 6.0 would not know:
        // the commands that use them are not permitted.
        let own = format!("~{KEY_PREFIX}{{{queue}}}:*");
        let mut rules = format!("on resetkeys {own} ~{KEY_PREFIX}{{{queue}#*}}:* -@all");
        for command in self.commands() {
            rules = rules + " +" + &command;
        }
        rules
    }

    /// Returns whether the role waits for hints.
    fn waits(self) -> bool {
        self != Self::Producer
    }

    fn scripts(self) -> Vec<&'static Script> {
        match self {
            Self::Producer => {
                vec![&ENQUEUE, &UPDATE, &CANCEL, &RESCHEDULE, &GET, &PROGRESS, &STATS]
            }
            Self::Worker => vec![&CLAIM, &SETTLE, &HAND_OFF, &EXTEND, &STATS, &RING],
            Self::Relay => vec![&RELAY, &STATS, &RING],
            Self::Admin => all_scripts(),
        }
    }
}

/// Returns the commands that a script calls, with keys or without, in lower case.
fn calls_of(source: &str) -> impl Iterator<Item = String> {
    let calls = source.split("redis.call('").skip(1);
    calls.filter_map(|call| call.split('\'').next()).map(str::to_ascii_lowercase)
}

/// A permission that the user of a connection lacks.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Denial {
    /// The role that needs the permission.
    pub role: AclRole,
    /// The command, in upper case.
    pub command: String,
    /// The name of the queue's key, as in [`KEY_NAMES`](crate::KEY_NAMES).
    pub key: &'static str,
}

/// Returns the permissions that the user of this connection lacks for each role. Changes nothing.
/// Servers before Redis 7.0 cannot be asked; for them, the result is empty.
///
/// # Errors
///
/// Like a call; [`ErrorKind::PermissionDenied`](delayline_core::ErrorKind::PermissionDenied) if the
/// user may not even ask, which takes `EVAL` on the queue's keys.
async fn denials(
    transport: &(impl Transport + ?Sized),
    queue: &QueueName,
) -> Result<Vec<Denial>, Error> {
    let keys = Keys::new(queue);
    let needs = |role: AclRole| -> BTreeSet<Need> {
        let scripts = role.scripts().into_iter().flat_map(|script| script.needs.clone());
        let wait = role.waits().then(|| ("BLPOP".to_owned(), BELL));
        // The destination of a relay is not known here.
        scripts.chain(wait).filter(|(command, key)| keys.need(command, key)).collect()
    };
    let all: Vec<_> = needs(AclRole::Admin).into_iter().collect();
    let denied = ask(transport, &keys, &all).await.map_err(CallError::into_error)?;
    let mut denials = Vec::new();
    for role in AclRole::ALL {
        for (command, key) in needs(role).intersection(&denied) {
            denials.push(Denial { role, command: command.clone(), key });
        }
    }
    Ok(denials)
}

/// The facts that a server reports about itself, and the permissions that its user lacks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Inspection {
    /// The fields of `INFO`: `redis_version`, `maxmemory_policy` and so on. Empty if the user may
    /// not call it, or the server has none.
    pub info: BTreeMap<String, String>,
    /// The permissions that each role lacks on the queue. Empty for servers before Redis 7.0, which
    /// cannot be asked.
    pub denials: Vec<Denial>,
}

/// Inspects a server, and the permissions of its user on a queue. Changes nothing.
///
/// # Cancel safety
///
/// This call changes nothing; its future can be dropped.
///
/// # Errors
///
/// Like a call; [`ErrorKind::PermissionDenied`](delayline_core::ErrorKind::PermissionDenied) if the
/// user may not call scripts on the queue's keys.
pub async fn inspect(
    transport: &(impl Transport + ?Sized),
    queue: &QueueName,
) -> Result<Inspection, Error> {
    let text = match transport.info(&Keys::new(queue).named(CONTROL)).await {
        Ok(text) => text,
        Err(CallError::Reply(line)) if is_forbidden(&line) => String::new(),
        Err(error) => return Err(error.into_error()),
    };
    let info = fields_of(&text);
    Ok(Inspection { info, denials: denials(transport, queue).await? })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use async_trait::async_trait;
    use bytes::Bytes;
    use delayline_core::ErrorKind;

    use super::*;
    use crate::transport::{ScriptCall, Value};

    /// A server that permits all scripts, and replies to `INFO` with this error line.
    #[derive(Debug)]
    struct WithoutInfo(&'static str);

    #[async_trait]
    impl Transport for WithoutInfo {
        async fn call(&self, call: ScriptCall<'_>) -> Result<Value, CallError> {
            // The script takes three arguments per question, and returns one more answer.
            Ok(Value::Array(vec![Value::Int(1); call.args.len() / 3 + 1]))
        }

        async fn wait(&self, _: &Bytes, _: Duration) -> Result<bool, CallError> {
            Ok(false)
        }

        async fn info(&self, _: &Bytes) -> Result<String, CallError> {
            Err(CallError::Reply(self.0.to_owned()))
        }
    }

    #[tokio::test]
    async fn a_server_is_inspected_without_the_permission_to_call_info() {
        let queue = QueueName::new("orders").unwrap();
        for line in [
            "NOPERM this user has no permissions to run the 'info' command",
            "ERR unknown command 'INFO', with args beginning with: ",
        ] {
            assert_eq!(inspect(&WithoutInfo(line), &queue).await.unwrap(), Inspection::default());
        }
        let loading = WithoutInfo("LOADING Redis is loading the dataset in memory");
        assert_eq!(inspect(&loading, &queue).await.unwrap_err().kind(), &ErrorKind::Busy);
    }

    #[test]
    fn roles_have_the_names_that_the_command_takes() {
        assert_eq!(AclRole::ALL.map(AclRole::name), ["producer", "worker", "relay", "admin"]);
    }

    #[test]
    fn roles_need_what_their_scripts_call_and_no_more() {
        let [producer, worker, relay, admin] = AclRole::ALL.map(AclRole::commands);
        assert!(producer.contains("zadd") && producer.contains("evalsha"));
        assert!(!producer.contains("blpop") && worker.contains("blpop"));
        assert!(producer.is_subset(&admin) && worker.is_subset(&admin));
        assert!(relay.is_subset(&admin) && relay.contains("rpush") && !worker.contains("rpush"));
        for commands in [&producer, &worker, &relay, &admin] {
            for never in ["keys", "flushall", "config", "eval_ro", "script", "del"] {
                assert!(!commands.contains(never), "{never}");
            }
        }
        let rules = AclRole::Worker.rules(&QueueName::new("orders").unwrap());
        let keys = "~delayline:{orders}:* ~delayline:{orders#*}:*";
        assert!(rules.starts_with(&format!("on resetkeys {keys} -@all +")), "{rules}");
    }
}
