//! A message on its way into the queue.

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use delayline_core::limits::MAX_PAYLOAD_BYTES;
use delayline_core::{
    FinishedIds, MessageId, Millis, NewMessage, Priority, Schedule, Timestamp, Violation,
};

use super::Sent;
use crate::client::Client;
use crate::error::message_id;
use crate::{Error, TraceContext};

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
    /// Whether the id is the caller's.
    named: bool,
}

impl Draft {
    pub(super) fn new(client: Client, message: NewMessage) -> Result<Self, Error> {
        let actual = message.payload.len();
        if actual > MAX_PAYLOAD_BYTES {
            let (what, unit) = ("the payload", "bytes");
            return Err(Violation::TooLong { what, unit, actual, limit: MAX_PAYLOAD_BYTES }.into());
        }
        Ok(Self { client, message, named: false })
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
        self.named = true;
        Ok(self)
    }

    /// Takes the message in also if one of its id was handled, cancelled or purged a short while
    /// ago: for ids that come round again, such as one reminder per shop.
    ///
    /// A repeated send could then make a second message, if the first was handled in between. So
    /// after a reply that was lost or not confirmed this message is not sent again by itself, and the error is
    /// [`Class::Ambiguous`](crate::Class::Ambiguous) at once; [`Queue::get`](crate::Queue::get)
    /// tells what is known of the id.
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

    /// Says which trace it belongs to, in the headers `traceparent` and `tracestate`.
    ///
    /// Headers are content (G15): the same id with another context is a conflict. Whoever repeats
    /// a send repeats its context too.
    ///
    /// # Errors
    ///
    /// Like [`header`](Self::header).
    pub fn trace_context(mut self, context: &TraceContext) -> Result<Self, Error> {
        context.put(&mut self.message.headers)?;
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

    /// Sends it. Sends that happen at the same time go out together: see [`Queue`](crate::Queue).
    ///
    /// Dropping the future takes the message back if it is still waiting; if it is on its way, it
    /// may or may not be in the queue afterwards.
    ///
    /// # Errors
    ///
    /// [`Error::Backend`]; a limit on attempts is outside of its range, too many sends wait
    /// ([`ErrorKind::Overloaded`](crate::ErrorKind::Overloaded), nothing was sent), or see
    /// [`Queue::patience`](crate::Queue::patience). After an ambiguous error, send a message of the
    /// same id and content again to be sure.
    pub async fn send(self) -> Result<Sent, Error> {
        let client = self.client.clone();
        client.merger().send(&client, self.into()).await
    }
}

impl From<Draft> for NewMessage {
    fn from(draft: Draft) -> Self {
        let Draft { client, mut message, named } = draft;
        // A context is content. One that the caller did not ask for must not turn a repeated send
        // of the caller's id into a conflict.
        if !named
            && message.headers.get(TraceContext::TRACEPARENT).is_none()
            && let Some(context) = client.trace_context()
            && let Err(violation) = context.put(&mut message.headers)
        {
            tracing::debug!(%violation, "sent without its trace context");
        }
        message
    }
}
