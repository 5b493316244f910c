//! Confirmed calls over redis-rs.

#[path = "../../delayline-redis-protocol/tests/durability_cases/mod.rs"]
mod durability_cases;

use durability_cases::durability_cases;

durability_cases!(delayline_redis::RedisTransport);
