//! Fences: operations are durable before they count as done.
//!
//! `WAIT` and `WAITAOF` cover all operations that the server had executed when their own connection
//! last wrote, no matter which client sent them. So one connection for each server sends a write
//! followed by a wait, for all calls that were answered before. Calls that are answered in the
//! meantime share the next pair.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use delayline_core::{Durability, Error, ErrorKind};
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use super::channel::{Channel, Held};
use super::driver::{Connection as _, Driver};
use super::durability::{may_wait, proof_of, run_id};
use super::facts::Proof;
use super::health::no_reply;
use crate::CallError;

/// Maximum time that a server waits for a confirmation. `appendfsync everysec` needs more than a
/// second.
const LONGEST_WAIT: Duration = Duration::from_secs(2);
/// How long the key of a fence lives, in milliseconds.
const KEY_LIFE_MS: &str = "10000";

/// The fences of one server, all over one connection, which is made when it is first needed.
pub(crate) struct Fences<D: Driver>(Arc<Shared<D>>);

struct Shared<D: Driver> {
    channel: Channel<D>,
    /// Time limit for one pair of commands.
    limit: Duration,
    pairs: Mutex<Pairs<D>>,
}

struct Pairs<D: Driver> {
    /// Its holder has the only pair in flight.
    turn: Arc<tokio::sync::Mutex<()>>,
    /// Pairs that have not been sent.
    gathering: Vec<Gathering<D>>,
}

/// A pair, and the callers that wait for its result.
struct Gathering<D: Driver> {
    prepared: PreparedFence<D>,
    since: Instant,
    outcome: watch::Receiver<Option<Result<(), Error>>>,
}

/// A connection to the same process that was opened before a call was sent, and the durability to
/// confirm.
pub(crate) struct PreparedFence<D: Driver> {
    held: Arc<Held<D::Connection>>,
    proof: Proof,
}

impl<D: Driver> Fences<D> {
    pub(crate) fn new(channel: Channel<D>, limit: Duration) -> Self {
        Self(Arc::new(Shared { channel, limit, pairs: Mutex::new(Pairs::new()) }))
    }

    /// Prepares the fence of a call that is to be sent over `held`, a connection of `calls`. `None`
    /// if the reply alone is proof enough.
    ///
    /// # Errors
    ///
    /// The server cannot confirm it, or not now; nothing was sent.
    pub(crate) async fn prepare(
        &self,
        calls: &Channel<D>,
        held: &Arc<Held<D::Connection>>,
        durability: Durability,
    ) -> Result<Option<PreparedFence<D>>, Error> {
        let Shared { channel, limit, .. } = &*self.0;
        let Some(proof) = proof_of(calls, held, *limit, durability).await? else { return Ok(None) };
        let own = channel.get().await?;
        may_wait(channel, &own, *limit, proof).await?;
        if run_id(channel, &own, *limit).await? == run_id(calls, held, *limit).await? {
            return Ok(Some(PreparedFence { held: own, proof }));
        }
        // One of them is left over from before a failover.
        channel.retire(&own);
        calls.retire(held);
        Err(Error::with_detail(ErrorKind::Busy, "two connections to it reach different servers"))
    }

    /// Waits until all that the server has answered so far is confirmed.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unconfirmed`].
    pub(crate) async fn passed(
        &self,
        prepared: &PreparedFence<D>,
        key: &Bytes,
    ) -> Result<(), Error> {
        let mut outcome = self.join(prepared, key);
        let waited = timeout(self.0.patience(), outcome.wait_for(Option::is_some)).await;
        let outcome = waited.ok().and_then(|seen| seen.ok()?.clone());
        outcome.unwrap_or_else(|| Err(unconfirmed("it was waiting for earlier confirmations")))
    }

