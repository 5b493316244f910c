//! What messages are made of, and what a queue returns about them.

pub use delayline_core::{
    Attempt, AttemptOutcome, DeathReason, FinishedIds, Group, Headers, MessageInfo, MessageState,
    Priority, Progress, Status,
};

pub use crate::queue::{Message, Sendable, Sent};
