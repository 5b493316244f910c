//! Moves the waiting entries of a hand-written delay queue into Delayline.
//!
//! The usual hand-written one is a sorted set, scored by due time, and a loop that removes due
//! entries: `ZRANGEBYSCORE`, then `ZREM`, then the work. A poller that dies after `ZREM` loses its
//! entry. The migration loses and duplicates nothing, wherever it is interrupted: each entry is
//! sent under its own id, and removed from the set once the queue has it.
//!
//! Without a server the sorted set is a map in this process.
//!
//! ```sh
//! cargo run -p delayline-examples --example replace_a_poller
//! cargo run -p delayline-examples --example replace_a_poller -- redis://127.0.0.1:6379
//! ```

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use delayline::{Job, Queue, Worker};
use redis::AsyncCommands;
use redis::aio::MultiplexedConnection;

/// How many entries are moved at a time; in production, a few hundred.
const PAGE: usize = 4;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

#[tokio::main]
async fn main() -> Result<()> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "memory:".to_owned());
    let now = seconds_since_1970();
    // Every run of the example has its own entries.
    let run = format!("{now:.6}");
    let mut old = SortedSet::open(&url, format!("example/old-poller/{run}")).await?;
    // The first three are due, the others fall due within the next second.
    for number in 0_u32..12 {
        let score = now - 1.0 + f64::from(number.saturating_sub(2)) * 0.2 + 0.001;
        old.add(&format!("{run}/job-{number}"), score).await?;
    }

    // The old way: it takes an entry out, and dies.
    let taken = old.take_due(seconds_since_1970()).await?.ok_or("nothing is due")?;
    println!("the poller has taken {taken} and died: {taken} is lost");

    // Now the pollers are stopped, and producers send to the new queue.
    let queue: Queue<String> = delayline::connect(&url).await?.queue("example/moved").await?;
    let done: Arc<Mutex<BTreeMap<String, u32>>> = Arc::default();

    // This one dies as well, after it has sent a page and before it takes the page out.
    let sent = send_page(&queue, old.first(PAGE).await?).await?;
    println!("{} entries are sent, and the move is interrupted", sent.len());
    // Meanwhile workers may be at it already: let one do the first page.
    work(&queue, &done).await?;
    assert_eq!(count(&done), PAGE);

    // A score that is no due time is an error: the entry is not delivered at once.
    for score in [f64::INFINITY, f64::NAN, 1e19] {
        assert!(send_page(&queue, vec![(format!("{run}/never"), score)]).await.is_err());
    }

    // The move is begun again. The entries of the first page are known by their ids, although they
    // are done: they are taken out of the set and not sent a second time.
    loop {
        let sent = send_page(&queue, old.first(PAGE).await?).await?;
        if sent.is_empty() {
            break;
        }
        old.remove(&sent).await?;
        println!("moved {} entries", sent.len());
    }
    work(&queue, &done).await?;

    assert_eq!(old.first(PAGE).await?, []);
    assert!(queue.check().await?.findings.is_empty());
    let done = done.lock().unwrap_or_else(PoisonError::into_inner);
    assert_eq!(done.len(), 11, "all but the one that the poller has lost");
    assert!(done.values().all(|&times| times == 1), "each once");
    assert!(!done.contains_key(&taken));
    println!("done: {} entries, each handled once", done.len());
    Ok(())
}

/// The due time of a score in seconds since 1970. A score of at most 0 is due at once.
fn due(member: &str, score: f64) -> Result<SystemTime> {
    // Negative ones are due, too. `clamp` keeps "not a number", which is an error.
    let since_1970 = Duration::try_from_secs_f64(score.clamp(0.0, f64::MAX)).ok();
    let due = since_1970.and_then(|since_1970| UNIX_EPOCH.checked_add(since_1970));
    due.ok_or_else(|| format!("the score {score} of {member} is no due time").into())
}

