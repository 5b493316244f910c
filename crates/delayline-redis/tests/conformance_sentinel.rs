//! The conformance suite over redis-rs: behind three sentinels.

use std::process::ExitCode;

use delayline_driver_testkit::{Place, conformance_of_ways};
use delayline_redis_protocol::Resp;

fn main() -> ExitCode {
    conformance_of_ways::<delayline_redis::RedisTransport>(&[(Place::Sentinel, Resp::V2)])
}
