//! Uses the redis-rs client that the program already has.
//!
//! ```sh
//! cargo run -p delayline-examples --example redis_client -- redis://127.0.0.1:6379
//! ```

use delayline::{Connect, Job, Queue, Worker};
use redis::AsyncCommands;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "redis://127.0.0.1:6379".to_owned());

    // The program already has a client, with its own settings and commands.
    let client = redis::Client::open(url)?;
    let mut cache = client.get_multiplexed_async_connection().await?;
    cache.set::<_, _, ()>("example/greeting", "hello").await?;

    let transport = delayline_redis::transport(&client).await?;
    let connection = Connect::over(transport).connect().await?;
    let queue: Queue<String> = connection.queue("example/redis-client").await?;
    queue.send(&"example/greeting".to_owned()).await?;

    let worker = Worker::builder(queue).until_empty(true).build()?;
    let summary = worker
        .run(move |job: Job<String>| {
            let mut cache = cache.clone();
            async move {
                let greeting: String = cache.get(job.payload()).await?;
                println!("{}: {greeting}", job.id());
                Ok::<(), redis::RedisError>(())
            }
        })
        .await;
    assert_eq!((summary.acked, summary.failed), (1, 0));
    println!("done: one client for the cache and the queue");
    Ok(())
}
