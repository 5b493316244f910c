//! Queues in a directory: what was acknowledged is there after each reopening.

use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use delayline::{Connect, Connection, Durability, ErrorKind, Found, Job, Outcome, Queue, Worker};
use futures_util::future::join_all;

fn url(path: &Path) -> String {
    format!("file:{}", path.display())
}

async fn open(path: &Path) -> Connection {
    delayline::connect(&url(path)).await.unwrap()
}

async fn payload(queue: &Queue<u64>, id: &str) -> u64 {
    match queue.get(id).await.unwrap() {
        Found::Live(message) => message.payload,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_opens_again_as_soon_as_everything_was_dropped() {
    let parent = tempfile::tempdir().unwrap();
    for round in 0..50_u64 {
        let connection = open(parent.path()).await;
        let orders: Queue<u64> = connection.queue("orders").await.unwrap();
        assert_eq!(orders.stats().await.unwrap().totals.enqueued, round * 5);
        // Each leads a group, or waits for another one's.
        let sends = (0..4).map(|number| {
            let orders = orders.clone();
            tokio::spawn(async move { orders.send(&number).await.unwrap() })
        });
        // The tasks drop their queues after the answer.
        join_all(sends).await.into_iter().for_each(|sent| drop(sent.unwrap()));
        orders.send(&4).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_opens_again_once_a_worker_has_ended() {
    let parent = tempfile::tempdir().unwrap();
    for _ in 0..5 {
        let orders: Queue<u64> = open(parent.path()).await.queue("orders").await.unwrap();
        let sent = orders.send_many((0..10).map(|number| orders.message(&number))).await;
        assert!(sent.iter().all(Result::is_ok));
        let worker = Worker::builder(orders).concurrency(4).until_empty(true).build().unwrap();
        let summary = worker.run(|_: Job<u64>| async { Ok::<_, io::Error>(()) }).await;
        assert_eq!(summary.acked, 10);
    }
}

#[tokio::test]
async fn everything_of_a_message_survives() {
    let parent = tempfile::tempdir().unwrap();
    let path = parent.path().join("a new/directory");
    let orders: Queue<u64> = open(&path).await.queue("shop/orders").await.unwrap();
    let hour = Duration::from_secs(3_600);
    assert!(orders.message(&2).id("dead").send().await.unwrap().is_accepted());
    let worker = Worker::builder(orders.clone()).until_empty(true).build().unwrap();
    worker.run(|_: Job<u64>| async { Ok::<_, io::Error>(Outcome::Reject("bad".into())) }).await;
    let later = orders.message(&1).id("later").due_in(hour).header("tenant", "a");
    assert!(later.send().await.unwrap().is_accepted());
    orders.pause().await.unwrap();
    let before = orders.stats().await.unwrap();
    drop(orders);

    let connection = open(&path).await;
    assert_eq!(connection.queues().await.unwrap(), ["shop/orders".parse().unwrap()]);
    assert_eq!(format!("{connection:?}"), format!("Connection(file:{})", path.display()));
    let orders: Queue<u64> = connection.queue("shop/orders").await.unwrap();
    let after = orders.stats().await.unwrap();
    assert_eq!((after.totals, after.dead, after.scheduled), (before.totals, 1, 1));
    assert!(after.paused);
    assert_eq!(payload(&orders, "later").await, 1);
    // Idempotent across the reopening: it is the message of before.
    let again = orders.message(&1).id("later").due_in(hour).header("tenant", "a");
    assert!(again.send().await.unwrap().is_accepted());
    assert_eq!(orders.stats().await.unwrap().scheduled, 1);
}

#[tokio::test]
async fn a_call_is_on_disk_and_never_on_replicas() {
    let parent = tempfile::tempdir().unwrap();
    let connection = open(parent.path()).await;
    let orders: Queue<u64> = connection.queue("orders").await.unwrap();
    orders.clone().durability(Durability::Disk).send(&1).await.unwrap();
    let error = orders.durability(Durability::Replicas(1)).send(&2).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Unsupported(_)), "{error}");
    assert!(error.to_string().contains("a directory is on one disk"), "{error}");
    for error in [
        connection.inspect("orders").await.unwrap_err(),
        connection.upgrade_status("orders").await.unwrap_err(),
        Connect::new(&url(parent.path())).unwrap().survey().await.unwrap_err(),
    ] {
        assert!(matches!(error.kind(), ErrorKind::Unsupported(_)), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_closes_its_directory_while_queues_are_held() {
    let parent = tempfile::tempdir().unwrap();
    let connection = open(parent.path()).await;
    let orders: Queue<u64> = connection.queue("orders").await.unwrap();
    assert!(orders.message(&1).id("order-1").send().await.unwrap().is_accepted());
    let status = connection.directory_status().await.unwrap().unwrap();
    assert_eq!((status.queues, status.segments), (1, 1));
    // The clock is synced as well while the directory is idle.
    assert!(status.syncs.count >= 1, "{status:?}");
    connection.close().await.unwrap();
    let names: Vec<_> =
        fs::read_dir(parent.path()).unwrap().map(|it| it.unwrap().file_name()).collect();
    assert_eq!(names.len(), 2, "a lock and a snapshot: {names:?}");
    let error = orders.send(&2).await.unwrap_err();
    assert_eq!(error.kind(), &ErrorKind::Storage, "{error}");
    let again = open(parent.path()).await;
    assert_eq!(payload(&again.queue("orders").await.unwrap(), "order-1").await, 1);
    let memory = delayline::connect("memory:").await.unwrap();
    assert!(memory.directory_status().await.unwrap().is_none());
}

#[cfg(unix)]
mod beside {
    use delayline::{ErrorClass, MessageId};

    use super::*;

    fn connect(path: &Path) -> Connect {
        Connect::new(&url(path)).unwrap()
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn commands_reach_the_queues_of_a_running_process() {
        let parent = tempfile::tempdir().unwrap();
        let owner = connect(parent.path()).share(true).connect().await.unwrap();
        let orders: Queue<u64> = owner.queue("orders").await.unwrap();
        let rejected = orders.message(&7).id("order-7").send().await.unwrap();
        assert!(rejected.is_accepted());
        let worker = Worker::builder(orders.clone()).until_empty(true).build().unwrap();
        worker.run(|_: Job<u64>| async { Ok::<_, io::Error>(Outcome::Reject("no".into())) }).await;

        let beside = connect(parent.path()).beside(true).connect().await.unwrap();
        assert_eq!(beside.queues().await.unwrap(), ["orders".parse().unwrap()]);
        let seen: Queue<u64> = beside.queue("orders").await.unwrap();
        // Every reply that a command asks for is the same on both sides.
        assert_eq!(seen.stats().await.unwrap(), orders.stats().await.unwrap());
        assert_eq!(seen.get("order-7").await.unwrap(), orders.get("order-7").await.unwrap());
        let letters = seen.dead_letters().await.unwrap().next_page().await.unwrap().unwrap();
        assert_eq!(letters[0].last_error.as_deref(), Some("no"));
        assert_eq!(payload(&seen, "order-7").await, 7);
        // The last point is that of the call.
        let [mine, theirs] = [&seen, &orders].map(async |queue| {
            let history = queue.history(delayline::admin::Resolution::Minutes).await.unwrap();
            history.points.iter().map(|point| (point.dead, point.totals)).collect::<Vec<_>>()
        });
        let (mine, theirs) = (mine.await, theirs.await);
        assert_eq!((mine.last(), mine.first()), (theirs.last(), theirs.first()));
        assert!(seen.check().await.unwrap().findings.is_empty());
        assert_eq!(seen.forecast([Duration::from_secs(1)]).await.unwrap().ready, 0);
        assert!(seen.explain("order-7").await.is_ok());

        // And so are changes.
        seen.pause().await.unwrap();
        assert!(orders.stats().await.unwrap().paused);
        seen.resume().await.unwrap();
        seen.redrive("order-7").await.unwrap();
        assert_eq!(orders.stats().await.unwrap().ready, 1);
        let binary = MessageId::try_from(delayline::Bytes::from_static(&[0, 255])).unwrap();
        assert!(seen.message(&8).id(binary).send().await.unwrap().is_accepted());
        assert_eq!(orders.stats().await.unwrap().ready, 2);
        let worker = Worker::builder(orders.clone()).until_empty(true).build().unwrap();
        worker.run(|_: Job<u64>| async { Ok::<_, io::Error>(Outcome::AckWith("x".into())) }).await;
        let limit = Duration::from_secs(1);
        let done = seen.wait_for("order-7", limit).await.unwrap();
        assert_eq!(done, orders.wait_for("order-7", limit).await.unwrap());

        // A cancelled call does not leave its reply to the next one.
        let many = (0..20).map(|_| {
            let seen = seen.clone();
            async move { tokio::time::timeout(Duration::ZERO, seen.stats()).await }
        });
        join_all(many).await;
        assert_eq!(beside.queues().await.unwrap().len(), 1);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_queue_moves_away_while_its_process_works() {
        let parent = tempfile::tempdir().unwrap();
        let owner = connect(parent.path()).share(true).connect().await.unwrap();
        let orders: Queue<u64> = owner.queue("orders").await.unwrap();
        assert!(orders.message(&7).id("order-7").send().await.unwrap().is_accepted());
        let beside = connect(parent.path()).beside(true).connect().await.unwrap();
        let seen: Queue<u64> = beside.queue("orders").await.unwrap();
        let other = delayline::connect("memory:").await.unwrap();
        let mut transfer = seen.transfer_to(&other.queue::<u64>("orders").await.unwrap()).unwrap();
        assert_eq!(transfer.pass().await.unwrap(), 1);
        assert_eq!(orders.stats().await.unwrap().ready, 0);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn only_operators_work_beside_a_process_and_only_while_it_shares() {
        use delayline::backend::{At, Claim, ClaimId, ConsumerName, Millis, Op};

        let parent = tempfile::tempdir().unwrap();
        let owner = connect(parent.path()).share(true).connect().await.unwrap();
        let beside = connect(parent.path()).beside(true).connect().await.unwrap();
        let backend = beside.backend("orders").await.unwrap();
        let claim = Op::Claim(Claim::new(
            ConsumerName::try_from("worker").unwrap(),
            ClaimId::from_bytes([1; 16]),
            1,
            Millis::new(1_000).unwrap(),
        ));
        for (at, op, expected) in [
            (At::Server, &claim, "working on a queue of another process"),
            (At::Fixed(delayline::Timestamp::MIN), &Op::Stats, "an instant of the caller"),
        ] {
            let error = backend.apply(at, op).await.unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::Unsupported(_)), "{error}");
            assert!(error.to_string().contains(expected), "{error}");
        }
        let error = connect(parent.path()).connect().await.unwrap_err();
        assert_eq!(error.kind(), &ErrorKind::InUse);

        drop(owner);
        assert!(!parent.path().join("delayline.sock").exists());
        let error = backend.apply(At::Server, &Op::Stats).await.unwrap_err();
        assert_ne!(error.class(), ErrorClass::Rejected, "{error}");
        // The directory is free: it is opened, although another process might have it.
        let owner = connect(parent.path()).beside(true).connect().await.unwrap();
        assert_eq!(owner.queues().await.unwrap(), []);
        let error = connect(parent.path()).beside(true).connect().await.unwrap_err();
        assert_eq!(error.kind(), &ErrorKind::InUse, "it does not share: {error}");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_socket_is_for_its_user_alone_and_outlives_no_kill() {
        use std::os::unix::fs::PermissionsExt;
        use std::os::unix::net::UnixListener;

        let parent = tempfile::tempdir().unwrap();
        let socket = parent.path().join("delayline.sock");
        drop(connect(parent.path()).connect().await.unwrap());
        // What a killed process leaves.
        drop(UnixListener::bind(&socket).unwrap());
        let owner = connect(parent.path()).share(true).connect().await.unwrap();
        // It waits until there is a socket.
        drop(connect(parent.path()).beside(true).connect().await.unwrap());
        assert_eq!(fs::metadata(&socket).unwrap().permissions().mode() & 0o777, 0o600);
        // What is no request ends its connection, and nothing else.
        let mut stream = tokio::net::UnixStream::connect(&socket).await.unwrap();
        let garbage = [255; 64];
        tokio::io::AsyncWriteExt::write_all(&mut stream, &garbage).await.unwrap();
        let mut answer = Vec::new();
        tokio::io::AsyncReadExt::read_to_end(&mut stream, &mut answer).await.unwrap_or_default();
        let beside = connect(parent.path()).beside(true).connect().await.unwrap();
        assert_eq!(beside.queues().await.unwrap(), []);
        drop(owner);
    }
}

/// What sits on top of a queue works on a directory, and goes on after it was opened again.
#[cfg(feature = "schedules")]
mod on_top {
    use delayline::events::EventKind;
    use delayline::schedules::{Put, Schedules, Spec};
    use delayline::{Jobs, Kind, Workers, with_state};
    use serde::{Deserialize, Serialize};
    use tokio::sync::mpsc;

    use super::*;

    #[derive(Deserialize, Serialize)]
    struct Close(u64);

    impl Kind for Close {
        const KIND: &'static str = "close";
    }

    async fn close(handled: mpsc::UnboundedSender<u64>, job: Job<Close>) -> Result<(), io::Error> {
        handled.send(job.payload().0).map_err(io::Error::other)
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn schedules_jobs_and_events_go_on() {
        let parent = tempfile::tempdir().unwrap();
        let spec = Spec::every(Duration::from_secs(1), "orders").unwrap().job(&Close(7)).unwrap();
        let connection = open(parent.path()).await;
        let schedules = Schedules::open(&connection).await.unwrap();
        assert_eq!(schedules.put("close", &spec).await.unwrap(), Put::Created);
        drop((schedules, connection));

        let connection = open(parent.path()).await;
        let schedules = Schedules::open(&connection).await.unwrap();
        assert_eq!(schedules.put("close", &spec).await.unwrap(), Put::Unchanged);
        let orders = connection.queue("orders").await.unwrap();
        let mut events = orders.events();
        let (handled, mut received) = mpsc::unbounded_channel();
        let jobs = Jobs::new(orders).on(with_state(handled, close));
        let workers = Workers::sharing(8)
            .unwrap()
            .add(1, jobs.worker(), jobs.handler().unwrap())
            .unwrap()
            .add(1, schedules.worker(), schedules.handler())
            .unwrap();
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let working = tokio::spawn(workers.run_until(async move {
            let _ = stopped.await;
        }));
        assert_eq!(received.recv().await, Some(7));
        while events.next().await.unwrap().kind != EventKind::Acked {}
        stop.send(()).unwrap();
        working.await.unwrap();
        connection.close().await.unwrap();
    }
}
