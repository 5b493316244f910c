//! The wire of SQS compared with the pull API.

use std::env;
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result, ensure};
use delayline::codec::Raw;
use delayline::limits::WORKER_POLL_MS;
use delayline::{Bytes, Job, Worker};
use delayline_benches::{PAYLOAD_BYTES, Requests};
use delayline_sqs::Sqs;
use delayline_test_server::Server;
use delayline_web::{Access, Dashboard, Role};
use indicatif::ProgressBar;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::http::{self, Client};
use crate::pull::{CONSUMERS, ROUNDS, ack_taken, lateness, take};
use crate::table::{Columns, Table, median, number};
use crate::transport::{DRIVERS, QUEUE};

/// The most that a request of SQS takes.
const BATCH: usize = 10;
/// Polls that wait at a time.
const POLLS: usize = 5_000;
/// How long a poll waits.
const POLL: Duration = Duration::from_secs(20);
/// Longer than the pause between the claims of an idle worker: no shorter time counts it.
const SHORTEST_COUNT: Duration = Duration::from_millis(WORKER_POLL_MS + 1_000);

/// Messages that are sent, and received and deleted, in batches of 10.
pub(crate) async fn run(messages: usize, progress: &ProgressBar) -> Result<Vec<Table>> {
    let [transport, ..] = DRIVERS;
    let server = transport.start()?;
    let connection = delayline::connect(&server.url()).await?;
    let queue = connection.queue::<Bytes>(QUEUE).await?.codec(Raw);
    let rights = Role::Worker | Role::Operator;
    let dashboard = Dashboard::new(Access::everyone(rights)).queue(queue.clone());
    let pull = Endpoint { address: http::serve(dashboard.router()?).await?, wire: Wire::Pull };
    let sqs = Sqs::new(connection, delayline_sqs::Access::everyone(rights));
    let sqs = sqs.only_queues([QUEUE]).router().await?;
    let sqs = Endpoint { address: http::serve(sqs).await?, wire: Wire::Sqs };
    // A poll is counted as long as it waits, unless a quick run is asked for.
    let counted = Duration::from_millis(100) * u32::try_from(messages)?;
    let counted = counted.clamp(SHORTEST_COUNT, POLL);
    let waiting = polls(&server, sqs.address, counted, progress).await?;
    let late_messages = (messages / 50).max(10);
    progress.set_message("lateness over a long poll of SQS");
    let late = lateness("sqs-lateness", "SQS", &queue, sqs.address, late_messages, one).await?;
    let moto = Moto::start()?;
    let mut endpoints = vec![("pull", pull), ("SQS", sqs)];
    if let Some(moto) = &moto {
        let endpoint = Endpoint { address: moto.address, wire: Wire::Sqs };
        let mut client = Client::connect(endpoint.address).await?;
        let _: Value = client.call(&head("CreateQueue"), &json!({"QueueName": QUEUE})).await?;
        endpoints.push(("moto", endpoint));
    }
    let mut rows: Vec<(String, Vec<f64>)> = Vec::new();
    for consumers in CONSUMERS {
        progress.set_message(format!("{consumers} clients of SQS"));
        let each = messages.div_ceil(BATCH * consumers);
        let mut rates = vec![Rates::default(); endpoints.len()];
        // The first round warms all sides up.
        for round in 0..=ROUNDS {
            for ((name, endpoint), rates) in endpoints.iter().zip(&mut rates) {
                // moto would take minutes for as many as the others.
                let each = if *name == "moto" { each.div_ceil(10) } else { each };
                let [sent, received] = endpoint.round(each, consumers).await?;
                if round > 0 {
                    rates.sent.push(sent);
                    rates.received.push(received);
                }
            }
        }
        let sent: Vec<f64> = rates.iter().map(|it| median(it.sent.clone())).collect();
        let received: Vec<f64> = rates.iter().map(|it| median(it.received.clone())).collect();
        for (what, figures) in [("send", sent), ("receive and delete", received)] {
            for ((name, _), figure) in endpoints.iter().zip(&figures) {
                put(&mut rows, format!("{what}, {name}"), *figure);
            }
            if let [pull, sqs, ..] = figures.as_slice() {
                put(&mut rows, format!("{what}, ratio of SQS to pull"), sqs / pull);
            }
        }
    }
    let rates = Table {
        name: "sqs",
        title: "Messages per second over the wire of SQS",
        unit: "messages/s",
        columns: CONSUMERS.map(|consumers| format!("clients, {consumers}")).to_vec(),
        rows,
        columns_are: Columns::Cases,
        wide: true,
        note: "Sent, then received and deleted, in batches of 10 from 1, 4 and 16 tasks at once, on \
               one connection each, whose answers are parsed: medians of five rounds in turn. pull \
               is the pull API. moto is its server, in Python, which keeps messages in memory, \
               closes each connection after one answer, and gets a tenth of the messages. Clients, \
               HTTP servers and Redis share the machine.",
    };
    Ok(vec![rates, late, waiting])
}

