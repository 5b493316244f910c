//! Reports for operators: each server's view of itself, and the views of other servers.

use std::ops::RangeInclusive;
use std::sync::Arc;

use delayline_core::{Error, ErrorKind, QueueName};
use tokio::task::JoinSet;

use crate::classify::{classify, is_forbidden};
use crate::info::{Fields, fields_of};
use crate::link::Link;
use crate::link::connection_name::ConnectionName;
use crate::link::driver::Driver;
use crate::{Address, CallError, ConnectOptions, HostPort, Topology, Value};

use super::directory::{
    Directory, Failures, fields, name_in, no_answer, refusal, service_of, words,
};
use super::map::{Map, names};
use super::node::{Node, NodeConnector};
use crate::slot::{SLOTS, slot_of};

/// How the servers of a [`Survey`] are related.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TopologyKind {
    /// One server, possibly with replicas.
    Single,
    /// A Redis Cluster.
    Cluster,
    /// Servers monitored by sentinels.
    Sentinel,
}

/// A report on all servers that hold queues or can take over from one that does, and on the
/// sentinels.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Survey {
    /// How the servers are related.
    pub kind: TopologyKind,
    /// Primaries and replicas.
    pub servers: Vec<ServerReport>,
    /// The sentinels in the URL.
    pub sentinels: Vec<SentinelReport>,
}

impl Survey {
    /// The primary of this queue, whether or not the queue exists. In a cluster, it serves the
    /// queue's slot. `None` if no primary is known or the slot is not served.
    #[must_use]
    pub fn holder(&self, queue: &QueueName) -> Option<&ServerReport> {
        // All keys of a queue have its name between their first braces.
        let slot = slot_of(queue.as_str().as_bytes());
        self.servers.iter().find(|server| match self.kind {
            // The first one is that of the URL.
            TopologyKind::Single => true,
            TopologyKind::Cluster => server.slots.iter().any(|slots| slots.contains(&slot)),
            TopologyKind::Sentinel => server.flags.iter().any(|flag| flag == "master"),
        })
    }
}

/// What is known about one server.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ServerReport {
    /// `host:port` as the others name it, the path of a socket, or a node's id if nothing more is
    /// known.
    pub address: String,
    /// Its flags in the cluster or at the sentinels: `master` or `slave`, `fail`, `s_down` and so
    /// on. Empty for a single server.
    pub flags: Vec<String>,
    /// The hash slots that it serves according to the cluster.
    pub slots: Vec<RangeInclusive<u16>>,
    /// The number of slots that are being moved to or from it.
    pub slots_in_motion: usize,
    /// The default sections of `INFO`.
    ///
    /// # Errors
    ///
    /// The server cannot be reached, or refuses the command.
    pub info: Result<Fields, Error>,
    /// The settings that determine what a crash or a failover can lose: `appendfsync`, `save`, and
    /// all settings with the prefix `min-replicas-` or `cluster-`.
    ///
    /// # Errors
    ///
    /// Like `info`.
    pub settings: Result<Fields, Error>,
    /// `CLUSTER INFO`. Empty outside a cluster.
    ///
    /// # Errors
    ///
    /// Like `info`.
    pub cluster: Result<Fields, Error>,
}

/// The report of one sentinel.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SentinelReport {
    /// Its `host:port` in the URL.
    pub address: String,
    /// Its view.
    ///
    /// # Errors
    ///
    /// It cannot be reached, refuses the login, or does not know the service.
    pub view: Result<SentinelView, Error>,
}

/// One sentinel's view of the service.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SentinelView {
    /// `SENTINEL MASTER`: the primary, `quorum`, `down-after-milliseconds` and so on.
    pub service: Fields,
    /// `SENTINEL REPLICAS`.
    pub replicas: Vec<Fields>,
    /// `SENTINEL SENTINELS`: the other sentinels.
    pub others: Vec<Fields>,
}

