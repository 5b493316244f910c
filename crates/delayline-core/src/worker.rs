//! The worker as a state machine, which decides what to claim, extend, settle, start and cancel,
//! and when.
//!
//! It does no I/O, reads no clock and generates no random numbers: a driver reports events
//! (`handle_*`), and performs the actions that [`Machine::poll`] returns. So tests of slots,
//! heartbeats, pauses and shutdown need not wait.

mod action;
mod bell;
mod claims;
mod emptiness;
mod lane;
mod lanes;
mod leases;
mod moment;
mod plan;
mod rng;
mod saving;
mod settles;
mod stage;
mod summary;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;

pub use self::action::{Action, CancelReason, Slot};
use self::claims::Leased;
use self::emptiness::EmptinessCheck;
use self::lane::{Lane, Need, Totals};
use self::lanes::Lanes;
use self::leases::LeaseState;
pub use self::moment::Moment;
pub use self::plan::{Plan, QueuePlan};
use self::rng::Rng;
use self::settles::{Settles, Settling};
use self::stage::Stage;
pub use self::stage::{AFTER_TOKENS, LAST_SETTLEMENTS};
pub use self::summary::Summary;
use self::summary::count;
use crate::{
    Applied, Claimed, Error, ErrorClass, ErrorKind, HandOff, HandedOff, Hold, MessageId,
    MessageState, NewMessage, NewResult, Op, Outcome, Progress, Reply, Settlement, Stats,
    Timestamp,
};

/// The state machine of a worker on one or several queues.
///
/// # Driving
///
/// - After every `handle_*` call, and at [`wake_at`](Self::wake_at), call [`poll`](Self::poll)
///   until it returns `None`, and perform each action. The worker has ended once
///   [`is_over`](Self::is_over) returns `true`.
/// - Report the result of each [`Action`] exactly once. A call that never returns blocks its queue.
/// - `now` must never decrease.
///
/// Reports about queues or handlers that the machine does not know are ignored.
///
/// # Behaviour
///
/// - Handlers plus the messages that open claims may return never exceed the slots. Only if a claim
///   has been open for longer than usual, other queues borrow its slots. Messages that it then
///   returns beyond the free slots are released (G10).
/// - Each queue has at most one claim, settlement, hand-off, extension and count in progress at a
///   time.
/// - Failed operations are repeated after a pause of 100 ms to 2 s; a claim that may have been
///   executed keeps its id (G16).
/// - Once stopped, the worker ends within the sum of the grace period, [`AFTER_TOKENS`] and
///   [`LAST_SETTLEMENTS`], even if the queues do not respond.
#[derive(Debug)]
pub struct Machine {
    slots: usize,
    /// Set if the worker ends once all queues are empty.
    emptiness: Option<EmptinessCheck>,
    longest_wait: Duration,
    lanes: Lanes,
    next_slot: u64,
    /// The lowest `served` of a queue that is never idle.
    least_served: u64,
    stage: Stage,
    todo: VecDeque<Action>,
    rng: Rng,
    summary: Summary,
}

impl Machine {
    /// Creates a machine that starts at once. Claim ids and the spread of pauses are derived
    /// from `seed`. Its first half is the [`ProcessId`](crate::ProcessId), which all machines of a
    /// process share; its second half must be fresh random bits.
    #[must_use]
    pub fn new(plan: Plan, seed: [u8; 16]) -> Self {
        let (longest_poll, longest_wait) = (plan.longest_poll(), plan.longest_wait());
        let lanes = plan.queues.into_iter().map(|queue| Lane::new(queue, plan.slots, longest_poll));
        let lanes = Lanes::new(lanes.collect());
        Self {
            slots: plan.slots,
            emptiness: plan.until_empty.then(|| EmptinessCheck::new(lanes.len())),
            longest_wait,
            lanes,
            next_slot: 0,
            least_served: 0,
            stage: Stage::Working,
            todo: VecDeque::new(),
            rng: Rng::new(seed),
            summary: Summary::default(),
        }
    }

