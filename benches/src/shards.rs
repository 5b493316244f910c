//! Costs of six shards on three nodes, compared with one queue on one node.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use delayline::codec::Raw;
use delayline::message::Sent;
use delayline::{Bytes, Connect, Queue};
use delayline_benches::{PAYLOAD_BYTES, cpu_time, send_singly, work};
use delayline_test_server::{Cluster, Server};
use indicatif::ProgressBar;

use crate::groups::settle;
use crate::idle;
use crate::instructions::CountedServer;
use crate::lateness::{QUANTILES, lone_messages, quantiles};
use crate::table::{Columns, Table, median, number, spread};
use crate::transport::{DRIVERS, QUEUE};

const SHARDS: u32 = 6;
const BATCHES: [usize; 3] = [1, 10, 100];
const ROUNDS: usize = 5;
const TASKS: usize = 256;

pub(crate) async fn measure(messages: usize, progress: &ProgressBar) -> Result<Vec<Table>> {
    let instructions = instructions(messages / 4, progress).await?;
    let [cost, share] = cost(messages, progress).await?;
    let idle = idle_cost(progress).await?;
    Ok(vec![instructions, cost, share, idle, late(messages / 500, progress).await?])
}

/// Counts instructions of one server that has all shards.
async fn instructions(messages: usize, progress: &ProgressBar) -> Result<Table> {
    let mut rows = Vec::new();
    for batch in BATCHES {
        let messages = messages.min(batch * 2_000).next_multiple_of(1_000);
        let each = async |shards: u32| {
            progress.set_message(format!("instructions, {}, batches of {batch}", label(shards)));
            let counted = CountedServer::start()?;
            let queue = open(&counted.server().url(), QUEUE, shards).await?;
            // The first batches load the scripts.
            live(&queue, batch, 10 * batch).await?;
            counted.count()?;
            live(&queue, batch, messages).await?;
            anyhow::Ok(counted.count()? / number(messages))
        };
        let ratio = each(SHARDS).await? / each(1).await?;
        rows.push((format!("batches of {batch}"), vec![ratio]));
    }
    Ok(Table {
        name: "shards-instructions",
        title: "Server instructions for a message in a queue of six shards",
        unit: "ratio to one shard",
        columns: vec!["ratio".to_owned()],
        rows,
        columns_are: Columns::Cases,
        wide: false,
        note: "Enqueue, claim and ack together, counted by callgrind, with all shards on one \
               server. Ids are generated, so a batch is of one shard or of two. A shard that was not \
               looked at for a second is asked, too. This happens in most claims here, because \
               callgrind slows the server down.",
    })
}

async fn open(url: &str, name: &str, shards: u32) -> Result<Queue<Bytes, Raw>> {
    let connection = Connect::new(url)?.client(DRIVERS[0].driver).connect().await?;
    let opening = connection.queue(name);
    let opening = if shards > 1 { opening.shards(shards) } else { opening };
    Ok(opening.await?.codec(Raw))
}

/// Sends all messages, then claims and acks them, in batches.
async fn live(queue: &Queue<Bytes, Raw>, batch: usize, messages: usize) -> Result<()> {
    let payload = Bytes::from_static(&[b'p'; PAYLOAD_BYTES]);
    for _ in (0..messages).step_by(batch) {
        let drafts = (0..batch).map(|_| queue.message(&payload));
        let sent: Result<Vec<_>, _> = queue.send_many(drafts).await.into_iter().collect();
        ensure!(sent?.iter().all(Sent::is_accepted), "a message was not accepted");
    }
    let mut handled = 0;
    while handled < messages {
        handled += settle(&**queue.backend(), batch).await?;
    }
    Ok(())
}

fn label(shards: u32) -> String {
    if shards == 1 { "1 shard".to_owned() } else { format!("{shards} shards") }
}

/// A cluster of three nodes with a queue of one or of six shards.
struct Place {
    cluster: Cluster,
    queue: Queue<Bytes, Raw>,
}

impl Place {
    async fn start(shards: u32) -> Result<Self> {
        let cluster = tokio::task::block_in_place(Cluster::start);
        let name = tokio::task::block_in_place(|| even_name(&cluster))?;
        Ok(Self { queue: open(&cluster.url(), &name, shards).await?, cluster })
    }

    /// Returns the processor time of each node.
    fn spent(&self) -> Vec<Duration> {
        self.cluster.nodes().iter().map(cpu_time).collect()
    }

    /// Returns the processor time since `before`: microseconds of all nodes per message, and the
    /// percentage of the busiest node.
    fn since(&self, before: &[Duration], messages: usize) -> [f64; 2] {
        let spent = self.spent().into_iter().zip(before).map(|(now, before)| now - *before);
        let spent: Vec<f64> = spent.map(|it| it.as_secs_f64()).collect();
        let sum: f64 = spent.iter().sum();
        let busiest = spent.into_iter().fold(0.0, f64::max);
        [sum * 1e6 / number(messages), busiest / sum * 100.0]
    }
}

