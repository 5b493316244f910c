//! A Redis Cluster of private servers.

use std::thread;
use std::time::{Duration, Instant};

use crate::builder::Role;
use crate::launch::info_field;
use crate::tls::Identity;
use crate::{Builder, Certificate, Reply, Server};

/// Some primaries, each with the same number of replicas. Dropping it kills them all.
pub struct Cluster {
    /// The primaries first, then the replicas of the first primary, and so on.
    nodes: Vec<Server>,
    is_encrypted: bool,
}

/// Says what a cluster is to be like: [`Cluster::builder`].
///
/// Without calls: three primaries without replicas, on TCP ports, without password.
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until `start`"]
pub struct ClusterBuilder {
    primaries: u16,
    replicas: u16,
    node: Builder,
    is_encrypted: bool,
}

impl ClusterBuilder {
    /// Gives each primary so many replicas.
    pub fn replicas(mut self, replicas: u16) -> Self {
        self.replicas = replicas;
        self
    }

    /// Encrypts everything, with one authority for all.
    pub fn tls(mut self) -> Self {
        self.is_encrypted = true;
        self
    }

    /// Sets a directive of `redis.conf` on every node.
    pub fn config(mut self, name: &str, value: &str) -> Self {
        self.node = self.node.config(name, value);
        self
    }

    /// Starts the nodes and returns when every one of them knows who serves what.
    ///
    /// # Panics
    ///
    /// A node does not start, or they do not find together: a test cannot go on without them.
    #[must_use = "dropping a cluster ends it"]
    #[track_caller]
    #[expect(clippy::expect_used, reason = "documented: a test cannot go on without its cluster")]
    pub fn start(self) -> Cluster {
        let mut node = self.node.config("cluster-enabled", "yes");
        // A failover takes about twice as long.
        node = node.config("cluster-node-timeout", "1000").config("repl-diskless-sync-delay", "0");
        node.role = Role::ClusterNode;
        if self.is_encrypted {
            let identity = Identity::generate(Certificate::Valid);
            node.identity = Some(identity.expect("fixed parameters make a certificate"));
            node = node.tls().config("tls-cluster", "yes").config("tls-replication", "yes");
        } else {
            node = node.tcp();
        }
        let count = self.primaries + self.primaries * self.replicas;
        let nodes = (0..count).map(|_| node.clone().start()).collect();
        let cluster = Cluster { nodes, is_encrypted: self.is_encrypted };
        cluster.join(self.primaries, self.replicas);
        cluster
    }
}

impl Cluster {
    /// Starts three primaries without replicas.
    ///
    /// # Panics
    ///
    /// See [`ClusterBuilder::start`].
    #[must_use = "dropping a cluster ends it"]
    #[track_caller]
    pub fn start() -> Self {
        Self::builder().start()
    }

    /// Says what a cluster is to be like, then starts it.
    pub fn builder() -> ClusterBuilder {
        let node = Server::builder();
        ClusterBuilder { primaries: 3, replicas: 0, node, is_encrypted: false }
    }

    /// `redis-cluster://` and all nodes that there were at the start, without user and password.
    #[must_use]
    pub fn url(&self) -> String {
        self.url_of(&self.nodes.iter().collect::<Vec<_>>())
    }

    /// The same with these nodes only.
    #[must_use]
    pub fn url_of(&self, nodes: &[&Server]) -> String {
        let (s, host) = if self.is_encrypted { ("s", "localhost") } else { ("", "127.0.0.1") };
        let hosts: Vec<_> = nodes.iter().map(|node| format!("{host}:{}", node.port())).collect();
        format!("redis{s}-cluster://{}", hosts.join(","))
    }

    /// All nodes: the primaries, then the replicas of the first of them, and so on.
    #[must_use]
    pub fn nodes(&self) -> &[Server] {
        &self.nodes
    }

    /// The node that serves a slot, as `witness` sees it.
    ///
    /// # Panics
    ///
    /// It knows of none, or is not there.
    #[must_use]
    #[track_caller]
    #[expect(clippy::expect_used, reason = "documented: a test cannot go on then")]
    pub fn owner(&self, witness: &Server, slot: u16) -> &Server {
        let port = owner_as_told(witness, slot);
        let owner = self.nodes.iter().find(|node| Some(node.port()) == port);
        owner.expect("a node that serves the slot")
    }

