//! Several queues on one connection.

#[tokio::test]
async fn in_memory_a_name_is_a_queue() {
    use delayline::{Connect, Queue};

    let connection = delayline::connect("memory:").await.unwrap();
    let orders: Queue<u64> = connection.queue("orders").await.unwrap();
    let texts: Queue<u64> = connection.queue("texts").await.unwrap();
    orders.send(&1).await.unwrap();
    assert_eq!(texts.stats().await.unwrap().totals.enqueued, 0);

    let again: Queue<u64> = Queue::new(connection.clone().backend("orders").await.unwrap());
    assert_eq!(again.stats().await.unwrap().ready, 1);
    let names = connection.queues().await.unwrap();
    assert_eq!(
        names.iter().map(delayline::admin::QueueName::as_str).collect::<Vec<_>>(),
        ["orders", "texts"]
    );
    let found = connection.queues_within(0).await.unwrap();
    assert!(found.complete && found.names == names);
    // Another connection is another place.
    let elsewhere = Connect::new("memory:").unwrap().connect().await.unwrap();
    let elsewhere: Queue<u64> = elsewhere.queue("orders").await.unwrap();
    assert_eq!(elsewhere.stats().await.unwrap().ready, 0);

    assert_eq!(
        orders.backend().queue_name().map(delayline::admin::QueueName::as_str),
        Some("orders")
    );
    assert!(connection.backend("a b").await.is_err());
    assert!(connection.queue::<u64>("").await.is_err());
    assert_eq!(format!("{connection:?}"), "Connection(memory:)");
}

