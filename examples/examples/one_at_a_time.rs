//! Handles the events of each customer one at a time, in order; customers concurrently.
//!
//! The events stand in a table of the program, in the order in which they happened. A message says
//! only that a customer has events, and its id is the customer. So a customer has at most one
//! message, and no two handlers work for one customer at once, whatever the number of workers.
//!
//! ```sh
//! cargo run -p delayline-examples --example one_at_a_time
//! cargo run -p delayline-examples --example one_at_a_time -- redis://127.0.0.1:6379
//! ```

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use delayline::{Job, Outcome, Queue, Worker};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;

const CUSTOMERS: u32 = 6;
const EVENTS: u32 = 40;
const WORKERS: u32 = 3;
/// Maximum number of events per delivery. Then other customers have their turn.
const TURN: usize = 10;

/// Stands in for two tables: the events to handle, and what the handlers did.
struct Inbox {
    tables: Mutex<Tables>,
    handled: watch::Sender<u32>,
}

#[derive(Default)]
struct Tables {
    events: BTreeMap<u32, VecDeque<u32>>,
    ledger: BTreeMap<u32, Vec<u32>>,
    /// Events that failed once.
    failed: BTreeSet<(u32, u32)>,
    /// Customers for whom a handler applies an event.
    busy: BTreeSet<u32>,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "memory:".to_owned());
    let queue: Queue<u32> = delayline::connect(&url).await?.queue("example/customers").await?;
    let inbox = Inbox { tables: Mutex::default(), handled: watch::Sender::new(0) };
    let inbox = Arc::new(inbox);

    let mut workers = JoinSet::new();
    for number in 0..WORKERS {
        let builder = Worker::builder(queue.clone()).concurrency(4);
        let worker = builder.consumer(format!("worker-{number}")).build()?;
        let mut handled = inbox.handled.subscribe();
        let all = async move { drop(handled.wait_for(|&it| it == CUSTOMERS * EVENTS).await) };
        let tables = Arc::clone(&inbox);
        workers.spawn(worker.run_until(all, move |job| handle(job, Arc::clone(&tables))));
    }

    let mut producers = JoinSet::new();
    for customer in 0..CUSTOMERS {
        producers.spawn(produce(queue.clone(), Arc::clone(&inbox), customer));
    }
    while let Some(produced) = producers.join_next().await {
        produced??;
    }

    let (mut deliveries, mut failures) = (0, 0);
    while let Some(summary) = timeout(Duration::from_secs(60), workers.join_next()).await? {
        let summary = summary?;
        deliveries += summary.acked + summary.snoozed + summary.failed;
        failures += summary.failed;
    }
    let ledger = inbox.lock().ledger.clone();
    for customer in 0..CUSTOMERS {
        assert!(ledger[&customer].iter().copied().eq(0..EVENTS), "{:?}", ledger[&customer]);
    }
    assert!(queue.check().await?.findings.is_empty());
    let events = CUSTOMERS * EVENTS;
    println!("done: {events} events in order, {deliveries} deliveries, {failures} failures");
    Ok(())
}

/// Each event happens: it is stored first, then its customer's message is sent.
async fn produce(
    queue: Queue<u32>,
    inbox: Arc<Inbox>,
    customer: u32,
) -> Result<(), delayline::Error> {
    for event in 0..EVENTS {
        inbox.lock().events.entry(customer).or_default().push_back(event);
        wake(&queue, customer).await?;
    }
    Ok(())
}

/// Says that a customer has events. One message for all of them is enough.
async fn wake(queue: &Queue<u32>, customer: u32) -> Result<(), delayline::Error> {
    let id = format!("customer-{customer}");
    let sent = queue.message(&customer).id(id).coalesce().send().await?;
    // The message is new, is already waiting, or follows the message that a handler has.
    assert!(sent.is_accepted(), "{:?}", sent.outcome);
    Ok(())
}

/// Handles the events of one customer in order. A failed event stays the first.
async fn handle(job: Job<u32>, inbox: Arc<Inbox>) -> Result<Outcome, String> {
    let customer = *job.payload();
    for _ in 0..TURN {
        let Some(event) = inbox.first(customer) else { return Ok(Outcome::Ack) };
        if let Err(error) = apply(&inbox, customer, event).await {
            return Ok(Outcome::retry_in(Duration::from_millis(20), error));
        }
        inbox.remove_first(customer);
    }
    // More may be left. Messages of other customers that are already due are delivered first.
    Ok(Outcome::Snooze(Duration::from_millis(1)))
}

/// Applies an event. In SQL, this and the removal of the event are one transaction.
async fn apply(inbox: &Inbox, customer: u32, event: u32) -> Result<(), &'static str> {
    assert!(inbox.lock().busy.insert(customer), "two handlers work for customer {customer}");
    tokio::time::sleep(Duration::from_millis(1)).await;
    let mut tables = inbox.lock();
    tables.busy.remove(&customer);
    if event % 10 == 3 && tables.failed.insert((customer, event)) {
        return Err("the first try of every tenth event fails");
    }
    tables.ledger.entry(customer).or_default().push(event);
    Ok(())
}

impl Inbox {
    fn lock(&self) -> MutexGuard<'_, Tables> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The first event of a customer that is not handled yet.
    fn first(&self, customer: u32) -> Option<u32> {
        self.lock().events.get(&customer)?.front().copied()
    }

    fn remove_first(&self, customer: u32) {
        self.lock().events.entry(customer).or_default().pop_front();
        self.handled.send_modify(|handled| *handled += 1);
    }
}
