//! Settlements: the results of handlers, on their way to the queue.

use std::collections::{HashSet, VecDeque};
use std::time::Duration;

use super::dice::Dice;
use super::pauses::Pauses;
use super::{Moment, Summary};
use crate::limits::MAX_BATCH;
use crate::{Settled, Settlement};

/// Settlements that the queue has not confirmed. Those that come in during an operation go out
/// together in the next one. Failed ones are repeated unchanged, which is harmless (G8).
#[derive(Debug)]
pub(super) struct Settles {
    waiting: VecDeque<Settlement>,
    under_way: usize,
    /// After a failure: no earlier than this.
    retry_at: Option<Moment>,
    pauses: Pauses,
}

impl Settles {
    pub(super) const fn new() -> Self {
        Self {
            waiting: VecDeque::new(),
            under_way: 0,
            retry_at: None,
            pauses: Pauses::of_failures(),
        }
    }

    pub(super) fn push(&mut self, settlement: Settlement) {
        self.waiting.push_back(settlement);
    }

    /// The number of unconfirmed settlements.
    pub(super) fn len(&self) -> usize {
        self.waiting.len().saturating_add(self.under_way)
    }

    /// Whether the latest attempt failed. Nothing new should be claimed then.
    pub(super) const fn is_failing(&self) -> bool {
        self.retry_at.is_some()
    }

    /// When a batch should be sent.
    pub(super) fn next(&self) -> Option<Moment> {
        let can_be_sent = self.under_way == 0 && !self.waiting.is_empty();
        can_be_sent.then(|| self.retry_at.unwrap_or(Moment::START))
    }

    /// Returns the batch to send, if it is time. It stops before an id that it already contains.
    pub(super) fn send(&mut self, now: Moment) -> Option<Vec<Settlement>> {
        if self.next().is_none_or(|next| now < next) {
            return None;
        }
        let mut ids = HashSet::new();
        let fits = self.waiting.iter().take(MAX_BATCH).take_while(|item| ids.insert(&item.id));
        self.under_way = fits.count();
        Some(self.waiting.drain(..self.under_way).collect())
    }

    /// Returns how soon a settled message is due again, if one is.
    pub(super) fn settled(
        &mut self,
        items: &[Settlement],
        settled: Vec<Settled>,
        summary: &mut Summary,
    ) -> Option<Duration> {
        self.confirmed();
        let pairs = items.iter().zip(settled);
        pairs.filter_map(|(item, settled)| summary.note(item, settled)).min().map(Duration::from)
    }

    /// The batch can never be settled: waiting does not make a settlement valid.
    pub(super) const fn refused(&mut self) {
        self.confirmed();
    }

    pub(super) fn failed(&mut self, now: Moment, items: Vec<Settlement>, dice: &mut Dice) {
        self.under_way = 0;
        items.into_iter().rev().for_each(|item| self.waiting.push_front(item));
        self.retry_at = Some(now.after(self.pauses.next(dice)));
    }

    const fn confirmed(&mut self) {
        self.under_way = 0;
        self.retry_at = None;
        self.pauses.reset();
    }
}
