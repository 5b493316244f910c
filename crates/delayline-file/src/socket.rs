//! The socket of a directory, whatever the length of its path.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

/// The name of the socket in a directory.
pub(crate) const SOCKET: &str = "delayline.sock";

/// A path to a file of a directory that is short enough for a socket's address.
#[derive(Debug)]
pub(crate) struct Address {
    pub(crate) path: PathBuf,
    /// Keeps the path valid.
    _directory: Option<File>,
}

impl Address {
    /// Addresses of sockets have about 100 bytes. A longer path leads through the open directory,
    /// which Linux shows under `/proc`.
    ///
    /// # Errors
    ///
    /// If the path is too long and this is not Linux, or the directory cannot be opened.
    pub(crate) fn of(directory: &Path, name: &str) -> io::Result<Self> {
        let path = directory.join(name);
        if path.as_os_str().len() <= MOST_BYTES {
            return Ok(Self { path, _directory: None });
        }
        #[cfg(target_os = "linux")]
        {
            use std::os::fd::AsRawFd;
            let open = File::open(directory)?;
            let path = PathBuf::from(format!("/proc/self/fd/{}/{name}", open.as_raw_fd()));
            Ok(Self { path, _directory: Some(open) })
        }
        #[cfg(not(target_os = "linux"))]
        {
            let len = path.as_os_str().len();
            let reason = format!("its path has {len} bytes, and a socket's at most {MOST_BYTES}");
            Err(io::Error::new(io::ErrorKind::InvalidFilename, reason))
        }
    }
}

/// What all systems allow.
const MOST_BYTES: usize = 100;
