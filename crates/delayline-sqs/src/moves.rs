//! Tasks that move messages out of dead-letter queues.
//!
//! A running task is a message of one more queue, and its id is the name of the source. So a source
//! has one at a time. Each server is a worker of that queue: if a server ends, another one, or the
//! next one, continues its tasks. The tasks of a source that have ended are one more message.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use delayline::backend::{Claim, Delivery, Millis, Op, Reply, UpdateContent};
use delayline::limits::MAX_ATTEMPT_LIMIT;
use delayline::message::MessageState;
use delayline::update::UpdateDue;
use delayline::worker::CancelReason;
use delayline::{Cancelled, Connection, Enqueued, Found, Job, Outcome, Queue, Worker};
use delayline_web::{Role, Visitor};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Value, json};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::attributes::Extras;
use crate::error::{Code, Error};
use crate::leases::{claim_ids, counted, transfer};
use crate::names::Arn;
use crate::queues::{Open, PATIENCE, Queues, never};

/// A task, running or ended.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Task {
    pub(crate) id: String,
    pub(crate) source: String,
    /// `None`: each message returns to the queue that it comes from.
    pub(crate) destination: Option<String>,
    /// The queues that existed for the user who started it, as [`Visitor::only_queues`] takes them.
    /// Messages return to no other queue: programs write the header that names it, too. Empty once
    /// the task has ended, and in a task of an earlier version.
    #[serde(default)]
    pub(crate) returns_to: BTreeSet<String>,
    /// Maximum number of messages per second.
    #[serde(default, deserialize_with = "per_second")]
    pub(crate) per_second: Option<u64>,
    pub(crate) region: String,
    /// The number of messages at the start.
    pub(crate) total: u64,
    /// Milliseconds since 1970.
    pub(crate) started_ms: u64,
    /// The number of messages that were moved.
    pub(crate) moved: u64,
    pub(crate) status: Status,
    /// Why the task has failed.
    pub(crate) failure: Option<String>,
}

/// Reads the rate of a stored task. Only damage or another program stores one beyond the limits.
fn per_second<'de, D: Deserializer<'de>>(stored: D) -> Result<Option<u64>, D::Error> {
    let rate = Option::<u64>::deserialize(stored)?;
    if rate.is_none_or(|rate| (1..=MOST_PER_SECOND).contains(&rate)) {
        return Ok(rate);
    }
    Err(D::Error::custom("the rate is beyond its limits"))
}

/// The status of a task, as SQS names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub(crate) enum Status {
    Running,
    Cancelling,
    Cancelled,
    Completed,
    Failed,
}

impl Task {
    /// The handle by which clients name the task.
    pub(crate) fn handle(&self) -> String {
        let arn = Arn::write(&self.region, &self.source);
        STANDARD.encode(json!({"taskId": self.id, "sourceArn": arn}).to_string())
    }

    /// Reads a handle: the id of the task, and the ARN of its source.
    pub(crate) fn of_handle(handle: &str) -> Option<(String, String)> {
        let parts: Value = serde_json::from_slice(&STANDARD.decode(handle).ok()?).ok()?;
        let part = |name| parts.get(name).and_then(Value::as_str).map(str::to_owned);
        Some((part("taskId")?, part("sourceArn")?))
    }

    pub(crate) const fn is_running(&self) -> bool {
        matches!(self.status, Status::Running | Status::Cancelling)
    }
}

/// The tasks of all servers.
pub(crate) struct Moves {
    tasks: Queue<Vec<Task>>,
    /// How many messages the tasks have moved that run in this process, by source.
    running: Mutex<HashMap<String, u64>>,
}

