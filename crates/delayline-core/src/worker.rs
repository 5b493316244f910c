//! The worker as a machine: what to claim, prolong, settle, start and cancel, and when.
//!
//! It does no I/O, reads no clock, and makes no random number: a driver tells it what has happened
//! (`handle_*`), and does what it wants done ([`Machine::poll`]). So slots, heartbeats, pauses and
//! the end of a worker are tested without waiting.

mod action;
mod bell;
mod claims;
mod dice;
mod lane;
mod leases;
mod moment;
mod pauses;
mod plan;
mod settles;
mod stage;
mod summary;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::time::Duration;

pub use self::action::{Action, CancelReason, Slot};
use self::dice::Dice;
use self::lane::{Lane, share};
use self::leases::Grip;
pub use self::moment::Moment;
pub use self::plan::{Plan, QueuePlan};
use self::stage::Stage;
pub use self::stage::{AFTER_TOKENS, LAST_SETTLEMENTS};
pub use self::summary::Summary;
use self::summary::count;
use crate::{
    Applied, Claimed, Class, Error, ErrorKind, Op, Outcome, Reply, Settlement, Stats, Timestamp,
};

/// A worker at work on one or several queues.
///
/// # To drive it
///
/// - After every `handle_*` call, and at [`wake_at`](Self::wake_at), call [`poll`](Self::poll)
///   until it answers `None`, and do what it says. It is over when [`is_over`](Self::is_over).
/// - Report everything that an [`Action`] asks to be reported, once. A call that never ends holds
///   its queue up.
/// - `now` never steps back.
///
/// What is reported of queues and handlers that the machine does not know is ignored.
///
/// # Behaviour
///
/// - Handlers, and messages that open claims may bring, are never more than the slots.
/// - Of one queue's claims, settlements, extensions and counts one each is under way at a time.
/// - What fails is sent again after a pause of 100 ms to 2 s, a claim that may have been executed
///   under its own id (G16).
/// - Once stopped it is over within the grace, [`AFTER_TOKENS`] and [`LAST_SETTLEMENTS`], whatever
///   the queues answer.
#[derive(Debug)]
pub struct Machine {
    slots: usize,
    until_empty: bool,
    longest_wait: Duration,
    lanes: Vec<Lane>,
    next_slot: u64,
    /// What a queue that is never idle was served at least.
    least_served: u64,
    stage: Stage,
    todo: VecDeque<Action>,
    dice: Dice,
    summary: Summary,
}

impl Machine {
    /// A machine that begins to work at once. `seed` is 128 random bits, not used before: claim ids
    /// and the spread of pauses come from it.
    #[must_use]
    pub fn new(plan: Plan, seed: [u8; 16]) -> Self {
        let (longest_poll, longest_wait) = (plan.longest_poll(), plan.longest_wait());
        let lane = |queue| Lane::new(queue, longest_poll);
        Self {
            slots: plan.slots,
            until_empty: plan.until_empty,
            longest_wait,
            lanes: plan.queues.into_iter().map(lane).collect(),
            next_slot: 0,
            least_served: 0,
            stage: Stage::Working,
            todo: VecDeque::new(),
            dice: Dice::new(seed),
            summary: Summary::default(),
        }
    }

    /// An operation that was asked for has been answered, or has failed.
    pub fn handle_answer(
        &mut self,
        now: Moment,
        queue: usize,
        op: Op,
        result: Result<Applied, Error>,
    ) {
        let Self { lanes, todo, dice, summary, .. } = self;
        let Some(lane) = lanes.get_mut(queue) else { return };
        let class = result.as_ref().map_or_else(Error::class, |_| Class::Ambiguous);
        match (op, result) {
            (Op::Claim(_), Ok(Applied { at, reply: Reply::Claim(claimed), .. })) => {
                self.claimed(now, queue, at, claimed);
            }
            (Op::Claim(claim), _) => lane.claims.failed(now, claim, class, dice),
            (Op::Settle(items), Ok(Applied { reply: Reply::Settle(settled), .. }))
                if settled.len() == items.len() =>
            {
                if let Some(again) = lane.settles.settled(&items, settled, summary) {
                    lane.claims.hurry(now.after(again));
                }
                self.something_happened();
            }
            (Op::Settle(items), Err(error)) if matches!(error.kind(), ErrorKind::Invalid(_)) => {
                summary.lost = summary.lost.saturating_add(count(items.len()));
                lane.settles.refused();
            }
            (Op::Settle(items), _) => lane.settles.failed(now, items, dice),
            (Op::Extend(_), Ok(Applied { reply: Reply::Extend(items), .. })) => {
                lane.leases.extended(items, todo);
            }
            (Op::Extend(_), _) => lane.leases.failed(now, dice),
            (Op::Stats, result) => self.counted(now, queue, result),
            _ => {}
        }
    }

