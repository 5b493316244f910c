//! Paths of unix sockets, whatever their length.

use std::fs::File;
use std::path::{Path, PathBuf};

use delayline_core::{Error, ErrorKind, Violation};

/// The path to connect to for a unix socket. It is valid as long as this value exists.
///
/// The system limits the length of a socket's address. On Linux, a longer path leads through the
/// open directory of the socket, which `/proc` shows.
#[derive(Debug)]
pub struct SocketPath {
    path: PathBuf,
    /// Keeps the path valid.
    _directory: Option<File>,
}

impl SocketPath {
    /// Returns a path to the same socket that is short enough to connect to: `path` itself if it
    /// has at most 100 bytes. The socket need not exist.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] if the path is too long and the system has no `/proc`, or if the name
    /// of the socket alone is too long. [`ErrorKind::Unreachable`] if the directory of a long path
    /// cannot be opened.
    pub fn of(path: &Path) -> Result<Self, Error> {
        if path.as_os_str().len() <= MAX_BYTES {
            return Ok(Self { path: path.to_owned(), _directory: None });
        }
        Self::through_directory(path)
    }

    #[cfg(target_os = "linux")]
    fn through_directory(path: &Path) -> Result<Self, Error> {
        use std::os::fd::AsRawFd;

        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(too_long(path));
        };
        // A relative path of one name has an empty parent.
        let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
        let directory = File::open(parent)
            .map_err(|error| Error::with_detail(ErrorKind::Unreachable, error.to_string()))?;
        let shown = PathBuf::from(format!("/proc/self/fd/{}", directory.as_raw_fd()));
        let short = shown.join(name);
        if short.as_os_str().len() > MAX_BYTES || !shown.exists() {
            return Err(too_long(path));
        }
        Ok(Self { path: short, _directory: Some(directory) })
    }

    #[cfg(not(target_os = "linux"))]
    fn through_directory(path: &Path) -> Result<Self, Error> {
        Err(too_long(path))
    }

    /// Returns the path.
    #[must_use]
    pub fn as_path(&self) -> &Path {
        &self.path
    }
}

fn too_long(path: &Path) -> Error {
    let reason = format!(
        "it has {} bytes, and the address of a unix socket at most {MAX_BYTES}; use a link with a \
         shorter path",
        path.as_os_str().len()
    );
    let (what, value) = ("the path of the unix socket", path.display().to_string());
    Error::new(ErrorKind::Invalid(Violation::Malformed { what, value, reason }))
}

/// What all systems allow: Linux has room for 108 bytes, other systems for 104.
const MAX_BYTES: usize = 100;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_too_long_for_any_path_is_refused_with_the_limit() {
        for name in [&b"x"[..], &[b'x'; 99], &[b'x'; 100]] {
            let path = PathBuf::from(String::from_utf8(name.to_vec()).unwrap());
            assert_eq!(SocketPath::of(&path).unwrap().as_path(), path);
        }
        for path in ["x".repeat(101), format!("/tmp/{}", "x".repeat(200))] {
            let error = SocketPath::of(Path::new(&path)).unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::Invalid(_)), "{error}");
            let text = error.to_string();
            assert!(text.contains(&path) && text.contains("at most 100"), "{text}");
        }
    }
}
