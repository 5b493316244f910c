//! Hand-offs: settlements that carry messages or a result.

use crate::limits::{MAX_BATCH_BYTES, MAX_FOLLOW_UPS};
use crate::validate::batch;
use crate::{Known, NewMessage, NewResult, Outcome, Settlement, Violation};

/// The end of one lease, with messages to send, a result, or both. They are stored in the same step
/// if the settlement ends the lease, and otherwise not at all (G31, G32).
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(deny_unknown_fields)
)]
#[non_exhaustive]
pub struct HandOff {
    /// The end of the lease, by any outcome.
    pub settlement: Settlement,
    /// The messages to send, at most [`MAX_FOLLOW_UPS`]. None may be an update
    /// ([`Known::Update`](crate::Known::Update)) or have the id of a settled message.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "crate::form::is_default"))]
    pub messages: Vec<NewMessage>,
    /// The result that the queue keeps for waiting callers. Only an [`Outcome::Ack`] may have one.
    /// A hand-off without messages must have one.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub result: Option<NewResult>,
}

impl HandOff {
    /// Creates a hand-off of a settlement and messages.
    #[must_use]
    pub const fn new(settlement: Settlement, messages: Vec<NewMessage>) -> Self {
        Self { settlement, messages, result: None }
    }

    /// Adds a result, which the queue keeps unless its results would exceed
    /// [`MAX_RESULTS_BYTES`](crate::limits::MAX_RESULTS_BYTES).
    #[must_use]
    pub fn with_result(self, result: impl Into<Option<NewResult>>) -> Self {
        Self { result: result.into(), ..self }
    }

    /// Returns `true` if it has neither messages nor a result.
    pub(crate) const fn is_plain(&self) -> bool {
        self.messages.is_empty() && self.result.is_none()
    }
}

pub(crate) fn validate(items: &[HandOff]) -> Result<(), Violation> {
    const WHAT: &str = "the hand-off";
    let messages = || items.iter().flat_map(|item| &item.messages);
    let settled = items.iter().map(|item| &item.settlement.id);
    batch(WHAT, settled.chain(messages().map(|message| &message.id)))?;
    for HandOff { settlement, messages, result } in items {
        settlement.validate()?;
        match result {
            Some(result) if settlement.outcome == Outcome::Ack => result.validate()?,
            Some(_) => {
                return Err(Violation::Malformed {
                    what: "the result of",
                    value: settlement.id.to_string(),
                    reason: "only an ack has a result".to_owned(),
                });
            }
            None if messages.is_empty() => {
                return Err(Violation::Empty { what: "the list of a hand-off's messages" });
            }
            None => {}
        }
        Violation::at_most(
            "the list of a hand-off's messages",
            "items",
            messages.len(),
            MAX_FOLLOW_UPS,
        )?;
        messages.iter().try_for_each(validate_follow_up)?;
    }
    let results = items.iter().filter_map(|item| item.result.as_ref());
    let contents = messages().map(NewMessage::content_bytes);
    let contents = contents.chain(results.map(|result| result.bytes.len())).sum();
    Violation::at_most(WHAT, "bytes", contents, MAX_BATCH_BYTES)?;
    // Saves count apart: a program that makes the messages need not know the unsaved ones.
    let saves = items.iter().map(|item| item.settlement.save_bytes()).sum();
    Violation::at_most("the list of a hand-off's saves", "bytes", saves, MAX_BATCH_BYTES)
}

fn validate_follow_up(message: &NewMessage) -> Result<(), Violation> {
    let reason = if message.known != Known::Refuse {
        "it must not be an update; send an update separately"
    } else if message.throttle.is_some() {
        "it must not have throttle; send it separately"
    } else {
        return message.validate();
    };
    Err(Violation::Malformed {
        what: "a message of a hand-off",
        value: message.id.to_string(),
        reason: reason.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::{MAX_BATCH, MAX_CHECKPOINT_BYTES, MAX_PAYLOAD_BYTES};
    use crate::{ClaimId, Lease, MessageId, Millis, Save, Schedule};

    fn id(text: String) -> MessageId {
        MessageId::try_from(text).unwrap()
    }

    fn settlement(id: MessageId, outcome: Outcome) -> Settlement {
        let lease = Lease { claim_id: ClaimId::from_bytes([0; ClaimId::BYTES]), epoch: 1 };
        let save = Save::new(1).checkpoint(bytes::Bytes::from(vec![0; MAX_CHECKPOINT_BYTES]));
        Settlement::new(id, lease, outcome).save(save)
    }

    #[test]
    fn saves_take_no_room_from_messages() {
        let large = |n: usize| NewMessage::new(id(format!("next-{n}")), vec![0; MAX_PAYLOAD_BYTES]);
        let messages = (0..MAX_BATCH_BYTES / MAX_PAYLOAD_BYTES).map(large);
        let snooze = Outcome::Snooze { schedule: Schedule::NOW };
        let full = HandOff::new(settlement(id("a".to_owned()), snooze), messages.collect());
        assert_eq!(validate(&[full]), Ok(()));
        // Saves alone have the same limit.
        let item = |n: usize| {
            let settlement = settlement(id(n.to_string()), Outcome::Ack);
            let result = NewResult::new("", Millis::saturating(1));
            HandOff::new(settlement, Vec::new()).with_result(result)
        };
        let fitting = MAX_BATCH_BYTES / MAX_CHECKPOINT_BYTES;
        assert!(fitting < MAX_BATCH);
        let items: Vec<_> = (0..=fitting).map(item).collect();
        assert_eq!(validate(&items[1..]), Ok(()));
        let refused = validate(&items).unwrap_err().to_string();
        assert!(refused.contains("saves"), "{refused}");
    }
}