impl Moves {
    /// Opens the queue of tasks, and executes tasks until `stop`.
    pub(crate) async fn open(
        connection: &Connection,
        queues: &Arc<Queues>,
        stop: CancellationToken,
        tracker: &TaskTracker,
    ) -> Result<Arc<Self>, delayline::Error> {
        let tasks: Queue<Vec<Task>> = connection.queue(queues.tasks_name()).await?;
        let worker = Worker::builder(tasks.clone()).consumer("sqs-moves");
        let worker = worker.concurrency(MOST_TASKS).lease(LEASE).stop_grace(Duration::ZERO);
        let worker = worker.cancel_within(Duration::from_secs(1)).build()?;
        let tasks = tasks.patience(PATIENCE);
        let moves = Arc::new(Self { tasks, running: Mutex::default() });
        let (runner, queues) = (Arc::clone(&moves), Arc::clone(queues));
        let handler = move |job| {
            let (runner, queues) = (Arc::clone(&runner), Arc::clone(&queues));
            async move { runner.run(&queues, &job).await }
        };
        tracker.spawn(async move { worker.run_until(stop.cancelled_owned(), handler).await });
        Ok(moves)
    }

    fn running(&self) -> MutexGuard<'_, HashMap<String, u64>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a task.
    ///
    /// # Errors
    ///
    /// If one runs for the same source.
    pub(crate) async fn start(&self, task: Task) -> Result<(), Error> {
        let draft = self.tasks.message(&vec![task.clone()]).id(task.source).reuse_finished_id();
        let draft = draft.max_failures(MAX_ATTEMPT_LIMIT).max_crashes(MAX_ATTEMPT_LIMIT);
        match draft.send().await?.outcome {
            // A duplicate is this task, sent again after a lost reply.
            Enqueued::Created { .. } | Enqueued::Duplicate { .. } => Ok(()),
            _ => Err(Error::value(
                "There is already a task running. Only one active task is allowed for a source \
                 queue arn at a given time.",
            )),
        }
    }

    /// The tasks of a queue, the latest first.
    pub(crate) async fn of(&self, source: &Open) -> Result<Vec<Task>, Error> {
        let found = self.tasks.get_many([source.name.clone(), ended(&source.name)]).await?;
        let mut tasks: Vec<Task> = Vec::new();
        for found in found {
            let Found::Live(message) = found else { continue };
            let is_cancelled =
                matches!(message.info.state, MessageState::Leased { cancel_requested: true, .. });
            for mut task in message.payload {
                if task.is_running() {
                    let moved = self.running().get(&task.source).copied();
                    task.moved = match moved {
                        Some(moved) => moved,
                        // It runs at another server.
                        None => moved_before(&task, source).await?,
                    };
                    if is_cancelled {
                        task.status = Status::Cancelling;
                    }
                }
                // One that is just ending is in both messages.
                if tasks.iter().all(|known| known.id != task.id) {
                    tasks.push(task);
                }
            }
        }
        Ok(tasks)
    }

    /// Cancels a running task.
    pub(crate) async fn cancel(&self, task: &Task) -> Result<(), Error> {
        match self.tasks.cancel(&*task.source).await? {
            Cancelled::Cancelled => {
                self.remember(Task { status: Status::Cancelled, ..task.clone() }).await
            }
            // Its worker learns of it.
            _ => Ok(()),
        }
    }

    /// Cancels the task of a queue that is deleted, and forgets the others.
    pub(crate) async fn forget(&self, source: &str) -> Result<(), Error> {
        self.tasks.cancel_many([source.to_owned(), ended(source)]).await?;
        Ok(())
    }

    /// The tasks of a queue that have ended.
    async fn remembered(&self, source: &str) -> Result<Vec<Task>, Error> {
        Ok(match self.tasks.get(&*ended(source)).await? {
            Found::Live(message) => message.payload,
            _ => Vec::new(),
        })
    }

