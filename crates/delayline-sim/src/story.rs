//! The random events of one simulation, as data that can shrink.

use std::ops::RangeInclusive;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

/// Milliseconds: an instant of simulated time, or a duration.
pub(crate) type Ms = u64;

/// Time after which no more faults occur.
pub(crate) const HEALED_AT: Ms = 20_000;

const MOST_FAULTS: usize = 40;
const MOST_OUTAGES: usize = 3;
const MOST_WOUNDS: usize = 8;
const MOST_INTERVENTIONS: usize = 12;
/// All steps together must be less than the time for which finished messages are remembered.
const MOST_CLOCK_STEPS: usize = 3;

/// One simulation. Instants count from its start.
#[derive(Clone, Debug)]
pub(crate) struct Story {
    pub(crate) queues: usize,
    pub(crate) workers: usize,
    /// Whether the workers run in one program, and so share what their claims have learned.
    pub(crate) one_program: bool,
    /// Maximum number of handlers of each worker.
    pub(crate) slots: usize,
    pub(crate) lease: Ms,
    pub(crate) max_lease_age: Option<Ms>,
    /// Whether messages have groups at all.
    pub(crate) has_groups: bool,
    pub(crate) sends: Vec<Send>,
    pub(crate) faults: Vec<Fault>,
    pub(crate) outages: Vec<Outage>,
    pub(crate) wounds: Vec<Wound>,
    pub(crate) interventions: Vec<Intervention>,
    pub(crate) clock_steps: Vec<ClockStep>,
    /// Of this number of hints, one is lost. With 0, none is.
    pub(crate) hints_lost: u64,
    /// The seed of latencies and of the workers' random numbers.
    pub(crate) chance: u64,
}

/// A message, and the behaviour of its handlers.
#[derive(Clone, Debug)]
pub(crate) struct Send {
    pub(crate) at: Ms,
    pub(crate) queue: usize,
    pub(crate) delay: Ms,
    /// The number of its group. Without a group, the priority counts.
    pub(crate) group: Option<u8>,
    pub(crate) priority: u8,
    pub(crate) max_failures: u32,
    pub(crate) max_crashes: u32,
    /// The behaviour at each delivery. After these, handlers ack at once.
    pub(crate) handlings: Vec<Handling>,
}

/// The behaviour of a handler.
#[derive(Clone, Debug)]
pub(crate) struct Handling {
    /// How long it runs, or `None` if it runs until it is dropped.
    pub(crate) runs: Option<Ms>,
    pub(crate) answer: Answer,
    /// Number of messages that it sends with its outcome.
    pub(crate) follow_ups: usize,
    /// Whether it ends when its cancellation token fires.
    pub(crate) heeds_token: bool,
}

/// The outcome of a handler.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Answer {
    Ack,
    Retry(Ms),
    Undecodable(Ms),
    Snooze(Ms),
    Release,
    Reject,
}

/// A fault of the n-th of all calls.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fault {
    pub(crate) call: u64,
    pub(crate) kind: FaultKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FaultKind {
    /// Refused before it was sent.
    Refused,
    /// The server has no time for it.
    Busy,
    /// The server has no memory for it.
    Full,
    /// The request is lost, and the caller does not learn that.
    LostRequest,
    /// It is executed, and the reply is lost.
    LostReply,
    /// Its reply takes this time.
    SlowReply(Ms),
    /// It is executed after this time, when its caller may have given up.
    LateExecution(Ms),
    /// It is executed and answered, and executed again after this time.
    Repeated(Ms),
}

impl FaultKind {
    /// Returns how long its effect lasts.
    pub(crate) const fn lasts(self) -> Ms {
        match self {
            Self::Refused | Self::Busy | Self::Full | Self::LostRequest | Self::LostReply => 0,
            Self::SlowReply(time) | Self::LateExecution(time) | Self::Repeated(time) => time,
        }
    }
}

/// A time when calls of all processes fail.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outage {
    pub(crate) from: Ms,
    pub(crate) lasts: Ms,
    pub(crate) kind: OutageKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OutageKind {
    /// Nothing listens.
    Down,
    /// Requests vanish.
    Silent,
    /// Everything is executed, and no reply arrives.
    Deaf,
    /// Calls sent meanwhile are executed at its end.
    Frozen,
    /// The server has no memory for more messages.
    Full,
}

