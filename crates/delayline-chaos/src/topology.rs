//! Clusters and servers behind sentinels, under load: failovers of every kind, moves of slots,
//! nodes that come and go.
//!
//! No append-only file has all operations, because a lost primary has acknowledged some that no
//! other server has. So a history is judged message by message, by the replies that callers got and
//! by their revisions.
//! `judge` defines what must hold.

mod fault;
mod ground;
mod judge;
mod partition;
mod strike;
mod tally;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use clap::ValueEnum as _;
use delayline_core::{
    At, Change, Check, Found, MessageId, Op, QueueBackend, Rate, Reply, SetLimits, limits,
};
use delayline_redis_protocol::{ConnectOptions, HostPort};
use delayline_test_server::proxy::Proxy;
use delayline_test_server::{Network, StartError};
use tokio::sync::watch;
use tokio::task::JoinSet;

pub use self::fault::{Fault, Struck};
use self::ground::Ground;
pub use self::ground::Kind;
pub use self::judge::Seen;
use self::judge::{
    Loss, Read, has_result, judge, judge_limits, judge_relays, judge_updates, kept, sent, story,
};
pub use self::tally::Tally;
use crate::blocking::blocking;
use crate::load::{self, Queue, Relaying, Working};
use crate::log::{Entry, Setting};

/// Servers under load: several queues, each with producers, workers and operators, over both
/// drivers.
pub struct Stage {
    ground: Ground,
    /// `None` if all servers are on the machine's own network.
    network: Option<Network>,
    /// One in front of each server and sentinel for each process, in their order.
    proxies: [Vec<Proxy>; 2],
    setting: Arc<Setting>,
    queues: Vec<Queue>,
    loads: Vec<Load>,
    /// They change the limits until they are stopped.
    operators: (watch::Sender<bool>, JoinSet<()>),
    /// For each queue, what a consumer of its stream has read.
    reads: Vec<Vec<Read>>,
    /// For each queue, what may be lost.
    losses: Vec<Vec<Loss>>,
    /// Who was a primary when the servers agreed last.
    known: BTreeSet<usize>,
    /// Earlier writes are on the replicas.
    level_at: Duration,
    chance: fastrand::Rng,
}

/// Plays all faults that the server has, in a random order, and judges the results.
///
/// # Errors
///
/// The violations, beginning with the number of the guarantee if it is one.
pub async fn play(kind: Kind, seed: u64, number: u64, tally: &mut Tally) -> Result<()> {
    let chance = fastrand::Rng::with_seed(seed.wrapping_mul(1_000_003).wrapping_add(number));
    // A new node of a cluster is reached on the machine's own network only.
    let skipped = |error| say_skipped(&[Fault::Part, Fault::Mute, Fault::SlowDown], &error);
    let network = if number % 2 == 1 { Network::start().map_err(skipped).ok() } else { None };
    let mut stage = Stage::start_in(network, kind, chance).await?;
    let mut faults = stage.faults();
    tally.expect(&faults);
    stage.chance.shuffle(&mut faults);
    for fault in faults {
        stage.calm().await;
        let struck = stage.strike(fault).await.with_context(|| format!("{fault:?}"))?;
        tally.note_fault(fault, &struck)?;
    }
    tally.note_seen(&stage.finish().await?);
    Ok(())
}

impl Stage {
    /// Starts servers, queues and the load.
    ///
    /// # Errors
    ///
    /// A queue cannot be opened.
    pub async fn start(kind: Kind, chance: fastrand::Rng) -> Result<Self> {
        Self::start_in(None, kind, chance).await
    }

