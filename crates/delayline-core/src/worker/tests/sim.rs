//! A worker, its queues and its handlers in one simulated time.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::num::NonZeroU16;
use std::time::Duration;

use super::super::*;
use crate::{
    ClaimId, ConsumerName, Delivery, Lease, MessageId, Millis, NewMessage, NewResult, Outcome,
    Schedule, State,
};

/// What happens to an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    None,
    /// Executed, but the reply is lost.
    LostReply,
    /// Not executed, and the caller gets no reply.
    LostRequest,
    /// Refused for now.
    Busy,
    /// Refused by a server that is out of memory.
    Full,
}

enum Event {
    Arrive(usize, Op),
    Answer(usize, Op, Result<Applied, Error>),
    Waited(usize, bool),
    Rung(usize),
    Finished(Slot, Outcome),
    Enqueue(usize, NewMessage),
    Stop(Moment),
}

pub(super) struct Handler {
    pub(super) id: MessageId,
    pub(super) lease: Lease,
    pub(super) cancelled: Option<(Moment, CancelReason)>,
}

pub(super) type Lag = Box<dyn Fn(usize, &Op) -> Duration>;
type Faults = Box<dyn FnMut(&Op) -> Fault>;
/// How long a handler runs, and its outcome; `None` if it runs until it is dropped.
type Handling = Box<dyn FnMut(&Delivery) -> Option<(Duration, Outcome)>>;

pub(super) struct Sim {
    pub(super) machine: Machine,
    pub(super) now: Moment,
    pub(super) queues: Vec<State>,
    /// All actions of the machine.
    pub(super) log: Vec<(Moment, Action)>,
    pub(super) running: BTreeMap<Slot, Handler>,
    /// The deliveries whose handlers have ended.
    ended: HashSet<(MessageId, Lease)>,
    pub(super) latency: Duration,
    /// How much longer each queue takes to execute an operation.
    pub(super) lag: Lag,
    /// When each silent queue executes its calls, and replies.
    pub(super) silent_until: Vec<Moment>,
    /// Whose acks have a result.
    pub(super) has_result: fn(&MessageId) -> bool,
    slots: usize,
    /// The ids of all claims.
    claimed: HashSet<ClaimId>,
    pub(super) faults: Faults,
    handling: Handling,
    events: BTreeMap<(Moment, u64), Event>,
    serial: u64,
    pub(super) bells: Vec<bool>,
    waits: Vec<bool>,
}

pub(super) const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

pub(super) const fn at(n: u64) -> Moment {
    Moment::at(ms(n))
}

pub(super) fn queue_plan(weight: u16) -> QueuePlan {
    QueuePlan {
        consumer: ConsumerName::new("worker").unwrap(),
        lease: Millis::new(3_000).unwrap(),
        weight: NonZeroU16::new(weight).unwrap(),
        most: usize::MAX,
        cancel_within: None,
        // Most tests are about claims and settlements alone.
        max_lease_age: None,
        stuck_after: None,
        has_parts: false,
    }
}

pub(super) fn plan(slots: usize) -> Plan {
    Plan { slots, queues: vec![queue_plan(1)], until_empty: false }
}

impl Sim {
    pub(super) fn new(plan: Plan) -> Self {
        Self::seeded(plan, 7)
    }

    pub(super) fn seeded(plan: Plan, seed: u8) -> Self {
        let queues = plan.queues.len();
        Self {
            slots: plan.slots,
            claimed: HashSet::new(),
            machine: Machine::new(plan, [seed; 16]),
            now: Moment::START,
            queues: (0..queues).map(|_| State::new()).collect(),
            log: Vec::new(),
            running: BTreeMap::new(),
            ended: HashSet::new(),
            latency: ms(1),
            lag: Box::new(|_, _| Duration::ZERO),
            silent_until: vec![Moment::START; queues],
            has_result: |_| false,
            faults: Box::new(|_| Fault::None),
            handling: Box::new(|_| Some((ms(10), Outcome::Ack))),
            events: BTreeMap::new(),
            serial: 0,
            bells: vec![false; queues],
            waits: vec![false; queues],
        }
    }

    pub(super) fn faults(mut self, faults: impl FnMut(&Op) -> Fault + 'static) -> Self {
        self.faults = Box::new(faults);
        self
    }

    /// Injects these faults into the first operations with this name.
    pub(super) fn first(self, name: &'static str, faults: &[Fault]) -> Self {
        let mut faults: VecDeque<_> = faults.iter().copied().collect();
        self.faults(move |op| {
            if op.name() == name { faults.pop_front().unwrap_or(Fault::None) } else { Fault::None }
        })
    }

