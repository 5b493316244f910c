//! Job types and shared state: several types of messages in one queue, each with its own handler.
//!
//! Closing an order sends a text to its customer, in one step. Both handlers share the state of the
//! program, which is a pool of database connections in yours. A handler's error decides what
//! becomes of its message.
//!
//! ```sh
//! cargo run -p delayline-examples --example job_types
//! cargo run -p delayline-examples --example job_types -- redis://127.0.0.1:6379
//! ```

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use delayline::message::Status;
use delayline::{Error, Job, Jobs, Kind, Outcome, with_state};
use serde::{Deserialize, Serialize};

#[derive(Debug, Serialize, Deserialize)]
struct CloseOrder {
    order: u64,
}

impl Kind for CloseOrder {
    const KIND: &'static str = "close-order";
}

#[derive(Debug, Serialize, Deserialize)]
struct SendText {
    to: String,
    text: String,
}

impl Kind for SendText {
    const KIND: &'static str = "send-text";
}

/// The state that handlers share. Clones are cheap.
#[derive(Clone)]
struct Shop {
    jobs: Jobs,
    /// Customers by order.
    customers: Arc<BTreeMap<u64, String>>,
    outbox: Arc<Mutex<Vec<String>>>,
}

/// Why an order was not closed.
#[derive(Debug)]
enum NotClosed {
    /// No retry can help.
    NoCustomer(u64),
    Queue(Error),
}

/// The error chooses the outcome of the message.
impl From<NotClosed> for Outcome {
    fn from(error: NotClosed) -> Self {
        match error {
            NotClosed::NoCustomer(order) => Self::reject(format!("order {order} has no customer")),
            NotClosed::Queue(error) => Self::failed(error),
        }
    }
}

impl Shop {
    fn close(&self, order: u64) -> Result<Outcome, NotClosed> {
        let to = self.customers.get(&order).ok_or(NotClosed::NoCustomer(order))?.clone();
        let text = format!("Order {order} is closed.");
        let next = self.jobs.message(&SendText { to, text });
        Outcome::Ack.then([next]).map_err(NotClosed::Queue)
    }
}

async fn close_order(shop: Shop, job: Job<CloseOrder>) -> Result<Outcome, Outcome> {
    // `?` turns the error into its outcome.
    Ok(shop.close(job.payload().order)?)
}

async fn send_text(shop: Shop, job: Job<SendText>) -> Result<(), std::io::Error> {
    let SendText { to, text } = job.payload();
    let mut outbox = shop.outbox.lock().unwrap_or_else(PoisonError::into_inner);
    outbox.push(format!("{to}: {text}"));
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "memory:".to_owned());
    let jobs = Jobs::new(delayline::connect(&url).await?.queue("example/jobs").await?);

    for order in [17, 18] {
        let draft = jobs.message(&CloseOrder { order }).due_in(Duration::from_millis(50));
        assert!(draft.send().await?.is_accepted());
    }

    let shop = Shop {
        jobs: jobs.clone(),
        customers: Arc::new(BTreeMap::from([(17, "Ada".to_owned())])),
        outbox: Arc::default(),
    };
    let outbox = Arc::clone(&shop.outbox);
    let jobs = jobs.on(with_state(shop.clone(), close_order)).on(with_state(shop, send_text));
    let summary = jobs.worker().until_empty(true).build()?.run(jobs.handler()?).await;

    let outbox = outbox.lock().unwrap_or_else(PoisonError::into_inner).clone();
    println!("{summary:?}, sent {outbox:?}");
    assert_eq!((summary.acked, summary.rejected), (2, 1));
    assert_eq!(outbox, ["Ada: Order 17 is closed."]);
    let dead = jobs.queue().stats().await?.dead;
    println!("{dead} dead letter: the order without a customer ({:?})", Status::Dead);
    println!("done");
    Ok(())
}
