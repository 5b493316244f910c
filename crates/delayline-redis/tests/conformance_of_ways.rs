//! The conformance suite over redis-rs, on other ways to servers.

use std::process::ExitCode;

use delayline_driver_testkit::{Place, conformance_of_ways};
use delayline_redis_protocol::Resp;

fn main() -> ExitCode {
    conformance_of_ways::<delayline_redis::RedisTransport>(&[
        (Place::Tcp, Resp::V3),
        (Place::LeastPrivilege, Resp::V2),
        (Place::Cluster, Resp::V3),
    ])
}
