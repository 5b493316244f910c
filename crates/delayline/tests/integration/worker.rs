//! A worker at work, in virtual time.

use std::collections::BTreeMap;
use std::error::Error;
use std::future::poll_fn;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::{Duration, SystemTime};

use crate::support::{Fault, Faulty, logged};
use delayline::backend::NewMessage;
use delayline::backend::{Found, Op};
use delayline::message::{DeathReason, Headers, MessageState};
use delayline::worker::{Summary, Undecodable, WorkerBuilder, batch_handler};
use delayline::{Enqueued, Job, Outcome, Queue, RetryPolicy, Worker, limits};
use tokio::time::{Instant, sleep};

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

async fn send(queue: &Queue<u64>, id: &str, delay: Duration, value: u64) {
    let draft = queue.message(&value).id(id).due_in(delay);
    assert!(matches!(draft.send().await.unwrap().outcome, Enqueued::Created { .. }));
}

fn worker(queue: &Queue<u64>) -> WorkerBuilder<u64> {
    let retry = RetryPolicy::fixed(Duration::from_millis(1_000));
    Worker::builder(queue.clone()).until_empty(true).retry(retry)
}

async fn ok(_: Job<u64>) -> Result<(), &'static str> {
    Ok(())
}

/// Why a message is dead, and its last error.
async fn death(backend: &Faulty, id: &str) -> (DeathReason, String) {
    let Found::Live(message) = backend.found(id).await else { panic!("{id} is gone") };
    let MessageState::Dead { reason, .. } = message.info.state else { panic!("{message:?}") };
    (reason, message.info.last_error.unwrap())
}

