//! What random runs do: moves that refer to leases, instants and pages by origin, so that they
//! still make sense when a failing run is minimised.
//!
//! The ranges are tiny on purpose. Queues go wrong on collisions, ties, repetitions and stale
//! leases, and six ids, three consumers and a few milliseconds make these common.

mod content;
pub(crate) mod destinations;
mod improviser;
mod ledger;
mod moves;

use delayline_core::{
    Claim, Lease, MessageId, Millis, NewMessage, NewResult, Op, Outcome, Position, Schedule, State,
    Status, Timestamp,
};
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

pub use self::improviser::Improviser;
pub use self::moves::moves;

use self::ledger::Ledger;
use self::moves::action;

use crate::{Step, Trace};

/// The most operations in one random run, including repetitions.
pub const MAX_MOVES: usize = 50;

/// One operation of a random run, and how time moves before it.
#[derive(Clone, Debug)]
pub struct Move {
    /// How the clock moves.
    pub tick: Tick,
    /// The operation.
    pub action: Action,
}

/// A movement of the clock.
#[derive(Clone, Copy, Debug)]
pub enum Tick {
    /// None.
    Stay,
    /// Forward by this many milliseconds.
    Forward(u64),
    /// Back by this many milliseconds.
    Back(u64),
    /// To an instant at which something is known to happen (a due time, a deadline, an expiry), or
    /// close to it.
    Near {
        /// Which of the future instants, modulo their number.
        which: usize,
        /// Milliseconds after it, minus one, so that the time can also be just before it.
        offset: u64,
    },
}

/// An operation, in terms of earlier ones.
#[derive(Clone, Debug)]
pub enum Action {
    /// An operation that does not refer to earlier ones.
    Send(Op),
    /// [`Op::Settle`].
    Settle(Vec<Ending>),
    /// [`Op::HandOff`]: settlements, messages that follow from them in turn, and a result of each
    /// ack. Without a message that has an id of its own, and without a result, it is an
    /// [`Op::Settle`].
    HandOff(Vec<Ending>, Vec<NewMessage>, Option<NewResult>),
    /// [`Op::Extend`].
    Extend(Vec<(MessageId, LeaseRef)>, Millis),
    /// A claim with a token that no earlier claim had.
    ClaimAnew(Claim),
    /// [`Op::List`].
    List(Status, Cursor, usize),
    /// [`Op::Check`].
    Check(Cursor, usize),
    /// [`Op::Repair`].
    Repair(Cursor, usize),
    /// Repeats one of the latest operations unchanged: the retry after a lost reply.
    Again(usize),
}

/// A settlement: its message, lease and outcome, and the hold of the queue, if any.
pub type Ending = (MessageId, LeaseRef, Outcome, Option<Schedule>);

/// A lease, by origin.
#[derive(Clone, Copy, Debug)]
pub enum LeaseRef {
    /// The message's latest lease (0), the one before it (1), and so on.
    Recent(usize),
    /// The lease of the latest delivery overall (0), of the one before it (1), and so on, with its
    /// message instead of the named one.
    Delivery(usize),
    /// The lease of one of the latest deliveries with one part wrong: neither the claim nor the
    /// epoch alone may pass for the lease.
    HalfWrong {
        /// Which delivery, as in [`Delivery`](Self::Delivery).
        delivery: usize,
        /// Which part.
        part: LeasePart,
    },
    /// A lease that was probably never granted.
    MadeUp(Lease),
}

/// One of the two parts of a lease.
#[derive(Clone, Copy, Debug)]
pub enum LeasePart {
    /// The claim id.
    ClaimId,
    /// The epoch.
    Epoch,
}

/// A position in a listing, by origin.
#[derive(Clone, Copy, Debug)]
pub enum Cursor {
    /// The beginning.
    Start,
    /// One of the latest positions where a page ended or a message was.
    Recent(usize),
    /// Any position.
    MadeUp(Position),
}

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

/// Where the clock of a random run starts: some present-day instant.
pub(crate) fn start() -> Timestamp {
    Timestamp::from_ms(1_800_000_000_000).unwrap_or_default()
}