/// See [`DriverTransport::survey`](crate::DriverTransport::survey).
pub(crate) async fn survey<D: Driver>(options: &ConnectOptions) -> Result<Survey, Error> {
    if let Topology::Single(address) = &options.topology {
        return single::<D>(address, options).await;
    }
    let (directory, is_encrypted) = super::directory::<D>(options)?;
    let connector = NodeConnector::new(options.clone(), is_encrypted, false);
    match directory {
        Directory::Cluster { seeds } => {
            let places = cluster::<D>(&connector, seeds).await?;
            let servers = ask_all::<D>(&connector, places, true).await;
            Ok(Survey { kind: TopologyKind::Cluster, servers, sentinels: Vec::new() })
        }
        Directory::Sentinel { sentinels, service } => {
            let (places, sentinels) = watched(sentinels, &service).await?;
            let servers = ask_all::<D>(&connector, places, false).await;
            Ok(Survey { kind: TopologyKind::Sentinel, servers, sentinels })
        }
    }
}

/// The place of a server in the topology, as another server reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Place {
    /// `None` if the reported name cannot be dialed.
    name: Option<HostPort>,
    address: String,
    flags: Vec<String>,
    slots: Vec<RangeInclusive<u16>>,
    slots_in_motion: usize,
}

impl Place {
    fn of(name: HostPort, flags: &str) -> Self {
        let flags = flags.split(',').map(str::to_owned).collect();
        let address = name.to_string();
        Self { name: Some(name), address, flags, slots: Vec::new(), slots_in_motion: 0 }
    }
}

async fn single<D: Driver>(address: &Address, options: &ConnectOptions) -> Result<Survey, Error> {
    let link = Link::<D>::of(address, options, &ConnectionName::default(), None)?;
    link.connect().await?;
    let (name, is_encrypted) = match address {
        Address::Tcp { host, port } => (Some((host, *port)), false),
        Address::Tls { host, port } => (Some((host, *port)), true),
        Address::Unix(_) => (None, false),
    };
    let name = name.map(|(host, port)| HostPort { host: host.clone(), port });
    let shown = name.as_ref().map_or_else(|| address.to_string(), HostPort::to_string);
    let answers = Answers::of(&link, false).await;
    if let Ok(info) = &answers.info
        && let Some(error) = info.get("redis_mode").and_then(|mode| wrong_mode(mode))
    {
        return Err(error);
    }
    let replicas = answers.info.as_ref().map(replicas).unwrap_or_default();
    let mut servers = vec![answers.report(shown, Vec::new(), Vec::new(), 0)];
    if name.is_some() {
        let connector = NodeConnector::new(options.clone(), is_encrypted, false);
        let places = replicas.into_iter().map(|name| Place::of(name, "slave")).collect();
        servers.extend(ask_all::<D>(&connector, places, false).await);
    }
    Ok(Survey { kind: TopologyKind::Single, servers, sentinels: Vec::new() })
}

/// The replicas that a primary names: `slave0:ip=10.0.0.2,port=6379,state=online,...`.
fn replicas(info: &Fields) -> Vec<HostPort> {
    let named = (0..).map_while(|number: u32| info.get(&format!("slave{number}")));
    let name = |line: &String| {
        let field = |name: &str| line.split(',').find_map(|it| it.strip_prefix(name));
        HostPort::told(field("ip=")?, field("port=")?.parse().ok()?)
    };
    named.filter_map(name).collect()
}

/// The nodes of a cluster, as reported by the seed with the newest epoch.
async fn cluster<D: Driver>(
    connector: &NodeConnector,
    seeds: Vec<HostPort>,
) -> Result<Vec<Place>, Error> {
    let (mut asked, mut failures) = (JoinSet::new(), Failures::default());
    for name in seeds {
        match connector.node::<D>(&name, &Map::default()) {
            Ok(node) => {
                asked.spawn(async move { (nodes_of(&node, &name).await, name) });
            }
            Err(error) => failures.add(&name, error),
        }
    }
    let mut newest: Option<((bool, u64), Vec<Place>)> = None;
    while let Some(answer) = asked.join_next().await {
        match answer {
            Ok((Ok((age, places)), _)) if newest.as_ref().is_none_or(|(it, _)| age > *it) => {
                newest = Some((age, places));
            }
            Ok((Ok(_), _)) | Err(_) => {}
            Ok((Err(error), name)) => failures.add(&name, error),
        }
    }
    newest.map(|(_, places)| places).ok_or_else(|| failures.into_error())
}

