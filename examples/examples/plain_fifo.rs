//! A plain queue, first in, first out: messages without a delay, and one consumer.
//!
//! Messages of one priority are delivered in the order of their due instants, and within one
//! millisecond in the order of the sends. So without delays the order is that of the sends, as long
//! as one handler runs at a time and none fails.
//!
//! ```sh
//! cargo run -p delayline-examples --example plain_fifo
//! cargo run -p delayline-examples --example plain_fifo -- redis://127.0.0.1:6379
//! ```

use std::sync::{Arc, Mutex, PoisonError};

use delayline::{Job, Queue, Worker};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "memory:".to_owned());
    let queue: Queue<u32> = delayline::connect(&url).await?.queue("example/fifo").await?;
    let seen: Arc<Mutex<Vec<u32>>> = Arc::default();

    // One at a time.
    for number in 0..100 {
        queue.send(&number).await?;
    }
    // Many at once: they keep their order.
    for sent in queue.send_many((100..300).map(|number| queue.message(&number))).await {
        assert!(sent?.is_accepted());
    }
    println!("sent 300 numbers");

    // A second concurrent handler could overtake the first.
    let worker = Worker::builder(queue.clone()).concurrency(1).until_empty(true).build()?;
    let numbers = Arc::clone(&seen);
    let summary = worker.run(move |job| note(job, Arc::clone(&numbers))).await;

    assert_eq!((summary.acked, summary.failed), (300, 0));
    assert!(queue.check().await?.findings.is_empty());
    let seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
    assert_eq!(*seen, (0..300).collect::<Vec<_>>());
    println!("done: {} numbers came in the order in which they were sent", seen.len());
    Ok(())
}

/// A step that may fail for a moment should be retried in here, because the next message overtakes
/// one that fails.
async fn note(job: Job<u32>, seen: Arc<Mutex<Vec<u32>>>) -> Result<(), &'static str> {
    seen.lock().unwrap_or_else(PoisonError::into_inner).push(*job.payload());
    Ok(())
}
