//! The conformance suite over fred: RESP3 behind three sentinels.

#[path = "../../delayline-redis-protocol/tests/conformance_fixture/mod.rs"]
mod conformance_fixture;

use std::process::ExitCode;

use conformance_fixture::{Place, Setup};
use delayline_fred::FredTransport;
use delayline_redis_protocol::Resp;

fn main() -> ExitCode {
    let setup =
        Setup { name: "fred", resp: Resp::V3, place: Place::Sentinel, least_privilege: false };
    conformance_fixture::run(&setup, async |options| FredTransport::connect(&options).await)
}
