//! Connections that end anywhere in a request or reply.

#[path = "../../delayline-redis-protocol/tests/wire_cases/mod.rs"]
mod wire_cases;

use delayline_core::Error;
use delayline_redis::RedisTransport;
use delayline_redis_protocol::ConnectOptions;
use wire_cases::{Connect, wire_cases};

/// Connects with the driver under test.
struct Redis;

impl Connect for Redis {
    type Transport = RedisTransport;

    async fn connect(options: &ConnectOptions) -> Result<RedisTransport, Error> {
        RedisTransport::connect(options).await
    }
}

wire_cases!(Redis);
