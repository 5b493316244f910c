//! A delivered message, and the end of one that leaves a result.

use delayline::limits::MAX_RESULT_BYTES;
use delayline::{Bytes, Job, Outcome};

/// A delivered message: its bytes, whatever they are.
pub(super) type Delivery = Job<Bytes>;

/// Whether the sender of a message asks for a result.
pub(super) fn wants_result(job: &Delivery) -> bool {
    job.headers().result_retention().is_some()
}

/// Acks a message with a result, or without one that is too large.
pub(super) fn ack_with(job: &Delivery, result: Vec<u8>) -> Outcome {
    if result.len() > MAX_RESULT_BYTES {
        let limit = MAX_RESULT_BYTES;
        tracing::warn!(id = %job.id(), limit, "the result has more bytes than that, and is not kept");
        return Outcome::Ack;
    }
    Outcome::AckWith(result.into())
}

/// As much of a result as is worth reading: one byte more shows that it is too large.
pub(super) const MOST_RESULT_BYTES: usize = MAX_RESULT_BYTES + 1;
