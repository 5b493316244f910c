//! Queue and worker on Redis servers, over every driver of this build.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use delayline::{
    Completion, Connect, ErrorClass, Job, Outcome, Queue, RedisClient, Worker, Workers,
};
use delayline_test_server::{Reply, Server, until};
use tokio::sync::{Notify, mpsc};
use tokio::time::{sleep, timeout};

const DRIVERS: &[RedisClient] = &[
    #[cfg(feature = "redis")]
    RedisClient::Redis,
    #[cfg(feature = "fred")]
    RedisClient::Fred,
];

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

async fn open(server: &Server, driver: RedisClient) -> Queue<u64> {
    let connect = Connect::new(&server.url()).unwrap().client(driver);
    connect.connect().await.unwrap().queue("numbers").await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn opening_a_queue_runs_one_script() {
    on_every_driver(async |driver| {
        let server = Server::start();
        let connect = Connect::new(&server.url()).unwrap().client(driver);
        let connection = connect.connect().await.unwrap();
        // The server knows the script afterwards.
        connection.queue::<u64>("numbers").await.unwrap();
        let before = calls(&server, "evalsha");
        connection.queue::<u64>("texts").await.unwrap();
        assert_eq!(calls(&server, "evalsha") - before, 1, "{driver:?}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_dies_and_comes_back_loses_nothing() {
    on_every_driver(async |driver| {
        let server = Server::builder().append_only("always").start();
        disturbed(driver, &server, async |seen| {
            for _ in 0..2 {
                server.kill();
                // How long it is gone.
                sleep(ms(100)).await;
                server.restart();
                seen.more(20).await;
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

async fn idleness(driver: RedisClient) {
    let server = Server::start();
    let queue = open(&server, driver).await;
    let (handled, mut seen) = mpsc::unbounded_channel();
    let (mut handles, mut running) = (Vec::new(), Vec::new());
    let before = calls(&server, "evalsha");
    for _ in 0..4 {
        let worker = Worker::builder(queue.clone()).build().unwrap();
        handles.push(worker.handle());
        let handled = handled.clone();
        running.push(tokio::spawn(worker.run(move |job: Job<u64>| {
            handled.send(*job.payload()).unwrap();
            async { Ok::<(), &str>(()) }
        })));
    }
    // Each has looked once, and they sleep on one connection.
    let looked = || calls(&server, "evalsha") - before >= 4;
    until("all to sleep", || blocked(&server) == 1 && looked()).await;
    until("all to be introduced", || names(&server).contains(";numbers=40,+0")).await;
    assert_at_most_half_a_command_a_second(&server, driver).await;
    // A wait may just have ended, and the next one not have begun.
    assert!(blocked(&server) <= 1, "{driver:?}");
    until("all to sleep again", || blocked(&server) == 1).await;
    let looks = calls(&server, "evalsha");
    until("the poll that needs no hint", || calls(&server, "evalsha") > looks).await;

    let other = open(&server, driver).await;
    let start = Instant::now();
    for n in 0..HINTS {
        other.send(&n).await.unwrap();
        assert_eq!(timeout(PATIENCE, seen.recv()).await.unwrap(), Some(n));
    }
    assert!(start.elapsed() < LESS_THAN_POLLS, "{driver:?}: {:?}", start.elapsed());
    handles.iter().for_each(|handle| handle.stop(ms(0)));
    let mut acked = 0;
    for running in running {
        acked += running.await.unwrap().acked;
    }
    assert_eq!(acked, HINTS);
}

#[tokio::test(flavor = "multi_thread")]
async fn many_idle_queues_cost_no_more_than_one() {
    on_every_driver(async |driver| {
        let server = Server::start();
        let connect = Connect::new(&server.url()).unwrap().client(driver);
        let connection = connect.connect().await.unwrap();
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
        let (handle, before) = (workers.handle(), calls(&server, "evalsha"));
        let running = tokio::spawn(workers.run());
        // Each queue has been looked at, and there is one command for all bells.
        let looked_at = || calls(&server, "evalsha") - before >= 5;
        until("all to sleep", || blocked(&server) == 1 && looked_at()).await;
        until("all to be introduced", || names(&server).contains(",queue-4=")).await;
        assert_at_most_half_a_command_a_second(&server, driver).await;
        assert!(blocked(&server) <= 1, "{driver:?}");
        until("all to sleep again", || blocked(&server) == 1).await;
        let start = Instant::now();
        for (n, queue) in (0..HINTS).zip(queues.iter().cycle()) {
            queue.send(&n).await.unwrap();
            assert_eq!(timeout(PATIENCE, seen.recv()).await.unwrap(), Some(n));
        }
        assert!(start.elapsed() < LESS_THAN_POLLS, "{driver:?}: {:?}", start.elapsed());
        handle.stop(ms(0));
        assert_eq!(running.await.unwrap().acked, HINTS);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_frozen_server_delays_but_loses_nothing() {
    on_every_driver(async |driver| {
        let server = Server::start();
        disturbed(driver, &server, async |_| {
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
        disturbed(driver, &server, async |seen| {
            while seen.count() < 150 {
                server.command(&["SCRIPT", "FLUSH"]);
                seen.more(1).await;
                server.command(&["CLIENT", "KILL", "TYPE", "normal"]);
                seen.more(1).await;
            }
        })
        .await;
    })
    .await;
}

/// How often each message was handled.
#[derive(Clone, Default)]
struct Seen(Arc<Mutex<BTreeMap<u64, u32>>>);

impl Seen {
    fn count(&self) -> usize {
        self.0.lock().unwrap().len()
    }

    /// Waits until `count` more messages were handled: the worker is at work again.
    async fn more(&self, count: usize) {
        let before = self.count();
        until("more messages", || self.count() >= before + count).await;
    }
}

/// Handles 200 messages while something happens to the server: none is lost, none is early.
async fn disturbed(driver: RedisClient, server: &Server, disturb: impl AsyncFnOnce(&Seen)) {
    let queue = open(server, driver).await;
    let drafts = (0..200).map(|n| queue.message(&n).due_in(ms(n * 15)));
    assert!(queue.send_many(drafts).await.iter().all(Result::is_ok));
    let seen = Seen::default();
    let log = seen.clone();
    let worker = Worker::builder(queue.clone()).until_empty(true).lease(ms(2_000));
    let running = tokio::spawn(worker.build().unwrap().run(move |job: Job<u64>| {
        assert!(SystemTime::now() >= SystemTime::from(job.due()), "{job:?} is early");
        *log.0.lock().unwrap().entry(*job.payload()).or_default() += 1;
        async {
            // Work, for the server's end to meet.
            sleep(ms(20)).await;
            Ok::<(), &str>(())
        }
    }));
    seen.more(1).await;
    disturb(&seen).await;
    let summary = timeout(PATIENCE, running).await.expect("it resumes").unwrap();
    assert_eq!((summary.failed, summary.unsettled), (0, 0), "{driver:?}: {summary:?}");
    assert_eq!(seen.count(), 200, "{driver:?}");
    let stats = queue.stats().await.unwrap();
    assert_eq!((stats.totals.acked, stats.dead), (200, 0), "{driver:?}");
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
        timeout(PATIENCE, later).await.expect("it goes on");
        handle.stop(PATIENCE);
        let summary = timeout(PATIENCE, running).await.unwrap().unwrap();
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
        let (handle, handled) = (worker.handle(), Arc::new(Notify::new()));
        let tell = Arc::clone(&handled);
        let running = tokio::spawn(worker.run(move |_: Job<u64>| {
            tell.notify_one();
            async { Ok::<(), &str>(()) }
        }));
        // A replica without a primary: it takes no writes.
        server.command(&["REPLICAOF", "127.0.0.1", "1"]);
        until("a refusal", || !info(&server, "errorstats", "errorstat_READONLY").is_empty()).await;
        let (asked, time) = asked(&server, ms(3_000)).await;
        assert!(asked < 20.0 * time.as_secs_f64(), "{driver:?}: {asked} commands in {time:?}");
        server.command(&["REPLICAOF", "NO", "ONE"]);
        queue.send(&1).await.unwrap();
        timeout(PATIENCE, handled.notified()).await.expect("it resumes");
        handle.stop(ms(0));
        running.await.unwrap();
    })
    .await;
}

/// Idle processes send at most half a command a second (G21), of whatever kind.
async fn assert_at_most_half_a_command_a_second(server: &Server, driver: RedisClient) {
    let before = opened(server);
    let (asked, time) = asked(server, ms(20_000)).await;
    // A machine that stands still for a second costs a connection, whose opening is no idleness.
    let again = (opened(server) - before).saturating_sub(LOOKS);
    let allowed = time.as_secs_f64() / 2.0 + 8.0 * f64::from(again.min(2));
    assert!(asked <= allowed, "{driver:?}: {asked} commands in {time:?}, {again} connections");
}

/// How many commands the server executes in a while, and how long that was: on a busy machine it
/// may be longer than asked for.
async fn asked(server: &Server, at_least: Duration) -> (f64, Duration) {
    let (before, start) = (commands(server), Instant::now());
    sleep(at_least).await;
    let asked = commands(server) - before - LOGINS_OF_A_LOOK;
    (f64::from(u32::try_from(asked).unwrap()), start.elapsed())
}

/// How many connections the server has accepted.
fn opened(server: &Server) -> u32 {
    server.info("stats", "total_connections_received").parse().unwrap()
}

/// The connections of the looks between two counts, the second of which needs one as well.
const LOOKS: u32 = 3;

/// The names of connections: a process with workers introduces itself when one of them starts.
fn names(server: &Server) -> String {
    let Reply::BulkString(text) = server.command(&["CLIENT", "LIST"]) else { panic!("no text") };
    String::from_utf8(text).unwrap()
}

/// How many commands the server has got from clients, but for the looks of this test. What scripts
/// call is counted by the server as well, so only those count here that no script of ours calls.
fn commands(server: &Server) -> u64 {
    let stats = info(server, "commandstats", "cmdstat_");
    let sent = |line: &&String| SENT.iter().any(|name| line[8..].starts_with(name));
    stats.iter().filter(sent).map(|line| calls_in(line)).sum()
}

/// Each look has a connection of its own, which logs in.
const LOGINS_OF_A_LOOK: u64 = 1;

/// What drivers and libraries send, by the beginnings of the names.
const SENT: [&str; 16] = [
    "acl",
    "auth",
    "blpop",
    "client",
    "command",
    "config",
    "eval",
    "fcall",
    "hello",
    "ping",
    "role",
    "script",
    "select",
    "subscribe",
    "watch",
    "xread",
];

/// How many commands of that name the server has executed.
pub(crate) fn calls(server: &Server, command: &str) -> u64 {
    let stats = info(server, "commandstats", &format!("cmdstat_{command}:"));
    stats.iter().map(|line| calls_in(line)).sum()
}

/// The number in `cmdstat_NAME:calls=NUMBER,...`.
fn calls_in(line: &str) -> u64 {
    let calls = line.split("calls=").nth(1).and_then(|rest| rest.split(',').next());
    calls.unwrap().parse().unwrap()
}

/// The lines of a section of the server's information that begin like this.
fn info(server: &Server, section: &str, prefix: &str) -> Vec<String> {
    let Reply::BulkString(text) = server.command(&["INFO", section]) else { panic!("no text") };
    let text = String::from_utf8(text).unwrap();
    text.lines().filter(|line| line.starts_with(prefix)).map(str::to_owned).collect()
}

/// How many clients wait for something on the server.
fn blocked(server: &Server) -> u32 {
    server.info("clients", "blocked_clients").parse().unwrap()
}

/// More than anything here takes on a machine that is busy with other things.
const PATIENCE: Duration = Duration::from_secs(60);
/// Number of messages that idle workers are sent, one after the other.
const HINTS: u64 = 20;
/// Without hints, the polls that find this number of messages take longer. With hints, a machine
/// that stands still for some seconds takes less.
const LESS_THAN_POLLS: Duration = Duration::from_secs(20);

/// Runs a test on all drivers at once.
async fn on_every_driver(test: impl AsyncFn(RedisClient)) {
    futures_util::future::join_all(DRIVERS.iter().map(|&driver| test(driver))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_server_is_emptied_although_it_refuses_results() {
    on_every_driver(full).await;
}

async fn full(driver: RedisClient) {
    let server = Server::start();
    let queue = open(&server, driver).await.patience(Duration::ZERO);
    server.command(&["CONFIG", "SET", "maxmemory", "6mb"]);
    let mut sent = 0;
    loop {
        let drafts = (sent..sent + 20).map(|number| {
            let draft = queue.message(&number).header("filler", "x".repeat(4_000));
            if number % 4 == 0 { draft.keep_result(Duration::from_secs(600)) } else { draft }
        });
        let results = queue.send_many(drafts).await;
        let accepted = results.iter().filter(|result| result.is_ok()).count();
        sent += u64::try_from(accepted).unwrap();
        if accepted < results.len() {
            break;
        }
    }
    let worker = Worker::builder(queue.clone()).concurrency(4).until_empty(true).build().unwrap();
    let handler = async |_: Job<u64>| Ok::<_, &str>(Outcome::AckWith(vec![b'x'; 1_000].into()));
    let summary = timeout(Duration::from_secs(60), worker.run(handler)).await.expect("it stands");
    assert!(sent > 200, "{sent}");
    assert_eq!((summary.acked, summary.lost), (sent, 0));
    assert_eq!(queue.stats().await.unwrap().totals.crashed, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_falls_silent_holds_up_no_queue_of_another() {
    on_every_driver(silent).await;
}

async fn silent(driver: RedisClient) {
    let (healthy, frozen) = (Server::start(), Server::start());
    let (queue, other) = (open(&healthy, driver).await, open(&frozen, driver).await);
    // Its worker always has a claim or a settlement under way.
    let drafts = (0..5_000).map(|number| other.message(&number));
    assert!(other.send_many(drafts).await.iter().all(Result::is_ok));
    let (late, mut handled) = mpsc::unbounded_channel();
    let workers = Workers::sharing(1)
        .unwrap()
        .add(1, Worker::builder(queue.clone()), move |job: Job<u64>| {
            late.send(job.lateness()).unwrap();
            async { Ok::<(), &str>(()) }
        })
        .unwrap()
        .add(1, Worker::builder(other), async |_: Job<u64>| {
            sleep(ms(5)).await;
            Ok::<(), &str>(())
        })
        .unwrap();
    let handle = workers.handle();
    let running = tokio::spawn(workers.run());
    queue.send(&0).await.unwrap();
    handled.recv().await.unwrap();
    frozen.pause();
    let mut longest = Duration::ZERO;
    let end = Instant::now() + ms(4_000);
    while Instant::now() < end {
        queue.send(&1).await.unwrap();
        let late = timeout(PATIENCE, handled.recv()).await.expect("it is held up");
        longest = longest.max(late.unwrap());
    }
    frozen.resume();
    handle.stop(ms(0));
    running.await.unwrap();
    // Behind a call to the frozen server it would be five seconds late.
    assert!(longest < ms(4_500), "{driver:?}: {longest:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_ends_at_its_limit_while_the_server_is_silent() {
    on_every_driver(wait_in_silence).await;
}

async fn wait_in_silence(driver: RedisClient) {
    let server = Server::start();
    let queue = open(&server, driver).await;
    let id = queue.send_in(&7, Duration::from_secs(600)).await.unwrap();
    assert_eq!(queue.wait_for(id.clone(), ms(50)).await.unwrap(), Completion::Pending);
    server.pause();
    let start = Instant::now();
    let error = queue.wait_for(id.clone(), ms(1_500)).await.unwrap_err();
    let waited = start.elapsed();
    // A call waits five seconds for its reply.
    assert!(ms(1_500) <= waited && waited < ms(4_900), "{driver:?}: {waited:?}");
    assert_ne!(error.class(), ErrorClass::Rejected, "{driver:?}: {error}");
    server.resume();
    // The first wait that the server answers, on a machine that stands still meanwhile.
    let answered = async {
        loop {
            if let Ok(progress) = queue.wait_for(id.clone(), ms(2_000)).await {
                return progress;
            }
        }
    };
    let progress = timeout(PATIENCE, answered).await.expect("the server answers");
    assert_eq!(progress, Completion::Pending, "{driver:?}");
}
