//! A call of a client and its result.

use std::time::Duration;

use delayline_core::{Applied, Op};

/// One call.
#[derive(Clone, Debug)]
pub struct Call {
    /// When the client sent the call, by a clock that all clients of a history share.
    pub called: Duration,
    /// When it received the result.
    pub returned: Duration,
    /// The operation.
    pub op: Op,
    /// The result.
    pub applied: Applied,
}
