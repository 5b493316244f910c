//! A disk in memory that can fail any call, and that keeps any part of its unsynced data when its
//! power fails. After a sync that has failed, it shows changes that no later sync makes durable.

use std::collections::BTreeMap;
use std::io::{self, Cursor, Read};
use std::sync::{Arc, Mutex, MutexGuard};

use fastrand::Rng;

use super::{Disk, DiskFile, Readable, Space};

/// A disk. Clones share it.
#[derive(Clone, Default)]
pub(crate) struct SimulatedDisk(Arc<Mutex<Platter>>);

#[derive(Clone, Default)]
struct Platter {
    files: Vec<Inode>,
    /// The names, as programs see them and as they are durable.
    names: BTreeMap<String, usize>,
    durable_names: BTreeMap<String, usize>,
    /// Changes of names since the last sync, in order: the new meaning of each.
    renamed: Vec<(String, Option<usize>)>,
    calls: usize,
    fault: Option<(usize, Fault)>,
    /// The name of the call that the fault has met.
    struck: Option<&'static str>,
    /// No call reaches a disk without power.
    dead: bool,
    /// The bytes that all files may have together.
    capacity: Option<u64>,
    /// New files whose names begin like this are refused, with this error of the system.
    refused: Option<(&'static str, i32)>,
    /// Defects of the disk's user that tests seed.
    pub(crate) ignores: Ignored,
}

#[derive(Clone, Default)]
struct Inode {
    /// What programs read.
    cached: Vec<u8>,
    durable: Vec<u8>,
    /// Changes since the last sync, in order.
    unsynced: Vec<Change>,
    /// Bytes of the file that have no room on the disk.
    released: usize,
}

/// A change of a file.
#[derive(Clone)]
enum Change {
    Write(usize, Vec<u8>),
    Size(usize),
}

/// What happens at a call that changes something. A sync that fails is the last one to try: the
/// system then takes the changes before it for synced.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    /// It has no effect and fails, once.
    Error(io::ErrorKind),
    /// It writes half, or syncs any part, and fails.
    Short,
    /// It is the last one: the power fails after it.
    PowerAfter,
}

/// Calls that do nothing, as if the program had forgotten them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ignored {
    pub(crate) syncs: bool,
    pub(crate) directory_syncs: bool,
}

/// The unsynced data that a crash keeps.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Keep {
    /// Any part: of each write any bytes, any size, any names.
    Any(u64),
    /// All names and sizes, and this many bytes of the writes of each file, in order.
    Bytes(usize),
    /// All: the program was killed, the machine continues. Unsynced data is still not synced.
    Everything,
}

impl SimulatedDisk {
    pub(crate) fn with_fault(self, call: usize, fault: Fault) -> Self {
        self.platter().fault = Some((call, fault));
        self
    }

    pub(crate) fn ignoring(self, ignores: Ignored) -> Self {
        self.platter().ignores = ignores;
        self
    }

    pub(crate) fn set_capacity(&self, bytes: u64) {
        self.platter().capacity = Some(bytes);
    }

    /// Takes all the room that is left, as another program may.
    pub(crate) fn fill_up(&self) {
        let mut platter = self.platter();
        platter.capacity = Some(u64::try_from(platter.used()).unwrap());
    }

    /// Refuses new files of such names with an error of the system.
    #[cfg(unix)]
    pub(crate) fn refuse(&self, prefix: &'static str, errno: i32) {
        self.platter().refused = Some((prefix, errno));
    }

    /// Lets all calls wait until the result is dropped.
    pub(crate) fn hold(&self) -> impl Sized + '_ {
        self.platter()
    }

    /// Returns the number of calls that change something.
    pub(crate) fn calls(&self) -> usize {
        self.platter().calls
    }

    /// Cuts the power, and returns the disk as it is when the power is back.
    pub(crate) fn crash(&self, keep: Keep) -> Self {
        let mut platter = self.platter();
        platter.dead = true;
        if let Keep::Everything = keep {
            let killed =
                Platter { calls: 0, fault: None, struck: None, dead: false, ..platter.clone() };
            return Self(Arc::new(Mutex::new(killed)));
        }
        let mut rng = Rng::with_seed(match keep {
            Keep::Any(seed) => seed,
            Keep::Bytes(_) | Keep::Everything => 0,
        });
        let files = platter.files.iter().map(|file| Inode::synced(file.after(keep, &mut rng)));
        let files = files.collect();
        let mut names = platter.durable_names.clone();
        for (name, meaning) in &platter.renamed {
            if matches!(keep, Keep::Any(_)) && rng.bool() {
                continue;
            }
            set(&mut names, name, *meaning);
        }
        let capacity = platter.capacity;
        drop(platter);
        let durable_names = names.clone();
        Self(Arc::new(Mutex::new(Platter {
            files,
            names,
            durable_names,
            capacity,
            ..Platter::default()
        })))
    }

    /// Returns the name of the call that the fault has met, if it has.
    pub(crate) fn struck(&self) -> Option<&'static str> {
        self.platter().struck
    }

    /// Returns the bytes of a file.
    pub(crate) fn bytes(&self, name: &str) -> Vec<u8> {
        let platter = self.platter();
        platter.files[platter.names[name]].cached.clone()
    }

    /// Replaces the bytes of a file, durably.
    pub(crate) fn put(&self, name: &str, bytes: Vec<u8>) {
        let mut platter = self.platter();
        let file = platter.files.len();
        platter.files.push(Inode::synced(bytes));
        platter.names.insert(name.to_owned(), file);
        platter.durable_names.insert(name.to_owned(), file);
    }

    /// The number of bytes written to a log since its last sync, of the log with the most.
    pub(crate) fn unsynced_bytes(&self) -> usize {
        let platter = self.platter();
        let logs = platter.names.iter().filter(|(name, _)| name.starts_with("log-"));
        let written = logs.map(|(_, &file)| platter.files[file].writes());
        written.map(|writes| writes.map(|(_, bytes)| bytes.len()).sum()).max().unwrap_or(0)
    }

    fn platter(&self) -> MutexGuard<'_, Platter> {
        self.0.lock().unwrap()
    }
}

