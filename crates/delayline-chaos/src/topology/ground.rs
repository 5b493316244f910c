//! The servers of a cluster or behind sentinels.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use delayline_test_server::{Cluster, Network, Reply, Sentinels, Server};

use super::fault::Fault;
use crate::blocking::blocking;

/// The kind of servers that have the queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Three primaries with a replica each.
    Cluster,
    /// A primary with a replica behind three sentinels.
    Sentinel,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cluster => "cluster",
            Self::Sentinel => "sentinel",
        })
    }
}

/// A cluster, or servers behind sentinels.
pub(super) enum Ground {
    Cluster(Cluster),
    Sentinel(Sentinels),
}

impl Ground {
    pub(super) fn start(kind: Kind, network: Option<&Network>) -> Self {
        // Killed servers restart with their data, as they do in production.
        match kind {
            Kind::Cluster => {
                let builder = Cluster::builder().replicas(1).append_only("everysec");
                Self::Cluster(match network {
                    Some(network) => builder.network(network).start(),
                    None => builder.start(),
                })
            }
            Kind::Sentinel => {
                let builder = Sentinels::builder().append_only("everysec");
                Self::Sentinel(match network {
                    Some(network) => builder.network(network).start(),
                    None => builder.start(),
                })
            }
        }
    }

    pub(super) fn url(&self) -> String {
        match self {
            Self::Cluster(cluster) => cluster.url(),
            Self::Sentinel(sentinels) => sentinels.url(),
        }
    }

    /// Returns primaries and replicas.
    pub(super) fn servers(&self) -> &[Server] {
        match self {
            Self::Cluster(cluster) => cluster.nodes(),
            Self::Sentinel(sentinels) => sentinels.servers(),
        }
    }

    /// Returns primaries and replicas, then sentinels.
    pub(super) fn all(&self) -> impl Iterator<Item = &Server> {
        let sentinels = match self {
            Self::Cluster(_) => &[],
            Self::Sentinel(sentinels) => sentinels.sentinels(),
        };
        self.servers().iter().chain(sentinels)
    }

    /// Returns the names of queues, some on each primary.
    pub(super) fn queue_names(&self) -> Vec<String> {
        match self {
            Self::Sentinel(_) => (0..3).map(|number| format!("queue-{number}")).collect(),
            Self::Cluster(cluster) => {
                let (mut names, mut counts) = (Vec::new(), HashMap::new());
                for name in (0..).map(|number| format!("queue-{number}")) {
                    let owner = cluster.owner(&cluster.nodes()[0], cluster.slot(&name)).pid();
                    let count = counts.entry(owner).or_insert(0_usize);
                    if *count < QUEUES_PER_PRIMARY {
                        *count += 1;
                        names.push(name);
                    }
                    if names.len() == 3 * QUEUES_PER_PRIMARY {
                        break;
                    }
                }
                names
            }
        }
    }

    /// Returns whether a fault is possible on these servers.
    pub(super) fn can(&self, fault: Fault) -> bool {
        match (self, fault) {
            (
                _,
                Fault::Kill | Fault::Freeze | Fault::Stall | Fault::FailOver | Fault::FlushScripts,
            )
            | (_, Fault::CutOff | Fault::LoseReplies | Fault::KillReplica)
            | (_, Fault::Part | Fault::Mute | Fault::SlowDown)
            | (Self::Cluster(_), Fault::MoveInHalves | Fault::AddAndRemoveNode)
            | (Self::Sentinel(_), Fault::FreezeSentinel) => true,
            (Self::Cluster(_), Fault::MoveAtOnce) => self.migration().is_some(),
            (Self::Sentinel(sentinels), Fault::HandOver) => {
                knows(&sentinels.sentinels()[0], &["SENTINEL", "HELP"], "COORDINATED")
            }
            _ => false,
        }
    }

    /// Returns how the servers move a slot in one step, or `None` if they cannot.
    pub(super) fn migration(&self) -> Option<Migration> {
        let help = |word| knows(&self.servers()[0], &["CLUSTER", "HELP"], word);
        if help("MIGRATESLOTS") {
            Some(Migration::Export)
        } else if help("MIGRATION") {
            Some(Migration::Import)
        } else {
            None
        }
    }

    /// Returns the place of the server that has a queue.
    pub(super) fn owner(&self, queue: &str) -> usize {
        let owner = match self {
            Self::Cluster(cluster) => cluster.owner(&cluster.nodes()[0], cluster.slot(queue)),
            Self::Sentinel(sentinels) => sentinels.primary(),
        };
        let is_it = |server: &Server| std::ptr::eq(server, owner);
        self.servers().iter().position(is_it).unwrap_or_default()
    }

