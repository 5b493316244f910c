//! Hand-offs: settlements that carry messages.

use crate::limits::{MAX_BATCH_BYTES, MAX_FOLLOW_UPS};
use crate::op::batch;
use crate::{Enqueued, Known, NewMessage, Settled, Settlement, Violation};

/// The end of one lease, and messages that follow from it: they are created in the same step if the
/// settlement ends the lease, and otherwise not at all (G31).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HandOff {
    /// The end of the lease, by any outcome.
    pub settlement: Settlement,
    /// What follows: 1 to [`MAX_FOLLOW_UPS`] messages. None may be an update
    /// ([`Known::Update`](crate::Known::Update)) or have the id of a settled message.
    pub messages: Vec<NewMessage>,
}

impl HandOff {
    /// A settlement, and what follows from it.
    #[must_use]
    pub const fn new(settlement: Settlement, messages: Vec<NewMessage>) -> Self {
        Self { settlement, messages }
    }
}

/// The result of one hand-off.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HandedOff {
    /// The result of the settlement.
    pub settled: Settled,
    /// The result for each message, in order, if the settlement is [`Settled::Done`]; else none.
    /// [`Settled::AlreadyDone`] means that they were sent then. A message whose id is known is a
    /// duplicate or a conflict, and the settlement is done all the same.
    pub messages: Vec<Enqueued>,
}

impl HandedOff {
    /// The result of a settlement, and of each message if it is done.
    #[must_use]
    pub const fn new(settled: Settled, messages: Vec<Enqueued>) -> Self {
        Self { settled, messages }
    }
}

/// Of a settlement without messages.
impl From<Settled> for HandedOff {
    fn from(settled: Settled) -> Self {
        Self { settled, messages: Vec::new() }
    }
}

pub(crate) fn validate(items: &[HandOff]) -> Result<(), Violation> {
    const WHAT: &str = "the hand-off";
    let messages = || items.iter().flat_map(|item| &item.messages);
    let settled = items.iter().map(|item| &item.settlement.id);
    batch(WHAT, settled.chain(messages().map(|message| &message.id)))?;
    for HandOff { settlement, messages } in items {
        settlement.validate()?;
        if messages.is_empty() {
            return Err(Violation::Empty { what: "the messages of a hand-off" });
        }
        Violation::at_most("the messages of a hand-off", "items", messages.len(), MAX_FOLLOW_UPS)?;
        messages.iter().try_for_each(validate_follow_up)?;
    }
    let bytes = messages().map(NewMessage::content_bytes).sum();
    Violation::at_most(WHAT, "bytes", bytes, MAX_BATCH_BYTES)
}

fn validate_follow_up(message: &NewMessage) -> Result<(), Violation> {
    if message.known != Known::Refuse {
        return Err(Violation::Malformed {
            what: "a message of a hand-off",
            value: message.id.to_string(),
            reason: "it must not be an update; send an update by itself".to_owned(),
        });
    }
    message.validate()
}
