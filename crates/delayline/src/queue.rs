//! A typed queue: sending, and everything that is asked by id.

mod batch;
mod draft;
mod enqueue;
mod listing;

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use delayline_core::limits::{MAX_BATCH, MAX_LOOK_UP};
use delayline_core::{
    Cancelled, Durability, Found, MessageId, Millis, NewMessage, Op, Purged, Queueing, Redrive,
    Redriven, Reply, Reschedule, Rescheduled, Schedule, Stats, Status, Timestamp,
};
use uuid::Uuid;

pub use self::batch::Sent;
pub use self::draft::Draft;
pub(crate) use self::enqueue::{Answered, enqueue};
pub use self::listing::{Audit, Listing};
use crate::client::Client;
use crate::error::message_id;
use crate::{Codec, Error, Events, Json, TraceContext, telemetry};

/// A queue whose payloads are values of `T`, written by the codec `C`.
///
/// Clones are cheap and share the connection. Every call retries within bounds (see
/// [`patience`](Self::patience)) and is safe to repeat: ids make a repeated send harmless (G15).
///
/// **Sends that happen at the same time go out together.** The first one goes out at once; those
/// that clones of this queue begin before its reply has come form the next operation, in the order
/// in which they began, and each gets its own answer. So a lone send waits for nothing, and plain
/// code in many tasks runs at the speed of batches. 10,000 sends, or 64 MiB of them, may wait; one
/// more fails at once with [`ErrorKind::Overloaded`](crate::ErrorKind::Overloaded). The operations
/// run in a task of the runtime that the first of the sends came from, which ends with the last.
///
/// What a queue tells about itself is in [`telemetry`].
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
pub struct Queue<T, C = Json> {
    client: Client,
    codec: Arc<C>,
    payload: PhantomData<fn(T) -> T>,
}

impl<T> Queue<T> {
    /// A queue of JSON payloads on any backend, such as one of your own.
    /// [`Connection::queue`](crate::Connection::queue) opens those on a server or in this process.
    #[must_use]
    pub fn new(backend: Arc<dyn Queueing>) -> Self {
        Self::with_codec(backend, Json)
    }
}

impl<T, C> Queue<T, C> {
    /// A queue on any backend whose payloads `codec` writes and reads.
    #[must_use]
    pub fn with_codec(backend: Arc<dyn Queueing>, codec: C) -> Self {
        Self { client: Client::new(backend), codec: Arc::new(codec), payload: PhantomData }
    }

    /// How long a call goes on trying while the backend is unreachable, busy or out of memory: 10 s
    /// unless told, and of a send that waited for others up to 1 s less. After that its error is
    /// [`Class::NotExecuted`](crate::Class::NotExecuted). With zero nothing is tried twice.
    ///
    /// A lost reply is followed by up to four more tries within this time; if all are lost the
    /// error is [`Class::Ambiguous`](crate::Class::Ambiguous).
    ///
    /// Clones made before keep theirs, and group their sends apart.
    #[must_use]
    pub fn patience(mut self, patience: Duration) -> Self {
        self.client = self.client.patient(patience);
        self
    }

