//! Messages that can be sent together, and their queue.

use delayline_core::{NewMessage, QueueName, Violation};

use super::Draft;

pub(super) use self::sealed::Parts;
/// A message for [`Queue::send_many`](crate::Queue::send_many) and
/// [`Outcome::then`](crate::Outcome::then): a [`Draft`] of the same queue, or a [`NewMessage`],
/// which belongs to no queue.
///
/// The trait cannot be implemented by other crates.
pub trait Sendable: sealed::Sealed {}

impl Sendable for Draft {}

impl Sendable for NewMessage {}

/// Checks that a message is sent to the queue that it was made for. A queue without a name, on the
/// caller's own backend, accepts any.
pub(crate) fn same_queue(
    made_for: Option<&QueueName>,
    queue: Option<&QueueName>,
) -> Result<(), Violation> {
    match (made_for, queue) {
        (Some(made_for), Some(queue)) if made_for != queue => {
            let (made_for, queue) = (made_for.to_string(), queue.to_string());
            Err(Violation::OtherQueue { made_for, queue })
        }
        _ => Ok(()),
    }
}

mod sealed {
    use delayline_core::{NewMessage, QueueName};

    use crate::{Draft, Error};

    pub trait Sealed {
        /// Returns the message with the name of its queue, if that is known, or the first error of
        /// a setter.
        fn into_parts(self) -> Result<Parts, Error>;
    }

    /// A message, and the queue that it was made for.
    #[derive(Debug)]
    pub struct Parts {
        pub queue: Option<QueueName>,
        pub message: NewMessage,
    }

    impl Sealed for Draft {
        fn into_parts(self) -> Result<Parts, Error> {
            let queue = self.client.queue_name().cloned();
            Ok(Parts { queue, message: self.try_into()? })
        }
    }

    impl Sealed for NewMessage {
        fn into_parts(self) -> Result<Parts, Error> {
            Ok(Parts { queue: None, message: self })
        }
    }
}
