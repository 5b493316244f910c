//! Costs of a queue behind sentinels and in a cluster, compared to one on a single server, and the
//! time of a failover.

use std::sync::Arc;
use std::time::{Duration, Instant};

use allocation_counter::AllocationInfo;
use anyhow::{Context as _, Result, ensure};
use cpu_time::ProcessTime;
use delayline::backend::QueueBackend;
use delayline_benches::{send_singly, work};
use delayline_core::{At, Op};
use delayline_test_server::{Cluster, Sentinels, Server};
use indicatif::ProgressBar;
use tokio::runtime::{Builder, Runtime};
use tokio::task::{JoinSet, spawn_blocking};

use super::faults::calls_until_one_works;
use super::sheet::Sheet;
use super::speed::approximate;
use crate::table::{median, number};
use crate::throughput::rate;
use crate::transport::{DRIVERS, QUEUE, Transport};

const ROUNDS: usize = 25;
const TASKS: usize = 256;
/// Number of slots that are moved to fragment the map of the last cluster.
const MOVED_SLOTS: u16 = 1_000;

/// Where the queue is kept.
enum Place {
    Single(Server),
    Sentinel(Sentinels),
    Cluster(Cluster),
}

/// What a client of a place was measured to need.
struct Client {
    runtime: Runtime,
    backend: Arc<dyn QueueBackend>,
    us_per_call: Vec<f64>,
    allocations_per_call: Vec<f64>,
}

const PLACES: [&str; 4] =
    ["one server", "Sentinel", "Cluster, 3 ranges of slots", "Cluster, 2,003 ranges of slots"];

pub(super) async fn measure(messages: usize, progress: &ProgressBar) -> Result<Sheet> {
    let mut rows = Vec::new();
    for transport in DRIVERS {
        let transport = Transport { tcp: true, ..transport };
        progress.set_message(format!("topologies, {}", transport.driver_name()));
        let places: Vec<Place> = spawn_blocking(|| PLACES.map(Place::start).into()).await?;
        let (places, costs) = spawn_blocking(move || {
            let costs = client_costs(transport, &places, messages);
            (places, costs)
        })
        .await?;
        for (index, (place, cost)) in places.into_iter().zip(costs?).enumerate() {
            let mut row = vec![format!("{}, {}", transport.driver_name(), PLACES[index])];
            row.extend(cost);
            row.extend(rates(transport, &place, messages).await?);
            row.push(failover(transport, place).await?);
            rows.push(row);
        }
    }
    let columns = [
        "",
        "us/call",
        "to one server",
        "allocations/call",
        "sent/s, 256 tasks",
        "worked/s, 256 handlers",
        "new primary, first call after a kill",
    ];
    Ok(Sheet {
        title: "Sentinel and Cluster",
        note: "Calls of 64 tasks on one thread, each a script that only reads: processor time and \
               allocations of the client, the median of 25 rounds that take turns, and the \
               median of their ratios. The last column is from the death of the primary until \
               another server is one, and until a call is answered; servers are replaced when \
               they were silent for 1 s. Sentinel has one replica, the first Cluster one for each \
               of three primaries. All servers share the machine with the client.",
        columns: columns.map(str::to_owned).to_vec(),
        rows,
    })
}

/// Time, ratio and allocations, for each place.
fn client_costs(
    transport: Transport,
    places: &[Place],
    messages: usize,
) -> Result<Vec<[String; 3]>> {
    let mut clients = Vec::new();
    for place in places {
        // Allocations are counted by thread.
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let queue = runtime.block_on(transport.open_at(&place.url()))?;
        let backend = Arc::clone(queue.backend());
        runtime.block_on(calls(&backend, messages / 10))?;
        clients.push(Client {
            runtime,
            backend,
            us_per_call: Vec::new(),
            allocations_per_call: Vec::new(),
        });
    }
    for _ in 0..ROUNDS {
        for client in &mut clients {
            let (start, mut result) = (ProcessTime::now(), Ok(()));
            let AllocationInfo { count_total, .. } = allocation_counter::measure(|| {
                result = client.runtime.block_on(calls(&client.backend, messages));
            });
            let us = start.elapsed().as_secs_f64() * 1e6;
            result?;
            client.us_per_call.push(us / number(messages));
            client.allocations_per_call.push(approximate(count_total) / number(messages));
        }
    }
    let direct = clients.first().context("there is no place")?.us_per_call.clone();
    let of_client = |client: Client| {
        let ratios = client.us_per_call.iter().zip(&direct).map(|(own, direct)| own / direct);
        let ratio = median(ratios.collect());
        let (us, allocations) = (median(client.us_per_call), median(client.allocations_per_call));
        [format!("{us:.2}"), format!("{ratio:.2}"), format!("{allocations:.2}")]
    };
    Ok(clients.into_iter().map(of_client).collect())
}