    /// Starts the same with servers in a separate network, so that they can be cut off from each
    /// other.
    ///
    /// # Errors
    ///
    /// A queue cannot be opened.
    pub async fn start_in(
        network: Option<Network>,
        kind: Kind,
        mut chance: fastrand::Rng,
    ) -> Result<Self> {
        let ground = blocking(|| Ground::start(kind, network.as_ref()));
        let names = blocking(|| ground.queue_names());
        let mut proxies = [Vec::new(), Vec::new()];
        for proxies in &mut proxies {
            for server in ground.all() {
                proxies.push(Proxy::start(server).await?);
            }
        }
        let setting = Setting::new(true);
        let options = |(protocol, proxies): (&str, &Vec<Proxy>)| -> Result<ConnectOptions> {
            let mut options: ConnectOptions = format!("{}{protocol}", ground.url()).parse()?;
            for (server, proxy) in ground.all().zip(proxies) {
                let from: HostPort = server.address().to_string().parse()?;
                let to = proxy.url().strip_prefix("redis://").context("a proxy on TCP")?;
                options.address_map.insert(from, to.parse()?);
            }
            Ok(options)
        };
        let protocols =
            if chance.bool() { ["", "?protocol=resp3"] } else { ["?protocol=resp3", ""] };
        let [redis, fred] = [0, 1].map(|process| options((protocols[process], &proxies[process])));
        let options = [redis?, fred?];
        let queues = load::open(options, &setting, &names, &mut chance).await?;
        for (number, queue) in queues.iter().enumerate() {
            if let Some(limits) = Role::of(number).limits() {
                ask(queue, &Op::SetLimits(limits)).await?;
            }
        }
        // No fault can take the limits away.
        let level_at = setting.elapsed();
        ground.level().await?;
        let start = |(number, queue): (usize, &Queue)| match Role::of(number) {
            Role::Worked => Working::start(queue, &mut chance).map(Load::Working),
            Role::Relayed => {
                Relaying::start(queue, &stream_of(queue), &mut chance).map(Load::Relaying)
            }
            Role::Keyed => Working::start_keyed(queue, &mut chance).map(Load::Working),
        };
        let loads = queues.iter().enumerate().map(start).collect::<Result<_>>()?;
        let mut operators = (watch::Sender::new(false), JoinSet::new());
        for (number, queue) in queues.iter().enumerate() {
            if let Some(limits) = Role::of(number).limits() {
                let stop = operators.0.subscribe();
                operators.1.spawn(operate(queue.clients.clone(), limits, chance.fork(), stop));
            }
        }
        let reads = queues.iter().map(|_| Vec::new()).collect();
        let losses = queues.iter().map(|_| Vec::new()).collect();
        let known = blocking(|| ground.primaries(None));
        Ok(Self {
            ground,
            network,
            proxies,
            setting,
            queues,
            loads,
            operators,
            reads,
            losses,
            known,
            level_at,
            chance,
        })
    }

    /// All kinds of fault that these servers can suffer.
    #[must_use]
    pub fn faults(&self) -> Vec<Fault> {
        let can = |fault: &Fault| {
            let is_apart = self.network.is_some();
            let fits = match fault {
                Fault::Part | Fault::Mute => is_apart,
                Fault::SlowDown => self.can_be_slow(),
                Fault::AddAndRemoveNode => !is_apart,
                _ => true,
            };
            fits && self.ground.can(*fault)
        };
        blocking(|| Fault::value_variants().iter().copied().filter(can).collect())
    }

    /// Whether packets can be slowed down here; says so if it is the kernel that cannot.
    fn can_be_slow(&self) -> bool {
        let Some(network) = &self.network else { return false };
        let slowed = network.slow(&self.ground.servers()[0], Duration::from_millis(1));
        network.heal();
        slowed.map_err(|error| say_skipped(&[Fault::SlowDown], &error)).is_ok()
    }

    /// Lets some calls go by.
    pub async fn calm(&mut self) {
        tokio::time::sleep(Duration::from_millis(self.chance.u64(500..1_000))).await;
    }

