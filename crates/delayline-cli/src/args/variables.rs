//! Environment variables in place of options.

use std::ffi::OsStr;

use clap::Command;
use clap::builder::Resettable;

/// The variable for `--post-secret`.
pub(super) const POST_SECRET: &str = "DELAYLINE_POST_SECRET";

/// Counts an empty variable as not set: files of variables and containers often have such lines. An
/// empty secret for signatures is still refused, since receivers would refuse unsigned requests.
pub(super) fn without_empty(command: Command) -> Command {
    let is_empty = |name: &OsStr| {
        name != POST_SECRET && std::env::var_os(name).is_some_and(|value| value.is_empty())
    };
    let command = command.mut_args(|arg| {
        if arg.get_env().is_some_and(is_empty) { arg.env(Resettable::Reset) } else { arg }
    });
    command.mut_subcommands(without_empty)
}

/// Whether a value is of the command line, and not of its variable, which other commands may need.
pub(super) fn is_given(value: Option<&str>, variable: &str) -> bool {
    value.is_some_and(|value| std::env::var_os(variable).is_none_or(|of_it| of_it != value))
}
