//! The conformance suite over redis-rs: RESP3 on a cluster of three nodes.

use std::process::ExitCode;

use delayline_driver_testkit::{Place, conformance};
use delayline_redis_protocol::Resp;

fn main() -> ExitCode {
    conformance::<delayline_redis::RedisTransport>("redis-rs", Place::Cluster, Resp::V3)
}
