//! The load on the queues during faults.

mod handling;
mod improvised;
mod keyed;
mod relaying;
mod working;

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use bytes::Bytes;
use delayline_core::{
    At, Check, Claim, ClaimId, ConsumerName, List, Millis, Op, Outcome, QueueBackend, QueueName,
    Reply, Settlement, Status, Timestamp, limits,
};
use delayline_fred::FredTransport;
use delayline_redis::RedisTransport;
use delayline_redis_protocol::{ConnectOptions, Keys, ScriptBackend};

pub(crate) use self::improvised::Improvised;
pub(crate) use self::relaying::{Consumer, Relaying, STREAM, entries};
pub(crate) use self::working::Working;

use crate::log::{Log, Setting};

/// A queue and all that is said to it, through both drivers.
pub(crate) struct Queue {
    pub(crate) name: QueueName,
    pub(crate) log: Arc<Log>,
    /// One client for each driver.
    pub(crate) clients: Vec<Arc<dyn QueueBackend>>,
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
}

/// How to reach a server whose answers are not waited for longer than `patience`.
pub(crate) fn options(url: &str, patience: Duration) -> Result<ConnectOptions> {
    let mut options: ConnectOptions = url.parse()?;
    options.response_timeout = patience;
    Ok(options)
}

/// Opens queues over one connection of redis-rs and one of fred.
pub(crate) async fn open(
    options: [ConnectOptions; 2],
    setting: &Arc<Setting>,
    names: &[String],
) -> Result<Vec<Queue>> {
    let [redis, fred] = options;
    let redis = Arc::new(RedisTransport::connect(&redis).await?);
    let fred = Arc::new(FredTransport::connect(&fred).await?);
    let mut queues = Vec::new();
    for name in names {
        let (name, log) = (QueueName::new(name.as_str())?, Log::new(setting));
        let redis = ScriptBackend::open(Arc::clone(&redis), name.clone(), false).await?;
        let fred = ScriptBackend::open(Arc::clone(&fred), name.clone(), false).await?;
        let [one, other] = CLIENTS;
        let clients = vec![log.recorded(one, redis), log.recorded(other, fred)];
        queues.push(Queue { name, log, clients });
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

/// Handles every message that can ever be due, and reads the rest: the end of every history.
pub(crate) async fn drain(queue: &dyn QueueBackend) -> Result<()> {
    let end = At::Fixed(Timestamp::MAX);
    queue.apply(end, &Op::Resume).await?;
    for round in 0_u64.. {
        let mut token = [0xd7; ClaimId::BYTES];
        token[..8].copy_from_slice(&round.to_be_bytes());
        let claim = Claim::new(
            ConsumerName::new("drain")?,
            ClaimId::from_bytes(token),
            limits::MAX_BATCH,
            Millis::saturating(60_000),
        );
        let applied = queue.apply(end, &Op::Claim(claim)).await?;
        let Reply::Claim(claimed) = applied.reply else { bail!("a claim was not answered as one") };
        let ack = |delivery: &delayline_core::Delivery| {
            Settlement::new(delivery.message.info.id.clone(), delivery.lease, Outcome::Ack)
        };
        let acks: Vec<_> = claimed.deliveries.iter().map(ack).collect();
        if !acks.is_empty() {
            queue.apply(end, &Op::Settle(acks)).await?;
        } else if !claimed.more {
            break;
        }
    }
    let limit = limits::MAX_PAGE;
    let mut after = None;
    loop {
        let list = Op::List(List::new(Status::Dead, limit).after(after));
        match queue.apply(end, &list).await?.reply {
            Reply::List(page) if page.next.is_some() => after = page.next,
            _ => break,
        }
    }
    after = None;
    loop {
        match queue.apply(end, &Op::Check(Check::new(limit).after(after))).await?.reply {
            Reply::Check(checked) if checked.next.is_some() => after = checked.next,
            _ => break,
        }
    }
    queue.apply(end, &Op::Stats).await?;
    Ok(())
}

/// The drivers. Each has a separate connection, as a process would have.
pub(crate) const CLIENTS: [&str; 2] = ["redis-rs", "fred"];
const LONGEST_FINISH: Duration = Duration::from_secs(60);
