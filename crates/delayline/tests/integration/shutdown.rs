//! Signals that stop a worker. A separate program: signals reach the whole process.

use std::process::{self, Command};
use std::sync::Arc;
use std::time::Duration;

use delayline::{Job, Queue, Worker, shutdown_signal};
use tokio::sync::Notify;
use tokio::time::timeout;

fn send(signal: &str) {
    let process = process::id().to_string();
    assert!(Command::new("kill").args([signal, &process]).status().unwrap().success());
}

#[tokio::test(flavor = "multi_thread")]
async fn each_signal_stops_the_worker_and_lets_its_handler_finish() {
    for signal in ["-TERM", "-INT"] {
        let queue: Queue<u32> =
            delayline::connect("memory:").await.unwrap().queue("orders").await.unwrap();
        queue.send(&1).await.unwrap();
        let (started, finish) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let (began, may_end) = (Arc::clone(&started), Arc::clone(&finish));
        let worker = Worker::builder(queue.clone()).concurrency(1).build().unwrap();
        // Another one that waits for signals, and one that gave up.
        let other = shutdown_signal();
        drop(shutdown_signal());
        let running = tokio::spawn(worker.run_until(shutdown_signal(), move |_: Job<u32>| {
            let (began, may_end) = (Arc::clone(&began), Arc::clone(&may_end));
            async move {
                began.notify_one();
                may_end.notified().await;
                Ok::<_, std::io::Error>(())
            }
        }));
        started.notified().await;
        send(signal);
        // It was not polled before the signal.
        timeout(Duration::from_secs(60), other).await.unwrap();
        assert!(!running.is_finished(), "the handler still runs");
        finish.notify_one();
        let summary = timeout(Duration::from_secs(60), running).await.unwrap().unwrap();
        assert_eq!((summary.acked, summary.failed), (1, 0), "{signal}: {summary:?}");
        let stats = queue.stats().await.unwrap();
        assert_eq!((stats.leased, stats.ready), (0, 0), "{signal}");
    }
}
