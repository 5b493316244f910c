//! A server whose clock is set, by years, while a worker is at work, over every driver of this
//! build.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use delayline::{Connect, Job, Queue, RedisClient, Worker};
use delayline_test_server::Server;
use tokio::sync::mpsc;
use tokio::time::timeout;

const DRIVERS: &[RedisClient] = &[
    #[cfg(feature = "redis")]
    RedisClient::Redis,
    #[cfg(feature = "fred")]
    RedisClient::Fred,
];

const SECOND: i64 = 1_000;
const YEAR: i64 = 365 * 86_400 * SECOND;

/// The handled messages, in order, with their epochs.
type Handled = mpsc::UnboundedReceiver<(u64, u64)>;

async fn next(handled: &mut Handled) -> (u64, u64) {
    timeout(Duration::from_secs(60), handled.recv()).await.expect("nothing comes").unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_whose_clock_jumps_by_years_loses_nothing() {
    for driver in DRIVERS {
        jumps(*driver).await;
    }
}

async fn jumps(driver: RedisClient) {
    let server = Server::builder().own_clock().start();
    let connect = Connect::new(&server.url()).unwrap().client(driver);
    let connection = connect.connect().await.unwrap();
    let queue: Queue<u64> = connection.queue("numbers").await.unwrap();
    let (sender, mut handled) = mpsc::unbounded_channel();
    let running = Arc::new(Mutex::new(BTreeMap::<u64, u32>::new()));
    let worker = Worker::builder(queue.clone()).concurrency(4).build().unwrap();
    let handle = worker.handle();
    let at_once = Arc::clone(&running);
    let worker = tokio::spawn(worker.run(move |job: Job<u64>| {
        let (sender, running) = (sender.clone(), Arc::clone(&at_once));
        async move {
            *running.lock().unwrap().entry(*job.payload()).or_default() += 1;
            sender.send((*job.payload(), job.epoch())).unwrap();
            Ok::<(), &str>(())
        }
    }));
    let machine = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    let now = i64::try_from(machine.as_millis()).unwrap();
    let (to_1970, to_2100) = (86_400 * SECOND - now, 4_102_444_800 * SECOND - now);

    // Due long after all that follows here, unless a clock is ahead.
    queue.send_in(&1_000, Duration::from_secs(3_600)).await.unwrap();
    let mut sent = 0;
    let steps = [0, SECOND, -SECOND, -YEAR, to_1970, 0, YEAR, to_2100, -YEAR, to_1970, 0];
    for step in steps {
        server.set_clock_step(step);
        for delay in [0, 0, 30, 150] {
            queue.send_in(&sent, Duration::from_millis(delay)).await.unwrap();
            sent += 1;
        }
        for _ in 0..4 {
            let (mut n, mut epoch) = next(&mut handled).await;
            // The first clock that is ahead of it brings the distant one.
            if n == 1_000 {
                assert!(step >= YEAR, "{driver:?}: an hour early, at the step {step}");
                (n, epoch) = next(&mut handled).await;
            }
            assert!(n < sent, "{driver:?}: {n} at the step {step}");
            assert_eq!(epoch, 1, "{driver:?}: {n} was leased before, at the step {step}");
        }
        // A step forward would end the leases of messages that are not settled yet (G19).
        timeout(Duration::from_secs(60), async {
            while queue.stats().await.unwrap().leased > 0 {}
        })
        .await
        .expect("something is never settled");
    }
    handle.stop(Duration::from_secs(1));
    worker.await.unwrap();
    let counts = running.lock().unwrap().clone();
    assert_eq!(counts.len() as u64, sent + 1, "{driver:?}");
    assert!(counts.values().all(|count| *count == 1), "{driver:?}: {counts:?}");
    assert!(queue.check().await.unwrap().findings.is_empty());
    assert_eq!(queue.stats().await.unwrap().totals.acked, sent + 1);
}
