//! Consumers over HTTP beside those of the library.

use std::fs;
use std::net::SocketAddr;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail, ensure};
use delayline::codec::Raw;
use delayline::{Bytes, Queue};
use delayline_benches::{PAYLOAD_BYTES, ack, claim, payload, send_in_bulk};
use delayline_core::Reply;
use delayline_web::{Access, Dashboard, Role};
use indicatif::ProgressBar;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::http::{self, Client};
use crate::lateness::{Bench, Late};
use crate::table::{Columns, Table, median, number};
use crate::transport::DRIVERS;

const BATCH: usize = 100;
pub(crate) const CONSUMERS: [usize; 3] = [1, 4, 16];
/// Rounds in turn, of which the median counts.
pub(crate) const ROUNDS: usize = 5;
const POLLS: u32 = 2_000;

/// Messages that are claimed and acked in batches of 100.
pub(crate) async fn rates(messages: usize, progress: &ProgressBar) -> Result<Table> {
    let [transport, ..] = DRIVERS;
    let server = transport.start()?;
    let queue = transport.open(&server).await?;
    let address = serve(&queue).await?;
    let mut rows: [Vec<f64>; 3] = Default::default();
    for consumers in CONSUMERS {
        progress.set_message(format!("{consumers} consumers over HTTP"));
        let each = messages.div_ceil(BATCH * consumers);
        let (mut library, mut http) = (Vec::new(), Vec::new());
        // The first round warms both sides up.
        for round in 0..=ROUNDS {
            let of_library = rate(&queue, each, consumers, None).await?;
            let of_http = rate(&queue, each, consumers, Some(address)).await?;
            if round > 0 {
                library.push(of_library);
                http.push(of_http);
            }
        }
        let (library, http) = (median(library), median(http));
        for (row, figure) in rows.iter_mut().zip([library, http, http / library]) {
            row.push(figure);
        }
    }
    let [library, http, ratio] = rows;
    Ok(Table {
        name: "pull",
        title: "Messages per second over HTTP",
        unit: "messages/s",
        columns: CONSUMERS.map(|consumers| format!("consumers, {consumers}")).to_vec(),
        rows: vec![
            ("library".to_owned(), library),
            ("HTTP".to_owned(), http),
            ("ratio".to_owned(), ratio),
        ],
        columns_are: Columns::Cases,
        wide: true,
        note: "Claimed and acked in batches of 100 from 1, 4 and 16 tasks at once: by operations of \
               the library, and by requests on one connection each, whose answers are parsed: the \
               medians of five rounds in turn, and their ratio. Clients, HTTP server and Redis \
               share the machine.",
    })
}

/// The lateness of lone messages, and the memory of polls.
pub(crate) async fn idle(messages: usize, progress: &ProgressBar) -> Result<Vec<Table>> {
    let [transport, ..] = DRIVERS;
    let server = transport.start()?;
    let queue = transport.open(&server).await?;
    let address = serve(&queue).await?;
    progress.set_message("lateness over a long poll");
    let one = async |client: &mut Client| {
        let taken = take(client, &json!({"wait": "50s"})).await?;
        let at = SystemTime::now();
        if taken.is_empty() {
            return Ok(None);
        }
        ack_taken(client, taken).await?;
        Ok(Some(at))
    };
    let lateness = lateness("pull-lateness", "HTTP", &queue, address, messages, one).await?;
    progress.set_message("memory of waiting polls");
    let memory = Table {
        name: "pull-memory",
        title: "Memory of a waiting poll",
        unit: "bytes",
        columns: vec![format!("{POLLS} polls")],
        rows: vec![("HTTP".to_owned(), vec![memory(address).await?])],
        columns_are: Columns::Cases,
        wide: false,
        note: "Resident memory of the process, which also has the clients' sockets, before and \
               while the polls wait; without the kernel's buffers. Of a run of `pull` alone: \
               after other parts, memory that they have freed is used again.",
    };
    Ok(vec![lateness, memory])
}

/// Serves the pull API of the queue.
async fn serve(queue: &Queue<Bytes, Raw>) -> Result<SocketAddr> {
    let dashboard = Dashboard::new(Access::everyone(Role::Worker)).queue(queue.clone());
    http::serve(dashboard.router()?).await
}

/// Claims messages over the pull API.
pub(crate) async fn take(client: &mut Client, body: &Value) -> Result<Vec<Taken>> {
    let Claimed { deliveries } = client.call(&http::pull("claim"), body).await?;
    Ok(deliveries)
}

/// Acks claimed messages over the pull API.
pub(crate) async fn ack_taken(client: &mut Client, taken: Vec<Taken>) -> Result<()> {
    let count = taken.len();
    let ack = |Taken { id, token, .. }| Settlement { id, token, outcome: "ack" };
    let settlements = Settlements { settlements: taken.into_iter().map(ack).collect() };
    let Settled { results } = client.call(&http::pull("settle"), &settlements).await?;
    let all = results.len() == count && results.iter().all(|it| it.outcome == "settled");
    ensure!(all, "not all were settled");
    Ok(())
}

#[derive(Deserialize)]
struct Claimed {
    deliveries: Vec<Taken>,
}

#[derive(Deserialize)]
pub(crate) struct Taken {
    id: String,
    token: String,
    pub(crate) payload: String,
}

#[derive(Serialize)]
struct Settlements {
    settlements: Vec<Settlement>,
}

#[derive(Serialize)]
struct Settlement {
    id: String,
    token: String,
    outcome: &'static str,
}

#[derive(Deserialize)]
struct Settled {
    results: Vec<Ended>,
}