    pub(super) fn handling(
        mut self,
        handling: impl FnMut(&Delivery) -> Option<(Duration, Outcome)> + 'static,
    ) -> Self {
        self.handling = Box::new(handling);
        self
    }

    pub(super) fn forever(self) -> Self {
        self.handling(|_| None)
    }

    pub(super) fn clock(&self) -> Timestamp {
        let ms = u64::try_from(self.now.since_start().as_millis()).unwrap();
        Timestamp::from_ms(1_800_000_000_000 + ms).unwrap()
    }

    /// Sends a message at `when`, due `delay` later.
    pub(super) fn send(&mut self, when: Moment, queue: usize, id: &str, delay: Duration) {
        let mut message = NewMessage::new(MessageId::try_from(id).unwrap(), "");
        message.schedule = Schedule::In(Millis::try_from(delay).unwrap());
        self.push(when, Event::Enqueue(queue, message));
    }

    pub(super) fn send_many(&mut self, queue: usize, count: usize) {
        for n in 0..count {
            self.send(self.now, queue, &format!("{queue}-{n}"), Duration::ZERO);
        }
    }

    pub(super) fn stop(&mut self, when: Moment, grace: Duration) {
        self.push(when, Event::Stop(when.after(grace)));
    }

    pub(super) fn apply(&mut self, queue: usize, op: &Op) -> Reply {
        let now = self.clock();
        self.queues[queue].apply(now, op).reply
    }

    pub(super) fn finish(&mut self, slot: Slot, outcome: Outcome) {
        let handler = self.running.remove(&slot).unwrap();
        let result = (outcome == Outcome::Ack && (self.has_result)(&handler.id))
            .then(|| NewResult::new("result", Millis::new(60_000).unwrap()));
        assert!(self.ended.insert((handler.id, handler.lease)));
        self.machine.handle_finished(slot, outcome, Vec::new(), result, None);
    }

    /// Runs until `end`, or until the worker has ended.
    pub(super) fn run_to(&mut self, end: Moment) {
        loop {
            while let Some(action) = self.machine.poll(self.now) {
                self.machine.lanes.check();
                self.log.push((self.now, action.clone()));
                self.perform(action);
            }
            self.machine.lanes.check();
            if self.machine.is_over(self.now) {
                return;
            }
            let event = self.events.keys().next().map(|(at, _)| *at);
            let next = event.into_iter().chain(self.machine.wake_at()).min();
            let Some(next) = next.filter(|next| *next <= end) else {
                self.now = end;
                return;
            };
            // A machine that wants to wake up at once without an action would loop forever.
            assert!(
                next > self.now || event.is_some_and(|at| at <= self.now),
                "a hot loop: {:#?}",
                self.machine
            );
            self.now = next.max(self.now);
            while let Some(entry) = self.events.first_entry() {
                if entry.key().0 > self.now {
                    break;
                }
                let event = entry.remove();
                self.happen(event);
            }
        }
    }

    /// Runs until the worker has ended, and returns when that was.
    pub(super) fn run(&mut self) -> Moment {
        self.run_to(self.now.after(Duration::from_secs(100_000)));
        assert!(self.machine.is_over(self.now), "it does not end");
        self.now
    }

    pub(super) fn sent(&self, name: &str) -> Vec<(Moment, Op)> {
        let sent = |(at, action): &(Moment, Action)| match action {
            Action::Send { op, .. } if op.name() == name => Some((*at, op.clone())),
            _ => None,
        };
        self.log.iter().filter_map(sent).collect()
    }

    pub(super) fn times(&self, wanted: impl Fn(&Action) -> bool) -> Vec<Moment> {
        self.log.iter().filter(|(_, action)| wanted(action)).map(|(at, _)| *at).collect()
    }

    fn push(&mut self, when: Moment, event: Event) {
        self.serial += 1;
        self.events.insert((when, self.serial), event);
    }