/// Commands per second at Redis of an endpoint of SQS whose polls wait, and of an idle worker.
async fn polls(
    server: &Server,
    address: SocketAddr,
    counted: Duration,
    progress: &ProgressBar,
) -> Result<Table> {
    let [transport, ..] = DRIVERS;
    let mut rows = Vec::new();
    for polls in [0, 1, POLLS] {
        progress.set_message(format!("{polls} waiting polls of SQS"));
        let mut tasks = JoinSet::new();
        for _ in 0..polls {
            let mut client = Client::connect(address).await?;
            tasks.spawn(async move { while receive(&mut client, 1, 20).await.is_ok() {} });
        }
        rows.push((format!("SQS, polls: {polls}"), vec![commands(server, counted).await]));
        ensure!(tasks.try_join_next().is_none(), "a poll has failed");
        tasks.shutdown().await;
    }
    progress.set_message("an idle worker");
    let server = transport.start()?;
    let worker = Worker::builder(transport.open(&server).await?).build()?;
    let handle = worker.handle();
    let working = tokio::spawn(worker.run(|_: Job<Bytes>| async { Ok::<(), &str>(()) }));
    rows.push(("library, one worker".to_owned(), vec![commands(&server, counted).await]));
    handle.stop(Duration::from_secs(1));
    working.await?;
    Ok(Table {
        name: "sqs-polls",
        title: "Commands per second at Redis while polls of SQS wait",
        unit: "commands/s",
        columns: vec!["commands".to_owned()],
        rows,
        columns_are: Columns::Cases,
        wide: false,
        note: "Each client repeats a receive that waits for 20 s, on an empty queue, for one \
               round. Without polls, the endpoint has a worker for message move tasks.",
    })
}

/// Commands per second of the server's clients.
async fn commands(server: &Server, counted: Duration) -> f64 {
    // The costs settle first.
    sleep(counted / 4).await;
    let (start, before) = (Instant::now(), Requests::of(server).sum());
    sleep(counted).await;
    (Requests::of(server).sum() - before) / start.elapsed().as_secs_f64()
}

#[derive(Clone, Default)]
struct Rates {
    sent: Vec<f64>,
    received: Vec<f64>,
}

/// Appends a figure to the row of this name.
fn put(rows: &mut Vec<(String, Vec<f64>)>, name: String, figure: f64) {
    match rows.iter_mut().find(|(it, _)| *it == name) {
        Some((_, figures)) => figures.push(figure),
        None => rows.push((name, vec![figure])),
    }
}

#[derive(Clone, Copy)]
enum Wire {
    Pull,
    Sqs,
}

#[derive(Clone, Copy)]
struct Endpoint {
    address: SocketAddr,
    wire: Wire,
}

impl Endpoint {
    /// Messages per second of some clients, each with this many batches: sent, and received.
    async fn round(self, each: usize, clients: usize) -> Result<[f64; 2]> {
        let mut rates = [0.0; 2];
        for (sends, rate) in [true, false].into_iter().zip(&mut rates) {
            let mut connections = Vec::new();
            for _ in 0..clients {
                connections.push(Client::connect(self.address).await?);
            }
            let (start, mut tasks) = (Instant::now(), JoinSet::new());
            for mut client in connections {
                tasks.spawn(async move {
                    for _ in 0..each {
                        match (self.wire, sends) {
                            (Wire::Pull, true) => pull_send(&mut client).await?,
                            (Wire::Pull, false) => pull_receive(&mut client).await?,
                            (Wire::Sqs, true) => sqs_send(&mut client).await?,
                            (Wire::Sqs, false) => sqs_receive(&mut client).await?,
                        }
                    }
                    anyhow::Ok(())
                });
            }
            while let Some(ended) = tasks.join_next().await {
                ended??;
            }
            *rate = number(each * clients * BATCH) / start.elapsed().as_secs_f64();
        }
        Ok(rates)
    }
}

fn body() -> String {
    "p".repeat(PAYLOAD_BYTES)
}

