//! Dead letters, the latest death first.

use std::collections::VecDeque;

use delayline::admin::{Listed, Listing, Position};
use delayline::codec::Raw;
use delayline::limits::MAX_PAGE;
use delayline::message::MessageInfo;
use delayline::{Bytes, Error, Queue, Timestamp};

/// Reads the dead letters of a queue page by page, the latest death first.
///
/// Queues list the earliest death first, so each page searches for the instant at which it begins:
/// usually with two or three reads, and always with fewer than 150. If more than 50 pages of
/// letters died within one millisecond, some of them may be left out.
pub struct LatestLetters {
    queue: Queue<Bytes, Raw>,
    /// Where the last page began, or the end of the list.
    end: Position,
    /// Where the search for the next page begins.
    guess: Timestamp,
    page_size: usize,
    is_over: bool,
}

/// Letters before an end, and whether there are more than these.
struct Part {
    letters: Vec<MessageInfo>,
    is_full: bool,
}

impl LatestLetters {
    /// Starts at the end of the list. `now` is the server's time, near which the search begins.
    #[must_use]
    pub const fn new(queue: Queue<Bytes, Raw>, now: Timestamp) -> Self {
        let end = Position { index: Position::DEAD, instant: Timestamp::MAX, sequence: u64::MAX };
        Self { queue, end, guess: now, page_size: MAX_PAGE, is_over: false }
    }

    /// Continues before a position, such as the [`position`](Self::position) of another listing.
    #[must_use]
    pub fn before(self, position: Position) -> Self {
        Self { end: position, guess: position.instant, ..self }
    }

    /// Sets how many letters a page has at most: 2 to 100, 100 by default. With a greater number,
    /// the next page is an error.
    #[must_use]
    pub fn page_size(self, letters: usize) -> Self {
        Self { page_size: letters.max(2), ..self }
    }

    /// Where the next page ends; `None` if there is none.
    #[must_use]
    pub fn position(&self) -> Option<Position> {
        (!self.is_over).then_some(self.end)
    }

    /// Returns the next page with at least one letter, or `None` after the earliest death.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, no page is lost.
    ///
    /// # Errors
    ///
    /// Those of [`Listing::next_page`]. Call again to retry the page.
    pub async fn next_page(&mut self) -> Result<Option<Vec<MessageInfo>>, Error> {
        if self.is_over {
            return Ok(None);
        }
        let (start, mut letters) = self.search().await?;
        let before = self.end;
        if let Some(first) = letters.first().and_then(|it| self.place(it)) {
            self.end = first;
        }
        // The next page probably covers as much time as this one.
        let took = before.instant.as_ms().saturating_sub(start.as_ms());
        self.guess = Timestamp::from_ms(start.as_ms().saturating_sub(took)).unwrap_or(start);
        self.is_over = start == Timestamp::MIN || letters.is_empty();
        letters.reverse();
        Ok(Some(letters).filter(|letters| !letters.is_empty()))
    }

    /// Returns an instant since which about a page of letters died before the end, and these
    /// letters.
    async fn search(&self) -> Result<(Timestamp, Vec<MessageInfo>), Error> {
        let all = self.since(Timestamp::MIN).await?;
        if !all.is_full {
            return Ok((Timestamp::MIN, all.letters));
        }
        let mut step = FIRST_STEP_MS;
        // Too many letters died since the earlier instant, and too few since the later one.
        let (mut early, mut late) = (None, self.end.instant.as_ms());
        let mut start = self.guess.as_ms().min(late).saturating_sub(1);
        loop {
            let instant = Timestamp::from_ms(start).unwrap_or(Timestamp::MIN);
            let part = self.since(instant).await?;
            // Letters may have been deleted since the first read, so that there are few in all.
            let is_enough = part.letters.len() >= self.page_size / 2 || instant == Timestamp::MIN;
            if !part.is_full && is_enough {
                return Ok((instant, part.letters));
            }
            if part.is_full {
                early = Some(start);
            } else {
                late = start;
            }
            start = match early {
                Some(early) if late - early <= 1 => {
                    let instant = Timestamp::from_ms(early).unwrap_or(Timestamp::MIN);
                    return Ok((instant, self.last_since(instant).await?));
                }
                Some(early) => early + (late - early) / 2,
                None => start.saturating_sub(step),
            };
            step = step.saturating_mul(4);
        }
    }

