//! One simulation: a server, workers, producers and operators, in one simulated time.

mod network;
mod workers;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use delayline_core::worker::{Machine, Moment, Slot};
use delayline_core::{
    Applied, Destination, DestinationKey, Error, Group, Known, List, MessageId, Millis, NewMessage,
    Op, Priority, Rate, Redrive, Relay, Reply, Reschedule, Schedule, SetLimits, State, Status,
    Timestamp, Update, UpdateContent, UpdateDue, UpdateToken,
};

use crate::calls::Calls;
use crate::grouped::{Grouped, MOST_MESSAGES};
use crate::ledger::{Ledger, Totals, Violation};
use crate::limited::Limited;
use crate::met::Met;
use crate::process::Process;
use crate::rng::Rng;
use crate::story::{HEALED_AT, Intervention, InterventionKind, Ms, OutageKind, Story};

/// Everything there is.
pub(crate) struct World<'a> {
    story: &'a Story,
    now: Ms,
    /// What the server's clock has been stepped by.
    clock_offset: i64,
    queues: Vec<Queue>,
    processes: Vec<Process>,
    events: BTreeMap<(Ms, u64), Event>,
    serial: u64,
    hints: u64,
    /// Until when the effect of a fault lasts.
    disturbed_until: Option<Ms>,
    rng: Rng,
    ledger: Ledger,
    /// All is done, and the workers end.
    closing: bool,
    /// A log of the events in words, if it was asked for.
    diary: Option<Vec<String>>,
}

/// A queue on the server, and the workers that wait for its hints.
#[derive(Default)]
struct Queue {
    state: State,
    calls: Calls,
    limited: Limited,
    grouped: Grouped,
    sleepers: VecDeque<Sleeper>,
    /// A hint that no worker has taken yet.
    kept: bool,
}

struct Sleeper {
    worker: Worker,
    /// Of the event that ends the wait.
    ticket: u64,
}

/// An incarnation of a worker's process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Worker {
    process: usize,
    incarnation: u64,
}

/// Who has sent a call.
#[derive(Clone, Copy, Debug)]
enum Caller {
    Worker(Worker),
    /// A program that repeats calls without a reply.
    Client {
        tries: u32,
    },
}

#[derive(Debug)]
enum Event {
    /// A request arrives at the server.
    Execute {
        caller: Caller,
        queue: usize,
        op: Op,
        reply_in: Option<Ms>,
    },
    Answer {
        caller: Caller,
        queue: usize,
        op: Op,
        result: Result<Applied, Error>,
    },
    /// Ends a wait for a hint, if its ticket is still open.
    WaitOver {
        worker: Worker,
        queue: usize,
        ticket: u64,
    },
    Waited {
        worker: Worker,
        queue: usize,
        result: Result<bool, Error>,
    },
    Rung {
        worker: Worker,
        queue: usize,
    },
    Finished {
        worker: Worker,
        slot: Slot,
    },
    Call {
        caller: Caller,
        queue: usize,
        op: Op,
    },
    Wound(usize),
    Start(usize),
    /// Nothing but the time.
    Look,
    StepClock(usize),
    Heal,
    /// An outage begins.
    Sever,
}

impl<'a> World<'a> {
    /// Plays a story, first with all its trouble, then without any, until everything has come to
    /// its end.
    ///
    /// # Errors
    ///
    /// The promise that was broken.
    pub(crate) fn play(story: &'a Story) -> Result<Totals, Violation> {
        Self::new(story, None).run()
    }

    /// The same, and what happened until then.
    pub(crate) fn tell(story: &'a Story) -> Vec<String> {
        let mut world = Self::new(story, Some(Vec::new()));
        let end = world.run_to_the_end();
        world.note(|| format!("{end:?}"));
        world.diary.unwrap_or_default()
    }

    fn new(story: &'a Story, diary: Option<Vec<String>>) -> Self {
        World {
            story,
            now: 0,
            clock_offset: 0,
            queues: (0..story.queues).map(|_| Queue::default()).collect(),
            processes: (0..story.workers).map(|_| Process::new()).collect(),
            events: BTreeMap::new(),
            serial: 0,
            hints: 0,
            disturbed_until: None,
            rng: Rng::new(story.chance),
            ledger: Ledger::default(),
            closing: false,
            diary,
        }
    }

