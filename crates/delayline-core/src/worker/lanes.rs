//! All queues of a worker, and an index of what each needs and when.

use std::collections::BTreeSet;

use super::Moment;
use super::lane::{Lane, NEEDS, Need, Totals, share};

/// The queues of a worker. An event on one costs the same however many there are: needs are kept
/// in order of time, and totals over all queues are kept up to date.
#[derive(Debug)]
pub(super) struct Lanes {
    lanes: Vec<Lane>,
    /// What `agenda` and `totals` currently contain for each lane.
    known: Vec<Known>,
    agenda: [BTreeSet<(Moment, usize)>; NEEDS],
    totals: Totals,
    /// The queues whose time to claim has come, least served first.
    wanting: BTreeSet<(u64, usize)>,
    /// The sum of their weights.
    wanting_weight: u64,
    /// How many of them have a lower limit of handlers than the worker.
    wanting_limited: usize,
}

#[derive(Debug, Default)]
struct Known {
    needs: [Option<Moment>; NEEDS],
    totals: Totals,
    /// Its key among the queues that want to claim.
    wanting: Option<u64>,
}

impl Lanes {
    pub(super) fn new(lanes: Vec<Lane>) -> Self {
        let mut all = Self {
            known: lanes.iter().map(|_| Known::default()).collect(),
            lanes,
            agenda: Default::default(),
            totals: Totals::default(),
            wanting: BTreeSet::new(),
            wanting_weight: 0,
            wanting_limited: 0,
        };
        (0..all.len()).for_each(|queue| all.note(queue));
        all
    }

    pub(super) const fn len(&self) -> usize {
        self.lanes.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Lane> {
        self.lanes.iter()
    }

    /// Changes a queue, and updates the index.
    pub(super) fn change<R>(
        &mut self,
        queue: usize,
        change: impl FnOnce(&mut Lane) -> R,
    ) -> Option<R> {
        let result = change(self.lanes.get_mut(queue)?);
        self.note(queue);
        Some(result)
    }

    pub(super) fn change_all(&mut self, mut change: impl FnMut(&mut Lane)) {
        for queue in 0..self.len() {
            self.change(queue, &mut change);
        }
    }

    pub(super) const fn totals(&self) -> Totals {
        self.totals
    }

    /// Whether there are no handlers, and nothing to settle.
    pub(super) const fn is_idle(&self) -> bool {
        self.totals.handlers == 0 && self.totals.unsettled == 0
    }

    /// When the first of these needs is due.
    pub(super) fn next(&self, need: Need) -> Option<Moment> {
        let agenda = self.agenda.get(need as usize)?;
        agenda.first().map(|(moment, _)| *moment)
    }

    /// When to claim from a queue that has room.
    pub(super) fn next_claim(&self) -> Option<Moment> {
        if self.wanting.is_empty() { self.next(Need::Claim) } else { Some(Moment::START) }
    }

    /// Returns the queues whose need is due by `now`.
    pub(super) fn due(&self, need: Need, now: Moment) -> Vec<usize> {
        let agenda = self.agenda.get(need as usize).into_iter().flatten();
        agenda.take_while(|(moment, _)| *moment <= now).map(|(_, queue)| *queue).collect()
    }

    /// Returns the least served queue that wants to claim by `now`, and its share of `room` free
    /// slots.
    pub(super) fn least_served(&mut self, now: Moment, room: usize) -> Option<(usize, usize)> {
        for queue in self.due(Need::Claim, now) {
            self.want(queue);
        }
        let (_, queue) = *self.wanting.first()?;
        let lane = self.lanes.get(queue)?;
        if self.wanting_limited > 0 {
            let wanting = self.wanting.iter().filter_map(|(_, queue)| self.lanes.get(*queue));
            let wanting = wanting.map(|lane| (lane.weight, lane.room(room))).collect();
            return Some((queue, share(room, (lane.weight, lane.room(room)), wanting)));
        }
        // Each of them can use the whole room, unless its settlements pile up.
        let all = [(self.wanting_weight, room)].into();
        Some((queue, share(room, (lane.weight, room), all).min(lane.room(room))))
    }

    /// Notes that a queue's time to claim has come.
    fn want(&mut self, queue: usize) {
        let (Some(lane), Some(known)) = (self.lanes.get(queue), self.known.get_mut(queue)) else {
            return;
        };
        if known.wanting.is_none() {
            known.wanting = Some(lane.served);
            self.wanting.insert((lane.served, queue));
            self.wanting_weight += lane.weight;
            self.wanting_limited += usize::from(lane.is_limited());
        }
        let need = Need::Claim as usize;
        if let Some(moment) = known.needs.get_mut(need).and_then(Option::take) {
            self.agenda.get_mut(need).map(|agenda| agenda.remove(&(moment, queue)));
        }
    }

    /// Updates the knowledge about a queue.
    fn note(&mut self, queue: usize) {
        let among_others = self.len() > 1;
        let (Some(lane), Some(known)) = (self.lanes.get(queue), self.known.get_mut(queue)) else {
            return;
        };
        if let Some(served) = known.wanting.take() {
            self.wanting.remove(&(served, queue));
            self.wanting_weight -= lane.weight;
            self.wanting_limited -= usize::from(lane.is_limited());
        }
        let needs = lane.needs(among_others);
        for ((agenda, old), new) in self.agenda.iter_mut().zip(known.needs).zip(needs) {
            if old != new {
                old.map(|moment| agenda.remove(&(moment, queue)));
                new.map(|moment| agenda.insert((moment, queue)));
            }
        }
        known.needs = needs;
        let (old, new) = (known.totals, lane.totals());
        let Totals { handlers, reserved, unsettled } = &mut self.totals;
        *handlers = *handlers + new.handlers - old.handlers;
        *reserved = *reserved + new.reserved - old.reserved;
        *unsettled = *unsettled + new.unsettled - old.unsettled;
        known.totals = new;
    }

    /// Asserts that the index matches the queues.
    #[cfg(test)]
    pub(super) fn check(&self) {
        let mut wanting = (0, 0, 0);
        let mut totals = Totals::default();
        for (queue, (lane, known)) in self.lanes.iter().zip(&self.known).enumerate() {
            let mut needs = lane.needs(self.len() > 1);
            if known.wanting.is_some() {
                assert!(needs[Need::Claim as usize].take().is_some());
                assert!(self.wanting.contains(&(lane.served, queue)));
                wanting.0 += 1;
                wanting.1 += lane.weight;
                wanting.2 += usize::from(lane.is_limited());
            }
            assert_eq!(needs, known.needs);
            for (agenda, moment) in self.agenda.iter().zip(needs) {
                assert_eq!(agenda.iter().find(|(_, of)| *of == queue).map(|(at, _)| *at), moment);
            }
            let Totals { handlers, reserved, unsettled } = lane.totals();
            totals.handlers += handlers;
            totals.reserved += reserved;
            totals.unsettled += unsettled;
        }
        assert_eq!(totals, self.totals);
        let counted = (self.wanting.len(), self.wanting_weight, self.wanting_limited);
        assert_eq!(wanting, counted);
    }
}
