//! Known facts about a server.

use std::future::Future;
use std::sync::OnceLock;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::timeout;

use crate::Value;

/// Facts about the server at the other end of a connection. Refusals are not kept, because an
/// operator may change the server's settings.
#[derive(Debug, Default)]
pub(crate) struct Facts {
    pub(crate) run_id: OnceLock<String>,
    pub(crate) disk: OnceLock<Option<Proof>>,
    pub(crate) may_wait: OnceLock<()>,
    pub(crate) may_wait_for_disk: OnceLock<()>,
    asking: tokio::sync::Mutex<()>,
}

impl Facts {
    /// Returns a fact. If it is not known, one caller asks for all. Others wait for it at most for
    /// `limit`: its runtime may not be run any more, as can happen between two calls of `block_on`.
    pub(crate) async fn known<'a, T, E>(
        &self,
        fact: &'a OnceLock<T>,
        limit: Duration,
        ask: impl Future<Output = Result<T, E>>,
    ) -> Result<&'a T, E> {
        if let Some(known) = fact.get() {
            return Ok(known);
        }
        let _asking = timeout(limit, self.asking.lock()).await;
        if let Some(known) = fact.get() {
            return Ok(known);
        }
        let told = ask.await?;
        Ok(fact.get_or_init(|| told))
    }
}

/// The evidence that a write is durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Proof {
    /// This number of replicas has received the write.
    Replicas(u32),
    /// The server's append-only file has the write on disk.
    File,
}

impl Proof {
    /// Returns the command that waits for it, with its arguments.
    pub(crate) fn wait(self, limit: Duration) -> (&'static str, Vec<Bytes>) {
        let millis = Bytes::from(limit.as_millis().max(1).to_string());
        match self {
            Self::Replicas(count) => ("WAIT", vec![count.to_string().into(), millis]),
            Self::File => ("WAITAOF", vec!["1".into(), "0".into(), millis]),
        }
    }

    /// Returns whether a reply to that command gives the evidence.
    pub(crate) fn is_given_by(self, reply: &Value) -> bool {
        match (self, reply) {
            (Self::Replicas(count), Value::Int(confirmed)) => *confirmed >= i64::from(count),
            (Self::File, Value::Array(counts)) => {
                matches!(counts.first(), Some(Value::Int(local)) if *local >= 1)
            }
            _ => false,
        }
    }

    /// Describes why a reply does not give it.
    pub(crate) fn lack(self, reply: &Value) -> String {
        match (self, reply) {
            (Self::Replicas(count), Value::Int(confirmed)) => {
                format!("{confirmed} of {count} replicas confirmed it")
            }
            _ => {
                "it was not on disk (the server never confirms it if appendfsync is no)".to_owned()
            }
        }
    }
}
