//! A Redis Cluster of private servers.

use std::time::Duration;

use crate::launch::info_field;
use crate::settings::Role;
use crate::tls::Identity;
use crate::wait::until_blocking;
use crate::{Builder, Certificate, Network, Reply, Server};

/// Some primaries, each with the same number of replicas. Dropping it kills them all.
pub struct Cluster {
    /// The primaries first, then the replicas of the first primary, and so on.
    nodes: Vec<Server>,
    /// What another node would be like.
    node: Builder,
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
    /// Gives each primary this many replicas.
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

    /// Keeps append-only files, synced `"always"` or `"everysec"`: see [`Builder::append_only`].
    pub fn append_only(mut self, sync: &str) -> Self {
        self.node = self.node.append_only(sync);
        self
    }

    /// Runs every node in a namespace of this network: see [`Builder::network`].
    pub fn network(mut self, network: &Network) -> Self {
        self.node = self.node.network(network);
        self
    }

    /// Starts the nodes and returns when every one of them knows who serves what.
    ///
    /// # Panics
    ///
    /// A node does not start, or the nodes do not form a cluster: a test cannot continue without
    /// them.
    #[must_use = "dropping a cluster ends it"]
    #[track_caller]
    #[expect(clippy::expect_used, reason = "documented: a test cannot go on without its cluster")]
    pub fn start(self) -> Cluster {
        let mut node = self.node.config("cluster-enabled", "yes");
        node.settings.role = Role::ClusterNode;
        if self.is_encrypted {
            let identity = Identity::generate(Certificate::Valid);
            node.settings.identity = Some(identity.expect("fixed parameters make a certificate"));
            node = node.tls().config("tls-cluster", "yes").config("tls-replication", "yes");
        } else {
            node = node.tcp();
        }
        let count = self.primaries + self.primaries * self.replicas;
        let nodes = (0..count).map(|_| node.clone().start()).collect();
        let cluster = Cluster { nodes, node, is_encrypted: self.is_encrypted };
        cluster.join(self.primaries, self.replicas);
        if self.replicas == 0 {
            cluster.set_node_timeout(Duration::from_secs(30));
        }
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
        // A failover takes about twice as long.
        let node = Server::builder()
            .config("cluster-node-timeout", "1000")
            .config("repl-diskless-sync-delay", "0");
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
        let s = if self.is_encrypted { "s" } else { "" };
        let host = |node: &&Server| host(node, self.is_encrypted);
        let hosts: Vec<_> = nodes.iter().map(host).collect();
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

    /// Sets how long a node must be silent to be taken for lost. A cluster with replicas begins
    /// with one second, for failovers that are soon. Without replicas there are none, and a node
    /// that is held up for a second by a busy machine would only stop the cluster: it begins with
    /// 30 s.
    ///
    /// # Panics
    ///
    /// A node is not there.
    #[track_caller]
    pub fn set_node_timeout(&self, timeout: Duration) {
        let ms = timeout.as_millis().to_string();
        for node in &self.nodes {
            node.command(&["CONFIG", "SET", "cluster-node-timeout", &ms]);
        }
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

    /// The slot of a key or of a hash tag.
    ///
    /// # Panics
    ///
    /// The first node is not there.
    #[must_use]
    #[track_caller]
    pub fn slot(&self, key: &str) -> u16 {
        let slot = self.nodes[0].command(&["CLUSTER", "KEYSLOT", key]);
        redis::from_redis_value(slot).unwrap_or_default()
    }

    /// Begins to move a slot in the classic way: from now on both nodes refuse calls that need keys
    /// of both, or keys that are not there.
    ///
    /// # Panics
    ///
    /// One of them refuses, or is not there. So it is with the other steps.
    #[track_caller]
    pub fn begin_to_move(&self, slot: u16, from: &Server, to: &Server) {
        let slot = slot.to_string();
        to.command(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &self.id(from)]);
        from.command(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &self.id(to)]);
    }

    /// Moves keys that still exist.
    ///
    /// # Panics
    ///
    /// See [`begin_to_move`](Self::begin_to_move).
    #[track_caller]
    pub fn move_keys(&self, from: &Server, to: &Server, keys: &[String]) {
        let [host, port] = words(to);
        let mut command = vec!["MIGRATE", &host, &port, "", "0", "5000", "KEYS"];
        command.extend(keys.iter().map(String::as_str));
        from.command(&command);
    }

    /// Makes a node the owner of a slot, as all others see it.
    ///
    /// # Panics
    ///
    /// See [`begin_to_move`](Self::begin_to_move).
    #[track_caller]
    pub fn end_to_move(&self, slot: u16, to: &Server) {
        let (slot, id) = (slot.to_string(), self.id(to));
        let command = ["CLUSTER", "SETSLOT", &slot, "NODE", &id];
        // The new owner first, so that no client is redirected to a node that does not have the
        // slot.
        to.command(&command);
        for node in self.nodes.iter().filter(|node| node.port() != to.port()) {
            // Replicas take no orders, and hear of it from the others.
            if node.info("replication", "role") == "master" {
                node.command(&command);
            }
        }
    }

