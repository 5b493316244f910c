//! The servers that know the topology: the nodes of a cluster, or sentinels.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use delayline_core::{Error, ErrorKind};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::classify::is_forbidden;
use crate::info::{Fields, field};
use crate::link::driver::Driver;
use crate::{CallError, HostPort, Value, classify};

use super::map::View;
use super::node::{Node, NodeConnector, Nodes};

/// How long a server may take to answer.
const PATIENCE: Duration = Duration::from_secs(1);
/// After this time, the next server is asked as well.
const NEXT_AFTER: Duration = Duration::from_millis(200);

/// The servers that know the topology.
pub(crate) enum Directory<D: Driver> {
    /// Any node of the cluster, and the seeds if no other node answers.
    Cluster { seeds: Vec<HostPort> },
    /// Sentinels that watch over a primary called `service`.
    Sentinel { sentinels: Vec<(HostPort, Arc<Node<D>>)>, service: String },
}

/// Which replies of a server that was silent count after a refresh.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Confirmation {
    /// All that came before the refresh, and later ones.
    Full,
    /// Only later ones: during the silence, the server may have been about to be replaced.
    FromNowOn,
    /// None.
    Missing,
}

impl Confirmation {
    const fn of(is_unsure: bool) -> Self {
        if is_unsure { Self::FromNowOn } else { Self::Full }
    }
}

impl<D: Driver> Directory<D> {
    /// The poll interval without any sign of a change.
    pub(crate) fn poll(&self) -> Duration {
        match self {
            // A node that has lost a slot says so.
            Self::Cluster { .. } => Duration::from_secs(30),
            // A demoted primary accepts writes, and loses them, until a sentinel reaches it.
            Self::Sentinel { .. } => Duration::from_secs(1),
        }
    }

    /// Reads the topology, from `first` before other servers.
    ///
    /// # Errors
    ///
    /// If no server answered with a valid topology.
    pub(crate) async fn look(
        &self,
        connector: &NodeConnector,
        current: &Nodes<D>,
        first: Option<&HostPort>,
    ) -> Result<(View, Confirmation), Error> {
        match self {
            Self::Cluster { seeds } => cluster(connector, current, seeds, first).await,
            Self::Sentinel { sentinels, service } => {
                sentinel(connector, current, sentinels, service).await
            }
        }
    }
}

/// The first view of a healthy node that is not older than the map, or else the newest other view.
///
/// A node that was silent for a while may report an outdated topology. It is asked only if no other
/// node knows. The same holds for seeds, because a seed may be the same node by another name. Such
/// views confirm something only if they come from two nodes, or if the cluster has only one.
async fn cluster<D: Driver>(
    connector: &NodeConnector,
    current: &Nodes<D>,
    seeds: &[HostPort],
    first: Option<&HostPort>,
) -> Result<(View, Confirmation), Error> {
    let mut known: Vec<_> = current.nodes().iter().collect();
    fastrand::shuffle(&mut known);
    let (doubted, trusted): (Vec<_>, Vec<_>) =
        known.into_iter().partition(|(_, node)| node.suspicion.is_raised());
    let is_doubted = |name: &HostPort| doubted.iter().any(|(known, _)| known == name);
    let mut names: Vec<&HostPort> = Vec::new();
    let first = first.filter(|name| !is_doubted(name));
    for name in first.into_iter().chain(trusted.into_iter().map(|(name, _)| name)) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let mut rest: Vec<&HostPort> = Vec::new();
    let seeds = seeds.iter().filter(|name| !is_doubted(name));
    for name in seeds.chain(doubted.iter().map(|(name, _)| name)) {
        if !names.contains(&name) && !rest.contains(&name) {
            rest.push(name);
        }
    }
    if doubted.is_empty() {
        names.append(&mut rest);
    }
    let failures = Failures::default();
    let mut search = Search { connector, current, good: None, newest: None, failures };
    let is_alone = current.owners().count() <= 1;
    let needed = if is_alone { 1 } else { 2 };
    let is_sure = search.ask(names, 1, |_| true).await
        || search.ask(rest, needed, |name| is_alone || is_doubted(name)).await
        || is_alone;
    let view = search.good.or(search.newest).ok_or_else(|| search.failures.into_error())?;
    Ok((view, if is_sure { Confirmation::Full } else { Confirmation::Missing }))
}

