//! The `delayline` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    delayline_cli::main()
}
