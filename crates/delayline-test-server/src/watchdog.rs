//! Ends a server when its owner ends.

use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// A shell that waits for the end of this process, then kills the server and removes its directory.
///
/// Destructors do not run for a `static`, after an abort, or after Ctrl-C. The end of a pipe that
/// only this process holds is noticed in all of these cases.
pub(crate) struct Watchdog(Child);

impl Watchdog {
    /// Watches the server with process id `pid`, which works in `directory`.
    pub(crate) fn start(pid: u32, directory: &Path) -> io::Result<Self> {
        let child = Command::new("sh")
            .args(["-c", r#"read -r _; kill -KILL "$0" 2>/dev/null; rm -rf "$1""#])
            .arg(pid.to_string())
            .arg(directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // Ctrl-C goes to a whole process group: the watchdog has to outlive it.
            .process_group(0)
            .spawn()?;
        Ok(Self(child))
    }
}

impl Drop for Watchdog {
    /// Ends the watchdog without killing the server.
    fn drop(&mut self) {
        // Fails only if the shell has already ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
