//! Texts a customer whose payment failed, unless the payment succeeds meanwhile.
//!
//! A failed payment sends a message that is due two minutes later (here 600 ms), named after the
//! order. A payment that succeeds cancels it by that name. The gateway for texts fails now and
//! then: the worker retries with growing delays. A text that fails permanently becomes a dead
//! letter, which is inspected, fixed and redriven.
//!
//! ```sh
//! cargo run -p delayline-examples --example text_after_failed_payment
//! cargo run -p delayline-examples --example text_after_failed_payment -- redis://127.0.0.1:6379
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use delayline::worker::{Jitter, Summary};
use delayline::{Cancelled, Error, Job, Queue, RetryPolicy, Worker};
use serde::{Deserialize, Serialize};

/// In production, two minutes.
const DELAY: Duration = Duration::from_millis(600);

#[derive(Serialize, Deserialize)]
struct TextCustomer {
    order: u32,
}

/// Stands in for the gateway that sends texts, and for the customers' numbers.
#[derive(Default)]
struct Gateway {
    numbers: Mutex<BTreeMap<u32, String>>,
    /// How many calls it refuses for an order.
    refusals: Mutex<BTreeMap<u32, u32>>,
    /// The keys of the texts it has sent: a text is sent once for each.
    sent: Mutex<BTreeSet<String>>,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "memory:".to_owned());
    let queue: Queue<TextCustomer> = delayline::connect(&url).await?.queue("example/texts").await?;
    let gateway: Arc<Gateway> = Arc::default();
    for order in [1, 2, 3] {
        lock(&gateway.numbers).insert(order, format!("+1 555 010{order}"));
    }
    lock(&gateway.refusals).insert(3, 2);

    for order in [1, 2, 3, 4] {
        payment_failed(&queue, order).await?;
    }
    payment_succeeded(&queue, 2).await?;

    let summary = send_texts(&queue, &gateway).await?;
    assert_eq!((summary.acked, summary.failed, summary.dead), (2, 2 + 3, 1));
    assert_eq!(*lock(&gateway.sent), keys([1, 3]), "2 was paid, and 4 has no number");

    // An operator reads why the text for 4 could not be sent, and enters the number.
    println!("repairing what is dead");
    lock(&gateway.numbers).insert(4, "+1 555 0104".to_owned());
    assert_eq!(redrive_all(&queue).await?, 1);

    let summary = send_texts(&queue, &gateway).await?;
    assert_eq!((summary.acked, summary.failed), (1, 0));
    assert_eq!(*lock(&gateway.sent), keys([1, 3, 4]));
    assert_eq!(queue.stats().await?.dead, 0);
    assert!(queue.check().await?.findings.is_empty());
    println!("done");
    Ok(())
}

/// Schedules a text. A second failure of the same order changes nothing: one text is enough.
async fn payment_failed(queue: &Queue<TextCustomer>, order: u32) -> Result<(), Error> {
    let draft = queue.message(&TextCustomer { order }).id(id(order).as_str()).due_in(DELAY);
    // The example uses the same orders every time it runs.
    let sent = draft.max_failures(3).reuse_finished_id().send().await?;
    if !sent.is_accepted() {
        println!("order {order} has a text that could not be sent; see the dead letters");
    }
    println!("the payment of order {order} failed: a text is due in {DELAY:?}");
    Ok(())
}

/// Cancels the text.
async fn payment_succeeded(queue: &Queue<TextCustomer>, order: u32) -> Result<(), Error> {
    match queue.cancel(id(order).as_str()).await? {
        Cancelled::Cancelled => println!("order {order} is paid, and no text will be sent"),
        Cancelled::InFlight => println!("order {order} is paid while its text is being sent"),
        _ => println!("order {order} is paid, and had no text waiting"),
    }
    Ok(())
}

/// Runs a worker until the queue is empty. In production it runs forever, in many processes.
async fn send_texts(queue: &Queue<TextCustomer>, gateway: &Arc<Gateway>) -> Result<Summary, Error> {
    // In production, use the default: from 1 s to an hour, with jitter.
    let retry = RetryPolicy::exponential(Duration::from_millis(50)).jitter(Jitter::None);
    let worker = Worker::builder(queue.clone()).retry(retry).until_empty(true).build()?;
    let gateway = Arc::clone(gateway);
    Ok(worker.run(move |job| send_text(job, Arc::clone(&gateway))).await)
}

/// An error is a failure: the message is tried again, and dead after the third.
async fn send_text(job: Job<TextCustomer>, gateway: Arc<Gateway>) -> Result<(), String> {
    let order = job.payload().order;
    // The id is the same at every delivery, so the gateway sends one text for it.
    let result = gateway.send(&job.id().to_string(), order);
    match &result {
        Ok(()) => println!("order {order}: text sent, attempt {}", job.attempt()),
        Err(error) => println!("order {order}: {error}, attempt {}", job.attempt()),
    }
    result
}

impl Gateway {
    fn send(&self, key: &str, order: u32) -> Result<(), String> {
        if !lock(&self.numbers).contains_key(&order) {
            return Err("the customer has no number".to_owned());
        }
        if let Some(refusals) = lock(&self.refusals).get_mut(&order)
            && *refusals > 0
        {
            *refusals -= 1;
            return Err("the gateway is busy".to_owned());
        }
        lock(&self.sent).insert(key.to_owned());
        Ok(())
    }
}

/// Prints why messages died, redrives them, and returns how many there were. Messages that die
/// meanwhile are left alone, so this ends even if every text fails again.
async fn redrive_all(queue: &Queue<TextCustomer>) -> Result<u64, Error> {
    let mut letters = queue.dead_letters().await?;
    while let Some(page) = letters.next_page().await? {
        for letter in page {
            let error = letter.last_error.as_deref().unwrap_or_default();
            println!("{}: dead after {} failures: {error}", letter.id, letter.failures);
        }
    }
    queue.redrive_all().await
}

fn id(order: u32) -> String {
    format!("text-order-{order}")
}

fn keys<const N: usize>(orders: [u32; N]) -> BTreeSet<String> {
    orders.map(id).into()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