    /// The same queue, whose changes are answered when they are as safe as this: for a queue, or for
    /// one call (G25). Without it that is [`Durability::None`].
    ///
    /// It goes for sends, batches, cancellations, reschedules, redrives, purges, pauses, and for what
    /// workers of the queue settle. It does not go for claims and longer leases: if one is lost, the
    /// message is delivered again, which can happen anyway.
    ///
    /// What is not confirmed in time is repeated within the queue's [`patience`](Self::patience), and
    /// confirmed anew, on another server after a failover. If that does not help the error is
    /// [`ErrorKind::Unconfirmed`](crate::ErrorKind::Unconfirmed): it was executed, and it is not known
    /// whether it is safe. Sending the same message again is harmless.
    ///
    /// Many calls at the same time share their confirmations. Sends of different durabilities go out in
    /// different operations, and don't wait for each other.
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
    /// Each call is refused before anything is sent, with
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) by a server that cannot confirm it and
    /// by a queue in memory, or as invalid if the number of replicas is 0 or more than
    /// [`MAX_REPLICAS`](crate::limits::MAX_REPLICAS).
    #[must_use = "this queue keeps its durability; the returned one has the new one"]
    pub fn durability(&self, durability: Durability) -> Self {
        Self { client: self.client.clone().durable(durability), ..self.clone() }
    }

    /// Says where to ask for the trace that a message belongs to, at the moment it is sent. `None`
    /// means none.
    ///
    /// Messages that have a context already keep it, and those with an [`id`](Draft::id) of the
    /// caller's are left alone: headers are content (G15), and the same id sent again from another
    /// trace would be a conflict. [`Draft::trace_context`] is for those.
    ///
    /// Clones made before stay without, and group their sends apart.
    ///
    /// ```
    /// # use delayline::{Found, Queue, TraceContext};
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
    #[must_use]
    pub fn trace_source(
        mut self,
        source: impl Fn() -> Option<TraceContext> + Send + Sync + 'static,
    ) -> Self {
        self.client = self.client.traced(Arc::new(source));
        self
    }

    /// Listens to what this queue, its clones and their workers do to messages, from now on.
    #[must_use]
    pub fn events(&self) -> Events {
        self.client.events().listen()
    }

    /// The backend, for operations of [`Op`] that have no method here. What passes through it is
    /// measured and told to listeners like the queue's own calls.
    #[must_use]
    pub fn backend(&self) -> &Arc<dyn Queueing> {
        &self.client.backend
    }

    /// Takes a message out before it is delivered (G13). If a worker has it, the worker is told;
    /// see [`Cancelled::InFlight`].
    ///
    /// # Errors
    ///
    /// [`Error::Backend`]; the id is outside of its limits, or see [`patience`](Self::patience).
    pub async fn cancel<I>(&self, id: I) -> Result<Cancelled, Error>
    where
        I: TryInto<MessageId, Error: Into<Error>>,
    {
        let reply = self.ask(&Op::Cancel(vec![message_id(id)?])).await?;
        let Reply::Cancel(items) = reply else { return Err(Error::unexpected_reply()) };
        only(items)
    }

    /// Cancels many messages, in as few operations as possible. Returns one result per id, in order,
    /// like [`cancel`](Self::cancel). The operations are not one atomic step.
    ///
    /// # Errors
    ///
    /// Like [`cancel`](Self::cancel); an id outside its limits fails the whole call before anything is
    /// sent. After any other error some of the messages may be cancelled; call again with the same ids
    /// to finish.
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

    /// Makes a waiting message due `delay` from now, by the server's clock.
    ///
    /// # Errors
    ///
    /// Like [`cancel`](Self::cancel); also if the delay is longer than 100 years.
    pub async fn reschedule_in<I>(&self, id: I, delay: Duration) -> Result<Rescheduled, Error>
    where
        I: TryInto<MessageId, Error: Into<Error>>,
    {
        self.reschedule(message_id(id)?, Schedule::In(Millis::try_from(delay)?)).await
    }

    /// Makes a waiting message due at an instant, to the millisecond, rounded up. A past one means
    /// now.
    ///
    /// # Errors
    ///
    /// Like [`cancel`](Self::cancel); also if the instant is beyond the year 9999.
    pub async fn reschedule_at<I>(&self, id: I, due: SystemTime) -> Result<Rescheduled, Error>
    where
        I: TryInto<MessageId, Error: Into<Error>>,
    {
        self.reschedule(message_id(id)?, Schedule::At(Timestamp::try_from(due)?)).await
    }

    /// What is known of an id. [`decode`](Self::decode) reads a live message's payload.
    ///
    /// # Errors
    ///
    /// Like [`cancel`](Self::cancel).
    pub async fn get<I>(&self, id: I) -> Result<Found, Error>
    where
        I: TryInto<MessageId, Error: Into<Error>>,
    {
        let reply = self.ask(&Op::Get(vec![message_id(id)?])).await?;
        let Reply::Get(items) = reply else { return Err(Error::unexpected_reply()) };
        only(items)
    }

    /// What is known of many ids, in as few operations as their number allows: 16 go into one.
    /// Answers id by id, in order; the operations are not one instant.
    ///
    /// ```
    /// # use delayline::{Found, Queue, Status};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), delayline::Error> {
    /// # let queue: Queue<u64> = delayline::connect("memory:").await?.queue("numbers").await?;
    /// let id = queue.send(&7).await?;
    /// let known = queue.get_many([id.clone(), "order-1".try_into()?]).await?;
    /// assert!(matches!(&known[0], Found::Live(message) if message.info.id == id));
    /// assert_eq!(known[1], Found::Unknown);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Like [`cancel`](Self::cancel); an id outside of its limits fails all before anything is
    /// asked.
    pub async fn get_many<I>(&self, ids: impl IntoIterator<Item = I>) -> Result<Vec<Found>, Error>
    where
        I: TryInto<MessageId, Error: Into<Error>>,
    {
        self.each(MAX_LOOK_UP, ids, Op::Get, |reply| match reply {
            Reply::Get(items) => Some(items),
            _ => None,
        })
        .await
    }

    /// Counts the messages of each state (G22).
    ///
    /// # Errors
    ///
    /// [`Error::Backend`]; see [`patience`](Self::patience).
    pub async fn stats(&self) -> Result<Stats, Error> {
        match self.ask(&Op::Stats).await? {
            Reply::Stats(stats) => Ok(stats),
            _ => Err(Error::unexpected_reply()),
        }
    }

    /// What the server's clock shows, by which everything is due and expires.
    ///
    /// # Errors
    ///
    /// [`Error::Backend`]; see [`patience`](Self::patience).
    pub async fn server_time(&self) -> Result<Timestamp, Error> {
        Ok(self.client.apply(&Op::Stats).await?.at)
    }

    /// Counts like [`stats`](Self::stats), and sets the gauges in [`telemetry`] by it, if the
    /// feature `metrics` is on. Call it every few seconds, in one process of those that share the
    /// queue.
    ///
    /// # Errors
    ///
    /// [`Error::Backend`]; see [`patience`](Self::patience).
    pub async fn report_depths(&self) -> Result<Stats, Error> {
        let applied = self.client.apply(&Op::Stats).await?;
        let Reply::Stats(stats) = applied.reply else { return Err(Error::unexpected_reply()) };
        telemetry::depths(self.client.label(), &stats, applied.at);
        Ok(stats)
    }

    /// Stops deliveries until [`resume`](Self::resume); everything else goes on (G17). Pausing a
    /// paused queue changes nothing.
    ///
    /// # Errors
    ///
    /// [`Error::Backend`]; see [`patience`](Self::patience).
    pub async fn pause(&self) -> Result<(), Error> {
        self.ask(&Op::Pause).await.map(drop)
    }

    /// Lets deliveries go on.
    ///
    /// # Errors
    ///
    /// [`Error::Backend`]; see [`patience`](Self::patience).
    pub async fn resume(&self) -> Result<(), Error> {
        self.ask(&Op::Resume).await.map(drop)
    }

    /// Makes a dead letter due at once; its failures and crashes count from 0 again (G11).
    ///
    /// If the reply of the first try was lost, a message that this call has revived is reported as
    /// [`Redriven::NotDead`]: it is alive either way.
    ///
    /// # Errors
    ///
    /// Like [`cancel`](Self::cancel).
    pub async fn redrive<I>(&self, id: I) -> Result<Redriven, Error>
    where
        I: TryInto<MessageId, Error: Into<Error>>,
    {
        self.redrive_in(id, Duration::ZERO).await
    }

    /// Like [`redrive`](Self::redrive), but makes it due after `delay`.
    ///
    /// # Errors
    ///
    /// Like [`cancel`](Self::cancel); also if the delay is longer than 100 years.
    pub async fn redrive_in<I>(&self, id: I, delay: Duration) -> Result<Redriven, Error>
    where
        I: TryInto<MessageId, Error: Into<Error>>,
    {
        only(self.redrive_many_in([id], delay).await?)
    }

    /// Redrives many dead letters, in as few operations as possible. Returns one result per id, in
    /// order, like [`redrive`](Self::redrive). The operations are not one atomic step.
    ///
    /// # Errors
    ///
    /// Like [`cancel_many`](Self::cancel_many).
    pub async fn redrive_many<I>(
        &self,
        ids: impl IntoIterator<Item = I>,
    ) -> Result<Vec<Redriven>, Error>
    where
        I: TryInto<MessageId, Error: Into<Error>>,
    {
        self.redrive_many_in(ids, Duration::ZERO).await
    }

    /// Like [`redrive_many`](Self::redrive_many), but makes them due after `delay`.
    ///
    /// # Errors
    ///
    /// Like [`cancel_many`](Self::cancel_many); also if the delay is longer than 100 years.
    pub async fn redrive_many_in<I>(
        &self,
        ids: impl IntoIterator<Item = I>,
        delay: Duration,
    ) -> Result<Vec<Redriven>, Error>
    where
        I: TryInto<MessageId, Error: Into<Error>>,
    {
        let schedule = Schedule::In(Millis::try_from(delay)?);
        let op = |ids| Op::Redrive(Redrive { ids, schedule });
        self.each(MAX_BATCH, ids, op, |reply| match reply {
            Reply::Redrive(items) => Some(items),
            _ => None,
        })
        .await
    }

    /// Makes all messages due at once that are dead letters now, page by page, and answers how many
    /// lived again. One that fails again meanwhile is redriven once only, so this ends however
    /// quickly messages die.
    ///
    /// ```
    /// # use delayline::Queue;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), delayline::Error> {
    /// # let queue: Queue<u64> = delayline::connect("memory:").await?.queue("numbers").await?;
    /// let redriven = queue.redrive_all().await?;
    /// println!("{redriven} messages get another chance");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Like [`redrive`](Self::redrive).
    pub async fn redrive_all(&self) -> Result<u64, Error> {
        listing::redrive_all(self).await
    }

    /// Deletes a dead letter.
    ///
    /// # Errors
    ///
    /// Like [`cancel`](Self::cancel).
    pub async fn purge<I>(&self, id: I) -> Result<Purged, Error>
    where
        I: TryInto<MessageId, Error: Into<Error>>,
    {
        only(self.purge_many([id]).await?)
    }

    /// Deletes many dead letters, in as few operations as possible. Returns one result per id, in
    /// order. The operations are not one atomic step.
    ///
    /// # Errors
    ///
    /// Like [`cancel_many`](Self::cancel_many).
    pub async fn purge_many<I>(
        &self,
        ids: impl IntoIterator<Item = I>,
    ) -> Result<Vec<Purged>, Error>
    where
        I: TryInto<MessageId, Error: Into<Error>>,
    {
        self.each(MAX_BATCH, ids, Op::Purge, |reply| match reply {
            Reply::Purge(items) => Some(items),
            _ => None,
        })
        .await
    }

    /// The messages of one status, page by page: [`Status::Scheduled`], [`Status::Ready`],
    /// [`Status::Leased`] or [`Status::Dead`]; the first page of any other is an error.
    #[must_use]
    pub fn list(&self, status: Status) -> Listing {
        Listing::new(self.client.clone(), status)
    }

    /// The dead letters of this moment, page by page, the oldest death first. A message that dies
    /// later is not among them, so a loop that redrives each page comes to its end;
    /// [`redrive_all`](Self::redrive_all) is that loop.
    ///
    /// # Errors
    ///
    /// [`Error::Backend`]; see [`patience`](Self::patience).
    pub async fn dead_letters(&self) -> Result<Listing, Error> {
        Listing::dead_letters(self.client.clone()).await
    }

    /// Audits the whole queue, page by page (G1, G22); it may be in use meanwhile.
    ///
    /// # Errors
    ///
    /// [`Error::Backend`]; see [`patience`](Self::patience).
    pub async fn check(&self) -> Result<Audit, Error> {
        listing::audit(&self.client).await
    }

    /// Mends what [`check`](Self::check) finds, page by page, until a pass finds nothing or three
    /// are over; the queue may be in use meanwhile. Answers what was wrong.
    ///
    /// Each message gets into the one place that it belongs to. If only half of an operation has
    /// happened to it, that is the place where it was or where it was going. What cannot be read, or
    /// whose due instant is lost, becomes a dead letter, to be looked at and purged, or redriven if its
    /// record is whole. Messages of which nothing at all is left count as purged from then on (G20).
    ///
    /// # Errors
    ///
    /// [`Error::Backend`]; see [`patience`](Self::patience). Calling again goes on.
    pub async fn repair(&self) -> Result<Audit, Error> {
        listing::repair(&self.client).await
    }

    async fn reschedule(&self, id: MessageId, schedule: Schedule) -> Result<Rescheduled, Error> {
        let reply = self.ask(&Op::Reschedule(vec![Reschedule { id, schedule }])).await?;
        let Reply::Reschedule(items) = reply else { return Err(Error::unexpected_reply()) };
        only(items)
    }

    async fn ask(&self, op: &Op) -> Result<Reply, Error> {
        Ok(self.client.apply(op).await?.reply)
    }

    pub(crate) const fn client(&self) -> &Client {
        &self.client
    }

    pub(crate) const fn codec(&self) -> &Arc<C> {
        &self.codec
    }
}

