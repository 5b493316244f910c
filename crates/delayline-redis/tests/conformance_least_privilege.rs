//! The conformance suite over redis-rs, as users who may do no more than is documented.

use std::process::ExitCode;

use delayline_driver_testkit::{Place, conformance};
use delayline_redis_protocol::Resp;

fn main() -> ExitCode {
    conformance::<delayline_redis::RedisTransport>("redis-rs", Place::LeastPrivilege, Resp::V2)
}
