//! The effect of an update on the due time of a message.

use std::time::Duration;

use delayline_core::limits::MAX_DELAY_MS;
use delayline_core::{ErrorKind, Violation};

use crate::Error;
use crate::error::millis;

/// The effect of an update on the due time of a waiting message, for
/// [`Draft::update`](crate::Draft::update).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum UpdateDue {
    /// The due time does not change.
    Keep,
    /// The message is due at the time of the update.
    Set,
    /// The message is due at the time of the update, but not earlier than before, and at most
    /// `at_most` after it was first sent.
    Later {
        /// The maximum time between the first send and the due time: up to 100 years.
        at_most: Duration,
    },
}

impl TryFrom<UpdateDue> for delayline_core::UpdateDue {
    type Error = Violation;

    fn try_from(due: UpdateDue) -> Result<Self, Violation> {
        Ok(match due {
            UpdateDue::Keep => Self::Keep,
            UpdateDue::Set => Self::Set,
            UpdateDue::Later { at_most } => {
                let what = "at_most: the duration in ms";
                Self::Later { at_most: millis(what, at_most, 0..=MAX_DELAY_MS)? }
            }
        })
    }
}

impl TryFrom<delayline_core::UpdateDue> for UpdateDue {
    type Error = Error;

    fn try_from(due: delayline_core::UpdateDue) -> Result<Self, Error> {
        Ok(match due {
            delayline_core::UpdateDue::Keep => Self::Keep,
            delayline_core::UpdateDue::Set => Self::Set,
            delayline_core::UpdateDue::Later { at_most } => Self::Later { at_most: at_most.into() },
            _ => {
                return Err(
                    delayline_core::Error::new(ErrorKind::Unsupported("this update")).into()
                );
            }
        })
    }
}
