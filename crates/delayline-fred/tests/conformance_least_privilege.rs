//! The conformance suite over fred, as users who may do no more than is documented.

#[path = "../../delayline-redis-protocol/tests/conformance_fixture/mod.rs"]
mod conformance_fixture;

use std::process::ExitCode;

use conformance_fixture::{Place, Setup};
use delayline_fred::FredTransport;
use delayline_redis_protocol::Resp;

fn main() -> ExitCode {
    let setup =
        Setup { name: "fred", resp: Resp::V2, place: Place::UnixSocket, least_privilege: true };
    conformance_fixture::run(&setup, async |options| FredTransport::connect(&options).await)
}