/// The queries of one refresh, and their results.
struct Search<'a, D: Driver> {
    connector: &'a NodeConnector,
    current: &'a Nodes<D>,
    /// The newest view of a healthy node that is not older than the map.
    good: Option<View>,
    /// The newest other view.
    newest: Option<View>,
    failures: Failures,
}

impl<D: Driver> Search<'_, D> {
    /// Asks one server after the other, without waiting for long, until `needed` servers that count
    /// have good views. Returns whether they have.
    async fn ask(
        &mut self,
        names: Vec<&HostPort>,
        mut needed: usize,
        counts: impl Fn(&HostPort) -> bool,
    ) -> bool {
        let (mut names, mut asked) = (names.into_iter(), JoinSet::new());
        loop {
            if let Some(name) = names.next() {
                match self.connector.node(name, self.current) {
                    Ok(node) => {
                        asked.spawn(in_time(name.clone(), view_of(node, name.clone())));
                    }
                    Err(error) => self.failures.add(name, error),
                }
            }
            let answer = if names.len() == 0 {
                asked.join_next().await
            } else {
                match timeout(NEXT_AFTER, asked.join_next()).await {
                    Ok(answer) => answer,
                    Err(_) => continue,
                }
            };
            match answer {
                Some(Ok((name, Ok((view, is_healthy))))) => {
                    let is_good = is_healthy && view.epoch >= self.current.epoch;
                    let newest = if is_good { &mut self.good } else { &mut self.newest };
                    if newest.as_ref().is_none_or(|newest| view.epoch > newest.epoch) {
                        *newest = Some(view);
                    }
                    needed -= usize::from(is_good && counts(&name));
                    if needed == 0 {
                        return true;
                    }
                }
                Some(Err(_)) => {}
                Some(Ok((name, Err(error)))) => self.failures.add(&name, error),
                None if names.len() == 0 => return false,
                None => {}
            }
        }
    }
}

/// The view of a cluster node, and whether the node reaches most of the others.
async fn view_of<D: Driver>(node: Arc<Node<D>>, name: HostPort) -> Result<(View, bool), Error> {
    let info = match node.link.request("CLUSTER", words(&["INFO"])).await {
        Ok(Value::Bytes(text)) => String::from_utf8_lossy(&text).into_owned(),
        Ok(_) => return Err(no_answer("CLUSTER INFO")),
        // Without permission for it, only the slots count.
        Err(CallError::Reply(line)) if is_forbidden(&line) => String::new(),
        Err(error) => return Err(refusal(error)),
    };
    let field = |name: &str| {
        let value =
            |line: &str| Some(line.strip_prefix(name)?.strip_prefix(':')?.trim().to_owned());
        info.lines().find_map(value)
    };
    let epoch = field("cluster_current_epoch").and_then(|epoch| epoch.parse().ok()).unwrap_or(0);
    let is_healthy = field("cluster_state").is_none_or(|state| state == "ok");
    let reply = node.link.request("CLUSTER", words(&["SLOTS"])).await.map_err(refusal)?;
    let view = View::of_slots(epoch, &reply, &name).ok_or_else(|| no_answer("CLUSTER SLOTS"))?;
    if view.ranges.is_empty() && reply != Value::Array(Vec::new()) {
        return Err(no_address());
    }
    Ok((view, is_healthy))
}

