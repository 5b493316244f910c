//! Calls over several servers: each goes to the one that serves its keys.

mod directory;
mod map;
mod node;
mod primaries;
mod queues;
mod survey;
mod turn;
mod workers;

use std::fmt;
use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use bytes::Bytes;
use delayline_core::{Error, ErrorKind};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};

use self::directory::{Confirmation, Directory, was_silent};
use self::map::{Map, Moved, View};
use self::node::{Node, NodeConnector, Nodes};
pub(crate) use self::queues::scan;
use self::queues::scan_all;
use self::turn::{Turn, Turns};

pub use self::survey::{SentinelReport, SentinelView, ServerReport, Survey, TopologyKind};
pub(crate) use self::survey::{survey, wrong_mode};
use crate::link::Link;
use crate::link::connection_name::ConnectionName;
use crate::link::driver::Driver;
use crate::slot::slot_of;
use crate::{
    CallError, ConnectOptions, HostPort, QueueList, ScriptCall, Topology, Value, WorkerList,
    classify,
};

/// Maximum number of refreshes that are repeated because the topology changed during them.
const MOST_OVERTAKEN: usize = 5;
/// Maximum number of `MOVED` redirects per call.
const MOST_HOPS: usize = 5;
/// Minimum interval between the starts of two refreshes.
const APART: Duration = Duration::from_millis(200);
/// After a sign of a change, the topology is refreshed repeatedly for this time, or until it has
/// changed.
const ALERT: Duration = Duration::from_secs(10);
/// More than a refresh takes.
const LONGEST_LOOK: Duration = Duration::from_secs(10);

/// Sends each call to the server that its first key belongs to, over one [`Link`] per server.
///
/// - Nothing is sent twice: a call is sent to another server only after `MOVED`, with which a
///   server refuses a call without executing it.
/// - If a server turns out to have lost the keys, pending calls to it end at once with
///   [`ErrorKind::ConnectionLost`]: the reply of a replaced server means nothing. For the same
///   reason, a server that was silent for a while is trusted only after a refresh.
/// - The topology is refreshed periodically, and soon after any sign of a change.
pub(crate) struct Router<D: Driver>(Arc<Shared<D>>);

struct Shared<D: Driver> {
    topology: Topology,
    connector: NodeConnector,
    directory: Directory<D>,
    map: watch::Sender<Arc<Nodes<D>>>,
    /// The start of the latest refresh that a call waited for, and its confirmation.
    latest_look: tokio::sync::Mutex<Option<(Instant, Confirmation)>>,
    /// The reason why nothing is sent: the latest refresh could not determine whether the primary
    /// was replaced.
    refusal: Mutex<Option<Error>>,
    /// The server that knows of the latest change.
    witness: Mutex<Option<HostPort>>,
    /// The refreshing task has the turn.
    turns: Arc<Turns>,
}

impl<D: Driver> Router<D> {
    /// Connects and reads the topology. The connections of calls get this name.
    ///
    /// # Errors
    ///
    /// If no server answered with a valid topology. The detail has the reply of each server.
    pub(crate) async fn connect(
        options: &ConnectOptions,
        name: &ConnectionName,
    ) -> Result<Self, Error> {
        let (directory, is_encrypted) = directory(options)?;
        let is_sharded = matches!(options.topology, Topology::Cluster { .. });
        let shared = Arc::new(Shared {
            topology: options.topology.clone(),
            connector: NodeConnector::new(options.clone(), is_encrypted, is_sharded).naming(name),
            directory,
            map: watch::Sender::new(Arc::default()),
            latest_look: tokio::sync::Mutex::default(),
            refusal: Mutex::default(),
            witness: Mutex::default(),
            turns: Turns::new(),
        });
        shared.look().await.map_err(|error| tls_hint(error, &options.topology, is_encrypted))?;
        Ok(Self(shared))
    }

    pub(crate) async fn call(&self, call: ScriptCall<'_>) -> Result<Value, CallError> {
        self.route(&Call(call)).await
    }

    pub(crate) async fn wait(&self, bell: &Bytes, limit: Duration) -> Result<bool, CallError> {
        self.route(&Wait(bell, limit)).await
    }

