//! The load on the queues during faults.

mod handling;
mod improvised;
mod keyed;
mod relaying;
mod versions;
mod working;

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use bytes::Bytes;
use delayline_core::{QueueBackend, QueueName};
use delayline_fred::FredTransport;
use delayline_redis::RedisTransport;
use delayline_redis_protocol::{ConnectOptions, Keys, ScriptBackend, Transport};

pub(crate) use self::improvised::Improvised;
pub(crate) use self::relaying::{Relaying, STREAM, entries};
pub(crate) use self::versions::judge as judge_versions;
use self::versions::{Feature, Later};
pub(crate) use self::working::Working;

use crate::log::{Log, Setting};

/// A queue and all that is said to it, through both drivers.
pub(crate) struct Queue {
    pub(crate) name: QueueName,
    pub(crate) log: Arc<Log>,
    /// One client for each driver, that of the later version first.
    pub(crate) clients: Vec<Arc<dyn QueueBackend>>,
    /// The client of this version, if a later one begins to use what this one does not know.
    pub(crate) outdated: Option<&'static str>,
}

/// A queue of bytes, as programs have it.
type Bare = delayline::Queue<Bytes, delayline::codec::Raw>;

impl Queue {
    fn bare(&self) -> Vec<Bare> {
        let open = |client| delayline::Queue::new(Arc::clone(client)).codec(delayline::codec::Raw);
        self.clients.iter().map(open).collect()
    }

    /// The key of its control record.
    pub(crate) fn control_key(&self) -> Vec<u8> {
        self.keys().first().cloned().unwrap_or_default()
    }

    pub(crate) fn keys(&self) -> Vec<Vec<u8>> {
        Keys::new(&self.name).all().iter().map(|key| key.to_vec()).collect()
    }

    /// Waits until the queue answers each client again after the end of a fault, and returns when
    /// it did.
    pub(crate) async fn recover(&self, healed: Duration) -> Result<Duration> {
        loop {
            if let Some(answered) = self.answers_all(healed) {
                return Ok(answered);
            }
            if self.log.setting().elapsed() - healed > LONGEST_HEALING {
                let name = &self.name;
                bail!("G21: queue {name} does not answer every client {LONGEST_HEALING:?} later");
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// When each client had an answer to a call that it has made since an instant. A version that
    /// is refused need not have one.
    fn answers_all(&self, since: Duration) -> Option<Duration> {
        let mut clients = CLIENTS.iter().filter(|client| self.outdated != Some(**client));
        clients.try_fold(since, |latest, client| {
            let answer = self.log.first_answer(client, |entry| entry.called >= since);
            answer.map(|answer| latest.max(answer))
        })
    }
}

/// How to reach a server whose answers are not waited for longer than `patience`.
pub(crate) fn options(url: &str, patience: Duration) -> Result<ConnectOptions> {
    let mut options: ConnectOptions = url.parse()?;
    options.response_timeout = patience;
    Ok(options)
}

/// Opens queues over one connection of redis-rs and one of fred. One of them, which is left to
/// chance, is that of a [later](versions) version, whose feature comes to the queue [`WORKING`].
pub(crate) async fn open(
    options: [ConnectOptions; 2],
    setting: &Arc<Setting>,
    names: &[String],
    chance: &mut fastrand::Rng,
) -> Result<Vec<Queue>> {
    let [redis, fred] = options;
    let redis: Arc<dyn Transport> = Arc::new(RedisTransport::connect(&redis).await?);
    let fred: Arc<dyn Transport> = Arc::new(FredTransport::connect(&fred).await?);
    let mut transports = [(CLIENTS[0], redis), (CLIENTS[1], fred)];
    chance.shuffle(&mut transports);
    let [(later_client, later), (client, this)] = transports;
    let mut queues = Vec::new();
    for name in names {
        let feature = if name == WORKING { Feature::ComesWithLimits } else { Feature::Unused };
        let (name, log) = (QueueName::new(name.as_str())?, Log::new(setting));
        let later = Later::over(Arc::clone(&later), feature);
        let later = ScriptBackend::open(later, name.clone(), false).await?;
        let this = ScriptBackend::open(Arc::clone(&this), name.clone(), false).await?;
        let clients = vec![log.recorded(later_client, later), log.recorded(client, this)];
        let outdated = (feature == Feature::ComesWithLimits).then_some(client);
        queues.push(Queue { name, log, clients, outdated });
    }
    Ok(queues)
}

/// Waits until all that was sent has come to an end.
async fn until_empty(queue: &Bare) -> Result<()> {
    let deadline = Instant::now() + LONGEST_FINISH;
    loop {
        let stats = queue.stats().await?;
        if stats.scheduled + stats.ready + stats.leased == 0 {
            return Ok(());
        }
        if Instant::now() > deadline {
            bail!("G21: {LONGEST_FINISH:?} after all faults were over there is {stats:?}");
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// The queue of a single server that has workers and operators.
pub(crate) const WORKING: &str = "working";
/// The drivers. Each has a separate connection, as a process would have.
pub(crate) const CLIENTS: [&str; 2] = ["redis-rs", "fred"];
const LONGEST_FINISH: Duration = Duration::from_secs(60);
/// How soon clients must be back after a fault (G21). They are much sooner; the rest is for a busy
/// machine.
pub(crate) const LONGEST_HEALING: Duration = Duration::from_secs(20);

#[cfg(test)]
mod tests {
    use delayline_core::{Applied, At, Op, Reply, Timestamp};

    use super::*;
    use crate::log::{Entry, Outcome};

    #[test]
    fn a_queue_has_recovered_when_it_answers_a_new_call_of_each_client() {
        let (name, log) = (QueueName::new("q").unwrap(), Log::new(&Setting::new(false)));
        let mut queue = Queue { name, log, clients: Vec::new(), outdated: None };
        let ms = Duration::from_millis;
        let answer = |queue: &Queue, client, called| {
            let reply = Reply::Pause { changed: true };
            queue.log.entries().push(Entry {
                client,
                era: 0,
                called: ms(called),
                returned: Some(ms(called + 10)),
                at: At::Server,
                op: Op::Pause,
                outcome: Outcome::Answered(Applied::new(Timestamp::MIN, 1, reply)),
            });
        };
        answer(&queue, CLIENTS[0], 12);
        answer(&queue, CLIENTS[1], 9);
        assert_eq!(queue.answers_all(ms(10)), None, "one has called before, and the other since");
        queue.outdated = Some(CLIENTS[1]);
        assert_eq!(queue.answers_all(ms(10)), Some(ms(22)));
        queue.outdated = None;
        answer(&queue, CLIENTS[1], 15);
        assert_eq!(queue.answers_all(ms(10)), Some(ms(25)));
    }
}
