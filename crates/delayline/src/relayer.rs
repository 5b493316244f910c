//! Relays: moving due messages to a list or stream, for consumers without Delayline.

use std::fmt;
use std::future::{Future, pending};
use std::pin::pin;
use std::time::Duration;

use delayline_core::{
    Applied, Backoff, Destination, ErrorClass, ErrorKind, Op, Relay, Relayed, Reply, Stats,
    Timestamp, Wakeup, limits,
};
use delayline_redis_protocol::runtime;
use tokio::time::Instant;

use crate::client::Client;
use crate::timer::{hint_until, sleep_until};
use crate::worker::{Stop, WorkerHandle};
use crate::{Error, Queue};

/// Moves due messages of a queue to a list or stream. Created by [`Queue::relay`].
///
/// Each message becomes exactly one element, in the order in which workers would get them, and
/// never before it is due ([G28](crate::guarantees#g28)). The message is then finished. The move is
/// one atomic step on the server. Any number of relays and workers, in any number of processes, may
/// serve one queue; there is no leader.
///
/// After that, consumers are responsible for the element: a consumer that pops it from a list and
/// dies has lost the message. A consumer group of a stream keeps unacknowledged entries.
///
/// ```no_run
/// # use delayline::Queue;
/// # use delayline::relay::{Destination, DestinationKey};
/// # async fn example() -> Result<(), delayline::Error> {
/// let connection = delayline::connect("redis://127.0.0.1:6379").await?;
/// let orders: Queue<String> = connection.queue("orders").await?;
/// let stream =
///     Destination::Stream { key: DestinationKey::try_from("due-orders")?, backlog: None };
/// let summary = orders.relay(stream).run_until(delayline::shutdown_signal()).await?;
/// println!("{} messages relayed", summary.relayed);
/// # Ok(())
/// # }
/// ```
#[must_use = "a relay does nothing until `run`, `run_until` or `once`"]
pub struct Relayer {
    client: Client,
    relay: Relay,
    until_empty: bool,
    stop: Stop,
}

/// Stops a relay from another task. Created by [`Relayer::handle`].
#[derive(Clone, Debug)]
pub struct RelayHandle(WorkerHandle);

impl RelayHandle {
    /// Asks the relay to stop, and returns at once; `run` returns when it has finished the
    /// operation in progress.
    pub fn stop(&self) {
        self.0.stop(Duration::ZERO);
    }
}

/// The result of a relay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RelaySummary {
    /// Messages moved, not counting operations whose reply was lost:
    /// [`Totals::relayed`](crate::admin::Totals::relayed) counts all.
    pub relayed: u64,
}

impl<T: ?Sized, C> Queue<T, C> {
    /// Creates a relay to this list or stream. It moves messages with the durability of the queue
    /// ([`durability`](Self::durability)).
    ///
    /// On a cluster the destination must be in the queue's hash slot: the first braces of its key
    /// are `{NAME}`, for the queue `NAME`.
    ///
    /// A queue without a server has no list that other programs can read. In memory, moved messages
    /// stay in the process, where tests take them with `TestQueue::take_relayed`. In a directory,
    /// they stay in the directory, for `FileBackend::take_relayed` of `delayline-file`.
    #[doc(alias = "transfer")]
    pub fn relay(&self, to: Destination) -> Relayer {
        let relay = Relay::new(to, DEFAULT_BATCH);
        Relayer { client: self.client().clone(), relay, until_empty: false, stop: Stop::default() }
    }
}

impl Relayer {
    /// Sets the maximum number of messages per operation: 1 to 1000, 100 by default.
    pub const fn batch(mut self, max: usize) -> Self {
        self.relay.max = max;
        self
    }

    /// Sets whether [`run_until`](Self::run_until) ends when no message is scheduled, ready or
    /// leased. The default is `false`.
    pub const fn until_empty(mut self, until_empty: bool) -> Self {
        self.until_empty = until_empty;
        self
    }

