//! A message on its way into the queue.

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use delayline_core::limits::MAX_PAYLOAD_BYTES;
use delayline_core::{
    FinishedIds, MessageId, Millis, NewMessage, Priority, Schedule, Timestamp, Violation,
};

use super::batch::enqueue;
use super::{Sent, only};
use crate::Error;
use crate::client::Client;
use crate::error::message_id;

/// A message that is being written: made by [`Queue::message`](crate::Queue::message), sent by
/// [`send`](Self::send) or [`Queue::send_batch`](crate::Queue::send_batch).
///
/// Until told otherwise it is due at once, of normal priority, has an id of its own (a UUIDv7), no
/// headers, never expires, and becomes a dead letter after 20 failures or 5 expired leases.
#[derive(Clone, Debug)]
#[must_use = "a draft is in no queue until it is sent"]
pub struct Draft {
    client: Client,
    message: NewMessage,
}

impl Draft {
    pub(super) fn new(client: Client, message: NewMessage) -> Result<Self, Error> {
        let actual = message.payload.len();
        if actual > MAX_PAYLOAD_BYTES {
            let (what, unit) = ("the payload", "bytes");
            return Err(Violation::TooLong { what, unit, actual, limit: MAX_PAYLOAD_BYTES }.into());
        }
        Ok(Self { client, message })
    }

    /// Names the message. Sending the same content under the same id again is harmless, for an hour
    /// at least after it was handled (G15), and the id cancels or reschedules it later.
    ///
    /// # Errors
    ///
    /// [`Error::Backend`] if the id is empty or longer than 128 bytes.
    pub fn id<I>(mut self, id: I) -> Result<Self, Error>
    where
        I: TryInto<MessageId, Error: Into<Error>>,
    {
        self.message.id = message_id(id)?;
        Ok(self)
    }

    /// Takes the message in also if one of its id was handled, cancelled or purged a short while
    /// ago: for ids that come round again, such as one reminder per shop. Then a send whose reply
    /// was lost can make a second message, if the first was handled before it was repeated.
    pub const fn reuse_finished_id(mut self) -> Self {
        self.message.finished_ids = FinishedIds::Reuse;
        self
    }

    /// Makes it due `delay` from now, by the server's clock, to the millisecond, rounded up (G4).
    ///
    /// # Errors
    ///
    /// [`Error::Backend`] if the delay is longer than 100 years.
    pub fn delay(mut self, delay: Duration) -> Result<Self, Error> {
        self.message.schedule = Schedule::In(Millis::try_from(delay)?);
        Ok(self)
    }

    /// Makes it due at an instant, to the millisecond, rounded up (G4). A past one means now.
    ///
    /// # Errors
    ///
    /// [`Error::Backend`] if the instant is beyond the year 9999.
    pub fn at(mut self, due: SystemTime) -> Result<Self, Error> {
        self.message.schedule = Schedule::At(Timestamp::try_from(due)?);
        Ok(self)
    }

    /// How urgent it is once it is due (G12).
    pub const fn priority(mut self, priority: Priority) -> Self {
        self.message.priority = priority;
        self
    }

    /// Sets a header, in place of an earlier one of that name.
    ///
    /// # Errors
    ///
    /// [`Error::Backend`] if the name is empty or longer than 255 bytes, or if there would be more
    /// than 32 headers or 8 KiB of them.
    pub fn header(
        mut self,
        name: impl Into<String>,
        value: impl Into<Bytes>,
    ) -> Result<Self, Error> {
        self.message.headers.set(name, value)?;
        Ok(self)
    }

    /// Makes it worthless `after` from now: it becomes a dead letter instead of being delivered
    /// from then on.
    ///
    /// # Errors
    ///
    /// [`Error::Backend`] if that is longer than 100 years.
    pub fn expires_in(mut self, after: Duration) -> Result<Self, Error> {
        self.message.expires = Some(Schedule::In(Millis::try_from(after)?));
        Ok(self)
    }

    /// Makes it worthless from an instant on.
    ///
    /// # Errors
    ///
    /// [`Error::Backend`] if the instant is beyond the year 9999.
    pub fn expires_at(mut self, instant: SystemTime) -> Result<Self, Error> {
        self.message.expires = Some(Schedule::At(Timestamp::try_from(instant)?));
        Ok(self)
    }

    /// With how many failures it becomes a dead letter: 1 to 65,535 (G9).
    pub const fn max_failures(mut self, max_failures: u32) -> Self {
        self.message.max_failures = max_failures;
        self
    }

    /// With how many expired leases it becomes a dead letter: 1 to 65,535 (G9). With 1 a claim
    /// whose reply was lost is enough.
    pub const fn max_crashes(mut self, max_crashes: u32) -> Self {
        self.message.max_crashes = max_crashes;
        self
    }

    /// Sends it.
    ///
    /// # Errors
    ///
    /// [`Error::Backend`]; a limit on attempts is outside of its range, or see
    /// [`Queue::patience`](crate::Queue::patience). After an ambiguous error, send a message of the
    /// same id and content again to be sure.
    pub async fn send(self) -> Result<Sent, Error> {
        only(enqueue(&self.client, vec![self.message]).await?)
    }
}

impl From<Draft> for NewMessage {
    fn from(draft: Draft) -> Self {
        draft.message
    }
}
