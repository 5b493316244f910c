//! Scheduled messages that are due in a window: in order, whatever their priority or group, and how
//! many.

use std::collections::BTreeSet;
use std::time::Duration;

use delayline::admin::{Forecast, Listed, Position};
use delayline::backend::{self, Millis, Op, Reply};
use delayline::codec::Raw;
use delayline::message::{MessageInfo, Priority};
use delayline::{Bytes, Error, ErrorKind, Queue, Timestamp, Violation, limits};

/// Lists the scheduled messages of a queue that are due in a window, the earliest first.
///
/// Queues list one priority after the other, and then messages with a group. So each page reads one
/// page of each.
#[derive(Clone)]
pub struct DueMessages {
    queue: Queue<Bytes, Raw>,
    /// The last message that was listed, in the order of due time, index and sequence.
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
        Self { queue, after, until, page_size: limits::MAX_PAGE, is_over: false }
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
        // Where the page of an index ends that has more, the earliest of all. Later messages of
        // other indices are for the next page. A page says nothing by its length: it is shorter
        // if the record of a message cannot be read.
        let mut end: Option<Position> = None;
        for index in Priority::ALL.map(Priority::level).into_iter().chain([Position::GROUPED]) {
            let listing = self.queue.list(Listed::Scheduled).page_size(self.page_size);
            let mut listing = listing.after(self.start(index));
            let page = listing.next_page().await?.unwrap_or_default();
            // A page continues with the next index.
            found.extend(page.into_iter().filter(|it| self.place(it).index == index));
            let cut = listing.position().filter(|position| position.index == index);
            end = end.into_iter().chain(cut).min_by_key(|position| by_instant(*position));
        }
        found.sort_by_key(|message| by_instant(self.place(message)));
        found.retain(|it| end.is_none_or(|end| by_instant(self.place(it)) <= by_instant(end)));
        if found.len() > self.page_size {
            found.truncate(self.page_size);
            end = found.last().map(|last| self.place(last));
        }
        let listed = found.len();
        found.retain(|message| message.due < self.until);
        self.is_over = end.is_none() || found.len() < listed;
        self.after = end.unwrap_or(self.after);
        Ok(Some(found).filter(|found| !found.is_empty()))
    }

    fn place(&self, message: &MessageInfo) -> Position {
        // Scheduled messages have one.
        self.queue.position_in(Listed::Scheduled, message).unwrap_or(self.after)
    }

    /// Where the messages of an index start that follow the last one.
    fn start(&self, index: u8) -> Position {
        let Position { index: last, instant, sequence } = self.after;
        let sequence = match index.cmp(&last) {
            std::cmp::Ordering::Less => u64::MAX,
            std::cmp::Ordering::Equal => sequence,
            std::cmp::Ordering::Greater => 0,
        };
        Position { index, instant, sequence }
    }
}

/// Number of waiting messages before, in and after a window of due times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DueCounts {
    /// Messages that are due now.
    pub ready: u64,
    /// Messages that are due later than now, but before the window.
    pub before: u64,
    /// Scheduled messages that are due in the window.
    pub due: u64,
    /// Messages that are due after the window.
    pub later: u64,
    /// `false` if the calls took irregularly long. Then, messages that are due within that time of
    /// a bound may be counted on its other side.
    pub is_exact: bool,
}