    pub(crate) async fn info(&self, key: &Bytes) -> Result<String, CallError> {
        self.route(&Info(key)).await
    }

    /// The names of all queues, by the latest view of the topology.
    pub(crate) async fn queues(&self, most_keys: u64) -> Result<QueueList, Error> {
        self.0.look().await?;
        let map = Arc::clone(&self.0.map.borrow());
        scan_all(&map, most_keys).await
    }

    /// The processes with workers, by the latest view of the topology.
    pub(crate) async fn workers(&self) -> Result<WorkerList, Error> {
        self.0.look().await?;
        let map = Arc::clone(&self.0.map.borrow());
        workers::list_all(&map).await
    }

    /// Renames the connections of calls after the name has changed.
    pub(crate) async fn rename(&self) {
        let map = Arc::clone(&self.0.map.borrow());
        let rename = |node: &Arc<Node<D>>| {
            let node = Arc::clone(node);
            async move { node.link.rename().await }
        };
        // At once: a silent node delays no other.
        let renamed: JoinSet<()> = map.nodes().iter().map(|(_, node)| rename(node)).collect();
        renamed.join_all().await;
    }

    async fn route<E: Request>(&self, request: &E) -> Result<E::Answer, CallError> {
        let shared = &self.0;
        shared.keep_watch();
        let slot = slot_of(request.key());
        let mut map = shared.map.subscribe();
        let mut hops = 0;
        loop {
            if let Some(error) = lock(&shared.refusal).clone() {
                shared.noticed(None);
                return Err(error.into());
            }
            let nodes = Arc::clone(&map.borrow_and_update());
            let Some((name, node)) = nodes.owner(slot) else {
                shared.noticed(None);
                return Err(unserved(slot).into());
            };
            let is_replaced = |map: &Arc<Nodes<D>>| {
                map.owner(slot).is_none_or(|(_, owner)| !Arc::ptr_eq(owner, node))
            };
            if E::CONNECTS_FIRST && !node.link.is_connected() {
                match unless_changed(&mut map, is_replaced, node.link.connect()).await {
                    Some(Ok(())) => {}
                    Some(Err(error)) => {
                        shared.noticed(None);
                        return Err(error.into());
                    }
                    // It was not sent yet, so it can be sent to another server.
                    None if hops < MOST_HOPS => {
                        hops += 1;
                        continue;
                    }
                    None => return Err(in_circles(slot).into()),
                }
            }
            // Pinned here, because it is large to move.
            let work = pin!(request.run(&node.link));
            let Some(answer) = unless_changed(&mut map, is_replaced, work).await else {
                return E::replaced(name);
            };
            match &answer {
                Ok(_) if node.suspicion.concerns(request.is_durable()) => {
                    let confirmation = shared.look_after(Instant::now()).await;
                    if confirmation == Confirmation::Missing || is_replaced(&shared.map.borrow()) {
                        return E::replaced(name);
                    }
                    node.suspicion.settle(request.is_durable());
                    let is_believed = confirmation == Confirmation::Full;
                    return if is_believed { answer } else { E::replaced(name) };
                }
                Err(CallError::Reply(line)) if line.starts_with("MOVED ") => {
                    hops += 1;
                    if !shared.moved(line, name) || hops > MOST_HOPS {
                        return answer;
                    }
                }
                Err(error) if is_sign(error) => {
                    shared.noticed(None);
                    return answer;
                }
                _ => return answer,
            }
        }
    }
}

/// The output of `work`; `None` as soon as there is a map of which `is_change` holds, even if
/// `work` has ended meanwhile.
async fn unless_changed<M, F: Future>(
    map: &mut watch::Receiver<M>,
    is_change: impl Fn(&M) -> bool,
    work: F,
) -> Option<F::Output> {
    let mut work = pin!(work);
    loop {
        tokio::select! {
            // Most calls end before any change, and are woken by their reply, so that is polled
            // first.
            biased;
            output = &mut work => {
                let is_late = map.has_changed().is_ok_and(|it| it) && is_change(&map.borrow());
                return (!is_late).then_some(output);
            }
            changed = map.changed() => {
                if changed.is_err() || is_change(&map.borrow_and_update()) {
                    return None;
                }
            }
        }
    }
}

