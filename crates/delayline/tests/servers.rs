//! Queue and worker on Redis servers, over every driver of this build.

#![cfg(any(feature = "redis", feature = "fred"))]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "test code")]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use delayline::{Connect, Driver, Job, Queue, Worker, Workers};
use delayline_test_server::Server;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

const DRIVERS: &[Driver] = &[
    #[cfg(feature = "redis")]
    Driver::Redis,
    #[cfg(feature = "fred")]
    Driver::Fred,
];

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

async fn open(server: &Server, driver: Driver) -> Queue<u64> {
    let connect = Connect::new(&server.url(), "numbers").unwrap().driver(driver);
    Queue::new(connect.open().await.unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_dies_and_comes_back_loses_nothing() {
    on_every_driver(async |driver| {
        let server = Server::builder().append_only("always").start();
        disturbed(driver, &server, async || {
            for _ in 0..2 {
                server.kill();
                sleep(ms(100)).await;
                server.restart();
                sleep(ms(800)).await;
            }
        })
        .await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_worker_is_woken_at_once_and_asks_rarely() {
    on_every_driver(idleness).await;
}

async fn idleness(driver: Driver) {
    let server = Server::start();
    let queue = open(&server, driver).await;
    let (handled, mut seen) = mpsc::unbounded_channel();
    let (mut handles, mut running) = (Vec::new(), Vec::new());
    for _ in 0..4 {
        let worker = Worker::builder(queue.clone()).build().unwrap();
        handles.push(worker.handle());
        let handled = handled.clone();
        running.push(tokio::spawn(worker.run(move |job: Job<u64>| {
            handled.send(*job.payload()).unwrap();
            async { Ok::<(), &str>(()) }
        })));
    }
    sleep(ms(1_000)).await;
    let before = [calls(&server, "evalsha"), calls(&server, "blpop")];
    sleep(ms(20_000)).await;
    let after = [calls(&server, "evalsha"), calls(&server, "blpop")];
    let asked = after.iter().sum::<u64>() - before.iter().sum::<u64>();
    assert!((4..=10).contains(&asked), "{driver:?}: {asked} commands in 20 s");
    assert_eq!(server.info("clients", "blocked_clients"), "1", "{driver:?}");

    let other = open(&server, driver).await;
    for n in 0..5 {
        let start = Instant::now();
        other.send(&n).await.unwrap();
        assert_eq!(timeout(ms(5_000), seen.recv()).await.unwrap(), Some(n));
        assert!(start.elapsed() < ms(500), "{driver:?}: {:?}", start.elapsed());
        sleep(ms(50)).await;
    }
    handles.iter().for_each(|handle| handle.stop(ms(0)));
    let mut acked = 0;
    for running in running {
        acked += running.await.unwrap().acked;
    }
    assert_eq!(acked, 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn many_idle_queues_cost_no_more_than_one() {
    on_every_driver(async |driver| {
        let server = Server::start();
        let connect = Connect::new(&server.url(), "any").unwrap().driver(driver);
        let connection = connect.connection().await.unwrap();
        let mut workers = Workers::sharing(4).unwrap();
        let (handled, mut seen) = mpsc::unbounded_channel();
        let mut queues = Vec::new();
        for n in 0..5 {
            let queue = connection.queue::<u64>(&format!("queue-{n}")).await.unwrap();
            queues.push(queue.clone());
            let handled = handled.clone();
            let handler = move |job: Job<u64>| {
                handled.send(*job.payload()).unwrap();
                async { Ok::<(), &str>(()) }
            };
            workers = workers.add(1, Worker::builder(queue), handler).unwrap();
        }
        let handle = workers.handle();
        let running = tokio::spawn(workers.run());
        sleep(ms(1_000)).await;
        let before = calls(&server, "evalsha") + calls(&server, "blpop");
        sleep(ms(20_000)).await;
        let asked = calls(&server, "evalsha") + calls(&server, "blpop") - before;
        assert!((5..=10).contains(&asked), "{driver:?}: {asked} commands in 20 s");
        assert_eq!(server.info("clients", "blocked_clients"), "1", "{driver:?}");
        for (n, queue) in (0..).zip(&queues) {
            let start = Instant::now();
            queue.send(&n).await.unwrap();
            assert_eq!(timeout(ms(5_000), seen.recv()).await.unwrap(), Some(n));
            assert!(start.elapsed() < ms(500), "{driver:?}: {:?}", start.elapsed());
        }
        handle.stop(ms(0));
        assert_eq!(running.await.unwrap().acked, 5);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_frozen_server_delays_but_loses_nothing() {
    on_every_driver(async |driver| {
        let server = Server::start();
        disturbed(driver, &server, async || {
            server.pause();
            // Longer than calls wait for a reply, and than leases last.
            sleep(ms(7_000)).await;
            server.resume();
        })
        .await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn flushed_scripts_and_killed_connections_lose_nothing() {
    on_every_driver(async |driver| {
        let server = Server::start();
        disturbed(driver, &server, async || {
            for _ in 0..60 {
                server.command(&["SCRIPT", "FLUSH"]);
                sleep(ms(15)).await;
                server.command(&["CLIENT", "KILL", "TYPE", "normal"]);
                sleep(ms(25)).await;
            }
        })
        .await;
    })
    .await;
}

/// Handles 200 messages while something happens to the server: none is lost, none is early.
async fn disturbed(driver: Driver, server: &Server, disturb: impl AsyncFnOnce()) {
    let queue = open(server, driver).await;
    let drafts = (0..200).map(|n| queue.message(&n).unwrap().delay(ms(n * 15)).unwrap());
    assert!(queue.send_batch(drafts).await.iter().all(Result::is_ok));
    let seen = Arc::new(Mutex::new(BTreeMap::<u64, u32>::new()));
    let log = Arc::clone(&seen);
    let worker = Worker::builder(queue.clone()).until_empty(true).lease(ms(2_000));
    let running = tokio::spawn(worker.build().unwrap().run(move |job: Job<u64>| {
        assert!(SystemTime::now() >= SystemTime::from(job.due()), "{job:?} is early");
        *log.lock().unwrap().entry(*job.payload()).or_default() += 1;
        async {
            sleep(ms(20)).await;
            Ok::<(), &str>(())
        }
    }));
    sleep(ms(500)).await;
    disturb().await;
    let summary = timeout(ms(30_000), running).await.expect("it resumes").unwrap();
    assert_eq!((summary.failed, summary.unsettled), (0, 0), "{driver:?}: {summary:?}");
    assert_eq!(seen.lock().unwrap().len(), 200, "{driver:?}");
    let stats = queue.stats().await.unwrap();
    assert_eq!((stats.acked_total, stats.dead), (200, 0), "{driver:?}");
    assert_eq!(queue.check().await.unwrap().findings, []);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_loses_its_data_does_not_stop_a_worker() {
    on_every_driver(async |driver| {
        let server = Server::start();
        let queue = open(&server, driver).await;
        let worker = Worker::builder(queue.clone()).concurrency(4).build().unwrap();
        let handle = worker.handle();
        let (handled, mut seen) = mpsc::unbounded_channel();
        let running = tokio::spawn(worker.run(move |job: Job<u64>| {
            handled.send(*job.payload()).unwrap();
            async {
                sleep(ms(200)).await;
                Ok::<(), &str>(())
            }
        }));
        for n in 0..8 {
            queue.send(&n).await.unwrap();
        }
        assert!(seen.recv().await.is_some());
        server.command(&["FLUSHALL"]);
        queue.send(&100).await.unwrap();
        let later = async { while seen.recv().await != Some(100) {} };
        timeout(ms(5_000), later).await.expect("it goes on within 5 s");
        handle.stop(ms(5_000));
        let summary = timeout(ms(10_000), running).await.unwrap().unwrap();
        assert_eq!((summary.failed, summary.unsettled), (0, 0), "{driver:?}: {summary:?}");
        assert_eq!(queue.check().await.unwrap().findings, []);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broken_server_is_asked_less_than_twenty_times_a_second() {
    on_every_driver(async |driver| {
        let server = Server::start();
        let queue = open(&server, driver).await;
        let worker = Worker::builder(queue.clone()).build().unwrap();
        let (handle, running) =
            (worker.handle(), { tokio::spawn(worker.run(async |_: Job<u64>| Ok::<(), &str>(()))) });
        // A replica of nobody: it takes no writes.
        server.command(&["REPLICAOF", "127.0.0.1", "1"]);
        sleep(ms(1_000)).await;
        let before = commands(&server);
        sleep(ms(3_000)).await;
        let asked = commands(&server) - before;
        assert!(asked < 60, "{driver:?}: {asked} commands in 3 s");
        server.command(&["REPLICAOF", "NO", "ONE"]);
        queue.send(&1).await.unwrap();
        let acked = async {
            while queue.stats().await.unwrap().acked_total == 0 {
                sleep(ms(20)).await;
            }
        };
        timeout(ms(5_000), acked).await.expect("it resumes within 5 s");
        handle.stop(ms(0));
        running.await.unwrap();
    })
    .await;
}

/// How many commands the server has executed.
fn commands(server: &Server) -> u64 {
    server.info("stats", "total_commands_processed").parse().unwrap()
}

/// How many commands of that name the server has executed.
fn calls(server: &Server, command: &str) -> u64 {
    let info = format!("{:?}", server.command(&["INFO", "commandstats"]));
    let calls = info.split(&format!("cmdstat_{command}:calls=")).nth(1).unwrap_or("0");
    calls.split(|c: char| !c.is_ascii_digit()).next().unwrap().parse().unwrap()
}

/// Runs a test on all drivers at once.
async fn on_every_driver(test: impl AsyncFn(Driver)) {
    futures_util::future::join_all(DRIVERS.iter().map(|&driver| test(driver))).await;
}
