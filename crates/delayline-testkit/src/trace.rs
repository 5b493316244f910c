//! A run of a queue as data: what was asked, and what the clock showed.

mod bytes;
mod parse;
mod print;
mod shrink;

use delayline_core::{Op, Timestamp};

pub use self::parse::TraceError;

/// Operations on one queue that is empty at first, each at an instant.
///
/// Its `Display` output is text, one operation a line, that [`str::parse`] reads back: a failing
/// run prints it, and pasted into a file it is a regression test.
///
/// ```
/// use delayline_testkit::Trace;
///
/// let text = "\
/// 1000 enqueue order-1 payload=close%20it in=500 priority=high ; order-2
/// 1500 claim consumer=w claim=a*16 max=10 lease=30000
/// 1501 settle order-1 a*16/1 retry delay=5 error=boom ; order-2 a*16/1 ack
/// 1502 list scheduled limit=100
/// ";
/// let trace: Trace = text.parse()?;
/// assert_eq!(trace.steps.len(), 4);
/// assert_eq!(trace.to_string(), text);
/// # Ok::<(), delayline_testkit::TraceError>(())
/// ```
///
/// A line is the instant in ms, the operation's [name](Op::name) and its items, with `;` between
/// them. Names and payloads are percent-encoded; `a*16` is the byte `a` 16 times. What stands at
/// its default is left out. Empty lines and lines that begin with `#` are skipped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    /// The operations in order.
    pub steps: Vec<Step>,
}

/// One operation of a [`Trace`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// What the clock shows. It may be less than at the step before.
    pub at: Timestamp,
    /// What is asked.
    pub op: Op,
}