/// A request to a server.
trait Request: Sync {
    type Answer: Send;
    /// It uses the connection for calls. Until that is established, it can be sent to another
    /// server.
    const CONNECTS_FIRST: bool;

    /// The key that determines the server.
    fn key(&self) -> &[u8];

    /// Whether its reply has to be confirmed.
    fn is_durable(&self) -> bool {
        false
    }

    fn run<D: Driver>(
        &self,
        link: &Link<D>,
    ) -> impl Future<Output = Result<Self::Answer, CallError>> + Send;

    /// The result if the server has lost the key in the meantime.
    fn replaced(server: &HostPort) -> Result<Self::Answer, CallError> {
        let detail =
            format!("{server} no longer serves the queue; whether it executed the call is unknown");
        Err(Error::with_detail(ErrorKind::ConnectionLost, detail).into())
    }
}

struct Call<'a>(ScriptCall<'a>);

impl Request for Call<'_> {
    type Answer = Value;
    const CONNECTS_FIRST: bool = true;

    fn key(&self) -> &[u8] {
        self.0.keys.first().map_or(&[], |key| key)
    }

    fn is_durable(&self) -> bool {
        self.0.fence.is_some()
    }

    async fn run<D: Driver>(&self, link: &Link<D>) -> Result<Value, CallError> {
        link.call(self.0).await
    }
}

struct Wait<'a>(&'a Bytes, Duration);

impl Request for Wait<'_> {
    type Answer = bool;
    const CONNECTS_FIRST: bool = false;

    fn key(&self) -> &[u8] {
        self.0
    }

    async fn run<D: Driver>(&self, link: &Link<D>) -> Result<bool, CallError> {
        link.wait(self.0, self.1).await
    }

    fn replaced(_: &HostPort) -> Result<bool, CallError> {
        Ok(false)
    }
}

struct Info<'a>(&'a Bytes);

impl Request for Info<'_> {
    type Answer = String;
    const CONNECTS_FIRST: bool = true;

    fn key(&self) -> &[u8] {
        self.0
    }

    async fn run<D: Driver>(&self, link: &Link<D>) -> Result<String, CallError> {
        link.info().await
    }
}

impl<D: Driver> Shared<D> {
    /// Refreshes the topology and applies it. Returns whether it has changed, and its confirmation.
    ///
    /// Behind sentinels, no call is sent while no sentinel confirms the primary: it may have been
    /// replaced.
    async fn look(&self) -> Result<(bool, Confirmation), Error> {
        let outcome = self.ask().await;
        let refusal = match (&self.directory, &outcome) {
            (Directory::Sentinel { .. }, Err(error)) => {
                let detail = format!("no sentinel confirms the primary: {}", error.detail());
                Some(Error::with_detail(ErrorKind::Unreachable, detail))
            }
            _ => None,
        };
        if refusal.is_some()
            && let Some((_, node)) = self.map.borrow().owner(0)
        {
            // It may have been replaced before it answers pending calls.
            node.suspicion.raise();
        }
        *lock(&self.refusal) = refusal;
        outcome
    }

    async fn ask(&self) -> Result<(bool, Confirmation), Error> {
        let mut witness = lock(&self.witness).take();
        for _ in 0..MOST_OVERTAKEN {
            let current = Arc::clone(&self.map.borrow());
            let look = self.directory.look(&self.connector, &current, witness.as_ref());
            let (view, confirmation) = look.await?;
            if let Some(has_changed) = self.publish(&view, &current)? {
                return Ok((has_changed, confirmation));
            }
            witness = lock(&self.witness).take();
        }
        Err(Error::with_detail(ErrorKind::Busy, "the topology keeps changing"))
    }

