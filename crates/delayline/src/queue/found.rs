//! The result of a lookup.

use std::fmt;

use bytes::Bytes;
use delayline_core::{Attempt, Follower, Headers, MessageId, MessageInfo, Status, Timestamp};

use crate::after::Waiting;
use crate::codec::{CodecError, Decode};

/// The message with an id, or its end: returned by [`Queue::get`](crate::Queue::get).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Found<T> {
    /// A live message.
    Live(Box<Message<T>>),
    /// A live message whose payload the queue's codec cannot decode.
    Undecodable {
        /// The message, with the bytes of its payload.
        message: Box<Message<Bytes>>,
        /// Why the codec failed.
        error: CodecError,
    },
    /// A message that finished recently. Never [`Status::Replaced`], because another message then
    /// has the id.
    Finished(Status),
    /// A message whose record is damaged. The next claim that encounters it makes it a dead letter.
    Unreadable,
    /// The id is not known.
    Unknown,
}

/// A live message of a queue.
///
/// Its `Debug` output omits the payload.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Message<T> {
    /// The metadata of the message, without its content.
    pub info: MessageInfo,
    /// The headers.
    pub headers: Headers,
    /// The value that was sent.
    pub payload: T,
    /// The update that will replace this message when its lease ends, if there is one.
    pub follower: Option<Follower>,
    /// The latest attempts that did not succeed, oldest first: at most
    /// [`MAX_ATTEMPTS`](crate::limits::MAX_ATTEMPTS). A redrive keeps them. Snoozes and releases do
    /// not count.
    pub attempts: Vec<Attempt>,
    /// If the message is ready, in a queue in order: the message of its group that must end before
    /// ([G37](crate::guarantees#g37)), if one is known.
    pub behind: Option<MessageId>,
    /// If the message is ready, and its group is held: the end of the hold
    /// ([G38](crate::guarantees#g38)).
    pub group_held_until: Option<Timestamp>,
    /// The checkpoint that its handlers have saved: see [`Job::save`](crate::Job::save).
    pub checkpoint: Option<Bytes>,
    /// The messages that it waits for, if it waits: see
    /// [`Draft::after`](crate::Draft::after).
    pub waiting: Option<Waiting>,
}

impl<T> Found<T> {
    /// Returns the metadata of a live message, whether or not its payload can be decoded.
    #[must_use]
    pub const fn info(&self) -> Option<&MessageInfo> {
        match self {
            Self::Live(message) => Some(&message.info),
            Self::Undecodable { message, .. } => Some(&message.info),
            Self::Finished(_) | Self::Unreadable | Self::Unknown => None,
        }
    }

    pub(super) fn read<C: Decode<T>>(found: delayline_core::Found, codec: &C) -> Option<Self> {
        use delayline_core::Found as Raw;
        Some(match found {
            Raw::Live(mut message) => {
                let waiting = Waiting::of(&message.headers, &message.payload);
                let waiting = waiting.map(|waiting| {
                    waiting.map(|(payload, waiting)| {
                        message.payload = payload;
                        waiting
                    })
                });
                let read = match waiting {
                    Ok(waiting) => (waiting, codec.decode(&message.payload)),
                    Err(error) => (None, Err(CodecError::new(error))),
                };
                match read {
                    (waiting, Ok(value)) => {
                        Self::Live(Box::new(Message::of(*message, waiting, |_| value)))
                    }
                    (waiting, Err(error)) => {
                        let message = Box::new(Message::of(*message, waiting, |bytes| bytes));
                        Self::Undecodable { message, error }
                    }
                }
            }
            Raw::Finished(status) => Self::Finished(status),
            Raw::Unreadable => Self::Unreadable,
            Raw::Unknown => Self::Unknown,
            _ => return None,
        })
    }
}

impl<T> Message<T> {
    /// Creates a message that has only metadata and a payload.
    #[must_use]
    pub fn new(info: MessageInfo, payload: T) -> Self {
        let headers = Headers::default();
        Self {
            info,
            headers,
            payload,
            follower: None,
            attempts: Vec::new(),
            behind: None,
            group_held_until: None,
            checkpoint: None,
            waiting: None,
        }
    }

    fn of(
        message: delayline_core::Message,
        waiting: Option<Waiting>,
        payload: impl FnOnce(Bytes) -> T,
    ) -> Self {
        let delayline_core::Message {
            info,
            headers,
            payload: bytes,
            follower,
            attempts,
            behind,
            group_held_until,
            checkpoint,
            ..
        } = message;
        let payload = payload(bytes);
        Self {
            info,
            headers,
            payload,
            follower,
            attempts,
            behind,
            group_held_until,
            checkpoint,
            waiting,
        }
    }
}

impl<T> fmt::Debug for Message<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Message")
            .field("info", &self.info)
            .field("headers", &self.headers)
            .field("follower", &self.follower)
            .field("attempts", &self.attempts)
            .finish_non_exhaustive()
    }
}
