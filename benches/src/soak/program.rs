//! One program and its server: queues, workers and senders.

use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Result, bail};
use cpu_time::ThreadTime;
use delayline::admin::QueueName;
use delayline::codec::Raw;
use delayline::worker::{Summary, WorkerBuilder, WorkerHandle};
use delayline::{Bytes, Connect, Job, Outcome, Queue, RedisClient, RetryPolicy, Worker, Workers};
use tokio::runtime::{Builder, Handle};
use tokio::sync::{oneshot, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{sleep, sleep_until};

use crate::ledger::{Account, Bounds, Class, Due, Ledger};
use crate::schedule::Schedule;
use crate::senders::{self, NamedQueue};
use crate::shape::Shape;

/// A program with its own thread and runtime, so that its processor time can be measured.
pub(crate) struct Program {
    pub(crate) driver: RedisClient,
    pub(crate) shape: Shape,
    pub(crate) url: String,
    pub(crate) queues: usize,
    pub(crate) seed: u64,
    pub(crate) bounds: Bounds,
}

/// The result of a program.
pub(crate) struct Report {
    pub(crate) account: Account,
    pub(crate) waves: Waves,
    /// One per cycle.
    pub(crate) rests: Vec<Rest>,
    pub(crate) summary: Summary,
}

/// Processor time of the client for one message per queue, all due at once.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Waves {
    pub(crate) messages: u32,
    pub(crate) cpu: Duration,
}

/// An idle spell.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rest {
    /// Number of messages that were due when it began, and not delivered yet.
    pub(crate) waiting: usize,
    /// Number of tasks of the program's runtime.
    pub(crate) tasks: usize,
    /// The client's share of a core.
    pub(crate) cpu: f64,
}

/// A program at work.
struct Running {
    shape: Shape,
    seed: u64,
    queues: Vec<NamedQueue>,
    ledger: Arc<Ledger>,
    workers: Vec<(WorkerHandle, JoinHandle<Summary>)>,
}

impl Program {
    /// Starts the workers, reports through `ready`, plays the schedule, and stops the workers.
    pub(crate) fn run(
        &self,
        ready: &Sender<Result<()>>,
        schedule: oneshot::Receiver<Schedule>,
    ) -> Result<Report> {
        Builder::new_current_thread().enable_all().build()?.block_on(async {
            let running = match self.start().await {
                Ok(running) => running,
                Err(error) => {
                    ready.send(Err(error))?;
                    bail!("it did not start");
                }
            };
            ready.send(Ok(()))?;
            running.play(schedule.await?).await
        })
    }

    async fn start(&self) -> Result<Running> {
        let mut queues: Vec<NamedQueue> = Vec::new();
        let mut connection = None;
        for number in 0..self.queues {
            let name = queue_name(self.shape, number)?;
            if connection.is_none() || self.shape == Shape::Single {
                connection = Some(Connect::new(&self.url)?.client(self.driver).connect().await?);
            }
            let Some(connection) = &connection else { continue };
            let queue = connection.queue(name.as_str()).await?.codec(Raw);
            queues.push((name.as_str().into(), queue));
        }
        let (shape, seed, ledger) = (self.shape, self.seed, Ledger::new(self.bounds).into());
        let mut running = Running { shape, seed, queues, ledger, workers: Vec::new() };
        running.start_workers()?;
        Ok(running)
    }
}

/// Returns the name of the `number`th queue of a program.
pub(crate) fn queue_name(shape: Shape, number: usize) -> Result<QueueName> {
    Ok(QueueName::new(format!("{}-{number}", shape.name()))?)
}

impl Running {
    fn start_workers(&mut self) -> Result<()> {
        let builder = |queue: &Queue<Bytes, Raw>| {
            Worker::builder(queue.clone()).retry(RetryPolicy::fixed(Duration::from_millis(200)))
        };
        match self.shape {
            Shape::Single | Shape::Busy => {
                for (name, queue) in &self.queues {
                    let worker = builder(queue).concurrency(SLOTS).build()?;
                    let (handle, handler) = (worker.handle(), self.handler(name));
                    self.workers.push((handle, tokio::spawn(worker.run(handler))));
                }
            }
            Shape::Few | Shape::Many => {
                let mut workers = Workers::sharing(SLOTS)?;
                for (name, queue) in &self.queues {
                    let worker: WorkerBuilder<_, _> = builder(queue);
                    workers = workers.add(1, worker, self.handler(name))?;
                }
                self.workers.push((workers.handle(), tokio::spawn(workers.run())));
            }
        }
        Ok(())
    }