/// A fault of a worker's process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wound {
    pub(crate) at: Ms,
    pub(crate) worker: usize,
    pub(crate) kind: WoundKind,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum WoundKind {
    /// It dies with all its handlers, and another one starts after this time.
    Crash { restart_after: Ms },
    /// It does nothing for this time, as if it were stopped.
    Freeze { lasts: Ms },
    /// It is asked to stop, and another one starts when it has stopped.
    Stop { grace: Ms },
}

/// An action of another program.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Intervention {
    pub(crate) at: Ms,
    /// The number of the message, modulo the number of messages.
    pub(crate) message: usize,
    pub(crate) kind: InterventionKind,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum InterventionKind {
    Cancel,
    Reschedule(Ms),
    Redrive,
    Purge,
    /// Replaces the content, and sets the delay until it is due.
    Update(Ms),
    /// Relays the ready messages of its queue to a list.
    Relay,
    /// Pauses its queue.
    Pause,
    /// Resumes its queue.
    Resume,
    /// Limits its queue to this number of leases at once.
    LimitLeases(u32),
    /// Limits its queue to this number of leases of each group.
    LimitGroups(u32),
    /// Sets whether its queue handles each group in order.
    KeepOrder(bool),
    /// Limits its queue to this number of messages per second, with this burst.
    LimitRate(u32, u32),
    /// Holds its queue for this time.
    Hold(Ms),
}

/// A step of the server's clock, of less than the time for which queues remember finished ids.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClockStep {
    pub(crate) at: Ms,
    pub(crate) by: i64,
}

impl Story {
    /// Returns whether there are so few faults that no message may be handled more often than its
    /// handlers request, or late while a worker has a free slot.
    pub(crate) fn is_peaceful(&self) -> bool {
        let ends = |handling: &Handling| handling.runs.is_some();
        let stops = |wound: &Wound| matches!(wound.kind, WoundKind::Stop { .. });
        let mild = |fault: &Fault| {
            matches!(fault.kind, FaultKind::Refused | FaultKind::Busy | FaultKind::LostReply)
        };
        let shaken = !self.faults.is_empty();
        self.outages.is_empty()
            && self.clock_steps.is_empty()
            && self.max_lease_age.is_none()
            && self.hints_lost == 0
            && self.wounds.iter().all(stops)
            && self.sends.iter().flat_map(|send| &send.handlings).all(ends)
            && self.faults.iter().all(mild)
            && self.faults.len() <= 2
            && (!shaken || self.lease >= 2_000)
    }
}

/// Returns random stories: wild ones, and peaceful ones, on which stricter checks hold.
pub(crate) fn stories() -> impl Strategy<Value = Story> {
    prop_oneof![4 => wild(), 1 => wild().prop_map(pacified)]
}

fn wild() -> impl Strategy<Value = Story> {
    let system = (1..=3_usize, 1..=4_usize, 1..=5_usize, 60..4_000_u64, rarely(500..8_000_u64));
    let trouble = (
        up_to(fault(), MOST_FAULTS),
        up_to(outage(), MOST_OUTAGES),
        up_to(wound(), MOST_WOUNDS),
        up_to(intervention(), MOST_INTERVENTIONS),
        prop_oneof![4 => Just(Vec::new()), 1 => vec(clock_step(), 1..=MOST_CLOCK_STEPS)],
        prop_oneof![3 => Just(0), 1 => 1..4_u64],
        any::<(bool, bool)>(),
    );
    let chance = any::<u64>().no_shrink();
    let all = (system, vec(send(), 1..40), trouble, chance);
    all.prop_map(|(system, sends, trouble, chance)| {
        let (queues, workers, slots, lease, max_lease_age) = system;
        let (faults, outages, wounds, interventions, clock_steps, hints_lost, kind) = trouble;
        let (one_program, has_groups) = kind;
        Story {
            queues,
            workers,
            one_program,
            slots,
            lease,
            max_lease_age,
            has_groups,
            sends,
            faults,
            outages,
            wounds,
            interventions,
            clock_steps,
            hints_lost,
            chance,
        }
    })
}

