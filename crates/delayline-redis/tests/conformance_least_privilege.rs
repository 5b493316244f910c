//! The conformance suite over redis-rs, as users who may do no more than is documented.

#[path = "../../delayline-redis-protocol/tests/conformance_fixture/mod.rs"]
mod conformance_fixture;

use std::process::ExitCode;

use conformance_fixture::{Place, Setup};
use delayline_redis::RedisTransport;
use delayline_redis_protocol::Resp;

fn main() -> ExitCode {
    let setup =
        Setup { name: "redis-rs", resp: Resp::V2, place: Place::UnixSocket, least_privilege: true };
    conformance_fixture::run(&setup, async |options| RedisTransport::connect(&options).await)
}
