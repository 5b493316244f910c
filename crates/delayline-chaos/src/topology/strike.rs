//! Brings faults about, takes them away, and waits until the servers have recovered.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use delayline_test_server::proxy::{self, Proxy};
use delayline_test_server::{Cluster, Server};

use super::Stage;
use super::fault::{Fault, Struck};
use super::ground::{Ground, Migration, is_primary};
use super::judge::Loss;
use crate::blocking::blocking;
use crate::strikes::Effect;

impl Stage {
    /// Brings a fault about, takes it away, and waits until the queues answer and the servers
    /// agree.
    ///
    /// # Errors
    ///
    /// The servers fail to recover, or a queue does not answer again (G21).
    pub async fn strike(&mut self, fault: Fault) -> Result<Struck> {
        let is_unasked = self.excuse_unasked();
        let queue = self.chance.usize(..self.queues.len());
        let names: Vec<_> = self.queues.iter().map(|queue| queue.name.to_string()).collect();
        let owners: Vec<_> =
            blocking(|| names.iter().map(|name| self.ground.owner(name)).collect());
        let victim = owners[queue];
        self.consume(victim);
        let concerned: Vec<_> = (0..owners.len()).filter(|n| owners[*n] == victim).collect();
        // The state of a server that dies cannot be read afterwards.
        let asked = blocking(|| self.ground.asked(Some(victim)));
        let full_syncs = blocking(|| self.ground.full_syncs());
        let (begin, start) = (self.setting.elapsed(), Instant::now());
        let Outcome { healed, loss } = self.bring_about(fault, victim, &names[queue]).await?;
        for n in &concerned {
            self.losses[*n].extend(loss.clone());
        }
        let mut recovery = Duration::ZERO;
        for n in &concerned {
            recovery = recovery.max(self.queues[*n].recover(healed).await? - healed);
        }
        let seconds = start.elapsed().as_secs_f64();
        let again = blocking(|| self.ground.asked(Some(victim)));
        let most = asked.into_iter().zip(again).filter_map(|(before, after)| {
            // One that was started anew counts anew.
            after?.checked_sub(before?)
        });
        // Short ones have had few looks; the first is not to be counted as many a second.
        #[expect(clippy::cast_precision_loss, reason = "small numbers")]
        let asked_a_second = most.max().unwrap_or(0) as f64 / seconds.max(1.0) / PROCESSES;
        self.take_away(fault, victim)?;
        self.ground.settle().await?;
        let is_handed_over = blocking(|| self.ground.full_syncs()) == full_syncs;
        let is_unasked = is_unasked || fault == Fault::HandOver && !is_handed_over;
        if fault == Fault::HandOver && !is_handed_over {
            self.excuse();
        }
        self.level_at = self.setting.elapsed();
        self.ground.level().await?;
        self.known = blocking(|| self.ground.primaries(None));
        let now = self.setting.elapsed();
        let is_felt = concerned.iter().any(|n| {
            // A call may fail until the servers agree again.
            let end = if fault.effect() == Effect::Failure { now } else { healed };
            self.queues[*n].log.has_met(fault.effect(), begin, end)
        });
        Ok(Struck { recovery, asked_a_second, is_felt, is_unasked })
    }

