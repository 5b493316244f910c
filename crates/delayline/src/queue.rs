//! A typed queue: sending messages, and operations by id.

mod admin;
mod apply;
mod batch;
mod dead_letter_filter;
mod draft;
mod enqueue;
mod explain;
mod folded_error;
mod found;
mod limits;
mod listed;
mod listing;
pub(crate) mod lookups;
mod merge;
mod read;
mod sendable;
mod sent;
mod together;
mod transfer;
mod update;

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use delayline_core::limits::MAX_BATCH;
use delayline_core::{
    Cancelled, Durability, MessageId, NewMessage, Op, QueueBackend, Reply, Reschedule, Rescheduled,
    Schedule,
};

pub use self::dead_letter_filter::DeadLetterFilter;
pub use self::draft::Draft;
pub use self::explain::Explanation;
pub use self::folded_error::folded_error;
pub use self::found::{Found, Message};
pub use self::listed::Listed;
pub use self::listing::{Audit, Listing};
use self::merge::Merger;
pub use self::sendable::Sendable;
pub(crate) use self::sendable::same_queue;
pub use self::sent::Sent;
pub use self::together::SentTogether;
pub use self::transfer::Transfer;
pub use self::update::UpdateDue;
use crate::Error;
use crate::after::Member;
use crate::after::siblings::Siblings;
use crate::cancels::Cancels;
use crate::client::Client;
use crate::codec::{CodecError, Decode, Encode, Json};
use crate::error::{DUE, message_id, timestamp, valid_delay};
use crate::events::Events;
use crate::registry::WorkerRegistry;
use crate::shards::Opened;
use crate::telemetry::TraceContext;
use crate::waiters::Waiters;

/// A queue whose payloads are values of `T`, encoded by the codec `C`.
///
/// Sending needs [`Encode`], handling needs [`Decode`]. For sending only, `T` may be `str` or a
/// type that borrows.
///
/// Clones are cheap and share the connection. [`patience`](Self::patience),
/// [`durability`](Self::durability), [`trace_source`](Self::trace_source) and
/// [`codec`](Self::codec) return the queue with another option. It shares the rest with the
/// original: the grouping of sends, events, and the polls of waits and workers. Every call retries
/// within bounds (see [`patience`](Self::patience)) and is safe to repeat: ids make a repeated send
/// harmless ([G15](crate::guarantees#g15)), unless it [reuses them](Draft::reuse_finished_id).
///
/// **Concurrent sends are grouped.** The first one is sent at once. All sends that start before its
/// reply arrives, through any clone of this queue, form the next operation. They keep their order,
/// and each gets its own result. So a single send never waits, and plain code in many tasks is as
/// fast as batches. Up to 10,000 sends, or 64 MiB, can wait, for each shard if there are shards.
/// The next one fails at once with [`ErrorKind::Overloaded`](crate::ErrorKind::Overloaded). The
/// operations run in a task on the runtime of the first send; the task ends after the last one.
///
/// [`telemetry`](crate::telemetry) describes the spans, metrics and events of a queue.
///
/// ```
/// # use std::time::Duration;
/// # use delayline::{Cancelled, Enqueued, Queue};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), delayline::Error> {
/// let orders: Queue<String> = delayline::connect("memory:").await?.queue("orders").await?;
/// orders.send_in(&"close it".to_owned(), Duration::from_secs(1800)).await?;
///
/// let draft = orders.message(&"close it".to_owned());
/// let sent = draft.id("order-1234").due_in(Duration::from_secs(1800)).send().await?;
/// assert!(matches!(sent.outcome, Enqueued::Created { .. }));
/// assert_eq!(orders.cancel("order-1234").await?, Cancelled::Cancelled);
/// # Ok(())
/// # }
/// ```
///
/// # Cancel safety
///
/// If the future of a call is dropped, its operation may or may not have been executed. It can be
/// repeated, as after [`ErrorClass::Ambiguous`](crate::ErrorClass::Ambiguous).
#[doc(alias = "delay queue")]
#[doc(alias = "DLQ")]
pub struct Queue<T: ?Sized, C = Json> {
    client: Client,
    merger: Merger,
    waiters: Waiters,
    codec: Arc<C>,
    /// Covariant: a queue of `&'static str` is also one of `&'a str`.
    payload: PhantomData<fn() -> Box<T>>,
}

