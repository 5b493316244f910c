//! A directory of the file system, locked for one process.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use super::{Disk, DiskFile, Readable, Space};
use crate::OpenError;
use crate::names::is_ours;

/// The name of the lock file. It also marks a directory as ours.
pub(crate) const LOCK: &str = "delayline.lock";

/// How the names of the sockets of commands begin.
const SOCKET: &str = "delayline.sock";

/// The line of the lock file: its purpose, and the process that holds it.
const LOCK_HEAD: &str = "delayline queues, in use by process ";

/// A locked directory.
#[derive(Debug)]
pub(crate) struct RealDisk {
    path: PathBuf,
    /// Opened to sync the names, and locked as well, in case a user removes the lock file. On
    /// systems that cannot open a directory, there is nothing to sync.
    directory: Option<File>,
    /// Held as long as the directory is in use.
    lock: File,
}

impl RealDisk {
    /// Creates the directory if there is none, and locks it.
    pub(crate) fn open(path: &Path) -> Result<Self, OpenError> {
        let failed = |what: &'static str| {
            let path = path.to_owned();
            move |source: io::Error| OpenError::Io { path, what, source }
        };
        create(path).map_err(failed("create the directory"))?;
        let path = &path.canonicalize().map_err(failed("find the directory"))?;
        refuse_network(path)?;
        refuse_foreign(path)?;
        #[cfg(unix)]
        if !path.join(LOCK).exists() {
            sync_parents(path).map_err(failed("sync the name of the directory"))?;
        }
        let directory = if cfg!(unix) {
            Some(File::open(path).map_err(failed("open the directory"))?)
        } else {
            None
        };
        let lock = match new_file(&path.join(LOCK), directory.as_ref()) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                File::options().read(true).write(true).open(path.join(LOCK))
            }
            result => result,
        };
        let mut lock = lock.map_err(failed("open the lock file"))?;
        for file in [Some(&lock), directory.as_ref()].into_iter().flatten() {
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => {
                    let holder = holder(&lock);
                    return Err(OpenError::InUse { path: path.clone(), holder });
                }
                Err(TryLockError::Error(source)) => return Err(failed("lock")(source)),
            }
        }
        let name = |lock: &mut File| {
            lock.set_len(0)?;
            lock.seek(SeekFrom::Start(0))?;
            writeln!(lock, "{LOCK_HEAD}{}", std::process::id())
        };
        // Only who holds it is lost if the disk is full.
        match name(&mut lock) {
            Err(error) if super::is_full(&error) => {}
            result => result.map_err(failed("write the lock file"))?,
        }
        Ok(Self { path: path.clone(), directory, lock })
    }
}

/// Closing the file would leave the lock to a process that is being started at this moment: until
/// it executes its program, it has all open files of this one.
impl Drop for RealDisk {
    fn drop(&mut self) {
        self.unlock();
    }
}

/// Creates the directory, for this user only: messages may be confidential.
fn create(path: &Path) -> io::Result<()> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    let mut builder = DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    match builder.create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        result => result,
    }
}

/// Makes the name of a new directory durable, and those of the directories above it, which may be
/// new as well.
#[cfg(unix)]
pub(crate) fn sync_parents(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::MetadataExt as _;
    let device = fs::metadata(path)?.dev();
    for parent in path.ancestors().skip(1) {
        // One that this user may not read has not become new here.
        let Ok(parent) = File::open(parent) else { break };
        if parent.metadata()?.dev() != device {
            break;
        }
        parent.sync_all()?;
    }
    Ok(())
}

/// Creates a file that only the owner of the directory may read: if root creates it, the user whose
/// service has the directory. It does not follow a link with this name.
fn new_file(path: &Path, directory: Option<&File>) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let file = options.open(path)?;
    #[cfg(unix)]
    if let Some(directory) = directory {
        use std::os::unix::fs::{MetadataExt as _, fchown};
        let (own, theirs) = (file.metadata()?, directory.metadata()?);
        // Another user than root cannot give files away, and keeps them; so does root in a
        // container without this capability.
        if own.uid() == 0
            && theirs.uid() != 0
            && let Err(error) = fchown(&file, Some(theirs.uid()), Some(theirs.gid()))
        {
            tracing::debug!(%error, "a new file of the directory still belongs to root");
        }
    }
    #[cfg(not(unix))]
    let _ = directory;
    Ok(file)
}

/// Returns the process that the lock file names.
fn holder(lock: &File) -> Option<String> {
    let mut text = String::new();
    lock.take(200).read_to_string(&mut text).ok()?;
    holder_in(&text)
}

/// Returns the process that the text of a lock file names. It is a number: another program's file
/// may have any text.
pub(crate) fn holder_in(text: &str) -> Option<String> {
    let holder = text.trim_end().strip_prefix(LOCK_HEAD)?;
    let is_number = !holder.is_empty() && holder.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| holder.to_owned())
}

/// Refuses a directory that has files, but not ours.
fn refuse_foreign(path: &Path) -> Result<(), OpenError> {
    let failed = |source| OpenError::Io { path: path.to_owned(), what: "list", source };
    let mut foreign = None;
    for entry in fs::read_dir(path).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name().to_string_lossy().into_owned();
        if name == LOCK {
            return Ok(());
        }
        if !is_ours(&name) && name != "lost+found" && !name.starts_with(SOCKET) {
            foreign = Some(name);
        }
    }
    match foreign {
        None => Ok(()),
        Some(file) => Err(OpenError::Foreign { path: path.to_owned(), file }),
    }
}

