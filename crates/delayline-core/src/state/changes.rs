//! What an operation does to a queue as a whole.

use crate::known::Tokens;
use crate::{HistoryPoint, Lease, MessageId, Status};

/// What an operation has changed so far.
#[derive(Default)]
pub(super) struct Changes {
    pub(super) any: bool,
    /// Whether messages of groups that are sent already due go to their lanes at once.
    pub(super) into_lanes: bool,
    /// What the queue was like before, if it is the minute's first change.
    pub(super) snapshot: Option<[HistoryPoint; 2]>,
    pub(super) finished: Vec<(MessageId, Finished)>,
    /// Whether more messages with a group are due than it moves to their lanes.
    pub(super) unsorted: bool,
    /// Finished messages whose ids are used again.
    pub(super) reused: Vec<MessageId>,
}

/// The record of a finished message.
#[derive(Clone, Debug)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(deny_unknown_fields)
)]
pub(super) struct Finished {
    pub(super) status: Status,
    pub(super) digest: u64,
    /// The lease whose settlement finished the message, if one did.
    pub(super) lease: Option<Lease>,
    /// The latest updates of the id.
    pub(super) tokens: Tokens,
}