impl Inode {
    /// Returns the bytes that it takes of the disk.
    const fn room(&self) -> usize {
        self.cached.len().saturating_sub(self.released)
    }

    fn synced(bytes: Vec<u8>) -> Self {
        Self { cached: bytes.clone(), durable: bytes, ..Self::default() }
    }

    fn after(&self, keep: Keep, rng: &mut Rng) -> Vec<u8> {
        let mut bytes = self.durable.clone();
        match keep {
            Keep::Everything => bytes.clone_from(&self.cached),
            Keep::Bytes(mut left) => {
                bytes.resize(self.cached.len(), 0);
                for (offset, written) in self.writes() {
                    let kept = &written[..written.len().min(left)];
                    left -= kept.len();
                    let end = (offset + kept.len()).min(bytes.len());
                    let kept = &kept[..end.saturating_sub(offset).min(kept.len())];
                    bytes[end - kept.len()..end].copy_from_slice(kept);
                }
            }
            Keep::Any(_) => {
                let (least, most) = (self.durable.len(), self.cached.len());
                let size = match rng.u8(..3) {
                    0 => least,
                    1 => most,
                    _ => rng.usize(least.min(most)..=least.max(most)),
                };
                bytes.resize(size, 0);
                for (offset, written) in self.writes() {
                    let kept = match rng.u8(..4) {
                        0 => 0..0,
                        1 => 0..written.len(),
                        2 => 0..rng.usize(..=written.len()),
                        _ => rng.usize(..=written.len())..written.len(),
                    };
                    for index in kept {
                        if let Some(byte) = bytes.get_mut(offset + index) {
                            *byte = written[index];
                        }
                    }
                }
            }
        }
        bytes
    }

    fn writes(&self) -> impl Iterator<Item = (usize, &[u8])> {
        self.unsynced.iter().filter_map(|change| match change {
            Change::Write(offset, written) => Some((*offset, &written[..])),
            Change::Size(_) => None,
        })
    }

    fn change(&mut self, change: Change) {
        change.apply(&mut self.cached);
        self.unsynced.push(change);
    }
}

impl Change {
    fn apply(&self, bytes: &mut Vec<u8>) {
        match self {
            Self::Write(offset, written) => {
                let end = offset + written.len();
                bytes.resize(bytes.len().max(end), 0);
                bytes[*offset..end].copy_from_slice(written);
            }
            Self::Size(len) => bytes.resize(*len, 0),
        }
    }
}

impl Platter {
    /// Counts a call that changes something. Returns whether it is to be done by half.
    fn call(&mut self, what: &'static str) -> io::Result<bool> {
        if self.dead {
            return Err(io::Error::other("there is no power"));
        }
        self.calls += 1;
        match self.fault {
            Some((at, fault)) if at == self.calls => {
                self.struck = Some(what);
                match fault {
                    Fault::Error(kind) => Err(kind.into()),
                    Fault::Short => Ok(true),
                    Fault::PowerAfter => {
                        self.dead = true;
                        Ok(false)
                    }
                }
            }
            _ => Ok(false),
        }
    }

    fn room(&self, more: usize) -> io::Result<()> {
        let used = self.used();
        match self.capacity {
            Some(most) if u64::try_from(used + more).unwrap() > most => {
                Err(io::ErrorKind::StorageFull.into())
            }
            _ => Ok(()),
        }
    }

    fn used(&self) -> usize {
        self.names.values().map(|file| self.files[*file].room()).sum()
    }

    fn name(&mut self, name: &str, meaning: Option<usize>) {
        set(&mut self.names, name, meaning);
        self.renamed.push((name.to_owned(), meaning));
    }

    /// Counts a sync. Returns which of the changes before it reach the disk, and its result.
    fn sync(&mut self, what: &'static str) -> io::Result<(Reached, io::Result<()>)> {
        let has_power = !self.dead;
        match self.call(what) {
            Ok(false) => Ok((Reached::All, Ok(()))),
            Ok(true) => {
                let rng = Rng::with_seed(u64::try_from(self.calls).unwrap());
                Ok((Reached::Any(rng), Err(io::Error::other("a part was not synced"))))
            }
            Err(error) if has_power => Ok((Reached::Nothing, Err(error))),
            Err(error) => Err(error),
        }
    }

