//! The command on a separate terminal.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use super::Running;

/// A running command and its terminal.
pub struct OnTerminal {
    pub child: Running,
    keyboard: File,
    screen: Arc<Mutex<Vec<u8>>>,
    watcher: Option<JoinHandle<()>>,
}

/// Starts a command whose stdin, stdout and stderr are one terminal.
pub fn start(command: Command) -> OnTerminal {
    start_sized(command, 24, 80)
}

/// Starts a command on a terminal of this many rows and columns.
pub fn start_sized(mut command: Command, rows: u16, columns: u16) -> OnTerminal {
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(&master, size).unwrap();
    grantpt(&master).unwrap();
    unlockpt(&master).unwrap();
    let name = ptsname(&master, Vec::new()).unwrap().into_string().unwrap();
    let open = || File::options().read(true).write(true).open(&name).unwrap();
    // Under test runners this variable may say that the terminal has no capabilities.
    command.env("TERM", "xterm").stdin(open()).stdout(open()).stderr(open());
    let child = super::start(&mut command);
    // It holds the terminal open as well, and would keep the screen from ending.
    drop(command);
    let mut output = File::from(OwnedFd::try_clone(&master).unwrap());
    let screen = Arc::<Mutex<Vec<u8>>>::default();
    let seen = Arc::clone(&screen);
    let watcher = std::thread::spawn(move || {
        let mut chunk = [0; 4_096];
        // It fails when the command has closed its side.
        while let Ok(count @ 1..) = output.read(&mut chunk) {
            seen.lock().unwrap().extend_from_slice(&chunk[..count]);
        }
    });
    OnTerminal { child, keyboard: File::from(master), screen, watcher: Some(watcher) }
}

impl OnTerminal {
    /// Types something.
    pub fn type_in(&mut self, text: &str) {
        self.keyboard.write_all(text.as_bytes()).unwrap();
    }

    /// Changes the size of the terminal.
    pub fn resize(&self, rows: u16, columns: u16) {
        let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&self.keyboard, size).unwrap();
    }

    /// All that was on the screen until now.
    pub fn screen(&self) -> String {
        String::from_utf8_lossy(&self.screen.lock().unwrap()).into_owned()
    }

    /// The exit code, and all that was on the screen.
    pub fn end(mut self) -> (Option<i32>, String) {
        let code = self.child.wait().unwrap().code();
        self.watcher.take().unwrap().join().unwrap();
        (code, self.screen())
    }
}