    /// Moves up to one batch of due messages, in one operation, which is not repeated if it fails.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, messages may or may not have been moved.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) if the destination is in another
    /// slot of a cluster, if the stream has no id left, or if the server cannot count a group's
    /// backlog (before Redis 7). [`ErrorKind::WrongType`](crate::ErrorKind::WrongType) if the
    /// destination has another type. Otherwise like [`Queue::cancel`]. After an error of class
    /// [`ErrorClass::NotExecuted`](crate::ErrorClass::NotExecuted), nothing was moved. After an
    /// error of class [`ErrorClass::Ambiguous`](crate::ErrorClass::Ambiguous), an unknown batch of
    /// messages may have been moved. The next call moves the next due messages, and none twice.
    pub async fn once(&self) -> Result<Relayed, Error> {
        // A repetition would move the next batch, and report only that one.
        match self.client.apply_once(&self.op()).await?.reply {
            Reply::Relay(relayed) => Ok(relayed),
            _ => Err(Error::unexpected_reply()),
        }
    }

    /// Returns a handle that stops this relay from another task.
    #[must_use]
    pub fn handle(&self) -> RelayHandle {
        RelayHandle(self.stop.handle())
    }

    /// Moves messages until a [`RelayHandle`] stops it: see [`run_until`](Self::run_until).
    ///
    /// # Cancel safety
    ///
    /// Like [`run_until`](Self::run_until).
    ///
    /// # Errors
    ///
    /// Like [`run_until`](Self::run_until).
    pub async fn run(self) -> Result<RelaySummary, Error> {
        self.run_until(pending()).await
    }

    /// Moves messages as they fall due, until `shutdown` completes or a [`RelayHandle`] stops it.
    /// Returns the number of messages it moved.
    ///
    /// It sleeps until the next message is due, but at most five seconds, and wakes up for a
    /// message that is due sooner. If the queue [limits](crate::Queue::set_limits) the leases of
    /// workers, it sleeps at most half a second. While the destination is full, it retries with a
    /// backoff from 10 ms to 1 s. While the server is unreachable or out of memory, it keeps
    /// trying, at least every two seconds, and logs that once a minute. When stopped, it finishes
    /// the current operation first.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the last operation may or may not have been executed.
    ///
    /// # Errors
    ///
    /// The relay ends when the backend refuses to relay: the errors of [`once`](Self::once) whose
    /// class is [`ErrorClass::Rejected`](crate::ErrorClass::Rejected). Outside of a Tokio runtime,
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported).
    pub async fn run_until(
        self,
        shutdown: impl Future<Output = ()>,
    ) -> Result<RelaySummary, Error> {
        runtime()?;
        let op = self.op();
        let mut stop = self.stop.clone();
        let mut shutdown = pin!(async move {
            tokio::select! {
                () = shutdown => {}
                _ = stop.wished() => {}
            }
        });
        let mut summary = RelaySummary::default();
        let (mut failures, mut full) = (FAILURES, FULL);
        let mut complaint: Option<(ErrorKind, Instant)> = None;
        let mut was_on_call = false;
        loop {
            let result = self.client.apply_once(&op).await;
            if was_on_call && !is_able(&result) {
                self.pass_on().await;
            }
            // Whether the queue expects it for the next message, and wakes no other consumer.
            let mut has_promised = false;
            let rest = match result {
                Ok(applied) => {
                    let Reply::Relay(relayed) = applied.reply else {
                        return Err(Error::unexpected_reply());
                    };
                    if complaint.take().is_some() {
                        tracing::info!("relays work again");
                    }
                    failures.reset();
                    summary.relayed += u64::try_from(relayed.ids.len()).unwrap_or(u64::MAX);
                    if !relayed.ids.is_empty() || !relayed.held_back {
                        full.reset();
                    }
                    if relayed.next.is_none() && self.until_empty && self.is_empty().await {
                        return Ok(summary);
                    }
                    has_promised = relayed.next.is_some() && !relayed.held_back;
                    Rest::after(&relayed, applied.at, &mut full)
                }
                Err(error) if error.class() == ErrorClass::Rejected => return Err(error.into()),
                Err(error) => {
                    let known = complaint.as_ref();
                    let is_known = known
                        .is_some_and(|(kind, at)| kind == error.kind() && at.elapsed() < MINUTE);
                    if !is_known {
                        tracing::warn!(%error, "a relay failed; trying again, logged each minute");
                        complaint = Some((error.kind().clone(), Instant::now()));
                    }
                    Rest::Timer(failures.next(fastrand::u32(..)))
                }
            };
            was_on_call = matches!(rest, Rest::Bell(_));
            tokio::select! {
                biased;
                () = &mut shutdown => {
                    if has_promised {
                        self.pass_on().await;
                    }
                    return Ok(summary);
                }
                () = self.rest(rest) => {}
            }
        }
    }

    fn op(&self) -> Op {
        Op::Relay(self.relay.clone())
    }

    /// Returns `true` if no message is left to relay, and `false` if that is unknown.
    async fn is_empty(&self) -> bool {
        let counted = self.client.apply(&Op::Stats).await.map(|counted| counted.reply);
        let Ok(Reply::Stats(counts)) = counted else { return false };
        matches!(*counts, Stats { scheduled: 0, ready: 0, leased: 0, .. })
    }

    /// Senders rely on a relay that waits for hints: it may have taken the only hint, or have
    /// promised to claim now. If it cannot move messages, or stops, other consumers still can.
    async fn pass_on(&self) {
        if let Err(error) = self.client.backend.ring().await {
            tracing::debug!(%error, "a hint could not be passed on");
        }
    }

    async fn rest(&self, rest: Rest) {
        match rest {
            Rest::None => {}
            Rest::Timer(pause) => sleep_until(Instant::now() + pause).await,
            Rest::Bell(pause) => {
                hint_until(&self.client.backend, Instant::now() + pause).await;
            }
        }
    }
}