    fn perform(&mut self, action: Action) {
        let later = self.now.after(self.latency);
        match action {
            Action::Send { queue, op } => {
                self.check(&op);
                let arrival = self.now.after((self.lag)(queue, &op)).max(self.silent_until[queue]);
                if arrival > self.now {
                    return self.push(arrival, Event::Arrive(queue, op));
                }
                self.execute(queue, op);
            }
            Action::Wait { queue, timeout } => {
                assert!(!std::mem::replace(&mut self.waits[queue], true));
                if std::mem::take(&mut self.bells[queue]) {
                    self.push(later, Event::Waited(queue, true));
                } else {
                    self.push(self.now.after(timeout), Event::Waited(queue, false));
                }
            }
            Action::Ring { queue } => {
                self.push(later, Event::Rung(queue));
                self.ring(queue);
            }
            Action::Start { slot, delivery, .. } => {
                let (id, lease) = (delivery.message.info.id.clone(), delivery.lease);
                if let Some((time, outcome)) = (self.handling)(&delivery) {
                    self.push(self.now.after(time), Event::Finished(slot, outcome));
                }
                let handler = Handler { id, lease, cancelled: None };
                assert!(self.running.insert(slot, handler).is_none());
                assert!(self.running.len() <= self.slots);
            }
            Action::Cancel { slot, reason } => {
                // A handler that ended at this very instant may still be cancelled.
                if let Some(handler) = self.running.get_mut(&slot) {
                    assert!(handler.cancelled.replace((self.now, reason)).is_none());
                }
            }
            Action::Abort { slot } => {
                let outcome =
                    Outcome::Retry { schedule: Schedule::NOW, error: "dropped".to_owned() };
                self.push(self.now, Event::Finished(slot, outcome));
            }
            Action::Stuck { .. } | Action::LateClaim { .. } | Action::SettledLate { .. } => {}
        }
    }

    /// Executes an operation, and replies after the latency.
    fn execute(&mut self, queue: usize, op: Op) {
        let fault = (self.faults)(&op);
        let mut execute = || {
            let now = self.clock();
            self.queues[queue].apply(now, &op)
        };
        let result = match fault {
            Fault::None => Ok(execute()),
            Fault::LostReply => {
                execute();
                Err(Error::new(ErrorKind::ConnectionLost))
            }
            Fault::LostRequest => Err(Error::new(ErrorKind::Timeout)),
            Fault::Busy => Err(Error::new(ErrorKind::Busy)),
            Fault::Full => Err(Error::new(ErrorKind::OutOfMemory)),
        };
        self.push(self.now.after(self.latency), Event::Answer(queue, op, result));
    }

    /// Asserts what no operation may violate.
    fn check(&mut self, op: &Op) {
        op.validate().unwrap();
        match op {
            // A repeated claim may have lent its slots.
            Op::Claim(claim) if self.claimed.insert(claim.claim_id) => {
                assert!(claim.max + self.running.len() <= self.slots, "{op:?}");
            }
            Op::Extend(extend) => {
                for (id, lease) in &extend.leases {
                    let mut running = self.running.values();
                    let runs = running.any(|one| one.id == *id && one.lease == *lease);
                    assert!(runs || (self.has_result)(id), "{id} ended");
                }
            }
            _ => {}
        }
    }

    fn ring(&mut self, queue: usize) {
        if std::mem::take(&mut self.waits[queue]) {
            self.events.retain(|_, event| !matches!(event, Event::Waited(q, _) if *q == queue));
            self.waits[queue] = true;
            self.push(self.now.after(self.latency), Event::Waited(queue, true));
        } else {
            self.bells[queue] = true;
        }
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Arrive(queue, op) if self.now < self.silent_until[queue] => {
                self.push(self.silent_until[queue], Event::Arrive(queue, op));
            }
            Event::Arrive(queue, op) => self.execute(queue, op),
            Event::Answer(queue, op, result) => {
                let looked = left_nothing(&op, &result);
                self.machine.handle_answer(self.now, queue, op, result);
                if looked {
                    // Like a driver that reports to all workers of a process.
                    self.machine.handle_looked(self.now, queue);
                }
            }
            Event::Waited(queue, hint) => {
                self.waits[queue] = false;
                self.machine.handle_waited(self.now, queue, &Ok(hint));
            }
            Event::Rung(queue) => self.machine.handle_rung(queue),
            Event::Finished(slot, outcome) => {
                if self.running.contains_key(&slot) {
                    self.finish(slot, outcome);
                }
            }
            Event::Enqueue(queue, message) => {
                self.apply(queue, &Op::Enqueue(vec![message]));
                self.ring(queue);
            }
            Event::Stop(deadline) => self.machine.handle_stop(deadline),
        }
    }
}

fn left_nothing(op: &Op, result: &Result<Applied, Error>) -> bool {
    match (op, result) {
        (Op::Claim(claim), Ok(Applied { reply: Reply::Claim(claimed), .. })) => {
            !claimed.more && claimed.deliveries.len() < claim.max
        }
        _ => false,
    }
}
