//! Environment variables of a command with content of its message.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use tokio::process::Command;

/// The names of a variable with text, and of one with base64.
pub(super) struct Names(pub(super) &'static str, pub(super) &'static str);

/// Sets a variable to the text of `content`, or another one to its base64 if no variable can hold
/// it as text. The variables of this process itself are not passed on.
pub(super) fn set(command: &mut Command, Names(text, base64): Names, content: Option<&[u8]>) {
    command.env_remove(text).env_remove(base64);
    let Some(content) = content else { return };
    match std::str::from_utf8(content) {
        Ok(value) if !value.contains('\0') => command.env(text, value),
        _ => command.env(base64, STANDARD.encode(content)),
    };
}