    /// A wait for a hint is over: whether one came.
    pub fn handle_waited(&mut self, now: Moment, queue: usize, result: &Result<bool, Error>) {
        let Some(lane) = self.lanes.get_mut(queue) else { return };
        lane.bell.waited(now, result, &mut self.dice);
        if matches!(result, Ok(true)) {
            lane.claims.hurry(now);
        }
    }

    /// Another worker of this process has looked at a queue at `moment` and left nothing that was
    /// due: this one's own look can wait for its turn. Of use to keep the calls of idle processes
    /// few; a driver need not report it.
    pub fn handle_looked(&mut self, moment: Moment, queue: usize) {
        if let Some(lane) = self.lanes.get_mut(queue) {
            lane.claims.looked(moment, &mut self.dice);
        }
    }

    /// A hint was handed on, or could not be.
    pub fn handle_rung(&mut self, queue: usize) {
        if let Some(lane) = self.lanes.get_mut(queue) {
            lane.bell.ringing = false;
        }
    }

    /// A handler has ended.
    pub fn handle_finished(&mut self, slot: Slot, outcome: Outcome) {
        let Some(lane) = self.lanes.get_mut(slot.queue) else { return };
        let Some(held) = lane.leases.remove(slot) else { return };
        if held.grip == Grip::Gone {
            self.summary.lost = self.summary.lost.saturating_add(1);
            self.something_happened();
        } else {
            lane.settles.push(Settlement { id: held.id, lease: held.lease, outcome });
        }
    }

    /// The worker is to stop: nothing more is claimed, and handlers may go on until `deadline`. Of
    /// several calls the earliest deadline counts.
    pub fn handle_stop(&mut self, deadline: Moment) {
        match &mut self.stage {
            Stage::Working => {
                self.stage = Stage::Draining { until: deadline };
                // The queues count on this worker to come, and wake nobody else.
                for lane in &mut self.lanes {
                    lane.bell.hint |= lane.claims.promised;
                }
            }
            Stage::Draining { until } => *until = deadline.min(*until),
            Stage::Cancelling { .. } | Stage::Ending { .. } => {}
        }
    }

    /// What is to be done next; `None` if there is nothing until something happens, or until
    /// [`wake_at`](Self::wake_at).
    pub fn poll(&mut self, now: Moment) -> Option<Action> {
        self.advance(now);
        if self.todo.is_empty() {
            self.settle_and_extend(now);
        }
        if self.todo.is_empty() {
            self.claim(now);
        }
        if self.todo.is_empty() {
            self.mind_the_bells(now);
        }
        if self.todo.is_empty() {
            self.ask_if_empty();
        }
        self.todo.pop_front()
    }

    /// When to call [`poll`](Self::poll) again if nothing happens before.
    #[must_use]
    pub fn wake_at(&self) -> Option<Moment> {
        let room = self.room();
        let of_lane = |lane: &Lane| {
            let has_room = lane.room(room) > 0;
            let claim = if lane.may_claim() { lane.claims.next(has_room) } else { None };
            let wait = if self.can_use_hint(lane) { lane.bell.next() } else { None };
            [claim, wait, lane.settles.next(), lane.leases.next(), self.handing_on_at(lane)]
        };
        let times = self.lanes.iter().flat_map(of_lane).flatten();
        times.chain(self.stage.until()).min()
    }