impl DueCounts {
    /// Counts the messages that are due at `from` or later, and before `until`.
    ///
    /// # Errors
    ///
    /// Like [`Queue::forecast`]. If `from` or `until` is more than 100 years from now, the error
    /// says so.
    pub async fn of(
        queue: &Queue<Bytes, Raw>,
        from: Timestamp,
        until: Option<Timestamp>,
    ) -> Result<Self, Error> {
        let bounds = [Some(from), until];
        let bounds = || bounds.into_iter().flatten();
        // A forecast takes delays from the time of its call, which is not known in advance. So each
        // call asks for the delays from many instants.
        let mut first = queue.server_time().await?;
        // Calls with later instants ask for shorter delays.
        for (what, bound) in [("from", Some(from)), ("until", until)] {
            if let Some(bound) = bound.filter(|bound| delay(first, *bound).is_err()) {
                let reason = "it is more than 100 years from now".to_owned();
                return Err(Violation::Malformed { what, value: bound.to_string(), reason }.into());
            }
        }
        let mut calls = 0;
        loop {
            let instants = (0..INSTANTS).map(|ms| first.after(Millis::saturating(ms)));
            let delays = instants.flat_map(|at| bounds().map(move |bound| delay(at, bound)));
            let delays: BTreeSet<Millis> = delays.collect::<Result<_, _>>()?;
            let delays: Vec<Millis> = delays.into_iter().collect();
            let applied = queue.apply(&Op::Forecast(delays.clone())).await?;
            let Reply::Forecast(Forecast { ready, due, later, .. }) = applied.reply else {
                return Err(backend::Error::new(ErrorKind::Protocol).into());
            };
            calls += 1;
            let last = first.after(Millis::saturating(INSTANTS - 1));
            let is_exact = (first..=last).contains(&applied.at);
            if !is_exact && calls < MOST_CALLS {
                // The next call may take as long as this one.
                let lag =
                    applied.at.since(first).saturating_sub(Duration::from_millis(INSTANTS / 2));
                first = applied.at.after(Millis::try_from(lag)?);
                continue;
            }
            let at = applied.at.clamp(first, last);
            let total = due.iter().fold(later, |sum, count| sum.saturating_add(*count));
            let before = |bound: Timestamp| -> Result<u64, Error> {
                let delay = delay(at, bound)?;
                let counts = delays.iter().zip(&due).take_while(|(within, _)| **within <= delay);
                Ok(counts.fold(0, |sum: u64, (_, count)| sum.saturating_add(*count)))
            };
            let before_from = before(from)?;
            let before_until = until.map_or(Ok(total), before)?;
            return Ok(Self {
                ready,
                before: before_from,
                due: before_until.saturating_sub(before_from),
                later: total.saturating_sub(before_until),
                is_exact,
            });
        }
    }
}

/// The delay from `at` within which messages fall due before `bound`: a forecast counts those that
/// are due at the end of a delay, too.
fn delay(at: Timestamp, bound: Timestamp) -> Result<Millis, Error> {
    Ok(Millis::try_from(bound.since(at).saturating_sub(Duration::from_millis(1)))?)
}

/// Milliseconds of a call that are allowed for: each takes a delay per bound.
const INSTANTS: u64 = limits::MAX_FORECAST as u64 / 2;

const MOST_CALLS: u32 = 5;

