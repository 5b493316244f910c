//! Payloads, header values and passwords are in no log line, span, metric, error or `Debug` output.
//! One test, because the listener is installed for the whole process.

#![cfg(feature = "json")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "test code")]

use std::fmt::Debug;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use delayline::admin::Listed;
use delayline::worker::Undecodable;
use delayline::{Connect, Job, Outcome, Queue, RedisClient, Worker};
use delayline_test_server::Server;
use metrics_util::debugging::DebuggingRecorder;
use tracing_subscriber::fmt::format::FmtSpan;
use tracing_subscriber::util::SubscriberInitExt;

const SECRET: &str = "canary";

const DRIVERS: &[RedisClient] = &[
    #[cfg(feature = "redis")]
    RedisClient::Redis,
    #[cfg(feature = "fred")]
    RedisClient::Fred,
];

/// All that was written anywhere.
#[derive(Clone, Default)]
struct Heard(Arc<Mutex<Vec<u8>>>);

impl io::Write for Heard {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Heard {
    /// What a program could print.
    fn shown(&self, value: impl Debug) {
        let text = format!("{value:?}\n{value:#?}\n");
        self.0.lock().unwrap().extend_from_slice(text.as_bytes());
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().unwrap()).into_owned()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn secrets_are_told_nowhere() {
    let heard = Heard::default();
    let writer = heard.clone();
    // With what drivers tell by the `log` crate.
    tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_span_events(FmtSpan::FULL)
        .with_ansi(false)
        .with_writer(move || writer.clone())
        .finish()
        .init();
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    recorder.install().unwrap();

    used(&heard, Connect::new("memory:").unwrap()).await;
    for &driver in DRIVERS {
        let password = format!("{SECRET}-password");
        let server = Server::builder().tcp().password(&password).start();
        let connect = |password: &str| {
            let url = server.url_with_login("", password);
            Connect::new(&url).unwrap().client(driver)
        };
        heard.shown(connect(&format!("{SECRET}-wrong")).connect().await.unwrap_err());
        used(&heard, connect(&password)).await;
        let connection = connect(&password).connect().await.unwrap();
        let queue: Queue<String> = connection.queue("secrets").await.unwrap();
        server.command(&["CONFIG", "SET", "maxmemory", "1"]);
        let full = queue.clone().patience(Duration::ZERO);
        heard.shown(full.send(&format!("{SECRET}-payload")).await.unwrap_err());
        server.kill();
        heard.shown(full.send(&format!("{SECRET}-payload")).await.unwrap_err());
    }
    for text in ["hunter2", SECRET] {
        for url in [format!("http://a:{text}@b"), format!("redis://a:{text}@b:c/d"), text.into()] {
            heard.shown(Connect::new(&url).unwrap_err());
        }
    }
    for (key, unit, text, value) in snapshotter.snapshot().into_vec() {
        heard.shown((key, unit, text, value));
    }

    let text = heard.text();
    // It was listening: to spans and events of ours, to a driver, and to metrics.
    for told in ["delayline::telemetry", "shop-9", "messaging.message.id", "attempt 1 failed"] {
        assert!(text.contains(told), "{told}");
    }
    if cfg!(feature = "metrics") {
        assert!(text.contains("delayline_enqueued_total"));
    }
    if cfg!(feature = "fred") {
        assert!(text.contains(" fred::"), "no driver was heard");
    }
    let lines: Vec<_> =
        text.lines().filter(|line| line.contains(SECRET) || line.contains("hunter2")).collect();
    assert!(lines.is_empty(), "{} lines, such as {:?}", lines.len(), lines.first());
}

/// Sends, handles and looks at messages in every way.
async fn used(heard: &Heard, connect: Connect) {
    heard.shown(&connect);
    heard.shown(connect.to_string());
    let connection = connect.connect().await.unwrap();
    heard.shown(&connection);
    let queue: Queue<String> = connection.queue("secrets").await.unwrap();
    let payload = format!("{SECRET}-payload");
    let draft = queue.message(&payload).id("shop-9");
    let draft = draft.header("token", format!("{SECRET}-header")).max_failures(2);
    heard.shown(&draft);
    heard.shown(draft.clone().send().await.unwrap());
    heard.shown(draft.header("token", "another").send().await.unwrap());
    let drafts = (0..10).map(|_| queue.message(&payload));
    heard.shown(queue.send_many(drafts).await);
    heard.shown(futures_util::future::join_all((0..10).map(|_| queue.send(&payload))).await);
    heard.shown(queue.get("shop-9").await.unwrap());
    heard.shown(&queue);

    // Numbers are expected, and there are texts: an error of the decoder could quote them.
    let numbers: Queue<u64> = connection.queue("secrets").await.unwrap();
    let handler = async |_: Job<u64>| Ok::<_, &str>(Outcome::Ack);
    let some = numbers.message(&1).id("number").send().await.unwrap();
    heard.shown(&some);
    let worker = Worker::builder(numbers).until_empty(true).on_undecodable(Undecodable::Reject);
    let worker = worker.build().unwrap();
    heard.shown(&worker);
    let summary = worker.run(handler).await;
    assert_eq!((summary.rejected, summary.acked), (21, 1));
    let mut dead = queue.list(Listed::Dead);
    while let Some(page) = dead.next_page().await.unwrap() {
        heard.shown(&page);
        queue.redrive_many(page.into_iter().map(|letter| letter.id)).await.unwrap();
    }

    let shown = heard.clone();
    let worker = Worker::builder(queue.clone()).until_empty(true).lease(Duration::from_secs(1));
    let worker = worker.retry_with(|_, _| Duration::from_millis(10)).build().unwrap();
    let summary = worker.run(move |job: Job<String>| {
        shown.shown(&job);
        async move {
            match (job.id().as_str(), job.failures()) {
                (Some("shop-9"), 0) => Err("attempt 1 failed"),
                (Some("shop-9"), _) => panic!("attempt 2 panicked"),
                _ => Ok(()),
            }
        }
    });
    let summary = summary.await;
    assert_eq!((summary.acked, summary.dead), (20, 1));
    heard.shown(queue.get("shop-9").await.unwrap());
    heard.shown(queue.check().await.unwrap());
}
