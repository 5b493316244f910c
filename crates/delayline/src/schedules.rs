//! Recurring messages: schedules by cron line or interval.
//!
//! A schedule is a message in a separate queue. Its id is the name, its payload the [`Spec`], and
//! it is due when the next tick has to be created. A [scheduler](Schedules::worker) is a worker of
//! that queue: it claims the schedule, sends the messages of its ticks to the target queue, and
//! snoozes the schedule until the next tick. So the lease elects one of many schedulers. Lists,
//! history, the dashboard and the command work for schedules as for other messages.
//!
//! Each tick becomes exactly one message, with the id `NAME@TICK`, where `TICK` is its instant in
//! milliseconds since 1970. It is due exactly then. A tick that is missed because all schedulers
//! were down is sent late, once, within the [grace](Spec::grace).
//!
//! ```
//! use delayline::schedules::{Schedules, Spec};
//! use delayline::{Job, Queue, Worker};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let connection = delayline::connect("memory:").await?;
//! let schedules = Schedules::open(&connection).await?;
//! // At each start of the program: what is unchanged keeps its next instant, and schedules that
//! // are gone from the list are removed.
//! schedules
//!     .declare("shop", [
//!         ("daily-report", Spec::cron("30 8 * * *", "Europe/Berlin", "reports")?.payload("sales")?),
//!         ("sync", Spec::every(std::time::Duration::from_secs(60), "sync")?),
//!     ])
//!     .await?;
//!
//! // In any number of processes:
//! let scheduler = schedules.worker().build()?;
//! let stop = scheduler.handle();
//! let scheduler = tokio::spawn(scheduler.run(schedules.handler()));
//! // And the workers of the target queues, as always.
//! let reports: Queue<String> = connection.queue("reports").await?;
//! # stop.stop(std::time::Duration::ZERO);
//! # scheduler.await?;
//! # drop(reports);
//! # Ok(())
//! # }
//! ```

mod change;
mod cron;
mod fire;
mod ids;
mod payload;
mod read;
mod spec;

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use delayline_core::limits::MAX_ATTEMPT_LIMIT;
use delayline_core::{
    Cancelled, ErrorKind, MessageId, MessageState, Priority, QueueName, Rescheduled, Status,
    Violation,
};

pub use self::read::{Entry, LastTick};
pub use self::spec::{Overlap, Spec};
use crate::codec::{Json, Raw};
use crate::message::Sent;
use crate::queue::UpdateDue;
use crate::worker::WorkerBuilder;
use crate::{Connection, Draft, Error, Found, Job, Outcome, Queue, Worker};

/// The schedules of a queue: see the [module](self).
///
/// Clones are cheap and share the connection.
#[derive(Clone)]
pub struct Schedules {
    connection: Connection,
    queue: Queue<Spec>,
    /// The target queues used so far, by name.
    targets: Arc<Mutex<HashMap<QueueName, Queue<Bytes, Raw>>>>,
    /// The patience of calls to the target queues, if it is not that of the connection.
    patience: Option<Duration>,
}

/// The result of [`Schedules::put`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Put {
    /// There was no schedule with this name. Its first tick is the first instant from now.
    Created,
    /// The schedule was the same, and keeps its next tick.
    Unchanged,
    /// The schedule was different. If its instants have changed, they count from now.
    Changed,
}

/// The result of [`Schedules::declare`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Declared {
    /// The number of created schedules.
    pub created: usize,
    /// The number of changed schedules.
    pub changed: usize,
    /// The number of unchanged schedules.
    pub unchanged: usize,
    /// The number of the owner's other schedules, which were removed.
    pub removed: usize,
}

impl Schedules {
    /// Opens the schedules in the queue [`DEFAULT_QUEUE`].
    ///
    /// # Errors
    ///
    /// Like [`Connection::queue`].
    pub async fn open(connection: &Connection) -> Result<Self, Error> {
        Self::open_named(connection, DEFAULT_QUEUE).await
    }