    fn run(mut self) -> Result<Totals, Violation> {
        self.run_to_the_end()?;
        self.settle_accounts()
    }

    fn run_to_the_end(&mut self) -> Result<(), Violation> {
        self.schedule_all();
        self.run_until(HEALED_AT)?;
        let end = self.latest_end();
        while !self.is_quiet() {
            if self.now >= end {
                return Err(format!("stuck: {}", self.describe()));
            }
            self.run_until(self.now + 1_000)?;
        }
        self.stop_all()
    }

    fn note(&mut self, what: impl FnOnce() -> String) {
        let now = self.now;
        if let Some(diary) = &mut self.diary {
            diary.push(format!("{now:>6} ms: {}", what()));
        }
    }

    /// Schedules all events of the story.
    fn schedule_all(&mut self) {
        let story = self.story;
        for process in 0..story.workers {
            self.push(0, Event::Start(process));
        }
        for (number, send) in story.sends.iter().enumerate() {
            let op = Op::Enqueue(vec![self.message(number)]);
            let caller = Caller::Client { tries: 0 };
            self.push(send.at, Event::Call { caller, queue: self.queue_of(number), op });
        }
        for (number, intervention) in story.interventions.iter().enumerate() {
            let (queue, op) = self.intervention(number, intervention);
            let caller = Caller::Client { tries: 0 };
            self.push(intervention.at, Event::Call { caller, queue, op });
        }
        for (number, wound) in story.wounds.iter().enumerate() {
            self.push(wound.at, Event::Wound(number));
        }
        for (number, step) in story.clock_steps.iter().enumerate() {
            self.push(step.at, Event::StepClock(number));
        }
        for outage in &story.outages {
            if matches!(outage.kind, OutageKind::Down | OutageKind::Silent) {
                self.push(outage.from, Event::Sever);
            }
        }
        self.push(HEALED_AT, Event::Heal);
    }

    fn queue_of(&self, message: usize) -> usize {
        self.story.sends.get(message).map_or(0, |send| send.queue % self.story.queues)
    }

    fn message(&self, number: usize) -> NewMessage {
        let mut message = NewMessage::new(id_of(number), "");
        if let Some(send) = self.story.sends.get(number) {
            message.schedule = Schedule::In(Millis::saturating(send.delay));
            message.group = send.group.filter(|_| self.story.has_groups).map(group);
            if message.group.is_none() {
                message.priority = Priority::from_level(send.priority).unwrap_or_default();
            }
            message.max_failures = send.max_failures;
            message.max_crashes = send.max_crashes;
        }
        message
    }

    fn intervention(&self, number: usize, intervention: &Intervention) -> (usize, Op) {
        let message = intervention.message % self.story.sends.len().max(1);
        let id = id_of(message);
        let schedule = |delay| Schedule::In(Millis::saturating(delay));
        let op = match intervention.kind {
            InterventionKind::Cancel => Op::Cancel(vec![id]),
            InterventionKind::Reschedule(delay) => {
                Op::Reschedule(vec![Reschedule::new(id, schedule(delay))])
            }
            InterventionKind::Redrive => Op::Redrive(Redrive::new(vec![id], schedule(0))),
            InterventionKind::Purge => Op::Purge(vec![id]),
            InterventionKind::Update(delay) => {
                let token = UpdateToken::from_bytes((count(number) + 1).to_be_bytes());
                let update = Update::new(UpdateContent::Replace, UpdateDue::Set, token);
                let next = self.message(message).payload(format!("update {number}"));
                Op::Enqueue(vec![next.schedule(schedule(delay)).known(Known::Update(update))])
            }
            InterventionKind::Relay => Op::Relay(Relay::new(
                Destination::List { key: list(), max_len: None },
                MOST_RELAYED,
            )),
            InterventionKind::Pause => Op::Pause,
            InterventionKind::Resume => Op::Resume,
            InterventionKind::LimitLeases(most) => Op::SetLimits(SetLimits::new().leased(most)),
            InterventionKind::LimitGroups(most) => Op::SetLimits(SetLimits::new().each_group(most)),
            InterventionKind::KeepOrder(in_order) => {
                Op::SetLimits(SetLimits::new().in_order(in_order))
            }
            InterventionKind::LimitRate(count, burst) => {
                Op::SetLimits(SetLimits::new().rate(Rate::per_second(count, burst)))
            }
            InterventionKind::Hold(ms) => {
                Op::SetLimits(SetLimits::new().hold_for(Duration::from_millis(ms)))
            }
        };
        (self.queue_of(message), op)
    }