    /// Stops the load, waits for the end of all messages, and judges the results.
    ///
    /// # Errors
    ///
    /// The first promise that was broken, with its guarantee.
    pub async fn finish(mut self) -> Result<Seen> {
        let mut seen = Seen::default();
        self.excuse_unasked();
        self.operators.0.send_replace(true);
        std::mem::take(&mut self.operators.1).join_all().await;
        let loads = std::mem::take(&mut self.loads);
        for load in loads {
            match load {
                Load::Working(working) => {
                    let (handled, unsettled) = working.finish().await?;
                    let unasked = self.excuse_unasked();
                    seen.unasked += usize::from(unasked);
                    // The last settlements get 5 s, which one unanswered call takes up.
                    ensure!(
                        unsettled == 0 || unasked,
                        "G21: workers that stopped have not settled {unsettled} messages"
                    );
                    seen.handled += handled.check().map_err(anyhow::Error::msg)?;
                }
                Load::Relaying(relaying) => relaying.finish().await?,
            }
        }
        seen.unasked += usize::from(self.excuse_unasked());
        for (number, queue) in self.queues.iter().enumerate() {
            audit(queue).await?;
            self.judge(number, &mut seen).await.with_context(|| format!("queue {}", queue.name))?;
        }
        Ok(seen)
    }

    async fn judge(&self, number: usize, seen: &mut Seen) -> Result<()> {
        let (queue, losses) = (&self.queues[number], &self.losses[number]);
        let entries = queue.log.entries().clone();
        let judged = match Role::of(number) {
            Role::Worked => {
                let there = look_up(queue, &entries).await?;
                let kept: Vec<_> = kept(&entries, losses).into_iter().collect();
                for kept in kept.chunks(limits::MAX_LOOK_UP) {
                    let progress = Op::Progress(kept.iter().map(|(id, _)| id.clone()).collect());
                    let Reply::Progress(progress) = ask(queue, &progress).await? else {
                        bail!("no answer to {progress:?}")
                    };
                    for (n, (id, bytes)) in kept.iter().enumerate() {
                        has_result(id, bytes, progress.get(n)).map_err(|reason| {
                            anyhow!("{reason}\n{}", story(&entries, losses, id))
                        })?;
                    }
                    seen.results += kept.len();
                }
                judge(&entries, losses, &there, seen)
            }
            Role::Relayed => {
                let there = look_up(queue, &entries).await?;
                let owner = blocking(|| self.ground.owner(queue.name.as_str()));
                let mut stream = Vec::new();
                loop {
                    let after = stream.last().map_or((0, 0), |(place, _)| *place);
                    let server = &self.ground.servers()[owner];
                    let more = blocking(|| load::entries(server, &stream_of(queue), after))?;
                    if more.is_empty() {
                        break;
                    }
                    stream.extend(more);
                }
                judge_relays(&entries, losses, &stream, &self.reads[number], &there, seen)
            }
            Role::Keyed => judge_updates(&entries, losses, seen),
        };
        judged.and_then(|()| judge_limits(&entries, losses, seen)).map_err(anyhow::Error::msg)
    }

    /// Reads the new entries of the streams on a server, as a consumer would.
    fn consume(&mut self, place: usize) {
        let at = self.setting.elapsed();
        for (number, queue) in self.queues.iter().enumerate() {
            if Role::of(number) != Role::Relayed {
                continue;
            }
            let (server, reads) = (&self.ground.servers()[place], &mut self.reads[number]);
            loop {
                let after = reads.last().map_or((0, 0), |read: &Read| read.place);
                // Another server may have this queue, or none be there.
                let more = blocking(|| load::entries(server, &stream_of(queue), after));
                let more = more.unwrap_or_default();
                if more.is_empty() {
                    break;
                }
                reads.extend(more.into_iter().map(|(place, words)| Read { at, place, words }));
            }
        }
    }
}

/// The load of a queue.
enum Load {
    Working(Working),
    Relaying(Relaying),
}

