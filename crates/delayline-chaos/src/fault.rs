//! Faults of the server, the connections and the workers.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use clap::ValueEnum;
use delayline_test_server::Server;
use delayline_test_server::proxy::{self, Proxy};

use crate::blocking::blocking;
use crate::load::Working;
use crate::log::Setting;
use crate::strikes::Effect;
use crate::witness::AppendOnlyFile;

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Fault {
    /// The server is killed with SIGKILL, and started again after a while.
    Kill,
    /// Like [`Kill`](Self::Kill), and the end of the append-only file is lost, as after a power
    /// cut.
    KillAndLoseTail,
    /// The server is shut down, and started again.
    Restart,
    /// The server is stopped with SIGSTOP for a while.
    Freeze,
    /// The server forgets its scripts, again and again.
    FlushScripts,
    /// `CLIENT KILL` for all clients.
    KillClients,
    /// `CLIENT PAUSE`.
    PauseClients,
    /// Requests are executed, and their connections end before the replies.
    LoseReplies,
    /// Requests are lost with their connections.
    LoseRequests,
    /// Connections stay open, and no data passes.
    Silence,
    /// A key of a queue holds a value of another type.
    WrongType,
    /// The server is at its memory limit.
    OutOfMemory,
    /// The server is a replica.
    ReadOnly,
    /// The server wants replicas and has none.
    TooFewReplicas,
    /// The server could not save a snapshot, and so refuses writes.
    FailedSnapshot,
    /// The server is busy with an endless script.
    BusyScript,
    /// The server accepts no more clients, and disconnects the present ones.
    TooManyClients,
    /// A worker is aborted in the middle of its work.
    CrashWorker,
    /// The clock of the operations is set.
    StepClock,
}

impl Fault {
    /// The faults during which every call is answered in the end.
    pub(crate) const HARMLESS: [Self; 3] = [Self::StepClock, Self::FlushScripts, Self::Freeze];

    /// Returns the effect on the calls that it meets.
    pub(crate) const fn effect(self) -> Effect {
        match self {
            Self::FlushScripts | Self::CrashWorker | Self::StepClock => Effect::None,
            Self::Freeze | Self::PauseClients | Self::Silence => Effect::Delay,
            _ => Effect::Failure,
        }
    }

    /// Returns the faults that are not a kill, a freeze or a step of the clock. Two rounds in a row
    /// share them: one fault is in the list twice, so that their number is even.
    pub(crate) fn others() -> Vec<Self> {
        let is_other = |fault: &Self| {
            !matches!(fault, Self::Kill | Self::KillAndLoseTail | Self::Freeze | Self::StepClock)
        };
        Self::value_variants().iter().copied().filter(is_other).chain([Self::LoseReplies]).collect()
    }
}

/// Causes the faults.
pub(crate) struct Adversary<'a> {
    pub(crate) server: Arc<Server>,
    pub(crate) proxies: &'a [Proxy],
    pub(crate) setting: Arc<Setting>,
    /// The keys of all queues, and of the destination of relays.
    pub(crate) keys: Vec<Vec<u8>>,
    pub(crate) chance: fastrand::Rng,
    /// Whether a kill may lose acknowledged calls.
    pub(crate) lossy: bool,
    pub(crate) file: &'a AppendOnlyFile,
    /// The length of the append-only file at the end of each era, except for the last era.
    pub(crate) era_ends: Vec<usize>,
    /// The furthest that the clock was set forward, in milliseconds.
    pub(crate) furthest_step_ms: i64,
}

