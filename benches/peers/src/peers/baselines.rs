//! Queues as tutorials build them from plain Redis commands, written for speed: few round trips,
//! and one connection for all tasks where possible.

mod blocking;
mod sorted_set;
mod strings;

use anyhow::Result;
use redis::aio::MultiplexedConnection;
use redis::{AsyncCommands, FromRedisValue};

pub(crate) use self::blocking::Blocking;
pub(crate) use self::sorted_set::{Polled, Popped};
pub(crate) use self::strings::Strings;
use crate::load::{TASKS, client_millis};

const QUEUE: &str = "bench";

/// Returns up to 256 members that are due.
async fn due_now<T: FromRedisValue>(connection: &mut MultiplexedConnection) -> Result<Vec<T>> {
    let (now, most) = (client_millis(), TASKS.try_into()?);
    Ok(connection.zrangebyscore_limit(QUEUE, 0, now, 0, most).await?)
}
