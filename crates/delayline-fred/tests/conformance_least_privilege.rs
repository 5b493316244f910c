//! The conformance suite over fred, as users who may do no more than is documented.

use std::process::ExitCode;

use delayline_driver_testkit::{Place, conformance};
use delayline_redis_protocol::Resp;

fn main() -> ExitCode {
    conformance::<delayline_fred::FredTransport>("fred", Place::LeastPrivilege, Resp::V2)
}
