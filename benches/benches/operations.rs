//! Each operation on every backend and at several batch sizes, one after the other, by one client.
//! Only the operation is timed, and not what brings the queue into the state for it.

#![expect(clippy::expect_used, reason = "a benchmark that fails has nothing to measure")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, Throughput};
use delayline_benches::{Measured, ack, apply, claim};
use delayline_core::limits::MAX_BATCH;
use delayline_core::{Backend, Delivery, MessageId, Op, Outcome, QueueName, Reply, Settlement};
use delayline_fred::FredTransport;
use delayline_memory::MemoryBackend;
use delayline_redis::RedisTransport;
use delayline_redis_protocol::ScriptBackend;
use delayline_test_server::Server;
use tokio::runtime::{Builder, Runtime};

const BATCHES: [usize; 3] = [1, 100, 1000];

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = runtime.expect("a runtime");
    bench(
        &mut criterion,
        &runtime,
        "memory",
        &(Arc::new(MemoryBackend::new()) as Arc<dyn Backend>),
    );
    let server = Server::start();
    let options = server.url().parse().expect("the server's own address");
    let name = |driver| QueueName::new(driver).expect("a valid name");
    let redis = runtime.block_on(async {
        let transport = RedisTransport::connect(&options).await.expect("the server is there");
        ScriptBackend::open(Arc::new(transport), name("redis-rs"), false).await
    });
    let redis: Arc<dyn Backend> = Arc::new(redis.expect("the queue opens"));
    bench(&mut criterion, &runtime, "redis-rs", &redis);
    let fred = runtime.block_on(async {
        let transport = FredTransport::connect(&options).await.expect("the server is there");
        ScriptBackend::open(Arc::new(transport), name("fred"), false).await
    });
    let fred: Arc<dyn Backend> = Arc::new(fred.expect("the queue opens"));
    bench(&mut criterion, &runtime, "fred", &fred);
    criterion.final_summary();
}

fn bench(criterion: &mut Criterion, runtime: &Runtime, name: &str, queue: &Arc<dyn Backend>) {
    let mut group = criterion.benchmark_group(format!("operations/{name}"));
    group.sample_size(10).warm_up_time(Duration::from_millis(300));
    group.measurement_time(Duration::from_secs(1));
    for measured in Measured::ALL {
        for batch in BATCHES.into_iter().filter(|batch| *batch <= measured.largest_batch()) {
            group.throughput(Throughput::Elements(u64::try_from(batch).unwrap_or(u64::MAX)));
            group.bench_function(BenchmarkId::new(format!("{measured:?}"), batch), |bencher| {
                bencher.iter_custom(|rounds| {
                    // On the runtime's own thread, where the driver is: no thread waits for
                    // another.
                    let task = runtime.spawn(time(Arc::clone(queue), measured, batch, rounds));
                    runtime.block_on(task).expect("every round succeeds")
                });
            });
        }
    }
    group.finish();
}

async fn time(queue: Arc<dyn Backend>, measured: Measured, batch: usize, rounds: u64) -> Duration {
    let mut spent = Duration::ZERO;
    for _ in 0..rounds {
        let op = measured.prepare(&*queue, batch).await;
        let start = Instant::now();
        let reply = apply(&*queue, &op).await;
        spent += start.elapsed();
        clear(&*queue, &op, reply).await;
    }
    spent
}

/// Empties the queue again.
async fn clear(queue: &dyn Backend, op: &Op, reply: Reply) {
    let held = match (op, reply) {
        (Op::Settle(settled), _) => {
            // Acked messages are not found.
            let ids = settled.iter().map(|item| item.id.clone()).collect();
            apply(queue, &Op::Cancel(ids)).await;
            return;
        }
        (Op::Reschedule(moved), _) => {
            let ids = moved.iter().map(|item| item.id.clone()).collect();
            apply(queue, &Op::Cancel(ids)).await;
            return;
        }
        (Op::Extend(extend), _) => {
            let acked =
                |(id, lease): &(MessageId, _)| Settlement::new(id.clone(), *lease, Outcome::Ack);
            apply(queue, &Op::Settle(extend.leases.iter().map(acked).collect())).await;
            return;
        }
        (Op::Claim(_), Reply::Claim(claimed)) => claimed.deliveries,
        _ => claim_up_to(queue, MAX_BATCH).await,
    };
    if !held.is_empty() {
        apply(queue, &ack(&held)).await;
    }
}

async fn claim_up_to(queue: &dyn Backend, most: usize) -> Vec<Delivery> {
    let Reply::Claim(claimed) = apply(queue, &claim(most)).await else { unreachable!("a claim") };
    claimed.deliveries
}
