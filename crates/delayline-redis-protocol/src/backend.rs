//! The implementation of `Backend` on Redis, over any driver.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use delayline_core::{
    Applied, At, Backend, Destination, DestinationKey, Durability, Error, ErrorKind, Op, QueueName,
    Wakeup,
};

use crate::classify::{SEVERAL_SLOTS, is_forbidden, is_no_script};
use crate::decode::{Removal, decode, decode_removal};
use crate::encode::encode;
use crate::keys::{BELL, CONTROL, FENCE, Keys};
use crate::permissions::explained;
use crate::preflight::check_server;
use crate::record::unsupported;
use crate::script::{DELETE_QUEUE, Script};
use crate::slot::slot_of;
use crate::transport::{CallError, Fence, ScriptCall, ScriptName, Transport, Value};

/// Why a cluster refuses a destination.
const ANOTHER_SLOT: &str = "a destination in another hash slot";

/// A queue in Redis.
///
/// Queues with the same transport share its connections.
#[derive(Debug)]
pub struct ScriptBackend<T: ?Sized> {
    name: QueueName,
    transport: Arc<T>,
    keys: Keys,
}

impl<T: Transport + ?Sized> ScriptBackend<T> {
    /// Opens the queue `name`. First checks that the server accepts writes and does not evict
    /// messages; if the user may not call `INFO`, or the server has none, that is assumed.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect: opening does not change the queue.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::ReadOnly`](delayline_core::ErrorKind::ReadOnly) for a replica;
    /// [`ErrorKind::Evicting`](delayline_core::ErrorKind::Evicting) if the server may evict keys
    /// and `allow_eviction` is not set;
    /// [`ErrorKind::NewerVersion`](delayline_core::ErrorKind::NewerVersion) if a newer library has
    /// written the queue; and any error of the connection.
    pub async fn open(
        transport: Arc<T>,
        name: QueueName,
        allow_eviction: bool,
    ) -> Result<Self, Error> {
        let queue = Self::open_any_layout(transport, name, allow_eviction).await?;
        queue.apply(At::Server, &Op::Stats).await?;
        Ok(queue)
    }

    /// Opens the queue `name` whichever layout it has, to [upgrade](Self::upgrade_page) it. Checks
    /// the server as [`open`](Self::open) does, but not the queue.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect: opening does not change the queue.
    ///
    /// # Errors
    ///
    /// Like [`open`](Self::open), except for the errors about the queue.
    pub async fn open_any_layout(
        transport: Arc<T>,
        name: QueueName,
        allow_eviction: bool,
    ) -> Result<Self, Error> {
        let queue = Self::new(transport, &name);
        let control = queue.keys.named(CONTROL);
        match queue.transport.info(&control).await {
            Ok(info) => check_server(&info, allow_eviction)?,
            Err(CallError::Reply(line)) if is_forbidden(&line) => {}
            Err(error) => return Err(error.into_error()),
        }
        Ok(queue)
    }

    /// Returns another queue on the same server, over the same connections, without the checks of
    /// [`open`](Self::open).
    #[must_use]
    pub fn with_queue(&self, name: &QueueName) -> Self {
        Self::new(Arc::clone(&self.transport), name)
    }

    /// Removes all keys of the queue in one atomic step if it holds no message, no result that is
    /// kept, and no throttled id. Otherwise it changes nothing, and returns the counts.
    ///
    /// The ids of messages that finished in the last hour are forgotten. The user
    /// needs `UNLINK` on all of its keys.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the queue may have been removed. It is safe to call it again.
    ///
    /// # Errors
    ///
    /// Like a call.
    pub async fn delete_if_empty(&self) -> Result<Removal, Error> {
        self.removal(b"1").await
    }

    /// Returns what [`delete_if_empty`](Self::delete_if_empty) would return, and removes nothing.
    ///
    /// # Errors
    ///
    /// Like a call.
    pub async fn held(&self) -> Result<Removal, Error> {
        self.removal(b"0").await
    }

    async fn removal(&self, is_final: &'static [u8]) -> Result<Removal, Error> {
        let args = [Bytes::new(), Bytes::from_static(is_final)];
        let reply = self.run(&self.keys, &DELETE_QUEUE, &args, None).await;
        let removal = reply.map_err(CallError::into_error).and_then(decode_removal);
        removal.map_err(|error| self.with_remedy(&Op::Stats, error))
    }

