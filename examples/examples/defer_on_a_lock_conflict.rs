//! Defers work while another process holds the lock that it needs.
//!
//! Bookings change accounts, and an account is changed under its lock. A handler that finds the
//! lock taken does not wait for it and does not fail: it snoozes the message. The slot is free for
//! other work, and nothing is counted as a failure.
//!
//! ```sh
//! cargo run -p delayline-examples --example defer_on_a_lock_conflict
//! cargo run -p delayline-examples --example defer_on_a_lock_conflict -- redis://127.0.0.1:6379
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use delayline::{Job, Outcome, Queue, Worker};
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

/// How soon to retry if the lock is held; in production, a few seconds.
const AGAIN: Duration = Duration::from_millis(100);

/// The delivery at which a booking is given up.
const MOST_DELIVERIES: u64 = 500;

#[derive(Serialize, Deserialize)]
struct Booking {
    account: u32,
    cents: u64,
}

/// Stands in for a database. An account may be changed only under its lock.
#[derive(Default)]
struct Ledger {
    locked: Mutex<BTreeSet<u32>>,
    /// An account was found to be locked.
    met: Notify,
    /// Account and cents, by booking id.
    bookings: Mutex<BTreeMap<String, (u32, u64)>>,
}

/// A lock on an account, released when dropped.
struct Locked {
    ledger: Arc<Ledger>,
    account: u32,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "memory:".to_owned());
    let queue: Queue<Booking> = delayline::connect(&url).await?.queue("example/bookings").await?;
    let ledger: Arc<Ledger> = Arc::default();

    for number in 0..12 {
        let booking = Booking { account: number % 3, cents: 100 };
        // The first failure would make it a dead letter, so any failure shows.
        let sent = queue.message(&booking).max_failures(1).send().await?;
        assert!(sent.is_accepted());
    }

    // A report locks account 0 while the bookings fall due, until some have met the lock.
    let report = ledger.try_lock(0).ok_or("account 0 is free")?;
    let conflict = Arc::clone(&ledger);
    tokio::spawn(async move {
        println!("a report has locked account 0");
        conflict.met.notified().await;
        tokio::time::sleep(Duration::from_millis(300)).await;
        drop(report);
        println!("the report is written");
    });

    let worker = Worker::builder(queue.clone()).concurrency(4).until_empty(true).build()?;
    let accounts = Arc::clone(&ledger);
    let summary = worker.run(move |job| book(job, Arc::clone(&accounts))).await;

    assert_eq!((summary.acked, summary.failed, summary.dead), (12, 0, 0));
    assert!(summary.snoozed > 0, "the four bookings of account 0 had to wait");
    for account in 0..3 {
        assert_eq!(ledger.balance(account), 400);
    }
    assert!(queue.check().await?.findings.is_empty());
    println!("done: {} bookings, put off {} times", summary.acked, summary.snoozed);
    Ok(())
}

/// Books the amount, or snoozes the message if the account is locked.
async fn book(job: Job<Booking>, ledger: Arc<Ledger>) -> Result<Outcome, &'static str> {
    let &Booking { account, cents } = job.payload();
    let Some(_locked) = ledger.try_lock(account) else {
        // Snoozes are not counted, and so not limited. The epoch counts the deliveries.
        if job.epoch() >= MOST_DELIVERIES {
            return Ok(Outcome::reject("the account is never free"));
        }
        println!("account {account} is locked, at delivery {}", job.epoch());
        return Ok(Outcome::Snooze(AGAIN));
    };
    assert_eq!(job.failures(), 0, "a snooze is no failure");
    // The work takes its time, under the lock.
    tokio::time::sleep(Duration::from_millis(20)).await;
    ledger.book(job.id().to_string(), account, cents);
    println!("account {account}: booked at delivery {}", job.epoch());
    Ok(Outcome::Ack)
}

impl Ledger {
    fn try_lock(self: &Arc<Self>, account: u32) -> Option<Locked> {
        let free = lock(&self.locked).insert(account);
        if !free {
            self.met.notify_one();
        }
        free.then(|| Locked { ledger: Arc::clone(self), account })
    }

    /// Idempotent by id: if a worker dies before its ack, the redelivery books nothing more.
    fn book(&self, id: String, account: u32, cents: u64) {
        lock(&self.bookings).entry(id).or_insert((account, cents));
    }

    fn balance(&self, account: u32) -> u64 {
        let bookings = lock(&self.bookings);
        bookings.values().filter(|(its, _)| *its == account).map(|(_, cents)| cents).sum()
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        lock(&self.ledger.locked).remove(&self.account);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
