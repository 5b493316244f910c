//! The embedded backend of Delayline: the state machine behind a lock and a clock.
//!
//! Keeps a queue in this process's memory: for tests, for programs that need no server, and as the
//! model that other backends are compared with. The contents are lost when the process ends.

mod clock;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use delayline_core::{
    Applied, At, Backend, DestinationKey, Element, Error, Millis, Op, QueueName, State, Timestamp,
    Wakeup,
};
use tokio::sync::Notify;

pub use self::clock::ManualClock;

/// Runs the example of the README as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}

/// A queue in memory. Share it between tasks with an [`Arc`].
pub struct MemoryBackend {
    name: Option<QueueName>,
    state: Mutex<State>,
    clock: Clock,
    bell: Arc<Notify>,
}

/// The clock behind [`At::Server`].
enum Clock {
    System,
    Manual(ManualClock),
}

impl MemoryBackend {
    /// Creates an empty queue on the system clock.
    #[must_use]
    pub fn new() -> Self {
        Self { name: None, state: Mutex::default(), clock: Clock::System, bell: Arc::default() }
    }

    /// Creates an empty queue whose clock stands at `start` until [`advance`](Self::advance) moves
    /// it, for tests that should not wait.
    #[must_use]
    pub fn with_manual_clock(start: Timestamp) -> Self {
        Self::with_clock_of(&ManualClock::new(start))
    }

    /// Creates an empty queue on a manual clock, which other queues can share.
    ///
    /// ```
    /// # use delayline_core::{Millis, Timestamp};
    /// # use delayline_memory::{ManualClock, MemoryBackend};
    /// let clock = ManualClock::new(Timestamp::MIN);
    /// let (orders, mails) =
    ///     (MemoryBackend::with_clock_of(&clock), MemoryBackend::with_clock_of(&clock));
    /// clock.advance(Millis::saturating(500));
    /// assert_eq!((orders.now().as_ms(), mails.now().as_ms()), (500, 500));
    /// ```
    #[must_use]
    pub fn with_clock_of(clock: &ManualClock) -> Self {
        let queue = Self { clock: Clock::Manual(clock.clone()), ..Self::new() };
        clock.wakes(&queue.bell);
        queue
    }

    /// Sets the name shown in spans, metrics and logs. By default, the queue has none.
    #[must_use]
    pub fn named(mut self, name: QueueName) -> Self {
        self.name = Some(name);
        self
    }

    /// Moves a manual clock forward, like [`ManualClock::advance`]. Has no effect on a queue that
    /// uses the system clock.
    pub fn advance(&self, by: Millis) {
        if let Clock::Manual(clock) = &self.clock {
            clock.advance(by);
        }
    }

    /// Returns the current time of the queue's clock.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.read_clock().0
    }

    /// Returns the time of the queue's clock, and its microseconds past that.
    fn read_clock(&self) -> (Timestamp, u16) {
        match &self.clock {
            Clock::System => {
                // Rounded down, unlike due times: a message due in this millisecond is due.
                let since_epoch =
                    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
                let ms = u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX);
                let micros = u16::try_from(since_epoch.subsec_micros() % 1_000).unwrap_or_default();
                (Timestamp::from_ms(ms).unwrap_or(Timestamp::MAX), micros)
            }
            Clock::Manual(clock) => (clock.now(), 0),
        }
    }

    /// Takes all elements out of a destination of relays, as its consumers would. Elements stay in
    /// memory until they are taken.
    ///
    /// ```
    /// # use delayline_core::{At, Backend, Destination, DestinationKey, MessageId, NewMessage, Op, Relay};
    /// # use delayline_memory::MemoryBackend;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), delayline_core::Error> {
    /// let queue = MemoryBackend::new();
    /// let message = NewMessage::new(MessageId::try_from("order-1")?, "close it");
    /// queue.apply(At::Server, &Op::Enqueue(vec![message])).await?;
    /// let key = DestinationKey::try_from("due-orders")?;
    /// let to = Destination::List { key: key.clone(), max_len: None };
    /// queue.apply(At::Server, &Op::Relay(Relay::new(to, 10))).await?;
    /// assert_eq!(queue.take_relayed(&key)[0].payload, "close it");
    /// # Ok(())
    /// # }
    /// ```
    pub fn take_relayed(&self, key: &DestinationKey) -> Vec<Element> {
        self.lock().take_relayed(key)
    }

    /// Ignores poisoning: `apply` does not panic, so no panic can leave the state half changed, and
    /// the queue continues.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for MemoryBackend {
    fn default() -> Self {
        Self::new()
    }
}

/// Omits the messages.
impl fmt::Debug for MemoryBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryBackend").finish_non_exhaustive()
    }
}