impl<T, C: Codec<T>> Queue<T, C> {
    /// A message to configure and then [`send`](Draft::send). If `value` cannot be encoded, or its
    /// payload is longer than 1 MiB, sending fails.
    pub fn message(&self, value: &T) -> Draft {
        let message = || {
            let payload = self.codec.encode(value).map_err(Error::Encode)?;
            // Time-ordered, so that a list of ids is a list in order of creation.
            let id = MessageId::new(Uuid::now_v7().to_string())?;
            Ok(NewMessage::new(id, payload))
        };
        Draft::new(self.client.clone(), message())
    }

    /// Sends a message that is due at once. Returns the id generated for it.
    ///
    /// # Errors
    ///
    /// Like [`Draft::send`]. After an ambiguous error the message may be in the queue, and sending the
    /// value again creates another message: where that matters, choose the [`id`](Draft::id).
    pub async fn send(&self, value: &T) -> Result<MessageId, Error> {
        Ok(self.message(value).send().await?.id)
    }

    /// Sends a message that is due `delay` from now by the server's clock. Returns the id generated
    /// for it.
    ///
    /// # Errors
    ///
    /// Like [`send`](Self::send); also if the delay is longer than 100 years.
    pub async fn send_in(&self, value: &T, delay: Duration) -> Result<MessageId, Error> {
        Ok(self.message(value).due_in(delay).send().await?.id)
    }