    /// Applies a view that was requested when the map was `asked`. Returns whether it shows a
    /// change, or `None` if the map has changed since: the view may be older than that.
    fn publish(&self, view: &View, asked: &Arc<Nodes<D>>) -> Result<Option<bool>, Error> {
        let (mut outcome, mut nodes) = (Ok(None), Vec::new());
        self.map.send_if_modified(|map| {
            if !Arc::ptr_eq(map, asked) && view.epoch <= map.epoch {
                return false;
            }
            // The links of the map are kept.
            let next = match Map::of(view, |name| self.connector.node(name, map)) {
                Ok(next) => next,
                Err(error) => {
                    outcome = Err(error);
                    return false;
                }
            };
            let has_changed = !next.is_like(map);
            outcome = Ok(Some(has_changed));
            if !has_changed && next.epoch == map.epoch {
                return false;
            }
            nodes = next.nodes().iter().map(|(name, _)| name.to_string()).collect();
            *map = Arc::new(next);
            true
        });
        if matches!(outcome, Ok(Some(true))) {
            tracing::info!(topology = %self.topology, epoch = view.epoch, ?nodes, "new topology");
        }
        outcome
    }

    /// Applies a redirect to another server. Returns whether that server can be called.
    fn moved(&self, line: &str, asked: &HostPort) -> bool {
        let Some(moved) = Moved::read(line, asked) else {
            self.noticed(None);
            return false;
        };
        let mut is_known = true;
        self.map.send_modify(|map| match map.with(&moved, |name| self.connector.node(name, map)) {
            Ok(next) => *map = Arc::new(next),
            Err(_) => is_known = false,
        });
        self.noticed(Some(moved.to));
        is_known
    }

    /// Records a sign of a change, which `witness` knows of.
    fn noticed(&self, witness: Option<HostPort>) {
        if witness.is_some() {
            *lock(&self.witness) = witness;
        }
        self.connector.sign().notify_one();
    }

    /// Refreshes the topology unless a refresh began after `instant`.
    async fn look_after(&self, instant: Instant) -> Confirmation {
        // The runtime of its holder may not be run any more.
        let mut latest = timeout(LONGEST_LOOK, self.latest_look.lock()).await.ok();
        if let Some((begin, confirmation)) = latest.as_deref().copied().flatten()
            && begin >= instant
        {
            return confirmation;
        }
        let begin = Instant::now();
        let look = self.look().await;
        let confirmation = look.map_or(Confirmation::Missing, |(_, confirmation)| confirmation);
        if let Some(latest) = &mut latest {
            **latest = Some((begin, confirmation));
        }
        confirmation
    }

    /// Makes sure that a task refreshes the topology: the runtime of the last one may have ended,
    /// or not be run any more.
    fn keep_watch(self: &Arc<Self>) {
        if let Some(turn) = self.turns.claim() {
            let sign = self.connector.sign();
            if turn.is_taken {
                // The silent task takes no more signs.
                sign.notify_waiters();
            }
            tokio::spawn(watch(Arc::downgrade(self), Arc::clone(sign), turn));
        }
    }
}

/// Refreshes the topology periodically, and repeatedly for a while after a sign of a change. The
/// interval does not depend on how long a silent server delays each refresh.
async fn watch<D: Driver>(shared: Weak<Shared<D>>, sign: Arc<Notify>, mut turn: Turn) {
    let (mut alert_until, mut latest) = (None, Instant::now());
    // The signs that a silent task took had no effect.
    let mut is_due = turn.is_taken;
    loop {
        let Some(poll) = shared.upgrade().map(|shared| shared.directory.poll()) else { return };
        let is_alert = alert_until.is_some_and(|until| Instant::now() < until);
        let pause = if std::mem::take(&mut is_due) {
            Duration::ZERO
        } else if is_alert {
            APART
        } else {
            poll
        };
        let is_sign = turn.during(async {
            tokio::select! {
                () = sign.notified() => true,
                () = sleep_until(latest + pause) => false,
            }
        });
        match is_sign.await {
            Some(true) => alert_until = Some(Instant::now() + ALERT),
            Some(false) => {}
            None => return,
        }
        let Some(shared) = shared.upgrade() else { return };
        latest = Instant::now();
        match turn.during(shared.look()).await {
            Some(Ok((true, _))) => alert_until = None,
            Some(Ok(_)) => {}
            Some(Err(error)) => tracing::debug!(topology = %shared.topology, %error, "no topology"),
            None => return,
        }
        drop(shared);
        sleep_until(latest + APART).await;
    }
}

