//! Calls of a backend, as its callers make them.

use delayline_core::{Applied, At, Backend, Durability, Error, Op};

/// Applies an operation: as workers do if `number` is even, or else as operators do.
pub(crate) async fn apply(
    backend: &dyn Backend,
    number: usize,
    at: At,
    op: &Op,
) -> Result<Applied, Error> {
    if number.is_multiple_of(2) {
        backend.apply_durably(at, op, Durability::None).await
    } else {
        backend.apply(at, op).await
    }
}
