//! Queues of several shards: how they are opened and refused.

use std::time::Duration;

use delayline::admin::SetLimits;
use delayline::backend::{At, Backend, FinishedIds, List, NewMessage, Op, Relay, Schedule, Status};
use delayline::{
    Connection, Enqueued, ErrorClass, ErrorKind, Job, MessageId, Outcome, Queue, Timestamp, Worker,
};

const RECORD: &str = MessageId::SHARDS;

async fn memory() -> Connection {
    delayline::connect("memory:").await.unwrap()
}

async fn refused(connection: &Connection, shards: u32) -> ErrorKind {
    let error = connection.queue::<u64>("orders").shards(shards).await.unwrap_err();
    assert_eq!(error.class(), ErrorClass::Rejected, "{error}");
    error.kind().clone()
}

#[tokio::test]
async fn the_first_decides_how_many_shards_there_are() {
    let connection = memory().await;
    for number in [0, 1, 65] {
        assert!(matches!(refused(&connection, number).await, ErrorKind::Invalid(_)), "{number}");
    }
    let orders: Queue<u64> = connection.queue("orders").shards(4).await.unwrap();
    orders.send(&7).await.unwrap();
    let other = ErrorKind::OtherShards { found: 4, requested: 5 };
    assert_eq!(refused(&connection, 5).await, other);
    for again in [connection.queue("orders"), connection.queue("orders").shards(4)] {
        let again: Queue<u64> = again.await.unwrap();
        assert_eq!(again.stats().await.unwrap().ready, 1, "the record is no message of the queue");
    }
    assert_eq!(connection.queues().await.unwrap(), ["orders".parse().unwrap()]);
    for name in ["orders#0", "orders#64", "#"] {
        let error = connection.queue::<u64>(name).await.unwrap_err();
        assert!(error.to_string().contains("reserved for the shards"), "{error}");
    }
}

#[tokio::test]
async fn a_queue_with_messages_gets_no_shards() {
    let connection = memory().await;
    let orders: Queue<u64> = connection.queue("orders").await.unwrap();
    let id = orders.send(&7).await.unwrap();
    let plain = ErrorKind::OtherShards { found: 1, requested: 4 };
    assert_eq!(refused(&connection, 4).await, plain);
    orders.cancel(&id).await.unwrap();
    connection.queue::<u64>("orders").shards(4).await.unwrap();
}

/// The number of shards is in a message of the plain queue, which this test opens past the shards.
#[tokio::test]
async fn a_lost_or_strange_record_is_noticed() {
    let connection = memory().await;
    let plain = connection.backend("orders").await.unwrap();
    let apply = async |op| plain.apply(At::Server, &op).await.unwrap();
    let orders: Queue<u64> = connection.queue("orders").shards(4).await.unwrap();
    for n in 0..20 {
        orders.send(&n).await.unwrap();
    }
    let record = || MessageId::try_from(RECORD).unwrap();
    let known = async || {
        let number = connection.shards_of("orders").await.unwrap();
        (number, connection.stray_messages("orders").await.unwrap())
    };
    assert_eq!(known().await, (Some(4), 0));
    let stray = || MessageId::try_from("sent-past-the-shards").unwrap();
    apply(Op::Enqueue(vec![NewMessage::new(stray(), "1")])).await;
    assert_eq!(known().await, (Some(4), 1));
    let strays: Queue<u64> = connection.queue("orders").strays().await.unwrap();
    assert_eq!(strays.transfer_to(&orders).unwrap().pass().await.unwrap(), 1);
    assert_eq!((known().await, orders.stats().await.unwrap().ready), ((Some(4), 0), 21));
    apply(Op::Cancel(vec![record()])).await;
    orders.cancel(&stray()).await.unwrap();
    assert_eq!(known().await, (None, 20));
    for other in [3, 8] {
        assert_eq!(refused(&connection, other).await, ErrorKind::Damaged, "{other}");
    }
    let again: Queue<u64> = connection.queue("orders").shards(4).await.unwrap();
    assert_eq!(again.stats().await.unwrap().ready, 20);
    assert_eq!(known().await, (Some(4), 0), "it is stored again");
    for (payload, expected) in [
        ("2:4", ErrorKind::NewerVersion { found: 2, supported: 1 }),
        ("1:65", ErrorKind::Damaged),
        ("four", ErrorKind::Damaged),
    ] {
        apply(Op::Cancel(vec![record()])).await;
        let message = NewMessage::new(record(), payload).finished_ids(FinishedIds::Reuse);
        let message = message.schedule(Schedule::At(Timestamp::MAX));
        apply(Op::Enqueue(vec![message])).await;
        assert_eq!(refused(&connection, 4).await, expected, "{payload}");
    }
}

