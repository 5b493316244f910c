//! Tests for programs that use a queue: the messages sent, and the effects of handlers, without a
//! server and without waiting. Needs the feature `testing`.
//!
//! A [`TestQueue`] is a queue in memory whose clock advances only when the test advances it. A
//! [`TestConnection`] has many queues with one such clock. Pass a test queue's
//! [`queue`](TestQueue::queue) to the code under test, check the messages that it has sent
//! ([`assert_sent`](TestQueue::assert_sent)), and run a handler on them
//! ([`drain`](TestQueue::drain)). A drain handles one message after the other in the queue's order,
//! so tests are deterministic. A delay of half an hour takes no time at all.
//!
//! ```
//! use std::time::Duration;
//!
//! use delayline::testing::TestQueue;
//! use delayline::message::Status;
//! use delayline::{Job, Outcome, Queue};
//!
//! // The code under test.
//! async fn order_placed(queue: &Queue<u64>, order: u64) -> Result<(), delayline::Error> {
//!     let draft = queue.message(&order).id(format!("close-{order}"));
//!     draft.due_in(Duration::from_secs(1800)).send().await.map(drop)
//! }
//!
//! async fn close(job: Job<u64>) -> Result<Outcome, &'static str> {
//!     if job.failures() == 0 { Err("the shop is not reachable") } else { Ok(Outcome::Ack) }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), delayline::Error> {
//! let test = TestQueue::new();
//! order_placed(test.queue(), 1234).await?;
//! test.assert_sent("close-1234").assert_payload(&1234).assert_delay(Duration::from_secs(1800));
//!
//! // Nothing is due yet, and half an hour later it fails and is tried again.
//! assert!(test.drain_due(close).await.handled.is_empty());
//! test.advance(Duration::from_secs(1800));
//! let drained = test.drain(close).await;
//! assert_eq!(drained.handled[0].outcome, Outcome::retry("the shop is not reachable"));
//! assert_eq!(drained.handled[1].status, Some(Status::Acked));
//! # Ok(())
//! # }
//! ```
//!
//! Failed assertions show ids, headers and payloads: use this module in tests only.

mod assertion;
mod connection;
mod drain;
mod drained;
mod recorder;
mod sent;
mod workers;

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use delayline_core::{DestinationKey, Element, MessageId, QueueBackend, QueueName, RetryPolicy};

use self::assertion::fail;
pub use self::connection::TestConnection;
pub use self::drained::{Drained, Handled};
use self::recorder::Recorder;
pub use self::sent::SentMessage;
pub use self::workers::TestWorkers;
use crate::codec::{Decode, Json};
use crate::worker::Retry;
use crate::{Error, Queue};

/// A queue in memory that remembers sent messages, with a clock that the test controls.
///
/// Clones share the same queue. Each new `TestQueue` has its own clock: those of a
/// [`TestConnection`] share one.
pub struct TestQueue<T: ?Sized, C = Json> {
    queue: Queue<T, C>,
    connection: TestConnection,
    recorder: Arc<Recorder>,
    retry: Retry,
    max_deliveries: usize,
}

impl<T: ?Sized> TestQueue<T> {
    /// Creates an empty queue of JSON payloads. Its clock starts at the machine's current time and
    /// stands still. So a message that is sent later with the machine's time as its due time is not
    /// due yet.
    #[must_use]
    pub fn new() -> Self {
        Self::starting_at(SystemTime::now())
    }

    /// Creates an empty queue of JSON payloads. Its clock starts at `start`: to the millisecond,
    /// rounded up, from 1970 to the end of the year 9999.
    #[must_use]
    pub fn starting_at(start: SystemTime) -> Self {
        TestConnection::starting_at(start).queue("test")
    }

    fn of(connection: TestConnection, recorder: Arc<Recorder>) -> Self {
        let backend: Arc<dyn QueueBackend> = Arc::clone(&recorder) as _;
        Self {
            queue: connection.connection().queue_on(backend),
            connection,
            recorder,
            retry: Retry::Policy(RetryPolicy::default()),
            max_deliveries: DEFAULT_MAX_DELIVERIES,
        }
    }
}

impl TestConnection {
    /// Returns the queue with this name, with JSON payloads unless [`TestQueue::codec`] changes
    /// that. It is created when its name is first used, here or by the code under test; the same
    /// name always returns the same queue.
    ///
    /// # Panics
    ///
    /// If the name is malformed.
    #[must_use]
    #[track_caller]
    pub fn queue<T: ?Sized>(&self, name: &str) -> TestQueue<T> {
        match QueueName::new(name) {
            Ok(name) => TestQueue::of(self.clone(), self.recorder(name)),
            Err(violation) => fail(&violation.to_string()),
        }
    }
}

impl<T: ?Sized> Default for TestQueue<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: ?Sized, C> TestQueue<T, C> {
    /// Returns the same queue with payloads encoded by another codec.
    #[must_use]
    pub fn codec<D>(self, codec: D) -> TestQueue<T, D> {
        let Self { queue, connection, recorder, retry, max_deliveries } = self;
        TestQueue { queue: queue.codec(codec), connection, recorder, retry, max_deliveries }
    }

    /// Sets the retry delay of messages that fail in a drain: like a worker's
    /// [`retry`](crate::worker::WorkerBuilder::retry), but with jitter always at its maximum, so
    /// that tests are deterministic. The default is 1 s, 2 s, 4 s and so on, up to one hour.
    #[must_use]
    pub fn retry(mut self, policy: RetryPolicy) -> Self {
        self.retry = Retry::Policy(policy);
        self
    }

