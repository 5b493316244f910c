//! Ctrl-C, SIGTERM and SIGHUP.

use std::future::pending;

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::failure::Failure;

/// The signals that ask this process to stop.
pub(crate) struct Signals {
    interrupt: Signal,
    terminate: Signal,
    /// The terminal is gone. `None` if this process is to survive that.
    hangup: Option<Signal>,
}

impl Signals {
    /// Listens from now on, in place of ending at once.
    pub(crate) fn listen() -> Result<Self, Failure> {
        let listen = |kind| {
            signal(kind).map_err(|error| Failure::other("signals cannot be handled", &error))
        };
        let interrupt = listen(SignalKind::interrupt())?;
        let hangup = Some(SignalKind::hangup()).filter(|_| !is_hangup_ignored());
        Ok(Self {
            interrupt,
            terminate: listen(SignalKind::terminate())?,
            hangup: hangup.map(listen).transpose()?,
        })
    }

    /// Waits for the next one. A terminal that is closed sends two signals, of a shell and of the
    /// system: the second one is ignored.
    pub(crate) async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            () = hung_up(self.hangup.as_mut()) => self.hangup = None,
        }
    }
}

async fn hung_up(hangup: Option<&mut Signal>) {
    match hangup {
        Some(hangup) => drop(hangup.recv().await),
        None => pending().await,
    }
}

/// Whether SIGHUP was ignored when this process began, as under nohup. Listening would end that.
/// Only Linux shows it; elsewhere, SIGHUP keeps its effect.
fn is_hangup_ignored() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    // The lowest bit is of signal 1, SIGHUP.
    ignored.is_none_or(|mask| mask & 1 == 1)
}