    async fn bring_about(&mut self, fault: Fault, victim: usize, queue: &str) -> Result<Outcome> {
        let server = &self.ground.servers()[victim];
        let begin = self.setting.elapsed();
        // Calls that were answered shortly before the end may not have been replicated.
        let just_before = self.loss(begin);
        match fault {
            Fault::Kill => {
                let before = blocking(|| self.ground.primaries(None));
                blocking(|| server.kill());
                let healed = self.await_promotion(&before, victim).await?;
                Ok(Outcome { healed, loss: Some(just_before) })
            }
            Fault::Freeze => {
                let before = blocking(|| self.ground.primaries(None));
                server.pause();
                let healed = self.await_promotion(&before, victim).await?;
                let pause = self.chance.u64(..1_500);
                self.wait(pause).await;
                self.ground.servers()[victim].resume();
                Ok(Outcome { healed, loss: Some(just_before) })
            }
            Fault::Stall => {
                server.pause();
                let pause = self.chance.u64(100..600);
                self.wait(pause).await;
                self.ground.servers()[victim].resume();
                Ok(self.healed())
            }
            Fault::FailOver => self.fail_over(victim).await,
            Fault::HandOver => {
                let before = blocking(|| self.ground.primaries(None));
                self.tell_sentinel(&["SENTINEL", "FAILOVER", "primary", "COORDINATED"]).await?;
                let healed = self.await_promotion(&before, victim).await?;
                Ok(Outcome { healed, loss: None })
            }
            Fault::MoveInHalves => {
                let pause = self.chance.u64(100..600);
                let (cluster, to) = (self.cluster()?, self.another(victim)?);
                move_in_halves(cluster, queue, server, to, pause).await;
                Ok(self.healed())
            }
            Fault::MoveAtOnce => {
                let to = self.another(victim)?;
                self.move_at_once(queue, server, to).await?;
                self.move_at_once(queue, to, server).await?;
                Ok(self.healed())
            }
            Fault::AddAndRemoveNode => {
                let pause = self.chance.u64(100..1_000);
                let cluster = self.cluster()?;
                let new = blocking(|| cluster.add_node());
                move_in_halves(cluster, queue, server, &new, 0).await;
                self.wait(pause).await;
                move_in_halves(cluster, queue, &new, server, 0).await;
                blocking(|| cluster.remove_node(&new));
                Ok(self.healed())
            }
            Fault::FlushScripts => {
                for _ in 0..20 {
                    blocking(|| server.try_command(&["SCRIPT", "FLUSH", "SYNC"]))?;
                }
                Ok(self.healed())
            }
            Fault::CutOff => {
                self.proxies_of(victim).for_each(|proxy| proxy.set(proxy::Fault::Blackhole));
                let pause = self.chance.u64(1_000..3_000);
                self.wait(pause).await;
                // What waited is executed late; its callers know no more about it.
                self.proxies_of(victim).for_each(Proxy::heal);
                self.proxies_of(victim).for_each(Proxy::cut_all);
                Ok(self.healed())
            }
            Fault::LoseReplies => {
                for _ in 0..4 {
                    self.proxies_of(victim)
                        .for_each(|proxy| proxy.once(proxy::Fault::CutAfterExecution, "EVALSHA"));
                    self.wait(50).await;
                }
                self.proxies_of(victim).for_each(Proxy::heal);
                Ok(self.healed())
            }
            Fault::KillReplica => {
                let replica = blocking(|| self.ground.replica(victim))?;
                blocking(|| self.ground.servers()[replica].kill());
                let pause = self.chance.u64(100..2_000);
                self.wait(pause).await;
                blocking(|| self.ground.servers()[replica].restart());
                Ok(self.healed())
            }
            Fault::FreezeSentinel => {
                let Ground::Sentinel(sentinels) = &self.ground else { bail!("no sentinels") };
                let sentinel = &sentinels.sentinels()[2];
                sentinel.pause();
                self.wait(1_500).await;
                sentinel.resume();
                Ok(self.healed())
            }
            Fault::Part => self.part(victim).await,
            Fault::Mute => self.mute(victim).await,
            Fault::SlowDown => self.slow_down(victim).await,
        }
    }

    /// Returns whether a primary was replaced without a fault since the last one. That happens if a
    /// busy machine holds it up for a second.
    pub(super) fn excuse_unasked(&mut self) -> bool {
        let now = blocking(|| self.ground.primaries(None));
        let is_unasked = now != self.known;
        if is_unasked {
            self.excuse();
            self.known = now;
        }
        is_unasked
    }

    /// Calls until then may be lost, unless they are on the replicas since these were last level.
    pub(super) fn loss(&self, called_by: Duration) -> Loss {
        Loss { level_at: self.level_at, called_by, returned_by: called_by + DOUBT }
    }

    /// Whatever is not on the replicas by now may be lost.
    fn excuse(&mut self) {
        let loss = self.loss(self.setting.elapsed());
        self.losses.iter_mut().for_each(|losses| losses.push(loss.clone()));
    }

    fn take_away(&self, fault: Fault, victim: usize) -> Result<()> {
        if fault == Fault::Kill {
            blocking(|| self.ground.servers()[victim].restart());
        }
        if !is_alive(&self.ground.servers()[victim]) {
            bail!("the server is gone: {}", self.ground.servers()[victim].log_tail());
        }
        Ok(())
    }

    async fn fail_over(&mut self, victim: usize) -> Result<Outcome> {
        let begin = self.setting.elapsed();
        let before = blocking(|| self.ground.primaries(None));
        if let Ground::Cluster(cluster) = &self.ground {
            let replica = blocking(|| self.ground.replica(victim))?;
            blocking(|| cluster.nodes()[replica].try_command(&["CLUSTER", "FAILOVER"]))?;
            let healed = self.await_promotion(&before, victim).await?;
            return Ok(Outcome { healed, loss: None });
        }
        self.tell_sentinel(&["SENTINEL", "FAILOVER", "primary"]).await?;
        let healed = self.await_promotion(&before, victim).await?;
        let (start, mut silence) = (Instant::now(), Duration::ZERO);
        loop {
            let asked = Instant::now();
            let have_left = blocking(|| self.ground.have_all_left(victim));
            silence = silence.max(asked.elapsed());
            if have_left {
                break;
            }
            if start.elapsed() > LONGEST_FAILOVER {
                let logs = blocking(|| self.ground.sentinel_logs());
                bail!("the sentinels do not agree within {LONGEST_FAILOVER:?}:\n{logs}");
            }
            self.wait(20).await;
        }
        self.consume(victim);
        // "What is not promised" in the guarantees. A process cannot learn of the failover while
        // the sentinels, which write their configuration to the disk, do not reply.
        let until = begin + LEARNED_WITHIN + silence;
        Ok(Outcome { healed, loss: Some(self.loss(until)) })
    }

