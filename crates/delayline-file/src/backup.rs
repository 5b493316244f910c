//! Backups: a copy of a directory, also of one that a process is using.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use delayline_core::{Error, ErrorKind, Held, QueueName, Timestamp};

use crate::clock::Clock;
use crate::contents::Contents;
use crate::disk::{Readable, RealDisk, Volume};
use crate::replay::{Files, Recovered, recover};
use crate::{OpenError, names, snapshot};

/// A finished backup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Backup {
    /// Number of queues in it.
    pub queues: u64,
    /// Number of messages in it, in any state.
    pub messages: u64,
    /// Its size in bytes.
    pub bytes: u64,
}

/// Why no backup was made. Nothing was changed in the source, and the target does not exist.
///
/// Converts into an [`Error`]: [`ErrorKind::InUse`] if another backup writes the same target,
/// [`ErrorKind::DiskFull`] for a full disk, else [`ErrorKind::Storage`]. The first two can be
/// retried later.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BackupError {
    /// The source has no queues: it is empty, or no directory of queues.
    #[error("{} has no queues to back up", path.display())]
    Empty {
        /// The source.
        path: PathBuf,
    },
    /// The target exists.
    #[error("{} exists: a backup needs a new directory", path.display())]
    Exists {
        /// The target.
        path: PathBuf,
    },
    /// The target is in the source.
    #[error("{} is in the directory that is backed up: choose another place", path.display())]
    Inside {
        /// The target.
        path: PathBuf,
    },
    /// The source cannot be read, or is damaged.
    #[error("the queues cannot be read: {0}")]
    Source(#[source] OpenError),
    /// The target cannot be written.
    #[error("the backup cannot be written: {0}")]
    Target(#[source] OpenError),
    /// The target was written and has other contents: the memory or the disk is defective.
    #[error("the backup was read again and differs from the queues: check memory and disk")]
    Differs,
}

impl From<BackupError> for Error {
    fn from(error: BackupError) -> Self {
        let kind = match &error {
            BackupError::Target(OpenError::InUse { .. }) => ErrorKind::InUse,
            BackupError::Target(of_disk) if of_disk.is_disk_full() => ErrorKind::DiskFull,
            _ => ErrorKind::Storage,
        };
        let detail = error.to_string();
        Self::with_source(kind, detail, error)
    }
}

/// Copies the directory `from` to the new directory `to`, whether or not a process has `from` open.
/// That process is not involved, and its calls do not wait. The backup has every change that was
/// acknowledged before this call, and of later ones the first few or none, in their order.
///
/// The backup is a closed directory of the same queues. It appears under its name once it is
/// synced, and was read again and compared. Until then, it has the name `.NAME.delayline-backup`
/// in the same place. If the process is killed, such a directory stays; it can be removed, and the
/// next backup with the same name replaces it.
///
/// This blocks the thread, for seconds with a million messages, and holds all messages in memory.
/// The backup is written on a local disk.
///
/// # Errors
///
/// [`BackupError`]. `to` then does not exist, unless it existed before.
pub fn backup(from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<Backup, BackupError> {
    let (from, to) = (from.as_ref(), to.as_ref());
    let failed = |path: &Path, what: &'static str| {
        let path = path.to_owned();
        move |source| OpenError::Io { path, what, source }
    };
    if fs::symlink_metadata(to).is_ok() {
        return Err(BackupError::Exists { path: to.to_owned() });
    }
    let source = from.canonicalize().map_err(failed(from, "find the directory"));
    let source = source.map_err(BackupError::Source)?;
    // Directories above the target may be missing.
    let there = to.ancestors().skip(1).find_map(|above| match above.as_os_str().is_empty() {
        true => Path::new(".").canonicalize().ok(),
        false => above.canonicalize().ok(),
    });
    if there.is_some_and(|there| there.starts_with(&source)) {
        return Err(BackupError::Inside { path: to.to_owned() });
    }
    let unfinished = unfinished(to).map_err(BackupError::Target)?;
    let disk = RealDisk::open(&unfinished).map_err(BackupError::Target)?;
    let disk = Volume::new(disk);
    let copied = copy(&source, &source, &disk);
    // Elsewhere, a directory with open files cannot be renamed.
    let locked = cfg!(unix).then_some(disk);
    let made = copied.and_then(|backup| {
        finish(&unfinished, to).map_err(BackupError::Target)?;
        Ok(backup)
    });
    if made.is_err() {
        // Still locked, so that these are not the files of another backup.
        let _ = fs::remove_dir_all(&unfinished);
    }
    drop(locked);
    made
}

/// Copies the queues of `source`, which errors call `path`, to a directory of our own.
pub(crate) fn copy(
    path: &Path,
    source: &dyn Readable,
    target: &Volume,
) -> Result<Backup, BackupError> {
    let write = |source| OpenError::Io { path: "the backup".into(), what: "write", source };
    let failed = |error| BackupError::Target(write(error));
    // What a killed backup has left.
    for name in target.list().map_err(failed)? {
        if names::is_ours(&name) {
            target.remove(&name).map_err(failed)?;
        }
    }
    let mut contents = read(path, source)?;
    if contents.claims_lost {
        // The snapshot below does not tell the copy's first opening to do so.
        contents.skip_epochs(Clock::new(contents.clock).upper_bound());
    }
    let summary = Summary::of(&mut contents);
    let queues = contents.queues.iter().map(|(number, it)| (*number, &it.name, &it.state));
    let written = snapshot::write(target, FIRST, true, contents.clock, contents.next, queues);
    let bytes = written.map_err(failed)?;
    drop(contents);
    let mut written = recover(&**target).map_err(BackupError::Target)?;
    if Summary::of(&mut written.contents) != summary {
        return Err(BackupError::Differs);
    }
    let count = |len: usize| u64::try_from(len).unwrap_or(u64::MAX);
    let messages = summary.queues.values().map(|(_, held)| held.messages).sum();
    Ok(Backup { queues: count(summary.queues.len()), messages, bytes })
}

/// Reads a directory that another process may be changing.
///
/// An attempt can meet a change in the middle: a checkpoint has removed a file of the list, or a
/// frame was written after the bytes before it were read. The next attempt sees that change whole,
/// as files and frames are only added, and files removed once others replace them. So an error that
/// occurs twice is no such meeting.
fn read(path: &Path, source: &dyn Readable) -> Result<Contents, BackupError> {
    let mut before = None;
    loop {
        let error = match recover(source) {
            // A process that has opened the directory has a segment in it.
            Ok(Recovered { files: Files { snapshot: 0, segments, .. }, .. })
                if segments.is_empty() =>
            {
                BackupError::Empty { path: path.to_owned() }
            }
            Ok(recovered) => return Ok(recovered.contents),
            Err(error) => BackupError::Source(error),
        };
        let reason = error.to_string();
        if before.as_ref() == Some(&reason) {
            return Err(error);
        }
        before = Some(reason);
    }
}

/// Makes a written backup durable under its name.
fn finish(unfinished: &Path, to: &Path) -> Result<(), OpenError> {
    let failed = |what| {
        let path = to.to_owned();
        move |source| OpenError::Io { path, what, source }
    };
    fs::rename(unfinished, to).map_err(failed("rename the backup to"))?;
    #[cfg(unix)]
    if let Err(error) = to.canonicalize().and_then(|to| crate::disk::sync_parents(&to)) {
        let _ = fs::remove_dir_all(to);
        return Err(failed("sync the name of")(error));
    }
    Ok(())
}

/// What a copy must have in common with its source.
#[derive(PartialEq, Eq)]
struct Summary {
    next: u64,
    clock: Timestamp,
    /// The revision of each queue, and its contents.
    queues: BTreeMap<QueueName, (u64, Held)>,
}

impl Summary {
    fn of(contents: &mut Contents) -> Self {
        let Contents { queues, clock, next, claims_lost: _ } = contents;
        let (clock, next) = (*clock, *next);
        let queues = queues.values_mut().map(|queue| {
            let revision = Contents::revision(&mut queue.state);
            (queue.name.clone(), (revision, queue.state.held(clock)))
        });
        Self { next, clock, queues: queues.collect() }
    }
}

/// The name of a backup until it is finished.
fn unfinished(to: &Path) -> Result<PathBuf, OpenError> {
    let Some(name) = to.file_name() else {
        let source = std::io::ErrorKind::InvalidFilename.into();
        return Err(OpenError::Io { path: to.to_owned(), what: "name the backup", source });
    };
    let mut hidden = OsString::from(".");
    hidden.push(name);
    hidden.push(".delayline-backup");
    Ok(to.with_file_name(hidden))
}

/// The number of the snapshot: no segment is before it.
const FIRST: u64 = 1;
