//! The conformance suite over redis-rs: RESP2 on a unix socket.

use std::process::ExitCode;

fn main() -> ExitCode {
    delayline_driver_testkit::conformance::<delayline_redis::RedisTransport>("redis-rs")
}
