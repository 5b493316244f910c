//! `delayline man`.

use std::process::ExitCode;

use clap::CommandFactory as _;

use crate::args::{Args, Man};
use crate::failure::Failure;

pub(crate) fn run(args: &Man) -> Result<ExitCode, Failure> {
    match clap_mangen::generate_to(Args::command(), &args.directory) {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(error) => {
            let what = format!("the man pages cannot be written to {}", args.directory.display());
            Err(Failure::other(&what, &error))
        }
    }
}