/// Refuses network file systems where they can be recognised: their locks and syncs promise less.
#[cfg(target_os = "linux")]
fn refuse_network(path: &Path) -> Result<(), OpenError> {
    const NFS: i64 = 0x6969;
    const CIFS: i64 = 0xff53_4d42;
    const SMB2: i64 = 0xfe53_4d42;
    const CEPH: i64 = 0x00c3_6400;
    const V9FS: i64 = 0x0102_1997;
    let kind = rustix::fs::statfs(path)
        .map_err(|error| OpenError::Io {
            path: path.to_owned(),
            what: "examine the file system",
            source: error.into(),
        })?
        .f_type;
    #[allow(clippy::useless_conversion, reason = "the type differs between architectures")]
    let kind = i64::from(kind) & 0xffff_ffff;
    let name = match kind {
        NFS => "NFS",
        CIFS | SMB2 => "SMB",
        CEPH => "Ceph",
        V9FS => "9P",
        _ => return Ok(()),
    };
    Err(OpenError::Network { path: path.to_owned(), name })
}

#[cfg(not(target_os = "linux"))]
fn refuse_network(_: &Path) -> Result<(), OpenError> {
    Ok(())
}

/// A path that is not locked.
impl Readable for PathBuf {
    fn list(&self) -> io::Result<Vec<String>> {
        let names = fs::read_dir(self)?;
        names.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
    }

    fn read(&self, name: &str) -> io::Result<Box<dyn Read + Send>> {
        Ok(Box::new(File::open(self.join(name))?))
    }
}

impl Readable for RealDisk {
    fn list(&self) -> io::Result<Vec<String>> {
        self.path.list()
    }

    fn read(&self, name: &str) -> io::Result<Box<dyn Read + Send>> {
        self.path.read(name)
    }
}

impl Disk for RealDisk {
    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        let path = self.path.join(name);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(Box::new(new_file(&path, self.directory.as_ref())?)),
        }
    }

    fn edit(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        Ok(Box::new(OpenOptions::new().write(true).open(self.path.join(name))?))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.path.join(from), self.path.join(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.path.join(name))
    }

    fn sync_names(&self) -> io::Result<()> {
        self.directory.as_ref().map_or(Ok(()), File::sync_all)
    }

    fn space(&self) -> io::Result<Space> {
        #[cfg(unix)]
        {
            let stat = rustix::fs::statvfs(&self.path)?;
            let bytes = |blocks: u64| blocks.saturating_mul(stat.f_frsize);
            Ok(Space { free: bytes(stat.f_bavail), total: bytes(stat.f_blocks) })
        }
        // Unknown, so that only the disk itself says that it is full.
        #[cfg(not(unix))]
        Ok(Space { free: u64::MAX, total: u64::MAX })
    }

    fn unlock(&self) {
        for file in [Some(&self.lock), self.directory.as_ref()].into_iter().flatten() {
            // Fails where locks are not supported: then none was taken.
            let _ = file.unlock();
        }
    }
}

impl DiskFile for File {
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.seek(SeekFrom::Start(offset))?;
        self.write_all(bytes)
    }

    fn reserve(&mut self, len: u64) -> io::Result<()> {
        #[cfg(target_os = "linux")]
        {
            use rustix::fs::{FallocateFlags, fallocate};
            use rustix::io::{Errno, retry_on_intr};
            // A signal interrupts it on some file systems.
            match retry_on_intr(|| fallocate(&*self, FallocateFlags::empty(), 0, len)) {
                Err(Errno::OPNOTSUPP | Errno::NOSYS) => {}
                result => return Ok(result?),
            }
        }
        fill(self, len)
    }

    fn release(&mut self, offset: u64) -> io::Result<()> {
        #[cfg(target_os = "linux")]
        {
            use rustix::fs::{FallocateFlags, fallocate};
            use rustix::io::{Errno, retry_on_intr};
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            let len = self.metadata()?.len().saturating_sub(offset);
            if len > 0 {
                match retry_on_intr(|| fallocate(&*self, flags, offset, len)) {
                    Err(Errno::OPNOTSUPP | Errno::NOSYS) => {}
                    result => result?,
                }
            }
        }
        #[cfg(not(target_os = "linux"))]
        let _ = offset;
        Ok(())
    }

    fn truncate(&mut self, len: u64) -> io::Result<()> {
        self.set_len(len)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.sync_data()
    }
}

/// Lets a file grow to `len` bytes by writing zeros.
fn fill(file: &mut File, len: u64) -> io::Result<()> {
    let mut end = file.metadata()?.len();
    let zeros = [0; 64 * 1024];
    while end < len {
        let step = usize::try_from(len - end).map_or(zeros.len(), |left| left.min(zeros.len()));
        file.write_at(end, &zeros[..step])?;
        end += u64::try_from(step).unwrap_or(u64::MAX);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A segment's length is in its frames: a shorter file would be taken for a damaged one.
    #[test]
    fn a_file_that_cannot_be_reserved_is_filled_with_zeros() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_at(0, b"frames").unwrap();
        for (len, expected) in [(6, 6), (70_000, 70_000), (200_000, 200_000), (100, 200_000)] {
            fill(&mut file, len).unwrap();
            let mut bytes = Vec::new();
            file.rewind().unwrap();
            file.read_to_end(&mut bytes).unwrap();
            assert_eq!(bytes.len(), expected);
            assert!(bytes.starts_with(b"frames") && bytes[6..].iter().all(|byte| *byte == 0));
        }
    }
}
