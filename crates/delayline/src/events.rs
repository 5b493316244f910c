//! Events of messages, for listeners in this process.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use delayline_core::{DeathReason, Headers, MessageId, Status, Timestamp};
use futures_util::stream::{Stream, unfold};
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};

/// A change to a message that a call of this process made or observed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Event {
    /// The message.
    pub id: MessageId,
    /// The kind of its payload, in a queue of [`Jobs`](crate::Jobs). Only events of sends and
    /// deliveries have it.
    pub job_kind: Option<String>,
    /// The time when the call was executed, by the server's clock.
    pub at: Timestamp,
    /// What happened.
    pub kind: EventKind,
}

/// What happened to a message.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EventKind {
    /// It was enqueued.
    Enqueued {
        /// When it is due.
        due: Timestamp,
    },
    /// It has updated, revived or replaced the message with its id, which was waiting or dead.
    Updated {
        /// The new due time.
        due: Timestamp,
    },
    /// A worker holds the message with its id, and this one will replace it.
    Following,
    /// It ended without an ack, and an update has replaced it ([G30](crate::guarantees#g30)).
    Replaced {
        /// The handler's error, if it failed: the queue does not keep it.
        error: Option<String>,
    },
    /// Its id was known with the same content, and nothing changed ([G15](crate::guarantees#g15)).
    /// After a lost reply, this process may have enqueued it itself.
    Duplicate {
        /// The status of the known message.
        status: Status,
    },
    /// Its id was known with different content, and nothing changed ([G15](crate::guarantees#g15)).
    Conflict {
        /// The status of the known message.
        status: Status,
    },
    /// A message with its id was created less than its `throttle` ago, and nothing changed
    /// ([G33](crate::guarantees#g33)). After a lost reply, this process may have created it itself.
    Throttled {
        /// The end of the window.
        until: Timestamp,
    },
    /// It has a `throttle`, but too many ids are already throttled: nothing was created
    /// ([G33](crate::guarantees#g33)).
    TooManyThrottled,
    /// A claim has leased it.
    Delivered {
        /// The number of its claims so far, including this one.
        epoch: u64,
        /// The time from its due time to the claim, by the server's clock.
        lateness: Duration,
    },
    /// It was acked, and is finished.
    Acked,
    /// It was acked, but its result was not kept: the results of its queue would be too large
    /// ([G32](crate::guarantees#g32)). Reported in addition to [`Acked`](Self::Acked).
    ResultNotKept,
    /// Its handler failed, and it will be retried.
    Retried {
        /// The time until the retry.
        delay: Duration,
    },
    /// Its handler snoozed it.
    Snoozed {
        /// The time until it is due again.
        delay: Duration,
    },
    /// It was released unstarted ([G10](crate::guarantees#g10)).
    Released,
    /// It became a dead letter: a settlement of this process ended it, or a claim of this process
    /// found it expired, unreadable, or at the end of its last lease. A claim whose reply is lost
    /// reports nothing. A settlement whose reply is lost is repeated and then reports it. If the
    /// dead letter has been redriven, purged or cancelled in between,
    /// [`LeaseLost`](Self::LeaseLost) is reported instead.
    Dead {
        /// The reason.
        reason: DeathReason,
        /// The handler's error, if a settlement ended it.
        error: Option<String>,
    },
    /// The reply to the claim arrived after its lease had expired, so the message was released
    /// unstarted and nothing was counted. Use a lease of several round trips.
    NotStarted {
        /// The duration of the lease.
        lease: Duration,
        /// The time from sending the claim to its reply, including repetitions.
        round_trip: Duration,
    },
    /// This process no longer holds it: another claim has reclaimed it
    /// ([G6](crate::guarantees#g6)).
    LeaseLost {
        /// The epoch of the lease that was lost.
        epoch: u64,
    },
    /// It was cancelled, and is finished ([G13](crate::guarantees#g13)).
    Cancelled,
    /// It was cancelled while a worker holds it ([G13](crate::guarantees#g13)). Reported again each
    /// time its lease is extended.
    CancelRequested,
    /// It was rescheduled.
    Rescheduled {
        /// The new due time.
        due: Timestamp,
    },
    /// It was a dead letter and has been redriven ([G11](crate::guarantees#g11)).
    Redriven {
        /// When it is due.
        due: Timestamp,
    },
    /// It was a dead letter and has been deleted.
    Purged,
    /// A relay of this process moved it to a list or stream, and it is finished
    /// ([G28](crate::guarantees#g28)).
    Relayed,
}

/// A listener, created by [`Queue::events`](crate::Queue::events).
///
/// It receives the events of one queue, its clones and their workers in this process, but none from
/// other processes. The events of one call arrive in the order of its messages, and the events of
/// concurrent calls in any order ([`Event::at`] has the instant).
///
/// **Lossy.** Up to 1,024 events are kept for a slow listener. After that, it misses the oldest,
/// which [`missed`](Self::missed) counts. No call ever waits for a listener.
///
/// ```
/// # use delayline::Queue;
/// # use delayline::events::EventKind;
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
    /// Returns the next event, or `None` when the queue, its clones and their workers are dropped.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses no event.
    pub async fn next(&mut self) -> Option<Event> {
        loop {
            match self.receiver.recv().await {
                Ok(event) => return Some(event),
                Err(RecvError::Lagged(events)) => self.missed = self.missed.saturating_add(events),
                Err(RecvError::Closed) => return None,
            }
        }
    }

    /// Returns the next event if it has already arrived.
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

    /// Converts this listener to a stream, which ends when the queue, its clones and their workers
    /// are dropped.
    pub fn into_stream(self) -> impl Stream<Item = Event> + Send + Sync + Unpin + 'static {
        Box::pin(unfold(self, async |mut events| Some((events.next().await?, events))))
    }

    /// The number of events that this listener has missed because it was too slow.
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

/// Sends events to listeners. Clones share it; nothing is kept until a listener exists.
#[derive(Clone, Debug, Default)]
pub(crate) struct EventSink(Arc<OnceLock<broadcast::Sender<Event>>>);

impl EventSink {
    pub(crate) fn listen(&self) -> Events {
        let sender = self.0.get_or_init(|| broadcast::Sender::new(CAPACITY));
        Events { receiver: sender.subscribe(), missed: 0 }
    }

    /// Reports to listeners, if there are any, what a call executed `at` did to a message.
    pub(crate) fn tell(&self, id: &MessageId, at: Timestamp, kind: EventKind) {
        self.tell_with(id, None, at, kind);
    }

    /// Like `send`, for a message whose headers are known.
    pub(crate) fn tell_with(
        &self,
        id: &MessageId,
        headers: Option<&Headers>,
        at: Timestamp,
        kind: EventKind,
    ) {
        if let Some(sender) = self.0.get().filter(|sender| sender.receiver_count() > 0) {
            // This fails if the last listener was dropped.
            let job_kind = headers.and_then(Headers::kind).map(str::to_owned);
            let _ = sender.send(Event { id: id.clone(), job_kind, at, kind });
        }
    }
}

/// The number of events kept for a slow listener.
const CAPACITY: usize = 1_024;
