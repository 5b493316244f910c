//! The process of a server, and its end in all variations.

use std::fs::File;
use std::io;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::StartError;
use crate::watchdog::Watchdog;

/// A server's process. Dropping it kills it.
pub(crate) struct Process {
    child: Child,
    /// Dismissed as soon as the child has been waited for: its id may then be reused.
    watchdog: Option<Watchdog>,
}

impl Process {
    /// Runs `command` in `home`, with its output in `server.log` there.
    pub(crate) fn spawn(
        mut command: Command,
        home: &Path,
        environment: &[(&str, &Path)],
    ) -> Result<Self, StartError> {
        let log = File::create(home.join("server.log"))
            .map_err(StartError::io("create the server's log"))?;
        let errors = log.try_clone().map_err(StartError::io("create the server's log"))?;
        let child = command
            .current_dir(home)
            .envs(environment.iter().copied())
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(errors)
            .spawn()
            .map_err(StartError::io("run the server program"))?;
        // Owned from here on, so that the child ends if the watchdog does not start.
        let mut process = Self { child, watchdog: None };
        let watchdog =
            Watchdog::start(process.pid(), home).map_err(StartError::io("run sh, the watchdog"))?;
        process.watchdog = Some(watchdog);
        Ok(process)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// How it ended, if it has.
    pub(crate) fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        let status = self.child.try_wait()?;
        if status.is_some() {
            self.watchdog = None;
        }
        Ok(status)
    }

    /// Sends a signal, unless it has ended.
    pub(crate) fn signal(&mut self, signal: Signal) {
        if matches!(self.ended(), Ok(None)) {
            // Fails only if the process ended this very moment.
            let _ = kill_process(Pid::from_child(&self.child), signal);
        }
    }

    /// Asks it to end and waits; kills it if that takes too long.
    pub(crate) fn stop(&mut self) {
        // A frozen process hears nothing else.
        self.signal(Signal::CONT);
        self.signal(Signal::TERM);
        let deadline = Instant::now() + STOP_TIMEOUT;
        while matches!(self.ended(), Ok(None)) && Instant::now() < deadline {
            thread::sleep(POLL);
        }
        self.kill();
    }

    /// Kills it and waits for its end.
    pub(crate) fn kill(&mut self) {
        // Both fail only if the process has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
        self.watchdog = None;
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

const STOP_TIMEOUT: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(5);
