//! The conformance suite over fred: RESP3 behind three sentinels.

use std::process::ExitCode;

use delayline_driver_testkit::{Place, conformance};
use delayline_redis_protocol::Resp;

fn main() -> ExitCode {
    conformance::<delayline_fred::FredTransport>("fred", Place::Sentinel, Resp::V3)
}