    /// Whether all is done, or the time for it is over.
    #[must_use]
    pub fn is_over(&self, now: Moment) -> bool {
        let Stage::Ending { until } = self.stage else { return false };
        let quiet = |lane: &Lane| !lane.claims.is_open() && !lane.bell.hint && !lane.bell.ringing;
        now >= until || self.todo.is_empty() && self.is_idle() && self.lanes.iter().all(quiet)
    }

    /// What was done so far; messages that are with handlers or not settled count as unsettled.
    #[must_use]
    pub fn summary(&self) -> Summary {
        let of_lane = |lane: &Lane| lane.settles.len().saturating_add(lane.leases.len());
        Summary { unsettled: count(self.lanes.iter().map(of_lane).sum()), ..self.summary }
    }

    fn claimed(&mut self, now: Moment, queue: usize, at: Timestamp, claimed: Claimed) {
        let Self { lanes, todo, dice, next_slot, least_served, stage, .. } = self;
        let Some(lane) = lanes.get_mut(queue) else { return };
        let since = lane.claims.answered(now, at, &claimed, dice);
        lane.census.ask = true;
        lane.bell.hint |= lane.claims.promised && !stage.is_working();
        if claimed.deliveries.is_empty() {
            return;
        }
        let before = lane.served.max(*least_served);
        lane.serve(count(claimed.deliveries.len()), *least_served);
        *least_served = before;
        for delivery in claimed.deliveries {
            let (id, lease) = (delivery.message.info.id.clone(), delivery.lease);
            if !stage.is_working() {
                lane.settles.push(Settlement { id, lease, outcome: Outcome::Release });
                continue;
            }
            *next_slot = next_slot.wrapping_add(1);
            let slot = Slot { queue, number: *next_slot };
            lane.leases.insert((slot, id, lease), (now, since), todo);
            let lateness = at.since(delivery.message.info.due);
            todo.push_back(Action::Start { slot, delivery: Box::new(delivery), lateness });
        }
        self.something_happened();
    }

    fn counted(&mut self, now: Moment, queue: usize, result: Result<Applied, Error>) {
        let is_idle = self.is_idle();
        let Some(lane) = self.lanes.get_mut(queue) else { return };
        lane.census.under_way = false;
        let Ok(Applied { reply: Reply::Stats(stats), .. }) = result else { return };
        let Stats { scheduled, ready, leased, .. } = stats;
        lane.census.empty = is_idle && scheduled == 0 && ready == 0 && leased == 0;
        if self.lanes.iter().all(|lane| lane.census.empty) && self.stage.is_working() {
            self.stage = Stage::ending(now);
        }
    }

    /// A handler may have sent messages to any of the queues.
    fn something_happened(&mut self) {
        for lane in &mut self.lanes {
            lane.census.ask = true;
            lane.census.empty = false;
        }
    }

    fn settle_and_extend(&mut self, now: Moment) {
        for (queue, lane) in self.lanes.iter_mut().enumerate() {
            if let Some(items) = lane.settles.send(now) {
                self.todo.push_back(Action::Send { queue, op: Op::Settle(items) });
            }
            if let Some(extend) = lane.leases.beat_at(now, &mut self.todo) {
                self.todo.push_back(Action::Send { queue, op: Op::Extend(extend) });
            }
        }
    }

    /// Claims for the queue that was served least, and no more than its share of the free slots
    /// among those that want some.
    fn claim(&mut self, now: Moment) {
        let room = self.room();
        if room > 0 && self.lanes.len() > 1 {
            // Others had the slots, and hints were not waited for.
            let unheard = self.lanes.iter_mut().filter(|lane| lane.bell.is_unheard(now));
            unheard.for_each(|lane| lane.claims.hurry_unheard());
        }
        let wants = |lane: &Lane| lane.wants_to_claim(now, room);
        let wanting = self.lanes.iter().filter(|lane| wants(lane));
        let wanting: Vec<_> = wanting.map(|lane| (lane.weight, lane.room(room))).collect();
        let least = self.least_served;
        let lanes = self.lanes.iter_mut().enumerate().filter(|(_, lane)| wants(lane));
        let Some((queue, lane)) = lanes.min_by_key(|(_, lane)| lane.served.max(least)) else {
            return;
        };
        let share = share(room, (lane.weight, lane.room(room)), wanting);
        let claim = lane.claims.send(now, share, &mut self.dice);
        lane.bell.hint = false;
        self.todo.push_back(Action::Send { queue, op: Op::Claim(claim) });
    }