/// Removes faults until the story is peaceful.
fn pacified(mut story: Story) -> Story {
    story.outages.clear();
    story.clock_steps.clear();
    story.max_lease_age = None;
    story.hints_lost = 0;
    story.wounds.retain(|wound| matches!(wound.kind, WoundKind::Stop { .. }));
    for handling in story.sends.iter_mut().flat_map(|send| &mut send.handlings) {
        handling.runs = handling.runs.or(Some(100));
    }
    story.faults.truncate(2);
    for fault in &mut story.faults {
        fault.kind = match fault.kind {
            kind @ (FaultKind::Refused | FaultKind::Busy) => kind,
            _ => FaultKind::LostReply,
        };
        story.lease = story.lease.max(2_000);
    }
    story
}

fn rarely(strategy: impl Strategy<Value = Ms> + 'static) -> BoxedStrategy<Option<Ms>> {
    prop_oneof![3 => Just(None), 1 => strategy.prop_map(Some)].boxed()
}

/// Returns an empty list in one of three cases, and else up to `most` items.
fn up_to<S: Strategy + Clone + 'static>(item: S, most: usize) -> BoxedStrategy<Vec<S::Value>>
where
    S::Value: Clone,
{
    prop_oneof![1 => Just(Vec::new()), 2 => vec(item, 1..=most)].boxed()
}

fn within_trouble() -> std::ops::Range<Ms> {
    0..HEALED_AT
}

fn send() -> impl Strategy<Value = Send> {
    let delay = prop_oneof![2 => Just(0), 4 => 1..5_000_u64, 1 => 5_000..60_000_u64];
    let limits: (RangeInclusive<u32>, RangeInclusive<u32>) = (1..=4, 1..=4);
    let group = prop_oneof![1 => Just(None), 2 => (0..3_u8).prop_map(Some)];
    let kind = (group, 0..4_u8);
    (within_trouble(), 0..3_usize, delay, kind, limits, vec(handling(), 0..4)).prop_map(
        |(at, queue, delay, (group, priority), (max_failures, max_crashes), handlings)| Send {
            at,
            queue,
            delay,
            group,
            priority,
            max_failures,
            max_crashes,
            handlings,
        },
    )
}

fn handling() -> impl Strategy<Value = Handling> {
    let runs = prop_oneof![
        6 => (0..200_u64).prop_map(Some),
        3 => (200..15_000_u64).prop_map(Some),
        1 => Just(None),
    ];
    let delay = || prop_oneof![1 => Just(0), 3 => 1..8_000_u64];
    let answer = prop_oneof![
        4 => Just(Answer::Ack),
        3 => delay().prop_map(Answer::Retry),
        1 => delay().prop_map(Answer::Undecodable),
        2 => delay().prop_map(Answer::Snooze),
        1 => Just(Answer::Release),
        1 => Just(Answer::Reject),
    ];
    let follow_ups = prop_oneof![4 => Just(0), 1 => 1..3_usize];
    (runs, answer, follow_ups, any::<bool>()).prop_map(|(runs, answer, follow_ups, heeds_token)| {
        Handling { runs, answer, follow_ups, heeds_token }
    })
}

fn fault() -> impl Strategy<Value = Fault> + Clone {
    let kind = prop_oneof![
        Just(FaultKind::Refused),
        Just(FaultKind::Busy),
        Just(FaultKind::LostRequest),
        Just(FaultKind::LostReply),
        (1..3_000_u64).prop_map(FaultKind::SlowReply),
        (1..12_000_u64).prop_map(FaultKind::LateExecution),
        (0..6_000_u64).prop_map(FaultKind::Repeated),
    ];
    (0..300_u64, kind).prop_map(|(call, kind)| Fault { call, kind })
}

fn outage() -> impl Strategy<Value = Outage> + Clone {
    let kind = prop_oneof![
        Just(OutageKind::Down),
        Just(OutageKind::Silent),
        Just(OutageKind::Deaf),
        Just(OutageKind::Frozen),
        Just(OutageKind::Full),
    ];
    (within_trouble(), 1..8_000_u64, kind).prop_map(|(from, lasts, kind)| Outage {
        from,
        lasts: lasts.min(HEALED_AT.saturating_sub(from)),
        kind,
    })
}

