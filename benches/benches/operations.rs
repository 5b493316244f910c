//! Each operation on every backend and at several batch sizes, one after the other, by one client.
//! Only the operation is timed, and not what brings the queue into the state for it.

#![expect(clippy::expect_used, reason = "a benchmark that fails has nothing to measure")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, Throughput};
use delayline_benches::{ack, claim, deliveries, enqueue};
use delayline_core::limits::{MAX_BATCH, MAX_LOOK_UP, MAX_PAGE};
use delayline_core::{
    At, Backend, Delivery, Destination, DestinationKey, Extend, HandOff, Known, List, MessageId,
    Millis, NewMessage, NewResult, Op, Outcome, QueueName, Redrive, Relay, Reply, Reschedule,
    Schedule, Settlement, Status, Turn, Turned, Update, UpdateContent, UpdateDue, UpdateToken,
};
use delayline_fred::FredTransport;
use delayline_memory::MemoryBackend;
use delayline_redis::RedisTransport;
use delayline_redis_protocol::ScriptBackend;
use delayline_test_server::Server;
use tokio::runtime::{Builder, Runtime};

const BATCHES: [usize; 3] = [1, 100, 1000];
const HOUR: Millis = Millis::saturating(3_600_000);

/// What is timed.
#[derive(Clone, Copy, Debug)]
enum Timed {
    Enqueue,
    /// An enqueue whose ids are throttled for 1 ms.
    OncePer,
    /// New content for messages that wait.
    Debounce,
    Claim,
    Relay,
    Ack,
    /// An ack that sends one message.
    HandOff,
    /// An ack with a result of 100 bytes.
    AckWithResult,
    /// An ack and a claim in one call.
    Turn,
    Retry,
    Extend,
    Cancel,
    Reschedule,
    Redrive,
    Get,
    /// Messages that are pending.
    Progress,
    List,
    Stats,
    /// Of 60 minutes.
    Forecast,
}

const ALL: [Timed; 19] = [
    Timed::Enqueue,
    Timed::OncePer,
    Timed::Debounce,
    Timed::Claim,
    Timed::Relay,
    Timed::Ack,
    Timed::HandOff,
    Timed::AckWithResult,
    Timed::Turn,
    Timed::Retry,
    Timed::Extend,
    Timed::Cancel,
    Timed::Reschedule,
    Timed::Redrive,
    Timed::Get,
    Timed::Progress,
    Timed::List,
    Timed::Stats,
    Timed::Forecast,
];

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
    for timed in ALL {
        for batch in BATCHES.into_iter().filter(|batch| *batch <= most(timed)) {
            group.throughput(Throughput::Elements(u64::try_from(batch).unwrap_or(u64::MAX)));
            group.bench_function(BenchmarkId::new(format!("{timed:?}"), batch), |bencher| {
                bencher.iter_custom(|rounds| {
                    // On the runtime's own thread, where the driver is: no thread waits for another.
                    let task = runtime.spawn(time(Arc::clone(queue), timed, batch, rounds));
                    runtime.block_on(task).expect("every round succeeds")
                });
            });
        }
    }
    group.finish();
}

/// The largest batch that makes sense.
const fn most(timed: Timed) -> usize {
    match timed {
        Timed::Get => MAX_LOOK_UP,
        Timed::List => MAX_PAGE,
        Timed::Stats | Timed::Forecast => 1,
        Timed::HandOff | Timed::Turn => MAX_BATCH / 2,
        _ => MAX_BATCH,
    }
}

async fn time(queue: Arc<dyn Backend>, timed: Timed, batch: usize, rounds: u64) -> Duration {
    let mut spent = Duration::ZERO;
    for _ in 0..rounds {
        let op = prepare(&*queue, timed, batch).await;
        let start = Instant::now();
        let reply = apply(&*queue, &op).await;
        spent += start.elapsed();
        clear(&*queue, &op, reply).await;
    }
    spent
}

