//! Dead letters that match, found page by page and dealt with at a rate.

mod filter;
mod groups;
mod latest;
mod rate_limit;

use std::collections::VecDeque;

use delayline::admin::{DeadLetterFilter, Listing};
use delayline::message::{MessageInfo, MessageState};
use delayline::{Error, MessageId};

pub use self::filter::LetterFilter;
pub use self::groups::{Group, GroupOrder, Groups};
pub use self::latest::LatestLetters;
pub use self::rate_limit::RateLimit;

/// Searches the dead letters of a listing.
pub struct Letters<'a> {
    listing: Listing,
    filter: DeadLetterFilter,
    passes: Box<dyn Fn(&MessageInfo) -> bool + Send + Sync + 'a>,
    /// Letters that were read and not taken, with their places in the listing.
    waiting: VecDeque<(u64, MessageId)>,
    /// How many may be read still.
    left: u64,
    over: bool,
    examined: u64,
    matched: u64,
    taken: u64,
}

impl<'a> Letters<'a> {
    /// At most `most` letters of a listing, the oldest death first.
    #[must_use]
    pub fn new(listing: Listing, filter: DeadLetterFilter, most: u64) -> Self {
        let listing = match filter.start() {
            Some(position) => listing.after(position),
            None => listing,
        };
        let passing = filter.clone();
        Self {
            listing,
            filter,
            passes: Box::new(move |letter| passing.matches(letter)),
            waiting: VecDeque::new(),
            left: most,
            over: most == 0,
            examined: 0,
            matched: 0,
            taken: 0,
        }
    }

    /// Asks this function instead, where a letter is not to be seen as it is.
    #[must_use]
    pub fn passing(mut self, passes: impl Fn(&MessageInfo) -> bool + Send + Sync + 'a) -> Self {
        self.passes = Box::new(passes);
        self
    }

    /// How many letters were read.
    #[must_use]
    pub const fn examined(&self) -> u64 {
        self.examined
    }

    /// How many of them are wanted.
    #[must_use]
    pub const fn matched(&self) -> u64 {
        self.matched
    }

    /// The place in the listing of the last letter that was taken.
    #[must_use]
    pub const fn taken(&self) -> u64 {
        self.taken
    }

    /// Whether as many letters wait to be taken, or all that are left.
    #[must_use]
    pub fn has(&self, many: usize) -> bool {
        self.over || self.waiting.len() >= many
    }

    /// Reads a page.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, a page may be skipped.
    ///
    /// # Errors
    ///
    /// Those of the listing.
    pub async fn read(&mut self) -> Result<(), Error> {
        let Some(page) = self.listing.next_page().await? else {
            self.over = true;
            return Ok(());
        };
        for letter in page {
            let MessageState::Dead { since, .. } = letter.state else { continue };
            if self.filter.excludes_from(since) {
                self.over = true;
                return Ok(());
            }
            self.examined += 1;
            if (self.passes)(&letter) {
                self.waiting.push_back((self.examined, letter.id));
                self.matched += 1;
                self.left -= 1;
            }
            if self.left == 0 {
                self.over = true;
                return Ok(());
            }
        }
        Ok(())
    }

    /// Takes waiting letters, at most the requested number.
    pub fn take(&mut self, most: usize) -> Vec<MessageId> {
        let count = most.min(self.waiting.len());
        let (places, ids): (Vec<_>, Vec<_>) = self.waiting.drain(..count).unzip();
        self.taken = places.last().copied().unwrap_or(self.taken);
        ids
    }

    /// The next letters: as many as asked for, or all that are left.
    ///
    /// # Errors
    ///
    /// Those of the listing.
    pub async fn next(&mut self, most: usize) -> Result<Vec<MessageId>, Error> {
        while !self.has(most) {
            self.read().await?;
        }
        Ok(self.take(most))
    }

    /// How many there are.
    ///
    /// # Errors
    ///
    /// Those of the listing.
    pub async fn count(mut self) -> Result<u64, Error> {
        while !self.over {
            self.read().await?;
            self.waiting.clear();
        }
        Ok(self.matched)
    }
}

#[cfg(test)]
mod tests {
    use delayline::message::DeathReason;

    use super::latest::tests::queue;
    use super::*;

    #[tokio::test]
    async fn letters_are_found_in_order_up_to_the_number_asked_for() {
        // Letters 0 to 129 die in this millisecond, and 130 to 149 an hour later.
        let (_, queue) = queue(&[(130, 3_600_000), (20, 0)]).await;
        let listing = queue.dead_letters().await.unwrap();
        let search = |filter: DeadLetterFilter, most| Letters::new(listing.clone(), filter, most);
        let all = DeadLetterFilter::new;
        for (filter, most, count) in [
            (all(), u64::MAX, 150),
            (all(), 130, 130),
            (all(), 1, 1),
            (all(), 0, 0),
            (all().died_before(std::time::UNIX_EPOCH), 9, 0),
            (all().reason(DeathReason::Rejected), 149, 149),
            (all().reason(DeathReason::MaxFailures), 149, 0),
        ] {
            assert_eq!(search(filter, most).count().await.unwrap(), count, "{most}");
        }
        let odd = |letter: &MessageInfo| letter.id.to_string().ends_with('1');
        let mut letters = search(all(), 14).passing(odd);
        let mut found = letters.next(3).await.unwrap();
        let found_first: Vec<_> = found.iter().map(ToString::to_string).collect();
        assert_eq!(found_first, ["1", "11", "21"]);
        assert_eq!((letters.taken(), letters.matched(), letters.examined()), (22, 10, 100));
        found.extend(letters.next(100).await.unwrap());
        assert_eq!((found.len(), found[13].to_string()), (14, "131".to_owned()));
        assert_eq!((letters.taken(), letters.matched(), letters.examined()), (132, 14, 132));
        assert!(letters.next(1).await.unwrap().is_empty() && letters.has(1));
    }
}