    /// Opens the schedules in a queue with this name, which must hold nothing else.
    ///
    /// # Errors
    ///
    /// Like [`Connection::queue`].
    pub async fn open_named(connection: &Connection, queue: &str) -> Result<Self, Error> {
        let queue = connection.queue(queue).await?;
        Ok(Self { connection: connection.clone(), queue, targets: Arc::default(), patience: None })
    }

    /// Sets how long a call to the queue of schedules or to a target queue is repeated while the
    /// server is unreachable: see [`Queue::patience`].
    #[must_use]
    pub fn patience(self, patience: Duration) -> Self {
        let queue = self.queue.patience(patience);
        Self { queue, targets: Arc::default(), patience: Some(patience), ..self }
    }

    /// The queue of the schedules, to explain, list or watch them.
    #[must_use]
    pub const fn queue(&self) -> &Queue<Spec> {
        &self.queue
    }

    /// Creates the schedule with this name, or changes it. A name has 1 to 100 bytes, and no `@`.
    ///
    /// If two programs put different specs under one name, the last one counts. A change cancels
    /// the messages that the old spec has created [ahead](Spec::lead). A paused schedule stays
    /// paused.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the call may or may not have taken effect. Repeat it to complete
    /// it. A message that a scheduler has meanwhile created for an instant of the old spec may
    /// stay.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] for the name, a payload beyond the limits, or this queue as target;
    /// else like [`Draft::send`], also for the target queue.
    pub async fn put(&self, name: &str, spec: &Spec) -> Result<Put, Error> {
        let name = valid_name(name)?;
        let now = self.now().await?;
        let sent = self.draft(name, spec, first_due(spec, now))?.reuse_finished_id().send().await?;
        self.complete(name, spec, now, sent.outcome).await
    }

