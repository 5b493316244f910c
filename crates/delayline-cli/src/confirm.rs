//! The question before something that cannot be undone.

use std::io::{self, IsTerminal as _};

use crate::failure::Failure;

/// Asks at the terminal whether to continue; `deed` is like "delete 12 dead letters".
///
/// # Errors
///
/// The answer is no, or there is no terminal to ask on.
pub(crate) fn confirm(deed: &str, askable: bool) -> Result<(), Failure> {
    if !askable || !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        let sentence = format!("this would {deed}, and there is no terminal to ask on");
        return Err(Failure::usage(sentence).hint("nothing was done; confirm with --yes"));
    }
    eprint!("This will {deed}. Continue? [y/N] ");
    let mut answer = String::new();
    io::stdin()
        .read_line(&mut answer)
        .map_err(|error| Failure::other("the answer could not be read", &error))?;
    match answer.trim().to_ascii_lowercase().as_str() {
        "y" | "yes" => Ok(()),
        _ => Err(Failure::input("not confirmed; nothing was done")),
    }
}

/// A number of things, with the word for one of them.
pub(crate) fn number(count: u64, one: &str) -> String {
    format!("{count} {one}{}", if count == 1 { "" } else { "s" })
}
