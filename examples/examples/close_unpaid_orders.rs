//! Closes orders that are not paid in time.
//!
//! A shop sends a message with every new order, due when the order must be closed: here after one
//! second, in production after half an hour. A payment cancels the message by the order's number.
//!
//! ```sh
//! cargo run -p delayline-examples --example close_unpaid_orders
//! cargo run -p delayline-examples --example close_unpaid_orders -- redis://127.0.0.1:6379
//! ```

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use delayline::{Cancelled, Job, Queue, Worker};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct CloseOrder {
    number: u32,
    total_cents: u64,
}

/// Stands in for the shop's database.
type OpenOrders = Arc<Mutex<BTreeSet<u32>>>;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "memory:".to_owned());
    let queue: Queue<CloseOrder> = delayline::connect(&url).await?.queue("example/orders").await?;
    let open: OpenOrders = Arc::default();

    for number in 1..=5 {
        open.lock().unwrap_or_else(PoisonError::into_inner).insert(number);
        place_order(&queue, number).await?;
    }
    // A shop that crashed here would place the same order again, which is harmless.
    place_order(&queue, 5).await?;
    for number in [2, 4] {
        pay_order(&queue, &open, number).await?;
    }

    let worker = Worker::builder(queue.clone()).until_empty(true).build()?;
    let orders = Arc::clone(&open);
    let summary = worker.run(move |job| close_order(job, Arc::clone(&orders))).await;

    assert_eq!((summary.acked, summary.failed), (3, 0), "1, 3 and 5 were closed");
    assert!(open.lock().unwrap_or_else(PoisonError::into_inner).is_empty(), "2 and 4 were paid");
    assert!(queue.check().await?.findings.is_empty());
    println!("done");
    Ok(())
}

/// Schedules an order to be closed in one second.
async fn place_order(
    queue: &Queue<CloseOrder>,
    number: u32,
) -> Result<(), Box<dyn std::error::Error>> {
    let order = CloseOrder { number, total_cents: 1_990 };
    let message = queue.message(&order).id(id(number).as_str()).due_in(Duration::from_secs(1));
    // The example uses the same numbers every time it runs.
    let sent = message.reuse_finished_id().send().await?;
    if !sent.is_accepted() {
        return Err(format!("order {number} will not be closed: {:?}", sent.outcome).into());
    }
    println!("{} is to be paid within a second", sent.id);
    Ok(())
}

/// A payment cancels the message, if the queue still has it.
async fn pay_order(
    queue: &Queue<CloseOrder>,
    open: &OpenOrders,
    number: u32,
) -> Result<(), delayline::Error> {
    if queue.cancel(id(number).as_str()).await? == Cancelled::Cancelled {
        open.lock().unwrap_or_else(PoisonError::into_inner).remove(&number);
        println!("{} is paid", id(number));
    }
    Ok(())
}

/// May run twice for one order, for example after a crash: closing a closed order does nothing.
async fn close_order(job: Job<CloseOrder>, open: OpenOrders) -> Result<(), &'static str> {
    let CloseOrder { number, total_cents } = *job.payload();
    if open.lock().unwrap_or_else(PoisonError::into_inner).remove(&number) {
        println!("{} ({total_cents} cents) is closed, {:?} late", job.id(), job.lateness());
    }
    Ok(())
}

fn id(number: u32) -> String {
    format!("order-{number}")
}