    /// Creates or changes the schedules of an owner, such as a service, and removes the owner's
    /// other schedules. They are named `OWNER/NAME`. The owner's name contains no `/`.
    ///
    /// Call it when the program starts: unchanged schedules keep their next ticks, however often
    /// this is called.
    ///
    /// # Cancel safety
    ///
    /// Like [`put`](Self::put).
    ///
    /// # Errors
    ///
    /// The first error of a schedule, like [`put`](Self::put). The other schedules have been tried,
    /// but none is removed. If a name is empty or two schedules have the same name,
    /// [`ErrorKind::Invalid`], and nothing changes.
    pub async fn declare<N: AsRef<str>>(
        &self,
        owner: &str,
        schedules: impl IntoIterator<Item = (N, Spec)>,
    ) -> Result<Declared, Error> {
        let malformed = |what, value, reason: &str| {
            Error::from(Violation::Malformed { what, value, reason: reason.to_owned() })
        };
        if owner.is_empty() || owner.contains('/') {
            let reason = "an owner's name is not empty and contains no `/`";
            return Err(malformed("the owner", owner.to_owned(), reason));
        }
        let mut named = Vec::new();
        let mut kept = HashSet::new();
        for (name, spec) in schedules {
            let (is_empty, name) = (name.as_ref().is_empty(), format!("{owner}/{}", name.as_ref()));
            if is_empty {
                return Err(malformed("the name", name, "a schedule's name is not empty"));
            }
            if !kept.insert(name.clone()) {
                let reason = "it is declared twice; give each schedule its own name";
                return Err(malformed("the name", name, reason));
            }
            named.push((name, spec));
        }
        let now = self.now().await?;
        let drafts = named.iter().map(|(name, spec)| {
            let due = first_due(spec, now);
            Ok(self.draft(valid_name(name)?, spec, due)?.reuse_finished_id())
        });
        let drafts = drafts.collect::<Result<Vec<_>, Error>>()?;
        let mut declared = Declared::default();
        let mut failure = None;
        let sent = self.queue.send_many(drafts).await;
        for (sent, (name, spec)) in sent.into_iter().zip(&named) {
            let put = match sent {
                Ok(sent) => self.complete(name, spec, now, sent.outcome).await,
                Err(error) => Err(error),
            };
            match put {
                Ok(Put::Created) => declared.created += 1,
                Ok(Put::Changed) => declared.changed += 1,
                Ok(Put::Unchanged) => declared.unchanged += 1,
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        if let Some(error) = failure {
            return Err(error);
        }
        let prefix = format!("{owner}/");
        for name in self.names(usize::MAX).await? {
            if name.starts_with(&prefix) && !kept.contains(&name) {
                declared.removed += usize::from(self.remove(&name).await?);
            }
        }
        Ok(declared)
    }

    /// Removes a schedule, and cancels the messages it has created ahead of time, unless its spec
    /// cannot be read. Returns `false` if no schedule has this name.
    ///
    /// If a scheduler holds the schedule, it is removed when the scheduler has finished or, if the
    /// scheduler is dead, when the [lease](Self::worker) expires.
    ///
    /// # Cancel safety
    ///
    /// Like [`put`](Self::put).
    ///
    /// # Errors
    ///
    /// Like [`Queue::cancel`]. If messages cannot be cancelled in the target queue, the schedule
    /// stays. [`ErrorKind::Timeout`] as for [`pause`](Self::pause): the schedule is still removed.
    pub async fn remove(&self, name: &str) -> Result<bool, Error> {
        let found = self.queue.get(name).await?;
        let is_known = matches!(found, Found::Live(_) | Found::Undecodable { .. });
        // Before the schedule, because a repeated call may not find the spec.
        if let Found::Live(old) = &found {
            self.cancel_ahead(name, &old.payload, None).await?;
        }
        let removed = match self.queue.cancel(name).await? {
            Cancelled::InFlight => self.settled(name).await.map(|()| true),
            cancelled => Ok(cancelled == Cancelled::Cancelled && is_known),
        };
        // What a scheduler has created meanwhile.
        if let Found::Live(old) = found {
            self.cancel_ahead(name, &old.payload, None).await?;
        }
        removed
    }

    /// Sends the message of a schedule now, without any effect on its ticks. Returns `None` if no
    /// schedule has this name.
    ///
    /// The id is `NAME@NOW.now`; or `NAME@` if the schedule [skips](Overlap::Skip), so that the
    /// message is a duplicate while an earlier one is not finished.
    ///
    /// # Cancel safety
    ///
    /// Like [`Draft::send`].
    ///
    /// # Errors
    ///
    /// Like [`Draft::send`].
    pub async fn run_now(&self, name: &str) -> Result<Option<Sent>, Error> {
        let Some(spec) = self.spec(name).await? else { return Ok(None) };
        let now = self.now().await?;
        let draft = self.message(name, &spec, now).await?;
        let draft = match spec.overlap_rule() {
            Overlap::Skip => draft.id(ids::skipping_id(name)).reuse_finished_id(),
            Overlap::Allow => draft.id(format!("{name}@{now}.now")),
        };
        draft.send().await.map(Some)
    }

    /// Stops the ticks of a schedule until [`resume`](Self::resume), and cancels the messages it
    /// has created ahead of time. A schedule that is a dead letter is paused, too. Returns `false`
    /// if no schedule has this name.
    ///
    /// # Cancel safety
    ///
    /// Like [`put`](Self::put).
    ///
    /// # Errors
    ///
    /// Like [`Queue::reschedule_at`]. [`ErrorKind::Timeout`] if a scheduler holds the schedule for
    /// more than 35 seconds, for example because its target queue accepts no messages.
    pub async fn pause(&self, name: &str) -> Result<bool, Error> {
        let Some(spec) = self.spec(name).await? else { return Ok(false) };
        let paused = self.move_to(name, &spec, PAUSED_MS).await?;
        self.cancel_ahead(name, &spec, None).await?;
        Ok(paused)
    }

    /// Resumes the ticks of a schedule: the next one is the first instant from now. If the schedule
    /// is neither paused nor a dead letter, nothing changes. Returns `false` if no schedule has
    /// this name.
    ///
    /// # Cancel safety
    ///
    /// Like [`put`](Self::put).
    ///
    /// # Errors
    ///
    /// Like [`pause`](Self::pause).
    pub async fn resume(&self, name: &str) -> Result<bool, Error> {
        let message = match self.queue.get(name).await? {
            Found::Live(message) => message,
            Found::Undecodable { error, .. } => return Err(Error::decode(error)),
            _ => return Ok(false),
        };
        let is_dead = message.info.state.status() == Status::Dead;
        if message.info.due.as_ms() < PAUSED_MS && !is_dead {
            return Ok(true);
        }
        let due = first_due(&message.payload, self.now().await?);
        self.move_to(name, &message.payload, due).await
    }

    /// Configures a scheduler: a worker of the queue of schedules, to run with
    /// [`handler`](Self::handler). Any number of them can run, in any number of processes.
    ///
    /// If sends to a target queue fail, its schedules keep their slots and are retried with a
    /// backoff of up to 30 seconds. So a scheduler has 64 slots by default.
    ///
    /// Its leases last one second by default, and are renewed. If a scheduler dies, another one
    /// takes over its schedules after that time, or within five seconds for a schedule that has
    /// just been put. Ticks that were created [ahead](Spec::lead) are not delayed. The first ticks
    /// after a put are nearer than the lead: if several of them pass before a scheduler acts, only
    /// the latest is sent. The same holds if schedulers die one after the other while they hold a
    /// schedule, for longer than its lead. Set a longer [lease](WorkerBuilder::lease) if a call to
    /// the server takes more than a quarter of a second.
    pub fn worker(&self) -> WorkerBuilder<Spec, Json> {
        Worker::builder(self.queue.clone()).concurrency(SLOTS).lease(LEASE)
    }

    /// Returns the handler of a [scheduler](Self::worker).
    pub fn handler(
        &self,
    ) -> impl Fn(Job<Spec>) -> futures_util::future::BoxFuture<'static, Result<Outcome, Error>>
    + Clone
    + Send
    + Sync
    + 'static {
        let schedules = self.clone();
        move |job| {
            let schedules = schedules.clone();
            Box::pin(async move { Ok(schedules.fire(job).await) })
        }
    }

    async fn now(&self) -> Result<u64, Error> {
        Ok(self.queue.server_time().await?.as_ms())
    }

    /// The message of a schedule itself.
    fn draft(&self, name: &str, spec: &Spec, due: u64) -> Result<Draft, Error> {
        let (payload, _) = spec.content()?;
        if payload.len() > MAX_PAYLOAD_BYTES {
            let (what, unit) = ("the payload of a schedule", "bytes");
            let (actual, limit) = (payload.len(), MAX_PAYLOAD_BYTES);
            return Err(Violation::TooLong { what, unit, actual, limit }.into());
        }
        if self.queue.client().queue_name() == Some(spec.queue_name()) {
            let reason = "it holds the schedules, so it cannot get their messages".to_owned();
            let (what, value) = ("the queue", spec.queue().to_owned());
            return Err(Violation::Malformed { what, value, reason }.into());
        }
        let draft = self.queue.message(spec).id(name).due_at(system_time(due));
        Ok(draft
            .priority(Priority::High)
            .max_failures(MAX_ATTEMPT_LIMIT)
            .max_crashes(MAX_ATTEMPT_LIMIT))
    }

    /// The message of a tick, without an id.
    async fn message(&self, name: &str, spec: &Spec, tick: u64) -> Result<Draft, Error> {
        let target = self.target(spec.queue_name()).await?;
        let (payload, kind) = spec.content()?;
        let draft = target
            .message(&payload)
            .header(NAME_HEADER, name.to_owned())
            .header(TICK_HEADER, tick.to_string())
            .due_at(system_time(tick));
        let draft = match spec.message_group() {
            Some(group) => draft.group(group),
            None => draft,
        };
        Ok(match kind {
            Some(kind) => draft.kind(kind),
            None => draft,
        })
    }

    async fn target(&self, name: &QueueName) -> Result<Queue<Bytes, Raw>, Error> {
        let known = self.targets.lock().unwrap_or_else(PoisonError::into_inner).get(name).cloned();
        if let Some(queue) = known {
            return Ok(queue);
        }
        let queue: Queue<Bytes, Raw> = self.connection.queue(name.as_str()).await?.codec(Raw);
        let queue = self.patience.map_or_else(|| queue.clone(), |limit| queue.patience(limit));
        let mut targets = self.targets.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(targets.entry(name.clone()).or_insert(queue).clone())
    }

    async fn spec(&self, name: &str) -> Result<Option<Spec>, Error> {
        match self.queue.get(name).await? {
            Found::Live(message) => Ok(Some(message.payload)),
            Found::Undecodable { error, .. } => Err(Error::decode(error)),
            _ => Ok(None),
        }
    }

    /// Moves a schedule to another due time, even if a scheduler is about to finish it or it is a
    /// dead letter.
    async fn move_to(&self, name: &str, spec: &Spec, due: u64) -> Result<bool, Error> {
        let give_up = tokio::time::Instant::now() + PATIENCE;
        loop {
            match self.queue.reschedule_at(name, system_time(due)).await? {
                Rescheduled::Done { .. } => return Ok(true),
                Rescheduled::InFlight => {}
                Rescheduled::Dead => {
                    return self.update(name, spec, due, UpdateDue::Set).await.map(|_| true);
                }
                _ => return Ok(false),
            }
            if tokio::time::Instant::now() >= give_up {
                return Err(delayline_core::Error::new(ErrorKind::Timeout).into());
            }
            tokio::time::sleep(POLL).await;
        }
    }

    /// Waits until no scheduler holds the schedule. A dead scheduler stops holding it when its
    /// lease expires, even if no other scheduler runs that would reclaim it.
    async fn settled(&self, name: &str) -> Result<(), Error> {
        let give_up = tokio::time::Instant::now() + PATIENCE;
        loop {
            let held_until = match self.queue.get(name).await? {
                Found::Live(message) => match message.info.state {
                    MessageState::Leased { deadline, .. } => deadline.as_ms(),
                    _ => 0,
                },
                _ => 0,
            };
            if held_until <= self.now().await? {
                return Ok(());
            }
            if tokio::time::Instant::now() >= give_up {
                return Err(delayline_core::Error::new(ErrorKind::Timeout).into());
            }
            tokio::time::sleep(POLL).await;
        }
    }
}

impl fmt::Debug for Schedules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Schedules").field("queue", &self.queue).finish_non_exhaustive()
    }
}