impl<T: ?Sized> Queue<T> {
    /// Creates a queue of JSON payloads on any backend, such as your own.
    /// [`Connection::queue`](crate::Connection::queue) opens queues on a server or in this process.
    #[must_use]
    pub fn new(backend: Arc<dyn QueueBackend>) -> Self {
        let (cancels, registry) = (Cancels::default(), WorkerRegistry::default());
        Self::sharing(Opened::plain(backend), Json, cancels, registry, Siblings::default())
    }
}

impl<T: ?Sized, C> Queue<T, C> {
    /// Creates a queue whose workers learn through `cancels` of messages that other clones cancel,
    /// and are in `registry` while they run. `siblings` are the queues of its connection.
    pub(crate) fn sharing(
        opened: Opened,
        codec: C,
        cancels: Cancels,
        registry: WorkerRegistry,
        siblings: Siblings,
    ) -> Self {
        Self {
            client: Client::new(opened, cancels, registry, siblings),
            merger: Merger::of(Durability::None),
            waiters: Waiters::default(),
            codec: Arc::new(codec),
            payload: PhantomData,
        }
    }

    /// Returns the same queue with another patience, for many calls or for one. Patience is how
    /// long a call keeps trying while the backend is unreachable, busy or out of memory. The
    /// default is 10 s. After that, the call fails with
    /// [`ErrorClass::NotExecuted`](crate::ErrorClass::NotExecuted). With zero, no call is retried.
    /// Grouped sends and waits give up separately, each after its own patience. An attempt in
    /// progress is not cut short: if a server does not reply, a call can take up to 5 s longer.
    ///
    /// After a lost reply, the call is repeated up to four times within this time, and for half an
    /// hour at most (a claim for five minutes), because the queue does not remember for ever what
    /// the first attempt has done. If all replies are lost, or if this time ends before the backend
    /// can be reached again, the call fails with
    /// [`ErrorClass::Ambiguous`](crate::ErrorClass::Ambiguous). A call that only reads is repeated
    /// without this limit of time.
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # use delayline::Queue;
    /// # async fn example(orders: Queue<String>) -> Result<(), delayline::Error> {
    /// // While a customer waits for the reply.
    /// orders.patience(Duration::from_secs(2)).send(&"close it".to_owned()).await?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use = "this queue keeps its patience; the returned one has the new one"]
    pub fn patience(&self, patience: Duration) -> Self {
        Self { client: self.client.clone().patient(patience), ..self.clone() }
    }

    /// Returns the same queue with another durability, for many calls or for one: changes are
    /// confirmed before the call returns ([G25](crate::guarantees#g25)). The default is
    /// [`Durability::None`].
    ///
    /// It applies to sends, batches, cancels, reschedules, redrives, purges, pauses, and to the
    /// settlements of the queue's workers. It does not apply to claims and lease extensions: if one
    /// is lost, the message is redelivered, which can happen anyway. For claims, see
    /// [`WorkerBuilder::claim_durability`](crate::worker::WorkerBuilder::claim_durability).
    ///
    /// A call that is not confirmed in time is repeated within the queue's
    /// [`patience`](Self::patience), and then confirmed, after a failover by another server. If
    /// that fails too, the error is [`ErrorKind::Unconfirmed`](crate::ErrorKind::Unconfirmed): the
    /// call was executed, but may not be durable. Sending the same message again is harmless,
    /// unless it [reuses a finished id](Draft::reuse_finished_id).
    ///
    /// Concurrent calls share their confirmations. Sends of different durabilities use separate
    /// operations. A confirmation waits for one of another durability that is in progress, which
    /// takes at most 2 s.
    ///
    /// ```no_run
    /// # use delayline::{Durability, Queue};
    /// # async fn example() -> Result<(), delayline::Error> {
    /// let connection = delayline::connect("redis://127.0.0.1:6379").await?;
    /// let orders: Queue<String> = connection.queue("orders").await?;
    /// // One message that a failover must not lose.
    /// orders.durability(Durability::Replicas(1)).send(&"close it".to_owned()).await?;
    /// // All messages from now on.
    /// let orders = orders.durability(Durability::Replicas(1));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// With an unsupported or invalid durability, each call fails before anything is sent. The
    /// error is [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) on a server that cannot
    /// confirm, and for a queue in memory. The durability is invalid if the number of replicas is 0
    /// or more than [`MAX_REPLICAS`](crate::limits::MAX_REPLICAS).
    #[must_use = "this queue keeps its durability; the returned one has the new one"]
    pub fn durability(&self, durability: Durability) -> Self {
        let this = self.clone();
        let (client, merger) = (this.client.durable(durability), this.merger.durable(durability));
        Self { client, merger, ..this }
    }

