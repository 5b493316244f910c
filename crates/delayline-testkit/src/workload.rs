//! What random runs do: moves that refer to leases, instants and pages by origin, so that they
//! still make sense when a failing run is minimised.
//!
//! The ranges are tiny on purpose. Queues go wrong on collisions, ties, repetitions and stale
//! leases, and six ids, three consumers and a few milliseconds make these common.

mod action;
mod content;
pub(crate) mod destinations;
mod improviser;
mod ledger;
mod moves;

use delayline_core::State;
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

pub use self::action::{Action, Cursor, Ending, LeasePart, LeaseRef, MAX_MOVES, Move, Tick};
pub(crate) use self::content::start;
pub use self::improviser::Improviser;
pub use self::moves::moves;

use self::ledger::Ledger;
use self::moves::action;

use crate::{Step, Trace};

/// Executes the moves on the model and returns the resulting operations.
#[must_use]
pub fn trace(moves: &[Move]) -> Trace {
    let (mut model, mut ledger) = (State::new(), Ledger::default());
    let mut now = start();
    let mut trace = Trace::default();
    for step in moves {
        now = ledger.tick(now, step.tick);
        let op = ledger.concrete(&step.action);
        // The model accepts invalid operations; a backend refuses them and changes nothing.
        if op.validate().is_ok() {
            let applied = model.apply(now, &op);
            ledger.observe(now, &op, &applied.reply);
        }
        trace.steps.push(Step { at: now, op });
    }
    trace
}

/// Derives a run from bytes, for coverage-guided fuzzers: every four bytes determine one move, so
/// that a small change of the bytes is a small change of the run.
#[must_use]
pub fn trace_from_bytes(bytes: &[u8]) -> Trace {
    let one = moves::one();
    let chunks = bytes.chunks(4).take(MAX_MOVES);
    let moves = chunks.filter_map(|chunk| {
        let mut seed = [0; 32];
        seed[..chunk.len()].copy_from_slice(chunk);
        let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &seed);
        let mut runner = TestRunner::new_with_rng(Config::default(), rng);
        one.new_tree(&mut runner).ok().map(|tree| tree.current())
    });
    trace(&moves.collect::<Vec<_>>())
}
