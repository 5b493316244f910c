//! A message that was sent, and assertions about it.

use std::fmt::{self, Debug, Display, Write};
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use delayline_core::{MessageId, Millis, NewMessage, Priority, Timestamp};

use super::assertion::fail;
use super::recorder::Record;
use crate::after::Waiting;
use crate::codec::{CodecError, Decode, Json};

/// A message as it was sent: from [`TestQueue::assert_sent`](super::TestQueue::assert_sent) or
/// [`TestQueue::sent`](super::TestQueue::sent).
///
/// The assertions panic with a text that contains the message, the expected and the actual value.
/// Each returns the message, so that they can be chained.
pub struct SentMessage<T: ?Sized, C = Json> {
    record: Arc<Record>,
    codec: Arc<C>,
    payload: PhantomData<fn() -> Box<T>>,
}

impl<T: ?Sized, C> SentMessage<T, C> {
    pub(super) const fn new(record: Arc<Record>, codec: Arc<C>) -> Self {
        Self { record, codec, payload: PhantomData }
    }

    /// The id.
    #[must_use]
    pub fn id(&self) -> &MessageId {
        &self.record.message.id
    }

    /// The whole message as it was sent: headers, priority, limits and the encoded payload.
    #[must_use]
    pub fn message(&self) -> &NewMessage {
        &self.record.message
    }

    /// When it was sent, by the queue's clock.
    #[must_use]
    pub fn sent_at(&self) -> SystemTime {
        self.record.at.into()
    }

    /// When it was due as sent; later reschedules or retries change nothing here.
    #[must_use]
    pub fn due(&self) -> SystemTime {
        self.record.due.into()
    }

    /// The time from the send until it was due; zero if that was in the past.
    #[must_use]
    pub fn delay(&self) -> Duration {
        self.record.due.since(self.record.at)
    }

    /// Asserts that it was sent with this delay, to the millisecond, rounded up. Without a delay it
    /// is zero.
    ///
    /// # Panics
    ///
    /// If the delay is different.
    #[track_caller]
    pub fn assert_delay(&self, delay: Duration) -> &Self {
        let wanted = Millis::try_from(delay).map_or(delay, Duration::from);
        self.check(self.delay() == wanted, || {
            format!("is due {:?} after it was sent, not {delay:?}", self.delay())
        })
    }

    /// Asserts that it was sent to be due at this instant, to the millisecond, rounded up.
    ///
    /// # Panics
    ///
    /// If it was due at another.
    #[track_caller]
    pub fn assert_due(&self, due: SystemTime) -> &Self {
        let wanted = Timestamp::try_from(due).unwrap_or(Timestamp::MAX);
        self.check(self.record.due == wanted, || {
            let (early, late) = (wanted.since(self.record.due), self.record.due.since(wanted));
            let (by, side) = if early.is_zero() { (late, "after") } else { (early, "before") };
            format!("is due {by:?} {side} the wanted instant, {:?} after it was sent", self.delay())
        })
    }

    /// Asserts that it has this header with this value.
    ///
    /// # Panics
    ///
    /// If it has no header of that name, or another value.
    #[track_caller]
    pub fn assert_header(&self, name: &str, value: impl AsRef<[u8]>) -> &Self {
        let headers = &self.record.message.headers;
        let (known, wanted) = (headers.get(name), value.as_ref());
        self.check(known.is_some_and(|known| known == wanted), || match known {
            Some(known) => format!(
                "has the header {name:?} with the value \"{}\", not \"{}\"",
                known.escape_ascii(),
                wanted.escape_ascii()
            ),
            None => {
                let names: Vec<_> = headers.iter().map(|(name, _)| name).collect();
                format!("has no header {name:?}; it has {names:?}")
            }
        })
    }

    /// Asserts that it was sent with this priority.
    ///
    /// # Panics
    ///
    /// If it was sent with another.
    #[track_caller]
    pub fn assert_priority(&self, priority: Priority) -> &Self {
        let known = self.record.message.priority;
        self.check(known == priority, || format!("has the priority {known:?}, not {priority:?}"))
    }

    #[track_caller]
    fn check(&self, holds: bool, otherwise: impl FnOnce() -> String) -> &Self {
        if !holds {
            fail(&format!("the message {} {}", self.id(), otherwise()));
        }
        self
    }
}

impl<T, C: Decode<T>> SentMessage<T, C> {
    /// The decoded payload.
    ///
    /// # Panics
    ///
    /// If the payload cannot be decoded, because other code has sent it in another format.
    #[must_use]
    #[track_caller]
    pub fn payload(&self) -> T {
        match self.decoded() {
            Ok(payload) => payload,
            Err(error) => fail(&format!("the payload of {} is not readable: {error}", self.id())),
        }
    }

    pub(super) fn decoded(&self) -> Result<T, CodecError> {
        let NewMessage { headers, payload, .. } = &self.record.message;
        match Waiting::of(headers, payload).map_err(CodecError::new)? {
            Some((payload, _)) => self.codec.decode(&payload),
            None => self.codec.decode(payload),
        }
    }
}

impl<T: PartialEq + Debug, C: Decode<T>> SentMessage<T, C> {
    /// Asserts that its payload is this value.
    ///
    /// # Panics
    ///
    /// If it is another, or cannot be decoded.
    #[track_caller]
    pub fn assert_payload(&self, payload: &T) -> &Self {
        let known = self.payload();
        self.check(known == *payload, || format!("has the payload {known:?}, not {payload:?}"))
    }
}

impl<T: ?Sized, C> Clone for SentMessage<T, C> {
    fn clone(&self) -> Self {
        Self::new(Arc::clone(&self.record), Arc::clone(&self.codec))
    }
}

/// Shows everything but the payload.
impl<T: ?Sized, C> Display for SentMessage<T, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let NewMessage { id, payload, priority, .. } = &self.record.message;
        let (delay, bytes) = (self.delay(), payload.len());
        write!(f, "{id}, due after {delay:?}, priority {priority:?}, {bytes} bytes")
    }
}

/// Shows everything but the payload.
impl<T: ?Sized, C> Debug for SentMessage<T, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SentMessage").field("record", &self.record).finish_non_exhaustive()
    }
}

/// The sent messages, for the text of an assertion.
pub(super) fn list<T: ?Sized, C>(sent: &[SentMessage<T, C>]) -> String {
    lines(sent, ToString::to_string)
}

pub(super) fn list_payloads<T: Debug, C: Decode<T>>(sent: &[SentMessage<T, C>]) -> String {
    lines(sent, |message| match message.decoded() {
        Ok(payload) => format!("{}: {payload:?}", message.id()),
        Err(error) => format!("{}: not readable: {error}", message.id()),
    })
}

fn lines<T: ?Sized, C>(
    sent: &[SentMessage<T, C>],
    line: impl Fn(&SentMessage<T, C>) -> String,
) -> String {
    let Some(more) = sent.len().checked_sub(1) else { return "nothing was sent".to_owned() };
    let mut text = format!("{} sent:", if more == 0 { "this was" } else { "these were" });
    for message in sent.iter().take(MOST_LISTED) {
        // Writing to a string does not fail.
        let _ = write!(text, "\n  {}", line(message));
    }
    if sent.len() > MOST_LISTED {
        let _ = write!(text, "\n  and {} more", sent.len() - MOST_LISTED);
    }
    text
}

/// What fits on a screen.
const MOST_LISTED: usize = 20;
