//! Uses the fred client that the program already has.
//!
//! ```sh
//! cargo run -p delayline-examples --example fred_client -- redis://127.0.0.1:6379
//! ```

use delayline::{Connect, Job, Queue, Worker};
use fred::interfaces::{ClientLike, KeysInterface};
use fred::types::Builder;
use fred::types::config::Config;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "redis://127.0.0.1:6379".to_owned());

    // The program already has a client, with its own settings and commands.
    let client = Builder::from_config(Config::from_url(&url)?).build()?;
    client.init().await?;
    client.set::<(), _, _>("example/greeting", "hello", None, None, false).await?;

    let transport = delayline_fred::transport(&client).await?;
    let connection = Connect::over(transport).connect().await?;
    let queue: Queue<String> = connection.queue("example/fred-client").await?;
    queue.send(&"example/greeting".to_owned()).await?;

    let cache = client.clone();
    let worker = Worker::builder(queue).until_empty(true).build()?;
    let summary = worker
        .run(move |job: Job<String>| {
            let cache = cache.clone();
            async move {
                let greeting: String = cache.get(job.payload()).await?;
                println!("{}: {greeting}", job.id());
                Ok::<(), fred::error::Error>(())
            }
        })
        .await;
    assert_eq!((summary.acked, summary.failed), (1, 0));
    client.quit().await?;
    println!("done: one client for the cache and the queue");
    Ok(())
}