    fn mind_the_bells(&mut self, now: Moment) {
        for queue in 0..self.lanes.len() {
            let Some(lane) = self.lanes.get(queue) else { continue };
            let useful = self.can_use_hint(lane);
            let hands_on = self.handing_on_at(lane).is_some_and(|at| now >= at);
            let waits = useful && lane.bell.next().is_some_and(|next| now >= next);
            let Some(lane) = self.lanes.get_mut(queue) else { continue };
            if hands_on {
                lane.bell.hint = false;
                lane.claims.promised = false;
                lane.bell.ringing = true;
                self.todo.push_back(Action::Ring { queue });
            } else if waits {
                lane.bell.wait(now);
                let timeout = self.dice.nearly(self.longest_wait);
                self.todo.push_back(Action::Wait { queue, timeout });
            }
        }
    }

    /// Whether a claim would follow a hint. While all slots are taken it had better wake another
    /// process.
    fn can_use_hint(&self, lane: &Lane) -> bool {
        lane.may_claim() && !lane.claims.is_failing() && lane.room(self.room()) > 0
    }

    /// When a hint, or what the queue expects of this worker, is to be handed on for want of room.
    fn handing_on_at(&self, lane: &Lane) -> Option<Moment> {
        // The answer to a claim may make room.
        if lane.bell.ringing || lane.claims.is_under_way() || self.can_use_hint(lane) {
            return None;
        }
        if lane.bell.hint {
            return Some(Moment::START);
        }
        if lane.claims.promised { lane.claims.next(true) } else { None }
    }

    fn ask_if_empty(&mut self) {
        if !self.until_empty || !self.stage.is_working() || !self.is_idle() {
            return;
        }
        for (queue, lane) in self.lanes.iter_mut().enumerate() {
            if lane.census.ask && !lane.census.under_way {
                lane.census.ask = false;
                lane.census.under_way = true;
                self.todo.push_back(Action::Send { queue, op: Op::Stats });
            }
        }
    }

    /// Goes on to the next stage of the end, if it is time.
    fn advance(&mut self, now: Moment) {
        if let Stage::Draining { until } = self.stage
            && now >= until
        {
            for lane in &mut self.lanes {
                lane.leases.cancel_all(CancelReason::Stopping, &mut self.todo);
            }
            self.stage = Stage::cancelling(now);
        }
        let no_handler = self.lanes.iter().all(|lane| lane.leases.len() == 0);
        let over = match self.stage {
            Stage::Working | Stage::Ending { .. } => false,
            Stage::Draining { .. } => no_handler,
            Stage::Cancelling { until } => no_handler || now >= until,
        };
        if over {
            // A handler that blocks its thread cannot be ended; nobody waits for it.
            for slot in self.lanes.iter().flat_map(|lane| lane.leases.slots()) {
                self.todo.push_back(Action::Abort { slot });
            }
            self.stage = Stage::ending(now);
        }
    }

    /// Free slots that may be claimed for. Settlements are let to pile up only so far.
    fn room(&self) -> usize {
        if !self.stage.is_working() {
            return 0;
        }
        let taken: usize = self.lanes.iter().map(Lane::taken).sum();
        let unsettled: usize = self.lanes.iter().map(|lane| lane.settles.len()).sum();
        let unsettled = unsettled.saturating_sub(self.slots);
        self.slots.saturating_sub(taken).saturating_sub(unsettled)
    }

    fn is_idle(&self) -> bool {
        self.lanes.iter().all(Lane::is_idle)
    }
}
