//! Why a directory cannot be opened.

use std::io;
use std::path::{Path, PathBuf};

use delayline_core::{Error, ErrorKind, Timestamp};

/// Why a directory cannot be opened. Opening changes nothing that is stored.
///
/// Converts into an [`Error`]: [`ErrorKind::InUse`] for a directory in use, [`ErrorKind::DiskFull`]
/// for a full disk, else [`ErrorKind::Storage`]. Only the first two can be retried.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Another process, or another part of this one, has opened it. If that process
    /// [shares](crate::Directory::share) it, [`Beside`](crate::Beside) reaches its queues.
    #[error("{}", in_use(path, holder.as_deref()))]
    InUse {
        /// The directory.
        path: PathBuf,
        /// The id of the process that holds it, if the lock file says so.
        holder: Option<String>,
    },
    /// It contains files of another program, and none of ours.
    #[error(
        "{} holds files of another program, such as {file:?}: choose an empty directory",
        path.display()
    )]
    Foreign {
        /// The directory.
        path: PathBuf,
        /// One of the files.
        file: String,
    },
    /// It is on a network file system, whose locks and syncs promise less than a disk's.
    #[error("{} is on {name}, a network file system: choose a local disk", path.display())]
    Network {
        /// The directory.
        path: PathBuf,
        /// The kind of file system.
        name: &'static str,
    },
    /// The operating system refused a call.
    #[error("{}: cannot {what}: {source}", path.display())]
    Io {
        /// The directory or file.
        path: PathBuf,
        /// The attempted action.
        what: &'static str,
        /// The reason.
        source: io::Error,
    },
    /// Stored data is damaged or missing.
    #[error(
        "{file} is damaged at byte {offset}: {reason}. Nothing was changed. Restore the directory \
         from a backup"
    )]
    Damaged {
        /// The name of the file.
        file: String,
        /// Where the damage begins.
        offset: u64,
        /// The reason.
        reason: String,
    },
    /// A file is missing.
    #[error("{file} is missing: {reason}. Nothing was changed. Restore it from a backup")]
    Missing {
        /// The name of the file.
        file: String,
        /// Why it is needed.
        reason: &'static str,
    },
    /// It was written by another version of this library, with a format or model that this version
    /// does not know.
    #[error(
        "{file} was written by version {found} of the {what}, and this library has version \
         {supported}: {reason}. Use the version that wrote it: open and close the directory, and if \
         that does not help, import its queues into a server"
    )]
    Version {
        /// The name of the file.
        file: String,
        /// The versioned thing: the format or the model.
        what: &'static str,
        /// The version of the file.
        found: u32,
        /// The version of this library.
        supported: u32,
        /// The reason.
        reason: String,
    },
    /// The clock is far behind the time at which the directory was last used.
    #[error(
        "the clock shows {}, and the queues were last used at {}, in ms since 1970: correct the \
         clock, or, if that time was wrong, open once with `accept_clock` (in the command: \
         --accept-clock)",
        now.as_ms(), last.as_ms()
    )]
    Clock {
        /// The time of the clock.
        now: Timestamp,
        /// The last time at which the directory was used.
        last: Timestamp,
    },
}

impl OpenError {
    /// Returns `true` if the disk is full.
    #[must_use]
    pub fn is_disk_full(&self) -> bool {
        matches!(self, Self::Io { source, .. } if crate::disk::is_full(source))
    }
}

impl OpenError {
    /// Returns `true` if the next attempt may succeed without a repair.
    pub(crate) fn is_passing(&self) -> bool {
        let passes = |error| crate::disk::is_full(error) || crate::disk::is_passing(error);
        matches!(self, Self::Io { source, .. } if passes(source))
    }
}

fn in_use(path: &Path, holder: Option<&str>) -> String {
    let path = path.display();
    let others = "stop it first, or work beside it while it shares the directory";
    match holder {
        Some(pid) if pid == std::process::id().to_string() => {
            format!("this process (process {pid}) has already opened {path}: share its connection")
        }
        Some(pid) => format!("process {pid} has opened {path}: {others}"),
        None => format!("another process has opened {path}: {others}"),
    }
}

impl From<OpenError> for Error {
    fn from(error: OpenError) -> Self {
        let kind = match &error {
            OpenError::InUse { .. } => ErrorKind::InUse,
            _ if error.is_disk_full() => ErrorKind::DiskFull,
            _ => ErrorKind::Storage,
        };
        let detail = error.to_string();
        Self::with_source(kind, detail, error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_in_use_can_be_used_beside_its_process() {
        for holder in [None, Some("1")] {
            let error = in_use(Path::new("/queues"), holder);
            assert!(error.contains("process has opened /queues") || error.contains("process 1 "));
            assert!(error.contains("stop it first, or work beside it"), "{error}");
        }
    }
}