    /// Sends a message that is due at an instant, to the millisecond, rounded up. A past instant means
    /// now. Returns the id generated for it.
    ///
    /// # Errors
    ///
    /// Like [`send`](Self::send); also if the instant is beyond the year 9999.
    pub async fn send_at(&self, value: &T, due: SystemTime) -> Result<MessageId, Error> {
        Ok(self.message(value).due_at(due).send().await?.id)
    }

    /// The value of a payload, such as one that [`get`](Self::get) found.
    ///
    /// # Errors
    ///
    /// [`Error::Decode`].
    pub fn decode(&self, payload: &Bytes) -> Result<T, Error> {
        self.codec.decode(payload).map_err(Error::Decode)
    }
}

impl<T, C> Clone for Queue<T, C> {
    fn clone(&self) -> Self {
        Self { client: self.client.clone(), codec: Arc::clone(&self.codec), payload: PhantomData }
    }
}

impl<T, C> fmt::Debug for Queue<T, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue").field("client", &self.client).finish_non_exhaustive()
    }
}

/// The answer to a batch of one.
fn only<R>(items: Vec<R>) -> Result<R, Error> {
    let mut items = items.into_iter();
    match (items.next(), items.next()) {
        (Some(item), None) => Ok(item),
        _ => Err(Error::unexpected_reply()),
    }
}
