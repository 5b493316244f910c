//! The conformance suite over fred: RESP2 on a cluster of three nodes, encrypted.

use std::process::ExitCode;

use delayline_driver_testkit::{Place, conformance};
use delayline_redis_protocol::Resp;

fn main() -> ExitCode {
    conformance::<delayline_fred::FredTransport>("fred", Place::TlsCluster, Resp::V2)
}