fn wound() -> impl Strategy<Value = Wound> + Clone {
    let kind = prop_oneof![
        (0..5_000_u64).prop_map(|restart_after| WoundKind::Crash { restart_after }),
        (1..8_000_u64).prop_map(|lasts| WoundKind::Freeze { lasts }),
        (0..5_000_u64).prop_map(|grace| WoundKind::Stop { grace }),
    ];
    (within_trouble(), 0..4_usize, kind).prop_map(|(at, worker, kind)| Wound { at, worker, kind })
}

fn intervention() -> impl Strategy<Value = Intervention> + Clone {
    let kind = prop_oneof![
        4 => Just(InterventionKind::Cancel),
        3 => (0..20_000_u64).prop_map(InterventionKind::Reschedule),
        3 => Just(InterventionKind::Redrive),
        1 => Just(InterventionKind::Purge),
        4 => (0..10_000_u64).prop_map(InterventionKind::Update),
        1 => Just(InterventionKind::Relay),
        1 => Just(InterventionKind::Pause),
        1 => Just(InterventionKind::Resume),
        1 => (1..4_u32).prop_map(InterventionKind::LimitLeases),
        2 => (1..3_u32).prop_map(InterventionKind::LimitGroups),
        2 => any::<bool>().prop_map(InterventionKind::KeepOrder),
        1 => (1..9_u32, 1..4_u32)
            .prop_map(|(count, burst)| InterventionKind::LimitRate(count, burst.min(count))),
        1 => (1..10_000_u64).prop_map(InterventionKind::Hold),
    ];
    (within_trouble(), 0..40_usize, kind).prop_map(|(at, message, kind)| Intervention {
        at,
        message,
        kind,
    })
}

fn clock_step() -> impl Strategy<Value = ClockStep> {
    let by = prop_oneof![-5_000..5_000_i64, -900_000..900_000_i64];
    (within_trouble(), by).prop_map(|(at, by)| ClockStep { at, by })
}

/// Returns a source of random values that depends on the seed alone.
pub(crate) fn runner(seed: u64) -> TestRunner {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_be_bytes());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    TestRunner::new_with_rng(Config::default(), rng)
}

/// Returns a story that depends on the bytes alone: the first four determine the system, and each
/// following four one event.
pub(crate) fn story_from_bytes(bytes: &[u8]) -> Story {
    let mut chunks = bytes.chunks(4).map(|chunk| {
        let mut seed = [0; 8];
        seed[..chunk.len()].copy_from_slice(chunk);
        u64::from_be_bytes(seed)
    });
    let mut story = one(&wild(), chunks.next().unwrap_or_default());
    story.sends.truncate(1);
    story.faults.clear();
    story.outages.clear();
    story.wounds.clear();
    story.interventions.clear();
    story.clock_steps.clear();
    for seed in chunks.take(MOST_EVENTS) {
        match seed >> 60 {
            0..6 => story.sends.push(one(&send(), seed)),
            6..9 => story.faults.push(one(&fault(), seed)),
            9 => story.outages.push(one(&outage(), seed)),
            10..12 => story.wounds.push(one(&wound(), seed)),
            12..15 => story.interventions.push(one(&intervention(), seed)),
            _ => story.clock_steps.push(one(&clock_step(), seed)),
        }
    }
    story.faults.truncate(MOST_FAULTS);
    story.outages.truncate(MOST_OUTAGES);
    story.wounds.truncate(MOST_WOUNDS);
    story.interventions.truncate(MOST_INTERVENTIONS);
    story.clock_steps.truncate(MOST_CLOCK_STEPS);
    story
}

fn one<S: Strategy>(strategy: &S, seed: u64) -> S::Value {
    match strategy.new_tree(&mut runner(seed)) {
        Ok(tree) => tree.current(),
        // Only a strategy with a filter can fail.
        Err(reason) => unreachable!("{reason}"),
    }
}

/// Maximum number of events in a story that is made of bytes.
const MOST_EVENTS: usize = 100;
