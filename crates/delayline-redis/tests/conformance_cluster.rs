//! The conformance suite over redis-rs: RESP3 on a cluster of three nodes.

#[path = "../../delayline-redis-protocol/tests/conformance_fixture/mod.rs"]
mod conformance_fixture;

use std::process::ExitCode;

use conformance_fixture::{Place, Setup};
use delayline_redis::RedisTransport;
use delayline_redis_protocol::Resp;

fn main() -> ExitCode {
    let setup =
        Setup { name: "redis-rs", resp: Resp::V3, place: Place::Cluster, least_privilege: false };
    conformance_fixture::run(&setup, async |options| RedisTransport::connect(&options).await)
}
