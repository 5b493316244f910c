//! `delayline completions`.

use std::process::ExitCode;

use clap::CommandFactory as _;
use clap_complete::Shell;

use crate::args::Args;
use crate::failure::Failure;
use crate::print::write;

/// Prints what a shell needs to complete the words of this command.
#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  delayline completions bash > ~/.local/share/bash-completion/completions/delayline"
)]
pub(crate) struct Completions {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

pub(crate) fn run(args: &Completions) -> Result<ExitCode, Failure> {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut Args::command(), "delayline", &mut text);
    write(&String::from_utf8_lossy(&text))?;
    Ok(ExitCode::SUCCESS)
}
