//! The operations of random runs, in terms of earlier ones.

use delayline_core::{
    Claim, Hold, Lease, MessageId, Millis, NewMessage, NewResult, Op, Outcome, Position, Save,
    Status,
};

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
    Extend(Vec<(MessageId, LeaseRef, Option<Save>)>, Millis),
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

impl Action {
    /// Sends messages without their groups.
    pub(super) fn remove_groups(&mut self) {
        if let Self::Send(Op::Enqueue(messages)) | Self::HandOff(_, messages, _) = self {
            messages.iter_mut().for_each(|message| message.group = None);
        }
    }
}

/// A settlement: its message, lease and outcome, and its hold and its save, if any.
pub type Ending = (MessageId, LeaseRef, Outcome, Option<Hold>, Option<Save>);

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
