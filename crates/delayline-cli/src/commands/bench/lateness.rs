//! How late messages are.

use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use delayline::{Bytes, Job, Queue, Raw, Worker};
use delayline_json::duration;
use hdrhistogram::Histogram;
use serde_json::json;
use tokio::sync::mpsc;

use super::{Place, circumstances, server};
use crate::args::{Driver, Target};
use crate::failure::{Failure, SOME_BAD};
use crate::print::{json_line, write};
use crate::progress;

/// How late lone messages reach a handler on an idle server
///
/// Sends one message after the other, each due after a random delay, and measures the time from its
/// due time to the start of its handler. The due time is by the server's clock, the start by this
/// machine's: exact on one machine, otherwise it includes the difference between the clocks.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  delayline bench lateness --compare")]
pub(crate) struct Lateness {
    /// Number of messages
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..))]
    messages: u32,

    /// The longest delay
    #[arg(long, value_name = "DURATION", default_value = "2s")]
    within: String,

    /// Measure redis-rs, fred and memory in turn
    #[arg(long)]
    compare: bool,

    /// Print a JSON object per result
    #[arg(long)]
    json: bool,
}

/// What was measured, in microseconds.
struct Measured {
    lateness: Histogram<u64>,
    /// How many handlers began before the due instant, by this machine's clock.
    early: u64,
    interrupted: bool,
}

pub(super) async fn run(target: &Target, args: Lateness) -> Result<ExitCode, Failure> {
    let within = duration(&args.within).map_err(Failure::usage)?;
    let places = if args.compare {
        let on_server = |name, driver| Place { name, url: target.url.clone(), driver };
        let memory = Place { name: "memory", url: "memory:".to_owned(), driver: Driver::Redis };
        vec![on_server("redis-rs", Driver::Redis), on_server("fred", Driver::Fred), memory]
    } else {
        vec![Place::of(target)]
    };
    let mut early = 0;
    for place in places {
        let measured = measure(&place, target, args.messages, within).await?;
        early += measured.early;
        let report = if args.json {
            json_line(&as_json(&place, &measured))
        } else {
            let server = server(&place, target).await?;
            format!("{}: {server}, {}\n{}\n", place.name, circumstances(), as_text(&measured))
        };
        write(&report)?;
        if measured.interrupted {
            break;
        }
    }
    if early > 0 {
        eprintln!("{early} began early, or this machine's clock is behind the server's");
        return Ok(ExitCode::from(SOME_BAD));
    }
    Ok(ExitCode::SUCCESS)
}

async fn measure(
    place: &Place,
    target: &Target,
    messages: u32,
    within: Duration,
) -> Result<Measured, Failure> {
    let queue = place.open(target).await?;
    let (handled, mut begun) = mpsc::unbounded_channel();
    let worker = Worker::builder(queue.clone()).build()?;
    let handle = worker.handle();
    let working = tokio::spawn(worker.run(move |job: Job<Bytes>| {
        let now = SystemTime::now();
        let due = SystemTime::from(job.due());
        // Fails when the measurement has been interrupted.
        let _ = handled.send(now.duration_since(due).map_err(|error| error.duration()));
        async { Ok::<(), &str>(()) }
    }));
    let bounds = Histogram::new_with_bounds(1, 3_600_000_000, 3);
    let lateness = bounds.map_err(|error| Failure::other("no histogram", &error))?;
    let mut measured = Measured { lateness, early: 0, interrupted: false };
    let bar = progress::messages(u64::from(messages));
    for _ in 0..messages {
        tokio::select! {
            result = one(&queue, &mut begun, within) => match result? {
                Ok(late) => {
                    let micros = u64::try_from(late.as_micros()).unwrap_or(u64::MAX);
                    measured.lateness.saturating_record(micros.max(1));
                }
                Err(_) => measured.early += 1,
            },
            _ = tokio::signal::ctrl_c() => {
                measured.interrupted = true;
                break;
            }
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    if measured.interrupted {
        // The message under way is due within this time, and then the queue is empty.
        let _ = tokio::time::timeout(within + Duration::from_secs(5), begun.recv()).await;
    }
    handle.stop(Duration::from_secs(1));
    let _ = working.await;
    Ok(measured)
}

/// Sends a message, and answers how late its handler has begun, or how early.
async fn one(
    queue: &Queue<Bytes, Raw>,
    begun: &mut mpsc::UnboundedReceiver<Result<Duration, Duration>>,
    within: Duration,
) -> Result<Result<Duration, Duration>, Failure> {
    let most = u64::try_from(within.as_millis()).unwrap_or(u64::MAX);
    let delay = Duration::from_millis(fastrand::u64(0..=most));
    queue.send_in(&Bytes::new(), delay).await?;
    match begun.recv().await {
        Some(begun) => Ok(begun),
        None => Err(Failure::other("the worker", &"has ended")),
    }
}

fn as_json(place: &Place, measured: &Measured) -> serde_json::Value {
    let at = |quantile| ms(measured.lateness.value_at_quantile(quantile));
    json!({
        "place": place.name,
        "circumstances": circumstances(),
        "messages": measured.lateness.len(),
        "early": measured.early,
        "p50_ms": at(0.5),
        "p90_ms": at(0.9),
        "p99_ms": at(0.99),
        "p999_ms": at(0.999),
        "max_ms": ms(measured.lateness.max()),
    })
}

fn as_text(measured: &Measured) -> String {
    let late = &measured.lateness;
    let at = |quantile| ms(late.value_at_quantile(quantile));
    let mut text = format!(
        "{} messages: p50 {:.2} ms, p90 {:.2} ms, p99 {:.2} ms, p99.9 {:.2} ms, max {:.2} ms, early {}\n",
        late.len(),
        at(0.5),
        at(0.9),
        at(0.99),
        at(0.999),
        ms(late.max()),
        measured.early
    );
    let mut from = 0;
    for to in BOUNDS_US {
        let count = late.count_between(from + 1, to);
        let width = count.saturating_mul(BAR).div_ceil(late.len().max(1));
        let bar = "#".repeat(usize::try_from(width).unwrap_or(0));
        if count > 0 || to <= 5_000 {
            text += &format!("{:>8} .. {:<8} {count:>6} {bar}\n", label(from), label(to));
        }
        from = to;
    }
    let rest = late.count_between(from + 1, u64::MAX);
    if rest > 0 {
        text += &format!("{:>8} ..          {rest:>6}\n", label(from));
    }
    text
}

fn label(us: u64) -> String {
    format!("{} ms", ms(us))
}

fn ms(us: u64) -> f64 {
    // Below 2^32 microseconds, which is more than an hour, this is exact.
    f64::from(u32::try_from(us).unwrap_or(u32::MAX)) / 1_000.0
}

const BOUNDS_US: [u64; 11] =
    [500, 1_000, 1_500, 2_000, 3_000, 5_000, 10_000, 20_000, 50_000, 100_000, 1_000_000];
const BAR: u64 = 50;
