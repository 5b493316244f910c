//! Finds the server program.

use std::env;
use std::path::PathBuf;

use crate::StartError;

/// The server program: `$REDIS_SERVER_BIN`, else `redis-server`, else `valkey-server` on the
/// `PATH`.
///
/// # Errors
///
/// There is none, or the variable names something that is not a file. The message says how to
/// install one.
pub fn find_server_binary() -> Result<PathBuf, StartError> {
    // Set but empty is how shells and CI files say "not set".
    if let Some(chosen) = env::var_os("REDIS_SERVER_BIN").filter(|value| !value.is_empty()) {
        let path = PathBuf::from(chosen);
        return if path.is_file() { Ok(path) } else { Err(StartError::WrongVariable { path }) };
    }
    let path = env::var_os("PATH").unwrap_or_default();
    let candidates = ["redis-server", "valkey-server"];
    candidates
        .iter()
        .flat_map(|name| env::split_paths(&path).map(move |folder| folder.join(name)))
        .find(|candidate| candidate.is_file())
        .ok_or(StartError::NotFound)
}
