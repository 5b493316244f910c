//! The interface to a disk.

mod real;
#[cfg(test)]
pub(crate) mod simulated;

use std::io::{self, Read};
use std::ops::Deref;
use std::sync::{Mutex, PoisonError};

#[cfg(unix)]
pub(crate) use self::real::sync_parents;
pub(crate) use self::real::{RealDisk, holder_in};

/// The files of a directory.
pub(crate) trait Readable: Send + Sync + 'static {
    /// Returns the names of all files.
    fn list(&self) -> io::Result<Vec<String>>;

    /// Opens a file to read it from its beginning.
    fn read(&self, name: &str) -> io::Result<Box<dyn Read + Send>>;
}

/// One directory. Nothing in it is durable before it is synced: the bytes of a file by
/// [`DiskFile::sync`], its name by [`Volume::sync_directory`].
pub(crate) trait Disk: Readable {
    /// Creates a file, or empties the existing file of that name.
    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>>;

    /// Opens an existing file to change it.
    fn edit(&self, name: &str) -> io::Result<Box<dyn DiskFile>>;

    /// Renames a file. It replaces an existing file of the new name.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Removes a file.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Makes the names of files durable. Call [`Volume::sync_directory`] instead.
    fn sync_names(&self) -> io::Result<()>;

    /// Returns the room on the disk.
    fn space(&self) -> io::Result<Space>;

    /// Lets other processes open the directory.
    fn unlock(&self) {}
}

/// An open directory.
pub(crate) struct Volume {
    disk: Box<dyn Disk>,
    /// Whether a sync of the names has failed.
    failed: Mutex<bool>,
}

impl Volume {
    pub(crate) fn new(disk: impl Disk) -> Self {
        Self { disk: Box::new(disk), failed: Mutex::new(false) }
    }

    /// Makes the names of files durable. After a failure, all later calls fail, too. The system
    /// then takes the earlier names for synced, and these may be the names of another thread.
    pub(crate) fn sync_directory(&self) -> io::Result<()> {
        let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        if *failed {
            return Err(io::Error::other("an earlier sync of the directory has failed"));
        }
        let synced = self.disk.sync_names();
        *failed = synced.is_err();
        synced
    }
}

impl Deref for Volume {
    type Target = dyn Disk;

    fn deref(&self) -> &Self::Target {
        &*self.disk
    }
}

/// The room on a disk, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Space {
    /// The space that files can still take.
    pub(crate) free: u64,
    /// The size of the disk.
    pub(crate) total: u64,
}

/// A file that is written.
pub(crate) trait DiskFile: Send {
    /// Writes all of `bytes` at an offset.
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Lets the file grow to `len` bytes with zeros, and makes sure that the disk has room for
    /// them.
    fn reserve(&mut self, len: u64) -> io::Result<()>;

    /// Gives the space from `offset` on back to the disk. It then reads as zeros, and the length
    /// stays. Does nothing if the file system does not support it.
    fn release(&mut self, offset: u64) -> io::Result<()>;

    /// Cuts the file off after `len` bytes.
    fn truncate(&mut self, len: u64) -> io::Result<()>;

    /// Makes the bytes of the file durable.
    fn sync(&mut self) -> io::Result<()>;
}

/// Returns whether an error says that the disk, or the user's share of it, is full.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Returns whether an error is not the fault of the disk: the process or the system lacks memory or
/// file descriptors.
pub(crate) fn is_passing(error: &io::Error) -> bool {
    #[cfg(unix)]
    {
        use rustix::io::Errno;
        let passing = [Errno::MFILE, Errno::NFILE, Errno::NOMEM];
        passing.iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
    }
    #[cfg(not(unix))]
    {
        let _ = error;
        false
    }
}
