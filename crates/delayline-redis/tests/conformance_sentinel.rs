//! The conformance suite over redis-rs: RESP2 behind three sentinels.

use std::process::ExitCode;

use delayline_driver_testkit::{Place, conformance};
use delayline_redis_protocol::Resp;

fn main() -> ExitCode {
    conformance::<delayline_redis::RedisTransport>("redis-rs", Place::Sentinel, Resp::V2)
}