    fn listing(&self, instant: Timestamp) -> Listing {
        let start = Position { index: Position::DEAD, instant, sequence: 0 };
        self.queue.list(Listed::Dead).page_size(self.page_size).after(start)
    }

    /// The first letters that died at an instant or later, and before the end.
    async fn since(&self, instant: Timestamp) -> Result<Part, Error> {
        let mut listing = self.listing(instant);
        let letters = listing.next_page().await?.unwrap_or_default();
        let there = letters.len();
        let letters = self.before_end(letters);
        let is_full = letters.len() == there && listing.position().is_some();
        Ok(Part { letters, is_full })
    }

    /// The last letters that died at an instant or later, and before the end.
    async fn last_since(&self, instant: Timestamp) -> Result<Vec<MessageInfo>, Error> {
        let mut listing = self.listing(instant);
        let mut last = VecDeque::new();
        for _ in 0..MOST_PAGES {
            let Some(page) = listing.next_page().await? else { break };
            let there = page.len();
            let page = self.before_end(page);
            let is_last = page.len() < there;
            last.extend(page);
            last.drain(..last.len().saturating_sub(self.page_size));
            if is_last {
                break;
            }
        }
        Ok(last.into())
    }

    fn before_end(&self, mut letters: Vec<MessageInfo>) -> Vec<MessageInfo> {
        letters.retain(|letter| self.place(letter).is_some_and(|place| place < self.end));
        letters
    }

    /// Where a letter is in the list.
    fn place(&self, letter: &MessageInfo) -> Option<Position> {
        self.queue.position_in(Listed::Dead, letter)
    }
}

/// The first step back in time. A page of a busy queue has the letters of about a minute.
const FIRST_STEP_MS: u64 = 60_000;

/// Maximum number of pages that are read of letters that died within one millisecond.
const MOST_PAGES: usize = 50;

