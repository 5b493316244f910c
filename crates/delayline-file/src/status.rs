//! What operators see of a directory.

use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use crate::Syncs;

/// The state of a directory: its files, its room and its syncs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
    /// When this process finished its latest checkpoint. `None` before the first.
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
    /// How long syncs took.
    pub syncs: Syncs,
}
