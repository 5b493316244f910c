//! Recurring jobs: schedules that a program declares when it starts, two schedulers, and a worker.
//!
//! Each instant of a schedule becomes exactly one message in its target queue, however many
//! schedulers run. The program removes its schedules at the end, so that it can run again.
//!
//! ```sh
//! cargo run -p delayline-examples --example recurring_jobs
//! cargo run -p delayline-examples --example recurring_jobs -- redis://127.0.0.1:6379
//! ```

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use delayline::schedules::{Overlap, Schedules, Spec};
use delayline::{Connection, Error, Job, Queue, Worker};
use tokio::sync::Notify;

/// How long handlers may continue when their worker stops.
const GRACE: Duration = Duration::from_secs(10);

/// Declares the recurring jobs of the program: called at each start.
async fn declare(schedules: &Schedules) -> Result<(), Error> {
    // At 8:30 in Berlin, in summer and winter, from Monday to Friday.
    let report = Spec::cron("30 8 * * mon-fri", "Europe/Berlin", "example/reports")?
        .payload("sales")?
        .grace(Duration::from_secs(6 * 3_600))?;
    // Each second, unless the last one is not finished yet.
    let sync = Spec::every(Duration::from_secs(1), "example/sync")?
        .payload("stock")?
        .overlap(Overlap::Skip);
    let all = [("daily-report", report), ("sync", sync)];
    let declared = schedules.declare("shop", all).await?;
    println!("{} created, {} unchanged", declared.created, declared.unchanged);
    Ok(())
}

/// A scheduler, which can run in any number of processes. `stop` ends it with all its schedules
/// released: in most programs it is [`delayline::shutdown_signal`].
async fn run_scheduler(
    connection: Connection,
    stop: impl Future<Output = ()>,
) -> Result<(), Error> {
    let schedules = Schedules::open_named(&connection, "example/schedules").await?;
    let worker = schedules.worker().build()?;
    worker.run_until(stop, schedules.handler()).await;
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "memory:".to_owned());
    let connection = delayline::connect(&url).await?;
    let schedules = Schedules::open_named(&connection, "example/schedules").await?;

    declare(&schedules).await?;
    // The next process declares the same schedules, and changes nothing.
    declare(&schedules).await?;

    let stop_schedulers = Arc::new(Notify::new());
    let schedulers = [(); 2].map(|()| {
        let stop = Arc::clone(&stop_schedulers).notified_owned();
        tokio::spawn(run_scheduler(connection.clone(), stop))
    });

    // The jobs themselves are ordinary messages.
    let sync: Queue<String> = connection.queue("example/sync").await?;
    let seen = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&seen);
    let worker = Worker::builder(sync.clone()).build()?;
    let (stop, run) = (
        worker.handle(),
        tokio::spawn(worker.run(move |job: Job<String>| {
            println!("syncs the {} of {}", job.payload(), job.due());
            if let Ok(mut noted) = noted.lock() {
                noted.push(job.due());
            }
            async { Ok::<(), Infallible>(()) }
        })),
    );
    while seen.lock().map_or(0, |seen| seen.len()) < 3 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    stop_schedulers.notify_waiters();
    for scheduler in schedulers {
        scheduler.await??;
    }
    stop.stop(GRACE);
    run.await?;

    let seen = seen.lock().map(|seen| seen.clone()).unwrap_or_default();
    let instants: BTreeSet<_> = seen.iter().copied().collect();
    assert_eq!(seen.len(), instants.len(), "each instant once");
    assert!(instants.iter().all(|instant| instant.as_ms() % 1_000 == 0), "exactly at the second");

    for entry in schedules.list().await? {
        println!("{}: next {:?}", entry.name, entry.next.first());
    }
    // A schedule that its owner no longer declares is removed.
    let declared = schedules.declare("shop", <[(&str, Spec); 0]>::default()).await?;
    assert_eq!(declared.removed, 2);
    println!("done");
    Ok(())
}
