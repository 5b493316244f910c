//! The durable embedded backend of Delayline: the state machine behind a log on the local disk.
//!
//! A [`Directory`] has many queues, each of which is a [`FileBackend`]. Every call returns once its
//! effect is synced to disk, so a crash of the process or the machine loses nothing that was
//! acknowledged. Workers may request claims that are only written: a power failure can undo them,
//! and then their messages are delivered again, with higher epochs.
//!
//! Its limits:
//!
//! - Only one process can open a directory at a time. Another one is refused, and the error names
//!   the first.
//! - There are no replicas: a lost disk is a lost queue.
//! - All messages are in memory, and twice during a checkpoint.
//! - Network file systems promise too little; they are refused where they can be recognized.
//! - A relay has no list or stream to go to: see [`FileBackend::take_relayed`].
//!
//! # Files
//!
//! `log-N` are segments of the log: the operations that have changed a queue, in order, each with a
//! checksum. `snapshot-N` has the state before the segment `N`. Once the segments are large, a
//! background thread writes the next snapshot from the files and removes the files that it
//! replaces. Closing or dropping a directory leaves only a snapshot. `begun-N` records that the
//! segment `N` was begun since, so that its loss is noticed. `delayline.lock` names the process
//! that has opened it. `delayline.sock` exists while that process [shares](Directory::share) the
//! queues with commands of the same user.
//!
//! [`backup`] copies a directory while it is in use. It reads the same files as a start, and writes
//! a snapshot elsewhere.
//!
//! A start drops torn frames at the end of the log, which a crash leaves: no call in them was
//! acknowledged. It refuses any other unreadable data, and reports its position. There is one
//! limit: if the very last batch before a crash was synced and is damaged later, it looks like a
//! torn one.

mod backend;
mod backup;
#[cfg(unix)]
mod beside;
mod checkpoint;
mod clock;
mod contents;
mod directory;
mod disk;
#[cfg(unix)]
mod endpoint;
mod error;
mod log;
mod names;
mod options;
#[doc(hidden)]
pub mod reading;
mod record;
mod replay;
mod segment;
mod snapshot;
#[cfg(unix)]
mod socket;
mod status;
mod syncs;
#[cfg(unix)]
mod wire;
mod writer;

#[cfg(test)]
mod tests;

pub use self::backend::FileBackend;
pub use self::backup::{Backup, BackupError, backup};
#[cfg(unix)]
pub use self::beside::{Beside, BesideBackend};
pub use self::directory::Directory;
pub use self::error::OpenError;
pub use self::options::Options;
pub use self::status::DirectoryStatus;
pub use self::syncs::Syncs;

/// Maximum number of queues of a directory.
pub const MAX_QUEUES: usize = 1_000;

/// Runs the example of the README as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