/// The wait of a relay after an operation.
#[derive(Debug, PartialEq, Eq)]
enum Rest {
    /// More messages are due.
    None,
    /// A wait that no hint can end early.
    Timer(Duration),
    /// A wait that a hint can end early.
    Bell(Duration),
}

impl Rest {
    fn after(relayed: &Relayed, at: Timestamp, full: &mut Backoff) -> Self {
        if relayed.more {
            return Self::None;
        }
        if relayed.held_back {
            return Self::Timer(full.next(fastrand::u32(..)));
        }
        let longest = if relayed.leases_limited { LIMITED_POLL } else { SAFETY_POLL };
        Self::Bell(relayed.next.map_or(longest, |next| next.since(at).min(longest)))
    }
}

/// Whether a relay has moved all due messages, or continues.
fn is_able(result: &Result<Applied, delayline_core::Error>) -> bool {
    matches!(result, Ok(Applied { reply: Reply::Relay(relayed), .. }) if !relayed.held_back)
}

impl fmt::Debug for Relayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Relayer").field("relay", &self.relay).finish_non_exhaustive()
    }
}

/// Pauses between attempts while the server fails.
const FAILURES: Backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(2));
/// Pauses between attempts while the destination is full.
const FULL: Backoff = Backoff::new(Duration::from_millis(20), Duration::from_secs(1));
const DEFAULT_BATCH: usize = 100;
const _: () = assert!(DEFAULT_BATCH <= limits::MAX_BATCH);
/// As often as a worker polls.
const SAFETY_POLL: Duration = Duration::from_millis(limits::WORKER_POLL_MS);
/// How often to poll a queue with a limit of leases: while as many are leased as may be, hints do
/// not announce messages that only a relay can move.
const LIMITED_POLL: Duration = Duration::from_millis(500);
const MINUTE: Duration = Duration::from_secs(60);
