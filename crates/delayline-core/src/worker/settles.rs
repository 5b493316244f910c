//! Settlements: the results of handlers, on their way to the queue.

use std::collections::{HashSet, VecDeque};
use std::time::Duration;

use super::plan::FAILURES;
use super::rng::Rng;
use super::{Moment, Summary};
use crate::limits::{MAX_BATCH, MAX_BATCH_BYTES};
use crate::{
    Backoff, Enqueued, Error, ErrorClass, ErrorKind, HandOff, HandedOff, Lease, MessageId,
    NewMessage, Outcome, Settled, Settlement, Timestamp,
};

/// Settlements, or hand-offs, that the queue has not confirmed. Those that come in during an
/// operation go out together in the next one. Failed ones are repeated with the same outcome, which
/// is harmless (G8, G31).
#[derive(Debug)]
pub(super) struct Settles<T> {
    waiting: VecDeque<T>,
    /// The items of failed operations, if parts of the queue can fail alone: only some items may
    /// have failed. They are repeated one by one, and more at a time while that succeeds.
    suspects: VecDeque<T>,
    /// How many suspects are repeated together.
    together: usize,
    /// The suspects that failed alone. One of them is tried after each pause.
    failing: VecDeque<T>,
    failing_at: Moment,
    /// What the latest operation was of.
    latest: Source,
    has_parts: bool,
    under_way: usize,
    /// The leases of settlements that may have been executed without a reply.
    perhaps_done: HashSet<(MessageId, Lease)>,
    /// About how much memory the unconfirmed ones take.
    bytes: usize,
    /// After a failure: no earlier than this.
    retry_at: Option<Moment>,
    /// Whether the server, or its disk, had no room for the latest ones.
    is_full: bool,
    backoff: Backoff,
}

/// A settlement, with or without messages that follow and a result.
pub(super) trait Settling {
    /// Whether it can make a queue larger. On a full disk, only what does not may use the reserve.
    const GROWS: bool;

    fn settlement(&self) -> &Settlement;
    fn messages(&self) -> &[NewMessage];
    fn result_bytes(&self) -> usize;

    fn settlement_mut(&mut self) -> &mut Settlement;

    /// The size of the messages, of the result and of the save.
    fn bytes(&self) -> usize {
        let messages = self.messages().iter().map(NewMessage::content_bytes);
        let saved = self.settlement().save_bytes();
        messages.sum::<usize>().saturating_add(self.result_bytes()).saturating_add(saved)
    }
}

impl Settling for Settlement {
    const GROWS: bool = false;

    fn settlement(&self) -> &Settlement {
        self
    }

    fn settlement_mut(&mut self) -> &mut Settlement {
        self
    }

    fn messages(&self) -> &[NewMessage] {
        &[]
    }

    fn result_bytes(&self) -> usize {
        0
    }
}

impl Settling for HandOff {
    const GROWS: bool = true;

    fn settlement(&self) -> &Settlement {
        &self.settlement
    }

    fn settlement_mut(&mut self) -> &mut Settlement {
        &mut self.settlement
    }

    fn messages(&self) -> &[NewMessage] {
        &self.messages
    }

    fn result_bytes(&self) -> usize {
        self.result.as_ref().map_or(0, |result| result.bytes.len())
    }
}

impl<T: Settling> Settles<T> {
    pub(super) fn new(has_parts: bool) -> Self {
        Self {
            waiting: VecDeque::new(),
            suspects: VecDeque::new(),
            together: 1,
            failing: VecDeque::new(),
            failing_at: Moment::START,
            latest: Source::Waiting,
            has_parts,
            under_way: 0,
            perhaps_done: HashSet::new(),
            bytes: 0,
            retry_at: None,
            is_full: false,
            backoff: FAILURES,
        }
    }

    pub(super) fn push(&mut self, item: T) {
        self.bytes = self.bytes.saturating_add(ITEM_BYTES.saturating_add(item.bytes()));
        self.waiting.push_back(item);
    }

    /// The number of unconfirmed settlements.
    pub(super) fn len(&self) -> usize {
        self.waiting.len() + self.suspects.len() + self.failing.len() + self.under_way
    }

    /// The number of unconfirmed settlements that hold up new claims. Settlements that a full
    /// server refuses do not: the acks of other messages give it room. But this worker's memory is
    /// limited, too.
    pub(super) fn backlog(&self) -> usize {
        if self.is_full && self.bytes <= MAX_REFUSED_BYTES { 0 } else { self.len() }
    }

