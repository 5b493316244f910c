//! `delayline completions`.

use std::process::ExitCode;

use clap::CommandFactory as _;

use crate::args::{Args, Completions};
use crate::failure::Failure;
use crate::print::write_bytes;

pub(crate) fn run(args: &Completions) -> Result<ExitCode, Failure> {
    // Into memory first: writing to a pipe that is closed would panic there.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Args::command(), "delayline", &mut script);
    write_bytes(&script).map(drop)?;
    Ok(ExitCode::SUCCESS)
}
