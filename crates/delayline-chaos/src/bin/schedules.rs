//! `cargo xtask prove schedules`.

use std::process::ExitCode;

#[tokio::main]
async fn main() -> ExitCode {
    delayline_chaos::schedules::run().await
}
