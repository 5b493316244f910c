//! Messages that wait for others, whose members meet random fates while workers are killed and
//! calls fail: in simulated time, against an oracle that asks the queue itself.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use delayline::after::{OnFailure, Why};
use delayline::message::Status;
use delayline::{Completion, Job, Outcome, Queue, Worker};
use delayline_core::{MessageId, Op, Reply};
use tokio::time::{Instant, sleep};

use crate::support::{Fault, Faulty};

const SEEDS: u64 = 40;
/// A wake-up may be lost, and a check may fail. Then leases expire, and the next check follows.
const LATEST: Duration = Duration::from_secs(60);
/// Longer than the queue remembers finished messages.
const HOURS: Duration = Duration::from_secs(3 * 3_600);

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// A play of one waiting message.
#[derive(Clone)]
struct Play {
    backend: Arc<Faulty>,
    count: usize,
    on_failure: OnFailure,
    /// The members that have finished at some time.
    finished: Arc<Mutex<Vec<bool>>>,
    /// For each delivery of the waiting message, whether it was right, and why.
    deliveries: Arc<Mutex<Vec<(bool, Why, Truth)>>>,
    /// The operations that failovers have lost.
    lost: Arc<Mutex<usize>>,
}

/// What the queue itself says about the members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Truth {
    left: usize,
    has_failed: bool,
}

impl Play {
    fn new(seed: u64) -> (Self, fastrand::Rng) {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut faults = random.fork();
        let backend = Faulty::with_plan(move |op| match (op, faults.u8(..100)) {
            (Op::Enqueue(_) | Op::Cancel(_) | Op::Redrive(_) | Op::Purge(_), _) => Fault::None,
            (_, 0..4) => Fault::LostReply,
            (_, 4..8) => Fault::LostRequest,
            (_, 8..10) => Fault::Busy,
            _ => Fault::None,
        });
        let count = random.usize(1..=30);
        let on_failure = OnFailure::ALL[random.usize(..OnFailure::ALL.len())];
        let finished = Arc::new(Mutex::new(vec![false; count]));
        let (deliveries, lost) = (Arc::default(), Arc::default());
        (Self { backend, count, on_failure, finished, deliveries, lost }, random)
    }

    /// A queue of another process: it remembers nothing.
    fn queue(&self) -> Queue<u64> {
        Queue::new(self.backend.clone())
    }

    async fn truth(&self) -> Truth {
        let ids = (0..self.count).map(|n| MessageId::try_from(n.to_string()).unwrap());
        let Reply::Progress(all) = self.backend.direct(Op::Progress(ids.collect())).await else {
            panic!("another reply")
        };
        let mut finished = self.finished.lock().unwrap();
        let mut truth = Truth { left: 0, has_failed: false };
        for (completion, finished) in all.iter().zip(finished.iter_mut()) {
            *finished |= matches!(completion, Completion::Finished { .. });
            let is_dead = matches!(completion, Completion::Dead(_));
            truth.left += usize::from(!*finished && !is_dead);
            truth.has_failed |= is_dead;
            truth.has_failed |= matches!(
                completion,
                Completion::Finished { status: Status::Cancelled | Status::Purged, .. }
            );
        }
        truth
    }

    /// A server that fails over now and then, and loses what workers have done, such as acks.
    async fn fail_over(self, mut random: fastrand::Rng) {
        loop {
            sleep(ms(random.u64(5_000..30_000))).await;
            // Members that have ended until now have ended, even if the queue forgets that.
            self.truth().await;
            let lost = self.backend.fail_over(random.usize(1..=10)).await;
            *self.lost.lock().unwrap() += lost;
        }
    }

    /// A process with a worker, until it is killed.
    fn process(&self) -> tokio::task::JoinHandle<()> {
        let builder = Worker::builder(self.queue()).concurrency(5).lease(ms(1_000));
        let worker = builder.build().unwrap();
        let play = self.clone();
        let handler = move |job: Job<u64>| {
            let play = play.clone();
            async move {
                if let Some(members) = job.members() {
                    let truth = play.truth().await;
                    let is_right = match members.why {
                        Why::AllEnded => truth.left == 0,
                        Why::Failure => truth.has_failed && play.on_failure == OnFailure::Deliver,
                        _ => false,
                    };
                    play.deliveries.lock().unwrap().push((is_right, members.why, truth));
                }
                Ok::<_, &str>(if *job.payload() == 1 {
                    Outcome::reject("no")
                } else {
                    Outcome::Ack
                })
            }
        };
        tokio::spawn(async move {
            let _ = worker.run(handler).await;
        })
    }

