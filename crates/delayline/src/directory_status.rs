//! What operators see of a directory of queues.

use std::time::{Duration, SystemTime};

/// A copy of the directory of a `file:` URL: see [`Connect::backup`](crate::Connect::backup).
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

/// The state of the directory of a `file:` URL: its files, its room and its syncs. See
/// [`Connection::directory_status`](crate::Connection::directory_status).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DirectoryStatus {
    /// Number of queues that are stored.
    pub queues: u64,
    /// Number of segments of the log that no snapshot has replaced yet.
    pub segments: u64,
    /// Bytes of the operations in them.
    pub log_bytes: u64,
    /// Bytes of the latest snapshot; 0 if there is none.
    pub snapshot_bytes: u64,
    /// When the process that has opened the directory finished its latest checkpoint. `None` before
    /// the first.
    pub last_checkpoint: Option<SystemTime>,
    /// Whether a checkpoint is being made.
    pub checkpoint_running: bool,
    /// Bytes that other files can still take on this disk.
    pub free_bytes: u64,
    /// Bytes that the log can still take before it needs more of the disk.
    pub room_bytes: u64,
    /// Bytes of that room that are kept for operations that drain queues.
    pub reserve_bytes: u64,
    /// Whether the disk lately had no room, so that messages are refused.
    pub full: bool,
    /// Why nothing is stored any more, if the disk has failed.
    pub failure: Option<String>,
    /// How long syncs of the log took since the directory was opened.
    pub syncs: SyncTimes,
}

/// How long syncs of a log took.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SyncTimes {
    /// Number of syncs.
    pub count: u64,
    /// Duration of all syncs together.
    pub sum: Duration,
    /// A duration that half of the syncs did not exceed: the bound of a bucket.
    pub p50: Duration,
    /// A duration that 99 in 100 syncs did not exceed: the bound of a bucket.
    pub p99: Duration,
    /// Duration of the longest sync.
    pub max: Duration,
    /// Upper bounds, which the last bucket lacks, and the number of syncs that took at most that
    /// long: cumulative, as Prometheus expects it.
    pub buckets: Vec<(Option<Duration>, u64)>,
}
