//! A message is sent exactly if its transaction commits, whenever the processes die.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "test code")]

mod support;

use std::collections::BTreeMap;
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use delayline::{Job, Queue, Worker};
use delayline_outbox::{CloseOrder, create_tables, place, send_batch};
use delayline_test_server::Server;
use sqlx::postgres::PgPool;
use support::Postgres;
use tokio::time::{Instant, sleep, timeout};

struct Shop {
    database: Postgres,
    redis: Server,
    pool: PgPool,
    queue: Queue<CloseOrder>,
}

impl Shop {
    async fn open() -> Self {
        let (database, redis) = (Postgres::start(), Server::builder().tcp().start());
        let pool = PgPool::connect(&database.url()).await.unwrap();
        create_tables(&pool).await.unwrap();
        let connection = delayline::connect(&redis.url()).await.unwrap();
        Self { database, redis, pool, queue: connection.queue("orders").await.unwrap() }
    }

    /// A separate process with arguments for `victim`.
    fn victim(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_victim"));
        command.arg(args[0]).arg(self.database.url()).args(&args[1..]);
        command
    }

    fn sender(&self) -> Child {
        self.victim(&["send", &self.redis.url()]).stderr(Stdio::null()).spawn().unwrap()
    }

    /// The numbers in the outbox and in `orders`.
    async fn counts(&self) -> (i64, i64) {
        let query = "SELECT (SELECT count(*) FROM outbox), (SELECT count(*) FROM orders)";
        sqlx::query_as(query).fetch_one(&self.pool).await.unwrap()
    }

    async fn orders(&self) -> Vec<i64> {
        let query = "SELECT number FROM orders ORDER BY number";
        sqlx::query_scalar(query).fetch_all(&self.pool).await.unwrap()
    }

    /// Works until nothing is left in the queue; returns how often each order was handled.
    async fn handled(&self) -> BTreeMap<i64, u32> {
        let handled: Arc<Mutex<BTreeMap<i64, u32>>> = Arc::default();
        let worker = Worker::builder(self.queue.clone()).until_empty(true).build().unwrap();
        let counts = Arc::clone(&handled);
        let work = worker.run(move |job: Job<CloseOrder>| {
            *counts.lock().unwrap().entry(job.payload().order).or_default() += 1;
            std::future::ready(Ok::<(), String>(()))
        });
        timeout(Duration::from_secs(60), work).await.unwrap();
        let handled = handled.lock().unwrap();
        handled.clone()
    }
}

fn died(output: &Output) -> bool {
    use std::os::unix::process::ExitStatusExt as _;
    output.status.signal().is_some()
}

#[tokio::test]
async fn a_rolled_back_transaction_sends_nothing() {
    let shop = Shop::open().await;
    let mut tx = shop.pool.begin().await.unwrap();
    place(&mut tx, 1, Duration::ZERO).await.unwrap();
    // Not even while the transaction is open.
    assert_eq!(send_batch(&shop.pool, &shop.queue).await.unwrap(), 0);
    tx.rollback().await.unwrap();
    assert_eq!(send_batch(&shop.pool, &shop.queue).await.unwrap(), 0);
    assert_eq!(shop.handled().await, BTreeMap::new());
}

#[tokio::test]
async fn a_process_that_dies_between_commit_and_send_loses_nothing() {
    let shop = Shop::open().await;
    for order in 1..=20 {
        let output = shop.victim(&["place-and-die", &order.to_string()]).output().unwrap();
        assert!(died(&output), "{output:?}");
    }
    assert_eq!(shop.counts().await, (20, 20));
    assert_eq!(send_batch(&shop.pool, &shop.queue).await.unwrap(), 20);
    assert_eq!(shop.counts().await, (0, 20));
    assert_eq!(shop.handled().await, (1..=20).map(|order| (order, 1)).collect());
    println!("20 processes died between commit and send: 20 orders handled once each");
}

#[tokio::test]
async fn a_process_that_dies_between_send_and_delete_sends_nothing_twice() {
    let shop = Shop::open().await;
    let status = shop.victim(&["place", "1", "25"]).status().unwrap();
    assert!(status.success());
    for _ in 0..20 {
        let output = shop.victim(&["send-and-die", &shop.redis.url()]).output().unwrap();
        assert!(died(&output) && output.stdout == b"sent 20\n", "{output:?}");
        // The end of its connection ends its transaction, and the rows are free again.
        until_rows_are_free(&shop.pool, 20).await;
    }
    assert_eq!(shop.counts().await, (20, 20));
    assert_eq!(shop.queue.stats().await.unwrap().totals.enqueued, 20);
    assert_eq!(send_batch(&shop.pool, &shop.queue).await.unwrap(), 20);
    let handled = shop.handled().await;
    assert_eq!(handled, shop.orders().await.into_iter().map(|order| (order, 1)).collect());
    // Also if the message is finished when the row is sent again.
    let mut tx = shop.pool.begin().await.unwrap();
    place(&mut tx, 99, Duration::ZERO).await.unwrap();
    tx.commit().await.unwrap();
    let output = shop.victim(&["send-and-die", &shop.redis.url()]).output().unwrap();
    assert!(died(&output), "{output:?}");
    until_rows_are_free(&shop.pool, 1).await;
    assert_eq!(shop.handled().await, BTreeMap::from([(99, 1)]));
    assert_eq!(send_batch(&shop.pool, &shop.queue).await.unwrap(), 1);
    assert_eq!(shop.handled().await, BTreeMap::new());
    println!("21 processes died between send and delete: 21 orders handled once each");
}