    /// Joins the callers that wait for the next pair.
    fn join(
        &self,
        prepared: &PreparedFence<D>,
        key: &Bytes,
    ) -> watch::Receiver<Option<Result<(), Error>>> {
        let mut pairs = self.0.lock();
        // The runtime of its task may have ended.
        pairs.gathering.retain(|pair| pair.outcome.has_changed().is_ok());
        // It, or that of the task that has the turn, may not be run any more, as can happen between
        // two calls of `block_on`.
        if pairs.gathering.iter().any(|pair| pair.since.elapsed() >= self.0.patience()) {
            *pairs = Pairs::new();
        }
        if let Some(pair) = pairs.gathering.iter().find(|pair| pair.prepared.is(prepared)) {
            return pair.outcome.clone();
        }
        let (sender, outcome) = watch::channel(None);
        let (since, prepared) = (Instant::now(), prepared.clone());
        let pair = Gathering { prepared: prepared.clone(), since, outcome: outcome.clone() };
        pairs.gathering.push(pair);
        // A separate task, so that it outlives callers that give up.
        let turn = Arc::clone(&pairs.turn);
        tokio::spawn(Arc::clone(&self.0).confirm(turn, prepared, key.clone(), sender));
        outcome
    }
}

impl<D: Driver> Shared<D> {
    async fn confirm(
        self: Arc<Self>,
        turn: Arc<tokio::sync::Mutex<()>>,
        prepared: PreparedFence<D>,
        key: Bytes,
        outcome: watch::Sender<Option<Result<(), Error>>>,
    ) {
        let _turn = turn.lock().await;
        // Calls that arrive from now on were answered too late for this pair.
        let own = outcome.subscribe();
        self.lock().gathering.retain(|pair| !pair.outcome.same_channel(&own));
        outcome.send_replace(Some(self.send(&prepared, key).await));
    }

    /// Sends a write and a wait behind it, over a connection that has been sound since before the
    /// calls.
    async fn send(
        &self,
        PreparedFence { held, proof }: &PreparedFence<D>,
        key: Bytes,
    ) -> Result<(), Error> {
        if !self.channel.uses(held) {
            return Err(unconfirmed("the connection for confirmations was lost"));
        }
        let wait = LONGEST_WAIT.min(self.limit / 2);
        let write = vec![key, Bytes::new(), "PX".into(), KEY_LIFE_MS.into()];
        let (command, args) = proof.wait(wait);
        let replies = async {
            let no_reply = |_| CallError::from(no_reply(self.limit));
            let write = self.channel.within(self.limit, held.connection.request("SET", write));
            let waited = held.connection.request(command, args);
            let waited = self.channel.within_after(wait, self.limit, waited);
            // In this order: the wait is for the write before it.
            tokio::try_join!(
                biased;
                async { write.await.map_err(no_reply).flatten() },
                async { waited.await.map_err(no_reply).flatten() },
            )
        };
        let why = match replies.await {
            Ok((_, reply)) if proof.is_given_by(&reply) => {
                self.channel.served(held);
                return Ok(());
            }
            Ok((_, reply)) => {
                return Err(unconfirmed(format!("{} within {wait:?}", proof.lack(&reply))));
            }
            Err(CallError::Reply(line)) => crate::classify(&line).detail().to_owned(),
            Err(CallError::Failed(error)) => error.to_string(),
        };
        // Whatever it was may have happened to the calls as well: a server that was demoted, say.
        self.channel.retire(held);
        Err(unconfirmed(why))
    }

    /// The longest time for the pair under way and the next one.
    fn patience(&self) -> Duration {
        self.limit * 2
    }

    fn lock(&self) -> MutexGuard<'_, Pairs<D>> {
        // Nothing panics while it is locked.
        self.pairs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<D: Driver> Pairs<D> {
    fn new() -> Self {
        Self { turn: Arc::default(), gathering: Vec::new() }
    }
}

impl<D: Driver> PreparedFence<D> {
    /// Whether one pair confirms both.
    fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.held, &other.held) && self.proof == other.proof
    }
}

impl<D: Driver> Clone for PreparedFence<D> {
    fn clone(&self) -> Self {
        Self { held: Arc::clone(&self.held), proof: self.proof }
    }
}

fn unconfirmed(why: impl Into<String>) -> Error {
    Error::with_detail(ErrorKind::Unconfirmed, why)
}