    /// Reports that a requested operation has returned or failed.
    pub fn handle_answer(
        &mut self,
        now: Moment,
        queue: usize,
        op: Op,
        result: Result<Applied, Error>,
    ) {
        let Self { lanes, todo, rng, .. } = self;
        let class = result.as_ref().map_or_else(Error::class, |_| ErrorClass::Ambiguous);
        match (op, result) {
            (Op::Claim(_), Ok(Applied { at, micros, reply: Reply::Claim(claimed), .. })) => {
                self.claimed(now, queue, (at, micros), claimed);
            }
            (Op::Claim(claim), _) => {
                lanes.change(queue, |lane| lane.claim_failed(now, claim, class, rng));
            }
            (Op::Settle(items), result) => {
                let answers = result.map(|Applied { at, reply, .. }| match reply {
                    Reply::Settle(all) => (at, all.into_iter().map(HandedOff::from).collect()),
                    _ => (at, Vec::new()),
                });
                self.settled(now, queue, Lane::settles, items, answers);
            }
            (Op::HandOff(items), result) => {
                let answers = result.map(|Applied { at, reply, .. }| match reply {
                    Reply::HandOff(all) => (at, all),
                    _ => (at, Vec::new()),
                });
                self.settled(now, queue, Lane::hand_offs, items, answers);
            }
            (Op::Extend(_), Ok(Applied { reply: Reply::Extend(items), .. })) => {
                lanes.change(queue, |lane| lane.leases.extended(items, todo));
            }
            (Op::Extend(_), _) => {
                lanes.change(queue, |lane| lane.leases.failed(now, rng));
            }
            (Op::Stats, result) => self.counted(now, queue, result),
            _ => {}
        }
    }

    /// Reports that a wait for a hint has ended, and whether a hint arrived.
    pub fn handle_waited(&mut self, now: Moment, queue: usize, result: &Result<bool, Error>) {
        let rng = &mut self.rng;
        self.lanes.change(queue, |lane| {
            lane.bell.waited(now, result, rng);
            if matches!(result, Ok(true)) {
                lane.claims.hurry(now);
            }
        });
    }

    /// Reports that a worker of this process polled the queue at `moment` and left nothing due, so
    /// that this worker can poll later. This reduces the calls of idle processes; drivers need not
    /// report it. Reporting this machine's own poll changes nothing if `moment` is the one at which
    /// its reply was reported.
    pub fn handle_looked(&mut self, moment: Moment, queue: usize) {
        let rng = &mut self.rng;
        self.lanes.change(queue, |lane| lane.claims.looked(moment, rng));
    }

    /// Reports that a message was cancelled while it was leased, so that its handler need not wait
    /// for the next renewal of its lease. Drivers need not report it. It may be late or wrong: only
    /// the reply to the extension counts.
    pub fn handle_cancel(&mut self, queue: usize, id: &MessageId) {
        self.lanes.change(queue, |lane| lane.leases.ask(id));
    }

    /// Reports that a hint was passed on, or that this failed.
    pub fn handle_rung(&mut self, queue: usize) {
        self.lanes.change(queue, |lane| lane.bell.ringing = false);
    }

    /// Reports that a handler saves something with its message (G40): a missing part stays as it
    /// was. Saves are merged: the extension that stores them comes at most once a second. The last
    /// one is stored at the latest with the settlement.
    pub fn handle_saved(
        &mut self,
        slot: Slot,
        progress: Option<Progress>,
        checkpoint: Option<Bytes>,
    ) {
        self.lanes.change(slot.queue, |lane| lane.leases.save(slot, progress, checkpoint));
    }

    /// Reports that a handler has ended, with the parts of its [`HandOff`]: the messages to send,
    /// the result of an ack, and the end of a hold.
    pub fn handle_finished(
        &mut self,
        slot: Slot,
        outcome: Outcome,
        messages: Vec<NewMessage>,
        result: Option<NewResult>,
        hold: Option<Hold>,
    ) {
        let gone = self.lanes.change(slot.queue, |lane| {
            let held = lane.leases.remove(slot)?;
            let gone = held.state == LeaseState::Lost;
            if !gone {
                let save = held.unsaved().filter(|_| outcome != Outcome::Ack);
                let settlement = Settlement::new(held.id.clone(), held.lease, outcome);
                let settlement = settlement.hold(hold).save(save);
                lane.finish(held, HandOff { settlement, messages, result });
            }
            Some(gone)
        });
        if gone.flatten() == Some(true) {
            self.summary.lost = self.summary.lost.saturating_add(1);
            self.something_happened();
        }
    }

