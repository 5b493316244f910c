//! Producers, workers and operators, as in real programs.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Result, ensure};
use bytes::Bytes;
use delayline::admin::Listed;
use delayline::worker::{Summary, WorkerHandle};
use delayline::{Draft, Job, Outcome, RetryPolicy, Worker};
use delayline_core::{At, Group, MessageId, NewMessage, Op, QueueBackend, Rate, SetLimits};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

use super::handling::{Ending, Handled, Handler, LEASE, hash, payload};
use super::{Bare, LONGEST_FINISH, Queue, keyed};

/// A queue at work, through both drivers.
pub(crate) struct Working {
    queues: Vec<Bare>,
    handler: Handler,
    others: JoinSet<()>,
    workers: Vec<(WorkerHandle, JoinHandle<Summary>)>,
    stop: watch::Sender<bool>,
    /// With limits, the outdated version is refused.
    has_limits: bool,
    pub(crate) handled: Arc<Handled>,
}

impl Working {
    /// Starts senders and handlers of messages with different ids.
    pub(crate) fn start(queue: &Queue, chance: &mut fastrand::Rng) -> Result<Self> {
        let mut working = Self::with_workers(queue, handle)?;
        let Self { queues, others, stop, .. } = &mut working;
        let sent = Arc::new(AtomicU64::new(0));
        for (queue, client) in queues.iter().zip(&queue.clients) {
            let (fork, sent) = (chance.fork(), Arc::clone(&sent));
            others.spawn(produce(queue.clone(), Arc::clone(&sent), fork, stop.subscribe()));
            others.spawn(send_once(Arc::clone(client), sent, chance.fork(), stop.subscribe()));
        }
        others.spawn(intervene(queues[0].clone(), sent, chance.fork(), stop.subscribe()));
        Ok(working)
    }

    /// Starts senders and handlers of messages with a few ids, which are updated and throttled.
    pub(crate) fn start_keyed(queue: &Queue, chance: &mut fastrand::Rng) -> Result<Self> {
        let mut working = Self::with_workers(queue, keyed::handle)?;
        let Self { queues, others, stop, .. } = &mut working;
        for queue in queues {
            others.spawn(keyed::update(queue.clone(), chance.fork(), stop.subscribe()));
            others.spawn(keyed::throttle(queue.clone(), chance.fork(), stop.subscribe()));
        }
        Ok(working)
    }

    fn with_workers(queue: &Queue, handler: Handler) -> Result<Self> {
        let (queues, stop) = (queue.bare(), watch::Sender::new(false));
        let (others, workers, handled) = (JoinSet::new(), Vec::new(), Arc::default());
        let has_limits = false;
        let mut working = Self { queues, handler, others, workers, stop, has_limits, handled };
        for number in 0..WORKERS {
            let worker = working.worker(number)?;
            working.workers.push(worker);
        }
        Ok(working)
    }

    /// Aborts a worker in the middle of its work, and starts another one in its place.
    pub(crate) fn crash(&mut self, number: usize) -> Result<()> {
        let number = number % self.workers.len();
        let successor = self.worker(number)?;
        let (_, worker) = std::mem::replace(&mut self.workers[number], successor);
        works(number, &worker)?;
        worker.abort();
        Ok(())
    }