/// The primary named by the sentinels with the newest epoch, if that server considers itself a
/// primary.
///
/// Fewer than a majority of the sentinels are not trusted: they may be cut off together with a
/// primary that the others have replaced.
async fn sentinel<D: Driver>(
    connector: &NodeConnector,
    current: &Nodes<D>,
    sentinels: &[(HostPort, Arc<Node<D>>)],
    service: &str,
) -> Result<(View, Confirmation), Error> {
    let (mut asked, mut failures) = (JoinSet::new(), Failures::default());
    for (name, node) in sentinels {
        let answer = primary_of(Arc::clone(node), service.to_owned());
        asked.spawn(in_time(name.clone(), answer));
    }
    let majority = sentinels.len() / 2 + 1;
    let known = current.owner(0);
    let is_doubted = known.is_some_and(|(_, node)| node.suspicion.is_raised());
    let mut answers: Vec<Told> = Vec::new();
    loop {
        // The sentinel that leads a failover is the first to know of it, so all replies are
        // awaited. A new connection does not wait long for silent sentinels: the next refresh asks
        // them again.
        let answer = if answers.len() >= majority && known.is_none() {
            timeout(NEXT_AFTER, asked.join_next()).await.unwrap_or_default()
        } else {
            asked.join_next().await
        };
        match answer {
            Some(Ok((_, Ok(answer)))) => answers.push(answer),
            Some(Ok((name, Err(error)))) => failures.add(&name, error),
            Some(Err(_)) => {}
            None => break,
        }
    }
    if answers.len() < majority {
        let error = failures.into_error();
        let (answers, all) = (answers.len(), sentinels.len());
        let detail = format!("{answers} of {all} sentinels answered, {majority} are needed: ");
        return Err(Error::with_detail(error.kind().clone(), detail + error.detail()));
    }
    let newest = answers.iter().map(|told| told.epoch).max().unwrap_or(0);
    // The epochs of newly set up sentinels start again. A failover may have reached only one of
    // them, so all must agree.
    let are_anew = newest < current.epoch
        && answers.len() == sentinels.len()
        && answers.iter().all(|told| told.name == answers[0].name);
    let reports_on = |name: &HostPort| {
        let name = name.clone();
        answers.iter().filter(move |told| told.name == name)
    };
    // One sentinel may report a healthy primary as down for ever. Most of them do not.
    let is_upheld = |name: &HostPort| {
        reports_on(name).filter(|told| !told.is_down).count() >= majority
            && !reports_on(name).any(|told| told.is_failing_over)
    };
    let is_passing = |name: &HostPort| {
        reports_on(name).any(|told| told.is_ordered || is_doubted && told.is_down)
            && !is_upheld(name)
    };
    if newest < current.epoch
        && !are_anew
        && let Some((name, _)) = known
        && (!is_doubted || is_upheld(name))
    {
        // The sentinel that reported it is silent, and no sentinel knows of a newer primary.
        let view = View::of_one(current.epoch, name.clone(), current.left().to_vec());
        return Ok((view, Confirmation::of(is_doubted)));
    }
    for Told { epoch, name, .. } in &answers {
        let (epoch, name) = (*epoch, name.clone());
        let is_left = epoch == current.epoch && current.left().contains(&name);
        if epoch < newest || epoch < current.epoch && !are_anew || is_left {
            failures.add(&name, no_news());
            continue;
        }
        if is_passing(&name) {
            failures.add(&name, is_being_replaced());
            continue;
        }
        let mut left = if epoch == current.epoch { current.left().to_vec() } else { Vec::new() };
        match known {
            Some((known, _)) if *known == name => {
                let is_unsure = is_doubted && reports_on(&name).any(|told| told.is_down);
                return Ok((View::of_one(epoch, name, left), Confirmation::of(is_unsure)));
            }
            Some((known, _)) => left.push(known.clone()),
            None => {}
        }
        let node = connector.node(&name, current)?;
        match in_time(name.clone(), is_primary(node)).await.1 {
            Ok(true) => return Ok((View::of_one(epoch, name, left), Confirmation::Full)),
            Ok(false) => failures.add(&name, no_primary()),
            Err(error) => failures.add(&name, error),
        }
    }
    Err(failures.into_error())
}

/// A sentinel's report on the primary of a service.
struct Told {
    /// The epoch of the report.
    epoch: u64,
    name: HostPort,
    /// The sentinel does not reach it, or is about to replace it.
    is_down: bool,
    /// The sentinel is about to replace it.
    is_failing_over: bool,
    /// The sentinel is about to replace it on an operator's request, although it is healthy.
    is_ordered: bool,
}