    /// Like [`retry`](Self::retry), with a function, like a worker's
    /// [`retry_with`](crate::worker::WorkerBuilder::retry_with).
    #[must_use]
    pub fn retry_with(
        mut self,
        delay: impl Fn(u32, &str) -> Duration + Send + Sync + 'static,
    ) -> Self {
        self.retry = Retry::Custom(Arc::new(delay));
        self
    }

    /// Sets the number of deliveries after which a drain panics: 10,000 by default. So a handler
    /// that snoozes its message forever does not block the test.
    #[must_use]
    pub const fn max_deliveries(mut self, deliveries: usize) -> Self {
        self.max_deliveries = deliveries;
        self
    }

    /// Returns the queue, for the code under test.
    #[must_use]
    pub const fn queue(&self) -> &Queue<T, C> {
        &self.queue
    }

    /// Returns the current time of the clock.
    #[must_use]
    pub fn now(&self) -> SystemTime {
        self.connection.now()
    }

    /// Advances the clock: to the millisecond, rounded up, by at most 100 years.
    pub fn advance(&self, by: Duration) {
        self.connection.advance(by);
    }

    /// Takes the elements that relays of this queue have put into a list or stream, in order, as
    /// its consumers would.
    ///
    /// ```
    /// # use delayline::relay::{Destination, DestinationKey};
    /// # use delayline::{Error, testing::TestQueue};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Error> {
    /// let test = TestQueue::new();
    /// let _ = test.queue().message(&7).id("order-7").send().await?;
    /// let key = DestinationKey::try_from("due-orders")?;
    /// let list = Destination::List { key: key.clone(), max_len: None };
    /// assert_eq!(test.queue().relay(list).once().await?.ids.len(), 1);
    /// assert_eq!(test.take_relayed(&key)[0].payload, "7");
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn take_relayed(&self, key: &DestinationKey) -> Vec<Element> {
        self.recorder.take_relayed(key)
    }

    /// Returns all messages enqueued so far, in order, whether handled, cancelled or waiting.
    /// Duplicates and conflicts are not included.
    #[must_use]
    pub fn sent(&self) -> Vec<SentMessage<T, C>> {
        let sent = |record| SentMessage::new(record, Arc::clone(self.queue.encoding()));
        self.recorder.records().into_iter().map(sent).collect()
    }

    /// Returns the message sent with this id, or the latest of several, for further assertions.
    ///
    /// # Panics
    ///
    /// If no such message was sent. The text lists the sent messages.
    #[track_caller]
    pub fn assert_sent<I>(&self, id: I) -> SentMessage<T, C>
    where
        I: TryInto<MessageId, Error: Into<Error>>,
    {
        let id = wanted(id);
        match self.latest(&id) {
            Some(message) => message,
            None => fail(&format!("no message {id} was sent; {}", sent::list(&self.sent()))),
        }
    }

    /// Asserts that no message with this id was sent.
    ///
    /// # Panics
    ///
    /// If such a message was sent. The text describes it.
    #[track_caller]
    pub fn assert_not_sent<I>(&self, id: I)
    where
        I: TryInto<MessageId, Error: Into<Error>>,
    {
        if let Some(message) = self.latest(&wanted(id)) {
            fail(&format!("this message was sent: {message}"));
        }
    }

    /// Asserts that nothing was sent at all.
    ///
    /// # Panics
    ///
    /// If a message was sent. The text lists the messages.
    #[track_caller]
    pub fn assert_nothing_sent(&self) {
        let sent = self.sent();
        if !sent.is_empty() {
            fail(&sent::list(&sent));
        }
    }

    fn latest(&self, id: &MessageId) -> Option<SentMessage<T, C>> {
        self.sent().into_iter().rfind(|message| message.id() == id)
    }
}

impl<T: PartialEq + fmt::Debug, C: Decode<T>> TestQueue<T, C> {
    /// Returns the first message sent with this payload, for further assertions.
    ///
    /// # Panics
    ///
    /// If no such message was sent. The text lists the payloads that were sent.
    #[track_caller]
    pub fn assert_sent_payload(&self, payload: &T) -> SentMessage<T, C> {
        let sent = self.sent();
        match sent.iter().find(|it| it.decoded().is_ok_and(|it| it == *payload)) {
            Some(message) => message.clone(),
            None => {
                let list = sent::list_payloads(&sent);
                fail(&format!("no message with the payload {payload:?} was sent; {list}"))
            }
        }
    }
}

impl<T: ?Sized, C> Clone for TestQueue<T, C> {
    fn clone(&self) -> Self {
        Self {
            queue: self.queue.clone(),
            connection: self.connection.clone(),
            recorder: Arc::clone(&self.recorder),
            retry: self.retry.clone(),
            max_deliveries: self.max_deliveries,
        }
    }
}

impl<T: ?Sized, C> fmt::Debug for TestQueue<T, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TestQueue").field("now", &self.connection.instant()).finish_non_exhaustive()
    }
}

#[track_caller]
fn wanted<I>(id: I) -> MessageId
where
    I: TryInto<MessageId, Error: Into<Error>>,
{
    match crate::error::message_id(id) {
        Ok(id) => id,
        Err(error) => fail(&error.to_string()),
    }
}

const DEFAULT_MAX_DELIVERIES: usize = 10_000;