#[cfg(test)]
pub(super) mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use delayline::backend::{
        self, Applied, At, Backend, Claim, ClaimId, Delivery, Millis, NewMessage, Op, Outcome,
        Reply, Settlement, Wakeup, async_trait,
    };
    use delayline::message::Group;
    use delayline_memory::MemoryBackend;

    use super::*;

    /// A queue with a history: for each pair, this number of letters die, and then this number of
    /// milliseconds pass.
    pub(in crate::letters) async fn queue(
        deaths: &[(usize, u64)],
    ) -> (Arc<MemoryBackend>, Queue<Bytes, Raw>) {
        queue_of(deaths, |_| false).await
    }

    /// Like [`queue`], where some messages have a group.
    async fn queue_of(
        deaths: &[(usize, u64)],
        is_grouped: impl Fn(u32) -> bool,
    ) -> (Arc<MemoryBackend>, Queue<Bytes, Raw>) {
        let start = Timestamp::from_ms(1_000_000_000).unwrap();
        let backend = Arc::new(MemoryBackend::with_manual_clock(start));
        let mut number = 0_u32;
        for &(count, pause) in deaths {
            let ids: Vec<_> = (0..count).map(|n| number + u32::try_from(n).unwrap()).collect();
            number += u32::try_from(count).unwrap();
            for ids in ids.chunks(100) {
                let message = |id: &u32| {
                    let message = NewMessage::new(id.to_string().try_into().unwrap(), "");
                    message.group(is_grouped(*id).then(|| Group::new("g").unwrap()))
                };
                let send = Op::Enqueue(ids.iter().map(message).collect());
                backend.apply(At::Server, &send).await.unwrap();
                let mut token = [0; ClaimId::BYTES];
                token[..4].copy_from_slice(&ids[0].to_be_bytes());
                let lease = Millis::new(60_000).unwrap();
                let claim =
                    Claim::new("w".try_into().unwrap(), ClaimId::from_bytes(token), 100, lease);
                let reply = backend.apply(At::Server, &Op::Claim(claim)).await.unwrap().reply;
                let Reply::Claim(claimed) = reply else { panic!("{reply:?}") };
                let end = |it: Delivery| {
                    let outcome = Outcome::Reject { error: "no".to_owned() };
                    Settlement::new(it.message.info.id.clone(), it.lease, outcome)
                };
                let settle = Op::Settle(claimed.deliveries.into_iter().map(end).collect());
                backend.apply(At::Server, &settle).await.unwrap();
            }
            backend.advance(Millis::try_from(Duration::from_millis(pause)).unwrap());
        }
        let queue = Queue::new(Arc::clone(&backend) as _).codec(Raw);
        (backend, queue)
    }

    #[tokio::test]
    async fn every_letter_is_listed_once_and_the_latest_death_first() {
        for deaths in [
            &[][..],
            &[(1, 0)],
            &[(99, 5)],
            &[(250, 0)],
            &[(250, 7)],
            &[(120, 1), (1, 86_400_000), (49, 1), (51, 1), (700, 3_600_000), (3, 0)],
            &[(1, 31_536_000_000), (101, 1)],
        ] {
            let (backend, queue) = queue_of(deaths, |id| id.is_multiple_of(3)).await;
            let start = || LatestLetters::new(queue.clone(), backend.now()).page_size(60);
            let mut latest = start();
            let mut found = Vec::new();
            while let Some(page) = latest.next_page().await.unwrap() {
                assert!((1..=60).contains(&page.len()));
                found.extend(page.iter().map(|letter| latest.place(letter).unwrap()));
                // Another listing continues at the same place.
                if let Some(position) = latest.position() {
                    latest = start().before(position);
                }
            }
            assert_eq!(found.len(), deaths.iter().map(|it| it.0).sum::<usize>(), "{deaths:?}");
            assert!(found.windows(2).all(|pair| pair[0] > pair[1]), "{deaths:?}");
        }
    }
    /// Their sequence numbers are those of their shard, so several letters have the same.
    #[tokio::test]
    async fn every_letter_of_a_sharded_queue_is_listed_once() {
        let connection = delayline::connect("memory:").await.unwrap();
        let orders = connection.queue::<Bytes>("orders").shards(3).await.unwrap().codec(Raw);
        let drafts = (0..200).map(|n| orders.message(&Bytes::new()).id(format!("m{n}")));
        // They die when they are claimed.
        let drafts = drafts.map(|draft| draft.expires_in(Duration::ZERO));
        assert!(orders.send_many(drafts).await.iter().all(Result::is_ok));
        for n in 0.. {
            let id = ClaimId::from_bytes([n; ClaimId::BYTES]);
            let lease = Millis::new(60_000).unwrap();
            let claim = Claim::new("w".try_into().unwrap(), id, 100, lease);
            drop(orders.apply(&Op::Claim(claim)).await.unwrap());
            if orders.stats().await.unwrap().dead == 200 {
                break;
            }
        }
        let start = || LatestLetters::new(orders.clone(), Timestamp::MAX).page_size(7);
        let (mut latest, mut found) = (start(), Vec::new());
        while let Some(page) = latest.next_page().await.unwrap() {
            found.extend(page.into_iter().map(|letter| letter.id));
            if let Some(position) = latest.position() {
                latest = start().before(position);
            }
        }
        let ids: std::collections::BTreeSet<_> = found.iter().collect();
        assert_eq!((found.len(), ids.len()), (200, 200));
    }

    /// A queue that loses all its dead letters after the first read of their list.
    #[derive(Debug)]
    struct Emptied {
        backend: Arc<MemoryBackend>,
        reads: AtomicUsize,
    }

    #[async_trait]
    impl Backend for Emptied {
        async fn apply(&self, at: At, op: &Op) -> Result<Applied, backend::Error> {
            let applied = self.backend.apply(at, op).await?;
            let reads = self.reads.fetch_add(1, Ordering::Relaxed) + 1;
            assert!(reads < 150, "the search does not end");
            if reads == 1 {
                let ids = (0..250).map(|id: u32| id.to_string().try_into().unwrap());
                self.backend.apply(at, &Op::Purge(ids.collect())).await?;
            }
            Ok(applied)
        }
    }

    #[async_trait]
    impl Wakeup for Emptied {
        async fn wait(&self, timeout: Duration) -> Result<bool, backend::Error> {
            self.backend.wait(timeout).await
        }

        async fn ring(&self) -> Result<(), backend::Error> {
            self.backend.ring().await
        }
    }

    #[tokio::test]
    async fn a_search_ends_while_the_letters_are_deleted() {
        let (backend, _) = queue(&[(250, 3_600_000)]).await;
        let now = backend.now();
        let emptied = Arc::new(Emptied { backend, reads: AtomicUsize::new(0) });
        let queue = Queue::new(emptied).codec(Raw);
        let mut latest = LatestLetters::new(queue, now);
        assert_eq!(latest.next_page().await.unwrap(), None);
        assert_eq!(latest.position(), None);
    }
}
