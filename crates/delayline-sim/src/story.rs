//! What happens in one simulation: all that chance decides, as data that can shrink.

use std::ops::RangeInclusive;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

/// Milliseconds, of simulated time or a span of it.
pub(crate) type Ms = u64;

/// Time after which no more faults occur.
pub(crate) const HEALED_AT: Ms = 20_000;

const MOST_FAULTS: usize = 40;
const MOST_OUTAGES: usize = 3;
const MOST_WOUNDS: usize = 8;
const MOST_INTERVENTIONS: usize = 12;
/// Together they must not be as long as finished messages are remembered.
const MOST_CLOCK_STEPS: usize = 3;

/// One simulation. Times are since its start.
#[derive(Clone, Debug)]
pub(crate) struct Story {
    pub(crate) queues: usize,
    pub(crate) workers: usize,
    /// The workers run in one program, and tell each other when they have looked.
    pub(crate) one_program: bool,
    /// Handlers at once, of each worker.
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
    /// One hint of this many is lost; none if 0.
    pub(crate) hints_lost: u64,
    /// Where latencies and the workers' own chance come from.
    pub(crate) chance: u64,
}

/// A message, and what its handlers do.
#[derive(Clone, Debug)]
pub(crate) struct Send {
    pub(crate) at: Ms,
    pub(crate) queue: usize,
    pub(crate) delay: Ms,
    /// The number of its group; without one, it has its priority.
    pub(crate) group: Option<u8>,
    pub(crate) priority: u8,
    pub(crate) max_failures: u32,
    pub(crate) max_crashes: u32,
    /// One handling after the other; later ones ack at once.
    pub(crate) handlings: Vec<Handling>,
}

/// What a handler does.
#[derive(Clone, Debug)]
pub(crate) struct Handling {
    /// For how long it runs; `None` until it is dropped.
    pub(crate) runs: Option<Ms>,
    pub(crate) answer: Answer,
    /// How many messages follow from it.
    pub(crate) follow_ups: usize,
    /// Whether it ends when its token fires.
    pub(crate) heeds_token: bool,
}

/// What a handler answers.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Answer {
    Ack,
    Retry(Ms),
    Undecodable(Ms),
    Snooze(Ms),
    Release,
    Reject,
}

/// What happens to the n-th call of all.
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
    /// It never arrives, and the caller does not learn that.
    LostRequest,
    /// It is executed, and the caller does not learn that.
    LostReply,
    /// Its reply takes that long.
    SlowReply(Ms),
    /// It is executed that late, when its caller has given up.
    LateExecution(Ms),
    /// It is executed, answered, and executed again that much later.
    Repeated(Ms),
}

impl FaultKind {
    /// How long its own effect lasts.
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
    /// It has no memory for more messages.
    Full,
}

/// What happens to a worker's process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wound {
    pub(crate) at: Ms,
    pub(crate) worker: usize,
    pub(crate) kind: WoundKind,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum WoundKind {
    /// It dies with all its handlers, and another one starts that much later.
    Crash { restart_after: Ms },
    /// It does nothing for this time, as if it were stopped.
    Freeze { lasts: Ms },
    /// It is asked to stop, and another one starts when it has.
    Stop { grace: Ms },
}

/// What other programs do to messages.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Intervention {
    pub(crate) at: Ms,
    /// Which message, modulo their number.
    pub(crate) message: usize,
    pub(crate) kind: InterventionKind,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum InterventionKind {
    Cancel,
    Reschedule(Ms),
    Redrive,
    Purge,
    /// Its content, and the delay until it is due.
    Update(Ms),
    /// The ready messages of its queue are relayed to a list.
    Relay,
    /// Its queue.
    Pause,
    /// Its queue.
    Resume,
    /// Its queue, to this number of leases at once.
    LimitLeases(u32),
    /// Its queue, to this number of leases of each group.
    LimitGroups(u32),
    /// Its queue, so that each group is handled in order, or not any more.
    KeepOrder(bool),
    /// Its queue, to this number of messages per second, and a burst.
    LimitRate(u32, u32),
    /// Its queue, for this time.
    Hold(Ms),
}

/// The server's clock steps, by less than the time for which queues remember finished ids.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClockStep {
    pub(crate) at: Ms,
    pub(crate) by: i64,
}

impl Story {
    /// Whether so little goes wrong that no message may be handled more often than its handlers
    /// request, or late while a worker has a free slot.
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

/// All stories: wild ones, and peaceful ones, of which more can be asked.
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

/// The same without most of its trouble.
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

/// None as often as some.
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

/// Chance that follows from a seed.
pub(crate) fn runner(seed: u64) -> TestRunner {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_be_bytes());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    TestRunner::new_with_rng(Config::default(), rng)
}

/// A story that is a function of the bytes: the first four decide on the system, each four that
/// follow on one thing that happens.
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
    for seed in chunks.take(MOST_THINGS) {
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

/// How much may happen in a story that is made of bytes.
const MOST_THINGS: usize = 100;
