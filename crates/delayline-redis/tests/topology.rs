//! Clusters and sentinels over redis-rs.

#[path = "../../delayline-redis-protocol/tests/topology_cases/mod.rs"]
mod topology_cases;

use delayline_core::Error;
use delayline_redis::RedisTransport;
use delayline_redis_protocol::ConnectOptions;
use topology_cases::{Connect, topology_cases};

/// Connects with redis-rs.
struct Redis;

impl Connect for Redis {
    type Transport = RedisTransport;

    async fn connect(options: &ConnectOptions) -> Result<RedisTransport, Error> {
        RedisTransport::connect(options).await
    }
}

topology_cases!(crate::Redis);