    /// Sets limits of the queue, which are reached after an outage. From then on, clients of the
    /// older version are refused. So the newer version gets more workers, and the grace of all is
    /// short.
    pub(crate) fn set_limits(&mut self, with_rate: bool) -> Result<()> {
        self.has_limits = true;
        for number in [4, 6] {
            let worker = self.worker(number)?;
            self.workers.push(worker);
        }
        let (queue, stop) = (self.queues[0].clone(), self.stop.subscribe());
        self.others.spawn(async move {
            let rate = with_rate.then(|| Rate::per_second(400, 10));
            let limits = SetLimits::new().leased(24).each_group(4).rate(rate);
            while queue.set_limits(limits).await.is_err() && !*stop.borrow() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
        Ok(())
    }

    /// Stops the producers, waits until all messages have ended, and stops the workers. Also
    /// returns how many messages were left by workers that could have settled them.
    pub(crate) async fn finish(mut self) -> Result<(Arc<Handled>, u64)> {
        self.stop.send_replace(true);
        self.others.join_all().await;
        let queue = &self.queues[0];
        queue.resume().await?;
        super::until_empty(queue).await?;
        let mut unsettled = 0;
        let grace = if self.has_limits { Duration::from_secs(2) } else { LONGEST_FINISH };
        // They are not aborted, because the reply to their last call may still be on its way.
        for (number, (handle, worker)) in self.workers.drain(..).enumerate() {
            works(number, &worker)?;
            handle.stop(grace);
            let summary = worker.await?;
            // The outdated version cannot settle its messages.
            if !self.has_limits {
                unsettled += summary.unsettled;
            }
        }
        Ok((self.handled, unsettled))
    }

    fn worker(&self, number: usize) -> Result<(WorkerHandle, JoinHandle<Summary>)> {
        let queue = self.queues[number % self.queues.len()].clone();
        let (handled, handle) = (Arc::clone(&self.handled), self.handler);
        let next = queue.clone();
        let worker = Worker::builder(queue)
            .concurrency(8)
            .lease(LEASE)
            .retry(RetryPolicy::fixed(Duration::from_millis(50)))
            .build()?;
        let handler = move |job: Job<Bytes>| {
            let (handled, next) = (Arc::clone(&handled), next.clone());
            async move { Ok::<_, Infallible>(handle(job, handled, next).await) }
        };
        let handle = worker.handle();
        Ok((handle, tokio::spawn(worker.run(handler))))
    }
}

/// Checks that a worker has not ended. Only its stop or its crash may end it.
fn works(number: usize, worker: &JoinHandle<Summary>) -> Result<()> {
    ensure!(!worker.is_finished(), "G21: worker {number} ended by itself");
    Ok(())
}

/// Notes a delivery, and ends it with an outcome that depends on it.
fn handle(job: Job<Bytes>, handled: Arc<Handled>, queue: Bare) -> Ending {
    let is_right = number(job.id().as_bytes()).is_some_and(|n| *job.payload() == payload(n));
    handled.note(&job, is_right);
    Box::pin(end(job, queue))
}

async fn end(job: Job<Bytes>, queue: Bare) -> Outcome {
    let chance = hash(&(job.id().as_bytes(), job.epoch()));
    match chance % 100 {
        0..10 => hand_off(&job, &queue),
        10..60 => Outcome::Ack,
        60..68 => {
            tokio::time::sleep(Duration::from_millis(chance / 100 % 80)).await;
            Outcome::Ack
        }
        68..78 => Outcome::retry("no luck"),
        78..83 => Outcome::Snooze(Duration::from_millis(chance / 100 % 100)),
        83..87 => Outcome::Release,
        87..90 => Outcome::reject("hopeless"),
        // Without the message that a panic prints.
        90..94 => std::panic::resume_unwind(Box::new("a panic that is part of the load")),
        94..97 => {
            // Several heartbeats long.
            tokio::time::sleep(LEASE * 2).await;
            Outcome::Ack
        }
        _ => {
            let _ = tokio::time::timeout(LEASE * 3, job.cancellation().cancelled()).await;
            Outcome::Ack
        }
    }
}

/// Acks together with another message, which is not followed by a third one.
fn hand_off(job: &Job<Bytes>, queue: &Bare) -> Outcome {
    let Some(n) = number(job.id().as_bytes()).filter(|n| *n < FOLLOW_UPS) else {
        return Outcome::Ack;
    };
    let next = n + job.epoch() * FOLLOW_UPS;
    let draft = queue.message(&payload(next)).id(&*id(next)).max_crashes(6);
    // Half of the messages have asked for a result.
    Outcome::AckWith("done".into()).then([draft]).unwrap_or(Outcome::Ack)
}

async fn produce(
    queue: Bare,
    sent: Arc<AtomicU64>,
    mut chance: fastrand::Rng,
    stop: watch::Receiver<bool>,
) {
    while !*stop.borrow() {
        let n = sent.fetch_add(1, Ordering::Relaxed);
        let delay = Duration::from_millis(chance.u64(..300));
        let draft = queue.message(&payload(n)).id(&*id(n)).due_in(delay);
        let draft = if n.is_multiple_of(2) { draft.keep_result(RETENTION) } else { draft };
        let draft = draft.max_failures(4).max_crashes(6);
        let draft = group(n).into_iter().fold(draft, Draft::group);
        // Its id makes repetitions harmless.
        while draft.clone().send().await.is_err() && !*stop.borrow() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        tokio::time::sleep(Duration::from_millis(chance.u64(..8))).await;
    }
}

/// Sends messages and never repeats a call, so a call that was "not executed" must leave no
/// message.
async fn send_once(
    client: Arc<dyn QueueBackend>,
    sent: Arc<AtomicU64>,
    mut chance: fastrand::Rng,
    stop: watch::Receiver<bool>,
) {
    while !*stop.borrow() {
        let n = sent.fetch_add(1, Ordering::Relaxed);
        let Ok(id) = MessageId::try_from(id(n).as_str()) else { return };
        let message = NewMessage::new(id, payload(n)).group(group(n));
        // The log has the outcome.
        drop(client.apply(At::Server, &Op::Enqueue(vec![message])).await);
        tokio::time::sleep(Duration::from_millis(chance.u64(..60))).await;
    }
}

async fn intervene(
    queue: Bare,
    sent: Arc<AtomicU64>,
    mut chance: fastrand::Rng,
    stop: watch::Receiver<bool>,
) {
    while !*stop.borrow() {
        let id = id(sent.load(Ordering::Relaxed).saturating_sub(chance.u64(..60)));
        // The log has the outcomes.
        match chance.u8(..10) {
            0..4 => drop(queue.cancel(&*id).await),
            4..7 => drop(queue.reschedule_in(&*id, Duration::from_millis(chance.u64(..200))).await),
            7 => {
                let _ = queue.pause().await;
                while queue.resume().await.is_err() && !*stop.borrow() {}
            }
            8 => {
                if let Ok(Some(dead)) = queue.list(Listed::Dead).next_page().await {
                    let _ = queue.redrive_many(dead.into_iter().take(2).map(|info| info.id)).await;
                }
            }
            _ => drop(queue.check().await),
        }
        tokio::time::sleep(Duration::from_millis(chance.u64(..30))).await;
    }
}

fn id(n: u64) -> String {
    format!("m{n}")
}

/// Returns the group of a message. A quarter of the messages have none.
fn group(n: u64) -> Option<Group> {
    Group::new(format!("g{}", n % 4)).ok().filter(|_| !n.is_multiple_of(4))
}

fn number(id: &[u8]) -> Option<u64> {
    std::str::from_utf8(id.strip_prefix(b"m")?).ok()?.parse().ok()
}

const WORKERS: usize = 4;
/// The time for which results are kept.
const RETENTION: Duration = Duration::from_secs(600);
/// The numbers of messages that follow others begin here.
const FOLLOW_UPS: u64 = 1 << 32;
