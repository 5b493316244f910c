//! How many messages a second.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use delayline::{Bytes, Job, Queue, Raw, Worker};
use serde_json::{Value, json};

use super::{Place, circumstances, server};
use crate::args::Target;
use crate::failure::Failure;
use crate::print::{columns, json_line, write};

/// How many messages a second go in and out
///
/// Sends messages in batches, has a worker with an empty handler ack them, sends as many one by one
/// from many tasks at once, and has them acked too.
#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  delayline bench throughput --messages 100000 --concurrency 256"
)]
pub(crate) struct Throughput {
    /// How many
    #[arg(long, value_name = "N", default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    messages: u32,

    /// How long each payload is
    #[arg(long, value_name = "BYTES", default_value_t = 100)]
    payload: usize,

    /// How many tasks send, and how many handlers run, at once: 1 to 1000
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=1000))]
    concurrency: u32,

    /// Print a JSON object for each step
    #[arg(long)]
    json: bool,
}

/// One step of the measurement.
struct Step {
    name: &'static str,
    messages: u32,
    took: Duration,
    /// What the server has computed, if it says so.
    server_cpu: Option<Duration>,
}

pub(super) async fn run(target: &Target, args: Throughput) -> Result<ExitCode, Failure> {
    let place = Place::of(target);
    let queue = place.open(target).await?;
    let payload = Bytes::from(vec![b'x'; args.payload]);
    // A payload beyond the limit is refused before anything is sent.
    drop(queue.message(&payload));
    let meter = Meter { place: &place, target, messages: args.messages };
    let steps = tokio::select! {
        steps = measure(&queue, &args, &payload, &meter) => Some(steps?),
        _ = tokio::signal::ctrl_c() => None,
    };
    // Also what an interrupted run has left.
    drain(&queue, 1_000).await?;
    let Some(steps) = steps else { return Ok(ExitCode::SUCCESS) };
    if args.json {
        let lines = steps.iter().map(|step| json_line(&step.as_json(place.name)));
        write(&lines.collect::<String>())?;
    } else {
        let server = server(&place, target).await?;
        let head = format!(
            "{}: {server}, {}; payload {} bytes, concurrency {}\n",
            place.name,
            circumstances(),
            args.payload,
            args.concurrency
        );
        let rows = steps.iter().map(Step::row);
        let head_row = ["STEP", "MESSAGES", "SECONDS", "MESSAGES/S", "SERVER CPU US/MESSAGE"];
        write(&(head + &columns(&head_row, rows)))?;
    }
    Ok(ExitCode::SUCCESS)
}

async fn measure(
    queue: &Queue<Bytes, Raw>,
    args: &Throughput,
    payload: &Bytes,
    meter: &Meter<'_>,
) -> Result<Vec<Step>, Failure> {
    let concurrency = usize::try_from(args.concurrency).unwrap_or(1);
    let mut steps = Vec::new();
    steps.push(meter.step("send in batches", bulk(queue, args.messages, payload)).await?);
    steps.push(meter.step("claim and ack", drain(queue, concurrency)).await?);
    steps.push(meter.step("send one by one", singly(queue, args, payload)).await?);
    steps.push(meter.step("claim and ack", drain(queue, concurrency)).await?);
    Ok(steps)
}

async fn bulk(queue: &Queue<Bytes, Raw>, messages: u32, payload: &Bytes) -> Result<(), Failure> {
    let mut left = messages;
    while left > 0 {
        let count = left.min(10_000);
        left -= count;
        let drafts = (0..count).map(|_| queue.message(payload));
        for sent in queue.send_many(drafts).await {
            // Made ids meet no other content.
            let _ = sent?;
        }
    }
    Ok(())
}

async fn singly(
    queue: &Queue<Bytes, Raw>,
    args: &Throughput,
    payload: &Bytes,
) -> Result<(), Failure> {
    let tasks = (0..args.concurrency).map(|task| {
        let (queue, payload) = (queue.clone(), payload.clone());
        let share =
            args.messages / args.concurrency + u32::from(task < args.messages % args.concurrency);
        tokio::spawn(async move {
            for _ in 0..share {
                queue.send(&payload).await?;
            }
            Ok::<(), delayline::Error>(())
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.map_err(|error| Failure::other("a task", &error))??;
    }
    Ok(())
}

/// Handles messages until there are none.
async fn drain(queue: &Queue<Bytes, Raw>, concurrency: usize) -> Result<(), Failure> {
    let worker = Worker::builder(queue.clone()).concurrency(concurrency).until_empty(true);
    worker.build()?.run(|_: Job<Bytes>| async { Ok::<(), &str>(()) }).await;
    Ok(())
}

/// Measures steps.
struct Meter<'a> {
    place: &'a Place,
    target: &'a Target,
    messages: u32,
}

impl Meter<'_> {
    async fn step(
        &self,
        name: &'static str,
        work: impl Future<Output = Result<(), Failure>>,
    ) -> Result<Step, Failure> {
        let before = self.server_cpu().await?;
        let start = Instant::now();
        work.await?;
        let took = start.elapsed();
        let after = self.server_cpu().await?;
        let server_cpu = after.zip(before).map(|(after, before)| after.saturating_sub(before));
        Ok(Step { name, messages: self.messages, took, server_cpu })
    }

    async fn server_cpu(&self) -> Result<Option<Duration>, Failure> {
        if self.place.url.starts_with("memory:") {
            return Ok(None);
        }
        let inspection = self.place.inspect(self.target).await?;
        let seconds = |name: &str| inspection.info.get(name)?.parse::<f64>().ok();
        let all = seconds("used_cpu_user").zip(seconds("used_cpu_sys"));
        Ok(all.and_then(|(user, sys)| Duration::try_from_secs_f64(user + sys).ok()))
    }
}

impl Step {
    fn rate(&self) -> f64 {
        f64::from(self.messages) / self.took.as_secs_f64().max(1e-9)
    }

    fn cpu_us(&self) -> Option<f64> {
        self.server_cpu.map(|cpu| cpu.as_secs_f64() * 1e6 / f64::from(self.messages))
    }

    fn as_json(&self, place: &str) -> Value {
        json!({
            "place": place,
            "circumstances": circumstances(),
            "step": self.name,
            "messages": self.messages,
            "seconds": self.took.as_secs_f64(),
            "messages_per_second": self.rate(),
            "server_cpu_us_per_message": self.cpu_us(),
        })
    }

    fn row(&self) -> Vec<String> {
        vec![
            self.name.to_owned(),
            self.messages.to_string(),
            format!("{:.2}", self.took.as_secs_f64()),
            format!("{:.0}", self.rate()),
            self.cpu_us().map_or_else(|| "-".to_owned(), |cpu| format!("{cpu:.1}")),
        ]
    }
}
