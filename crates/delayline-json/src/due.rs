//! Scheduled messages in the order in which they are due, whatever their priority.

use delayline::admin::{Listed, Position};
use delayline::codec::Raw;
use delayline::message::{MessageInfo, Priority};
use delayline::{Bytes, Error, Queue, Timestamp};

/// Lists the scheduled messages of a queue that are due in a window, the earliest first.
///
/// Queues list one priority after the other, so each page reads one page of each.
pub struct DueMessages {
    queue: Queue<Bytes, Raw>,
    /// The last message that was listed, in the order of due time, priority and sequence.
    after: Position,
    until: Timestamp,
    page_size: usize,
    is_over: bool,
}

impl DueMessages {
    /// Messages that are due at `from` or later, and before `until`.
    #[must_use]
    pub const fn new(queue: Queue<Bytes, Raw>, from: Timestamp, until: Timestamp) -> Self {
        let after = Position { index: 0, instant: from, sequence: 0 };
        Self { queue, after, until, page_size: delayline::limits::MAX_PAGE, is_over: false }
    }

    /// Continues after the [`position`](Self::position) of another listing.
    #[must_use]
    pub fn after(self, position: Position) -> Self {
        Self { after: position, ..self }
    }

    /// Sets how many messages a page has at most: 1 to 100, 100 by default. With any other number,
    /// the next page is an error.
    #[must_use]
    pub fn page_size(self, messages: usize) -> Self {
        Self { page_size: messages, ..self }
    }

    /// Where the next page starts; `None` after the last. It stays valid whatever happens to the
    /// messages.
    #[must_use]
    pub fn position(&self) -> Option<Position> {
        (!self.is_over).then_some(self.after)
    }

    /// Returns the next page, or `None` after the last.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, no page is lost.
    ///
    /// # Errors
    ///
    /// Those of [`Listing::next_page`](delayline::admin::Listing::next_page). Call again to retry
    /// the page.
    pub async fn next_page(&mut self) -> Result<Option<Vec<MessageInfo>>, Error> {
        if self.is_over {
            return Ok(None);
        }
        let mut found = Vec::new();
        for priority in Priority::ALL {
            let listing = self.queue.list(Listed::Scheduled).page_size(self.page_size);
            let mut listing = listing.after(self.start(priority));
            let page = listing.next_page().await?.unwrap_or_default();
            // A page continues with the next priority.
            found.extend(page.into_iter().filter(|it| it.priority == priority));
        }
        found.sort_by_key(place);
        let is_full = found.len() >= self.page_size;
        found.truncate(self.page_size);
        let listed = found.len();
        found.retain(|message| message.due < self.until);
        self.is_over = !is_full || found.len() < listed;
        if let Some(last) = found.last() {
            let (instant, index, sequence) = place(last);
            self.after = Position { index, instant, sequence };
        }
        Ok(Some(found).filter(|found| !found.is_empty()))
    }

    /// Where the messages of a priority start that follow the last one.
    fn start(&self, priority: Priority) -> Position {
        let Position { index: last, instant, sequence } = self.after;
        let index = priority.level();
        let sequence = match index.cmp(&last) {
            std::cmp::Ordering::Less => u64::MAX,
            std::cmp::Ordering::Equal => sequence,
            std::cmp::Ordering::Greater => 0,
        };
        Position { index, instant, sequence }
    }
}

fn place(message: &MessageInfo) -> (Timestamp, u8, u64) {
    (message.due, message.priority.level(), message.sequence)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use delayline::backend::{At, Backend as _, NewMessage, Op, Schedule};
    use delayline_memory::MemoryBackend;

    use super::*;

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_ms(ms).unwrap()
    }

    /// Messages of all priorities that are due every millisecond, several at once.
    async fn queue() -> Queue<Bytes, Raw> {
        let backend = MemoryBackend::with_manual_clock(at(1_000));
        let message = |number: u64| {
            let mut message = NewMessage::new(number.to_string().try_into().unwrap(), "");
            message.schedule = Schedule::At(at(2_000 + number % 40));
            message.priority = Priority::ALL[usize::try_from(number % 3).unwrap()];
            message
        };
        let send = Op::Enqueue((0..300).map(message).collect());
        backend.apply(At::Server, &send).await.unwrap();
        Queue::new(Arc::new(backend) as _).codec(Raw)
    }

    #[tokio::test]
    async fn every_message_of_a_window_is_listed_once_and_in_order() {
        let queue = queue().await;
        for (from, until, expected) in [
            (0, 9_000, 300),
            (2_000, 2_040, 300),
            (2_010, 2_020, 80),
            (2_039, 2_039, 0),
            (2_039, 2_040, 7),
            (2_040, 9_000, 0),
            (2_020, 2_010, 0),
        ] {
            for size in [1, 7, 50, 100] {
                let start = || DueMessages::new(queue.clone(), at(from), at(until)).page_size(size);
                let (mut due, mut found) = (start(), Vec::new());
                while let Some(page) = due.next_page().await.unwrap() {
                    assert!((1..=size).contains(&page.len()));
                    found.extend(page.iter().map(place));
                    if let Some(position) = due.position() {
                        due = start().after(position);
                    }
                }
                assert_eq!(found.len(), expected, "{from} to {until} by {size}");
                assert!(found.windows(2).all(|pair| pair[0] < pair[1]));
                assert!(found.iter().all(|it| (at(from)..at(until)).contains(&it.0)));
            }
        }
    }
}