#[async_trait]
impl Backend for MemoryBackend {
    async fn apply(&self, at: At, op: &Op) -> Result<Applied, Error> {
        op.validate()?;
        let mut state = self.lock();
        // Read under the lock, so that the instants of operations never go back.
        let (now, micros) = match at {
            At::Server => self.read_clock(),
            At::Fixed(now) => (now, 0),
        };
        let (applied, hint) = state.apply_and_hint(now, op);
        drop(state);
        if hint {
            self.bell.notify_one();
        }
        Ok(applied.with_micros(micros))
    }

    fn queue_name(&self) -> Option<&QueueName> {
        self.name.as_ref()
    }
}

#[async_trait]
impl Wakeup for MemoryBackend {
    async fn wait(&self, timeout: Duration) -> Result<bool, Error> {
        Ok(tokio::time::timeout(timeout, self.bell.notified()).await.is_ok())
    }

    async fn ring(&self) -> Result<(), Error> {
        self.bell.notify_one();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use delayline_core::{Claim, ClaimId, ConsumerName, MessageId, NewMessage, Reply, Schedule};

    use super::*;

    fn message(id: &str, delay_ms: u64) -> NewMessage {
        let mut message = NewMessage::new(MessageId::try_from(id).unwrap(), "");
        message.schedule = Schedule::In(Millis::new(delay_ms).unwrap());
        message
    }

    async fn enqueue(queue: &MemoryBackend, id: &str, delay_ms: u64) {
        queue.apply(At::Server, &Op::Enqueue(vec![message(id, delay_ms)])).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn only_what_is_claimable_sooner_rings() {
        let queue = MemoryBackend::with_manual_clock(Timestamp::from_ms(1_000).unwrap());
        let wait = || queue.wait(Duration::from_secs(5));
        enqueue(&queue, "a", 500).await;
        assert!(wait().await.unwrap(), "the first message rings, and the ring is kept");
        enqueue(&queue, "b", 600).await;
        assert!(!wait().await.unwrap(), "sleepers come back at 500 anyhow");
        enqueue(&queue, "c", 400).await;
        assert!(wait().await.unwrap());
        // The suite's wrapper passes hints on.
        let wrapped = delayline_testkit::Faulty::new(queue, []);
        wrapped.ring().await.unwrap();
        assert!(wrapped.wait(Duration::from_secs(5)).await.unwrap());
    }

    #[tokio::test(start_paused = true)]
    async fn a_claim_without_room_leaves_the_next_message_to_another() {
        let queue = MemoryBackend::with_manual_clock(Timestamp::from_ms(1_000).unwrap());
        let wait = || queue.wait(Duration::from_secs(5));
        enqueue(&queue, "a", 0).await;
        enqueue(&queue, "b", 1_000).await;
        assert!(wait().await.unwrap());
        let claim = |max| {
            let (consumer, lease) = (ConsumerName::new("c").unwrap(), Millis::new(9_000).unwrap());
            let claim_id = ClaimId::from_bytes([u8::try_from(max).unwrap(); 16]);
            Op::Claim(Claim::new(consumer, claim_id, max, lease))
        };
        queue.apply(At::Server, &claim(1)).await.unwrap();
        assert!(wait().await.unwrap(), "it is full, and b is due in a second");
        queue.apply(At::Server, &claim(2)).await.unwrap();
        assert!(!wait().await.unwrap(), "it has room, and comes for b itself");
    }

    #[tokio::test(start_paused = true)]
    async fn a_shared_clock_wakes_the_workers_of_all_its_queues() {
        let clock = ManualClock::new(Timestamp::MIN);
        let queues = [(); 2].map(|()| MemoryBackend::with_clock_of(&clock));
        drop(MemoryBackend::with_clock_of(&clock));
        clock.advance(Millis::new(7).unwrap());
        for queue in &queues {
            assert_eq!(queue.now(), clock.now());
            assert!(queue.wait(Duration::from_secs(5)).await.unwrap());
            assert!(!queue.wait(Duration::from_secs(5)).await.unwrap());
        }
    }

    #[tokio::test]
    async fn what_violates_a_limit_is_refused() {
        let queue = MemoryBackend::new();
        let error = queue.apply(At::Server, &Op::Enqueue(Vec::new())).await.unwrap_err();
        assert_eq!(error.to_string(), "the enqueue is empty");
    }

    #[tokio::test]
    async fn a_manual_clock_moves_only_by_hand() {
        let queue = MemoryBackend::with_manual_clock(Timestamp::from_ms(1_000).unwrap());
        queue.advance(Millis::new(5).unwrap());
        assert_eq!(queue.now().as_ms(), 1_005);
        let applied = queue.apply(At::Server, &Op::Stats).await.unwrap();
        assert_eq!(applied.at, queue.now());
        assert!(matches!(applied.reply, Reply::Stats(_)));
    }
}