    /// Stops the worker: it claims nothing more, and handlers may run until `deadline`. If called
    /// several times, the earliest deadline counts.
    pub fn handle_stop(&mut self, deadline: Moment) {
        match &mut self.stage {
            Stage::Working => {
                self.stage = Stage::Draining { until: deadline };
                // The queues count on this worker, so they wake no other one.
                self.lanes.change_all(|lane| lane.bell.hint |= lane.claims.promised);
            }
            Stage::Draining { until } => *until = deadline.min(*until),
            Stage::Cancelling { .. } | Stage::Ending { .. } => {}
        }
    }

    /// Returns the next action, or `None` if there is nothing to do until the next report, or until
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

    /// Returns when to call [`poll`](Self::poll) again if there is no report before.
    #[must_use]
    pub fn wake_at(&self) -> Option<Moment> {
        let lanes = &self.lanes;
        let always = [Need::Upkeep, Need::Resend, Need::Lend, Need::HandOn];
        let always = always.map(|need| lanes.next(need));
        let by_room = if self.room() > 0 {
            [lanes.next_claim(), lanes.next(Need::Wait)]
        } else if self.is_full() {
            [lanes.next(Need::HandOnIfFull), None]
        } else {
            [None, None]
        };
        let sort = lanes.next(Need::Sort).filter(|_| self.stage.is_working());
        let times = always.into_iter().chain(by_room).chain([sort]).flatten();
        times.chain(self.stage.until()).min()
    }

    /// Returns `true` if everything is done, or the time for it has ended.
    #[must_use]
    pub fn is_over(&self, now: Moment) -> bool {
        let Stage::Ending { until } = self.stage else { return false };
        let quiet = |lane: &Lane| !lane.claims.is_open() && !lane.bell.hint && !lane.bell.ringing;
        let is_idle = || self.todo.is_empty() && self.lanes.is_idle();
        now >= until || is_idle() && self.lanes.iter().all(quiet)
    }

    /// Returns a summary of the work so far. Messages that are not settled yet count as unsettled.
    #[must_use]
    pub fn summary(&self) -> Summary {
        let Totals { handlers, unsettled, .. } = self.lanes.totals();
        Summary { unsettled: count(handlers.saturating_add(unsettled)), ..self.summary }
    }

    fn claimed(
        &mut self,
        now: Moment,
        queue: usize,
        (at, micros): (Timestamp, u16),
        claimed: Claimed,
    ) {
        let Self { lanes, rng, stage, emptiness, .. } = self;
        if let Some(emptiness) = emptiness {
            emptiness.ask_again(queue);
        }
        let answered = lanes.change(queue, |lane| {
            let leased = lane.claims.answered(now, (at, micros), &claimed, rng);
            lane.bell.used = false;
            lane.bell.hint |= lane.claims.promised && !stage.is_working();
            leased
        });
        let Some(Leased { since, lasting, run_out }) = answered else { return };
        if claimed.deliveries.is_empty() {
            return;
        }
        // Other queues may have borrowed its slots.
        let startable = if run_out { 0 } else { self.room().min(claimed.deliveries.len()) };
        let Self { lanes, todo, next_slot, least_served, .. } = self;
        if run_out {
            let ids = claimed.deliveries.iter().map(|one| one.message.info.id.clone());
            let (ids, round_trip) = (ids.collect(), now.since(since));
            todo.push_back(Action::LateClaim { queue, at, ids, lease: lasting, round_trip });
        }
        lanes.change(queue, |lane| {
            let before = lane.served.max(*least_served);
            lane.serve(count(startable), *least_served);
            *least_served = before;
            let mut deliveries = claimed.deliveries.into_iter();
            for delivery in deliveries.by_ref().take(startable) {
                let (id, lease) = (delivery.message.info.id.clone(), delivery.lease);
                // A lease may be older than its claim: a shard may have granted it to an earlier
                // one, whose reply was lost.
                let since = match delivery.message.info.state {
                    MessageState::Leased { deadline, .. } => {
                        let left = deadline.since(at);
                        let age = Duration::from(lasting).saturating_sub(left);
                        since.min(Moment::at(now.since_start().saturating_sub(age)))
                    }
                    _ => since,
                };
                *next_slot = next_slot.wrapping_add(1);
                let slot = Slot { queue, number: *next_slot };
                lane.leases.insert((slot, id, lease), (now, since), todo);
                let lateness = delivery.lateness(at);
                todo.push_back(Action::Start { slot, delivery: Box::new(delivery), lateness });
            }
            for delivery in deliveries {
                let (id, lease) = (delivery.message.info.id, delivery.lease);
                let settlement = Settlement::new(id, lease, Outcome::Release);
                lane.settle(HandOff::new(settlement, Vec::new()));
            }
        });
        self.something_happened();
    }