/// Sends entries of the set with their due times, and returns the entries that the queue has
/// accepted, now or earlier.
async fn send_page(queue: &Queue<String>, page: Vec<(String, f64)>) -> Result<Vec<String>> {
    let mut drafts = Vec::new();
    for (member, score) in &page {
        let due = due(member, *score)?;
        // The member is the id. Do not use `reuse_finished_id`: sending a member again must be a
        // duplicate, even after it was handled. If members exceed 128 bytes, use a hash.
        drafts.push(queue.message(member).id(member.as_str()).due_at(due));
    }
    let mut sent = Vec::new();
    for ((member, _), result) in page.into_iter().zip(queue.send_many(drafts).await) {
        if result?.is_conflict() {
            return Err(format!("another message is called {member}").into());
        }
        sent.push(member);
    }
    Ok(sent)
}

/// Runs a worker until the queue is empty.
async fn work(queue: &Queue<String>, done: &Arc<Mutex<BTreeMap<String, u32>>>) -> Result<()> {
    let worker = Worker::builder(queue.clone()).until_empty(true).build()?;
    let done = Arc::clone(done);
    let summary = worker.run(move |job| handle(job, Arc::clone(&done))).await;
    assert_eq!(summary.failed, 0);
    Ok(())
}

async fn handle(
    job: Job<String>,
    done: Arc<Mutex<BTreeMap<String, u32>>>,
) -> std::result::Result<(), &'static str> {
    println!("{}, {:?} late", job.payload(), job.lateness());
    let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
    *done.entry(job.into_payload()).or_default() += 1;
    Ok(())
}

fn count(done: &Mutex<BTreeMap<String, u32>>) -> usize {
    done.lock().unwrap_or_else(PoisonError::into_inner).len()
}

/// The hand-written queue: on a server, or simulated.
enum SortedSet {
    Server { connection: MultiplexedConnection, key: String },
    Simulated(BTreeMap<String, f64>),
}

impl SortedSet {
    async fn open(url: &str, key: String) -> Result<Self> {
        if url == "memory:" {
            return Ok(Self::Simulated(BTreeMap::new()));
        }
        let connection = redis::Client::open(url)?.get_multiplexed_async_connection().await?;
        Ok(Self::Server { connection, key })
    }

    async fn add(&mut self, member: &str, score: f64) -> Result<()> {
        match self {
            Self::Server { connection, key } => {
                connection.zadd::<_, _, _, ()>(&*key, member, score).await?;
            }
            Self::Simulated(entries) => {
                entries.insert(member.to_owned(), score);
            }
        }
        Ok(())
    }

    /// What a hand-written poller does once a second. Of several pollers the one whose `ZREM`
    /// answers 1 has the entry, in its memory and nowhere else.
    async fn take_due(&mut self, now: f64) -> Result<Option<String>> {
        match self {
            Self::Server { connection, key } => {
                let due: Vec<String> =
                    connection.zrangebyscore_limit(&*key, "-inf", now, 0, 1).await?;
                let Some(member) = due.into_iter().next() else { return Ok(None) };
                let removed: u32 = connection.zrem(&*key, &member).await?;
                Ok((removed == 1).then_some(member))
            }
            Self::Simulated(_) => {
                let first = self.first(1).await?.into_iter().next();
                let due = first.filter(|(_, score)| *score <= now).map(|(member, _)| member);
                if let Some(member) = &due {
                    self.remove(std::slice::from_ref(member)).await?;
                }
                Ok(due)
            }
        }
    }

    /// The entries that are due first, with their scores.
    async fn first(&mut self, count: usize) -> Result<Vec<(String, f64)>> {
        match self {
            Self::Server { connection, key } => {
                let last = isize::try_from(count)? - 1;
                Ok(connection.zrange_withscores(&*key, 0, last).await?)
            }
            Self::Simulated(entries) => {
                let mut all: Vec<_> = entries.clone().into_iter().collect();
                all.sort_by(|(_, one), (_, other)| one.total_cmp(other));
                all.truncate(count);
                Ok(all)
            }
        }
    }

    async fn remove(&mut self, members: &[String]) -> Result<()> {
        match self {
            Self::Server { connection, key } => {
                connection.zrem::<_, _, ()>(&*key, members).await?;
            }
            Self::Simulated(entries) => entries.retain(|member, _| !members.contains(member)),
        }
        Ok(())
    }
}

fn seconds_since_1970() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}
