//! The processes, and what happens to them.

use std::fmt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Result, ensure};
use delayline_test_server::Server;
use fastrand::Rng;

/// Scheduler processes on a separate server.
pub(super) struct Fleet {
    server: Server,
    /// The version of the schedules that new processes declare.
    version: u64,
    processes: Vec<Member>,
    random: Rng,
    faults: Faults,
    times: Times,
}

struct Member {
    child: Child,
    /// When a frozen process continues.
    frozen_until: Option<Instant>,
}

/// What happened when, in milliseconds since 1970.
#[derive(Clone, Copy, Default)]
pub(super) struct Times {
    pub(super) began: u64,
    /// The second version began to replace the first one.
    pub(super) deploying: u64,
    /// No process of the first version was left.
    pub(super) deployed: u64,
    pub(super) ended: u64,
}

/// The faults of a fleet.
#[derive(Clone, Copy, Default)]
pub(super) struct Faults {
    kills: u64,
    freezes: u64,
    deploys: u64,
    server_kills: u64,
}

impl Fleet {
    pub(super) fn start(processes: usize, seed: u64) -> Result<Self> {
        let server = Server::builder().append_only("always").start();
        let mut fleet = Self {
            server,
            version: 1,
            processes: Vec::new(),
            random: Rng::with_seed(seed),
            faults: Faults::default(),
            times: Times { began: now_ms()?, ..Times::default() },
        };
        for _ in 0..processes {
            let member = fleet.spawn()?;
            fleet.processes.push(member);
        }
        Ok(fleet)
    }

    pub(super) fn url(&self) -> String {
        self.server.url()
    }

    fn spawn(&self) -> Result<Member> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("scheduler").arg(self.server.url()).arg(self.version.to_string());
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn()?;
        Ok(Member { child, frozen_until: None })
    }

    /// Kills and freezes processes. At each third of the time it deploys the second version, one
    /// process after the other, and at half of it kills the server.
    pub(super) async fn torment(&mut self, time: Duration, pause: Duration) -> Result<()> {
        let begin = Instant::now();
        let mut deployed = 0;
        while begin.elapsed() < time {
            tokio::time::sleep(pause).await;
            self.thaw()?;
            let place = self.random.usize(..self.processes.len());
            if self.random.bool() {
                self.kill(place)?;
            } else {
                self.freeze(place)?;
            }
            if begin.elapsed() > time / 3 && deployed < self.processes.len() {
                if deployed == 0 {
                    (self.version, self.times.deploying) = (2, now_ms()?);
                }
                // Old and new processes run side by side for some time.
                for place in deployed..(deployed + PER_STEP).min(self.processes.len()) {
                    self.kill(place)?;
                }
                deployed += PER_STEP;
                self.times.deployed = now_ms()?;
                self.faults.deploys += 1;
            }
            if begin.elapsed() > time / 2 && self.faults.server_kills == 0 {
                self.server.kill();
                self.server.restart();
                self.faults.server_kills += 1;
            }
        }
        ensure!(deployed >= self.processes.len(), "too little time to deploy the second version");
        Ok(())
    }

    /// Kills a process, and starts another one.
    fn kill(&mut self, place: usize) -> Result<()> {
        let successor = self.spawn()?;
        // Dropping the old one kills it.
        std::mem::replace(&mut self.processes[place], successor).runs()?;
        self.faults.kills += 1;
        Ok(())
    }

    fn freeze(&mut self, place: usize) -> Result<()> {
        let member = &mut self.processes[place];
        if member.frozen_until.is_none() {
            signal(&member.child, "-STOP")?;
            member.frozen_until = Some(Instant::now() + FREEZE);
            self.faults.freezes += 1;
        }
        Ok(())
    }

    fn thaw(&mut self) -> Result<()> {
        for member in &mut self.processes {
            if member.frozen_until.is_some_and(|until| Instant::now() >= until) {
                signal(&member.child, "-CONT")?;
                member.frozen_until = None;
            }
        }
        Ok(())
    }

    /// Ends all processes. The server stays until the fleet is dropped.
    pub(super) fn end(&mut self) -> Result<(Faults, Times)> {
        for member in &mut self.processes {
            member.runs()?;
        }
        self.times.ended = now_ms()?;
        self.processes.clear();
        Ok((self.faults, self.times))
    }
}

impl Member {
    /// Checks that the process still runs, since only this program ends it.
    fn runs(&mut self) -> Result<()> {
        let ended = self.child.try_wait()?;
        ensure!(ended.is_none(), "a scheduler has ended although it was not stopped: {ended:?}");
        Ok(())
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        // A kill ends a frozen process, too.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kills, freezes, deploys, server_kills } = self;
        write!(
            f,
            "{kills} kills, {freezes} freezes of {FREEZE:?}, {deploys} steps of a deploy, \
             {server_kills} kills of the server"
        )
    }
}

fn now_ms() -> Result<u64> {
    Ok(u64::try_from(SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?.as_millis())?)
}

fn signal(child: &Child, signal: &str) -> Result<()> {
    let status = Command::new("kill").args([signal, &child.id().to_string()]).status()?;
    ensure!(status.success(), "kill {signal} failed");
    Ok(())
}

/// Longer than the lease of a scheduler.
const FREEZE: Duration = Duration::from_secs(7);
/// Number of processes that one step of a deploy replaces.
const PER_STEP: usize = 4;
