//! The conformance suite over fred: RESP2 on a unix socket.

use std::process::ExitCode;

fn main() -> ExitCode {
    delayline_driver_testkit::conformance::<delayline_fred::FredTransport>("fred")
}