/// The first due time of a schedule. It lies in the past if the first tick is nearer than the lead.
/// So the due time always determines the next tick to create.
fn first_due(spec: &Spec, now: u64) -> u64 {
    spec.next(now).unwrap_or(PAUSED_MS).saturating_sub(spec.lead_ms())
}

fn valid_name(name: &str) -> Result<&str, Error> {
    let reason = if name.contains('@') {
        "the name of a schedule contains no `@`"
    } else if name.is_empty() || name.len() > MAX_NAME_BYTES {
        "the name of a schedule has 1 to 100 bytes"
    } else {
        return Ok(name);
    };
    let value = name.chars().take(MAX_NAME_BYTES).collect();
    Err(Violation::Malformed { what: "the name", value, reason: reason.to_owned() }.into())
}

fn text(id: &MessageId) -> Option<String> {
    std::str::from_utf8(id.as_bytes()).ok().map(str::to_owned)
}

fn system_time(ms: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_millis(ms)
}

/// The default name of the queue that holds schedules.
pub const DEFAULT_QUEUE: &str = "schedules";
/// The header with the name of the schedule.
const NAME_HEADER: &str = "delayline-schedule";
/// The header with the instant of the tick, in milliseconds since 1970.
const TICK_HEADER: &str = "delayline-tick";
/// The due time of a paused schedule: the beginning of the year 9000, which a transfer of the queue
/// leaves as it is.
const PAUSED_MS: u64 = 221_845_392_000_000;
/// A name, `@` and the digits of a tick form an id.
const MAX_NAME_BYTES: usize = 100;
/// A changed spec is an update of its message, which has at most 16 KiB.
const MAX_PAYLOAD_BYTES: usize = 15 * 1024;
const SLOTS: usize = 64;
/// The duration of a scheduler's leases. While it is dead, its schedules have no ticks.
const LEASE: Duration = Duration::from_secs(1);
/// How long to wait for a scheduler that holds a schedule. A program may have set a longer lease.
const PATIENCE: Duration = Duration::from_secs(35);
const POLL: Duration = Duration::from_millis(20);