/// All nodes that a node knows, with its state and epoch.
async fn nodes_of<D: Driver>(
    node: &Node<D>,
    asked: &HostPort,
) -> Result<((bool, u64), Vec<Place>), Error> {
    let places = match node.link.request("CLUSTER", words(&["NODES"])).await {
        Ok(Value::Bytes(text)) => {
            let text = String::from_utf8_lossy(&text);
            text.lines().filter_map(|line| place(line, asked)).collect()
        }
        Ok(_) => return Err(no_answer("CLUSTER NODES")),
        // The rules for programs permit only this.
        Err(CallError::Reply(line)) if is_forbidden(&line) => {
            let reply = node.link.request("CLUSTER", words(&["SLOTS"])).await.map_err(refusal)?;
            places_of_slots(&reply, asked).ok_or_else(|| no_answer("CLUSTER SLOTS"))?
        }
        Err(error) => return Err(refusal(error)),
    };
    let info = cluster_info(&node.link).await.unwrap_or_default();
    let epoch = info.get("cluster_current_epoch").and_then(|epoch| epoch.parse().ok());
    let is_well = info.get("cluster_state").is_none_or(|state| state == "ok");
    Ok(((is_well, epoch.unwrap_or(0)), places))
}

/// Reads a line of `CLUSTER NODES`:
/// `ID HOST:PORT@BUS[,NAME[,...]] FLAGS PRIMARY PING PONG EPOCH STATE SLOTS...`.
fn place(line: &str, asked: &HostPort) -> Option<Place> {
    let mut words = line.split(' ');
    let (id, address, flags) = (words.next()?, words.next()?, words.next()?);
    let (address, name) = match address.split_once(',') {
        Some((address, rest)) => (address, rest.split(',').next().unwrap_or_default()),
        None => (address, ""),
    };
    let (host, port) = address.split('@').next()?.rsplit_once(':')?;
    // A host name is preferred, as for calls; a node may not know its own name.
    let host = [name, host, &asked.host].into_iter().find(|host| !host.is_empty())?;
    let name = HostPort::told(host, port.parse().ok()?);
    let mut place = Place {
        address: name.as_ref().map_or_else(|| format!("node {id}"), HostPort::to_string),
        name,
        flags: flags.split(',').map(str::to_owned).collect(),
        slots: Vec::new(),
        slots_in_motion: 0,
    };
    for slots in words.skip(5) {
        // `[93->-ID]` and `[93-<-ID]`.
        if slots.starts_with('[') {
            place.slots_in_motion += 1;
            continue;
        }
        let (first, last) = slots.split_once('-').unwrap_or((slots, slots));
        let (first, last): (u16, u16) = (first.parse().ok()?, last.parse().ok()?);
        if first > last || last >= SLOTS {
            return None;
        }
        place.slots.push(first..=last);
    }
    Some(place)
}

/// Reads `CLUSTER SLOTS`, which leaves out replicas that failed.
fn places_of_slots(reply: &Value, asked: &HostPort) -> Option<Vec<Place>> {
    let Value::Array(ranges) = reply else { return None };
    let mut places: Vec<Place> = Vec::new();
    for range in ranges {
        let Value::Array(parts) = range else { return None };
        let [Value::Int(first), Value::Int(last), nodes @ ..] = &parts[..] else { return None };
        let slots = u16::try_from(*first).ok()?..=u16::try_from(*last).ok()?;
        for (number, node) in nodes.iter().enumerate() {
            let Value::Array(node) = node else { return None };
            let Some(name) = names(node, asked)?.into_iter().next() else { continue };
            let known = places.iter().position(|place| place.name.as_ref() == Some(&name));
            let index = known.unwrap_or_else(|| {
                places.push(Place::of(name, if number == 0 { "master" } else { "slave" }));
                places.len() - 1
            });
            if number == 0 {
                places[index].slots.push(slots.clone());
            }
        }
    }
    Some(places)
}

