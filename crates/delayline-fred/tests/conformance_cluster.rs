//! The conformance suite over fred: on a cluster with TLS.

use std::process::ExitCode;

use delayline_driver_testkit::{Place, conformance_of_ways};
use delayline_redis_protocol::Resp;

fn main() -> ExitCode {
    conformance_of_ways::<delayline_fred::FredTransport>(&[(Place::TlsCluster, Resp::V2)])
}