    /// Keeps a task that has ended.
    async fn remember(&self, task: Task) -> Result<(), Error> {
        let id = ended(&task.source);
        let mut tasks = self.remembered(&task.source).await?;
        tasks.retain(|known| known.id != task.id);
        // Ten tasks with many names would be too long.
        tasks.insert(0, Task { returns_to: BTreeSet::new(), ..task });
        tasks.truncate(MOST_ENDED);
        let draft = self.tasks.message(&tasks).id(id).due_at(never());
        Ok(draft.update(UpdateContent::Replace, UpdateDue::Keep).send().await.map(drop)?)
    }

    /// Handles the message of a task.
    async fn run(&self, queues: &Queues, job: &Job<Vec<Task>>) -> Result<Outcome, Error> {
        let Some(mut task) = job.payload().first().cloned() else { return Ok(Outcome::Ack) };
        // A server that ends before its ack leaves the message of a task that has ended.
        if self.remembered(&task.source).await?.iter().any(|ended| ended.id == task.id) {
            return Ok(Outcome::Ack);
        }
        let result = self.move_all(queues, job, &mut task).await;
        self.running().remove(&task.source);
        task.status = match (result, job.cancel_reason()) {
            (Ok(true), _) => Status::Completed,
            (Ok(false), Some(CancelReason::Requested)) => Status::Cancelled,
            (Ok(false), _) => return Ok(Outcome::Release),
            (Err(error), _) if !error.is_of_sender() => return Err(error),
            (Err(error), _) => {
                task.failure = Some(match error.code() {
                    Code::InvalidParameterValue => error.message().to_owned(),
                    _ => error.query_code().to_owned(),
                });
                Status::Failed
            }
        };
        self.remember(task).await?;
        Ok(Outcome::Ack)
    }

    /// Moves messages. Returns `false` if the worker is to stop, or the task was cancelled.
    async fn move_all(
        &self,
        queues: &Queues,
        job: &Job<Vec<Task>>,
        task: &mut Task,
    ) -> Result<bool, Error> {
        let source = queues.existing(&task.source).await?.0;
        let user = Visitor::new("", Role::Operator).only_queues(&task.returns_to);
        let mut patience = Instant::now();
        if job.epoch() > 1 {
            task.moved = moved_before(task, &source).await?;
            // The messages that an earlier server had claimed return when its leases have ended.
            patience += LEASE;
        }
        let pause = |count: u64| Duration::from_secs(1) / u32::try_from(count).unwrap_or(1);
        let mut ticks = task.per_second.map(pause).map(interval);
        if let Some(ticks) = &mut ticks {
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        }
        // With a rate, a message must not be invisible for long before its turn.
        let max = if ticks.is_some() { 1 } else { 10 };
        let stop = job.cancellation();
        while task.moved < task.total {
            self.running().insert(task.source.clone(), task.moved);
            if let Some(ticks) = &mut ticks {
                tokio::select! {
                    _ = ticks.tick() => {}
                    () = stop.cancelled() => {}
                }
            }
            if stop.is_cancelled() {
                return Ok(false);
            }
            let (consumer, claim_id) = claim_ids("sqs-moves", &source.name, None)?;
            let claim = Claim::new(consumer, claim_id, max, Millis::try_from(LEASE)?);
            let reply = source.queue.apply(&Op::Claim(claim)).await?.reply;
            let Reply::Claim(claimed) = reply else { return Err(Error::internal()) };
            if claimed.deliveries.is_empty() && !claimed.more {
                if Instant::now() >= patience || counted(&source).await?.leased == 0 {
                    break;
                }
                tokio::select! {
                    () = sleep(PAUSE) => {}
                    () = stop.cancelled() => {}
                }
            }
            for (number, delivery) in claimed.deliveries.iter().enumerate() {
                let result = move_one(queues, &source, task, &user, delivery).await;
                task.moved = task.moved.saturating_add(u64::from(result.is_ok()));
                if result.is_err() || stop.is_cancelled() {
                    let left = number + usize::from(result.is_ok());
                    let left = claimed.deliveries.iter().skip(left);
                    let leases = left.map(|it| (it.message.info.id.clone(), it.lease));
                    source.release(leases).await?;
                    return result.map(|()| false);
                }
            }
        }
        Ok(true)
    }
}