    /// Returns the place of the replica of a primary.
    pub(super) fn replica(&self, primary: usize) -> Result<usize> {
        let port = self.servers()[primary].port().to_string();
        let is_it = |server: &Server| {
            field(server, "replication", "role").as_deref() == Some("slave")
                && field(server, "replication", "master_port").as_ref() == Some(&port)
        };
        let replica = self.servers().iter().position(is_it);
        replica.map_or_else(|| bail!("the primary on port {port} has no replica"), Ok)
    }

    /// Returns the number of full syncs of replicas, which are needed if the histories of both
    /// servers differ.
    pub(super) fn full_syncs(&self) -> u64 {
        let syncs = |server| field(server, "stats", "sync_full")?.parse::<u64>().ok();
        self.servers().iter().filter_map(syncs).sum()
    }

    /// Returns the places of the servers that report themselves as primaries. `but` is not asked.
    pub(super) fn primaries(&self, but: Option<usize>) -> BTreeSet<usize> {
        let servers = self.servers().iter().enumerate();
        let asked = servers.filter(|(place, _)| Some(*place) != but);
        asked.filter(|(_, server)| is_primary(server)).map(|(place, _)| place).collect()
    }

    /// Waits until all servers agree, and each primary has its replica again.
    pub(super) async fn settle(&self) -> Result<()> {
        let begin = Instant::now();
        while !blocking(|| self.is_settled()) {
            if begin.elapsed() > LONGEST_SETTLING {
                bail!("the servers do not agree after {LONGEST_SETTLING:?}");
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    }

    /// Waits until the replicas have what the primaries have written by now.
    pub(super) async fn level(&self) -> Result<()> {
        let number =
            |server: &Server, name: &str| field(server, "replication", name)?.parse::<u64>().ok();
        let written: Vec<_> = blocking(|| {
            let places = self.primaries(None).into_iter();
            places
                .map(|place| (place, number(&self.servers()[place], "master_repl_offset")))
                .collect()
        });
        let has_all = |(place, written): &(usize, Option<u64>)| {
            let replica = field(&self.servers()[*place], "replication", "slave0")?;
            let offset = replica.split(',').find_map(|part| part.strip_prefix("offset="))?;
            Some(offset.parse::<u64>().ok()? >= (*written)?)
        };
        let begin = Instant::now();
        while !blocking(|| written.iter().all(|it| has_all(it) == Some(true))) {
            if begin.elapsed() > LONGEST_SETTLING {
                bail!("a replica is not level after {LONGEST_SETTLING:?}");
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    }

    /// Returns whether all sentinels name another primary than this server.
    pub(super) fn have_all_left(&self, victim: usize) -> bool {
        let Self::Sentinel(sentinels) = self else { return true };
        let port = self.servers()[victim].port().to_string();
        sentinels.sentinels().iter().all(|sentinel| {
            service(sentinel).iter().any(|(field, value)| field == "port" && *value != port)
        })
    }

    /// Returns the last lines of each sentinel's log.
    pub(super) fn sentinel_logs(&self) -> String {
        let Self::Sentinel(sentinels) = self else { return String::new() };
        sentinels.sentinels().iter().map(Server::log_tail).collect::<Vec<_>>().join("\n\n")
    }

    fn is_settled(&self) -> bool {
        let is_linked = |server: &Server| match field(server, "replication", "role").as_deref() {
            Some("master") => field(server, "replication", "slave0")
                .is_some_and(|replica| replica.contains("state=online")),
            Some(_) => field(server, "replication", "master_link_status").as_deref() == Some("up"),
            None => false,
        };
        if !self.servers().iter().all(is_linked) {
            return false;
        }
        let primaries = self.primaries(None);
        match self {
            Self::Cluster(cluster) => {
                let slots = |node: &Server| node.try_command(&["CLUSTER", "SLOTS"]).ok();
                let owners = |node: &Server| slots(node).map(|reply| owners(&reply));
                let views: Vec<_> = cluster.nodes().iter().map(owners).collect();
                let is_known = |port: &u16| {
                    primaries.iter().any(|place| cluster.nodes()[*place].port() == *port)
                };
                primaries.len() == 3
                    && views.iter().all(|it| it.is_some() && *it == views[0])
                    && views[0].iter().flatten().all(|(_, port)| is_known(port))
            }
            Self::Sentinel(sentinels) => {
                let Some(primary) = primaries.first().filter(|_| primaries.len() == 1) else {
                    return false;
                };
                let port = self.servers()[*primary].port().to_string();
                sentinels.sentinels().iter().all(|sentinel| {
                    let service = service(sentinel);
                    let is = |name: &str, value: &str| {
                        service.iter().any(|(field, it)| field == name && it == value)
                    };
                    is("port", &port)
                        && is("flags", "master")
                        && is("num-other-sentinels", "2")
                        && knows_replicas(sentinel)
                })
            }
        }
    }

    /// Returns the number of topology requests to each server, or `None` if it cannot be asked.
    /// Sentinels are left out: they do not count by command, and many commands are from each other.
    pub(super) fn asked(&self, but: Option<usize>) -> Vec<Option<u64>> {
        let asked = |(place, server): (usize, &Server)| {
            let stats = (Some(place) != but).then(|| info(server, "commandstats")).flatten()?;
            let calls = |line: &str| {
                let (name, fields) = line.split_once(':')?;
                let is_ours = match self {
                    Self::Cluster(_) => name.starts_with("cmdstat_cluster"),
                    Self::Sentinel(_) => name == "cmdstat_role",
                };
                let calls = fields.strip_prefix("calls=")?.split(',').next()?;
                is_ours.then(|| calls.parse::<u64>().ok())?
            };
            Some(stats.lines().filter_map(calls).sum())
        };
        self.servers().iter().enumerate().map(asked).collect()
    }
}

/// A move of a slot in one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Migration {
    /// Valkey: `CLUSTER MIGRATESLOTS`, sent to the node that has the slot.
    Export,
    /// Redis: `CLUSTER MIGRATION IMPORT`, sent to the node that gets it.
    Import,
}

/// Returns the fields of the service, as a sentinel reports them.
fn service(sentinel: &Server) -> Vec<(String, String)> {
    let reply = sentinel.try_command(&["SENTINEL", "MASTER", "primary"]);
    reply.ok().and_then(|reply| redis::from_redis_value(reply).ok()).unwrap_or_default()
}

/// Returns whether every replica has reported its role to a sentinel, which asks it every 10 s.
/// Before that, a sentinel takes a promoted replica for a former primary that is back, and demotes
/// it.
fn knows_replicas(sentinel: &Server) -> bool {
    let reply = sentinel.try_command(&["SENTINEL", "REPLICAS", "primary"]);
    let replicas: Option<Vec<Vec<(String, String)>>> =
        reply.ok().and_then(|reply| redis::from_redis_value(reply).ok());
    let is_replica = |fields: &Vec<(String, String)>| {
        fields.iter().any(|(field, value)| field == "role-reported" && value == "slave")
    };
    replicas.is_some_and(|replicas| !replicas.is_empty() && replicas.iter().all(is_replica))
}

/// Returns the first slot of each range of `CLUSTER SLOTS`, with the port of its primary.
fn owners(reply: &Reply) -> BTreeSet<(i64, u16)> {
    let Reply::Array(ranges) = reply else { return BTreeSet::new() };
    let owner = |range: &Reply| {
        let Reply::Array(parts) = range else { return None };
        let [Reply::Int(first), _, Reply::Array(primary), ..] = &parts[..] else { return None };
        let [_, Reply::Int(port), ..] = &primary[..] else { return None };
        Some((*first, u16::try_from(*port).ok()?))
    };
    ranges.iter().filter_map(owner).collect()
}

pub(super) fn is_primary(server: &Server) -> bool {
    field(server, "replication", "role").as_deref() == Some("master")
}

fn knows(server: &Server, help: &[&str], word: &str) -> bool {
    let reply = server.try_command(help);
    reply.is_ok_and(|reply| format!("{reply:?}").contains(word))
}

/// Returns a section of `INFO`, if the server is reachable.
fn info(server: &Server, section: &str) -> Option<String> {
    redis::from_redis_value(server.try_command(&["INFO", section]).ok()?).ok()
}

fn field(server: &Server, section: &str, name: &str) -> Option<String> {
    let text = info(server, section)?;
    let value = |line: &str| line.strip_prefix(name)?.strip_prefix(':').map(str::to_owned);
    text.lines().find_map(value).map(|value| value.trim().to_owned())
}

const QUEUES_PER_PRIMARY: usize = 2;
/// Sentinels make a former primary a replica after about ten seconds; the rest is for a busy
/// machine.
const LONGEST_SETTLING: Duration = Duration::from_secs(90);
