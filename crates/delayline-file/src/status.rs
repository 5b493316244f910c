//! The state of a directory, for operators.

use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use crate::Syncs;

/// The state of a directory: its files, free space and syncs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct DirectoryStatus {
    /// Number of stored queues.
    pub queues: u64,
    /// Number of segments of the log that no snapshot has replaced yet.
    pub segments: u64,
    /// Bytes of the operations in these segments.
    pub log_bytes: u64,
    /// Bytes of the latest snapshot; 0 if there is none.
    pub snapshot_bytes: u64,
    /// When this process finished its latest checkpoint. `None` before the first.
    pub last_checkpoint: Option<SystemTime>,
    /// Whether a checkpoint is running.
    pub checkpoint_running: bool,
    /// Free bytes on the disk.
    pub free_bytes: u64,
    /// Free bytes in the log, before it needs more of the disk.
    pub room_bytes: u64,
    /// Free bytes in the log that are reserved for operations that drain queues.
    pub reserve_bytes: u64,
    /// Whether the disk was recently full, so that messages are refused.
    pub full: bool,
    /// The reason, if the disk has failed and nothing is stored any more.
    pub failure: Option<String>,
    /// The duration of syncs.
    pub syncs: Syncs,
}