/// The due time, the index, and the number there.
const fn by_instant(Position { index, instant, sequence }: Position) -> (Timestamp, u8, u64) {
    (instant, index, sequence)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use delayline::backend::{Applied, At, Backend, NewMessage, Schedule, Wakeup, async_trait};
    use delayline::message::Group;
    use delayline_memory::MemoryBackend;

    use super::*;

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_ms(ms).unwrap()
    }

    /// Messages of all priorities and with groups that are due every millisecond, several at once.
    async fn backend() -> MemoryBackend {
        let backend = MemoryBackend::with_manual_clock(at(1_000));
        let message = |number: u64| {
            let mut message = NewMessage::new(number.to_string().try_into().unwrap(), "");
            message.schedule = Schedule::At(at(2_000 + number % 40));
            match usize::try_from(number % 5).unwrap() {
                4 => message.group = Group::new(format!("g{}", number % 7)).ok(),
                level => message.priority = Priority::ALL[level],
            }
            message
        };
        let send = Op::Enqueue((0..300).map(message).collect());
        backend.apply(At::Server, &send).await.unwrap();
        backend
    }

    /// A backend whose calls take these times in ms, in turn. It may lose every third record.
    #[derive(Debug)]
    struct Odd {
        backend: MemoryBackend,
        lags: &'static [u64],
        calls: AtomicUsize,
        loses_thirds: bool,
    }

    async fn odd(lags: &'static [u64], loses_thirds: bool) -> Queue<Bytes, Raw> {
        let odd = Odd { backend: backend().await, lags, calls: AtomicUsize::new(0), loses_thirds };
        Queue::new(Arc::new(odd) as _).codec(Raw)
    }

    #[async_trait]
    impl Backend for Odd {
        async fn apply(&self, at: At, op: &Op) -> Result<Applied, backend::Error> {
            let call = self.calls.fetch_add(1, Ordering::Relaxed);
            self.backend.advance(Millis::saturating(self.lags[call % self.lags.len()]));
            let mut applied = self.backend.apply(at, op).await?;
            if let Reply::List(page) = &mut applied.reply {
                page.messages.retain(|it| !self.loses_thirds || it.sequence % 3 != 0);
            }
            Ok(applied)
        }
    }

    #[async_trait]
    impl Wakeup for Odd {
        async fn wait(&self, timeout: Duration) -> Result<bool, backend::Error> {
            self.backend.wait(timeout).await
        }
    }

    #[tokio::test]
    async fn every_message_is_counted_on_its_side_of_the_bounds() {
        for lags in [&[0][..], &[1], &[49], &[50], &[300], &[0, 200, 190, 210]] {
            for (from, until, before, due, later) in [
                (0, Some(9_000), 0, 300, 0),
                (2_000, Some(2_040), 0, 300, 0),
                (2_010, Some(2_020), 80, 80, 140),
                (2_039, Some(2_040), 293, 7, 0),
                (2_020, None, 160, 140, 0),
                (3_000, None, 300, 0, 0),
                (0, Some(1_000), 0, 0, 300),
            ] {
                let queue = odd(lags, false).await;
                let counts = DueCounts::of(&queue, at(from), until.map(at)).await.unwrap();
                let expected = DueCounts { ready: 0, before, due, later, is_exact: true };
                assert_eq!(counts, expected, "{from} to {until:?}, {lags:?}");
            }
        }
    }

    #[tokio::test]
    async fn counts_between_irregular_calls_are_near() {
        let queue = odd(&[0, 200], false).await;
        let counts = DueCounts::of(&queue, at(2_010), Some(at(2_020))).await.unwrap();
        let all = counts.ready + counts.before + counts.due + counts.later;
        assert_eq!((counts.is_exact, all), (false, 300));
    }

    /// Their sequence numbers are those of their shard, so several messages have the same.
    #[tokio::test]
    async fn every_message_of_a_window_is_listed_once_in_a_sharded_queue() {
        let connection = delayline::connect("memory:").await.unwrap();
        let orders = connection.queue::<Bytes>("orders").shards(3).await.unwrap().codec(Raw);
        let from = Timestamp::from_ms(4_000_000_000_000).unwrap();
        for number in 0..100_u64 {
            let due = from.after(Millis::saturating(number % 3));
            let draft = orders.message(&Bytes::new()).id(format!("m{number}")).due_at(due.into());
            let draft =
                if number % 4 == 0 { draft.group(format!("g{}", number % 7)) } else { draft };
            assert!(draft.send().await.unwrap().is_accepted());
        }
        for size in [1, 7, 50] {
            let start = || DueMessages::new(orders.clone(), from, Timestamp::MAX).page_size(size);
            let (mut due, mut found) = (start(), Vec::new());
            while let Some(page) = due.next_page().await.unwrap() {
                found.extend(page.into_iter().map(|it| (it.due, it.id)));
                assert!(found.len() <= 100, "{size} a page");
                if let Some(position) = due.position() {
                    due = start().after(position);
                }
            }
            assert!(found.is_sorted_by_key(|(due, _)| due));
            let ids: BTreeSet<_> = found.iter().map(|(_, id)| id).collect();
            assert_eq!((found.len(), ids.len()), (100, 100), "{size} a page");
        }
    }

    #[tokio::test]
    async fn a_record_that_cannot_be_read_does_not_end_the_list() {
        let queue = odd(&[0], true).await;
        for size in [1, 7, 50, 100] {
            let mut due = DueMessages::new(queue.clone(), at(0), at(9_000)).page_size(size);
            let mut found = Vec::new();
            while let Some(page) = due.next_page().await.unwrap() {
                found.extend(page.iter().map(|it| by_instant(due.place(it))));
            }
            assert_eq!((found.len(), found.is_sorted()), (200, true), "{size} a page");
        }
    }

    #[tokio::test]
    async fn every_message_of_a_window_is_listed_once_and_in_order() {
        let queue = odd(&[0], false).await;
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
                    found.extend(page.iter().map(|it| by_instant(due.place(it))));
                    if let Some(position) = due.position() {
                        due = start().after(position);
                    }
                }
                assert_eq!(due.position(), None, "{from} to {until} by {size}");
                assert_eq!(found.len(), expected, "{from} to {until} by {size}");
                assert!(found.windows(2).all(|pair| pair[0] < pair[1]));
                assert!(found.iter().all(|it| (at(from)..at(until)).contains(&it.0)));
            }
        }
    }
}
