//! Calls of a backend, as its callers make them.

use delayline_core::{Applied, At, Backend, Durability, Error, ErrorKind, Op};
use tokio::time::timeout;

use crate::limits::CALL_TIME;

/// Applies an operation: as workers do if `number` is even, or else as operators do. A call that
/// takes too long fails.
pub(crate) async fn apply(
    backend: &dyn Backend,
    number: usize,
    at: At,
    op: &Op,
) -> Result<Applied, Error> {
    let call = async {
        if number.is_multiple_of(2) {
            backend.apply_durably(at, op, Durability::None).await
        } else {
            backend.apply(at, op).await
        }
    };
    in_time(op, call).await?
}

/// Returns the output of a call, or an error if it takes too long.
pub(crate) async fn in_time<T>(op: &Op, call: impl Future<Output = T>) -> Result<T, Error> {
    let late = |_| {
        let detail = format!("{} did not end within {CALL_TIME:?}", op.name());
        Error::with_detail(ErrorKind::Timeout, detail)
    };
    timeout(CALL_TIME, call).await.map_err(late)
}
