//! Tasks that move messages out of dead-letter queues. They run in this process, and end with it:
//! the messages that they have not moved stay where they are.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use delayline::backend::{Claim, Delivery, Millis, Op, Outcome, Reply, Settlement};
use delayline_web::Visitor;
use serde_json::json;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::actions::{claim_ids, transfer};
use crate::attributes::Extras;
use crate::error::{Code, Error};
use crate::queues::{Open, Queues};

/// What a task does.
pub(crate) struct Plan {
    pub(crate) source: Arc<Open>,
    /// `None`: each message returns to the queue that it comes from.
    pub(crate) destination: Option<Arc<Open>>,
    /// Maximum number of messages per second.
    pub(crate) per_second: Option<u64>,
    pub(crate) visitor: Visitor,
    pub(crate) region: String,
    /// The number of messages at the start.
    pub(crate) total: u64,
}

/// A task, running or ended.
pub(crate) struct Task {
    pub(crate) plan: Plan,
    pub(crate) handle: String,
    /// Milliseconds since 1970.
    pub(crate) started_ms: u64,
    moved: AtomicU64,
    end: Mutex<Option<End>>,
    stop: CancellationToken,
}

/// How a task has ended.
#[derive(Clone)]
enum End {
    Completed,
    Cancelled,
    Failed(String),
}

impl Task {
    pub(crate) fn moved(&self) -> u64 {
        self.moved.load(Ordering::Relaxed)
    }

    fn end(&self) -> MutexGuard<'_, Option<End>> {
        self.end.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn is_running(&self) -> bool {
        self.end().is_none()
    }

    /// The status as SQS names it, and why the task has failed.
    pub(crate) fn status(&self) -> (&'static str, Option<String>) {
        match &*self.end() {
            None if self.stop.is_cancelled() => ("CANCELLING", None),
            None => ("RUNNING", None),
            Some(End::Completed) => ("COMPLETED", None),
            Some(End::Cancelled) => ("CANCELLED", None),
            Some(End::Failed(why)) => ("FAILED", Some(why.clone())),
        }
    }

    /// Stops the task. Returns `false` if it has ended.
    pub(crate) fn cancel(&self) -> bool {
        self.stop.cancel();
        self.is_running()
    }

    async fn run(&self, queues: &Queues) {
        let end = self.move_all(queues).await;
        let end = end.unwrap_or_else(|error| End::Failed(error.message().to_owned()));
        *self.end() = Some(end);
    }

    async fn move_all(&self, queues: &Queues) -> Result<End, Error> {
        let Plan { source, per_second, visitor, total, .. } = &self.plan;
        let pause = |count: u64| Duration::from_secs(1) / u32::try_from(count).unwrap_or(1);
        let mut ticks = per_second.map(pause).map(interval);
        if let Some(ticks) = &mut ticks {
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        }
        // With a rate, a message must not be invisible for long before its turn.
        let max = if ticks.is_some() { 1 } else { 10 };
        while self.moved() < *total {
            if let Some(ticks) = &mut ticks {
                tokio::select! {
                    _ = ticks.tick() => {}
                    () = self.stop.cancelled() => {}
                }
            }
            if self.stop.is_cancelled() {
                return Ok(End::Cancelled);
            }
            let (consumer, claim_id) = claim_ids(&visitor.name, &source.name, None)?;
            let claim = Claim::new(consumer, claim_id, max, Millis::new(LEASE_MS)?);
            let reply = source.queue.apply(&Op::Claim(claim)).await?.reply;
            let Reply::Claim(claimed) = reply else { return Err(Error::internal()) };
            if claimed.deliveries.is_empty() && !claimed.more {
                break;
            }
            for (number, delivery) in claimed.deliveries.iter().enumerate() {
                let result = self.move_one(queues, delivery).await;
                if result.is_ok() {
                    self.moved.fetch_add(1, Ordering::Relaxed);
                }
                if result.is_err() || self.stop.is_cancelled() {
                    let left = number + usize::from(result.is_ok());
                    release(source, claimed.deliveries.iter().skip(left)).await?;
                    return result.map(|()| End::Cancelled);
                }
            }
        }
        Ok(End::Completed)
    }

    async fn move_one(&self, queues: &Queues, delivery: &Delivery) -> Result<(), Error> {
        let mut extras = Extras::of(&delivery.message.headers);
        let origin = extras.source.take();
        extras.receives = 0;
        extras.source_sequence = Some(delivery.message.info.sequence);
        let target = match (&self.plan.destination, origin) {
            (Some(destination), _) => Arc::clone(destination),
            (None, Some(origin)) => queues.get(&origin).await?.0,
            (None, None) => return Err(Error::value("CouldNotDetermineMessageSource")),
        };
        transfer(&self.plan.source, delivery, &target, &extras).await
    }
}

/// Returns messages that a task has claimed and does not move.
async fn release(source: &Open, left: impl Iterator<Item = &Delivery>) -> Result<(), Error> {
    let release =
        |it: &Delivery| Settlement::new(it.message.info.id.clone(), it.lease, Outcome::Release);
    let settlements: Vec<_> = left.map(release).collect();
    if !settlements.is_empty() {
        source.queue.apply(&Op::Settle(settlements)).await?;
    }
    Ok(())
}

/// The tasks of this process.
pub(crate) struct Moves {
    tasks: Mutex<Vec<Arc<Task>>>,
    stop: CancellationToken,
}

impl Moves {
    pub(crate) fn new(stop: CancellationToken) -> Self {
        Self { tasks: Mutex::default(), stop }
    }

    fn tasks(&self) -> MutexGuard<'_, Vec<Arc<Task>>> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a task.
    ///
    /// # Errors
    ///
    /// If one runs for the same source.
    pub(crate) fn start(&self, queues: &Arc<Queues>, plan: Plan) -> Result<Arc<Task>, Error> {
        let name = plan.source.name.clone();
        let handle = json!({"taskId": Uuid::new_v4().to_string(), "queue": name}).to_string();
        let started = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let task = Arc::new(Task {
            plan,
            handle: STANDARD.encode(handle),
            started_ms: u64::try_from(started.as_millis()).unwrap_or(u64::MAX),
            moved: AtomicU64::new(0),
            end: Mutex::default(),
            stop: self.stop.child_token(),
        });
        let mut tasks = self.tasks();
        let mut of_source = tasks.iter().filter(|task| task.plan.source.name == name);
        if of_source.any(|task| task.is_running()) {
            let why = "There is already a task running. Only one active task is allowed for a \
                       source queue arn at a given time.";
            return Err(Error::new(Code::UnsupportedOperation, why));
        }
        if tasks.len() >= MOST_TASKS
            && let Some(oldest) = tasks.iter().position(|task| !task.is_running())
        {
            tasks.remove(oldest);
        }
        tasks.push(Arc::clone(&task));
        let (running, queues) = (Arc::clone(&task), Arc::clone(queues));
        tokio::spawn(async move { running.run(&queues).await });
        Ok(task)
    }

    /// The task of a handle.
    pub(crate) fn find(&self, handle: &str) -> Option<Arc<Task>> {
        self.tasks().iter().find(|task| task.handle == handle).cloned()
    }

    /// The tasks of a queue, the latest first.
    pub(crate) fn of(&self, source: &str) -> Vec<Arc<Task>> {
        let tasks = self.tasks();
        let of_source = tasks.iter().rev().filter(|task| task.plan.source.name == source);
        of_source.cloned().collect()
    }
}

/// The duration of a task's leases. They expire if the server ends in between.
const LEASE_MS: u64 = 60_000;
/// Ended tasks that are remembered.
const MOST_TASKS: usize = 100;