    /// By then everything has had the time to end, by however many retries.
    fn latest_end(&self) -> Ms {
        let set_back: Ms = self.story.clock_steps.iter().map(|step| step.by.unsigned_abs()).sum();
        HEALED_AT + 300_000 + set_back
    }

    fn run_until(&mut self, end: Ms) -> Result<(), Violation> {
        let mut rounds = 0;
        loop {
            let event = self.events.first_key_value().map(|(&(at, _), _)| at);
            let wakes = self.processes.iter().map(|process| process.wake_at(self.now));
            let next = wakes.flatten().chain(event).min();
            let Some(next) = next.filter(|next| *next <= end) else {
                self.now = end;
                return Ok(());
            };
            rounds = if next > self.now { 0 } else { rounds + 1 };
            if rounds > 10_000 {
                return Err(format!("a hot loop at {} ms", self.now));
            }
            self.now = next.max(self.now);
            while let Some(entry) = self.events.first_entry() {
                if entry.key().0 > self.now {
                    break;
                }
                let event = entry.remove();
                self.happen(event)?;
            }
            for process in 0..self.processes.len() {
                self.drive(process)?;
            }
        }
    }

    fn push(&mut self, at: Ms, event: Event) -> u64 {
        self.serial += 1;
        self.events.insert((at, self.serial), event);
        self.serial
    }

    fn clock(&self) -> Timestamp {
        let ms = BASE.saturating_add(self.now).saturating_add_signed(self.clock_offset);
        Timestamp::from_ms(ms).unwrap_or(Timestamp::MAX)
    }

    fn happen(&mut self, event: Event) -> Result<(), Violation> {
        self.note(|| format!("{event:?}"));
        if let Some(worker) = event.worker() {
            let Some(process) = self.processes.get(worker.process) else { return Ok(()) };
            if process.incarnation != worker.incarnation {
                return Ok(());
            }
            if process.frozen_until > self.now {
                self.push(process.frozen_until, event);
                return Ok(());
            }
        }
        match event {
            Event::Execute { caller, queue, op, reply_in } => {
                let applied = self.execute(queue, &op)?;
                if let Some(reply_in) = reply_in {
                    let answer = Event::Answer { caller, queue, op, result: Ok(applied) };
                    self.push(self.now + reply_in, answer);
                }
            }
            Event::Answer { caller: Caller::Worker(worker), queue, op, result } => {
                self.answer(worker, queue, op, result);
            }
            Event::Answer { caller: Caller::Client { tries }, queue, op, result } => {
                if result.is_err() && tries < MAX_TRIES {
                    let caller = Caller::Client { tries: tries + 1 };
                    self.push(self.now + CLIENT_PAUSE, Event::Call { caller, queue, op });
                }
            }
            Event::Call { caller, queue, op } => self.call(caller, queue, op),
            Event::WaitOver { worker, queue, ticket } => {
                let Some(sleepers) = self.queues.get_mut(queue).map(|queue| &mut queue.sleepers)
                else {
                    return Ok(());
                };
                let before = sleepers.len();
                sleepers.retain(|sleeper| sleeper.ticket != ticket);
                if sleepers.len() < before {
                    self.waited(worker, queue, &Ok(false));
                }
            }
            Event::Waited { worker, queue, result } => self.waited(worker, queue, &result),
            Event::Rung { worker, queue } => {
                if let Some(machine) = self.machine(worker.process) {
                    machine.handle_rung(queue);
                }
            }
            Event::Finished { worker, slot } => self.finish(worker.process, slot, None),
            Event::Wound(number) => self.wound(number),
            Event::Start(process) => self.start(process),
            Event::Look => {}
            Event::StepClock(number) => {
                let step = self.story.clock_steps.get(number).map_or(0, |step| step.by);
                self.clock_offset = self.clock_offset.saturating_add(step);
                let met = if step < 0 { Met::ClockBack } else { Met::ClockForward };
                self.ledger.totals.met.note(met);
                self.disturbed(self.now);
            }
            Event::Sever => self.sever(),
            Event::Heal => self.heal(),
        }
        Ok(())
    }

