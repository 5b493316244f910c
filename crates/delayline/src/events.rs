//! What happens to messages, for listeners in this process.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use delayline_core::{DeathReason, MessageId, Millis, Status, Timestamp};
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};

/// Something that a call of this process has done to a message, or learned about it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Event {
    /// The message.
    pub id: MessageId,
    /// When the call was executed, by the server's clock.
    pub at: Timestamp,
    /// What happened.
    pub kind: EventKind,
}

/// What happened to a message.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EventKind {
    /// It was taken in.
    Enqueued {
        /// When it is due.
        due: Timestamp,
    },
    /// It was known with the same content, and nothing was changed (G15). Also after a lost reply:
    /// then it was this process that enqueued it.
    Duplicate {
        /// Where the known message stands.
        status: Status,
    },
    /// Its id was known with another content, and nothing was changed (G15).
    Conflict {
        /// Where the known message stands.
        status: Status,
    },
    /// A claim has leased it.
    Delivered {
        /// How often it has been claimed, this time included.
        epoch: u64,
        /// From the due instant to the claim, both by the server's clock.
        lateness: Duration,
    },
    /// It was handled, and is finished.
    Acked,
    /// Its handler failed, and it is tried again.
    Retried {
        /// From then to the next try.
        delay: Millis,
    },
    /// Its handler put it off.
    Snoozed {
        /// From then to the next try.
        delay: Millis,
    },
    /// It was given back unstarted (G10).
    Released,
    /// It became a dead letter: a settlement of this process ended it, or a claim of this process
    /// found it expired, unreadable, or at the end of its last lease. A claim whose reply is lost
    /// reports nothing. A settlement whose reply is lost is repeated and reports it then, unless
    /// somebody has redriven, purged or cancelled the dead letter meanwhile: that is told as
    /// [`LeaseLost`](Self::LeaseLost).
    Dead {
        /// Why.
        reason: DeathReason,
        /// What its handler said, if a settlement ended it.
        error: Option<String>,
    },
    /// The claim was answered after its lease had run out, so it was given back unstarted and
    /// uncounted. Use a lease of several round trips.
    NotStarted {
        /// How long the lease lasted.
        lease: Millis,
        /// From sending the claim to its answer, repetitions included.
        round_trip: Duration,
    },
    /// This process no longer holds it: another claim has taken it back (G6).
    LeaseLost {
        /// The epoch of the lease that was lost.
        epoch: u64,
    },
    /// It is cancelled, and is finished (G13).
    Cancelled,
    /// Somebody wants it cancelled while a worker has it (G13). Repeated at every extension.
    CancelRequested,
    /// It is due at another instant.
    Rescheduled {
        /// That instant.
        due: Timestamp,
    },
    /// It was a dead letter, and lives again (G11).
    Redriven {
        /// When it is due.
        due: Timestamp,
    },
    /// It was a dead letter, and is deleted.
    Purged,
}

/// A listener: made by [`Queue::events`](crate::Queue::events).
///
/// It hears of the calls of one queue, its clones and their workers in this process, and of no other
/// process. Events of one call come in the order of its messages; those of concurrent calls in any
/// order ([`Event::at`] tells).
///
/// **Lossy.** 1,024 events are kept for a listener that is behind; after that it misses the oldest,
/// and [`missed`](Self::missed) counts them. No call ever waits for a listener.
///
/// ```
/// # use delayline::{EventKind, Queue};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), delayline::Error> {
/// # let queue: Queue<u64> = delayline::connect("memory:").await?.queue("numbers").await?;
/// let mut events = queue.events();
/// let id = queue.send(&7).await?;
/// let event = events.next().await.expect("the queue is still there");
/// assert_eq!(event.id, id);
/// assert!(matches!(event.kind, EventKind::Enqueued { .. }));
/// # Ok(())
/// # }
/// ```
pub struct Events {
    receiver: broadcast::Receiver<Event>,
    missed: u64,
}

impl Events {
    /// The next event; `None` when the queue, its clones and their workers are gone. Dropping the
    /// future loses nothing.
    pub async fn next(&mut self) -> Option<Event> {
        loop {
            match self.receiver.recv().await {
                Ok(event) => return Some(event),
                Err(RecvError::Lagged(events)) => self.missed = self.missed.saturating_add(events),
                Err(RecvError::Closed) => return None,
            }
        }
    }

    /// The next event, if it has happened already.
    pub fn try_next(&mut self) -> Option<Event> {
        loop {
            match self.receiver.try_recv() {
                Ok(event) => return Some(event),
                Err(TryRecvError::Lagged(events)) => {
                    self.missed = self.missed.saturating_add(events);
                }
                Err(TryRecvError::Empty | TryRecvError::Closed) => return None,
            }
        }
    }

    /// How many events this listener was too slow for so far.
    #[must_use]
    pub const fn missed(&self) -> u64 {
        self.missed
    }
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Events").field("missed", &self.missed).finish_non_exhaustive()
    }
}

/// Where events go. Clones are one and the same; nothing is kept until somebody listens.
#[derive(Clone, Debug, Default)]
pub(crate) struct EventSink(Arc<OnceLock<broadcast::Sender<Event>>>);

impl EventSink {
    pub(crate) fn listen(&self) -> Events {
        let sender = self.0.get_or_init(|| broadcast::Sender::new(CAPACITY));
        Events { receiver: sender.subscribe(), missed: 0 }
    }

    /// Tells listeners, if there are any, what a call executed `at` did to a message.
    pub(crate) fn tell(&self, id: &MessageId, at: Timestamp, kind: EventKind) {
        if let Some(sender) = self.0.get().filter(|sender| sender.receiver_count() > 0) {
            // Fails if nobody listens any more.
            let _ = sender.send(Event { id: id.clone(), at, kind });
        }
    }
}

/// How many events a listener may be behind.
const CAPACITY: usize = 1_024;