    /// Returns the same queue with a function that returns the trace context of each message when
    /// it is sent. `None` means no context.
    ///
    /// Messages that already have a context keep it. The context is not part of the content:
    /// sending the same id from another trace is a duplicate ([G15](crate::guarantees#g15)), and
    /// the first context stays.
    ///
    /// ```
    /// # use delayline::telemetry::TraceContext;
    /// # use delayline::{Found, Queue};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), delayline::Error> {
    /// # let queue: Queue<u64> = delayline::connect("memory:").await?.queue("numbers").await?;
    /// // Ask your tracer here.
    /// let queue = queue.trace_source(|| TraceContext::new(7, 1, true).ok());
    /// let id = queue.send(&1).await?;
    /// let Found::Live(message) = queue.get(id).await? else { panic!("it was sent") };
    /// let context = TraceContext::from_headers(&message.headers);
    /// assert_eq!(context.map(|context| context.trace_id()), Some(7));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use = "this queue keeps its source; the returned one has the new one"]
    pub fn trace_source(
        &self,
        source: impl Fn() -> Option<TraceContext> + Send + Sync + 'static,
    ) -> Self {
        Self { client: self.client.clone().traced(Arc::new(source)), ..self.clone() }
    }

    /// Returns the same queue with payloads encoded by another codec, such as
    /// [`Raw`](crate::codec::Raw).
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), delayline::Error> {
    /// use delayline::codec::Raw;
    /// use delayline::{Bytes, Queue};
    ///
    /// let connection = delayline::connect("memory:").await?;
    /// let images: Queue<Bytes, Raw> = connection.queue("images").await?.codec(Raw);
    /// images.send(&Bytes::from_static(b"\x89PNG")).await?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use = "this queue keeps its codec; the returned one has the new one"]
    pub fn codec<D>(&self, codec: D) -> Queue<T, D> {
        let Self { client, merger, waiters, .. } = self.clone();
        Queue { client, merger, waiters, codec: Arc::new(codec), payload: PhantomData }
    }

    /// Returns a listener for the changes that this queue, its clones and their workers make to
    /// messages from now on.
    #[must_use]
    pub fn events(&self) -> Events {
        self.client.events().listen()
    }

    /// Returns the backend, for operations of [`Op`] that have no method here. They appear in
    /// metrics and events like the queue's own calls.
    #[must_use]
    pub fn backend(&self) -> &Arc<dyn QueueBackend> {
        &self.client.backend
    }

    /// Names a message of this queue, for messages of other queues of the same connection that wait
    /// for it: [`Draft::after`].
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) if the id is outside its limits.
    pub fn member<I>(&self, id: I) -> Result<Member, Error>
    where
        I: TryInto<MessageId, Error: Into<Error>>,
    {
        let (queue, id) = (self.client.queue_name().cloned(), message_id(id)?);
        Ok(Member { queue, id, home: Some(self.client.siblings().clone()) })
    }

    /// Cancels a message before it is delivered ([G13](crate::guarantees#g13)). If a worker already
    /// has the message, its handler is asked to stop
    /// ([`Job::cancellation`](crate::Job::cancellation)); see [`Cancelled::InFlight`]. The handler
    /// learns of it after a round trip if its worker uses a clone of this queue or the same
    /// [`Connection`](crate::Connection). Otherwise it learns of it within a third of its lease, or
    /// within [`WorkerBuilder::cancel_within`](crate::worker::WorkerBuilder::cancel_within).
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the message may or may not be cancelled. Repeat the call to be
    /// sure.
    ///
    /// # Errors
    ///
    /// If the id is outside its limits, or see [`patience`](Self::patience).
    #[doc(alias = "delete")]
    pub async fn cancel<I>(&self, id: I) -> Result<Cancelled, Error>
    where
        I: TryInto<MessageId, Error: Into<Error>>,
    {
        let reply = self.ask(&Op::Cancel(vec![message_id(id)?])).await?;
        let Reply::Cancel(items) = reply else { return Err(Error::unexpected_reply()) };
        only(items)
    }

    /// Cancels many messages, in as few operations as possible. Returns one result per id, in
    /// order, like [`cancel`](Self::cancel). The operations are not one atomic step.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, some of the messages may be cancelled. Repeat the call to finish.
    ///
    /// # Errors
    ///
    /// Like [`cancel`](Self::cancel); an id outside its limits fails the whole call before anything
    /// is sent. After any other error some of the messages may be cancelled; call again with the
    /// same ids to finish.
    pub async fn cancel_many<I>(
        &self,
        ids: impl IntoIterator<Item = I>,
    ) -> Result<Vec<Cancelled>, Error>
    where
        I: TryInto<MessageId, Error: Into<Error>>,
    {
        self.each(MAX_BATCH, ids, Op::Cancel, |reply| match reply {
            Reply::Cancel(items) => Some(items),
            _ => None,
        })
        .await
    }

    /// Makes a waiting message due `delay` from now, by the server's clock: up to 100 years, to the
    /// millisecond, rounded up.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the message may or may not be rescheduled. The call can be
    /// repeated; the delay then starts again.
    ///
    /// # Errors
    ///
    /// Like [`cancel`](Self::cancel); also if the delay is longer than 100 years.
    #[doc(alias = "debounce")]
    #[doc(alias = "postpone")]
    pub async fn reschedule_in<I>(&self, id: I, delay: Duration) -> Result<Rescheduled, Error>
    where
        I: TryInto<MessageId, Error: Into<Error>>,
    {
        only(self.reschedule_many_in([id], delay).await?)
    }

    /// Makes a waiting message due at an instant, to the millisecond, rounded up. A past instant
    /// means now.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the message may or may not be rescheduled. The call can be
    /// repeated.
    ///
    /// # Errors
    ///
    /// Like [`cancel`](Self::cancel); also if the instant is beyond the year 9999.
    #[doc(alias = "debounce")]
    pub async fn reschedule_at<I>(&self, id: I, due: SystemTime) -> Result<Rescheduled, Error>
    where
        I: TryInto<MessageId, Error: Into<Error>>,
    {
        only(self.reschedule_many_at([id], due).await?)
    }

    /// Reschedules many messages, in as few operations as possible. Returns one result per id, in
    /// order, like [`reschedule_in`](Self::reschedule_in). The operations are not one atomic step.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, some of the messages may be rescheduled. The call can be repeated;
    /// the delay then starts again.
    ///
    /// # Errors
    ///
    /// Like [`cancel_many`](Self::cancel_many); also if the delay is longer than 100 years.
    pub async fn reschedule_many_in<I>(
        &self,
        ids: impl IntoIterator<Item = I>,
        delay: Duration,
    ) -> Result<Vec<Rescheduled>, Error>
    where
        I: TryInto<MessageId, Error: Into<Error>>,
    {
        self.reschedule(ids, Schedule::In(valid_delay(delay)?)).await
    }

    /// Like [`reschedule_many_in`](Self::reschedule_many_in), but makes the messages due at an
    /// instant, as [`reschedule_at`](Self::reschedule_at) does.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, some of the messages may be rescheduled. The call can be repeated.
    ///
    /// # Errors
    ///
    /// Like [`cancel_many`](Self::cancel_many); also if the instant is beyond the year 9999.
    pub async fn reschedule_many_at<I>(
        &self,
        ids: impl IntoIterator<Item = I>,
        due: SystemTime,
    ) -> Result<Vec<Rescheduled>, Error>
    where
        I: TryInto<MessageId, Error: Into<Error>>,
    {
        self.reschedule(ids, Schedule::At(timestamp(DUE, due)?)).await
    }

    /// Stops deliveries until [`resume`](Self::resume); everything else continues
    /// ([G17](crate::guarantees#g17)). Pausing a paused queue changes nothing.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the queue may or may not be paused. The call can be repeated.
    ///
    /// # Errors
    ///
    /// See [`patience`](Self::patience).
    pub async fn pause(&self) -> Result<(), Error> {
        self.ask(&Op::Pause).await.map(drop)
    }

    /// Resumes deliveries. Resuming a queue that is not paused changes nothing.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the queue may or may not be resumed. The call can be repeated.
    ///
    /// # Errors
    ///
    /// See [`patience`](Self::patience).
    pub async fn resume(&self) -> Result<(), Error> {
        self.ask(&Op::Resume).await.map(drop)
    }

    async fn reschedule<I>(
        &self,
        ids: impl IntoIterator<Item = I>,
        schedule: Schedule,
    ) -> Result<Vec<Rescheduled>, Error>
    where
        I: TryInto<MessageId, Error: Into<Error>>,
    {
        let op = |ids: Vec<_>| {
            Op::Reschedule(ids.into_iter().map(|id| Reschedule::new(id, schedule)).collect())
        };
        self.each(MAX_BATCH, ids, op, |reply| match reply {
            Reply::Reschedule(items) => Some(items),
            _ => None,
        })
        .await
    }

    async fn ask(&self, op: &Op) -> Result<Reply, Error> {
        Ok(self.client.apply(op).await?.reply)
    }

    /// A message whose payload is already encoded.
    pub(crate) fn draft(&self, payload: Result<Bytes, CodecError>) -> Draft {
        let message = || {
            let payload = payload.map_err(Error::encode)?;
            Ok(NewMessage::new(self.client.generate_id()?, payload))
        };
        Draft::new(self.client.clone(), self.merger.clone(), message())
    }

    pub(crate) const fn client(&self) -> &Client {
        &self.client
    }

    pub(crate) const fn encoding(&self) -> &Arc<C> {
        &self.codec
    }
}