    /// Runs a script once, whether or not the server has cached it.
    pub(crate) async fn run(
        &self,
        keys: &Keys,
        script: &Script,
        args: &[Bytes],
        fence: Option<Fence<'_>>,
    ) -> Result<Value, CallError> {
        let named = keys.of(&script.keys);
        let call = |script| ScriptCall { script, keys: &named, args, fence };
        let mut reply = self.transport.call(call(ScriptName::Sha1(&script.sha1))).await;
        if matches!(&reply, Err(CallError::Reply(line)) if is_no_script(line)) {
            // The server was restarted or its cache was flushed; it has executed nothing. EVAL
            // sends the source, so the script cannot be missing again.
            reply = self.transport.call(call(ScriptName::Source(&script.source))).await;
        }
        match reply {
            Err(error) => Err(explained(&*self.transport, keys, script, error).await),
            reply => reply,
        }
    }

    fn with_remedy(&self, op: &Op, error: Error) -> Error {
        match (error.kind(), op) {
            (ErrorKind::Damaged, _) if error.detail().is_empty() => {}
            (ErrorKind::Unsupported(what), Op::Relay(relay)) if *what == SEVERAL_SLOTS => {
                return self.in_another_slot(relay.to.key());
            }
            (ErrorKind::WrongType, Op::Relay(relay)) => {
                // The server does not say which key it is.
                let kind = match relay.to {
                    Destination::List { .. } => "list",
                    Destination::Stream { .. } => "stream",
                    _ => return error,
                };
                let detail = format!("{}; is {} a {kind}?", error.detail(), relay.to.key());
                return Error::with_detail(ErrorKind::WrongType, detail);
            }
            _ => return error,
        }
        let key = self.keys.named(CONTROL);
        let remedy = format!(
            "delete the key {}, and then repair the queue; no message is lost, but the queue \
             loses its totals, is not paused, and forgets which ids have finished; it loses its \
             limits and its order, too: set them again before workers resume",
            String::from_utf8_lossy(&key)
        );
        Error::with_detail(ErrorKind::Damaged, remedy)
    }

    /// A cluster moves messages only within a slot.
    fn in_another_slot(&self, destination: &DestinationKey) -> Error {
        let (name, slot) = (&self.name, slot_of(&self.keys.named(CONTROL)));
        let other = slot_of(destination.as_bytes());
        let detail = format!(
            "{destination} is in slot {other} and the queue {name} in slot {slot}; a key whose \
             first braces are {{{name}}} is in the queue's"
        );
        Error::with_detail(ErrorKind::Unsupported(ANOTHER_SLOT), detail)
    }

    async fn execute(&self, at: At, op: &Op, fence: Option<Fence<'_>>) -> Result<Applied, Error> {
        let with_destination = match op {
            Op::Relay(relay) => Some(self.keys.with_destination(&relay.to)),
            _ => None,
        };
        let keys = with_destination.as_ref().unwrap_or(&self.keys);
        let script = Script::of(op).ok_or_else(|| unsupported(op.name()))?;
        let reply = self.run(keys, script, &encode(at, op)?, fence).await;
        let applied = reply.map_err(CallError::into_error).and_then(|reply| decode(op, reply));
        applied.map_err(|error| self.with_remedy(op, error))
    }

    fn new(transport: Arc<T>, name: &QueueName) -> Self {
        Self { name: name.clone(), transport, keys: Keys::new(name) }
    }

    /// The key of the control record.
    pub(crate) fn control_key(&self) -> Bytes {
        self.keys.named(CONTROL)
    }

    /// The keys of this queue, for access rules.
    #[must_use]
    pub fn keys(&self) -> &Keys {
        &self.keys
    }
}

#[async_trait]
impl<T: Transport + ?Sized> Backend for ScriptBackend<T> {
    async fn apply(&self, at: At, op: &Op) -> Result<Applied, Error> {
        op.validate()?;
        self.execute(at, op, None).await
    }

    fn queue_name(&self) -> Option<&QueueName> {
        Some(&self.name)
    }

    async fn apply_durably(
        &self,
        at: At,
        op: &Op,
        durability: Durability,
    ) -> Result<Applied, Error> {
        op.validate()?;
        durability.validate()?;
        let key = self.keys.named(FENCE);
        let fence = (durability != Durability::None).then_some(Fence { durability, key: &key });
        self.execute(at, op, fence).await
    }
}

#[async_trait]
impl<T: Transport + ?Sized> Wakeup for ScriptBackend<T> {
    async fn wait(&self, timeout: Duration) -> Result<bool, Error> {
        self.transport.wait(&self.keys.named(BELL), timeout).await.map_err(CallError::into_error)
    }

    async fn ring(&self) -> Result<(), Error> {
        self.run(&self.keys, Script::of_ring(), &[Bytes::new()], None)
            .await
            .map(drop)
            .map_err(CallError::into_error)
    }
}