/// Also after a repair of the plain queue, which makes it a dead letter.
#[cfg(any(feature = "redis", feature = "fred"))]
#[tokio::test(flavor = "multi_thread")]
async fn a_torn_record_is_stored_again_by_a_program_with_the_number() {
    let server = delayline_test_server::Server::start();
    for (is_gone, is_repaired) in [(true, true), (true, false), (false, true), (false, false)] {
        server.command(&["FLUSHALL"]);
        let connection = delayline::connect(&server.url()).await.unwrap();
        let orders: Queue<u64> = connection.queue("orders").shards(4).await.unwrap();
        for n in 0..20 {
            orders.send(&n).await.unwrap();
        }
        let records = "delayline:{orders}:records";
        match is_gone {
            true => server.command(&["HDEL", records, RECORD]),
            false => server.command(&["HSET", records, RECORD, "cut off"]),
        };
        let plain: Queue<u64> = connection.queue("orders").await.unwrap();
        if is_repaired {
            assert_ne!(plain.repair().await.unwrap().findings, []);
        }
        let strays = async || connection.stray_messages("orders").await.unwrap();
        assert_eq!((connection.shards_of("orders").await.unwrap(), strays().await), (None, 20));
        assert_eq!(refused(&connection, 3).await, ErrorKind::Damaged);
        let again: Queue<u64> = connection.queue("orders").shards(4).await.unwrap();
        assert_eq!(again.stats().await.unwrap().ready, 20);
        assert_eq!((connection.shards_of("orders").await.unwrap(), strays().await), (Some(4), 0));
    }
}

#[tokio::test]
async fn a_message_with_the_id_of_the_record_hides_no_other() {
    let connection = memory().await;
    let orders: Queue<u64> = connection.queue("orders").await.unwrap();
    orders.send(&7).await.unwrap();
    let draft = || orders.message(&7).id(RECORD);
    let many = orders.send_many([draft(), orders.message(&8)]).await;
    assert!(many[1].is_ok());
    let refusals = [
        draft().send().await.unwrap_err(),
        many.into_iter().next().unwrap().unwrap_err(),
        Outcome::Ack.then([draft()]).unwrap_err(),
    ];
    for error in refusals {
        assert!(error.to_string().contains("reserved for the number of shards"), "{error}");
    }
    // Earlier versions accepted it.
    let plain = connection.backend("orders").await.unwrap();
    let message = NewMessage::new(MessageId::try_from(RECORD).unwrap(), "1:4");
    plain.apply(At::Server, &Op::Enqueue(vec![message])).await.unwrap();
    let again: Queue<u64> = connection.queue("orders").await.unwrap();
    assert_eq!(again.stats().await.unwrap().ready, 3);
    assert_eq!(refused(&connection, 4).await, ErrorKind::OtherShards { found: 1, requested: 4 });
}

#[tokio::test]
async fn what_shards_cannot_do_is_refused() {
    let connection = memory().await;
    let orders: Queue<u64> = connection.queue("orders").shards(16).await.unwrap();
    let error = orders.set_limits(SetLimits::new().leased(100)).await.unwrap_err();
    assert!(error.to_string().contains("use 96 or 112"), "{error}");
    orders.set_limits(SetLimits::new().leased(96).each_group(3)).await.unwrap();
    let limits = orders.stats().await.unwrap().limits;
    assert_eq!((limits.leased, limits.each_group), (Some(96), Some(3)));
    let to =
        delayline::backend::Destination::List { key: "due".try_into().unwrap(), max_len: None };
    let error = orders.apply(&Op::Relay(Relay::new(to, 1))).await.unwrap_err();
    assert_eq!(error.kind(), &ErrorKind::Unsupported("a relay of a sharded queue"));
}

/// One process sends, and another one handles, each with its own connection.
#[cfg(any(feature = "redis", feature = "fred"))]
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_hears_the_bells_of_all_shards() {
    let server = delayline_test_server::Server::start();
    let connect = async || delayline::connect(&server.url()).await.unwrap();
    let sent: Queue<u64> = connect().await.queue("orders").shards(5).await.unwrap();
    let handled: Queue<u64> = connect().await.queue("orders").await.unwrap();
    let (done, mut reports) = tokio::sync::mpsc::unbounded_channel();
    let worker = Worker::builder(handled.clone()).concurrency(4).build().unwrap();
    let stop = worker.handle();
    let running = tokio::spawn(worker.run(move |job: Job<u64>| {
        let _ = done.send(*job.payload());
        async { Ok::<_, std::io::Error>(()) }
    }));
    for n in 0..40 {
        let draft = sent.message(&n).group("tenant".to_owned() + &(n % 7).to_string());
        let outcome = if n % 2 == 0 { draft.send().await } else { sent.message(&n).send().await };
        assert!(matches!(outcome.unwrap().outcome, Enqueued::Created { .. }));
        let report = tokio::time::timeout(Duration::from_secs(4), reports.recv()).await;
        assert_eq!(report.expect("a hint comes before any poll"), Some(n));
    }
    stop.stop(Duration::from_secs(5));
    assert_eq!(running.await.unwrap().acked, 40);
    let stats = handled.stats().await.unwrap();
    assert_eq!((stats.totals.acked, stats.ready, stats.leased), (40, 0, 0));
    let dead = handled.backend().apply(At::Server, &Op::List(List::new(Status::Dead, 9))).await;
    assert!(
        matches!(dead.unwrap().reply, delayline::backend::Reply::List(page) if page.messages.is_empty())
    );
    let removed = connect().await.delete_queue("orders").await.unwrap();
    assert!(removed.existed && removed.messages == 0);
    assert_eq!(connect().await.queues().await.unwrap(), []);
    is_deleted_as_a_whole_or_not_at_all(&connect().await).await;
    #[cfg(feature = "file")]
    {
        let directory = tempfile::tempdir().unwrap();
        let url = format!("file:{}", directory.path().display());
        is_deleted_as_a_whole_or_not_at_all(&delayline::connect(&url).await.unwrap()).await;
    }
}

