//! Queues over redis-rs, on servers that are broken, full, hostile or not meant for them.

#[path = "../../delayline-redis-protocol/tests/queue_cases/mod.rs"]
mod queue_cases;

use delayline_core::Error;
use delayline_redis::RedisTransport;
use delayline_redis_protocol::ConnectOptions;
use queue_cases::{Connect, queue_cases};

/// Connects with redis-rs.
struct Redis;

impl Connect for Redis {
    type Transport = RedisTransport;

    async fn connect(options: &ConnectOptions) -> Result<RedisTransport, Error> {
        RedisTransport::connect(options).await
    }
}

queue_cases!(Redis);