/// The servers named by any of the sentinels, and the view of each sentinel.
async fn watched<D: Driver>(
    sentinels: Vec<(HostPort, Arc<Node<D>>)>,
    service: &str,
) -> Result<(Vec<Place>, Vec<SentinelReport>), Error> {
    let mut asked = JoinSet::new();
    for (number, (name, node)) in sentinels.into_iter().enumerate() {
        let service = service.to_owned();
        asked.spawn(async move { (number, view_of(&node, &service).await, name) });
    }
    let mut answers = asked.join_all().await;
    answers.sort_by_key(|(number, ..)| *number);
    let (mut failures, mut places, mut reports) = (Failures::default(), Vec::new(), Vec::new());
    for (_, view, name) in answers {
        if let Err(error) = &view {
            failures.add(&name, error.clone());
        }
        for fields in
            view.iter().flat_map(|view| std::iter::once(&view.service).chain(&view.replicas))
        {
            let flags = fields.get("flags").map_or("", String::as_str);
            let place = name_in(fields).map(|name| Place::of(name, flags));
            places.extend(
                place.filter(|place| !places.iter().any(|known: &Place| known.name == place.name)),
            );
        }
        reports.push(SentinelReport { address: name.to_string(), view });
    }
    if places.is_empty() { Err(failures.into_error()) } else { Ok((places, reports)) }
}

async fn view_of<D: Driver>(node: &Node<D>, service: &str) -> Result<SentinelView, Error> {
    let service_fields = service_of(node, service).await?;
    let list = async |what: &str| match node.link.request("SENTINEL", words(&[what, service])).await
    {
        Ok(Value::Array(list)) => {
            let entry = |entry: &Value| match entry {
                Value::Array(values) => Some(fields(values)),
                _ => None,
            };
            Ok(list.iter().filter_map(entry).collect())
        }
        Ok(_) => Err(no_answer("SENTINEL")),
        Err(error) => Err(refusal(error)),
    };
    let (replicas, others) = (list("REPLICAS").await?, list("SENTINELS").await?);
    Ok(SentinelView { service: service_fields, replicas, others })
}

/// Asks all servers at once, and returns the results in order.
async fn ask_all<D: Driver>(
    connector: &NodeConnector,
    places: Vec<Place>,
    is_cluster: bool,
) -> Vec<ServerReport> {
    let mut asked = JoinSet::new();
    for (number, place) in places.into_iter().enumerate() {
        let node = match &place.name {
            Some(name) => connector.node::<D>(name, &Map::default()),
            None => Err(Error::with_detail(ErrorKind::Unreachable, "its address is unknown")),
        };
        asked.spawn(async move {
            let answers = match node {
                Ok(node) => Answers::of(&node.link, is_cluster).await,
                Err(error) => Answers::none(&error),
            };
            let Place { address, flags, slots, slots_in_motion, .. } = place;
            (number, answers.report(address, flags, slots, slots_in_motion))
        });
    }
    let mut reports = asked.join_all().await;
    reports.sort_by_key(|(number, _)| *number);
    reports.into_iter().map(|(_, report)| report).collect()
}

/// One server's answers about itself.
struct Answers {
    info: Result<Fields, Error>,
    settings: Result<Fields, Error>,
    cluster: Result<Fields, Error>,
}

impl Answers {
    async fn of<D: Driver>(link: &Link<D>, is_cluster: bool) -> Self {
        let info = match link.connect().await {
            Ok(()) => match link.info().await {
                Ok(text) => Ok(fields_of(&text)),
                // Whether the server has no such command or keeps it from the user: it works.
                Err(CallError::Reply(line)) if is_forbidden(&line) => {
                    let detail = classify(&line).detail().to_owned();
                    Err(Error::with_detail(ErrorKind::PermissionDenied, detail))
                }
                Err(error) => Err(refusal(error)),
            },
            Err(error) => Err(error),
        };
        if let Err(error) = &info
            && error.kind() != &ErrorKind::PermissionDenied
        {
            return Self::none(error);
        }
        let settings = settings(link).await;
        let cluster = if is_cluster { cluster_info(link).await } else { Ok(Fields::new()) };
        Self { info, settings, cluster }
    }

    fn none(error: &Error) -> Self {
        let none = || Err(error.clone());
        Self { info: none(), settings: none(), cluster: none() }
    }

