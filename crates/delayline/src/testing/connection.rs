//! Many queues with one clock.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use delayline_core::{Millis, QueueName, Timestamp};
use delayline_memory::ManualClock;

use super::recorder::Recorder;
use crate::connection::Connection;
use crate::local::Local;

/// Queues in memory that share a clock, which the test moves: for programs with several queues.
///
/// Pass the [`connection`](Self::connection) to code that opens its queues itself.
/// [`queue`](Self::queue) has the assertions about the messages sent to one queue, and handles it
/// alone. [`workers`](Self::workers) handle several queues in the order of their due times.
///
/// Clones share the queues and the clock. Each new `TestConnection` has its own.
///
/// ```
/// use std::time::Duration;
///
/// use delayline::testing::TestConnection;
/// use delayline::message::Status;
/// use delayline::{Connection, Error, Job, Queue};
///
/// // The code under test: an order is closed after half an hour, and a mail follows a day later.
/// async fn placed(connection: &Connection, order: u64) -> Result<(), Error> {
///     let orders: Queue<u64> = connection.queue("orders").await?;
///     let draft = orders.message(&order).id(format!("close-{order}"));
///     draft.due_in(Duration::from_secs(1800)).send().await.map(drop)
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Error> {
/// let test = TestConnection::new();
/// placed(test.connection(), 1234).await?;
///
/// let (orders, mails) = (test.queue::<u64>("orders"), test.queue::<String>("mails"));
/// orders.assert_sent("close-1234").assert_delay(Duration::from_secs(1800));
///
/// let target = mails.queue().clone();
/// let close = move |job: Job<u64>| {
///     let mail = target.message(&format!("order {} is closed", job.payload()));
///     async move { job.hand_over(mail.due_in(Duration::from_secs(86_400))).await }
/// };
/// let workers = test.workers().add(&orders, close).add(&mails, async |_: Job<String>| {
///     Ok::<(), Error>(())
/// });
/// let drained = workers.drain().await;
/// assert_eq!(drained.count(Status::Acked), 2);
/// assert_eq!(drained.handled[1].queue.as_str(), "mails");
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct TestConnection(Arc<Inner>);

struct Inner {
    clock: ManualClock,
    queues: Arc<Local<Recorder>>,
    connection: Connection,
}

impl TestConnection {
    /// No queue yet. The clock starts at the machine's current time and stands still.
    #[must_use]
    pub fn new() -> Self {
        Self::starting_at(SystemTime::now())
    }

    /// No queue yet. The clock starts at `start`: to the millisecond, rounded up, from 1970 to the
    /// end of the year 9999.
    #[must_use]
    pub fn starting_at(start: SystemTime) -> Self {
        let clock = ManualClock::new(Timestamp::try_from(start).unwrap_or(Timestamp::MAX));
        let shared = clock.clone();
        let queues = Arc::new(Local::new(move |name| Recorder::new(&shared, name)));
        let connection = Connection::new(queues.clone());
        Self(Arc::new(Inner { clock, queues, connection }))
    }

    /// The connection, for code under test that opens queues by name.
    #[must_use]
    pub fn connection(&self) -> &Connection {
        &self.0.connection
    }

    /// The current time of the clock.
    #[must_use]
    pub fn now(&self) -> SystemTime {
        self.instant().into()
    }

    /// Moves the clock forward: to the millisecond, rounded up, by 100 years at most.
    pub fn advance(&self, by: Duration) {
        self.0.clock.advance(Millis::try_from(by).unwrap_or(Millis::MAX));
    }

    /// The queue with this name, which records the messages sent to it.
    pub(super) fn recorder(&self, name: QueueName) -> Arc<Recorder> {
        self.0.queues.queue(name)
    }

    pub(super) fn instant(&self) -> Timestamp {
        self.0.clock.now()
    }

    pub(super) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Default for TestConnection {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for TestConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TestConnection").field("now", &self.instant()).finish_non_exhaustive()
    }
}
