//! Backups on failing disks, and of directories that change meanwhile.

use std::io::{self, Cursor, ErrorKind, Read};
use std::path::Path;
use std::sync::Mutex;

use super::story::{SMALL, Story, open};
use crate::backup::{BackupError, copy};
use crate::disk::simulated::{Fault, Keep, SimulatedDisk};
use crate::disk::{Readable, Volume};
use crate::{Backup, OpenError, names};

fn to(source: &dyn Readable, target: &SimulatedDisk) -> Result<Backup, BackupError> {
    copy(Path::new("queues"), source, &Volume::new(target.clone()))
}

#[test]
fn a_backup_is_whole_or_fails_whatever_happens_to_its_disk() {
    let story = Story::new(12);
    let source = SimulatedDisk::default();
    let directory = open(&source, SMALL()).unwrap();
    assert_eq!(story.run(&directory, 0).0, story.len());
    let whole = SimulatedDisk::default();
    let copied = to(&source, &whole).unwrap();
    assert!(copied.queues == 3 && copied.messages > 3, "{copied:?}");
    story.check(&whole, story.len()).unwrap();
    for fault in [
        Fault::Error(ErrorKind::Other),
        Fault::Error(ErrorKind::StorageFull),
        Fault::Short,
        Fault::PowerAfter,
    ] {
        for call in 1..=whole.calls() + 1 {
            let disk = SimulatedDisk::default().with_fault(call, fault);
            let made = to(&source, &disk);
            let is_over = match fault {
                Fault::PowerAfter => call >= whole.calls(),
                // Only writes and syncs can be done by half.
                Fault::Short if [1, whole.calls() - 1].contains(&call) => true,
                _ => call > whole.calls(),
            };
            assert_eq!(made.is_ok(), is_over, "{fault:?} at {call}");
            if let Err(error) = &made {
                let is_full = matches!(fault, Fault::Error(ErrorKind::StorageFull));
                let error = delayline_core::Error::from(match error {
                    BackupError::Target(OpenError::Io { path, what, source }) => {
                        let (path, source) = (path.clone(), source.kind().into());
                        BackupError::Target(OpenError::Io { path, what, source })
                    }
                    other => panic!("{other}"),
                });
                assert_eq!(*error.kind() == delayline_core::ErrorKind::DiskFull, is_full);
            }
            for keep in [Keep::Any(7), Keep::Everything] {
                let left = disk.crash(keep);
                if made.is_ok() {
                    story.check(&left, story.len()).unwrap();
                }
                // What a failed one has left is replaced.
                assert_eq!(to(&source, &left).unwrap(), copied);
                story.check(&left, story.len()).unwrap();
            }
        }
    }
}

/// The names and bytes of files.
type Version = Vec<(String, Vec<u8>)>;

/// A directory whose files are different each time, until the last version stays.
struct Changing(Mutex<Vec<Version>>);

impl Readable for Changing {
    fn list(&self) -> io::Result<Vec<String>> {
        let mut versions = self.0.lock().unwrap();
        let names = versions[0].iter().map(|(name, _)| name.clone()).collect();
        if versions.len() > 1 {
            versions.remove(0);
        }
        Ok(names)
    }

    fn read(&self, name: &str) -> io::Result<Box<dyn Read + Send>> {
        let versions = self.0.lock().unwrap();
        let found = versions[0].iter().find(|(it, _)| it == name);
        let (_, bytes) = found.ok_or(ErrorKind::NotFound)?;
        Ok(Box::new(Cursor::new(bytes.clone())))
    }
}

#[test]
fn a_directory_that_changes_while_it_is_read_is_read_again_and_a_damaged_one_is_refused() {
    let (disk, story) = (SimulatedDisk::default(), Story::new(8));
    // One segment, so that all frames are in it.
    let options = SMALL().segment_bytes(1 << 20);
    let directory = open(&disk, options).unwrap();
    assert_eq!(story.run(&directory, 0).0, story.len());
    let (log, snapshot) = (names::segment(1), names::snapshot(2));
    let written = disk.bytes(&log);
    // Read before the first frames were written, except for the end.
    let mut overtaken = written.clone();
    overtaken[200..800].fill(0);
    let cut = written[..1_000].to_vec();
    drop(directory);
    let closed = vec![(snapshot.clone(), disk.bytes(&snapshot))];
    let version = |bytes: &Vec<u8>| vec![(log.clone(), bytes.clone())];
    for torn in [&overtaken, &cut] {
        let torn = || version(torn);
        // Listed, read, listed again: the file is whole, or a checkpoint has replaced it.
        for later in [version(&written), closed.clone()] {
            let changing = Changing(Mutex::new(vec![torn(), torn(), later]));
            let copied = SimulatedDisk::default();
            to(&changing, &copied).unwrap();
            story.check(&copied, story.len()).unwrap();
        }
        let damaged = Changing(Mutex::new(vec![torn()]));
        let error = to(&damaged, &SimulatedDisk::default()).unwrap_err();
        assert!(matches!(error, BackupError::Source(OpenError::Damaged { .. })), "{error}");
    }
    let empty = Changing(Mutex::new(vec![vec![("notes".to_owned(), Vec::new())]]));
    let error = to(&empty, &SimulatedDisk::default()).unwrap_err();
    assert!(matches!(error, BackupError::Empty { .. }), "{error}");
}