    /// The keys of a slot that a node has.
    ///
    /// # Panics
    ///
    /// It is not there.
    #[must_use]
    #[track_caller]
    pub fn keys(&self, node: &Server, slot: u16) -> Vec<String> {
        let keys = node.command(&["CLUSTER", "GETKEYSINSLOT", &slot.to_string(), "100"]);
        redis::from_redis_value(keys).unwrap_or_default()
    }

    /// Starts one more primary, which serves nothing yet, and returns when all others know it.
    ///
    /// # Panics
    ///
    /// It does not start, or they do not find together.
    #[must_use = "dropping a server ends it"]
    #[track_caller]
    pub fn add_node(&self) -> Server {
        let server = self.node.clone().start();
        let [host, port] = words(&server);
        self.nodes[0].command(&["CLUSTER", "MEET", &host, &port]);
        let id = self.id(&server);
        self.await_all("know the new node", |node| knows(node, &id));
        until_blocking("the new node knows all others", || {
            self.nodes.iter().all(|node| knows(&server, &self.id(node)))
                && cluster_info(&server, "cluster_state").as_deref() == Some("ok")
        });
        server
    }

    /// Takes a node out that serves nothing any more.
    ///
    /// # Panics
    ///
    /// A node is not there, or refuses.
    #[track_caller]
    pub fn remove_node(&self, server: &Server) {
        let id = self.id(server);
        for node in &self.nodes {
            node.command(&["CLUSTER", "FORGET", &id]);
        }
        server.command(&["CLUSTER", "RESET", "HARD"]);
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
        // A handshake that takes longer than the time limit of nodes is forgotten: it is begun
        // again.
        until_blocking("the first node knows all others", || {
            let unknown = self.nodes[1..].iter().filter(|node| !knows(first, &self.id(node)));
            let addresses: Vec<_> = unknown.map(words).collect();
            for [host, port] in &addresses {
                first.command(&["CLUSTER", "MEET", host, port]);
            }
            addresses.is_empty()
        });
        let count = self.nodes.len().to_string();
        self.await_all("found together", |node| {
            cluster_info(node, "cluster_known_nodes").as_ref() == Some(&count)
        });
        if let Some(replicas) = std::num::NonZeroU16::new(replicas) {
            for (index, node) in self.nodes[usize::from(primaries)..].iter().enumerate() {
                let primary = &self.nodes[index / usize::from(replicas.get())];
                let id = self.id(primary);
                self.await_all("know each other", |node| knows(node, &id));
                node.command(&["CLUSTER", "REPLICATE", &id]);
            }
            for node in &self.nodes[usize::from(primaries)..] {
                until_blocking("a replica has its primary's data", || {
                    node.info("replication", "role") == "slave"
                        && node.info("replication", "master_link_status") == "up"
                });
            }
            for node in &self.nodes[..usize::from(primaries)] {
                until_blocking("a primary has all its replicas", || {
                    has_online(node, usize::from(replicas.get()))
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
        until_blocking("all nodes agree", owners);
    }

    #[track_caller]
    fn await_all(&self, what: &str, is_so: impl Fn(&Server) -> bool) {
        for node in &self.nodes {
            until_blocking(what, || is_so(node));
        }
    }
}

const SLOTS: u32 = 16_384;

/// Host and port as they stand in a URL. Certificates are made out to `localhost`.
pub(crate) fn host(server: &Server, is_encrypted: bool) -> String {
    if is_encrypted { format!("localhost:{}", server.port()) } else { server.address().to_string() }
}

/// Host and port as commands have them.
pub(crate) fn words(server: &Server) -> [String; 2] {
    let address = server.address();
    [address.ip().to_string(), address.port().to_string()]
}

/// Returns whether a primary considers this many replicas ready, which is later than they do
/// themselves.
pub(crate) fn has_online(primary: &Server, replicas: usize) -> bool {
    let text = primary.try_command(&["INFO", "replication"]).ok();
    let text = text.and_then(|reply| redis::from_redis_value::<String>(reply).ok());
    text.is_some_and(|text| text.matches("state=online").count() == replicas)
}

/// Whether a node knows another one by its id.
fn knows(node: &Server, id: &str) -> bool {
    let nodes = node.command(&["CLUSTER", "NODES"]);
    redis::from_redis_value::<String>(nodes).is_ok_and(|nodes| nodes.contains(id))
}

/// One field of `CLUSTER INFO`.
fn cluster_info(node: &Server, field: &str) -> Option<String> {
    let text: String =
        redis::from_redis_value(node.try_command(&["CLUSTER", "INFO"]).ok()?).ok()?;
    info_field(&text, field).map(str::to_owned)
}

/// Returns the port of the primary that serves a slot according to a node.
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
