//! A process that the tests kill, or that dies at a certain point.
//!
//! - `victim place DATABASE FIRST COUNT`: places orders one by one, each fifth of them rolled back
//! - `victim place-and-die DATABASE ORDER`: dies after the commit
//! - `victim send DATABASE REDIS`: sends for ever
//! - `victim send-and-die DATABASE REDIS`: dies after the send and before the rows are deleted

use std::process::abort;
use std::time::Duration;

use delayline::Queue;
use delayline_outbox::{CloseOrder, Error, place, run, send, take};
use sqlx::postgres::PgPool;

#[tokio::main]
async fn main() -> Result<(), Error> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match *args {
        ["place", database, first, count] => {
            place_all(&PgPool::connect(database).await?, first.parse()?, count.parse()?).await
        }
        ["place-and-die", database, order] => {
            let pool = PgPool::connect(database).await?;
            let mut tx = pool.begin().await?;
            place(&mut tx, order.parse()?, Duration::ZERO).await?;
            tx.commit().await?;
            abort();
        }
        ["send", database, redis] => {
            let queue = open(redis).await?;
            run(PgPool::connect(database).await?, queue).await
        }
        ["send-and-die", database, redis] => {
            let (pool, queue) = (PgPool::connect(database).await?, open(redis).await?);
            let mut tx = pool.begin().await?;
            let rows = take(&mut tx).await?;
            let batch = send(&queue, &rows).await;
            println!("sent {}", batch.sent.len());
            abort();
        }
        _ => Err(format!("unknown arguments {args:?}").into()),
    }
}

async fn place_all(pool: &PgPool, first: i64, count: i64) -> Result<(), Error> {
    for order in first..first + count {
        let mut tx = pool.begin().await?;
        place(&mut tx, order, Duration::from_millis(100)).await?;
        if order % 5 == 0 { tx.rollback().await? } else { tx.commit().await? }
    }
    Ok(())
}

async fn open(redis: &str) -> Result<Queue<CloseOrder>, Error> {
    Ok(delayline::connect(redis).await?.queue("orders").await?)
}
