//! What the random runs do: moves that speak of leases, instants and pages by where they came
//! from, so that they still make sense when a failing run is cut down.
//!
//! The ranges are tiny on purpose. Collisions, ties, repetitions and stale leases are where queues
//! go wrong, and six ids, three consumers and a few milliseconds make them common.

mod content;
mod improviser;
mod ledger;
mod moves;

use delayline_core::{
    Claim, Lease, MessageId, Millis, Op, Outcome, Position, State, Status, Timestamp,
};
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

pub use self::improviser::Improviser;
pub use self::moves::moves;

use self::ledger::Ledger;
use self::moves::action;

use crate::{Step, Trace};

/// The most operations of one random run, repetitions included.
pub const MAX_MOVES: usize = 50;

/// One operation of a random run, and how time moves before it.
#[derive(Clone, Debug)]
pub struct Move {
    /// How the clock moves.
    pub tick: Tick,
    /// What is asked then.
    pub action: Action,
}

/// A movement of the clock.
#[derive(Clone, Copy, Debug)]
pub enum Tick {
    /// None.
    Stay,
    /// So many milliseconds on.
    Forward(u64),
    /// So many milliseconds back.
    Back(u64),
    /// To an instant that something was announced for (a due instant, a deadline, an expiry), or
    /// next to it.
    Near {
        /// Which of those still to come; modulo their number.
        which: usize,
        /// How many milliseconds after it; one less than this, to be able to be before it.
        offset: u64,
    },
}

/// An operation, in terms of what came before it.
#[derive(Clone, Debug)]
pub enum Action {
    /// An operation that needs nothing from before.
    Send(Op),
    /// [`Op::Settle`].
    Settle(Vec<(MessageId, LeaseRef, Outcome)>),
    /// [`Op::Extend`].
    Extend(Vec<(MessageId, LeaseRef)>, Millis),
    /// A claim with a token that no claim before had.
    ClaimAnew(Claim),
    /// [`Op::List`].
    List(Status, Cursor, usize),
    /// [`Op::Check`].
    Check(Cursor, usize),
    /// [`Op::Repair`].
    Repair(Cursor, usize),
    /// One of the latest operations once more, unchanged: the retry after a lost reply.
    Again(usize),
}

/// A lease, by where it came from.
#[derive(Clone, Copy, Debug)]
pub enum LeaseRef {
    /// The message's latest lease (0), the one before (1) and so on.
    Recent(usize),
    /// That of the latest delivery of all (0), of the one before (1) and so on, with its message
    /// instead of the one named.
    Delivery(usize),
    /// That of one of the latest deliveries, with one of its two parts wrong: neither the claim nor
    /// the epoch alone may pass for the lease.
    HalfWrong {
        /// Which delivery, as in [`Delivery`](Self::Delivery).
        delivery: usize,
        /// Which part.
        part: LeasePart,
    },
    /// One that was perhaps never given.
    MadeUp(Lease),
}

/// One of the two parts of a lease.
#[derive(Clone, Copy, Debug)]
pub enum LeasePart {
    /// Its claim.
    ClaimId,
    /// Its epoch.
    Epoch,
}

/// A place in a listing, by where it came from.
#[derive(Clone, Copy, Debug)]
pub enum Cursor {
    /// The beginning.
    Start,
    /// One of the latest that a page ended with or a message stood at.
    Recent(usize),
    /// Any.
    MadeUp(Position),
}

/// Carries the moves out on the model and writes down what they come to.
#[must_use]
pub fn trace(moves: &[Move]) -> Trace {
    let (mut model, mut ledger) = (State::new(), Ledger::default());
    let mut now = start();
    let mut trace = Trace::default();
    for step in moves {
        now = ledger.tick(now, step.tick);
        let op = ledger.concrete(&step.action);
        // The model takes invalid operations; a backend refuses them and changes nothing.
        if op.validate().is_ok() {
            let applied = model.apply(now, &op);
            ledger.observe(now, &op, &applied.reply);
        }
        trace.steps.push(Step { at: now, op });
    }
    trace
}

/// A run that is a function of the bytes, for coverage-guided fuzzers: four bytes decide one move,
/// so that a small change of the bytes is a small change of the run.
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

/// Where the clock of a random run begins: some instant of our time.
pub(crate) fn start() -> Timestamp {
    Timestamp::from_ms(1_800_000_000_000).unwrap_or_default()
}