/// Brings an empty queue into the state that the operation is for.
async fn prepare(queue: &dyn Backend, timed: Timed, batch: usize) -> Op {
    let sending = enqueue(batch);
    if matches!(timed, Timed::Enqueue) {
        return sending;
    }
    let Op::Enqueue(messages) = &sending else { unreachable!("it enqueues") };
    if matches!(timed, Timed::OncePer) {
        let message = |message: &NewMessage| message.clone().once_per(Millis::saturating(1));
        return Op::Enqueue(messages.iter().map(message).collect());
    }
    let ids: Vec<_> = messages.iter().map(|message| message.id.clone()).collect();
    apply(queue, &sending).await;
    match timed {
        Timed::Debounce => {
            let due = UpdateDue::Later { at_most: HOUR };
            let update = |message: &NewMessage| {
                let token = UpdateToken::from_uuid(*b"a token, not 0.\0");
                let update = Update::new(UpdateContent::Replace, due, token);
                message.clone().payload(vec![b'u'; 100]).known(Known::Update(update))
            };
            Op::Enqueue(messages.iter().map(update).collect())
        }
        Timed::Enqueue | Timed::OncePer | Timed::Claim => claim(batch),
        Timed::Relay => {
            let key = DestinationKey::try_from("relayed").expect("a short key");
            let to = Destination::List { key, max_len: None };
            Op::Relay(Relay::new(to, batch))
        }
        Timed::Ack => ack(&claimed(queue, batch).await),
        Timed::HandOff => {
            let items = claimed(queue, batch).await;
            let items = items.iter().enumerate().map(|(n, delivery)| {
                let (id, lease) = (id_of(delivery), delivery.lease);
                let next = MessageId::new(format!("next-{id}")).expect("a short id");
                let mut message = messages[n].clone();
                message.id = next;
                HandOff::new(Settlement::new(id, lease, Outcome::Ack), vec![message])
            });
            Op::HandOff(items.collect())
        }
        Timed::AckWithResult => {
            let items = claimed(queue, batch).await;
            let items = items.iter().map(|delivery| {
                let settlement = Settlement::new(id_of(delivery), delivery.lease, Outcome::Ack);
                let result = NewResult::new(vec![b'r'; 100], HOUR);
                HandOff::new(settlement, Vec::new()).with_result(result)
            });
            Op::HandOff(items.collect())
        }
        Timed::Turn => {
            let Op::Settle(settlements) = ack(&claimed(queue, batch).await) else {
                unreachable!("it settles")
            };
            apply(queue, &enqueue(batch)).await;
            let Op::Claim(claim) = claim(batch) else { unreachable!("it claims") };
            Op::Turn(Turn::new(settlements, claim))
        }
        Timed::Retry => {
            let error = "no luck".to_owned();
            settle(&claimed(queue, batch).await, &Outcome::Retry { delay: HOUR, error })
        }
        Timed::Extend => {
            let held = claimed(queue, batch).await;
            let leases = held.iter().map(|delivery| (id_of(delivery), delivery.lease)).collect();
            Op::Extend(Extend::new(leases, Millis::saturating(30_000)))
        }
        Timed::Cancel => Op::Cancel(ids),
        Timed::Reschedule => {
            let later = |id| Reschedule::new(id, Schedule::In(HOUR));
            Op::Reschedule(ids.into_iter().map(later).collect())
        }
        Timed::Redrive => {
            let held = claimed(queue, batch).await;
            apply(queue, &settle(&held, &Outcome::Reject { error: "bad".to_owned() })).await;
            Op::Redrive(Redrive::new(ids, Schedule::NOW))
        }
        Timed::Get => Op::Get(ids),
        Timed::Progress => Op::Progress(ids),
        Timed::List => Op::List(List::new(Status::Ready, batch)),
        Timed::Stats => Op::Stats,
        Timed::Forecast => {
            Op::Forecast((1..=60).map(|minute| Millis::saturating(60_000 * minute)).collect())
        }
    }
}

/// Empties the queue again.
async fn clear(queue: &dyn Backend, op: &Op, reply: Reply) {
    let held = match (op, reply) {
        (Op::Settle(settled), _) => {
            // What was acked is not found.
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
        (Op::Claim(_), Reply::Claim(claimed))
        | (Op::Turn(_), Reply::Turn(Turned { claimed, .. })) => claimed.deliveries,
        _ => claim_up_to(queue, MAX_BATCH).await,
    };
    if !held.is_empty() {
        apply(queue, &ack(&held)).await;
    }
}

async fn claimed(queue: &dyn Backend, batch: usize) -> Vec<Delivery> {
    deliveries(&apply(queue, &claim(batch)).await, batch).to_vec()
}

async fn claim_up_to(queue: &dyn Backend, most: usize) -> Vec<Delivery> {
    let Reply::Claim(claimed) = apply(queue, &claim(most)).await else { unreachable!("a claim") };
    claimed.deliveries
}

fn settle(held: &[Delivery], outcome: &Outcome) -> Op {
    let settlement =
        |delivery: &Delivery| Settlement::new(id_of(delivery), delivery.lease, outcome.clone());
    Op::Settle(held.iter().map(settlement).collect())
}

fn id_of(delivery: &Delivery) -> MessageId {
    delivery.message.info.id.clone()
}

async fn apply(queue: &dyn Backend, op: &Op) -> Reply {
    queue.apply(At::Server, op).await.expect("the operation succeeds").reply
}