    /// A sentinel refuses while it believes that a failover is under way.
    async fn tell_sentinel(&self, words: &[&str]) -> Result<()> {
        let Ground::Sentinel(sentinels) = &self.ground else { bail!("no sentinels") };
        let begin = Instant::now();
        loop {
            match blocking(|| sentinels.sentinels()[0].try_command(words)) {
                Ok(_) => return Ok(()),
                Err(error) if begin.elapsed() > LONGEST_FAILOVER => {
                    return Err(error).with_context(|| words.join(" "));
                }
                Err(_) => self.wait(200).await,
            }
        }
    }

    async fn move_at_once(&self, queue: &str, from: &Server, to: &Server) -> Result<()> {
        let cluster = self.cluster()?;
        let slot = blocking(|| cluster.slot(queue));
        let number = slot.to_string();
        blocking(|| match self.ground.migration() {
            Some(Migration::Export) => {
                let id = cluster.id(to);
                let words =
                    ["CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", &number, &number, "NODE", &id];
                from.try_command(&words).map(drop).context("MIGRATESLOTS")
            }
            Some(Migration::Import) => {
                let words = ["CLUSTER", "MIGRATION", "IMPORT", &number, &number];
                to.try_command(&words).map(drop).context("MIGRATION IMPORT")
            }
            None => bail!("this server cannot move a slot in one step"),
        })?;
        let begin = Instant::now();
        // Both must know.
        let is_there = || [from, to].iter().all(|it| cluster.owner(it, slot).port() == to.port());
        while !blocking(is_there) {
            if begin.elapsed() > LONGEST_FAILOVER {
                bail!("slot {slot} has not moved within {LONGEST_FAILOVER:?}");
            }
            self.wait(10).await;
        }
        Ok(())
    }

    /// Waits until another server considers itself a primary, and returns when.
    pub(super) async fn await_promotion(
        &self,
        before: &std::collections::BTreeSet<usize>,
        victim: usize,
    ) -> Result<Duration> {
        let begin = Instant::now();
        loop {
            let now = blocking(|| self.ground.primaries(Some(victim)));
            if now.difference(before).next().is_some() {
                return Ok(self.setting.elapsed());
            }
            if begin.elapsed() > LONGEST_FAILOVER {
                bail!("no server takes over within {LONGEST_FAILOVER:?}");
            }
            self.wait(5).await;
        }
    }

    /// Another primary.
    fn another(&self, victim: usize) -> Result<&Server> {
        let mut primaries = blocking(|| self.ground.primaries(None));
        primaries.remove(&victim);
        let place = primaries.first().context("there is no other primary")?;
        Ok(&self.ground.servers()[*place])
    }

    /// What each process reaches a server through.
    fn proxies_of(&self, place: usize) -> impl Iterator<Item = &Proxy> {
        self.proxies.iter().map(move |proxies| &proxies[place])
    }

    fn cluster(&self) -> Result<&Cluster> {
        match &self.ground {
            Ground::Cluster(cluster) => Ok(cluster),
            Ground::Sentinel(_) => bail!("there is no cluster"),
        }
    }

    pub(super) fn healed(&self) -> Outcome {
        Outcome { healed: self.setting.elapsed(), loss: None }
    }

    pub(super) async fn wait(&self, ms: u64) {
        tokio::time::sleep(Duration::from_millis(ms)).await;
    }
}

/// The outcome of a fault.
pub(super) struct Outcome {
    /// When a new primary was promoted, or the fault ended.
    pub(super) healed: Duration,
    pub(super) loss: Option<Loss>,
}

async fn move_in_halves(cluster: &Cluster, queue: &str, from: &Server, to: &Server, pause_ms: u64) {
    let slot = blocking(|| {
        let slot = cluster.slot(queue);
        cluster.begin_to_move(slot, from, to);
        let keys = cluster.keys(from, slot);
        let half = keys.len().div_ceil(2);
        if half > 0 {
            cluster.move_keys(from, to, &keys[..half]);
        }
        slot
    });
    tokio::time::sleep(Duration::from_millis(pause_ms)).await;
    blocking(|| {
        let rest = cluster.keys(from, slot);
        if !rest.is_empty() {
            cluster.move_keys(from, to, &rest);
        }
        cluster.end_to_move(slot, to);
    });
}

fn is_alive(server: &Server) -> bool {
    blocking(|| is_primary(server) || server.try_command(&["PING"]).is_ok())
}

/// Each driver has a separate transport, as a process would have.
const PROCESSES: f64 = 2.0;
/// A server that was silent for this time is not believed any more.
pub(super) const DOUBT: Duration = Duration::from_secs(1);
/// After this each process has asked the sentinels, and sends nothing to the old primary: two
/// seconds, and what the timers of a busy machine are late by.
pub(super) const LEARNED_WITHIN: Duration = Duration::from_millis(2_500);
const LONGEST_FAILOVER: Duration = Duration::from_secs(60);