/// Of a queue with a throttled id in one shard, the others keep their pause.
#[cfg(any(feature = "redis", feature = "fred"))]
async fn is_deleted_as_a_whole_or_not_at_all(connection: &Connection) {
    let queue: Queue<u64> = connection.queue("paused").shards(4).await.unwrap();
    queue.pause().await.unwrap();
    assert!(queue.message(&1).id("a").throttle(Duration::from_secs(60)).send().await.is_ok());
    queue.cancel("a").await.unwrap();
    let removal = connection.delete_queue("paused").await.unwrap();
    assert_eq!((removal.messages, removal.throttled), (0, 1));
    for n in 0..20 {
        queue.send(&n).await.unwrap();
    }
    let token = delayline::backend::ClaimId::from_bytes([1; 16]);
    let consumer = "test".try_into().unwrap();
    let claim = delayline::backend::Claim::new(
        consumer,
        token,
        100,
        delayline::backend::Millis::saturating(1_000),
    );
    let reply = queue.backend().apply(At::Server, &Op::Claim(claim)).await.unwrap().reply;
    let delayline::backend::Reply::Claim(claimed) = reply else { panic!("{reply:?}") };
    assert_eq!(claimed.deliveries, []);
}

/// A lease names the shard of a message whose id alone belongs to another one. Programs see none
/// of it.
#[tokio::test]
async fn an_epoch_counts_the_claims_of_a_message_with_a_group_too() {
    let orders: Queue<u64> = memory().await.queue("orders").shards(8).await.unwrap();
    for n in 0..20 {
        assert!(orders.message(&n).group("tenant").send().await.unwrap().is_accepted());
    }
    let worker = Worker::builder(orders).until_empty(true).build().unwrap();
    let (sender, mut epochs) = tokio::sync::mpsc::unbounded_channel();
    let handler = move |job: Job<u64>| {
        let told = sender.send(job.epoch());
        async move { told.map_err(|error| error.to_string()) }
    };
    assert_eq!(worker.run(handler).await.acked, 20);
    while let Ok(epoch) = epochs.try_recv() {
        assert_eq!(epoch, 1);
    }
}

#[cfg(feature = "file")]
#[tokio::test(flavor = "multi_thread")]
async fn a_directory_remembers_its_shards() {
    let parent = tempfile::tempdir().unwrap();
    let url = format!("file:{}", parent.path().display());
    let connection = delayline::connect(&url).await.unwrap();
    let orders: Queue<u64> = connection.queue("orders").shards(3).await.unwrap();
    let sent = orders.send_many((0..30).map(|n| orders.message(&n))).await;
    assert!(sent.iter().all(Result::is_ok));
    drop(orders);
    connection.close().await.unwrap();
    drop(connection);
    let connection = delayline::connect(&url).await.unwrap();
    let orders: Queue<u64> = connection.queue("orders").await.unwrap();
    assert_eq!(orders.stats().await.unwrap().ready, 30);
    assert_eq!(connection.queues().await.unwrap(), ["orders".parse().unwrap()]);
}

/// A directory has at most 1,000 queues.
#[cfg(feature = "file")]
#[tokio::test(flavor = "multi_thread")]
async fn a_full_directory_has_no_stray_messages() {
    let parent = tempfile::tempdir().unwrap();
    let url = format!("file:{}", parent.path().display());
    let connection = delayline::connect(&url).await.unwrap();
    let mut queues: Vec<Queue<u64>> = Vec::new();
    for n in 0..1_000 {
        queues.push(connection.queue(&format!("queue-{n}")).await.unwrap());
    }
    assert!(connection.queue::<u64>("another").await.is_err());
    assert_eq!(connection.stray_messages("queue-0").await.unwrap(), 0);
}