impl Adversary<'_> {
    /// Causes a fault, and ends it.
    pub(crate) async fn strike(&mut self, fault: Fault, working: &mut [Working]) -> Result<()> {
        match fault {
            Fault::Kill if self.lossy => self.kill_and_lose(0).await,
            Fault::Kill => self.kill().await,
            Fault::KillAndLoseTail => {
                let bytes = self.chance.usize(..LONGEST_TAIL_BYTES);
                self.kill_and_lose(bytes).await
            }
            Fault::Restart => {
                blocking(|| self.server.restart());
                Ok(())
            }
            Fault::Freeze => self.freeze().await,
            Fault::FlushScripts => {
                for _ in 0..20 {
                    self.command(&["SCRIPT", "FLUSH", "SYNC"])?;
                }
                Ok(())
            }
            Fault::KillClients => {
                self.command(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"])
            }
            Fault::PauseClients => {
                let mode = if self.chance.bool() { "ALL" } else { "WRITE" };
                let ms = self.chance.u64(100..LONGEST_OUTAGE_MS);
                self.command(&["CLIENT", "PAUSE", &ms.to_string(), mode])?;
                self.wait(ms).await;
                Ok(())
            }
            Fault::LoseReplies => self.cut(proxy::Fault::CutAfterExecution).await,
            Fault::LoseRequests => self.cut(proxy::Fault::CutBeforeRequest).await,
            Fault::Silence => {
                for proxy in self.proxies {
                    proxy.set(proxy::Fault::Blackhole);
                }
                self.outage().await;
                for proxy in self.proxies {
                    proxy.heal();
                }
                Ok(())
            }
            Fault::WrongType => {
                // Some keys are seldom used.
                for key in self.chance.choose_multiple(self.keys.clone(), 3) {
                    self.wrong_type(&key).await?;
                }
                Ok(())
            }
            Fault::OutOfMemory => {
                self.config("maxmemory", "1")?;
                self.outage().await;
                self.config("maxmemory", "0")
            }
            Fault::ReadOnly => {
                self.command(&["REPLICAOF", "127.0.0.1", "1"])?;
                self.outage().await;
                self.command(&["REPLICAOF", "NO", "ONE"])
            }
            Fault::TooFewReplicas => {
                self.config("min-replicas-to-write", "1")?;
                self.outage().await;
                self.config("min-replicas-to-write", "0")
            }
            Fault::FailedSnapshot => self.failed_snapshot().await,
            Fault::BusyScript => self.busy_script().await,
            Fault::TooManyClients => self.too_many_clients().await,
            Fault::CrashWorker => {
                working.iter_mut().try_for_each(|it| it.crash(self.chance.usize(..)))
            }
            Fault::StepClock => {
                let furthest = if self.chance.bool() { 2_000 } else { LONGEST_STEP_MS };
                let step_ms = self.chance.i64(-furthest..furthest);
                self.step_clock(step_ms);
                self.outage().await;
                Ok(())
            }
        }
    }

    /// Sets the clock as far forward as it ever was, so that no message is due later than intended.
    pub(crate) fn heal_clock(&mut self) {
        self.step_clock(self.furthest_step_ms);
    }

    fn step_clock(&mut self, ms: i64) {
        self.furthest_step_ms = self.furthest_step_ms.max(ms);
        if self.setting.goes_by_server() {
            self.server.set_clock_step(ms);
        } else {
            self.setting.set_step(ms);
        }
    }

    async fn kill(&mut self) -> Result<()> {
        blocking(|| self.server.kill());
        self.outage().await;
        // The server may have been killed while it wrote a transaction.
        self.file.lose_tail(0)?;
        blocking(|| self.server.restart());
        Ok(())
    }

    /// Kills the server, and removes the last bytes of its file. No call is made while it is down,
    /// so each reply is from before or after.
    async fn kill_and_lose(&mut self, bytes: usize) -> Result<()> {
        blocking(|| self.server.kill());
        let mut era = self.setting.era.write().await;
        self.file.lose_tail(bytes)?;
        blocking(|| self.server.restart());
        self.era_ends.push(self.file.len()?);
        *era += 1;
        Ok(())
    }

    async fn freeze(&mut self) -> Result<()> {
        self.server.pause();
        if self.setting.goes_by_server() {
            self.wait(50).await;
        } else {
            self.outage().await;
        }
        self.server.resume();
        Ok(())
    }

    async fn cut(&mut self, fault: proxy::Fault) -> Result<()> {
        for _ in 0..4 {
            self.chance
                .choice(self.proxies)
                .into_iter()
                .for_each(|proxy| proxy.once(fault, "EVALSHA"));
            self.wait(20).await;
        }
        self.proxies.iter().for_each(Proxy::heal);
        Ok(())
    }

    async fn wrong_type(&mut self, key: &[u8]) -> Result<()> {
        let away = [b"away:", key].concat();
        // Both scripts are one step, so the key is never missing.
        let there = "redis.call('DEL', KEYS[2]) \
             local is = redis.call('TYPE', KEYS[1]).ok \
             if is ~= 'none' then redis.call('RENAME', KEYS[1], KEYS[2]) end \
             redis.call(is == 'string' and 'RPUSH' or 'APPEND', KEYS[1], 'junk')";
        let back = "redis.call('DEL', KEYS[1]) \
             if redis.call('EXISTS', KEYS[2]) == 1 then redis.call('RENAME', KEYS[2], KEYS[1]) end";
        let script = |text: &str| {
            let words = [b"EVAL", text.as_bytes(), b"2", key, &away[..]];
            words.map(<[u8]>::to_vec)
        };
        self.command(&script(there))?;
        self.outage().await;
        self.command(&script(back))
    }

    async fn failed_snapshot(&mut self) -> Result<()> {
        // The server cannot rename its file to a directory.
        let snapshot = self.server.data_dir().join("dump.rdb");
        std::fs::create_dir_all(&snapshot)?;
        self.config("save", "3600 1")?;
        self.command(&["BGSAVE"])?;
        let failed = || self.server.info("persistence", "rdb_last_bgsave_status") == "err";
        while !blocking(failed) {
            self.wait(5).await;
        }
        self.outage().await;
        self.config("save", "")?;
        Ok(std::fs::remove_dir(&snapshot)?)
    }

    async fn busy_script(&mut self) -> Result<()> {
        self.config("busy-reply-threshold", "20")?;
        let server = Arc::clone(&self.server);
        let busy = tokio::task::spawn_blocking(move || {
            // It ends with an error when it is killed.
            let _ = server.try_command(&["EVAL", "while true do end", "0"]);
        });
        self.outage().await;
        let mut killed = self.command(&["SCRIPT", "KILL"]);
        // The script may not have begun yet.
        while killed.is_err() && !busy.is_finished() {
            self.wait(10).await;
            killed = self.command(&["SCRIPT", "KILL"]);
        }
        busy.await?;
        self.config("busy-reply-threshold", "5000")
    }

    async fn too_many_clients(&mut self) -> Result<()> {
        // One connection for all commands, because the server may accept no other.
        let mut admin = blocking(|| self.server.admin())?;
        let mut command = |words: &[&str]| {
            let mut request = redis::cmd(words[0]);
            blocking(|| request.arg(&words[1..]).exec(&mut admin))
        };
        command(&["CONFIG", "SET", "maxclients", "2"])?;
        command(&["CLIENT", "KILL", "SKIPME", "yes"])?;
        self.outage().await;
        Ok(command(&["CONFIG", "SET", "maxclients", "10000"])?)
    }

    fn config(&self, name: &str, value: &str) -> Result<()> {
        self.command(&["CONFIG", "SET", name, value])
    }

    fn command<A: redis::ToRedisArgs>(&self, words: &[A]) -> Result<()> {
        blocking(|| self.server.try_command(words))?;
        Ok(())
    }

    /// Waits for a random time, which may be shorter or longer than callers wait for a reply.
    async fn outage(&mut self) {
        let ms = self.chance.u64(20..LONGEST_OUTAGE_MS);
        self.wait(ms).await;
    }

    async fn wait(&self, ms: u64) {
        tokio::time::sleep(Duration::from_millis(ms)).await;
    }
}

/// The longest outage. Callers wait for a reply for half of this time.
pub(crate) const LONGEST_OUTAGE_MS: u64 = 600;
const LONGEST_TAIL_BYTES: usize = 8_192;
/// Less than the time for which finished ids are remembered.
const LONGEST_STEP_MS: i64 = 20 * 60 * 1_000;