    /// Whether the latest attempt failed, and not for lack of room: then other settlements would
    /// fail as well. A full server takes them, and they give room back. If parts of the queue can
    /// fail alone, none of them fails others.
    pub(super) const fn is_failing(&self) -> bool {
        self.retry_at.is_some() && !self.is_full
    }

    /// When a batch should be sent.
    pub(super) fn next(&self) -> Option<Moment> {
        let waiting = (!self.waiting.is_empty()).then(|| self.retry_at.unwrap_or(Moment::START));
        let suspects = (!self.suspects.is_empty()).then_some(Moment::START);
        let failing = (!self.failing.is_empty()).then_some(self.failing_at);
        let all = [waiting, suspects, failing].into_iter().flatten();
        all.min().filter(|_| self.under_way == 0)
    }

    /// Returns the batch to send, if it is time.
    pub(super) fn send(&mut self, now: Moment) -> Option<Vec<T>> {
        if self.next().is_none_or(|next| now < next) {
            return None;
        }
        let mut batch = Batch::default();
        let others = !self.waiting.is_empty() && self.retry_at.is_none_or(|at| at <= now);
        let fails = !self.failing.is_empty() && self.failing_at <= now;
        let is_their_turn = !others || self.latest == Source::Waiting;
        if is_their_turn && !self.suspects.is_empty() {
            self.latest = Source::Suspects;
            let some = self.suspects.iter().take(self.together);
            self.under_way = some.take_while(|item| batch.takes(*item)).count();
            return Some(self.suspects.drain(..self.under_way).collect());
        }
        if is_their_turn && fails {
            self.latest = Source::Failing;
            self.under_way = 1;
            return self.failing.pop_front().map(|item| vec![item]);
        }
        self.latest = Source::Waiting;
        self.under_way = self.waiting.iter().take_while(|item| batch.takes(*item)).count();
        Some(self.waiting.drain(..self.under_way).collect())
    }

    /// Returns how soon a settled message is due again, or one that follows is due, if any is.
    /// Notes in `late` the settlements whose leases were no longer the current ones.
    pub(super) fn settled(
        &mut self,
        at: Timestamp,
        items: &[T],
        answers: Vec<HandedOff>,
        summary: &mut Summary,
        late: &mut Vec<(MessageId, Lease, bool)>,
    ) -> Option<Duration> {
        let perhaps_done: Vec<_> = items.iter().map(|item| self.is_perhaps_done(item)).collect();
        self.confirmed(items);
        let pairs = items.iter().zip(perhaps_done).zip(answers);
        let soonest = pairs.filter_map(|((item, perhaps_done), answer)| {
            let HandedOff { settled, messages, .. } = answer;
            let Settlement { id, lease, outcome, .. } = item.settlement();
            // An ack is remembered: a message that is still there was not acked.
            let perhaps_done =
                perhaps_done && !(*outcome == Outcome::Ack && settled == Settled::Stale);
            if matches!(settled, Settled::Stale | Settled::Missing) {
                late.push((id.clone(), *lease, perhaps_done));
            }
            let again = summary.note(item.settlement(), perhaps_done, settled);
            let again = again.map(|schedule| schedule.instant(at).since(at));
            let following = messages.into_iter().filter_map(|message| match message {
                Enqueued::Created { due } => Some(due.since(at)),
                _ => None,
            });
            following.chain(again).min()
        });
        soonest.min()
    }

    /// The batch can never be settled: waiting does not make a settlement valid.
    pub(super) fn refused(&mut self, items: &[T]) {
        self.confirmed(items);
    }

    pub(super) fn failed(
        &mut self,
        now: Moment,
        mut items: Vec<T>,
        error: Option<&Error>,
        rng: &mut Rng,
    ) {
        self.under_way = 0;
        if error.is_none_or(|error| error.class() == ErrorClass::Ambiguous) {
            let leases = items.iter().map(|item| lease_of(item.settlement()));
            self.perhaps_done.extend(leases);
        }
        self.is_full = error.is_some_and(|error| match error.kind() {
            ErrorKind::OutOfMemory => true,
            // For other settlements, even the reserve is used up.
            ErrorKind::DiskFull => T::GROWS,
            _ => false,
        });
        let retry_at = now.after(self.backoff.next(rng.chance()));
        // The next attempt decides again: the worker may claim no more by then.
        items.iter_mut().for_each(|item| item.settlement_mut().claims_next = false);
        if self.has_parts {
            self.together = 1;
            if items.len() > 1 {
                self.suspects.extend(items);
            } else {
                self.failing.extend(items);
                self.failing_at = retry_at;
            }
            return;
        }
        items.into_iter().rev().for_each(|item| self.waiting.push_front(item));
        self.retry_at = Some(retry_at);
    }