    /// Sends a member, and does to it what its fate is.
    async fn member(self, n: usize, mut random: fastrand::Rng) {
        let (queue, id) = (self.queue(), n.to_string());
        let mut time = move || ms(random.u64(1..60_000));
        let draft = |payload| queue.message(&payload).id(id.as_str()).wakes("w");
        sleep(time()).await;
        let due = time();
        let sent = match n % 7 {
            0 => draft(0).due_in(due / 2).expires_in(due / 4),
            1..=3 => draft(1).due_in(due),
            _ => draft(0).due_in(due),
        };
        assert!(sent.send().await.unwrap().is_accepted());
        match n % 7 {
            1 | 2 => {
                sleep(due + time()).await;
                // It may not be dead yet, as its worker was killed.
                let _ = match n % 7 {
                    1 => queue.purge(id.as_str()).await.map(drop),
                    _ => queue.redrive_in(id.as_str(), time()).await.map(drop),
                };
            }
            4 => {
                sleep(due / 2).await;
                let _ = queue.cancel(id.as_str()).await;
            }
            5 => {
                sleep(due / 2).await;
                let _ = draft(2).due_in(time()).or_replace().send().await.unwrap();
            }
            _ => {}
        }
    }

    /// Watches until the waiting message has ended, as it must.
    async fn watch(&self) -> Completion {
        let mut since = None;
        loop {
            let ids = vec![MessageId::try_from("w").unwrap()];
            let Reply::Progress(waiting) = self.backend.direct(Op::Progress(ids)).await else {
                panic!("another reply")
            };
            if waiting[0] != Completion::Pending {
                return waiting[0].clone();
            }
            let truth = self.truth().await;
            let ends_early = self.on_failure != OnFailure::Wait && truth.has_failed;
            if truth.left == 0 || ends_early {
                let since = *since.get_or_insert_with(Instant::now);
                assert!(since.elapsed() <= LATEST, "it is late: {truth:?}");
            } else {
                since = None;
            }
            sleep(ms(250)).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn whatever_happens_a_waiting_message_ends_when_it_must() {
    let (mut statuses, mut lost) = (std::collections::BTreeMap::new(), 0);
    for seed in 0..SEEDS {
        let (play, mut random) = Play::new(seed);
        let ids = (0..play.count).map(|n| n.to_string());
        let waiting = play.queue().message(&0).id("w").after(ids).on_failure(play.on_failure);
        // A worker may be killed during a check, which counts as a crash.
        let sent = waiting.max_crashes(1_000).send().await.unwrap();
        assert!(sent.is_accepted());
        let members = (0..play.count).map(|n| tokio::spawn(play.clone().member(n, random.fork())));
        let mut members: Vec<_> = members.collect();
        members.push(tokio::spawn(play.clone().fail_over(random.fork())));
        let watching = play.clone();
        let mut watched = tokio::spawn(async move { watching.watch().await });
        let completion = loop {
            let processes = [play.process(), play.process()];
            let killed = ms(random.u64(100..20_000));
            let ended = tokio::time::timeout(killed, &mut watched).await;
            processes.iter().for_each(tokio::task::JoinHandle::abort);
            if let Ok(completion) = ended {
                break completion.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
            }
        };
        members.iter().for_each(tokio::task::JoinHandle::abort);
        let truth = play.truth().await;
        let deliveries = play.deliveries.lock().unwrap().clone();
        assert!(deliveries.iter().all(|(is_right, ..)| *is_right), "seed {seed}: {deliveries:?}");
        let deliveries = deliveries.len();
        let Completion::Finished { status, .. } = completion else {
            panic!("seed {seed}: {completion:?}")
        };
        match status {
            Status::Acked => assert!(deliveries > 0, "seed {seed}"),
            Status::Cancelled => {
                let is_right = play.on_failure == OnFailure::Cancel && truth.has_failed;
                assert!(is_right && deliveries == 0, "seed {seed}: {truth:?}");
            }
            status => panic!("seed {seed}: {status:?}"),
        }
        lost += *play.lost.lock().unwrap();
        *statuses.entry((play.on_failure.name(), status.name())).or_insert(0) += 1;
    }
    assert!(statuses.len() >= 3 && lost > 0, "{statuses:?}, {lost} lost operations");
}

#[tokio::test(start_paused = true)]
async fn an_end_that_a_worker_has_seen_counts_when_the_queue_has_forgotten_it() {
    let backend = Faulty::new();
    let queue: Queue<u64> = Queue::new(backend.clone());
    let members = [queue.message(&0).id("first"), queue.message(&0).id("last").due_in(HOURS)];
    let _ = queue.message(&0).id("w").send_with_members(members).await.unwrap();
    let worker = Worker::builder(queue.clone()).until_empty(true).build().unwrap();
    let handler = async |job: Job<u64>| match job.members() {
        Some(members) if members.why != Why::AllEnded => Err("early"),
        _ => Ok(()),
    };
    assert_eq!(worker.run(handler).await.acked, 3);
    assert!(backend.elapsed() < HOURS + LATEST);
    // The ends of more than two hours ago are forgotten.
    let first = queue.wait_for("first", Duration::ZERO).await.unwrap();
    assert_eq!(first, Completion::Unknown);
}

#[tokio::test(start_paused = true)]
async fn what_has_been_delivered_does_not_wait_again_for_members_that_are_forgotten() {
    for failed in [Outcome::retry_in(HOURS, "busy"), Outcome::reject("no")] {
        let backend = Faulty::new();
        let queue: Queue<u64> = Queue::new(backend.clone());
        let waiting = queue.message(&1).id("w");
        let _ = waiting.send_with_members([queue.message(&0)]).await.unwrap();
        let worker = Worker::builder(queue.clone()).build().unwrap();
        let handler = move |job: Job<u64>| {
            let outcome = if *job.payload() == 1 { failed.clone() } else { Outcome::Ack };
            async move { Ok::<_, &str>(outcome) }
        };
        assert!(tokio::time::timeout(LATEST, worker.run(handler)).await.is_err());
        sleep(HOURS).await;
        // Another process: it remembers nothing.
        let queue: Queue<u64> = Queue::new(backend.clone());
        let _ = queue.redrive("w").await.unwrap();
        let worker = Worker::builder(queue).until_empty(true).build().unwrap();
        let handler = async |job: Job<u64>| {
            assert_eq!(job.members().unwrap().ended[0].completion, Completion::Unknown);
            Ok::<_, &str>(())
        };
        assert_eq!(worker.run(handler).await.acked, 1);
        assert!(backend.elapsed() < HOURS + 2 * LATEST, "{:?}", backend.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn messages_that_wait_no_more_do_not_replace_the_ends_of_one_that_waits() {
    const OTHERS: u32 = 1_100;
    let backend = Faulty::new();
    let queue: Queue<u64> = Queue::new(backend.clone());
    let members = [queue.message(&0).id("first"), queue.message(&0).id("last").due_in(HOURS)];
    let _ = queue.message(&0).id("w").send_with_members(members).await.unwrap();
    let sender = queue.clone();
    let others = tokio::spawn(async move {
        // The end of the first member is forgotten.
        sleep(HOURS - ms(1_000) * (OTHERS + 60)).await;
        for n in 0..OTHERS {
            let member = sender.message(&0).due_in(ms(5_000));
            let other = sender.message(&0).id(format!("other-{n}"));
            let _ = other.send_with_members([member]).await.unwrap();
            sleep(ms(1_000)).await;
        }
    });
    let worker = Worker::builder(queue.clone()).until_empty(true).build().unwrap();
    let handler = async |job: Job<u64>| match job.members() {
        Some(members) if members.why != Why::AllEnded => Err("early"),
        _ => Ok(()),
    };
    let summary = worker.run(handler).await;
    others.await.unwrap();
    assert_eq!((summary.acked, summary.failed), (3 + 2 * u64::from(OTHERS), 0));
    assert!(backend.elapsed() < HOURS + LATEST);
}
