//! `cargo xtask prove sim`.

use std::process::ExitCode;

fn main() -> ExitCode {
    delayline_sim::main()
}
