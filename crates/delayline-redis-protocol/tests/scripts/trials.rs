//! What a mutant has to pass.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use delayline_core::{Error, QueueBackend, QueueName};
use delayline_driver_testkit::{Connect, queue_cases};
use delayline_redis_protocol::{ConnectOptions, ScriptBackend};
use delayline_test_server::{Reply, Server};
use delayline_testkit::{Fixture, async_trait};
use tokio::runtime::Runtime;
use tokio::sync::OnceCell;

use crate::cases::script_cases;
use crate::transport::{self, Mutated};

/// Every trial, with the known facts about it.
pub(crate) struct Trials {
    server: Arc<Server>,
    cases: u32,
    wanted: fn(&str) -> bool,
    all: Vec<Trial>,
    /// How many mutants of a script each trial has caught.
    catches: BTreeMap<(usize, String), u32>,
}

struct Trial {
    name: String,
    run: Arc<dyn Fn() + Send + Sync>,
    /// Which scripts it calls.
    scripts: BTreeSet<usize>,
    took: Duration,
}

impl Trials {
    /// Runs those with such names on the scripts as they are: each must pass. Those that take very
    /// long are left out.
    pub(crate) fn learn(cases: u32, wanted: fn(&str) -> bool) -> Result<Self, String> {
        let server = Arc::new(Server::start());
        let all = all(&server, cases, wanted);
        let mut trials = Self { server, cases, wanted, all, catches: BTreeMap::new() };
        let mut slow = Vec::new();
        for trial in &mut trials.all {
            transport::take_used();
            let begin = Instant::now();
            match run_within(&trial.run, LONGEST_TRIAL) {
                Err(reason) if reason == HANGS => slow.push(trial.name.clone()),
                result => result.map_err(|reason| format!("{} fails: {reason}", trial.name))?,
            }
            (trial.took, trial.scripts) = (begin.elapsed(), transport::take_used());
        }
        trials.all.retain(|trial| !slow.contains(&trial.name));
        println!("{} trials; too slow for this: {slow:?}", trials.all.len());
        Ok(trials)
    }

    /// How many there are whose names contain `part`.
    pub(crate) fn named(&self, part: &str) -> usize {
        self.all.iter().filter(|trial| trial.name.contains(part)).count()
    }

    /// How many there are that call a script.
    pub(crate) fn of(&self, script: usize) -> usize {
        self.all.iter().filter(|trial| trial.scripts.contains(&script)).count()
    }

    /// The server's SHA-1 of a script, if it is one.
    pub(crate) fn load(&self, source: &str) -> Option<String> {
        let reply = self.server.try_command(&["SCRIPT", "LOAD", source]).ok()?;
        match reply {
            Reply::BulkString(sha1) => String::from_utf8(sha1).ok(),
            _ => None,
        }
    }

    /// Runs those that call one of the scripts until one fails: first those that have caught
    /// others, then the quick ones.
    pub(crate) fn first_failure(&mut self, scripts: &BTreeSet<usize>) -> Option<String> {
        let calls = |trial: &&Trial| !trial.scripts.is_disjoint(scripts);
        let mut order: Vec<_> = self.all.iter().filter(calls).collect();
        order.sort_by_key(|trial| {
            let of = |script: &usize| self.catches.get(&(*script, trial.name.clone()));
            let catches = scripts.iter().filter_map(of).max();
            (std::cmp::Reverse(catches.copied().unwrap_or_default()), trial.took)
        });
        let run = |trial: &Trial| run_within(&trial.run, LONGEST_TRIAL + PATIENCE * trial.took);
        let caught = order.into_iter().find_map(|trial| match run(trial) {
            Ok(()) => None,
            Err(reason) if reason == HANGS => Some((trial.name.clone(), ", which does not end")),
            // Not for another reason, such as a busy machine: it fails again.
            Err(_) => run(trial).is_err().then(|| (trial.name.clone(), "")),
        });
        let (by, how) = caught?;
        for script in scripts {
            *self.catches.entry((*script, by.clone())).or_default() += 1;
        }
        self.replace_a_stuck_server();
        Some(by + how)
    }

