//! The result of sending a message.

use delayline_core::{Enqueued, MessageId, Status};

/// The result of sending a message.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "`is_accepted` returns whether the message will be delivered"]
#[non_exhaustive]
pub struct Sent {
    /// The message's id.
    pub id: MessageId,
    /// What the queue replied.
    pub outcome: Enqueued,
    /// Whether the message was sent again because a reply was lost or not confirmed in time. Then
    /// [`Enqueued::Duplicate`] may refer to this very message.
    pub repeated: bool,
}

impl Sent {
    /// Returns `true` if the message will be or has been delivered. It was created, or it updated
    /// or follows the message with its id. Or a message with this id and content is waiting,
    /// leased, acked or relayed ([G15](crate::guarantees#g15)). Returns `false` for a conflict, for
    /// a throttled message, and for a duplicate of a dead, cancelled or purged message, which will
    /// not be delivered.
    #[must_use]
    pub const fn is_accepted(&self) -> bool {
        use Status::{Acked, Leased, Ready, Relayed, Scheduled};
        match self.outcome {
            Enqueued::Duplicate { status } => {
                matches!(status, Scheduled | Ready | Leased | Acked | Relayed)
            }
            outcome => matches!(
                outcome,
                Enqueued::Created { .. } | Enqueued::Updated { .. } | Enqueued::Following { .. }
            ),
        }
    }

    /// Returns `true` if the queue knows this id with different content
    /// ([G15](crate::guarantees#g15)).
    #[must_use]
    pub const fn is_conflict(&self) -> bool {
        matches!(self.outcome, Enqueued::Conflict { .. })
    }
}
