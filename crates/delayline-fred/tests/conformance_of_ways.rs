//! The conformance suite over fred, on other ways to servers.

use std::process::ExitCode;

use delayline_driver_testkit::{Place, conformance_of_ways};
use delayline_redis_protocol::Resp;

fn main() -> ExitCode {
    conformance_of_ways::<delayline_fred::FredTransport>(&[
        (Place::Tcp, Resp::V3),
        (Place::LeastPrivilege, Resp::V2),
        (Place::Sentinel, Resp::V3),
    ])
}
