//! Places orders in PostgreSQL, and closes the committed ones.
//!
//! ```sh
//! cargo run --manifest-path examples/outbox/Cargo.toml -- postgres://HOST/DATABASE redis://HOST
//! ```
//!
//! It creates the tables `orders` and `outbox`, and adds orders to them.

use std::time::Duration;

use delayline::{Job, Queue, Worker};
use delayline_outbox::{CloseOrder, Error, create_tables, place, run};
use sqlx::postgres::PgPool;
use tokio::sync::mpsc;

#[tokio::main]
async fn main() -> Result<(), Error> {
    let mut urls = std::env::args().skip(1);
    let usage = "usage: delayline-outbox DATABASE_URL REDIS_URL";
    let (database, redis) = urls.next().zip(urls.next()).ok_or(usage)?;
    let pool = PgPool::connect(&database).await?;
    let queue: Queue<CloseOrder> =
        delayline::connect(&redis).await?.queue("example/outbox").await?;
    create_tables(&pool).await?;
    let sender = tokio::spawn(run(pool.clone(), queue.clone()));

    let query = "SELECT coalesce(max(number), 0) FROM orders";
    let last: i64 = sqlx::query_scalar(query).fetch_one(&pool).await?;
    let orders: Vec<i64> = (last + 1..=last + 10).collect();
    for order in &orders {
        let mut tx = pool.begin().await?;
        place(&mut tx, *order, Duration::from_millis(200)).await?;
        // The third payment fails, say.
        if order % 3 == 0 { tx.rollback().await? } else { tx.commit().await? }
    }

    let (done, mut closed) = mpsc::channel(10);
    let worker = Worker::builder(queue).build()?;
    let handle = worker.handle();
    let worker = tokio::spawn(worker.run(move |job| close(pool.clone(), done.clone(), job)));
    let expected: Vec<i64> = orders.into_iter().filter(|order| order % 3 != 0).collect();
    let mut seen = Vec::new();
    while seen.len() < expected.len() {
        seen.extend(closed.recv().await);
    }
    handle.stop(Duration::from_secs(5));
    worker.await?;
    sender.abort();
    seen.sort_unstable();
    assert_eq!(seen, expected);
    println!("done: {} orders placed and closed, the others rolled back", seen.len());
    Ok(())
}

/// Closes an order. A second delivery finds it closed.
async fn close(pool: PgPool, done: mpsc::Sender<i64>, job: Job<CloseOrder>) -> Result<(), Error> {
    let order = job.payload().order;
    let query = "UPDATE orders SET closed = now() WHERE number = $1 AND closed IS NULL";
    if sqlx::query(query).bind(order).execute(&pool).await?.rows_affected() == 1 {
        done.send(order).await?;
    }
    Ok(())
}
