//! A run of a queue as data: the operations, and what the clock showed.

mod bytes;
mod parse;
mod print;
mod shrink;

use delayline_core::{Op, Timestamp};

pub use self::parse::TraceError;

/// Operations on an initially empty queue, each at an instant.
///
/// Its `Display` output is text with one operation per line, which [`str::parse`] reads back: a
/// failing run prints it, and saved to a file it is a regression test.
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
/// A line consists of the instant in ms, the operation's [name](Op::name) and its items, separated
/// by `;`. Names and payloads are percent-encoded; `a*16` is the byte `a` 16 times. Default values
/// are omitted. Empty lines and lines that start with `#` are skipped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    /// The operations in order.
    pub steps: Vec<Step>,
}

/// One operation of a [`Trace`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// What the clock shows. It may be earlier than in the previous step.
    pub at: Timestamp,
    /// The operation.
    pub op: Op,
}