    /// A script without end keeps the server busy, and what waits for it with it.
    fn replace_a_stuck_server(&mut self) {
        let server = Arc::clone(&self.server);
        let ping: Arc<dyn Fn() + Send + Sync> = Arc::new(move || drop(server.command(&["PING"])));
        if run_within(&ping, Duration::from_secs(2)).is_ok() {
            return;
        }
        self.server.kill();
        self.server = Arc::new(Server::start());
        for new in all(&self.server, self.cases, self.wanted) {
            if let Some(trial) = self.all.iter_mut().find(|trial| trial.name == new.name) {
                trial.run = new.run;
            }
        }
    }
}

fn all(server: &Arc<Server>, cases: u32, wanted: fn(&str) -> bool) -> Vec<Trial> {
    let fixture = OnServer { server: Arc::clone(server), first: OnceCell::new() };
    let runtime = Arc::new(Runtime::new().unwrap());
    let suite = delayline_testkit::trials(runtime, fixture, cases, SEED);
    let suite = suite.into_iter().map(|(name, run)| (name, Arc::from(run)));
    let of_queues = queue_cases!(list Plain);
    let of_scripts = script_cases!(list Plain);
    let of_damage = of_queues.into_iter().chain(of_scripts).filter(|(name, _)| {
        // Those are about servers and their files, not about what scripts write.
        !name.starts_with("servers")
            && !name.ends_with("a_torn_file_leaves_the_first_commands_of_an_operation")
    });
    let of_damage = of_damage.map(|(name, run)| (name.to_owned(), Arc::new(run) as Arc<_>));
    let trial = |(name, run)| Trial { name, run, scripts: BTreeSet::new(), took: Duration::ZERO };
    suite.chain(of_damage).filter(|(name, _)| wanted(name)).map(trial).collect()
}

/// Connects with the plain driver, and sends mutants.
struct Plain;

impl Connect for Plain {
    type Transport = Mutated;

    async fn connect(options: &ConnectOptions) -> Result<Mutated, Error> {
        Mutated::connect(options).await
    }
}

/// Queues of the suite.
struct OnServer {
    server: Arc<Server>,
    first: OnceCell<ScriptBackend<Mutated>>,
}

#[async_trait]
impl Fixture for OnServer {
    async fn fresh(&self) -> Result<Arc<dyn QueueBackend>, Error> {
        use std::sync::atomic::{AtomicU64, Ordering};
        static QUEUES: AtomicU64 = AtomicU64::new(0);
        let open = async || {
            let options: ConnectOptions = self.server.url().parse()?;
            let transport = Arc::new(Mutated::connect(&options).await?);
            ScriptBackend::open(transport, QueueName::new("first")?, false).await
        };
        let first = self.first.get_or_try_init(open).await?;
        let number = QUEUES.fetch_add(1, Ordering::Relaxed);
        Ok(Arc::new(first.with_queue(&QueueName::new(format!("queue-{number}"))?)))
    }
}

fn run_within(trial: &Arc<dyn Fn() + Send + Sync>, limit: Duration) -> Result<(), String> {
    let (trial, (done, result)) = (Arc::clone(trial), channel());
    thread::spawn(move || {
        // The receiver is gone if the trial has hung.
        let _ = done.send(catch_unwind(AssertUnwindSafe(|| trial())));
    });
    match result.recv_timeout(limit) {
        Ok(Ok(())) => Ok(()),
        Ok(Err(panic)) => Err(text_of(&*panic)),
        Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => Err(HANGS.to_owned()),
    }
}

fn text_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic").to_owned()
}

const HANGS: &str = "it does not end";
/// What takes longer is not tried on each mutant.
const LONGEST_TRIAL: Duration = Duration::from_secs(20);
/// How much longer than usual a trial may take on a busy machine before it counts as hanging.
const PATIENCE: u32 = 4;
/// Of the random trials.
const SEED: u64 = 1;
