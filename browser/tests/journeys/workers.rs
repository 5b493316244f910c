//! Who works: from the overview to a process and the message that it holds.

use std::sync::Arc;
use std::time::{Duration, Instant};

use delayline::{Bytes, Job, Worker};
use delayline_browser::{Settings, Site, with_browser};
use delayline_web::{Access, Dashboard, Role};
use tokio::sync::{Semaphore, mpsc};

use crate::support::{both, open, send};

/// Finds the process that holds a message, and sees it let go.
async fn journey(settings: Settings) {
    let scripts = settings.scripts;
    let connection = delayline::connect("memory:").await.unwrap();
    let orders = open(&connection).await;
    let dashboard = Dashboard::new(Access::everyone(Role::Operator)).queue(orders.clone());
    let site = Site::of(dashboard.workers(connection)).await.unwrap();
    for number in 0..5 {
        send(&orders, &format!("order-{number}"), Duration::ZERO).await;
    }
    let release = Arc::new(Semaphore::new(0));
    let (start, mut started) = mpsc::unbounded_channel();
    let of_handlers = Arc::clone(&release);
    let worker = Worker::builder(orders.clone()).concurrency(8).build().unwrap();
    let handle = worker.handle();
    let run = tokio::spawn(worker.run(move |_: Job<Bytes>| {
        let (start, release) = (start.clone(), Arc::clone(&of_handlers));
        async move {
            start.send(()).unwrap();
            release.acquire().await.unwrap().forget();
            Ok::<(), std::io::Error>(())
        }
    }));
    for _ in 0..5 {
        started.recv().await.unwrap();
    }
    with_browser(settings, async |page| {
        page.open(&site.at("queues")).await?;
        page.click("Workers").await?;
        page.says(&format!("process {}", std::process::id())).await?;
        page.says("orders (8)").await?;
        page.says("2 more").await?;
        page.click("order-0").await?;
        page.says("With workers").await?;
        page.click("Workers").await?;
        release.add_permits(5);
        handle.stop(Duration::from_secs(30));
        run.await?;
        // The list may be a second old, and only a page with scripts keeps up.
        let begin = Instant::now();
        while !scripts && !page.text().await?.contains(NONE) && begin.elapsed() < PATIENCE {
            page.open(&site.at("workers")).await?;
        }
        page.says(NONE).await?;
        assert_eq!(page.faults().await?, Vec::<String>::new());
        Ok(())
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn workers_are_found_and_leave() {
    for settings in both() {
        journey(settings).await;
    }
}

const NONE: &str = "No process has workers";

/// How long the list may take to show that a process has left.
const PATIENCE: Duration = Duration::from_secs(30);
