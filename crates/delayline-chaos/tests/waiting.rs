//! Messages that wait for others while the server and all workers are killed again and again: each
//! is handled when its members have ended, never earlier, and none is lost.

#![allow(clippy::unwrap_used, clippy::panic, reason = "test code")]

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use delayline::message::Status;
use delayline::{Connection, Error, Found, Job, Outcome, Queue, Worker};
use delayline_test_server::Server;
use fastrand::Rng;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

const GALLERIES: u32 = 30;
const PHOTOS: u32 = 12;
const TORMENT: Duration = Duration::from_secs(10);
/// Checks are at most 30 s apart, and a lease may have to expire before and after.
const LATEST: Duration = Duration::from_secs(40);
const LEASE: Duration = Duration::from_millis(500);

#[derive(Clone)]
struct Play {
    photos: Queue<(u32, u32)>,
    galleries: Queue<u32>,
    handled: Arc<Mutex<BTreeSet<u32>>>,
    /// Members that had not ended when their gallery was handled.
    early: Arc<Mutex<Vec<String>>>,
}

impl Play {
    async fn new(connection: &Connection) -> Self {
        let photos = connection.queue("photos").await.unwrap();
        let galleries = connection.queue("galleries").await.unwrap();
        let (handled, early) = Default::default();
        Self { photos, galleries, handled, early }
    }

    /// Sends galleries and their photos. A call that fails is repeated.
    async fn send(self) {
        for gallery in 0..GALLERIES {
            let send = async || {
                let mut random = Rng::with_seed(u64::from(gallery));
                let photos = (0..PHOTOS).map(|photo| {
                    let due = Duration::from_millis(random.u64(..3_000));
                    self.photos.message(&(gallery, photo)).due_in(due).max_crashes(1_000)
                });
                let waiting =
                    self.galleries.message(&gallery).id(format!("g{gallery}")).max_failures(1_000);
                waiting.max_crashes(1_000).send_with_members(photos).await
            };
            while send().await.is_err() {
                sleep(Duration::from_millis(20)).await;
            }
            sleep(TORMENT / (2 * GALLERIES)).await;
        }
    }

    /// A worker for photos or for galleries, until it is killed.
    fn worker(&self, number: usize) -> JoinHandle<()> {
        let play = self.clone();
        tokio::spawn(async move {
            if number.is_multiple_of(2) {
                let worker = Worker::builder(play.photos).concurrency(4).lease(LEASE);
                let _ = worker.build().unwrap().run(photo).await;
            } else {
                let worker = Worker::builder(play.galleries.clone()).concurrency(4).lease(LEASE);
                let handler = move |job| {
                    let play = play.clone();
                    async move { play.publish(&job).await }
                };
                let _ = worker.build().unwrap().run(handler).await;
            }
        })
    }

    /// Asks the server itself how the members have ended.
    async fn publish(&self, job: &Job<u32>) -> Result<(), Error> {
        let ids = (0..PHOTOS).map(|photo| format!("g{}.{photo}", job.payload()));
        let found = self.photos.get_many(ids.clone()).await?;
        let lives = |found: &Found<_>| match found {
            Found::Finished(_) => false,
            Found::Live(message) => message.info.state.status() != Status::Dead,
            _ => true,
        };
        let early = ids.zip(found).filter(|(_, found)| lives(found)).map(|(id, _)| id);
        self.early.lock().unwrap().extend(early);
        self.handled.lock().unwrap().insert(*job.payload());
        Ok(())
    }
}

async fn photo(job: Job<(u32, u32)>) -> Result<Outcome, Error> {
    sleep(Duration::from_millis(u64::from(job.payload().0 % 3) * 10)).await;
    Ok(match job.payload().1 {
        3 => Outcome::reject("it is none"),
        5 if job.info().failures == 0 => Outcome::retry_in(Duration::from_millis(50), "not yet"),
        _ => Outcome::Ack,
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn each_is_handled_when_its_members_have_ended() {
    let server = Server::builder().append_only("always").start();
    let play = Play::new(&delayline::connect(&server.url()).await.unwrap()).await;
    let sends = tokio::spawn(play.clone().send());
    let mut random = Rng::with_seed(52);
    let mut workers: Vec<_> = (0..4).map(|number| play.worker(number)).collect();
    let begin = Instant::now();
    let mut kills = 0;
    while begin.elapsed() < TORMENT {
        sleep(Duration::from_millis(random.u64(20..200))).await;
        let number = random.usize(..5);
        if number == workers.len() {
            tokio::task::block_in_place(|| {
                server.kill();
                server.restart();
            });
            kills += 1;
        } else {
            workers[number].abort();
            workers[number] = play.worker(number);
        }
    }
    assert!(kills > 2, "the server was killed {kills} times");
    sends.await.unwrap();
    let stats = async || match play.galleries.stats().await {
        Ok(stats) => stats,
        Err(error) => panic!("the server is up: {error}"),
    };
    let acked = async || {
        while stats().await.totals.acked < u64::from(GALLERIES) {
            sleep(Duration::from_millis(50)).await;
        }
    };
    let is_in_time = timeout(LATEST, acked()).await.is_ok();
    assert!(is_in_time, "after {LATEST:?}: {:?}", stats().await);
    assert_eq!(*play.early.lock().unwrap(), [""; 0], "were not over");
    assert_eq!(play.handled.lock().unwrap().len(), GALLERIES as usize);
}