    /// The id of a node.
    ///
    /// # Panics
    ///
    /// It is not there.
    #[must_use]
    #[track_caller]
    pub fn id(&self, node: &Server) -> String {
        redis::from_redis_value(node.command(&["CLUSTER", "MYID"])).unwrap_or_default()
    }

    fn join(&self, primaries: u16, replicas: u16) {
        let first = &self.nodes[0];
        for (number, node) in (1..).zip(&self.nodes) {
            node.command(&[
                "CLUSTER".to_owned(),
                "SET-CONFIG-EPOCH".to_owned(),
                number.to_string(),
            ]);
        }
        for (index, node) in (0_u32..).zip(&self.nodes[..usize::from(primaries)]) {
            let bound = |index: u32| SLOTS * index / u32::from(primaries);
            let slots = (bound(index)..bound(index + 1)).map(|slot| slot.to_string());
            let command = ["CLUSTER".to_owned(), "ADDSLOTS".to_owned()];
            node.command(&command.into_iter().chain(slots).collect::<Vec<_>>());
        }
        for node in &self.nodes[1..] {
            first.command(&["CLUSTER", "MEET", "127.0.0.1", &node.port().to_string()]);
        }
        let count = self.nodes.len().to_string();
        self.await_all("found together", |node| {
            cluster_info(node, "cluster_known_nodes").as_ref() == Some(&count)
        });
        if let Some(replicas) = std::num::NonZeroU16::new(replicas) {
            for (index, node) in self.nodes[usize::from(primaries)..].iter().enumerate() {
                let primary = &self.nodes[index / usize::from(replicas.get())];
                let id = self.id(primary);
                self.await_all("know each other", |node| {
                    let nodes = node.command(&["CLUSTER", "NODES"]);
                    redis::from_redis_value::<String>(nodes).is_ok_and(|nodes| nodes.contains(&id))
                });
                node.command(&["CLUSTER", "REPLICATE", &id]);
            }
            for node in &self.nodes[usize::from(primaries)..] {
                until("a replica has its primary's data", || {
                    node.info("replication", "role") == "slave"
                        && node.info("replication", "master_link_status") == "up"
                });
            }
        }
        self.await_all("serve all slots", |node| {
            cluster_info(node, "cluster_state").as_deref() == Some("ok")
        });
        // Each has to know of each primary whose replicas it may ask for a vote.
        let owners = || {
            (0..u32::from(primaries)).all(|index| {
                let slot = u16::try_from(SLOTS * index / u32::from(primaries)).unwrap_or_default();
                let told: Vec<_> =
                    self.nodes.iter().map(|node| owner_as_told(node, slot)).collect();
                told.iter().all(|port| port.is_some() && *port == told[0])
            })
        };
        until("all nodes agree", owners);
    }

    #[track_caller]
    fn await_all(&self, what: &str, is_so: impl Fn(&Server) -> bool) {
        for node in &self.nodes {
            until(what, || is_so(node));
        }
    }
}

const SLOTS: u32 = 16_384;

/// One field of `CLUSTER INFO`.
fn cluster_info(node: &Server, field: &str) -> Option<String> {
    let text: String =
        redis::from_redis_value(node.try_command(&["CLUSTER", "INFO"]).ok()?).ok()?;
    info_field(&text, field).map(str::to_owned)
}

/// The port of the primary that a node takes for the one that serves a slot.
fn owner_as_told(node: &Server, slot: u16) -> Option<u16> {
    let Reply::Array(ranges) = node.try_command(&["CLUSTER", "SLOTS"]).ok()? else { return None };
    ranges.into_iter().find_map(|range| {
        let Reply::Array(parts) = range else { return None };
        let [Reply::Int(first), Reply::Int(last), Reply::Array(primary), ..] = &parts[..] else {
            return None;
        };
        let [_, Reply::Int(port), ..] = &primary[..] else { return None };
        let is_in = (*first..=*last).contains(&i64::from(slot));
        is_in.then(|| u16::try_from(*port).ok())?
    })
}

/// Asks again and again until something is so: servers do not tell when it is.
#[track_caller]
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + LIMIT;
    while !is_so() {
        assert!(Instant::now() < deadline, "in vain: {what}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// Many times what it takes.
const LIMIT: Duration = Duration::from_secs(60);