    fn report(
        self,
        address: String,
        flags: Vec<String>,
        slots: Vec<RangeInclusive<u16>>,
        slots_in_motion: usize,
    ) -> ServerReport {
        let Self { info, settings, cluster } = self;
        ServerReport { address, flags, slots, slots_in_motion, info, settings, cluster }
    }
}

async fn settings<D: Driver>(link: &Link<D>) -> Result<Fields, Error> {
    let mut settings = Fields::new();
    // One at a time, because Redis 6 does not accept several. None of them can be a password.
    for pattern in ["appendfsync", "save", "min-replicas-*", "cluster-*"] {
        match link.request("CONFIG", words(&["GET", pattern])).await.map_err(refusal)? {
            Value::Array(values) => settings.extend(fields(&values)),
            _ => return Err(no_answer("CONFIG GET")),
        }
    }
    Ok(settings)
}

async fn cluster_info<D: Driver>(link: &Link<D>) -> Result<Fields, Error> {
    match link.request("CLUSTER", words(&["INFO"])).await.map_err(refusal)? {
        Value::Bytes(text) => Ok(fields_of(&String::from_utf8_lossy(&text))),
        _ => Err(no_answer("CLUSTER INFO")),
    }
}

/// Why a server of that `redis_mode` must not be used alone.
pub(crate) fn wrong_mode(mode: &str) -> Option<Error> {
    let (what, advice) = match mode {
        "cluster" => (
            "one node of a cluster",
            "a cluster's URL begins with redis-cluster:// or rediss-cluster://",
        ),
        "sentinel" => (
            "a sentinel instead of a server",
            "its URL begins with redis-sentinel:// or rediss-sentinel:// and ends with the service",
        ),
        _ => return None,
    };
    Some(Error::with_detail(ErrorKind::Unsupported(what), advice))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn asked() -> HostPort {
        HostPort { host: "asked".to_owned(), port: 1 }
    }

    fn read(line: &str) -> Option<Place> {
        place(line, &asked())
    }

    #[test]
    fn lines_of_cluster_nodes_are_read() {
        let node = read("id 10.0.0.1:7000@17000 master - 0 0 1 connected 0-99 200 [93->-other]");
        let node = node.unwrap();
        assert_eq!(node.address, "10.0.0.1:7000");
        assert_eq!(node.slots, [0..=99, 200..=200]);
        assert_eq!((node.flags, node.slots_in_motion), (vec!["master".to_owned()], 1));
        let node = read("id ::1:7000@17000,a.example,shard-id=x slave,fail? p 0 0 1 connected");
        let node = node.unwrap();
        assert_eq!(node.address, "a.example:7000", "a name wins");
        assert_eq!(node.flags, ["slave", "fail?"]);
        let node = read("id :7000@17000 myself,master - 0 0 1 connected").unwrap();
        assert_eq!(node.address, "asked:7000");
        let node = read("id :0@0 master,noaddr - 0 0 1 disconnected").unwrap();
        assert_eq!((node.name, node.address.as_str()), (None, "node id"));
        for bad in ["", "id", "id x master", "id a:1@2 master - 0 0 1 connected 9-3"] {
            assert_eq!(read(bad), None, "{bad}");
        }
        assert_eq!(read("id a:1@2 master - 0 0 1 connected 0-16384"), None);
    }

    #[test]
    fn replicas_are_read_from_their_primary() {
        let info = fields_of(
            "role:master\r\nslave0:ip=10.0.0.2,port=6380,state=online,offset=1,lag=0\r\n\
             slave1:ip=a/b,port=1,state=online\r\nslave2:ip=::1,port=7000,state=wait_bgsave\r\n",
        );
        let names: Vec<_> = replicas(&info).iter().map(HostPort::to_string).collect();
        assert_eq!(names, ["10.0.0.2:6380", "[::1]:7000"], "no host is called a/b");
    }

    proptest! {
        #[test]
        fn any_line_is_read_or_left_out(line in "[a-z0-9:@,\\[\\]<> -]{0,80}") {
            if let Some(Place { name: Some(name), .. }) = read(&line) {
                prop_assert!(name.port != 0 && !name.host.is_empty());
            }
        }
    }
}