async fn pull_send(client: &mut Client) -> Result<()> {
    let messages = vec![json!({"payload": body()}); BATCH];
    let sent: Value = client.call(&http::pull("messages"), &messages).await?;
    ensure!(sent["results"].as_array().map(Vec::len) == Some(BATCH), "{sent}");
    Ok(())
}

async fn pull_receive(client: &mut Client) -> Result<()> {
    let claim = json!({"max": BATCH, "wait": "0s", "lease": "5m"});
    let taken = take(client, &claim).await?;
    let all = taken.iter().all(|it| it.payload.len() == PAYLOAD_BYTES);
    ensure!(all && taken.len() == BATCH, "a claim found too few messages");
    ack_taken(client, taken).await
}

/// The head of a request of SQS.
fn head(action: &str) -> String {
    format!(
        "POST / HTTP/1.1\r\ncontent-type: application/x-amz-json-1.0\r\nx-amz-target: \
         AmazonSQS.{action}\r\nauthorization: AWS4-HMAC-SHA256 \
         Credential=any/20260101/us-east-1/sqs/aws4_request, SignedHeaders=host, Signature=00"
    )
}

fn queue_url() -> String {
    format!("http://localhost/000000000000/{QUEUE}")
}

async fn sqs_send(client: &mut Client) -> Result<()> {
    let entry = |n: usize| json!({"Id": n.to_string(), "MessageBody": body()});
    let entries: Vec<_> = (0..BATCH).map(entry).collect();
    let batch = json!({"QueueUrl": queue_url(), "Entries": entries});
    let sent: Value = client.call(&head("SendMessageBatch"), &batch).await?;
    ensure!(sent["Successful"].as_array().map(Vec::len) == Some(BATCH), "{sent}");
    Ok(())
}

async fn sqs_receive(client: &mut Client) -> Result<()> {
    let messages = receive(client, BATCH, 0).await?;
    let all = messages.iter().all(|it| it.body.len() == PAYLOAD_BYTES);
    ensure!(all && messages.len() == BATCH, "a receive found too few messages");
    delete(client, &messages).await
}

/// Polls for one message and deletes it. Returns when it was there.
async fn one(client: &mut Client) -> Result<Option<SystemTime>> {
    let messages = receive(client, 1, 20).await?;
    let at = SystemTime::now();
    if messages.is_empty() {
        return Ok(None);
    }
    delete(client, &messages).await?;
    Ok(Some(at))
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Taken {
    body: String,
    receipt_handle: String,
}

async fn receive(client: &mut Client, most: usize, wait_secs: u32) -> Result<Vec<Taken>> {
    #[derive(Deserialize)]
    #[serde(rename_all = "PascalCase")]
    struct Received {
        #[serde(default)]
        messages: Vec<Taken>,
    }
    let receive = json!({
        "QueueUrl": queue_url(), "MaxNumberOfMessages": most, "WaitTimeSeconds": wait_secs,
        "VisibilityTimeout": 300,
    });
    let Received { messages } = client.call(&head("ReceiveMessage"), &receive).await?;
    Ok(messages)
}

async fn delete(client: &mut Client, messages: &[Taken]) -> Result<()> {
    let entry =
        |(n, it): (usize, &Taken)| json!({"Id": n.to_string(), "ReceiptHandle": it.receipt_handle});
    let entries: Vec<_> = messages.iter().enumerate().map(entry).collect();
    let batch = json!({"QueueUrl": queue_url(), "Entries": entries});
    let deleted: Value = client.call(&head("DeleteMessageBatch"), &batch).await?;
    let deleted = deleted["Successful"].as_array().map(Vec::len);
    ensure!(deleted == Some(messages.len()), "not all were deleted");
    Ok(())
}

/// moto's server, which ends with this value.
struct Moto {
    child: Child,
    address: SocketAddr,
}

impl Moto {
    /// Starts the program that MOTO_SERVER names, if it does.
    fn start() -> Result<Option<Self>> {
        let Some(program) = env::var_os("MOTO_SERVER") else { return Ok(None) };
        let mut command = Command::new(program);
        command.args(["-p", "0"]).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().context("moto's server")?;
        let mut lines = child.stderr.take().map(BufReader::new).context("no stderr")?.lines();
        let address = lines.by_ref().map_while(Result::ok).find_map(|line| {
            line.split_once("Running on http://").and_then(|(_, it)| it.trim().parse().ok())
        });
        // It writes a line for each request.
        thread::spawn(move || lines.map_while(Result::ok).for_each(drop));
        let address = address.context("moto's server does not say where it listens")?;
        Ok(Some(Self { child, address }))
    }
}

impl Drop for Moto {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