    fn find(&self, name: &str) -> io::Result<usize> {
        self.names.get(name).copied().ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

/// The changes before a sync that reach the disk.
enum Reached {
    All,
    Any(Rng),
    Nothing,
}

fn set(names: &mut BTreeMap<String, usize>, name: &str, meaning: Option<usize>) {
    match meaning {
        Some(file) => names.insert(name.to_owned(), file),
        None => names.remove(name),
    };
}

impl Readable for SimulatedDisk {
    fn list(&self) -> io::Result<Vec<String>> {
        Ok(self.platter().names.keys().cloned().collect())
    }

    fn read(&self, name: &str) -> io::Result<Box<dyn Read + Send>> {
        let platter = self.platter();
        let file = platter.find(name)?;
        Ok(Box::new(Cursor::new(platter.files[file].cached.clone())))
    }
}

impl Disk for SimulatedDisk {
    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        let mut platter = self.platter();
        platter.call("create")?;
        if let Some((prefix, errno)) = platter.refused
            && name.starts_with(prefix)
        {
            return Err(io::Error::from_raw_os_error(errno));
        }
        let file = platter.files.len();
        platter.files.push(Inode::default());
        platter.name(name, Some(file));
        Ok(Box::new(SimulatedFile { disk: self.clone(), file }))
    }

    fn edit(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        let file = self.platter().find(name)?;
        Ok(Box::new(SimulatedFile { disk: self.clone(), file }))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut platter = self.platter();
        platter.call("rename")?;
        let file = platter.find(from)?;
        platter.name(to, Some(file));
        platter.name(from, None);
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut platter = self.platter();
        platter.call("remove")?;
        platter.find(name)?;
        platter.name(name, None);
        Ok(())
    }

    fn sync_names(&self) -> io::Result<()> {
        let mut platter = self.platter();
        let (mut reached, result) = platter.sync("sync_names")?;
        if !platter.ignores.directory_syncs {
            for (name, meaning) in std::mem::take(&mut platter.renamed) {
                if match &mut reached {
                    Reached::All => true,
                    Reached::Any(rng) => rng.bool(),
                    Reached::Nothing => false,
                } {
                    set(&mut platter.durable_names, &name, meaning);
                }
            }
        }
        result
    }

    fn space(&self) -> io::Result<Space> {
        let platter = self.platter();
        let used = u64::try_from(platter.used()).unwrap();
        let total = platter.capacity.unwrap_or(u64::MAX);
        Ok(Space { free: total.saturating_sub(used), total })
    }
}

struct SimulatedFile {
    disk: SimulatedDisk,
    file: usize,
}

impl DiskFile for SimulatedFile {
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let mut platter = self.disk.platter();
        let by_half = platter.call("write")?;
        let offset = usize::try_from(offset).unwrap();
        let more = (offset + bytes.len()).saturating_sub(platter.files[self.file].cached.len());
        platter.room(more)?;
        if by_half {
            let half = bytes[..bytes.len() / 2].to_vec();
            platter.files[self.file].change(Change::Write(offset, half));
            return Err(io::ErrorKind::WriteZero.into());
        }
        platter.files[self.file].change(Change::Write(offset, bytes.to_vec()));
        Ok(())
    }

    fn reserve(&mut self, len: u64) -> io::Result<()> {
        let mut platter = self.disk.platter();
        platter.call("reserve")?;
        let len = usize::try_from(len).unwrap();
        let more = len.saturating_sub(platter.files[self.file].cached.len());
        platter.room(more)?;
        if more > 0 {
            platter.files[self.file].change(Change::Size(len));
        }
        Ok(())
    }

    fn release(&mut self, offset: u64) -> io::Result<()> {
        let mut platter = self.disk.platter();
        platter.call("release")?;
        let file = &mut platter.files[self.file];
        let offset = usize::try_from(offset).unwrap();
        let zeros = vec![0; file.cached.len().saturating_sub(offset)];
        file.released = zeros.len();
        file.change(Change::Write(offset, zeros));
        Ok(())
    }

    fn truncate(&mut self, len: u64) -> io::Result<()> {
        let mut platter = self.disk.platter();
        platter.call("truncate")?;
        let file = &mut platter.files[self.file];
        file.change(Change::Size(usize::try_from(len).unwrap()));
        file.released = 0;
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        let mut platter = self.disk.platter();
        let (reached, result) = platter.sync("sync")?;
        if !platter.ignores.syncs {
            let file = &mut platter.files[self.file];
            match reached {
                Reached::All => file.unsynced.iter().for_each(|it| it.apply(&mut file.durable)),
                Reached::Any(mut rng) => file.durable = file.after(Keep::Any(0), &mut rng),
                Reached::Nothing => {}
            }
            file.unsynced.clear();
        }
        result
    }
}
