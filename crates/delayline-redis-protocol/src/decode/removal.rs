//! The reply to the removal of a queue.

use delayline_core::Error;

use super::head::results;
use super::reader::unreadable;
use crate::transport::Value;

/// The result of removing a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Removal {
    /// Whether the queue existed.
    pub existed: bool,
    /// Number of messages that it holds, in any state.
    pub messages: u64,
    /// Number of results of acks that it keeps.
    pub results: u64,
    /// Number of ids that are throttled.
    pub throttled: u64,
}

impl Removal {
    /// Returns `true` if the queue was removed: it existed and held nothing.
    #[must_use]
    pub const fn is_removed(&self) -> bool {
        self.existed && self.messages == 0 && self.results == 0 && self.throttled == 0
    }
}

pub(crate) fn decode_removal(value: Value) -> Result<Removal, Error> {
    let (mut reply, ..) = results(value)?;
    let removal = Removal {
        existed: reply.flag()?,
        messages: reply.count()?,
        results: reply.count()?,
        throttled: reply.count()?,
    };
    match reply.0.next() {
        None => Ok(removal),
        Some(_) => Err(unreadable("the reply is too long")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_reply_of_the_right_form_is_read() {
        let removal = |numbers: &[i64]| {
            decode_removal(Value::Array(numbers.iter().copied().map(Value::Int).collect()))
        };
        let removed = Removal { existed: true, ..Removal::default() };
        assert_eq!(removal(&[0, 5, 7, 1, 0, 0, 0]).unwrap(), removed);
        assert!(removed.is_removed() && !Removal::default().is_removed());
        let held = removal(&[0, 5, 7, 1, 1, 2, 3]).unwrap();
        assert_eq!((held.messages, held.results, held.throttled), (1, 2, 3));
        assert!(!held.is_removed());
        for wrong in
            [&[0, 5, 7, 1, 0, 0][..], &[0, 5, 7, 1, 0, 0, 0, 0], &[0, 5, 7, 1, -1, 0, 0], &[]]
        {
            assert!(removal(wrong).is_err(), "{wrong:?}");
        }
        assert!(decode_removal(Value::Nil).is_err());
    }
}