impl<D: Driver> Drop for Router<D> {
    fn drop(&mut self) {
        // Wakes the task, which then finds that it is no longer needed.
        self.0.connector.sign().notify_one();
    }
}

/// Shows the URL without user name and password.
impl<D: Driver> fmt::Debug for Router<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.topology)
    }
}

/// The servers to ask, and whether everything is encrypted.
fn directory<D: Driver>(options: &ConnectOptions) -> Result<(Directory<D>, bool), Error> {
    let (names, is_encrypted) = options.topology.names()?;
    let directory = match &options.topology {
        Topology::Sentinel { service, .. } => {
            let login = ConnectOptions {
                username: options.sentinel_username.clone(),
                password: options.sentinel_password.clone(),
                database: 0,
                ..options.clone()
            };
            let connector = NodeConnector::new(login, is_encrypted, false);
            let link = |name: HostPort| Ok((name.clone(), connector.node(&name, &Map::default())?));
            let sentinels = names.into_iter().map(link).collect::<Result<_, Error>>()?;
            Directory::Sentinel { sentinels, service: service.clone() }
        }
        Topology::Single(_) | Topology::Cluster { .. } => Directory::Cluster { seeds: names },
    };
    Ok((directory, is_encrypted))
}

/// A server that waits for the first message of TLS is silent.
fn tls_hint(error: Error, topology: &Topology, is_encrypted: bool) -> Error {
    if error.kind() != &ErrorKind::Unreachable || is_encrypted || !was_silent(&error) {
        return error;
    }
    let scheme = match topology {
        Topology::Single(_) => return error,
        Topology::Sentinel { .. } => "rediss-sentinel",
        Topology::Cluster { .. } => "rediss-cluster",
    };
    let detail = format!("{}; if the servers expect TLS, use {scheme}://", error.detail());
    Error::with_detail(ErrorKind::Unreachable, detail)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether a failure may come from a change of the topology.
fn is_sign(error: &CallError) -> bool {
    const CODES: [&str; 5] = ["READONLY", "CLUSTERDOWN", "UNBLOCKED", "MASTERDOWN", "ASK"];
    match error {
        CallError::Reply(line) => {
            let code = line.split(' ').next().unwrap_or_default();
            CODES.contains(&code) || classify(line).kind() == &ErrorKind::ReadOnly
        }
        CallError::Failed(error) => matches!(
            error.kind(),
            ErrorKind::Unreachable
                | ErrorKind::ConnectionLost
                | ErrorKind::Timeout
                | ErrorKind::Unconfirmed
        ),
    }
}

fn in_circles(slot: u16) -> Error {
    let detail = format!("the servers of slot {slot} keep changing");
    Error::with_detail(ErrorKind::Busy, detail)
}

fn unserved(slot: u16) -> Error {
    Error::with_detail(ErrorKind::Busy, format!("no server of the cluster serves slot {slot}"))
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use super::*;

    #[tokio::test]
    async fn an_output_that_comes_together_with_a_change_counts_for_nothing() {
        let (sender, mut map) = watch::channel(0);
        sender.send_replace(1);
        assert_eq!(unless_changed(&mut map, |it| *it == 2, ready("reply")).await, Some("reply"));
        sender.send_replace(2);
        assert_eq!(unless_changed(&mut map, |it| *it == 2, ready("reply")).await, None);
    }

    #[tokio::test]
    async fn work_ends_with_the_change_and_not_before() {
        let (sender, mut map) = watch::channel(0);
        let changes = async {
            for change in 1..=2 {
                sender.send_replace(change);
                tokio::task::yield_now().await;
            }
            pending::<()>().await;
        };
        let work = unless_changed(&mut map, |it| *it == 2, pending::<()>());
        let ended = tokio::select! {
            biased;
            ended = work => ended,
            () = changes => unreachable!("it never ends"),
        };
        assert_eq!((ended, *sender.borrow()), (None, 2));
    }
}
