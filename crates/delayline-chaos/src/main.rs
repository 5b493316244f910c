//! `cargo xtask prove chaos`.

use std::process::ExitCode;

#[tokio::main]
async fn main() -> ExitCode {
    delayline_chaos::run().await
}
