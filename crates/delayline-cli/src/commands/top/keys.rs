//! Keys that are pressed while a table is shown.

use std::future::pending;
use std::io::IsTerminal as _;

use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use tokio::io::{AsyncReadExt as _, Stdin};

/// The keys of the terminal. It shows them again once this is dropped.
pub(super) struct Keys(Option<Listening>);

struct Listening {
    stdin: Stdin,
    before: Termios,
}

impl Keys {
    /// Gets each key at once, if stdin is a terminal. Ctrl-C remains a signal.
    pub(super) fn listen() -> Self {
        let stdin = std::io::stdin();
        if !stdin.is_terminal() {
            return Self(None);
        }
        let Ok(before) = tcgetattr(&stdin) else { return Self(None) };
        let mut modes = before.clone();
        modes.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO);
        if tcsetattr(&stdin, OptionalActions::Now, &modes).is_err() {
            return Self(None);
        }
        Self(Some(Listening { stdin: tokio::io::stdin(), before }))
    }

    /// Listens to nothing.
    pub(super) const fn none() -> Self {
        Self(None)
    }

    /// Waits until q is pressed; forever if there are no keys.
    pub(super) async fn quit(&mut self) {
        if let Some(Listening { stdin, .. }) = &mut self.0 {
            let mut key = [0];
            while let Ok(1) = stdin.read(&mut key).await {
                if key.eq_ignore_ascii_case(b"q") {
                    return;
                }
            }
        }
        pending::<()>().await;
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        if let Some(Listening { before, .. }) = &self.0 {
            // The terminal may be gone.
            let _ = tcsetattr(std::io::stdin(), OptionalActions::Now, before);
        }
    }
}