/// What becomes of the messages of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    /// Workers handle them.
    Worked,
    /// They are relayed to a stream.
    Relayed,
    /// They have a few ids, and are updated and throttled.
    Keyed,
}

impl Role {
    const fn of(number: usize) -> Self {
        match number % 3 {
            0 => Self::Worked,
            1 => Self::Relayed,
            _ => Self::Keyed,
        }
    }

    /// Reached when a fault is over and what has waited is delivered.
    fn limits(self) -> Option<SetLimits> {
        match self {
            Self::Worked => Some(SetLimits::new().each_group(4)),
            Self::Relayed => Some(SetLimits::new().rate(Rate::per_second(400, 4))),
            Self::Keyed => Some(SetLimits::new().leased(3)),
        }
    }
}

/// Holds a queue again and again, and changes how many messages may be leased, in all or of each
/// group.
async fn operate(
    clients: Vec<Arc<dyn QueueBackend>>,
    limits: SetLimits,
    mut chance: fastrand::Rng,
    stop: watch::Receiver<bool>,
) {
    while !*stop.borrow() {
        let mut set = SetLimits::new().hold_for(HOLD);
        if let Change::Set(most) = limits.leased {
            set = set.leased(chance.u32(1..=most));
        }
        if let Change::Set(most) = limits.each_group {
            set = set.each_group(chance.u32(most / 2..=most));
        }
        if let Some(client) = chance.choice(&clients) {
            // The log has its result.
            drop(client.apply(At::Server, &Op::SetLimits(set)).await);
        }
        tokio::time::sleep(Duration::from_millis(chance.u64(200..1_000))).await;
    }
}

/// Where the messages of a queue are relayed to: in the same slot of a cluster.
fn stream_of(queue: &Queue) -> String {
    format!("relayed{{{}}}", queue.name)
}

/// What the queue knows at the end of all messages that were sent.
async fn look_up(queue: &Queue, entries: &[Entry]) -> Result<HashMap<MessageId, Found>> {
    let mut there = HashMap::new();
    let ids: Vec<_> = sent(entries).into_iter().collect();
    for ids in ids.chunks(limits::MAX_LOOK_UP) {
        let get = Op::Get(ids.to_vec());
        let Reply::Get(found) = ask(queue, &get).await? else { bail!("no answer to {get:?}") };
        let is_there = |(_, found): &(_, &Found)| !matches!(found, Found::Unknown);
        let found = ids.iter().zip(&found).filter(is_there);
        there.extend(found.map(|(id, found)| (id.clone(), found.clone())));
    }
    Ok(there)
}

/// The answer of a queue that is well again.
async fn ask(queue: &Queue, op: &Op) -> Result<Reply> {
    let mut failures = 0;
    loop {
        match queue.clients[0].apply(At::Server, op).await {
            Ok(applied) => return Ok(applied.reply),
            Err(error) if failures > MOST_FAILURES => return Err(error.into()),
            Err(_) => failures += 1,
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Names what a machine without network namespaces leaves out.
fn say_skipped(faults: &[Fault], error: &StartError) {
    let source = std::error::Error::source(error).map(ToString::to_string).unwrap_or_default();
    println!("chaos: skipped: {faults:?}: {error}: {source}");
}

/// Whether the queue is in order.
async fn audit(queue: &Queue) -> Result<()> {
    let mut after = None;
    loop {
        let check = Op::Check(Check::new(limits::MAX_PAGE).after(after));
        let Reply::Check(checked) = ask(queue, &check).await? else {
            bail!("no answer to {check:?}")
        };
        if !checked.findings.is_empty() {
            bail!("G22: queue {}: the audit found {:?}", queue.name, checked.findings);
        }
        after = checked.next;
        if after.is_none() {
            return Ok(());
        }
    }
}

/// For how long operators hold a queue.
const HOLD: Duration = Duration::from_millis(100);
/// How often a last question may fail.
const MOST_FAILURES: u32 = 100;
