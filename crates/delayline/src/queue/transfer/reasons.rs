//! Why messages stay.

pub(super) const SET_ASIDE: &str =
    "it waits for messages that are still in the old queue, and is set aside";
pub(super) const AWAITED: &str = "a message that waits for it is still in the old queue";
pub(super) const HAS_CHECKPOINT: &str = "it has a checkpoint, which only a worker can store";
pub(super) const IS_MEMBER: &str = "a message of another queue waits for it";
pub(super) const OTHER_SERVER: &str = "it waits for messages that the new queue cannot reach";
pub(super) const TOO_LARGE: &str =
    "it is larger than a message may be, with the names that it waits for";
pub(super) const OTHER_CONTENT: &str = "the new queue knows its id with different content";
pub(super) const PURGED: &str = "the new queue knows its id as deleted";
