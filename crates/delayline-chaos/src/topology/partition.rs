//! Network faults between servers.

use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use delayline_test_server::proxy;
use delayline_test_server::{Network, Server};

use super::Stage;
use super::ground::Ground;
use super::strike::{DOUBT, LEARNED_WITHIN, Outcome};
use crate::blocking::blocking;
use crate::load::CLIENTS;
use crate::log::Entry;

impl Stage {
    /// Cuts off a primary together with a minority of the servers and one process, until the
    /// majority has replaced it and for a while after that.
    pub(super) async fn part(&mut self, victim: usize) -> Result<Outcome> {
        self.level().await?;
        let before = blocking(|| self.ground.primaries(None));
        let begin = self.setting.elapsed();
        let minority = match &self.ground {
            Ground::Cluster(_) => vec![victim],
            // The test asks the first sentinel for the primary, so that one stays with the
            // majority.
            Ground::Sentinel(sentinels) => {
                vec![victim, self.ground.all().count() - sentinels.sentinels().len() + 2]
            }
        };
        let lonely = self.chance.usize(..CLIENTS.len());
        for (process, proxies) in self.proxies.iter().enumerate() {
            for (place, proxy) in proxies.iter().enumerate() {
                if minority.contains(&place) != (process == lonely) {
                    proxy.set(proxy::Fault::Blackhole);
                }
            }
        }
        let places = self.ground.all().enumerate();
        let (these, those): (Vec<_>, Vec<_>) =
            places.partition(|(place, _)| minority.contains(place));
        let [these, those]: [Vec<&Server>; 2] =
            [these, those].map(|side| side.into_iter().map(|(_, server)| server).collect());
        let network = self.network()?;
        blocking(|| network.part(&these, &those));
        let until = self.setting.elapsed() + LEARNED_WITHIN;
        let promoted = self.await_promotion(&before, victim).await?;
        // Long enough for the refusals of the minority to be judged.
        let stay = Duration::from_millis(self.chance.u64(1_000..2_500));
        let end = promoted.max(until + DOUBT) + stay;
        self.wait_until(end).await;
        let answers = self.queues.iter().find_map(|queue| {
            let is_late = |entry: &Entry| entry.returned >= Some(until + DOUBT);
            let answer = queue.log.first_answer(CLIENTS[lonely], is_late)?;
            Some((queue.name.clone(), answer))
        });
        if let Some((name, answer)) = answers {
            bail!(
                "G1: queue {name}: {} is with the minority since {begin:?}, and had an answer at \
                 {answer:?}",
                CLIENTS[lonely]
            );
        }
        self.consume(victim);
        self.heal().await?;
        Ok(Outcome { healed: promoted, loss: Some(self.loss(until)) })
    }

    /// Drops all data that a primary sends to other servers. It still receives theirs, and clients
    /// reach all servers.
    pub(super) async fn mute(&mut self, victim: usize) -> Result<Outcome> {
        self.level().await?;
        let before = blocking(|| self.ground.primaries(None));
        blocking(|| {
            let (network, from) = (self.network()?, &self.ground.servers()[victim]);
            let others = self.ground.all().enumerate().filter(|(place, _)| *place != victim);
            others.for_each(|(_, to)| network.cut(from, to));
            Ok::<_, anyhow::Error>(())
        })?;
        let cut = self.setting.elapsed();
        let promoted = self.await_promotion(&before, victim).await?;
        let until = match &self.ground {
            Ground::Cluster(_) => cut + MUTE_WRITES,
            Ground::Sentinel(_) => promoted + MUTE_LEARNED_WITHIN,
        };
        let stay = Duration::from_millis(self.chance.u64(500..2_000));
        self.wait_until(promoted.max(until + DOUBT) + stay).await;
        self.consume(victim);
        self.heal().await?;
        Ok(Outcome { healed: promoted, loss: Some(self.loss(until)) })
    }

    /// Delays all data that a primary sends to other servers, by less than their timeouts.
    pub(super) async fn slow_down(&mut self, victim: usize) -> Result<Outcome> {
        blocking(|| {
            let server = &self.ground.servers()[victim];
            self.network()?.slow(server, LINK_DELAY).context("tc")
        })?;
        let pause = self.chance.u64(2_000..4_000);
        self.wait(pause).await;
        self.heal().await?;
        Ok(self.healed())
    }

    /// Lets all servers and both processes reach each other again, and waits until each process has
    /// an answer of each queue.
    async fn heal(&self) -> Result<()> {
        blocking(|| self.network().map(Network::heal))?;
        // The proxies of clients follow. Data that the network held back arrives late.
        self.proxies.iter().flatten().for_each(proxy::Proxy::heal);
        let healed = self.setting.elapsed();
        for queue in &self.queues {
            queue.recover(healed).await?;
        }
        Ok(())
    }

    /// Waits until replicas have all writes so far, so that only later calls may be lost.
    async fn level(&mut self) -> Result<()> {
        self.level_at = self.setting.elapsed();
        self.ground.level().await
    }

    fn network(&self) -> Result<&Network> {
        self.network.as_ref().context("the servers have no network of their own")
    }

    async fn wait_until(&self, instant: Duration) {
        tokio::time::sleep(instant.saturating_sub(self.setting.elapsed())).await;
    }
}

/// Maximum time for which a mute primary of a cluster accepts writes. The other servers close its
/// connections after a node timeout (1 s here), and ping once more within half of one. After
/// another node timeout without them, the primary refuses writes.
const MUTE_WRITES: Duration = Duration::from_secs(3);
/// Maximum time after a promotion until each process knows it. The leading sentinel asks the
/// promoted server once per second. Each process asks the sentinels once per second, and waits up
/// to a second for a silent one.
const MUTE_LEARNED_WITHIN: Duration = Duration::from_secs(3);
/// Maximum delay of packets: less than the timeouts of servers.
const LINK_DELAY: Duration = Duration::from_millis(200);