/// Asks for the address before and after the epoch, so that they belong together.
///
/// `SENTINEL MASTER` has an address, too. But during a failover it has the new epoch with the old
/// address until all replicas follow the new primary. `GET-MASTER-ADDR-BY-NAME` returns a promoted
/// primary as soon as the new epoch begins.
async fn primary_of<D: Driver>(node: Arc<Node<D>>, service: String) -> Result<Told, Error> {
    let before = address_of(&node, &service);
    let after = address_of(&node, &service);
    let (before, fields, after) = tokio::try_join!(before, service_of(&node, &service), after)?;
    if before != after {
        return Err(is_changing());
    }
    let described = name_in(&fields);
    let is_promoted = after.is_some() && after != described;
    let name = after.or(described).ok_or_else(|| no_answer("SENTINEL MASTER"))?;
    let epoch = fields.get("config-epoch").and_then(|epoch| epoch.parse().ok()).unwrap_or(0);
    // The flags are those of the old one.
    let flags = fields.get("flags").filter(|_| !is_promoted).map_or("", String::as_str);
    let has = |flag| flags.split(',').any(|it| it == flag);
    let is_failing_over = has("failover_in_progress");
    let is_down = is_failing_over || has("s_down") || has("o_down");
    let is_ordered = is_failing_over && !has("o_down");
    Ok(Told { epoch, name, is_down, is_failing_over, is_ordered })
}

/// The address of the primary of a service, or `None` if the sentinel does not report it.
async fn address_of<D: Driver>(node: &Node<D>, service: &str) -> Result<Option<HostPort>, Error> {
    let question = words(&["GET-MASTER-ADDR-BY-NAME", service]);
    let parts = match node.link.request("SENTINEL", question).await {
        Ok(Value::Array(parts)) => parts,
        // Its user may only be allowed to query the description.
        Ok(_) | Err(CallError::Reply(_)) => return Ok(None),
        Err(error) => return Err(refusal(error)),
    };
    let [Value::Bytes(host), Value::Bytes(port)] = &parts[..] else { return Ok(None) };
    let (host, port) = (String::from_utf8_lossy(host), String::from_utf8_lossy(port));
    Ok(port.parse().ok().and_then(|port| HostPort::told(&host, port)))
}

/// A sentinel's description of a service.
pub(super) async fn service_of<D: Driver>(node: &Node<D>, service: &str) -> Result<Fields, Error> {
    match node.link.request("SENTINEL", words(&["MASTER", service])).await {
        Ok(Value::Array(values)) => Ok(fields(&values)),
        Ok(_) => Err(no_answer("SENTINEL MASTER")),
        Err(CallError::Reply(line)) if line.contains("No such master") => {
            let detail = format!("the sentinel does not monitor {service:?}");
            let kind = ErrorKind::Unsupported("the service name of the sentinel URL");
            Err(Error::with_detail(kind, detail))
        }
        Err(error) => Err(refusal(error)),
    }
}

/// Alternating names and values, as sentinels and `CONFIG GET` list them.
pub(super) fn fields(values: &[Value]) -> Fields {
    let text = |bytes: &Bytes| String::from_utf8_lossy(bytes).into_owned();
    let pairs = values.chunks_exact(2).filter_map(|pair| match pair {
        [Value::Bytes(name), Value::Bytes(value)] => Some((text(name), text(value))),
        _ => None,
    });
    pairs.collect()
}

/// The server that a sentinel describes.
pub(super) fn name_in(fields: &Fields) -> Option<HostPort> {
    HostPort::told(fields.get("ip")?, fields.get("port")?.parse().ok()?)
}

/// Whether a server considers itself a primary. Assumed if the user may not ask it, neither by
/// `ROLE` nor by `INFO`.
async fn is_primary<D: Driver>(node: Arc<Node<D>>) -> Result<bool, Error> {
    match node.link.request("ROLE", Vec::new()).await {
        Ok(Value::Array(parts)) => Ok(parts.first() == Some(&Value::Bytes("master".into()))),
        Ok(_) => Err(no_answer("ROLE")),
        Err(CallError::Reply(line)) if is_forbidden(&line) => match node.link.info().await {
            Ok(info) => Ok(field(&info, "role").is_none_or(|role| role == "master")),
            Err(CallError::Reply(line)) if is_forbidden(&line) => Ok(true),
            Err(error) => Err(refusal(error)),
        },
        Err(error) => Err(refusal(error)),
    }
}