#[tokio::test(start_paused = true)]
async fn messages_come_when_they_are_due_and_never_early() {
    let backend = Faulty::new();
    let queue = Queue::new(backend.clone());
    let delays = [0, 1, 10, 500, 501, 6_000, 20_000, 3_600_000];
    for delay in delays {
        send(&queue, &delay.to_string(), ms(delay), delay).await;
    }
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (log, start) = (Arc::clone(&seen), Instant::now());
    let summary = worker(&queue)
        .concurrency(2)
        .build()
        .unwrap()
        .run(move |job: Job<u64>| {
            log.lock().unwrap().push((*job.payload(), start.elapsed(), job.lateness()));
            async { Ok::<(), &str>(()) }
        })
        .await;
    assert_eq!(summary.acked, 8);
    for ((due, at, lateness), expected) in seen.lock().unwrap().iter().zip(delays) {
        assert_eq!(*due, expected);
        assert!(*at >= ms(*due), "{due} at {at:?}");
        assert!(*at <= ms(*due + 3), "{due} at {at:?}");
        assert!(*lateness <= ms(3), "{due} late {lateness:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_new_message_wakes_a_sleeping_worker() {
    let backend = Faulty::new();
    let queue = Queue::new(backend.clone());
    send(&queue, "far", ms(3_600_000), 0).await;
    let worker = worker(&queue).until_empty(false).build().unwrap();
    let handle = worker.handle();
    let done = Arc::new(tokio::sync::Notify::new());
    let rang = Arc::clone(&done);
    let running = tokio::spawn(worker.run(move |_| {
        rang.notify_one();
        async { Ok::<(), &str>(()) }
    }));
    sleep(ms(12_345)).await;
    let before = Instant::now();
    send(&queue, "now", ms(0), 1).await;
    done.notified().await;
    assert!(before.elapsed() <= ms(1), "{:?}", before.elapsed());
    handle.stop(ms(0));
    assert_eq!(running.await.unwrap().acked, 1);
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_has_run_for_a_year_still_sleeps() {
    const MANY: usize = 1_000;
    let queue = Queue::new(Faulty::new());
    let worker = worker(&queue).until_empty(false).build().unwrap();
    let (handle, turns) = (worker.handle(), Arc::new(AtomicUsize::new(0)));
    let count = Arc::clone(&turns);
    // The loop polls this in its turns. A loop that never sleeps would hold the clock for ever.
    let shutdown = poll_fn(move |_| {
        if count.fetch_add(1, Ordering::SeqCst) < MANY { Poll::Pending } else { Poll::Ready(()) }
    });
    let running = tokio::spawn(worker.run_until(shutdown, ok));
    sleep(ms(10)).await;
    tokio::time::advance(Duration::from_secs(400 * 86_400)).await;
    send(&queue, "a", ms(60_000), 1).await;
    sleep(ms(60_100)).await;
    assert!(turns.load(Ordering::SeqCst) < MANY, "it does not sleep");
    handle.stop(ms(0));
    assert_eq!(running.await.unwrap().acked, 1);
}

#[tokio::test(start_paused = true)]
async fn a_hint_that_comes_while_a_claim_is_answered_is_not_forgotten() {
    let backend = Faulty::with_faults("claim", &[Fault::SlowReply]);
    let queue = Queue::new(backend.clone());
    let worker = worker(&queue).until_empty(false).build().unwrap();
    let running = tokio::spawn(worker.run(ok));
    sleep(ms(50)).await;
    // The claim has been executed and has found nothing; its answer is on the way.
    assert_eq!(backend.sent("claim").len(), 1);
    send(&queue, "a", ms(0), 1).await;
    sleep(ms(60)).await;
    assert_eq!(backend.stats().await.totals.acked, 1);
    running.abort();
}

#[tokio::test(start_paused = true)]
async fn no_more_messages_are_claimed_than_there_are_free_slots() {
    let backend = Faulty::new();
    let queue = Queue::new(backend.clone());
    for n in 0..50 {
        send(&queue, &n.to_string(), ms(0), n).await;
    }
    let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (counts, observed) = ((running, Arc::clone(&most)), backend.clone());
    let summary = worker(&queue)
        .concurrency(3)
        .build()
        .unwrap()
        .run(move |job: Job<u64>| {
            let ((running, most), observed) = (counts.clone(), observed.clone());
            async move {
                most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                sleep(ms(10 + job.payload() % 7)).await;
                // Finished ones whose settlement is on its way are leased as well.
                assert!(observed.stats().await.leased <= 6);
                running.fetch_sub(1, Ordering::SeqCst);
                Ok::<(), &str>(())
            }
        })
        .await;
    assert_eq!((summary.acked, most.load(Ordering::SeqCst)), (50, 3));
}

#[tokio::test(start_paused = true)]
async fn each_outcome_does_what_it_says() {
    let backend = Faulty::new();
    let queue = Queue::new(backend.clone());
    for n in 0..8 {
        send(&queue, &n.to_string(), ms(0), n).await;
    }
    let times = Arc::new(Mutex::new(BTreeMap::<u64, Vec<Duration>>::new()));
    let (log, start) = (Arc::clone(&times), Instant::now());
    let summary = worker(&queue)
        .build()
        .unwrap()
        .run(move |job: Job<u64>| {
            let mut times = log.lock().unwrap();
            let times = times.entry(*job.payload()).or_default();
            times.push(start.elapsed());
            let first = times.len() == 1;
            let due = SystemTime::from(job.due());
            let outcome = match *job.payload() {
                0 => Ok(Outcome::Ack),
                1 if first => Ok(Outcome::Snooze(ms(250))),
                2 if first => Ok(Outcome::Release),
                3 if first => Ok(Outcome::retry_in(ms(333), "soon")),
                4 if first => Err("later"),
                5 => Ok(Outcome::reject("never")),
                6 if first => Ok(Outcome::SnoozeUntil(due + ms(444))),
                7 if first => Ok(Outcome::retry_at(due + ms(555), "then")),
                number => {
                    let failures = u32::from([3, 4, 7].contains(&number));
                    assert_eq!((job.failures(), job.attempt()), (failures, 1 + failures));
                    assert_eq!((job.epoch(), job.crashes()), (2, 0));
                    Ok(Outcome::Ack)
                }
            };
            async { outcome }
        })
        .await;
    let second = |n: u64| times.lock().unwrap()[&n].get(1).copied();
    assert_eq!(second(0), None);
    for (n, due) in [(1, 250), (2, 0), (3, 333), (4, 1_000), (6, 444), (7, 555)] {
        let at = second(n).unwrap();
        assert!(at >= ms(due) && at <= ms(due + 2), "{n} again at {at:?}");
    }
    assert_eq!(death(&backend, "5").await, (DeathReason::Rejected, "never".to_owned()));
    let Summary { acked, failed, rejected, dead, snoozed, released, .. } = summary;
    assert_eq!((acked, failed, rejected, dead, snoozed, released), (7, 3, 1, 1, 2, 1));
}

#[tokio::test(start_paused = true)]
async fn a_panic_of_any_kind_concerns_its_own_message_only() {
    struct Nasty;
    impl Drop for Nasty {
        fn drop(&mut self) {
            panic!("again");
        }
    }
    let backend = Faulty::new();
    let queue = Queue::new(backend.clone());
    for n in 0..6 {
        let draft = queue.message(&n).id(n.to_string().as_str());
        let _ = draft.max_failures(1).send().await.unwrap();
    }
    let summary = worker(&queue)
        .build()
        .unwrap()
        .run(|job: Job<u64>| {
            assert_ne!(*job.payload(), 0, "before there is a future");
            async move {
                match job.payload() {
                    1 => panic!("plain"),
                    2 => panic!("{}", "\u{20ac}".repeat(1_000)),
                    3 => std::panic::panic_any(Nasty),
                    4 => std::panic::panic_any(7_u8),
                    _ => Ok::<(), &str>(()),
                }
            }
        })
        .await;
    assert_eq!((summary.acked, summary.failed, summary.dead), (1, 5, 5));
    let text = async |id: &str| death(&backend, id).await.1;
    assert!(text("0").await.contains("before there is a future"));
    assert_eq!(text("1").await, "panicked: plain");
    let long = text("2").await;
    assert!(long.len() <= limits::MAX_ERROR_BYTES && long.ends_with('\u{20ac}'));
    assert_eq!(text("3").await, "panicked: without a text");
    assert_eq!(text("4").await, "panicked: without a text");
}

/// Sends a text to a queue of numbers.
async fn send_text(queue: &Queue<u64>) {
    let bad = NewMessage::new("bad".try_into().unwrap(), "\"hunter2\"").max_failures(3);
    assert!(queue.send_many([bad]).await.remove(0).is_ok());
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_decoded_is_retried_and_its_neighbours_are_handled() {
    let backend = Faulty::new();
    let queue: Queue<u64> = Queue::new(backend.clone());
    send(&queue, "1", ms(0), 1).await;
    send_text(&queue).await;
    send(&queue, "2", ms(0), 2).await;
    let summary = worker(&queue).build().unwrap().run(ok).await;
    assert_eq!((summary.acked, summary.failed, summary.dead), (2, 3, 1));
    assert_eq!(summary.rejected, 0);
    // A worker that can decode it had two seconds to get it.
    assert!(backend.elapsed() >= ms(2_000), "{:?}", backend.elapsed());
    let (reason, error) = death(&backend, "bad").await;
    assert_eq!(reason, DeathReason::Undecodable);
    assert!(error.starts_with("the payload could not be decoded: "), "{error}");
    assert!(!error.contains("hunter2"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn an_old_worker_leaves_what_it_cannot_decode_to_a_new_one() {
    for (undecodable, failures) in [(Undecodable::Retry, 1), (Undecodable::Release, 0)] {
        let backend = Faulty::new();
        let queue: Queue<u64> = Queue::new(backend.clone());
        send_text(&queue).await;
        let old = worker(&queue).until_empty(false).on_undecodable(undecodable).build().unwrap();
        let summary = old.run_until(sleep(ms(500)), ok).await;
        assert_eq!((summary.failed, summary.dead), (failures, 0), "{undecodable:?}");
        assert!(summary.released <= 20, "{summary:?}");
        let texts: Queue<String> = Queue::new(backend.clone());
        let new = Worker::builder(texts).until_empty(true).build().unwrap();
        let summary = new.run(|_: Job<String>| async { Ok::<(), &str>(()) }).await;
        assert_eq!((summary.acked, summary.dead), (1, 0), "{undecodable:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_decoded_dies_at_once_if_a_worker_rejects_it() {
    let backend = Faulty::new();
    let queue: Queue<u64> = Queue::new(backend.clone());
    send_text(&queue).await;
    let worker = worker(&queue).on_undecodable(Undecodable::Reject).build().unwrap();
    let summary = worker.run(ok).await;
    assert_eq!((summary.rejected, summary.failed, summary.dead), (1, 0, 1));
    let (reason, error) = death(&backend, "bad").await;
    assert_eq!(reason, DeathReason::Rejected);
    assert!(error.starts_with("the payload could not be decoded: "), "{error}");
}

#[derive(Debug, thiserror::Error)]
#[error("the order could not be closed")]
struct NotClosed(#[from] std::io::Error);

#[tokio::test(start_paused = true)]
async fn an_error_is_stored_with_its_causes() {
    let backend = Faulty::new();
    let queue: Queue<u64> = Queue::new(backend.clone());
    for id in ["typed", "boxed", "local", "batch", "long"] {
        let draft = queue.message(&0).id(id).max_failures(1);
        assert!(draft.send().await.unwrap().is_accepted());
        let error = || NotClosed(std::io::Error::other("timed out"));
        let worker = worker(&queue).build().unwrap();
        let summary = match id {
            "typed" => worker.run(move |_: Job<u64>| async move { Err::<(), _>(error()) }).await,
            "boxed" => {
                let boxed = move || Box::<dyn Error + Send + Sync>::from(error());
                worker.run(move |_: Job<u64>| async move { Err::<(), _>(boxed()) }).await
            }
            "local" => {
                let local = move || Box::<dyn Error>::from(error());
                worker.run(move |_: Job<u64>| async move { Err::<(), _>(local()) }).await
            }
            "batch" => {
                let fail = move |_: Vec<Job<u64>>| async move { Err::<(), _>(error()) };
                worker.run(batch_handler(10, ms(1), fail)).await
            }
            _ => {
                let long = || NotClosed(std::io::Error::other("x".repeat(5_000)));
                worker.run(move |_: Job<u64>| async move { Err::<(), _>(long()) }).await
            }
        };
        assert_eq!(summary.dead, 1, "{id}");
        let (_, text) = death(&backend, id).await;
        if id == "long" {
            assert!(text.starts_with("the order could not be closed: xxx"), "{text}");
            assert_eq!(text.len(), limits::MAX_ERROR_BYTES);
        } else {
            assert_eq!(text, "the order could not be closed: timed out", "{id}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_takes_too_long_has_failed() {
    let backend = Faulty::new();
    let queue = Queue::new(backend.clone());
    send(&queue, "slow", ms(0), 1).await;
    let summary = worker(&queue)
        .handler_timeout(ms(5_000))
        .build()
        .unwrap()
        .run(|job: Job<u64>| async move {
            if job.failures() == 0 {
                sleep(ms(60_000)).await;
            }
            Ok::<(), &str>(())
        })
        .await;
    assert_eq!((summary.acked, summary.failed), (1, 1));
    assert!(backend.elapsed() < ms(6_010), "{:?}", backend.elapsed());
}

#[tokio::test(start_paused = true)]
async fn settlements_are_sent_until_they_are_confirmed() {
    let faults = [Fault::LostReply, Fault::LostRequest, Fault::Busy, Fault::Denied];
    let backend = Faulty::with_faults("settle", &faults);
    let queue = Queue::new(backend.clone());
    for n in 0..20 {
        send(&queue, &n.to_string(), ms(0), n).await;
    }
    let summary = worker(&queue).build().unwrap().run(ok).await;
    assert_eq!((summary.acked, summary.lost, summary.unsettled), (20, 0, 0));
    assert_eq!(backend.stats().await.totals.acked, 20);
    let claims = backend.sent("claim");
    let settles = backend.sent("settle");
    // While they fail nothing is claimed.
    assert!(!claims.iter().any(|(at, _)| *at > settles[0].0 && *at < settles[4].0));
}

#[tokio::test(start_paused = true)]
async fn acks_go_out_together() {
    let backend = Faulty::new();
    let queue = Queue::new(backend.clone());
    let drafts: Vec<_> = (0..1_000).map(|n| queue.message(&n)).collect();
    assert!(queue.send_many(drafts).await.iter().all(Result::is_ok));
    let summary = worker(&queue).concurrency(1_000).build().unwrap().run(ok).await;
    assert_eq!(summary.acked, 1_000);
    assert!(backend.sent("settle").len() < 50, "{}", backend.sent("settle").len());
}

#[tokio::test(start_paused = true)]
async fn a_broken_backend_is_not_hammered_and_is_used_again_once_it_works() {
    let backend = Faulty::with_plan(|_| Fault::Denied);
    let queue: Queue<u64> = Queue::new(backend.clone()).patience(ms(0));
    let worker = worker(&queue).until_empty(false).build().unwrap();
    let running = tokio::spawn(worker.run(ok));
    sleep(ms(60_000)).await;
    let asked = backend.commands();
    assert!((30..=100).contains(&asked), "{asked}");
    backend.set_plan(|_| Fault::None);
    send(&queue, "a", ms(0), 1).await;
    sleep(ms(2_001)).await;
    assert_eq!(backend.stats().await.totals.acked, 1);
    running.abort();
}

#[tokio::test]
async fn limits_are_checked_when_a_worker_is_built() {
    let queue: Queue<u64> = Queue::new(Faulty::new());
    assert!(worker(&queue).concurrency(0).build().is_err());
    assert!(worker(&queue).concurrency(1_001).build().is_err());
    assert!(worker(&queue).lease(Duration::ZERO).build().is_err());
    assert!(worker(&queue).lease(ms(86_400_001)).build().is_err());
    assert!(worker(&queue).consumer("c".repeat(32)).build().is_err());
    assert!(worker(&queue).consumer("c".repeat(31)).build().is_ok());
    let error = worker(&queue).lease(Duration::MAX).build().unwrap_err();
    let expected = "the lease in ms is 18446744073709551615; it must be from 1 to 86400000";
    assert_eq!(error.to_string(), expected);
    let error = worker(&queue).handler_timeout(Duration::ZERO).build().unwrap_err();
    assert!(error.to_string().starts_with("the handler timeout in ms is 0; it must be from 1"));
    let error = worker(&queue).max_lease_age(Duration::ZERO).build().unwrap_err();
    assert!(error.to_string().starts_with("the maximum age of a lease in ms is 0"), "{error}");
    let error = worker(&queue).on_stuck(Duration::ZERO, |_| {}).build().unwrap_err();
    assert!(error.to_string().starts_with("the time after which a handler is stuck"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_job_shows_headers_and_hides_its_payload() {
    let backend = Faulty::new();
    let queue: Queue<u64> = Queue::new(backend.clone());
    let draft = queue.message(&123_454_321).header("shop", "9");
    let _ = draft.send().await.unwrap();
    let summary = worker(&queue)
        .build()
        .unwrap()
        .run(|job: Job<u64>| async move {
            let headers: &Headers = job.headers();
            assert_eq!(headers.get("shop").unwrap(), "9");
            assert!(!format!("{job:?}").contains("123454321"));
            Ok::<(), &str>(())
        })
        .await;
    assert_eq!(summary.acked, 1);
    let Op::Enqueue(sent) = &backend.sent("enqueue")[0].1 else { panic!() };
    assert!(!format!("{sent:?}").contains("123454321"));
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_is_refused_goes_on_and_complains_once_a_minute() {
    let backend = Faulty::with_plan(|op| match op {
        Op::Claim(_) => Fault::Denied,
        _ => Fault::None,
    });
    let queue: Queue<u64> = Queue::new(backend.clone());
    queue.send(&1).await.unwrap();
    let refusals = Arc::new(AtomicU32::new(0));
    let told = Arc::clone(&refusals);
    let log = logged(async || {
        let worker = Worker::builder(queue.clone())
            .on_refusal(move |error| {
                assert_eq!(error.class(), delayline::ErrorClass::Rejected);
                told.fetch_add(1, Ordering::Relaxed);
            })
            .build()
            .unwrap();
        let handle = worker.handle();
        let mut running = std::pin::pin!(worker.run(async |_: Job<u64>| Ok::<(), &str>(())));
        tokio::select! {
            _ = &mut running => panic!("it gave up"),
            () = sleep(Duration::from_secs(600)) => {}
        }
        assert!(backend.sent("claim").len() > 200, "{}", backend.sent("claim").len());
        // The operator grants the permission.
        backend.set_plan(|_| Fault::None);
        tokio::select! {
            _ = &mut running => panic!("it gave up"),
            () = sleep(Duration::from_secs(10)) => {}
        }
        handle.stop(Duration::ZERO);
        assert_eq!(running.await.acked, 1);
    });
    let log = log.await;
    let errors = log.lines().filter(|line| line.contains("ERROR")).count();
    assert!((10..=11).contains(&errors), "{errors} lines in ten minutes: {log}");
    assert_eq!(refusals.load(Ordering::Relaxed), u32::try_from(errors).unwrap());
    assert_eq!(log.lines().filter(|line| line.contains("works again")).count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_worker_until_empty_ends_when_it_is_refused() {
    for denied in ["claim", "stats"] {
        let backend =
            Faulty::with_plan(
                move |op| {
                    if op.name() == denied { Fault::Denied } else { Fault::None }
                },
            );
        let queue: Queue<u64> = Queue::new(backend.clone());
        let refusals = Arc::new(AtomicU32::new(0));
        let told = Arc::clone(&refusals);
        let count = move |_: &delayline::Error| {
            told.fetch_add(1, Ordering::Relaxed);
        };
        let worker = Worker::builder(queue).until_empty(true).on_refusal(count).build().unwrap();
        let run = worker.run(async |_: Job<u64>| Ok::<(), &str>(()));
        let ended = tokio::time::timeout(Duration::from_secs(60), run).await;
        assert!(ended.is_ok(), "{denied}: it tries for ever");
        assert_eq!(refusals.load(Ordering::Relaxed), 1, "{denied}");
    }
}