    /// Processes the replies to settlements or hand-offs, which are in `of` of their lane.
    fn settled<T: Settling>(
        &mut self,
        now: Moment,
        queue: usize,
        of: fn(&mut Lane) -> &mut Settles<T>,
        items: Vec<T>,
        answers: Result<(Timestamp, Vec<HandedOff>), Error>,
    ) {
        let Self { lanes, todo, rng, summary, .. } = self;
        match answers {
            Ok((at, answers)) if answers.len() == items.len() => {
                let mut late = Vec::new();
                lanes.change(queue, |lane| {
                    lane.leases.settled(items.iter().map(T::settlement));
                    let soon = of(lane).settled(at, &items, answers, summary, &mut late);
                    if let Some(soon) = soon {
                        lane.claims.hurry(now.after(soon));
                    }
                    // A claim that is open was sent behind the settlements.
                    if lane.claims.is_capped() && !lane.claims.is_open() {
                        lane.claims.hurry(now);
                    }
                });
                let late = late.into_iter().map(|(id, lease, perhaps_done)| Action::SettledLate {
                    queue,
                    id,
                    lease,
                    perhaps_done,
                });
                todo.extend(late);
                self.something_happened();
            }
            Err(error) if matches!(error.kind(), ErrorKind::Invalid(_)) => {
                summary.lost = summary.lost.saturating_add(count(items.len()));
                lanes.change(queue, |lane| {
                    lane.leases.settled(items.iter().map(T::settlement));
                    of(lane).refused(&items);
                });
            }
            answers => {
                let error = answers.err();
                lanes.change(queue, |lane| {
                    of(lane).failed(now, items, error.as_ref(), rng);
                });
            }
        }
    }

    fn counted(&mut self, now: Moment, queue: usize, result: Result<Applied, Error>) {
        let is_idle = self.lanes.is_idle();
        let Some(emptiness) = &mut self.emptiness else { return };
        let stats = match result {
            Ok(Applied { reply: Reply::Stats(stats), .. }) => Some(stats),
            _ => None,
        };
        let empty =
            |Stats { scheduled, ready, leased, .. }: &Stats| scheduled + ready + leased == 0;
        emptiness.answered(queue, is_idle && stats.as_deref().is_some_and(empty));
        if emptiness.all_empty() && self.stage.is_working() {
            self.stage = Stage::ending(now);
        }
    }

    /// A handler may have sent messages to any of the queues.
    const fn something_happened(&mut self) {
        if let Some(emptiness) = &mut self.emptiness {
            emptiness.something_happened();
        }
    }

    fn settle_and_extend(&mut self, now: Moment) {
        for queue in self.lanes.due(Need::Upkeep, now) {
            let Self { lanes, todo, rng, stage, .. } = self;
            let is_working = stage.is_working();
            let ops = lanes.change(queue, |lane| lane.send(now, is_working, rng, todo));
            let ops = ops.into_iter().flatten().flatten();
            todo.extend(ops.map(|op| Action::Send { queue, op }));
        }
    }