#[tokio::test]
async fn rows_that_cannot_be_sent_are_put_aside_and_the_others_are_sent() {
    let shop = Shop::open().await;
    let execute = async |query: &'static str| sqlx::query(query).execute(&shop.pool).await;
    for query in [
        "INSERT INTO outbox (payload, due) VALUES ('{\"order\": 0}', '1969-12-31 23:59:59+00')",
        "INSERT INTO outbox (payload, due) VALUES ('{\"order\": 0}', '10000-01-01 00:00:00+00')",
        "INSERT INTO outbox (payload, due) VALUES ('{\"order\": 0}', 'infinity')",
    ] {
        assert!(execute(query).await.is_err(), "{query}");
    }
    // A table without the check of `due`, and a first batch that has no other rows.
    execute("ALTER TABLE outbox DROP CONSTRAINT outbox_due_check").await.unwrap();
    let taken = "30000000-0000-0000-0000-000000000000";
    let message = shop.queue.message(&CloseOrder { order: 7 }).id(taken);
    assert!(message.due_in(Duration::from_secs(3_600)).send().await.unwrap().is_accepted());
    let refused = "INSERT INTO outbox (id, payload, due) VALUES
        (gen_random_uuid(), '{\"order\": 0}', '1969-12-31 23:59:59+00'),
        (gen_random_uuid(), '{\"order\": 0}', '10000-01-01 00:00:00+00'),
        ('30000000-0000-0000-0000-000000000000', '{\"order\": 0}', now())";
    execute(refused).await.unwrap();
    execute("INSERT INTO outbox (payload, due) SELECT '{}', now() FROM generate_series(4, 500)")
        .await
        .unwrap();
    let mut tx = shop.pool.begin().await.unwrap();
    place(&mut tx, 1, Duration::ZERO).await.unwrap();
    tx.commit().await.unwrap();
    // And one among others.
    execute("INSERT INTO outbox (payload, due) VALUES ('{}', now())").await.unwrap();
    for settled in [500, 2, 0] {
        assert_eq!(send_batch(&shop.pool, &shop.queue).await.unwrap(), settled);
    }
    let query = "SELECT count(*) FROM outbox WHERE refused IS NOT NULL";
    let refused: i64 = sqlx::query_scalar(query).fetch_one(&shop.pool).await.unwrap();
    assert_eq!((refused, shop.counts().await), (501, (501, 1)));
    assert_eq!(shop.queue.cancel(taken).await.unwrap(), delayline::Cancelled::Cancelled);
    assert_eq!(shop.handled().await, BTreeMap::from([(1, 1)]));
}

#[tokio::test]
async fn senders_that_are_killed_at_any_time_send_all_and_nothing_twice() {
    const SEED: u64 = 37;
    const ORDERS: i64 = 2_000;
    let shop = Shop::open().await;
    let mut random = fastrand::Rng::with_seed(SEED);
    let mut producers = Vec::new();
    for part in 0..2 {
        let (first, count) = (1 + part * ORDERS / 2, ORDERS / 2);
        let args = ["place", &first.to_string(), &count.to_string()];
        producers.push(shop.victim(&args).spawn().unwrap());
    }
    let mut senders = [shop.sender(), shop.sender()];
    let mut kills = 0;
    let started = Instant::now();
    loop {
        // When a kill comes is the fault that is injected, and waits for nothing.
        sleep(Duration::from_millis(random.u64(20..200))).await;
        let placed = producers.iter_mut().all(|it| it.try_wait().unwrap().is_some());
        if placed && kills >= 20 {
            break;
        }
        assert!(started.elapsed() < Duration::from_secs(120));
        let victim = &mut senders[random.usize(0..2)];
        victim.kill().unwrap();
        victim.wait().unwrap();
        kills += 1;
        *victim = shop.sender();
    }
    for mut producer in producers {
        assert!(producer.wait().unwrap().success());
    }
    timeout(Duration::from_secs(60), async {
        while shop.counts().await.0 > 0 {
            sleep(Duration::from_millis(20)).await;
        }
    })
    .await
    .expect("the senders empty the outbox");
    for mut sender in senders {
        sender.kill().unwrap();
        sender.wait().unwrap();
    }
    let orders = shop.orders().await;
    assert_eq!(i64::try_from(orders.len()).unwrap(), ORDERS - ORDERS / 5);
    let handled = shop.handled().await;
    let committed = orders.len();
    let not_once = |order: &&i64| handled.get(*order) != Some(&1);
    assert_eq!(orders.iter().filter(not_once).collect::<Vec<_>>(), Vec::<&i64>::new());
    assert_eq!(handled.len(), committed, "orders that were rolled back are handled");
    assert!(shop.queue.check().await.unwrap().findings.is_empty());
    println!(
        "{kills} kills of two senders, seed {SEED}: {committed} of {ORDERS} orders committed, \
         {committed} handled once each"
    );
}

/// Waits until the server has noticed the end of a connection that had locked rows.
async fn until_rows_are_free(pool: &PgPool, rows: usize) {
    timeout(Duration::from_secs(30), async {
        loop {
            let mut tx = pool.begin().await.unwrap();
            let free = delayline_outbox::take(&mut tx).await.unwrap().len();
            tx.rollback().await.unwrap();
            if free == rows {
                return;
            }
            sleep(Duration::from_millis(5)).await;
        }
    })
    .await
    .expect("the rows are free again");
}
