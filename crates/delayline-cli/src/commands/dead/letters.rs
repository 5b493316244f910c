//! The dead letters that are wanted, a few at a time.

use std::collections::VecDeque;

use delayline::{Listing, MessageId, MessageState};

use super::filter::Wanted;
use crate::failure::Failure;

/// Reads through the dead letters.
pub(super) struct Letters<'a> {
    listing: Listing,
    wanted: &'a Wanted,
    /// Those that were read and not handed out, with their places in the listing.
    waiting: VecDeque<(u64, MessageId)>,
    /// How many may be read still.
    left: u64,
    over: bool,
    looked_at: u64,
    handed_out: u64,
}

impl<'a> Letters<'a> {
    /// At most `most` of those of a listing, the oldest death first.
    pub(super) fn new(listing: Listing, wanted: &'a Wanted, most: u64) -> Self {
        let listing = match wanted.first() {
            Some(position) => listing.after(position),
            None => listing,
        };
        let waiting = VecDeque::new();
        Self { listing, wanted, waiting, left: most, over: false, looked_at: 0, handed_out: 0 }
    }

    /// The place in the listing of the last letter that was handed out.
    pub(super) const fn handed_out(&self) -> u64 {
        self.handed_out
    }

    /// The next letters: as many as asked for, or all that are left.
    pub(super) async fn next(&mut self, most: usize) -> Result<Vec<MessageId>, Failure> {
        while self.waiting.len() < most && self.left > 0 && !self.over {
            self.read().await?;
        }
        let count = most.min(self.waiting.len());
        let (places, ids): (Vec<_>, Vec<_>) = self.waiting.drain(..count).unzip();
        self.handed_out = places.last().copied().unwrap_or(self.handed_out);
        Ok(ids)
    }

    /// How many there are.
    pub(super) async fn count(mut self) -> Result<u64, Failure> {
        let mut count = 0;
        while self.left > 0 && !self.over {
            self.read().await?;
            count += self.waiting.len() as u64;
            self.waiting.clear();
        }
        Ok(count)
    }

    async fn read(&mut self) -> Result<(), Failure> {
        let Some(page) = self.listing.next_page().await? else {
            self.over = true;
            return Ok(());
        };
        for letter in page {
            let MessageState::Dead { since, .. } = letter.state else { continue };
            if self.left == 0 || self.wanted.is_over(since) {
                self.over = true;
                return Ok(());
            }
            self.looked_at += 1;
            if self.wanted.passes(&letter) {
                self.waiting.push_back((self.looked_at, letter.id));
                self.left -= 1;
            }
        }
        Ok(())
    }
}
