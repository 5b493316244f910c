//! Asking before something is destroyed.

use std::io::{IsTerminal as _, Write as _};

use crate::failure::Failure;

/// Asks on the terminal whether to do `what`, unless that is said already.
///
/// # Errors
///
/// The answer is no, or there is nobody to ask.
pub(crate) fn confirm(what: &str, yes: bool) -> Result<(), Failure> {
    if yes {
        return Ok(());
    }
    if !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
        return Err(Failure::usage(format!("--yes is needed to {what}")));
    }
    eprint!("{what}? [y/N] ");
    let _ = std::io::stderr().flush();
    let mut answer = String::new();
    let read = std::io::stdin().read_line(&mut answer);
    match (read, answer.trim()) {
        (Ok(_), "y" | "Y" | "yes") => Ok(()),
        _ => Err(Failure::usage("nothing was done")),
    }
}
