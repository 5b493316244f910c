//! The protocol without a driver and without a server: replies that a server gave once are given
//! again at once.
//!
//! - `decode`: a reply as the answer to its operation.
//! - `apply`: all that a queue does in this process: checks the operation, encodes it, decodes the
//!   reply (and here also copies it, which counts references). Encoding alone is not public.

#![expect(clippy::expect_used, reason = "a benchmark that fails has nothing to measure")]

use std::cell::LazyCell;
use std::collections::HashMap;
use std::hint::black_box;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use bytes::Bytes;
use criterion::{BatchSize, BenchmarkId, Criterion, Throughput};
use delayline_benches::{PAYLOAD_BYTES, ack, claim, deliveries, enqueue, settings};
use delayline_core::{Applied, At, Backend, Op, QueueName};
use delayline_redis::RedisTransport;
use delayline_redis_protocol::{
    CallError, ScriptBackend, ScriptCall, ScriptName, Transport, Value, decode,
};
use delayline_test_server::Server;
use tokio::runtime::{Builder, Runtime};

const BATCHES: [usize; 3] = [1, 100, 1000];
const NAMES: [&str; 3] = ["enqueue", "claim", "settle"];

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    codec(&mut criterion);
    criterion.final_summary();
}

fn codec(criterion: &mut Criterion) {
    let runtime = LazyCell::new(runtime);
    let recorded = LazyCell::new(|| {
        let server = Server::start();
        let settings = settings(&server);
        eprintln!("codec: replies of {settings}, payloads of {PAYLOAD_BYTES} bytes");
        BATCHES.map(|batch| runtime.block_on(record(&server, batch)))
    });
    let mut group = criterion.benchmark_group("codec");
    for (at, batch) in BATCHES.into_iter().enumerate() {
        group.throughput(Throughput::Elements(u64::try_from(batch).unwrap_or(u64::MAX)));
        for (nth, name) in NAMES.into_iter().enumerate() {
            group.bench_function(BenchmarkId::new(format!("decode {name}"), batch), |bencher| {
                let (op, reply) = &recorded[at][nth];
                bencher.iter_batched(
                    || reply.clone(),
                    |reply| decode(op, reply),
                    BatchSize::SmallInput,
                );
            });
            group.bench_function(BenchmarkId::new(format!("apply {name}"), batch), |bencher| {
                let (op, _) = &recorded[at][nth];
                let queue = runtime.block_on(replaying(&recorded[at]));
                bencher.iter_custom(|times| runtime.block_on(time(&queue, op, times)));
            });
        }
    }
    group.finish();
}

/// An operation and the reply that it got.
type Recorded = (Op, Value);

/// One round on a server, in the order of [`NAMES`].
async fn record(server: &Server, batch: usize) -> [Recorded; 3] {
    let options = server.url().parse().expect("the server's own address");
    let transport = RedisTransport::connect(&options).await.expect("the server has just started");
    let transport = Arc::new(Recording { transport, last: Mutex::new(Value::Nil) });
    let queue = open(Arc::clone(&transport)).await;
    let enqueue = enqueue(batch);
    apply(&queue, &enqueue).await;
    let enqueued = transport.last();
    let claim = claim(batch);
    let claimed = apply(&queue, &claim).await;
    let ack = ack(deliveries(&claimed.reply, batch));
    let claimed = transport.last();
    apply(&queue, &ack).await;
    [(enqueue, enqueued), (claim, claimed), (ack, transport.last())]
}

async fn replaying(recorded: &[Recorded]) -> ScriptBackend<Replaying> {
    let sha1 = |op| delayline_redis_protocol::Script::of(op).expect("it has a script").sha1.clone();
    let mut replies: HashMap<_, _> =
        recorded.iter().map(|(op, reply)| (sha1(op), reply.clone())).collect();
    // An empty queue. Opening one asks for it.
    let stats = [0, 0, 0, 0, 0, 0, 0, 0, -1, 0, 0, 0, 0, 0].map(Value::Int);
    replies.insert(sha1(&Op::Stats), Value::Array(stats.into()));
    open(Arc::new(Replaying(replies))).await
}

async fn open<T: Transport>(transport: Arc<T>) -> ScriptBackend<T> {
    let name = QueueName::new("bench").expect("a valid name");
    ScriptBackend::open(transport, name, false).await.expect("the queue opens")
}

async fn time<T: Transport>(queue: &ScriptBackend<T>, op: &Op, times: u64) -> Duration {
    let start = Instant::now();
    for _ in 0..times {
        black_box(apply(queue, black_box(op)).await);
    }
    start.elapsed()
}

async fn apply<T: Transport>(queue: &ScriptBackend<T>, op: &Op) -> Applied {
    queue.apply(At::Server, op).await.expect("the operation succeeds")
}

fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime")
}

/// Notes the last reply.
#[derive(Debug)]
struct Recording {
    transport: RedisTransport,
    last: Mutex<Value>,
}

impl Recording {
    fn last(&self) -> Value {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

#[async_trait]
impl Transport for Recording {
    async fn call(&self, call: ScriptCall<'_>) -> Result<Value, CallError> {
        let reply = self.transport.call(call).await?;
        self.last.lock().unwrap_or_else(PoisonError::into_inner).clone_from(&reply);
        Ok(reply)
    }

    async fn wait(&self, bell: &Bytes, timeout: Duration) -> Result<bool, CallError> {
        self.transport.wait(bell, timeout).await
    }

    async fn info(&self, key: &Bytes) -> Result<String, CallError> {
        self.transport.info(key).await
    }
}

/// Answers at once, by the script's digest.
#[derive(Debug)]
struct Replaying(HashMap<String, Value>);

#[async_trait]
impl Transport for Replaying {
    async fn call(&self, call: ScriptCall<'_>) -> Result<Value, CallError> {
        Ok(match call.script {
            ScriptName::Sha1(sha1) => self.0.get(sha1).cloned().unwrap_or(Value::Nil),
            // Only the question about permissions comes as text: everything is permitted.
            ScriptName::Source(_) => Value::Array(vec![Value::Int(1); call.args.len() / 2 + 1]),
        })
    }

    async fn wait(&self, _bell: &Bytes, _timeout: Duration) -> Result<bool, CallError> {
        Ok(false)
    }

    async fn info(&self, _key: &Bytes) -> Result<String, CallError> {
        Ok(String::new())
    }
}