    /// Records a fault whose effect lasts until then.
    fn disturbed(&mut self, until: Ms) {
        self.disturbed_until = self.disturbed_until.max(Some(until.max(self.now)));
    }

    /// Delivers the reply to a worker's call. A claim that leaves nothing is reported to all
    /// workers of its program, itself included.
    fn answer(&mut self, worker: Worker, queue: usize, op: Op, result: Result<Applied, Error>) {
        let now = self.moment();
        let left_nothing = match (&op, &result) {
            (Op::Claim(claim), Ok(Applied { reply: Reply::Claim(claimed), .. })) => {
                !claimed.more && claimed.deliveries.len() < claim.max
            }
            _ => false,
        };
        if let Some(machine) = self.machine(worker.process) {
            machine.handle_answer(now, queue, op, result);
        }
        if !left_nothing {
            return;
        }
        for (index, process) in self.processes.iter_mut().enumerate() {
            let hears = self.story.one_program && process.frozen_until <= self.now;
            if let Some(machine) = &mut process.machine
                && (hears || index == worker.process)
            {
                machine.handle_looked(now, queue);
            }
        }
    }

    fn moment(&self) -> Moment {
        Moment::at(Duration::from_millis(self.now))
    }

    fn machine(&mut self, process: usize) -> Option<&mut Machine> {
        self.processes.get_mut(process)?.machine.as_mut()
    }

    fn waited(&mut self, worker: Worker, queue: usize, result: &Result<bool, Error>) {
        let now = self.moment();
        if let Some(machine) = self.machine(worker.process) {
            machine.handle_waited(now, queue, result);
        }
    }

    /// Nothing goes wrong any more, and handlers that would run for ever come to an end.
    fn heal(&mut self) {
        if self.clock_offset < 0 {
            self.clock_offset = 0;
            self.disturbed(self.now);
        }
        for queue in 0..self.queues.len() {
            // The second one comes after all pauses that are still on their way.
            for at in [self.now, self.now + 15_000] {
                let caller = Caller::Client { tries: 0 };
                self.push(at, Event::Call { caller, queue, op: Op::Resume });
                let caller = Caller::Client { tries: 0 };
                let none = SetLimits::new().leased(None).each_group(None).in_order(false);
                let op = Op::SetLimits(none.rate(None).end_hold());
                self.push(at, Event::Call { caller, queue, op });
            }
        }
        for index in 0..self.processes.len() {
            let Some(process) = self.processes.get_mut(index) else { continue };
            // It has not looked around yet, if it was frozen until now.
            process.frozen_until = process.frozen_until.min(self.now);
            let worker = Worker { process: index, incarnation: process.incarnation };
            let slots: Vec<_> = process.running.keys().copied().collect();
            for slot in slots {
                self.push(self.now + 1, Event::Finished { worker, slot });
            }
            self.push(self.now, Event::Start(index));
        }
    }

    /// Whether no queue has anything left to do.
    fn is_quiet(&mut self) -> bool {
        let clients = self.events.values().any(|event| {
            let caller = match event {
                Event::Execute { caller, .. }
                | Event::Answer { caller, .. }
                | Event::Call { caller, .. } => *caller,
                _ => return false,
            };
            matches!(caller, Caller::Client { .. })
        });
        let now = self.clock();
        let empty = |queue: &mut Queue| match queue.state.apply(now, &Op::Stats).reply {
            Reply::Stats(stats) => stats.scheduled + stats.ready + stats.leased == 0,
            _ => false,
        };
        !clients && self.queues.iter_mut().all(empty)
    }