#[cfg(any(feature = "redis", feature = "fred"))]
mod on_a_server {
    use std::mem;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};
    use std::time::Duration;

    use delayline::admin::SetLimits;
    use delayline::relay::{Destination, DestinationKey};
    use delayline::{Connect, Error, ErrorKind, Job, Queue, RedisClient, Worker};
    use delayline_test_server::Server;
    use tokio::task::JoinSet;

    use crate::servers::calls;

    const DRIVERS: &[RedisClient] = &[
        #[cfg(feature = "redis")]
        RedisClient::Redis,
        #[cfg(feature = "fred")]
        RedisClient::Fred,
    ];

    /// How many connections the server has accepted since it was started, that of this question
    /// included. How many it has is less certain: it notices later that one was closed.
    fn accepted(server: &Server) -> u64 {
        server.info("stats", "total_connections_received").parse().unwrap()
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn queues_of_one_connection_share_it() {
        for &driver in DRIVERS {
            let server = Server::builder().password("hunter2").start();
            let url = server.url_with_login("", "hunter2");
            let connect = || Connect::new(&url).unwrap().client(driver).connect();
            let mut before = accepted(&server);
            let mut opened = || {
                let now = accepted(&server);
                now - mem::replace(&mut before, now) - 1
            };
            let connection = connect().await.unwrap();
            // fred shows with one more that the password is required.
            let once = if matches!(driver, RedisClient::Redis) { 1 } else { 2 };
            assert_eq!(opened(), once, "{driver:?}");

            let orders: Queue<u64> = connection.queue("orders").await.unwrap();
            let texts: Queue<u64> = connection.queue("texts").await.unwrap();
            for n in 0..3 {
                orders.send_in(&n, Duration::from_millis(n)).await.unwrap();
            }
            assert_eq!(texts.stats().await.unwrap().totals.enqueued, 0, "{driver:?}");
            assert_eq!(opened(), 0, "{driver:?}");
            // Opened apart they have one each.
            let apart: Queue<u64> = connect().await.unwrap().queue("texts").await.unwrap();
            assert_eq!(opened(), once, "{driver:?}");

            for (queue, messages) in [(orders.clone(), 3), (texts.clone(), 0)] {
                let worker = Worker::builder(queue).until_empty(true).build().unwrap();
                let summary = worker.run(async |_: Job<u64>| Ok::<(), &str>(())).await;
                assert_eq!(summary.acked, messages, "{driver:?}");
            }
            // A queue works without the value that it was opened from, and reconnects
            // automatically.
            assert!(!format!("{connection:?}").contains("hunter2"));
            drop(connection);
            server.kill();
            server.restart();
            let (first, second) = tokio::join!(orders.send(&7), texts.send(&8));
            first.unwrap();
            second.unwrap();
            assert_eq!(texts.stats().await.unwrap().ready, 1, "{driver:?}");
            assert_eq!(apart.stats().await.unwrap().ready, 1, "{driver:?}");
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn each_queue_is_looked_at_when_it_is_opened() {
        for &driver in DRIVERS {
            let server = Server::start();
            server.command(&["CONFIG", "SET", "maxmemory", "100mb"]);
            server.command(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
            let connect = Connect::new(&server.url()).unwrap().client(driver);
            let connection = connect.clone().connect().await.unwrap();
            let error = connection.backend("orders").await.unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::Evicting { .. }), "{error:?}");
            let connection = connect.allow_eviction(true).connect().await.unwrap();
            connection.backend("orders").await.unwrap();

            let absent = Connect::new("unix:/nowhere/redis.sock").unwrap();
            let error = absent.client(driver).connect().await.unwrap_err();
            assert_eq!(error.kind(), &ErrorKind::Unreachable, "{error:?}");
        }
    }

    /// How many connections and waits the workers of two queues with 200 messages each need: one
    /// for each queue and driver, where at most `leased` messages of a queue are leased at once.
    async fn needed(leased: Option<u32>, concurrency: usize) -> (u64, u64) {
        let server = Server::start();
        let before = accepted(&server);
        let mut workers = JoinSet::new();
        for &driver in DRIVERS {
            let connection = Connect::new(&server.url()).unwrap().client(driver);
            let connection = connection.connect().await.unwrap();
            for name in ["orders", "texts"] {
                let queue: Queue<u64> = connection.queue(name).await.unwrap();
                queue.set_limits(SetLimits::new().leased(leased)).await.unwrap();
                if driver == DRIVERS[0] {
                    let drafts = (0..200).map(|n| queue.message(&n));
                    assert!(queue.send_many(drafts).await.iter().all(Result::is_ok));
                }
                let worker = Worker::builder(queue).concurrency(concurrency).until_empty(true);
                workers.spawn(worker.build().unwrap().run(async |_: Job<u64>| {
                    tokio::time::sleep(Duration::from_millis(3)).await;
                    Ok::<(), &str>(())
                }));
            }
        }
        let acked: u64 = workers.join_all().await.iter().map(|summary| summary.acked).sum();
        assert_eq!(acked, 400);
        let calls = calls(&server, "blpop");
        // The two questions to the server had separate connections.
        (accepted(&server) - before - 2, calls)
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn limits_of_leases_cost_neither_connections_nor_waits() {
        // A connection for commands, and two for the waits of both queues.
        let most = 3 * DRIVERS.len() as u64;
        for (concurrency, leased) in [(1, None), (1, Some(1)), (10, Some(1)), (10, Some(4))] {
            let (connections, waits) = needed(leased, concurrency).await;
            assert!(connections <= most, "{leased:?}: {connections} connections, not {most}");
            assert!(waits <= 400 / 10, "{leased:?}: {waits} waits");
        }
    }

    /// What a future has returned after its first poll.
    fn polled_once<T>(future: impl Future<Output = T>) -> T {
        match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(result) => result,
            Poll::Pending => panic!("it waits"),
        }
    }

    fn needs_a_runtime<T>(result: Result<T, Error>) {
        let error = result.map(drop).unwrap_err();
        let kind = ErrorKind::Unsupported("a call outside of a tokio runtime");
        assert_eq!(error.kind(), &kind, "{error}");
    }

    #[test]
    fn a_call_outside_of_a_runtime_is_refused() {
        for &driver in DRIVERS {
            let server = Server::start();
            let connect = || Connect::new(&server.url()).unwrap().client(driver);
            needs_a_runtime(polled_once(connect().connect()));
            needs_a_runtime(polled_once(connect().survey()));
            let runtime = tokio::runtime::Runtime::new().unwrap();
            let connection = runtime.block_on(connect().connect()).unwrap();
            let queue: Queue<u64> = runtime.block_on(connection.queue("orders")).unwrap();
            needs_a_runtime(polled_once(connection.queue::<u64>("texts")));
            needs_a_runtime(polled_once(connection.queues()));
            needs_a_runtime(polled_once(queue.send(&1)));
            needs_a_runtime(polled_once(queue.stats()));
            needs_a_runtime(polled_once(queue.wait_for("a", Duration::ZERO)));
            let list =
                Destination::List { key: DestinationKey::try_from("due").unwrap(), max_len: None };
            needs_a_runtime(polled_once(queue.relay(list).run()));
            runtime.block_on(queue.send(&1)).unwrap();
        }
        // Queues in this process need no runtime.
        let connection = polled_once(delayline::connect("memory:")).unwrap();
        let queue: Queue<u64> = polled_once(connection.queue("orders")).unwrap();
        polled_once(queue.send(&1)).unwrap();
        needs_a_runtime(polled_once(queue.wait_for("a", Duration::ZERO)));
        #[cfg(feature = "file")]
        needs_a_runtime(polled_once(delayline::connect("file:/nowhere/here")));
    }
}
