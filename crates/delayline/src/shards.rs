//! One queue over several places: a backend that composes the backends of its shards.
//!
//! Each shard is a plain queue. A message with a group is in the shard of its group, any other
//! message in that of its id. So everything about one group is as exact as in a plain queue. An
//! operation on several shards is not one atomic step: its parts run at the same time, and if some
//! of them fail, it fails as [`ErrorKind::Partial`] and can be repeated.

mod batch;
mod claim;
mod heads;
mod ids;
mod journal;
mod lease;
mod limits;
mod open;
mod pages;
mod removal;
mod settle;
mod sums;
#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use delayline_core::{
    Applied, At, Backend, Durability, Error, ErrorClass, ErrorKind, Group, MessageId, MessageInfo,
    NewMessage, Op, QueueBackend, QueueName, Reply, Timestamp, Wakeup,
};
use futures_util::future::{join_all, select_ok};
use xxhash_rust::xxh3::xxh3_64;

use self::heads::Heads;
pub(crate) use self::ids::Ids;
use self::journal::Journal;
pub(crate) use self::lease::epoch_of;
pub(crate) use self::open::{Opened, is_record, names, number, open, strays};
pub(crate) use self::pages::cursor_of;
pub(crate) use self::removal::delete_if_empty;

/// A queue of several shards.
pub(crate) struct Shards {
    name: QueueName,
    shards: Vec<Shard>,
    heads: Mutex<Heads>,
    journal: Mutex<Journal>,
}

/// One shard.
struct Shard {
    name: QueueName,
    backend: Arc<dyn QueueBackend>,
}

/// How the parts of an operation are applied.
#[derive(Clone, Copy)]
struct How {
    at: At,
    durability: Durability,
}

/// The replies of shards to the parts of an operation, with the latest of their instants and the
/// sum of their revisions.
struct Parts<T> {
    replies: T,
    at: Timestamp,
    revision: u64,
}

impl Shards {
    /// Returns the shard that a message was sent to.
    pub(crate) fn near(&self, info: &MessageInfo) -> Arc<dyn QueueBackend> {
        let place = place_of(info.group.as_ref(), &info.id, self.shards.len());
        Arc::clone(&self.shards[place].backend)
    }

    fn new(name: QueueName, shards: Vec<Shard>) -> Self {
        let heads = Mutex::new(Heads::new(shards.len()));
        Self { name, shards, heads, journal: Mutex::default() }
    }

    fn heads(&self) -> MutexGuard<'_, Heads> {
        // Nothing panics while it is locked.
        self.heads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The shard of an id.
    fn of_id(&self, id: &MessageId) -> usize {
        place_of(None, id, self.shards.len())
    }

    /// The shard of a message that is sent.
    fn of_message(&self, message: &NewMessage) -> usize {
        place_of(message.group.as_ref(), &message.id, self.shards.len())
    }

    /// Applies an operation to one shard.
    ///
    /// # Errors
    ///
    /// That of the shard, with its name.
    async fn send(&self, shard: usize, how: How, op: &Op) -> Result<Applied, Error> {
        let Shard { name, backend } = &self.shards[shard];
        let applied = match how.durability {
            Durability::None => backend.apply(how.at, op).await,
            durability => backend.apply_durably(how.at, op, durability).await,
        };
        applied.map_err(|error| {
            let detail = format!("{name}: {}", error.detail());
            let detail = detail.strip_suffix(": ").unwrap_or(&detail);
            Error::with_source(error.kind().clone(), detail, error)
        })
    }

    /// Applies operations to shards, at the same time. Returns their replies in order.
    ///
    /// # Errors
    ///
    /// [`failure`] of the parts that failed.
    async fn send_all(
        &self,
        how: How,
        parts: Vec<(usize, Op)>,
    ) -> Result<Parts<Vec<Applied>>, Error> {
        let is_read_only = parts.iter().all(|(_, op)| op.is_read_only());
        let calls = parts.iter().map(|(shard, op)| self.send(*shard, how, op));
        let (mut at, mut revision, mut replies) = (Timestamp::MIN, 0_u64, Vec::new());
        let mut errors = Vec::new();
        for result in join_all(calls).await {
            match result {
                Ok(applied) => {
                    at = at.max(applied.at);
                    revision = revision.saturating_add(applied.revision);
                    replies.push(applied);
                }
                Err(error) => errors.push(error),
            }
        }
        match failure(errors, is_read_only || replies.is_empty()) {
            Some(error) => Err(error),
            None => Ok(Parts { replies, at, revision }),
        }
    }

    /// Applies an operation to every shard.
    ///
    /// # Errors
    ///
    /// Like [`send_all`](Self::send_all).
    async fn everywhere(&self, how: How, op: &Op) -> Result<Parts<Vec<Applied>>, Error> {
        self.send_all(how, (0..self.shards.len()).map(|shard| (shard, op.clone())).collect()).await
    }

    /// Applies an operation that changes all shards, and returns whether it changed any.
    async fn change(&self, how: How, op: &Op) -> Result<Applied, Error> {
        let Parts { replies, at, revision } = self.everywhere(how, op).await?;
        self.heads().call_all();
        let is_changed = |applied: &Applied| {
            matches!(
                applied.reply,
                Reply::Pause { changed: true }
                    | Reply::Resume { changed: true }
                    | Reply::SetLimits { changed: true }
            )
        };
        let changed = replies.iter().position(is_changed).unwrap_or_default();
        let applied = replies.into_iter().nth(changed).ok_or_else(unexpected)?;
        Ok(Applied::new(at, revision, applied.reply))
    }

