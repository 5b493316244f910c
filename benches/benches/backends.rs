//! Whole rounds on every backend: enqueue, claim and ack of a batch, one after the other, by one
//! client.
//!
//! For the Redis backends it also prints how much processor time the server spent per message:
//! that figure is steadier than the seconds are.

#![expect(clippy::expect_used, reason = "a benchmark that fails has nothing to measure")]

use std::cell::{Cell, LazyCell, OnceCell};
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, BenchmarkId, Criterion, Throughput};
use delayline_benches::{PAYLOAD_BYTES, ack, claim, cpu_time, deliveries, enqueue, settings};
use delayline_core::{Applied, At, Backend, Error, Op, QueueName};
use delayline_fred::FredTransport;
use delayline_memory::MemoryBackend;
use delayline_redis::RedisTransport;
use delayline_redis_protocol::{ConnectOptions, ScriptBackend, Transport};
use delayline_test_server::Server;
use tokio::runtime::{Builder, Runtime};

const BATCHES: [u64; 4] = [1, 10, 100, 1000];

/// From this number of messages on, the server's processor time is worth printing.
const ENOUGH_MESSAGES: u64 = 10_000;

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = runtime.expect("a runtime");
    memory(&mut criterion, &runtime);
    redis(&mut criterion, &runtime, "redis-rs", async |options| {
        RedisTransport::connect(&options).await
    });
    redis(&mut criterion, &runtime, "fred", async |options| FredTransport::connect(&options).await);
    criterion.final_summary();
}

fn memory(criterion: &mut Criterion, runtime: &Runtime) {
    let said = LazyCell::new(|| eprintln!("memory: no server, payloads of {PAYLOAD_BYTES} bytes"));
    let mut group = group(criterion, "memory");
    for batch in BATCHES {
        bench(&mut group, runtime, batch, || {
            LazyCell::force(&said);
            Arc::new(MemoryBackend::new())
        });
    }
    group.finish();
}

/// A server and a connection for each driver, a queue for each batch.
fn redis<T: Transport, F: Future<Output = Result<T, Error>>>(
    criterion: &mut Criterion,
    runtime: &Runtime,
    name: &str,
    connect: impl Fn(ConnectOptions) -> F,
) {
    let server = LazyCell::new(|| {
        let server = Server::start();
        let settings = settings(&server);
        eprintln!("{name}: {settings}, unix socket, payloads of {PAYLOAD_BYTES} bytes");
        server
    });
    let queues = LazyCell::new(|| {
        let options = server.url().parse().expect("the server's own address");
        runtime.block_on(async {
            let transport = connect(options).await.expect("the server has just started");
            let first = ScriptBackend::open(Arc::new(transport), queue_name(0), false);
            first.await.expect("the queue opens")
        })
    });
    let mut group = group(criterion, name);
    for batch in BATCHES {
        let before = OnceCell::new();
        let messages = bench(&mut group, runtime, batch, || {
            let queue = queues.with_queue(&queue_name(batch));
            before.get_or_init(|| cpu_time(&server));
            Arc::new(queue)
        });
        if let Some(before) = before.get()
            && messages >= ENOUGH_MESSAGES
        {
            let micros = (cpu_time(&server) - *before).as_secs_f64() * 1e6;
            let each = micros / f64::from(u32::try_from(messages).unwrap_or(u32::MAX));
            println!(
                "{name}/{batch}: {each:.2} us of server CPU per message ({messages} messages)"
            );
        }
    }
    group.finish();
}

/// Times rounds of `batch` messages and answers how many messages went through, the warm-up's
/// included.
fn bench<B: Backend + 'static>(
    group: &mut BenchmarkGroup<'_, WallTime>,
    runtime: &Runtime,
    batch: u64,
    queue: impl Fn() -> Arc<B>,
) -> u64 {
    let messages = Cell::new(0);
    group.throughput(Throughput::Elements(batch));
    group.bench_function(BenchmarkId::from_parameter(batch), |bencher| {
        let queue = queue();
        bencher.iter_custom(|rounds| {
            messages.set(messages.get() + rounds * batch);
            // On the runtime's own thread, where the driver is: no thread waits for another.
            let task = runtime.spawn(time(Arc::clone(&queue), batch, rounds));
            runtime.block_on(task).expect("every round succeeds")
        });
    });
    messages.get()
}

async fn time<B: Backend>(queue: Arc<B>, batch: u64, rounds: u64) -> Duration {
    let batch = usize::try_from(batch).expect("a small number");
    let start = Instant::now();
    for _ in 0..rounds {
        apply(&*queue, &enqueue(batch)).await;
        let claimed = apply(&*queue, &claim(batch)).await;
        apply(&*queue, &ack(deliveries(&claimed.reply, batch))).await;
    }
    start.elapsed()
}

async fn apply<B: Backend>(queue: &B, op: &Op) -> Applied {
    queue.apply(At::Server, op).await.expect("the operation succeeds")
}

fn group<'a>(criterion: &'a mut Criterion, name: &str) -> BenchmarkGroup<'a, WallTime> {
    let mut group = criterion.benchmark_group(name);
    // A round of 1000 messages takes milliseconds.
    group.sample_size(20);
    group
}

fn queue_name(batch: u64) -> QueueName {
    QueueName::new(format!("batch-{batch}")).expect("a valid name")
}