/// The number of messages that other servers have moved for a task, by the remaining messages.
async fn moved_before(task: &Task, source: &Open) -> Result<u64, Error> {
    let left = counted(source).await?;
    Ok(task.total.saturating_sub(left.ready.saturating_add(left.leased)))
}

async fn move_one(
    queues: &Queues,
    source: &Open,
    task: &Task,
    user: &Visitor,
    delivery: &Delivery,
) -> Result<(), Error> {
    let mut extras = Extras::of(&delivery.message.headers);
    let origin = extras.source.take().filter(|origin| user.knows(origin));
    (extras.receives, extras.sent_ms) = (0, None);
    let target = task.destination.as_ref().or(origin.as_ref());
    let target = target.ok_or_else(|| Error::value("CouldNotDetermineMessageSource"))?;
    let (target, settings) = queues.existing(target).await?;
    let expiry = settings.expiry(Duration::ZERO, queues.is_strict);
    // As in Amazon SQS, it is a new message.
    transfer(source, delivery, &target, expiry, extras, true).await
}

/// The id of the message with the tasks of a queue that have ended. No queue has this name.
fn ended(source: &str) -> String {
    format!("{{{source}}}")
}

/// The duration of the leases of tasks, and of the messages that they move.
const LEASE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(500);
/// Tasks that one server executes at a time, as in SQS.
const MOST_TASKS: usize = 100;
/// Ended tasks of a queue that are kept.
const MOST_ENDED: usize = 10;
/// Messages that a task moves per second at most, as in SQS.
pub(crate) const MOST_PER_SECOND: u64 = 500;

#[cfg(test)]
mod tests {
    use delayline::{Bytes, Durability};

    use super::*;

    #[tokio::test]
    async fn a_task_that_has_ended_moves_nothing() {
        let connection = delayline::connect("memory:").await.unwrap();
        let settings = "s".to_owned();
        let queues =
            Queues::open(connection.clone(), settings, None, Durability::None, false).await;
        let queues = Arc::new(queues.unwrap());
        let (stop, tracker) = (CancellationToken::new(), TaskTracker::new());
        let moves = Moves::open(&connection, &queues, stop, &tracker).await.unwrap();
        let [dead, orders] = ["dead", "orders"].map(|name| queues.opened(name));
        let (dead, orders) = (dead.await.unwrap(), orders.await.unwrap());
        for open in [&dead, &orders] {
            open.queue.send(&Bytes::from_static(b"x")).await.unwrap();
        }
        let task = json!({
            "id": "1", "source": "dead", "destination": "orders", "region": "eu-central-1",
            "total": 1, "started_ms": 1, "moved": 0, "status": "RUNNING", "failure": null,
        });
        let task: Task = serde_json::from_value(task).unwrap();
        moves.remember(Task { status: Status::Completed, ..task.clone() }).await.unwrap();
        moves.start(task).await.unwrap();
        while moves.tasks.stats().await.unwrap().totals.acked == 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(dead.queue.stats().await.unwrap().ready, 1);
    }

    #[test]
    fn a_stored_task_moves_at_a_rate_that_a_request_may_ask_for() {
        let task = |per_second: Value| {
            let task = json!({
                "id": "1", "source": "dead", "destination": null, "per_second": per_second,
                "region": "eu-central-1", "total": 1, "started_ms": 1, "moved": 0,
                "status": "RUNNING", "failure": null,
            });
            serde_json::from_value::<Task>(task)
        };
        for rate in [json!(null), json!(1), json!(500)] {
            assert!(task(rate.clone()).is_ok(), "{rate}");
        }
        for rate in [json!(0), json!(501), json!(u64::MAX)] {
            assert!(task(rate.clone()).is_err(), "{rate}");
        }
    }
}