    fn describe(&mut self) -> String {
        let now = self.clock();
        let stats = self.queues.iter_mut().map(|queue| queue.state.apply(now, &Op::Stats).reply);
        format!("{:?}", stats.collect::<Vec<_>>())
    }

    /// All workers end in time, with everything settled.
    fn stop_all(&mut self) -> Result<(), Violation> {
        self.closing = true;
        let now = self.moment();
        for process in &mut self.processes {
            if let Some(machine) = &mut process.machine {
                machine.handle_stop(now);
            }
        }
        self.run_until(self.now + 11_000)?;
        for process in &self.processes {
            if let Some(machine) = &process.machine {
                return Err(format!("a worker does not end: {machine:?}"));
            }
        }
        Ok(())
    }

    fn settle_accounts(mut self) -> Result<Totals, Violation> {
        let now = self.clock();
        for (number, queue) in self.queues.iter_mut().enumerate() {
            self.ledger.relayed(number, &queue.state.take_relayed(&list()))?;
            for op in [Op::List(List::new(Status::Dead, MOST_MESSAGES)), Op::Stats] {
                let applied = queue.state.apply(now, &op);
                queue.calls.note(self.now, op, applied);
            }
            queue.calls.check()?;
        }
        let keys: Vec<_> = self.ledger.created().cloned().collect();
        for key in keys {
            let Some(queue) = self.queues.get_mut(key.0) else { continue };
            let reply = queue.state.apply(now, &Op::Get(vec![key.1.clone()])).reply;
            let Reply::Get(found) = reply else { return Err("no answer".to_owned()) };
            for found in &found {
                self.ledger.ended(&key, found, self.story.is_peaceful())?;
            }
        }
        self.ledger.totals.simulated_ms = self.now;
        Ok(self.ledger.totals)
    }
}

impl Event {
    /// The worker that it is for.
    const fn worker(&self) -> Option<Worker> {
        match self {
            Self::Answer { caller: Caller::Worker(worker), .. }
            | Self::WaitOver { worker, .. }
            | Self::Waited { worker, .. }
            | Self::Rung { worker, .. }
            | Self::Finished { worker, .. } => Some(*worker),
            _ => None,
        }
    }
}

impl Process {
    fn wake_at(&self, now: Ms) -> Option<Ms> {
        let at = self.machine.as_ref()?.wake_at()?.since_start();
        // Rounded up: a machine that is woken too early asks again.
        let at = Ms::try_from(at.as_nanos().div_ceil(1_000_000)).unwrap_or(Ms::MAX);
        Some(at.max(self.frozen_until).max(now))
    }
}

/// Where relays move messages to, in each queue.
fn list() -> DestinationKey {
    DestinationKey::try_from("out").unwrap_or_else(|error| unreachable!("{error}"))
}

fn id_of(message: usize) -> MessageId {
    MessageId::try_from(format!("m{message}").as_str())
        .unwrap_or_else(|error| unreachable!("{error}"))
}

fn group(number: u8) -> Group {
    Group::new(format!("g{number}")).unwrap_or_else(|error| unreachable!("{error}"))
}

fn number_of(id: &MessageId) -> usize {
    id.to_string().trim_start_matches('m').parse().unwrap_or(usize::MAX)
}

fn count(n: usize) -> u64 {
    u64::try_from(n).unwrap_or(u64::MAX)
}

/// Where the server's clock begins.
const BASE: Ms = 1_800_000_000_000;
/// Time without a reply after which a call has failed.
const PATIENCE: Ms = 1_000;
const CLIENT_PAUSE: Ms = 100;
/// By one call.
const MOST_RELAYED: usize = 3;
/// More than any outage takes.
const MAX_TRIES: u32 = 1_000;
