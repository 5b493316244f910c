//! [`State::apply`] alone: no lock, no clock, no server.
//!
//! Each operation is timed separately within a whole round, so that the queue is the same before
//! every round: as many ready messages as the backlog says.

use std::cell::{LazyCell, RefCell};
use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, Throughput};
use delayline_benches::{PAYLOAD_BYTES, ack, claim, deliveries, enqueue};
use delayline_core::limits::MAX_BATCH;
use delayline_core::{Applied, Op, State, Timestamp};

const BACKLOGS: [usize; 2] = [0, 100_000];
const BATCHES: [usize; 2] = [1, 100];
const NAMES: [&str; 3] = ["enqueue", "claim", "settle"];

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    model(&mut criterion);
    criterion.final_summary();
}

fn model(criterion: &mut Criterion) {
    let said = LazyCell::new(|| eprintln!("model: no server, payloads of {PAYLOAD_BYTES} bytes"));
    let mut group = criterion.benchmark_group("model");
    for backlog in BACKLOGS {
        let state = LazyCell::new(|| RefCell::new(with_backlog(backlog)));
        for batch in BATCHES {
            group.throughput(Throughput::Elements(elements(batch)));
            for (timed, name) in NAMES.into_iter().enumerate() {
                let id = BenchmarkId::new(name, format!("batch {batch}, backlog {backlog}"));
                group.bench_function(id, |bencher| {
                    LazyCell::force(&said);
                    let state = &mut state.borrow_mut();
                    bencher.iter_custom(|rounds| {
                        (0..rounds).map(|_| round(state, batch)[timed]).sum()
                    });
                });
            }
        }
    }
    group.finish();
}

/// How long each operation of one round took, in the order of [`NAMES`].
fn round(state: &mut State, batch: usize) -> [Duration; 3] {
    let (enqueued, _) = timed(state, &enqueue(batch));
    let (claimed, applied) = timed(state, &claim(batch));
    let (settled, _) = timed(state, &ack(deliveries(&applied.reply, batch)));
    [enqueued, claimed, settled]
}

/// Making the operation and dropping the answer are not part of it.
fn timed(state: &mut State, op: &Op) -> (Duration, Applied) {
    let start = Instant::now();
    let applied = black_box(state.apply(now(), black_box(op)));
    (start.elapsed(), applied)
}

fn with_backlog(backlog: usize) -> State {
    let mut state = State::new();
    for done in (0..backlog).step_by(MAX_BATCH) {
        state.apply(now(), &enqueue(MAX_BATCH.min(backlog - done)));
    }
    state
}

/// The clock stands still: entries are forgotten only because of the number of later ones.
fn now() -> Timestamp {
    Timestamp::MIN
}

fn elements(batch: usize) -> u64 {
    u64::try_from(batch).unwrap_or(u64::MAX)
}