/// The answer of a server, within [`PATIENCE`].
async fn in_time<T>(
    name: HostPort,
    answer: impl Future<Output = Result<T, Error>>,
) -> (HostPort, Result<T, Error>) {
    let answer = timeout(PATIENCE, answer).await.unwrap_or_else(|_| {
        Err(Error::with_detail(ErrorKind::Unreachable, format!("{NO_ANSWER} within {PATIENCE:?}")))
    });
    (name, answer)
}

const NO_ANSWER: &str = "no answer";

/// Whether a server did not answer.
pub(super) fn was_silent(error: &Error) -> bool {
    error.detail().contains(NO_ANSWER)
}

pub(super) fn words(words: &[&str]) -> Vec<Bytes> {
    words.iter().map(|word| Bytes::copy_from_slice(word.as_bytes())).collect()
}

pub(super) fn refusal(error: CallError) -> Error {
    match error {
        CallError::Reply(line) if line.contains("cluster support disabled") => Error::with_detail(
            ErrorKind::Unsupported("a cluster URL"),
            "the server is not in cluster mode: its URL begins with redis:// or rediss://",
        ),
        // Servers that are no sentinels do not know the command.
        CallError::Reply(line) if line.to_ascii_lowercase().contains("command 'sentinel'") => {
            Error::with_detail(
                ErrorKind::Unsupported("a sentinel URL"),
                "the server is not a sentinel: its URL begins with redis:// or rediss://",
            )
        }
        // Nor do sentinels know this one.
        CallError::Reply(line) if line.to_ascii_lowercase().contains("command 'cluster'") => {
            Error::with_detail(
                ErrorKind::Unsupported("a cluster URL"),
                "the server is not in cluster mode; if it is a sentinel, its URL is \
                 redis-sentinel://HOST:PORT/SERVICE",
            )
        }
        CallError::Reply(line) => classify(&line),
        CallError::Failed(error) => error,
    }
}

pub(super) fn no_answer(command: &str) -> Error {
    Error::with_detail(ErrorKind::Protocol, format!("unexpected reply to {command}"))
}

fn no_address() -> Error {
    Error::with_detail(
        ErrorKind::Unsupported("a cluster without addresses"),
        "it lists no server by an address that can be dialed: set cluster-announce-hostname on \
         each, or another cluster-preferred-endpoint-type",
    )
}

fn no_news() -> Error {
    Error::with_detail(ErrorKind::Unreachable, "it was the primary before a failover")
}

fn is_being_replaced() -> Error {
    Error::with_detail(ErrorKind::Unreachable, "it may be about to be replaced")
}

fn is_changing() -> Error {
    Error::with_detail(ErrorKind::Unreachable, "it has just named another primary")
}

fn no_primary() -> Error {
    Error::with_detail(ErrorKind::Unreachable, "it is listed as the primary but is a replica")
}

/// Why no server returned a valid topology.
#[derive(Default)]
pub(super) struct Failures(Vec<(HostPort, Error)>);

impl Failures {
    pub(super) fn add(&mut self, name: &HostPort, error: Error) {
        self.0.push((name.clone(), error));
    }

    /// Joins all of them into one error, of the kind that most needs action by an operator.
    pub(super) fn into_error(self) -> Error {
        let is_temporary = |kind: &ErrorKind| {
            matches!(kind, ErrorKind::Unreachable | ErrorKind::Busy | ErrorKind::Overloaded)
        };
        let kinds = || self.0.iter().map(|(_, error)| error.kind());
        let lasting = kinds().find(|kind| {
            !is_temporary(kind) && kind.class() != delayline_core::ErrorClass::Ambiguous
        });
        let kind = lasting.cloned().unwrap_or(ErrorKind::Unreachable);
        let detail = |(name, error): &(HostPort, Error)| match error.detail() {
            "" => format!("{name}: {error}"),
            // The error of a failed connection attempt already names the address.
            detail if detail.contains(&name.to_string()) => detail.to_owned(),
            detail => format!("{name}: {detail}"),
        };
        let details: Vec<_> = self.0.iter().map(detail).collect();
        Error::with_detail(kind, details.join("; "))
    }
}
