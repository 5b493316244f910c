//! Clusters and sentinels over redis-rs.

#[path = "../../delayline-redis-protocol/tests/topology_cases/mod.rs"]
mod topology_cases;

use topology_cases::topology_cases;

topology_cases!(delayline_redis::RedisTransport);
