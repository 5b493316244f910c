//! Handles the events of each customer one at a time, in the order sent; customers concurrently.
//!
//! Each event is a message whose group is its customer, and the queue is in order. So no two
//! handlers work for one customer at once, whatever the number of workers, and an event that fails
//! is tried again before the next one of its customer.
//!
//! ```sh
//! cargo run -p delayline-examples --example one_at_a_time
//! cargo run -p delayline-examples --example one_at_a_time -- redis://127.0.0.1:6379
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use delayline::admin::SetLimits;
use delayline::{Job, Outcome, Queue, Worker};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;

const CUSTOMERS: u32 = 6;
const EVENTS: u32 = 40;
const WORKERS: u32 = 3;

#[derive(Serialize, Deserialize)]
struct Event {
    customer: u32,
    number: u32,
}

/// Stands in for the tables of the program: what the handlers did.
struct Ledger {
    tables: Mutex<Tables>,
    handled: watch::Sender<u32>,
}

#[derive(Default)]
struct Tables {
    /// The events of each customer, in the order in which they were applied.
    applied: BTreeMap<u32, Vec<u32>>,
    /// Events that failed once.
    failed: BTreeSet<(u32, u32)>,
    /// Customers for whom a handler applies an event.
    busy: BTreeSet<u32>,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "memory:".to_owned());
    let queue = open(&url).await?;
    let ledger = Arc::new(Ledger { tables: Mutex::default(), handled: watch::Sender::new(0) });

    let mut workers = JoinSet::new();
    for number in 0..WORKERS {
        let builder = Worker::builder(queue.clone()).concurrency(4);
        let worker = builder.consumer(format!("worker-{number}")).build()?;
        let mut handled = ledger.handled.subscribe();
        let all = async move { drop(handled.wait_for(|&it| it == CUSTOMERS * EVENTS).await) };
        let ledger = Arc::clone(&ledger);
        workers.spawn(worker.run_until(all, move |job| handle(job, Arc::clone(&ledger))));
    }

    let mut producers = JoinSet::new();
    for customer in 0..CUSTOMERS {
        let queue = queue.clone();
        producers.spawn(async move {
            for number in 0..EVENTS {
                send(&queue, &Event { customer, number }).await?;
            }
            Ok::<(), delayline::Error>(())
        });
    }
    while let Some(produced) = producers.join_next().await {
        produced??;
    }

    let (mut acked, mut failures) = (0, 0);
    while let Some(summary) = timeout(Duration::from_secs(60), workers.join_next()).await? {
        let summary = summary?;
        acked += summary.acked;
        failures += summary.failed;
    }
    let applied = ledger.lock().applied.clone();
    for customer in 0..CUSTOMERS {
        assert!(applied[&customer].iter().copied().eq(0..EVENTS), "{:?}", applied[&customer]);
    }
    assert!(queue.check().await?.findings.is_empty());
    println!("done: {acked} events in order, {failures} failures");
    Ok(())
}

/// Opens the queue. The setting stays with it, so it is made before the first message.
async fn open(url: &str) -> Result<Queue<Event>, delayline::Error> {
    let queue = delayline::connect(url).await?.queue("example/events").await?;
    queue.set_limits(SetLimits::new().in_order(true)).await?;
    Ok(queue)
}

/// Sends an event. Its group is its customer.
async fn send(queue: &Queue<Event>, event: &Event) -> Result<(), delayline::Error> {
    let Event { customer, number } = event;
    let id = format!("customer-{customer}-event-{number}");
    let draft = queue.message(event).id(id).group(format!("customer-{customer}"));
    // Another run of this program sends the same events.
    let draft = draft.reuse_finished_id();
    let sent = draft.send().await?;
    assert!(sent.is_accepted(), "{:?}", sent.outcome);
    Ok(())
}

/// Handles one event. If it fails, the later events of its customer wait for its retry.
async fn handle(job: Job<Event>, ledger: Arc<Ledger>) -> Result<Outcome, String> {
    let event = job.payload();
    if let Err(error) = apply(&ledger, event).await {
        return Ok(Outcome::retry_in(Duration::from_millis(20), error));
    }
    ledger.handled.send_modify(|handled| *handled += 1);
    Ok(Outcome::Ack)
}

/// Applies an event.
async fn apply(ledger: &Ledger, event: &Event) -> Result<(), &'static str> {
    let Event { customer, number } = *event;
    assert!(ledger.lock().busy.insert(customer), "two handlers work for customer {customer}");
    tokio::time::sleep(Duration::from_millis(1)).await;
    let mut tables = ledger.lock();
    tables.busy.remove(&customer);
    if number % 10 == 3 && tables.failed.insert((customer, number)) {
        return Err("the first try of every tenth event fails");
    }
    tables.applied.entry(customer).or_default().push(number);
    Ok(())
}

impl Ledger {
    fn lock(&self) -> MutexGuard<'_, Tables> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