    fn is_perhaps_done(&self, item: &T) -> bool {
        !self.perhaps_done.is_empty() && self.perhaps_done.contains(&lease_of(item.settlement()))
    }

    fn confirmed(&mut self, items: &[T]) {
        if !self.perhaps_done.is_empty() {
            for item in items {
                self.perhaps_done.remove(&lease_of(item.settlement()));
            }
        }
        let bytes = items.iter().map(|item| ITEM_BYTES.saturating_add(item.bytes()));
        self.bytes = self.bytes.saturating_sub(bytes.sum());
        self.under_way = 0;
        self.retry_at = None;
        self.is_full &= !self.failing.is_empty();
        match self.latest {
            Source::Waiting => {}
            Source::Suspects => self.together = self.together.saturating_mul(2),
            // That part works again.
            Source::Failing => self.suspects.append(&mut self.failing),
        }
        if self.failing.is_empty() {
            self.backoff.reset();
        }
    }
}

/// What an operation is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    Waiting,
    Suspects,
    Failing,
}

fn lease_of(settlement: &Settlement) -> (MessageId, Lease) {
    (settlement.id.clone(), settlement.lease)
}

/// What one operation can hold. It takes one item in any case.
#[derive(Default)]
struct Batch<'a> {
    ids: HashSet<&'a MessageId>,
    bytes: usize,
}

impl<'a> Batch<'a> {
    fn takes(&mut self, item: &'a impl Settling) -> bool {
        let is_first = self.ids.is_empty();
        let before = self.ids.len();
        self.ids.insert(&item.settlement().id);
        self.ids.extend(item.messages().iter().map(|message| &message.id));
        self.bytes += item.bytes();
        let has_room = self.ids.len() <= MAX_BATCH && self.bytes <= MAX_BATCH_BYTES;
        let are_new = self.ids.len() == before + 1 + item.messages().len();
        is_first || has_room && are_new
    }
}

