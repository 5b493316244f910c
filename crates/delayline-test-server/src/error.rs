//! Why a server did not start.

use std::error::Error;
use std::io;
use std::path::PathBuf;
use std::process::ExitStatus;

/// Why a server did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// There is no server program on this machine.
    #[error(
        "no redis-server found: $REDIS_SERVER_BIN is not set, and neither redis-server nor \
         valkey-server is on the PATH.\n{INSTALL}"
    )]
    NotFound,

    /// `$REDIS_SERVER_BIN` names something that is not a file.
    #[error("$REDIS_SERVER_BIN is {}, which is not a file.\n{INSTALL}", path.display())]
    WrongVariable {
        /// The program that it names.
        path: PathBuf,
    },

    /// The operating system refused something.
    #[error("could not {action}")]
    Io {
        /// The failed action.
        action: &'static str,
        /// The system's reason.
        source: io::Error,
    },

    /// The server ended before it answered.
    #[error("the server ended at start-up ({status}); the end of its log:\n{log}")]
    Exited {
        /// How it ended.
        status: ExitStatus,
        /// The last lines it wrote.
        log: String,
    },

    /// The server runs but does not answer.
    #[error("the server did not answer in time ({reason}); the end of its log:\n{log}")]
    Silent {
        /// What the last attempt met.
        reason: String,
        /// The last lines it wrote.
        log: String,
    },

    /// The certificates could not be made.
    #[error("could not make the certificates")]
    Certificate(#[from] rcgen::Error),
}

impl StartError {
    /// For `map_err`: names the failed action.
    pub(crate) fn io(action: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { action, source }
    }
}

/// How to get a server, for people.
pub(crate) const INSTALL: &str = "Install one, or set REDIS_SERVER_BIN to its path:
  Debian, Ubuntu   sudo apt-get install redis-server
  Fedora           sudo dnf install redis        (or valkey)
  Alpine           sudo apk add redis            (or valkey)
  macOS            brew install redis            (or valkey)";

/// An error with all its causes, which `Display` leaves out.
pub(crate) fn full_text(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}