#[derive(Deserialize)]
struct Ended {
    outcome: String,
}

/// Messages per second of some consumers, which handle `each` batches, over HTTP with an address.
async fn rate(
    queue: &Queue<Bytes, Raw>,
    each: usize,
    consumers: usize,
    address: Option<SocketAddr>,
) -> Result<f64> {
    let messages = each * consumers * BATCH;
    send_in_bulk(queue, messages).await?;
    let mut clients = Vec::new();
    for _ in 0..consumers {
        clients.push(match address {
            Some(address) => Some(Client::connect(address).await?),
            None => None,
        });
    }
    let (start, mut tasks) = (Instant::now(), JoinSet::new());
    for client in clients {
        let queue = queue.clone();
        tasks.spawn(async move {
            match client {
                Some(client) => through(client, each).await,
                None => direct(&queue, each).await,
            }
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    Ok(number(messages) / start.elapsed().as_secs_f64())
}

async fn direct(queue: &Queue<Bytes, Raw>, batches: usize) -> Result<()> {
    for _ in 0..batches {
        let Reply::Claim(claimed) = queue.apply(&claim(BATCH)).await?.reply else {
            bail!("no claim was answered")
        };
        ensure!(claimed.deliveries.len() == BATCH, "a claim found too few messages");
        queue.apply(&ack(&claimed.deliveries)).await?;
    }
    Ok(())
}

async fn through(mut client: Client, batches: usize) -> Result<()> {
    for _ in 0..batches {
        let taken = take(&mut client, &json!({"max": BATCH, "wait": "0s", "lease": "5m"})).await?;
        let all = taken.len() == BATCH && taken.iter().all(|it| it.payload.len() == PAYLOAD_BYTES);
        ensure!(all, "a claim found too few messages");
        ack_taken(&mut client, taken).await?;
    }
    Ok(())
}

/// Sends a message that is due within half a second, and returns when.
async fn send(queue: &Queue<Bytes, Raw>) -> Result<SystemTime> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis();
    let due = UNIX_EPOCH + Duration::from_millis(u64::try_from(now)? + fastrand::u64(20..500));
    let sent = queue.message(&payload()).due_at(due).send().await?;
    ensure!(sent.is_accepted(), "it was not accepted");
    Ok(due)
}

async fn lateness_of_library(
    queue: &Queue<Bytes, Raw>,
    messages: usize,
    late: &mut Late,
) -> Result<()> {
    let mut bench = Bench::start(queue)?;
    for _ in 0..messages {
        send(queue).await?;
        bench.next(late).await?;
    }
    bench.end().await
}

/// Lateness of lone messages at a worker of the library, and over an endpoint. `one` polls, and
/// returns when it got a message, which it has acked.
pub(crate) async fn lateness(
    name: &'static str,
    endpoint: &str,
    queue: &Queue<Bytes, Raw>,
    address: SocketAddr,
    messages: usize,
    one: impl AsyncFn(&mut Client) -> Result<Option<SystemTime>>,
) -> Result<Table> {
    let (mut of_library, mut of_endpoint) = (Late::new(3)?, Late::new(3)?);
    let mut client = Client::connect(address).await?;
    // In turn, so that both have the same machine.
    for _ in 0..10 {
        lateness_of_library(queue, messages / 10, &mut of_library).await?;
        for _ in 0..messages / 10 {
            let answer = async {
                loop {
                    if let Some(at) = one(&mut client).await? {
                        return Ok(at);
                    }
                }
            };
            let (due, at) = tokio::try_join!(send(queue), answer)?;
            let lateness = at.duration_since(due).context("a message was early")?;
            of_endpoint.record(u64::try_from(lateness.as_micros())?)?;
        }
    }
    let quantiles = |late: &Late| {
        let ms = |us: u64| f64::from(u32::try_from(us).unwrap_or(u32::MAX)) / 1_000.0;
        [0.5, 0.99, 1.0].map(|quantile| ms(late.value_at_quantile(quantile))).to_vec()
    };
    Ok(Table {
        name,
        title: "Lateness of a lone message over a long poll",
        unit: "ms",
        columns: ["p50", "p99", "max"].map(str::to_owned).to_vec(),
        rows: vec![
            ("library".to_owned(), quantiles(&of_library)),
            (endpoint.to_owned(), quantiles(&of_endpoint)),
        ],
        columns_are: Columns::Percentiles(vec![of_library.len(), of_endpoint.len()]),
        wide: false,
        note: "From the due time to the start of the handler, and to the end of the answer to a \
               poll. Ten rounds in turn.",
    })
}

/// Bytes of each poll that waits.
async fn memory(address: SocketAddr) -> Result<f64> {
    let wait = json!({"wait": "50s"});
    let mut polls = Vec::new();
    for _ in 0..100 {
        let mut client = Client::connect(address).await?;
        client.send(&http::pull("claim"), &wait).await?;
        polls.push(client);
    }
    sleep(SETTLING).await;
    let before = resident()?;
    for _ in 0..POLLS {
        let mut client = Client::connect(address).await?;
        client.send(&http::pull("claim"), &wait).await?;
        polls.push(client);
    }
    sleep(SETTLING).await;
    Ok((resident()? - before) / f64::from(POLLS))
}

/// The resident memory of this process in bytes.
fn resident() -> Result<f64> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kibibytes = line.and_then(|line| line.trim().strip_suffix(" kB")).context("no VmRSS")?;
    Ok(kibibytes.parse::<f64>()? * 1_024.0)
}

/// Until the requests have been read.
const SETTLING: Duration = Duration::from_secs(2);
