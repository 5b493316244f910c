//! The conformance suite over fred: RESP2 on a cluster of three nodes, encrypted.

#[path = "../../delayline-redis-protocol/tests/conformance_fixture/mod.rs"]
mod conformance_fixture;

use std::process::ExitCode;

use conformance_fixture::{Place, Setup};
use delayline_fred::FredTransport;
use delayline_redis_protocol::Resp;

fn main() -> ExitCode {
    let setup =
        Setup { name: "fred", resp: Resp::V2, place: Place::TlsCluster, least_privilege: false };
    conformance_fixture::run(&setup, async |options| FredTransport::connect(&options).await)
}