/// Calls from 64 tasks. A cheap call that is not merged with others shows most of what routing
/// costs.
async fn calls(backend: &Arc<dyn QueueBackend>, messages: usize) -> Result<()> {
    const CALLERS: usize = 64;
    let mut tasks = JoinSet::new();
    for _ in 0..CALLERS {
        let backend = Arc::clone(backend);
        tasks.spawn(async move {
            for _ in 0..messages / CALLERS {
                backend.apply(At::Server, &Op::Stats).await?;
            }
            anyhow::Ok(())
        });
    }
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    Ok(())
}

async fn rates(transport: Transport, place: &Place, messages: usize) -> Result<[String; 2]> {
    let queue = transport.open_at(&place.url()).await?;
    let start = Instant::now();
    send_singly(&queue, messages, TASKS).await?;
    let sent = rate(messages, start);
    let start = Instant::now();
    work(&queue, TASKS).await?;
    Ok([sent, rate(messages, start)].map(|rate| format!("{rate:.0}")))
}

/// How long after a kill there is a new primary, and a call is answered.
async fn failover(transport: Transport, place: Place) -> Result<String> {
    if !place.has_replicas() {
        return Ok("-".to_owned());
    }
    let queue = transport.open_at(&place.url()).await?;
    let backend = Arc::clone(queue.backend());
    calls_until_one_works(&*backend).await?;
    let (place, replicas) = spawn_blocking(move || {
        let replicas = place.kill_primary();
        (place, replicas)
    })
    .await?;
    let start = Instant::now();
    let promotion =
        spawn_blocking(move || place.await_promotion(&replicas).map(|()| (start.elapsed(), place)));
    calls_until_one_works(&*backend).await?;
    let answered = start.elapsed();
    // Its servers end with it.
    let (promoted, _place) = promotion.await??;
    Ok(format!("{:.2} s, {:.2} s", promoted.as_secs_f64(), answered.as_secs_f64()))
}

impl Place {
    fn start(name: &str) -> Self {
        match name {
            "one server" => Self::Single(Server::builder().tcp().start()),
            "Sentinel" => Self::Sentinel(Sentinels::start()),
            "Cluster, 3 ranges of slots" => Self::Cluster(Cluster::builder().replicas(1).start()),
            _ => Self::Cluster(in_pieces(Cluster::start())),
        }
    }

    fn url(&self) -> String {
        match self {
            Self::Single(server) => server.url(),
            Self::Sentinel(sentinels) => sentinels.url(),
            Self::Cluster(cluster) => cluster.url(),
        }
    }

    fn servers(&self) -> &[Server] {
        match self {
            Self::Single(server) => std::slice::from_ref(server),
            Self::Sentinel(sentinels) => sentinels.servers(),
            Self::Cluster(cluster) => cluster.nodes(),
        }
    }

    fn has_replicas(&self) -> bool {
        self.servers().iter().any(|server| !is_primary(server))
    }

    /// Kills the server that has the queue. Answers the ports of the replicas.
    fn kill_primary(&self) -> Vec<u16> {
        let primary = match self {
            Self::Single(server) => server,
            Self::Sentinel(sentinels) => sentinels.primary(),
            Self::Cluster(cluster) => {
                let slot = cluster.slot(&format!("delayline:{{{QUEUE}}}:control"));
                cluster.owner(&cluster.nodes()[0], slot)
            }
        };
        let replicas = self.servers().iter().filter(|server| !is_primary(server));
        let replicas = replicas.map(Server::port).collect();
        primary.kill();
        replicas
    }

    /// Returns when one of these replicas is a primary.
    fn await_promotion(&self, replicas: &[u16]) -> Result<()> {
        let start = Instant::now();
        let is_one = |server: &Server| replicas.contains(&server.port()) && is_primary(server);
        while !self.servers().iter().any(is_one) {
            ensure!(start.elapsed() < Duration::from_secs(60), "no replica was promoted");
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }
}

fn is_primary(server: &Server) -> bool {
    server.info("replication", "role") == "master"
}

/// Every second slot of the first node's moves to the second.
fn in_pieces(cluster: Cluster) -> Cluster {
    let [from, to, ..] = cluster.nodes() else { return cluster };
    for slot in (0..MOVED_SLOTS).map(|number| 2 * number + 1) {
        cluster.begin_to_move(slot, from, to);
        cluster.end_to_move(slot, to);
    }
    cluster
}
