//! What a user of the server must be permitted, for access rules and for looking whether it is.
//!
//! Read off the scripts, so that no list of commands can fall behind them.

use std::collections::BTreeSet;

use bytes::Bytes;
use delayline_core::{
    Check, Claim, ClaimId, ConsumerName, Error, ErrorKind, Extend, List, Millis, Op, QueueName,
    Redrive, Schedule, Status,
};

use crate::classify::classify;
use crate::keys::{KEY_NAMES, KEY_PREFIX, Keys};
use crate::permissions::{ask, needs_of};
use crate::script::Script;
use crate::transport::{CallError, Transport};

/// What a program does with a queue.
///
/// Commands and keys are all that a server's rules can tell apart. A user who may call scripts at
/// all may call any script, so within the queue's own keys a role bounds the commands only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Enqueues, cancels, reschedules, looks up by id, counts.
    Producer,
    /// Claims, settles, extends, waits, counts.
    Worker,
    /// Everything.
    Admin,
}

impl Role {
    /// All roles.
    pub const ALL: [Self; 3] = [Self::Producer, Self::Worker, Self::Admin];

    /// The role's name: `producer`, `worker`, `admin`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Producer => "producer",
            Self::Worker => "worker",
            Self::Admin => "admin",
        }
    }

    /// The commands that the role needs, in lower case and in order: those that its scripts call,
    /// and those that a driver sends.
    #[must_use]
    pub fn commands(self) -> BTreeSet<String> {
        // `AUTH` and `HELLO` are every user's. `INFO` may be denied, but then nobody notices a
        // server that evicts messages.
        let of_drivers = ["eval", "evalsha", "info", "ping"].map(str::to_owned);
        let called = self.scripts().into_iter().flat_map(|script| calls_of(&script.source));
        let wait = self.waits().then(|| "blpop".to_owned());
        of_drivers.into_iter().chain(called).chain(wait).collect()
    }

    /// The rules of `ACL SETUSER` that permit this role on this queue and nothing else. Passwords
    /// that the user has stay.
    #[must_use]
    pub fn rules(self, queue: &QueueName) -> String {
        // No character that a queue's name may hold means anything in a pattern.
        let mut rules = format!("on resetkeys ~{KEY_PREFIX}{{{queue}}}:* resetchannels -@all");
        for command in self.commands() {
            rules = rules + " +" + &command;
        }
        rules
    }

    fn waits(self) -> bool {
        self != Self::Producer
    }

    fn scripts(self) -> Vec<&'static Script> {
        let mut scripts: Vec<_> = every_op()
            .iter()
            .filter(|op| match self {
                Self::Producer => matches!(
                    op,
                    Op::Enqueue(_) | Op::Cancel(_) | Op::Reschedule(_) | Op::Get(_) | Op::Stats
                ),
                Self::Worker => {
                    matches!(op, Op::Claim(_) | Op::Settle(_) | Op::Extend(_) | Op::Stats)
                }
                Self::Admin => true,
            })
            .map(Script::of)
            .collect();
        scripts.push(Script::of_ring());
        scripts
    }
}

/// Something that the user of a connection may not do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denial {
    /// The role that lacks it.
    pub role: Role,
    /// The command, in upper case.
    pub command: String,
    /// The name of the queue's key, as in [`KEY_NAMES`].
    pub key: &'static str,
}

/// What the user of this connection lacks for each role. Changes nothing. A server before Redis 7.0
/// cannot be asked and denies nothing here.
///
/// # Errors
///
/// Like a call; [`ErrorKind::PermissionDenied`] if the user may not even ask, which takes `EVAL`
/// on the queue's keys.
pub async fn denials(transport: &impl Transport, queue: &QueueName) -> Result<Vec<Denial>, Error> {
    let keys = Keys::new(queue);
    let bell = KEY_NAMES.len();
    let needs = |role: Role| -> BTreeSet<(String, usize)> {
        let scripts = role.scripts().into_iter().flat_map(|script| needs_of(&script.source));
        scripts.chain(role.waits().then(|| ("BLPOP".to_owned(), bell))).collect()
    };
    let all: Vec<_> = needs(Role::Admin).into_iter().collect();
    let denied = ask(transport, &keys, &all).await.map_err(|error| match error {
        CallError::Reply(line) => classify(&line),
        CallError::Failed(error) => error,
    })?;
    let mut denials = Vec::new();
    for role in Role::ALL {
        for (command, key) in needs(role).intersection(&denied) {
            let key = KEY_NAMES.get(key - 1).copied().unwrap_or_default();
            denials.push(Denial { role, command: command.clone(), key });
        }
    }
    Ok(denials)
}