/// Returns the name of a queue whose shards are spread evenly, as if an operator had moved slots.
fn even_name(cluster: &Cluster) -> Result<String> {
    let owner = |name: &str, shard: u32| {
        let slot = cluster.slot(&format!("{{{name}#{shard}}}"));
        cluster.owner(&cluster.nodes()[0], slot).port()
    };
    let is_even = |name: &String| {
        let owners: Vec<_> = (0..SHARDS).map(|shard| owner(name, shard)).collect();
        let of = |node: &Server| owners.iter().filter(|port| **port == node.port()).count();
        cluster.nodes().iter().all(|node| of(node) == 2)
    };
    (0..1_000).map(|n| format!("bench-{n}")).find(is_even).context("no name is spread evenly")
}

/// Measures the ratios of six shards to one, which take turns in each round, and the share of the
/// busiest node.
async fn cost(messages: usize, progress: &ProgressBar) -> Result<[Table; 2]> {
    let places = [Place::start(1).await?, Place::start(SHARDS).await?];
    let (mut costs, mut shares) = (Vec::new(), Vec::new());
    let work_of = BATCHES.map(|batch| (format!("batches of {batch}"), Some(batch)));
    for (name, batch) in work_of.into_iter().chain([(format!("{TASKS} tasks"), None)]) {
        let messages = messages.min(batch.unwrap_or(TASKS) * 10_000).next_multiple_of(1_000);
        let (mut ratios, mut busiest) = (Vec::new(), [Vec::new(), Vec::new()]);
        // The first round only loads the scripts.
        for round in 0..=ROUNDS {
            progress.set_message(format!("shards, {name}, round {round} of {ROUNDS}"));
            let mut us = [0.0; 2];
            for (n, place) in places.iter().enumerate() {
                let before = place.spent();
                match batch {
                    Some(batch) => {
                        live(&place.queue, batch, messages).await?;
                    }
                    None => {
                        send_singly(&place.queue, messages, TASKS).await?;
                        work(&place.queue, TASKS).await?;
                    }
                }
                let [cost, share] = place.since(&before, messages);
                us[n] = cost;
                if round > 0 {
                    busiest[n].push(share);
                }
            }
            if round > 0 {
                ratios.push(us[1] / us[0]);
            }
        }
        costs.push((name.clone(), spread(ratios).to_vec()));
        shares.push((name, busiest.map(median).to_vec()));
    }
    Ok([
        Table {
            name: "shards-cost",
            title: "Server processor time of a message in a queue of six shards",
            unit: "ratio to one shard",
            columns: ["least", "median", "most"].map(|it| format!("ratio, {it}")).to_vec(),
            rows: costs,
            columns_are: Columns::Spreads,
            wide: false,
            note: "All nodes of a cluster of three primaries together: all messages are sent, then \
                   claimed and acked, in batches; or sent one by one from 256 tasks, and handled by \
                   a worker with 256 empty handlers. Five rounds in turn.",
        },
        Table {
            name: "shards-busiest",
            title: "Part of the busiest of three primaries",
            unit: "% of the processor time of all",
            columns: [1, SHARDS].map(label).to_vec(),
            rows: shares,
            columns_are: Columns::Cases,
            wide: false,
            note: "Of the same rounds, the median. Two of the six shards are on each node.",
        },
    ])
}

async fn idle_cost(progress: &ProgressBar) -> Result<Table> {
    let mut rows = Vec::new();
    for shards in [1, SHARDS] {
        progress.set_message(format!("an idle worker, {}", label(shards)));
        let place = Place::start(shards).await?;
        let nodes = place.cluster.nodes();
        let commands = idle::commands_per_second(place.queue.clone(), nodes, IDLE).await?;
        rows.push((label(shards), vec![commands, commands / f64::from(shards)]));
    }
    Ok(Table {
        name: "shards-idle",
        title: "Commands per second of an idle worker",
        unit: "commands/s",
        columns: ["all nodes", "each shard"].map(str::to_owned).to_vec(),
        rows,
        columns_are: Columns::Cases,
        wide: false,
        note: "A worker on an empty queue: claims of the safety poll, and waits for hints.",
    })
}

async fn late(messages: usize, progress: &ProgressBar) -> Result<Table> {
    let (mut rows, mut samples) = (Vec::new(), Vec::new());
    for shards in [1, SHARDS] {
        progress.set_message(format!("lateness, {}", label(shards)));
        let place = Place::start(shards).await?;
        let late = lone_messages(&place.queue, messages.max(10)).await?;
        samples.push(late.len());
        rows.push((label(shards), quantiles(&late)));
    }
    Ok(Table {
        name: "shards-lateness",
        title: "Lateness of a lone message",
        unit: "ms",
        columns: QUANTILES.map(|(quantile, _)| quantile.to_owned()).to_vec(),
        rows,
        columns_are: Columns::Percentiles(samples),
        wide: false,
        note: "From the due time, by the clock of the message's node, to the start of the handler. \
               Never early: a handler that starts before the due time fails the run.",
    })
}

const IDLE: Duration = Duration::from_secs(60);