/// What an item takes besides messages and result.
const ITEM_BYTES: usize = 512;
/// What a queue's items take at most that a full server has refused, before claims stop.
const MAX_REFUSED_BYTES: usize = 64 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ClaimId;

    fn id(text: &str) -> MessageId {
        MessageId::try_from(text).unwrap()
    }

    fn item(name: &str, messages: Vec<NewMessage>) -> HandOff {
        let lease = Lease { claim_id: ClaimId::from_bytes([0; 16]), epoch: 1 };
        HandOff::new(Settlement::new(id(name), lease, Outcome::Ack), messages)
    }

    fn message(name: &str) -> NewMessage {
        NewMessage::new(id(name), "")
    }

    /// The names in each batch, while all are answered.
    fn batches(items: Vec<HandOff>) -> Vec<Vec<String>> {
        let mut settles = Settles::new(false);
        items.into_iter().for_each(|item| settles.push(item));
        let mut batches = Vec::new();
        while let Some(batch) = settles.send(Moment::START) {
            batches.push(batch.iter().map(|item| item.settlement.id.to_string()).collect());
            settles.refused(&batch);
        }
        assert_eq!(settles.len(), 0);
        batches
    }

    #[test]
    fn no_id_is_twice_in_a_batch() {
        let items = vec![
            item("a", vec![message("x")]),
            item("b", vec![message("x")]),
            item("x", vec![message("y")]),
            item("y", vec![message("a")]),
        ];
        assert_eq!(batches(items), [["a"], ["b"], ["x"], ["y"]]);
    }

    #[test]
    fn a_repeated_settlement_announces_no_claim() {
        let (mut rng, mut settles) = (Rng::new([0; 16]), Settles::new(false));
        let mut first = item("a", Vec::new());
        first.settlement.claims_next = true;
        settles.push(first);
        let batch = settles.send(Moment::START).unwrap();
        assert!(batch[0].settlement.claims_next);
        settles.failed(Moment::START, batch, None, &mut rng);
        let batch = settles.send(Moment::START.after(Duration::from_secs(10))).unwrap();
        assert!(!batch[0].settlement.claims_next);
    }

    #[test]
    fn what_a_full_server_refuses_holds_up_claims_only_when_it_takes_much_memory() {
        let (mut rng, full) = (Rng::new([0; 16]), Error::new(ErrorKind::OutOfMemory));
        let mut settles = Settles::new(false);
        let push = |settles: &mut Settles<HandOff>, n: usize| {
            let following = NewMessage::new(id(&format!("next-{n}")), vec![0; 1_000_000]);
            settles.push(item(&n.to_string(), vec![following]));
        };
        (0..67).for_each(|n| push(&mut settles, n));
        assert_eq!(settles.backlog(), 67);
        let batch = settles.send(Moment::START).unwrap();
        settles.failed(Moment::START, batch, Some(&full), &mut rng);
        assert_eq!((settles.len(), settles.backlog()), (67, 0));
        push(&mut settles, 67);
        assert_eq!(settles.backlog(), 68);
        // The next attempt is accepted.
        let batch = settles.send(Moment::START.after(Duration::from_secs(1))).unwrap();
        settles.refused(&batch);
        assert_eq!(settles.backlog(), settles.len());
        while let Some(batch) = settles.send(Moment::START) {
            settles.refused(&batch);
        }
        assert_eq!((settles.len(), settles.bytes), (0, 0));
    }

    #[test]
    fn only_what_makes_a_queue_larger_fails_alone_on_a_full_disk() {
        fn is_failing<T: Settling>(item: T) -> bool {
            let (mut rng, full) = (Rng::new([0; 16]), Error::new(ErrorKind::DiskFull));
            let mut settles = Settles::new(false);
            settles.push(item);
            let batch = settles.send(Moment::START).unwrap();
            settles.failed(Moment::START, batch, Some(&full), &mut rng);
            assert_eq!(settles.backlog() > 0, settles.is_failing());
            settles.is_failing()
        }
        let ack = item("a", Vec::new()).settlement;
        assert_eq!((is_failing(item("a", vec![message("b")])), is_failing(ack)), (false, true));
    }

    #[test]
    fn settlements_for_a_part_that_is_away_hold_up_no_others() {
        let (mut rng, away) = (Rng::new([0; 16]), Error::new(ErrorKind::Unreachable));
        let mut settles = Settles::new(true);
        ["a", "away", "b"].iter().for_each(|name| settles.push(item(name, Vec::new())));
        let (mut now, mut done) = (Moment::START, Vec::new());
        for round in 0..30 {
            if round == 20 {
                settles.push(item("c", Vec::new()));
            }
            now = now.max(settles.next().unwrap());
            let batch = settles.send(now).unwrap();
            if batch.iter().any(|item| item.settlement.id == id("away")) {
                settles.failed(now, batch, Some(&away), &mut rng);
            } else {
                done.extend(batch.iter().map(|item| item.settlement.id.to_string()));
                settles.refused(&batch);
            }
            assert!(!settles.is_failing());
        }
        assert_eq!((done, settles.len()), (["a", "b", "c"].map(str::to_owned).to_vec(), 1));
        assert!(now >= Moment::START.after(Duration::from_secs(1)), "it is tried again in a loop");
    }

    #[test]
    fn many_settlements_for_a_part_that_is_away_are_tried_as_rarely_as_one() {
        let (mut rng, away) = (Rng::new([0; 16]), Error::new(ErrorKind::Unreachable));
        let mut settles = Settles::new(true);
        (0..100).for_each(|n| settles.push(item(&n.to_string(), Vec::new())));
        let (mut now, mut tries) = (Moment::START, 0);
        while now < Moment::START.after(Duration::from_secs(60)) {
            now = now.max(settles.next().unwrap());
            let batch = settles.send(now).unwrap();
            settles.failed(now, batch, Some(&away), &mut rng);
            tries += 1;
        }
        // Each alone once, and then one after each pause.
        assert!(tries < 200, "{tries}");
        while let Some(next) = settles.next() {
            now = now.max(next);
            let batch = settles.send(now).unwrap();
            settles.refused(&batch);
            tries += 1;
        }
        assert!(settles.len() == 0 && tries < 210, "{tries}");
    }

    #[test]
    fn batches_are_within_the_limits() {
        let many =
            |name: &str| item(name, (0..100).map(|n| message(&format!("{name}-{n}"))).collect());
        let sizes: Vec<_> = batches((0..25).map(|n| many(&n.to_string())).collect());
        assert_eq!(sizes.iter().map(Vec::len).collect::<Vec<_>>(), [9, 9, 7]);
        let large = |name: &str| {
            let payload = vec![0; 1_000_000];
            item(name, vec![NewMessage::new(id(&format!("next-{name}")), payload)])
        };
        let sizes = batches(["a", "b", "c", "d", "e"].map(large).to_vec());
        assert_eq!(sizes.iter().map(Vec::len).collect::<Vec<_>>(), [3, 2]);
    }
}