    async fn execute(&self, how: How, op: &Op) -> Result<Applied, Error> {
        op.validate()?;
        let mut unknown = Unknown(Some(self).filter(|_| !op.is_read_only()));
        let result = self.execute_in_parts(how, op).await;
        let has_failed_in_part = result.as_ref().is_err_and(|error| {
            error.class() == ErrorClass::Ambiguous || *error.kind() == ErrorKind::Partial
        });
        if !has_failed_in_part {
            unknown.0 = None;
        }
        result
    }

    async fn execute_in_parts(&self, how: How, op: &Op) -> Result<Applied, Error> {
        match op {
            Op::Enqueue(messages) => Ok(self.enqueue(how, messages).await?.map(Reply::Enqueue)),
            Op::Claim(claim) => self.claim(how, claim).await,
            Op::Settle(items) => Ok(self.settle(how, items).await?.map(Reply::Settle)),
            Op::HandOff(items) => self.hand_off(how, items).await,
            Op::Extend(extend) => Ok(self.extend(how, extend).await?.map(Reply::Extend)),
            Op::Progress(ids) => self.progress(how, ids).await,
            Op::Pause | Op::Resume => self.change(how, op).await,
            Op::SetLimits(set) => {
                let set = limits::share(set, self.shards.len())?;
                self.change(how, &Op::SetLimits(set)).await
            }
            Op::Stats => self.stats(how).await,
            Op::Forecast(_) => self.forecast(how, op).await,
            Op::History(_) => self.history(how, op).await,
            Op::List(list) => self.list(how, list).await,
            Op::Check(check) => self.check(how, check, Op::Check).await,
            Op::Repair(check) => {
                let checked = self.check(how, check, Op::Repair).await;
                self.heads().call_all();
                checked
            }
            Op::Relay(_) => Err(Error::new(ErrorKind::Unsupported("a relay of a sharded queue"))),
            op => self.by_id(how, op).await,
        }
    }
}

/// A call whose effects are not known, because it was dropped or has failed. All shards have to be
/// asked after it.
struct Unknown<'a>(Option<&'a Shards>);

impl Drop for Unknown<'_> {
    fn drop(&mut self) {
        if let Some(shards) = self.0 {
            shards.heads().call_all();
        }
    }
}

/// The shard of a message: the remainder of the XXH3 of its group, or else of its id. Stored
/// messages depend on it.
pub(crate) fn place_of(group: Option<&Group>, id: &MessageId, shards: usize) -> usize {
    shard_of(group.map_or(id.as_bytes(), |group| group.as_str().as_bytes()), shards)
}

fn shard_of(key: &[u8], shards: usize) -> usize {
    let shard = xxh3_64(key) % (shards as u64);
    usize::try_from(shard).unwrap_or_default()
}

/// The error of an operation of which these parts failed. `nothing` says whether the other parts
/// changed nothing.
fn failure(errors: Vec<Error>, nothing: bool) -> Option<Error> {
    // The worst class first: then the caller knows the most.
    let rank = |error: &Error| match error.class() {
        ErrorClass::Ambiguous => 0,
        ErrorClass::Rejected => 1,
        ErrorClass::NotExecuted => 2,
    };
    let worst = errors.into_iter().min_by_key(rank)?;
    if nothing || worst.class() == ErrorClass::Ambiguous {
        return Some(worst);
    }
    Some(Error::with_source(ErrorKind::Partial, worst.to_string(), worst))
}

/// The error if a shard answers with the reply to another operation.
fn unexpected() -> Error {
    Error::with_detail(ErrorKind::Protocol, "a shard gave the reply to another operation")
}

#[async_trait]
impl Backend for Shards {
    fn queue_name(&self) -> Option<&QueueName> {
        Some(&self.name)
    }

    async fn apply(&self, at: At, op: &Op) -> Result<Applied, Error> {
        self.execute(How { at, durability: Durability::None }, op).await
    }

    async fn apply_durably(
        &self,
        at: At,
        op: &Op,
        durability: Durability,
    ) -> Result<Applied, Error> {
        durability.validate()?;
        self.execute(How { at, durability }, op).await
    }
}

#[async_trait]
impl Wakeup for Shards {
    /// Waits for the bells of all shards, and remembers which one rang.
    async fn wait(&self, timeout: Duration) -> Result<bool, Error> {
        let waits = self.shards.iter().enumerate().map(|(shard, it)| {
            Box::pin(async move {
                let has_rung = Wakeup::wait(&it.backend, timeout).await?;
                if has_rung {
                    self.heads().call(shard);
                }
                Ok::<_, Error>(has_rung)
            })
        });
        // A shard without hints does not silence the others.
        Ok(select_ok(waits).await?.0)
    }

    /// Rings the bells of the shards whose messages this process cannot take.
    async fn ring(&self) -> Result<(), Error> {
        let shards = self.heads().hand_on();
        let rings = shards.into_iter().map(|shard| Wakeup::ring(&self.shards[shard].backend));
        let errors = join_all(rings).await.into_iter().filter_map(Result::err).collect();
        failure(errors, true).map_or(Ok(()), Err)
    }
}

impl std::fmt::Debug for Shards {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shards")
            .field("name", &self.name)
            .field("shards", &self.shards.len())
            .finish_non_exhaustive()
    }
}
