//! The command on a terminal of its own.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::process::{Child, Command};
use std::thread::JoinHandle;

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

/// A running command and its terminal.
pub struct OnTerminal {
    pub child: Child,
    keyboard: File,
    screen: JoinHandle<String>,
}

/// Starts a command whose stdin, stdout and stderr are one terminal.
pub fn start(mut command: Command) -> OnTerminal {
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&master).unwrap();
    unlockpt(&master).unwrap();
    let name = ptsname(&master, Vec::new()).unwrap().into_string().unwrap();
    let open = || File::options().read(true).write(true).open(&name).unwrap();
    // Some programs are told by this variable that a terminal can do nothing.
    command.env("TERM", "xterm").stdin(open()).stdout(open()).stderr(open());
    let child = command.spawn().unwrap();
    // It holds the terminal open as well, and would keep the screen from ending.
    drop(command);
    let mut screen = File::from(OwnedFd::try_clone(&master).unwrap());
    let screen = std::thread::spawn(move || {
        let (mut seen, mut chunk) = (Vec::new(), [0; 4_096]);
        // It fails when the command has closed its side.
        while let Ok(count @ 1..) = screen.read(&mut chunk) {
            seen.extend_from_slice(&chunk[..count]);
        }
        String::from_utf8_lossy(&seen).into_owned()
    });
    OnTerminal { child, keyboard: File::from(master), screen }
}

impl OnTerminal {
    /// Types something.
    pub fn type_in(&mut self, text: &str) {
        self.keyboard.write_all(text.as_bytes()).unwrap();
    }

    /// The exit code, and all that was on the screen.
    pub fn end(mut self) -> (Option<i32>, String) {
        let code = self.child.wait().unwrap().code();
        (code, self.screen.join().unwrap())
    }
}