impl<T: ?Sized, C: Encode<T>> Queue<T, C> {
    /// Returns a message to configure and then [`send`](Draft::send). If `value` cannot be encoded,
    /// or its payload is longer than 1 MiB, sending fails.
    pub fn message(&self, value: &T) -> Draft {
        self.draft(self.codec.encode(value))
    }

    /// Sends a message that is due at once. Returns the id generated for it.
    ///
    /// # Cancel safety
    ///
    /// Like [`Draft::send`]. If the future is dropped, sending the value again may create another
    /// message.
    ///
    /// # Errors
    ///
    /// Like [`Draft::send`]. After an ambiguous error the message may be in the queue, and sending
    /// the value again creates another message: where that matters, choose the [`id`](Draft::id).
    pub async fn send(&self, value: &T) -> Result<MessageId, Error> {
        Ok(self.message(value).send().await?.id)
    }

    /// Sends a message that is due `delay` from now by the server's clock: up to 100 years, to the
    /// millisecond, rounded up ([G4](crate::guarantees#g4)). Returns the id generated for it.
    ///
    /// # Cancel safety
    ///
    /// Like [`send`](Self::send).
    ///
    /// # Errors
    ///
    /// Like [`send`](Self::send); also if the delay is longer than 100 years.
    #[doc(alias = "delay")]
    #[doc(alias = "schedule")]
    pub async fn send_in(&self, value: &T, delay: Duration) -> Result<MessageId, Error> {
        Ok(self.message(value).due_in(delay).send().await?.id)
    }