    /// Claims from the queue that was served least, up to its share of the free slots among the
    /// queues that need some. A repeated claim already has its slots, or has lent them.
    fn claim(&mut self, now: Moment) {
        let (room, resend) = (self.room(), self.lanes.due(Need::Resend, now));
        let found = match resend.first() {
            Some(queue) => Some((*queue, 0)),
            None if room == 0 => None,
            None => self.lanes.least_served(now, room),
        };
        let Self { lanes, todo, rng, stage, .. } = self;
        let claimed = if let Some((queue, share)) = found {
            Some((queue, lanes.change(queue, |lane| lane.claim(now, share, rng))))
        } else {
            let unsorted = lanes.due(Need::Sort, now).into_iter().next();
            let unsorted = unsorted.filter(|_| stage.is_working());
            unsorted.map(|queue| (queue, lanes.change(queue, |lane| lane.sort(now, rng))))
        };
        if let Some((queue, Some(claim))) = claimed {
            todo.push_back(Action::Send { queue, op: Op::Claim(claim) });
        }
    }

    /// While all slots are taken, a hint should wake another process instead.
    fn mind_the_bells(&mut self, now: Moment) {
        let (has_room, is_full) = (self.room() > 0, self.is_full());
        let Self { lanes, todo, rng, longest_wait, .. } = self;
        let mut hand_on = lanes.due(Need::HandOn, now);
        if is_full {
            hand_on.extend(lanes.due(Need::HandOnIfFull, now));
        }
        for queue in hand_on {
            lanes.change(queue, |lane| {
                lane.bell.hint = false;
                lane.claims.promised = false;
                lane.bell.ringing = true;
            });
            todo.push_back(Action::Ring { queue });
        }
        if !has_room {
            return;
        }
        for queue in lanes.due(Need::Wait, now) {
            lanes.change(queue, |lane| lane.bell.wait(now));
            todo.push_back(Action::Wait { queue, timeout: rng.nearly(*longest_wait) });
        }
    }

    fn ask_if_empty(&mut self) {
        // An open claim may still return messages.
        let is_quiet = self.lanes.is_idle() && self.lanes.totals().reserved == 0;
        let Some(emptiness) = &mut self.emptiness else { return };
        if is_quiet && self.stage.is_working() {
            let ask = |queue| Action::Send { queue, op: Op::Stats };
            self.todo.extend(emptiness.ask().into_iter().map(ask));
        }
    }

    /// Lends the slots of claims that have been open for too long, and starts the next stage of
    /// shutdown when it is time.
    fn advance(&mut self, now: Moment) {
        let Self { lanes, todo, .. } = self;
        for queue in lanes.due(Need::Lend, now) {
            lanes.change(queue, |lane| lane.claims.lend());
        }
        if let Stage::Draining { until } = self.stage
            && now >= until
        {
            lanes.change_all(|lane| lane.leases.cancel_all(CancelReason::Stopping, todo));
            self.stage = Stage::cancelling(now);
        }
        let no_handler = lanes.totals().handlers == 0;
        let over = match self.stage {
            Stage::Working | Stage::Ending { .. } => false,
            Stage::Draining { .. } => no_handler,
            Stage::Cancelling { until } => no_handler || now >= until,
        };
        if over {
            // A handler that blocks its thread cannot be ended, so the worker does not wait for it.
            let slots = lanes.iter().flat_map(|lane| lane.leases.slots());
            todo.extend(slots.map(|slot| Action::Abort { slot }));
            self.stage = Stage::ending(now);
        }
    }

    /// Whether no reply to a claim can make room.
    ///
    /// Slots that open claims have reserved are free soon, or lent. A hint that arrives meanwhile
    /// is used then. If it were handed on, this process would often be the one to hear it again.
    fn is_full(&self) -> bool {
        !self.stage.is_working() || self.lanes.totals().handlers >= self.slots
    }

    /// Slots without a handler that no open claim has reserved.
    fn room(&self) -> usize {
        if !self.stage.is_working() {
            return 0;
        }
        let Totals { handlers, reserved, .. } = self.lanes.totals();
        self.slots.saturating_sub(handlers.saturating_add(reserved))
    }
}
