//! Reminds shops that have uploaded nothing for a week.
//!
//! There is one reminder a shop, named after the shop. Every upload moves it to a week later (here
//! 3 s), so however often a shop uploads, the queue holds one message for it. After a reminder
//! the next upload arms a new one of the same id.
//!
//! ```sh
//! cargo run -p delayline-examples --example remind_inactive_shops
//! cargo run -p delayline-examples --example remind_inactive_shops -- redis://127.0.0.1:6379
//! ```

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use delayline::{Enqueued, Error, Job, MessageId, Outcome, Queue, Worker};
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

/// In production, a week.
const QUIET: Duration = Duration::from_secs(3);

#[derive(Serialize, Deserialize)]
struct Remind {
    shop: u32,
}

/// Stands in for the table of shops.
#[derive(Default)]
struct Shops {
    last_upload: Mutex<BTreeMap<u32, Instant>>,
    reminders: Mutex<BTreeMap<u32, u32>>,
    /// Shop 4 is being reminded: its upload comes at that very moment.
    reminding_4: Notify,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "memory:".to_owned());
    let queue: Queue<Remind> = delayline::connect(&url).await?.queue("example/reminders").await?;
    let shops: Arc<Shops> = Arc::default();

    let worker = Worker::builder(queue.clone()).build()?;
    let handle = worker.handle();
    let table = Arc::clone(&shops);
    let working = tokio::spawn(worker.run(move |job| remind(job, Arc::clone(&table))));

    for shop in [1, 2, 3, 4, 5] {
        shops.uploaded(shop);
        arm(&queue, shop).await?;
    }
    sleep(QUIET / 3).await;
    // Shop 2 is active. So is shop 3, but the process that took its upload dies before it gets to
    // the reminder. Shop 5 closes its account.
    shops.uploaded(2);
    arm(&queue, 2).await?;
    shops.uploaded(3);
    queue.cancel(id(5)?).await?;

    timeout(Duration::from_secs(60), shops.reminding_4.notified()).await?;
    shops.uploaded(4);
    arm(&queue, 4).await?;

    let expected = BTreeMap::from([(1, 1), (2, 1), (3, 1), (4, 2)]);
    timeout(Duration::from_secs(60), async {
        while *lock(&shops.reminders) != expected {
            sleep(Duration::from_millis(10)).await;
        }
    })
    .await?;
    handle.stop(Duration::from_secs(5));
    let summary = working.await?;

    assert_eq!((summary.acked, summary.failed), (5, 0));
    assert!(summary.snoozed > 0, "shop 3 was found to be active");
    let stats = queue.stats().await?;
    assert_eq!((stats.scheduled, stats.ready, stats.leased), (0, 0, 0));
    assert!(queue.check().await?.findings.is_empty());
    println!("done");
    Ok(())
}

/// Makes the one reminder of a shop due a week from now, whatever the queue knows of it. Called
/// after every upload; calling it twice does no harm.
async fn arm(queue: &Queue<Remind>, shop: u32) -> Result<(), Error> {
    let draft = queue.message(&Remind { shop }).id(id(shop)?).due_in(QUIET);
    let sent = draft.or_reschedule().send().await?;
    match sent.outcome {
        Enqueued::Created { .. } => println!("shop {shop} will be reminded"),
        // It replaces the reminder that is being sent.
        Enqueued::Following { .. } => println!("shop {shop} is being reminded just now"),
        // Its reminder has been rescheduled.
        _ => {}
    }
    Ok(())
}

/// Sends a reminder, unless the table shows a later upload.
async fn remind(job: Job<Remind>, shops: Arc<Shops>) -> Result<Outcome, &'static str> {
    let shop = job.payload().shop;
    let quiet = shops.quiet_for(shop);
    // An upload has been noted down and the reminder not moved. The queue counts whole milliseconds
    // and the table does not, so a few are not worth another round.
    if quiet + Duration::from_millis(5) < QUIET {
        println!("shop {shop} has uploaded meanwhile");
        return Ok(Outcome::Snooze(QUIET.saturating_sub(quiet)));
    }
    if shop == 4 && !lock(&shops.reminders).contains_key(&4) {
        shops.reminding_4.notify_one();
        sleep(Duration::from_millis(100)).await;
    }
    *lock(&shops.reminders).entry(shop).or_default() += 1;
    println!("shop {shop}: nothing for {} ms", quiet.as_millis());
    Ok(Outcome::Ack)
}

impl Shops {
    fn uploaded(&self, shop: u32) {
        println!("shop {shop} uploads");
        lock(&self.last_upload).insert(shop, Instant::now());
    }

    fn quiet_for(&self, shop: u32) -> Duration {
        lock(&self.last_upload).get(&shop).map_or(Duration::MAX / 2, Instant::elapsed)
    }
}

fn id(shop: u32) -> Result<MessageId, Error> {
    Ok(MessageId::new(format!("remind-shop-{shop}"))?)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
