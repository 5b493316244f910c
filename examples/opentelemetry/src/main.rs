//! Sends an order, handles it, waits for its end, and exports spans and metrics of all that.
//!
//! ```sh
//! export OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4318
//! cargo run --manifest-path examples/opentelemetry/Cargo.toml
//! cargo run --manifest-path examples/opentelemetry/Cargo.toml -- redis://127.0.0.1:6379
//! ```

use std::time::Duration;

use delayline::{Job, Queue, Worker};
use delayline_opentelemetry::{Error, Telemetry, link_to_sender, sender};
use tokio::runtime::Runtime;
use tracing::{Instrument, info, info_span};

fn main() -> Result<(), Error> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "memory:".to_owned());
    let telemetry = Telemetry::start("shop")?;
    let result = Runtime::new()?.block_on(shop(&url));
    // Outside of the runtime, because it blocks. Also after a failure, whose spans show the cause.
    let stopped = telemetry.stop();
    result?;
    stopped?;
    println!("done");
    Ok(())
}

async fn shop(url: &str) -> Result<(), Error> {
    let orders: Queue<u64> = delayline::connect(url).await?.queue("example/orders").await?;
    let orders = orders.trace_source(sender);
    let worker = Worker::builder(orders.clone()).build()?;
    let handle = worker.handle();
    let worker = tokio::spawn(worker.run(close));

    let place = async {
        let order = orders.message(&1234).due_in(Duration::from_millis(50)).send().await?;
        let wait = info_span!("wait for the order", "otel.kind" = "client");
        orders.wait_for(order.id, Duration::from_secs(30)).instrument(wait).await?;
        Ok::<_, Error>(())
    };
    place.instrument(info_span!("POST /orders", "otel.kind" = "server")).await?;
    handle.stop(Duration::from_secs(5));
    worker.await?;
    Ok(())
}

async fn close(job: Job<u64>) -> Result<(), Error> {
    link_to_sender(&job);
    info!(order = job.payload(), "closing");
    Ok(())
}
