//! Whether a queue exists.

use delayline::backend::{Applied, Reply};
use delayline::{Connection, Error};

/// Returns whether the queue `name` was ever changed, holds messages, or has a number of shards.
/// `counted` is what [`Op::Stats`](delayline::backend::Op::Stats) of the queue has returned.
///
/// # Errors
///
/// Those of [`Connection::shards_of`].
pub async fn is_known(
    connection: &Connection,
    name: &str,
    counted: &Applied,
) -> Result<bool, Error> {
    // Without its control record, a queue has no revision, but may have messages.
    let holds = match &counted.reply {
        Reply::Stats(it) => it.scheduled > 0 || it.ready > 0 || it.leased > 0 || it.dead > 0,
        _ => false,
    };
    // The number of shards is stored before the first message.
    Ok(counted.revision > 0 || holds || connection.shards_of(name).await?.is_some())
}
