//! A queue whose messages all go to a stream.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use delayline_core::{Destination, DestinationKey};
use delayline_test_server::Server;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::{Bare, Queue, handling, until_empty};
use crate::evidence::{EntryId, entry_id};

/// The destination on a single server.
pub(crate) const STREAM: &str = "relayed";

/// Which tasks are still running.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    /// Producers and relays.
    Sending,
    /// Only relays.
    Relaying,
    /// None.
    Ended,
}

/// Producers and relays, until they are stopped.
pub(crate) struct Relaying {
    queue: Bare,
    producers: JoinSet<()>,
    relays: JoinSet<Result<()>>,
    stage: watch::Sender<Stage>,
}

impl Relaying {
    /// Relays to the stream `key`.
    pub(crate) fn start(queue: &Queue, key: &str, chance: &mut fastrand::Rng) -> Result<Self> {
        let to = Destination::Stream { key: DestinationKey::try_from(key)?, backlog: None };
        let stage = watch::Sender::new(Stage::Sending);
        let (mut producers, mut relays) = (JoinSet::new(), JoinSet::new());
        let queues = queue.bare();
        for (number, queue) in queues.iter().enumerate() {
            producers.spawn(produce(queue.clone(), number, chance.fork(), stage.subscribe()));
            relays.spawn(relay(queue.clone(), to.clone(), stage.subscribe()));
        }
        let queue = queues.into_iter().next().context("a queue has clients")?;
        Ok(Self { queue, producers, relays, stage })
    }

    /// Stops the producers, waits until all messages are relayed, and stops the relays.
    pub(crate) async fn finish(self) -> Result<()> {
        self.stage.send_replace(Stage::Relaying);
        self.producers.join_all().await;
        until_empty(&self.queue).await?;
        self.stage.send_replace(Stage::Ended);
        self.relays.join_all().await.into_iter().collect()
    }
}

async fn produce(
    queue: Bare,
    number: usize,
    mut chance: fastrand::Rng,
    stage: watch::Receiver<Stage>,
) {
    let mut sent = 0;
    while *stage.borrow() == Stage::Sending {
        let delay = Duration::from_millis(chance.u64(..200));
        let id = format!("r{number}.{sent}");
        let draft = queue.message(&handling::payload(chance.u64(..))).id(&*id).due_in(delay);
        sent += 1;
        // By its id it can be sent again, whatever became of it.
        while draft.clone().send().await.is_err() && *stage.borrow() == Stage::Sending {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        tokio::time::sleep(Duration::from_millis(chance.u64(..20))).await;
    }
}

async fn relay(queue: Bare, to: Destination, stage: watch::Receiver<Stage>) -> Result<()> {
    while *stage.borrow() < Stage::Ended {
        let mut stop = stage.clone();
        let stop = async move { drop(stop.wait_for(|stage| *stage == Stage::Ended).await) };
        // It ends when it is refused, too: where the stream should be, there may be something else.
        match queue.relay(to.clone()).batch(BATCH).run_until(stop).await {
            Ok(_) => ensure!(*stage.borrow() == Stage::Ended, "G28: a relay ended by itself"),
            Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    }
    Ok(())
}

/// The next entries of a stream, each with its fields and their values.
pub(crate) fn entries(
    server: &Server,
    stream: &str,
    after: EntryId,
) -> Result<Vec<(EntryId, Vec<Vec<u8>>)>> {
    let from = format!("({}-{}", after.0, after.1);
    let reply = server.try_command(&["XRANGE", stream, &from, "+", "COUNT", "100"])?;
    let entries: Vec<(Vec<u8>, Vec<Vec<u8>>)> = redis::from_redis_value(reply)?;
    let entry =
        |(place, words): (Vec<u8>, _)| Ok((entry_id(&place).context("an entry has an id")?, words));
    entries.into_iter().map(entry).collect()
}

/// Fewer than are due after an outage.
const BATCH: usize = 10;