    /// Returns a handler that notes each delivery on the ledger, and returns the outcome that is
    /// meant for it.
    fn handler(
        &self,
        name: &Arc<str>,
    ) -> impl Fn(Job<Bytes>) -> std::future::Ready<Result<Outcome, &'static str>> + Send + Sync + 'static
    {
        let (ledger, name) = (Arc::clone(&self.ledger), Arc::clone(name));
        move |job| {
            let outcome = match ledger.begin(&name, &job) {
                Some((delivery, meant)) if delivery < meant && delivery % 2 == 1 => Err("again"),
                Some((delivery, meant)) if delivery < meant => Ok(Outcome::Snooze(SNOOZE)),
                _ => {
                    ledger.end(&job);
                    Ok(Outcome::Ack)
                }
            };
            std::future::ready(outcome)
        }
    }

    async fn play(mut self, schedule: Schedule) -> Result<Report> {
        let (cycles, mut chance) = (watch::Sender::new(0), fastrand::Rng::with_seed(self.seed));
        let mut sending = JoinSet::new();
        for queue in &self.queues {
            let sender = senders::Sender {
                queue: queue.clone(),
                shape: self.shape,
                ledger: Arc::clone(&self.ledger),
                schedule: schedule.clone(),
                cycles: cycles.subscribe(),
                chance: chance.fork(),
            };
            sending.spawn(sender.run());
        }
        let (mut waves, mut rests) = (Waves::default(), Vec::new());
        for number in 0..schedule.cycles {
            let cycle = schedule.cycle(number);
            sleep_until(cycle.begin.into()).await;
            match self.shape {
                Shape::Few => self.wave(3, &mut waves).await?,
                Shape::Many => self.wave(1, &mut waves).await?,
                Shape::Single | Shape::Busy => {}
            }
            cycles.send_replace(number + 1);
            sleep_until(cycle.idle_begin.into()).await;
            let (waiting, cpu, begin) = (self.ledger.waiting(), ThreadTime::now(), Instant::now());
            sleep_until(cycle.sample.into()).await;
            let cpu = cpu.elapsed().as_secs_f64() / begin.elapsed().as_secs_f64();
            let tasks = Handle::current().metrics().num_alive_tasks();
            rests.push(Rest { waiting, tasks, cpu });
            // Meanwhile, the observer of the server takes its figures.
            sleep_until(cycle.end.into()).await;
        }
        while let Some(sent) = sending.join_next().await {
            sent??;
        }
        let summary = self.finish().await?;
        Ok(Report { account: self.ledger.close(), waves, rests, summary })
    }

    /// Sends one message to each queue, all due at the same instant, `rounds` times.
    async fn wave(&self, rounds: usize, waves: &mut Waves) -> Result<()> {
        let cpu = ThreadTime::now();
        for _ in 0..rounds {
            let ahead = WAVE_DELAY + WAVE_DELAY_EACH * u32::try_from(self.queues.len())?;
            let due = SystemTime::now() + ahead;
            let mut promises = Vec::new();
            for (_, queue) in &self.queues {
                let promise = self.ledger.promise(Class::Wave, Due::At(due), 1);
                let sent = queue.send_at(&senders::payload(promise.number), due).await;
                self.ledger.sent(&promise, sent.map_err(Into::into));
                promises.push(promise.done);
            }
            for done in promises {
                // The ledger knows the messages that are not delivered.
                let _ = tokio::time::timeout(LONGEST_FINISH, done).await;
                waves.messages += 1;
            }
        }
        waves.cpu += cpu.elapsed();
        Ok(())
    }

    /// Waits for the remaining messages, checks that the queues are as expected, and stops the
    /// workers.
    async fn finish(&mut self) -> Result<Summary> {
        let deadline = Instant::now() + LONGEST_FINISH;
        while self.ledger.waiting() > 0 && Instant::now() < deadline {
            sleep(Duration::from_millis(50)).await;
        }
        let mut sum = Summary::default();
        for (handle, worker) in self.workers.drain(..) {
            handle.stop(LONGEST_FINISH);
            let summary = worker.await?;
            sum.acked += summary.acked;
            sum.failed += summary.failed;
            sum.cancelled += summary.cancelled;
            sum.snoozed += summary.snoozed;
            sum.dead += summary.dead;
            sum.lost += summary.lost + summary.unclear;
            sum.unsettled += summary.unsettled;
        }
        for (name, queue) in &self.queues {
            let (stats, audit) = (queue.stats().await?, queue.check().await?);
            if stats.scheduled + stats.ready + stats.leased + stats.dead > 0 {
                self.ledger.fault(format!("{name} is not empty in the end: {stats:?}"));
            }
            if !audit.findings.is_empty() {
                self.ledger.fault(format!("{name} is damaged: {:?}", audit.findings));
            }
        }
        Ok(sum)
    }
}

const SLOTS: usize = 64;
const SNOOZE: Duration = Duration::from_millis(150);
const WAVE_DELAY: Duration = Duration::from_millis(300);
/// Time per queue to send the messages before they are due.
const WAVE_DELAY_EACH: Duration = Duration::from_millis(3);
/// Longer than any safety poll.
const LONGEST_FINISH: Duration = Duration::from_secs(60);