    /// Sends a message that is due at an instant, to the millisecond, rounded up
    /// ([G4](crate::guarantees#g4)). A past instant means now. Returns the id generated for it.
    ///
    /// # Cancel safety
    ///
    /// Like [`send`](Self::send).
    ///
    /// # Errors
    ///
    /// Like [`send`](Self::send); also if the instant is beyond the year 9999.
    #[doc(alias = "schedule")]
    pub async fn send_at(&self, value: &T, due: SystemTime) -> Result<MessageId, Error> {
        Ok(self.message(value).due_at(due).send().await?.id)
    }
}

impl<T, C: Decode<T>> Queue<T, C> {
    /// Decodes a payload, such as one returned by [`get`](Self::get).
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Decode`](crate::ErrorKind::Decode).
    pub fn decode(&self, payload: &Bytes) -> Result<T, Error> {
        self.codec.decode(payload).map_err(Error::decode)
    }
}

impl<T: ?Sized, C> Clone for Queue<T, C> {
    fn clone(&self) -> Self {
        Self {
            client: self.client.clone(),
            merger: self.merger.clone(),
            waiters: self.waiters.clone(),
            codec: Arc::clone(&self.codec),
            payload: PhantomData,
        }
    }
}

impl<T: ?Sized, C> fmt::Debug for Queue<T, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue").field("client", &self.client).finish_non_exhaustive()
    }
}

/// Returns the result of a batch of one.
fn only<R>(items: Vec<R>) -> Result<R, Error> {
    let mut items = items.into_iter();
    match (items.next(), items.next()) {
        (Some(item), None) => Ok(item),
        _ => Err(Error::unexpected_reply()),
    }
}
