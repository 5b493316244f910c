//! The actions of tests on a directory, and its expected state afterwards.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use delayline_core::{
    At, Backend, Claim, ClaimId, ConsumerName, Destination, DestinationKey, Error, Extend, HandOff,
    Known, Lease, MessageId, Millis, NewMessage, NewResult, Op, Outcome, Progress, QueueName, Rate,
    Redrive, Relay, Reply, Reschedule, Save, Schedule, SetLimits, Settlement, State, Timestamp,
    Update, UpdateContent, UpdateDue, UpdateToken,
};
use tokio::runtime::{Builder, Runtime};

use crate::disk::Volume;
use crate::disk::simulated::SimulatedDisk;
use crate::replay::recover;
use crate::{Directory, OpenError, Options};

pub(crate) const QUEUES: [&str; 3] = ["a", "b/c", "d"];

/// Small, so that a short story has several segments and checkpoints.
pub(crate) const SMALL: fn() -> Options =
    || Options::default().segment_bytes(3_000).reserve_bytes(4_000).chunk_bytes(1_000);

/// Operations on some queues, and the states to which they lead.
pub(crate) struct Story {
    /// The operations of each step, one for each queue.
    steps: Vec<(Timestamp, [Op; QUEUES.len()])>,
    /// The serialized state of each queue before each step and after the last one.
    states: Vec<[Vec<u8>; QUEUES.len()]>,
    /// The names of the operations that changed a queue.
    operations: BTreeSet<&'static str>,
}

impl Story {
    pub(crate) fn new(steps: usize) -> Self {
        let mut states: [State; QUEUES.len()] = Default::default();
        let mut story = Self {
            steps: Vec::new(),
            states: vec![states.each_ref().map(bytes)],
            operations: BTreeSet::new(),
        };
        let mut leases = [const { Vec::new() }; QUEUES.len()];
        for step in 0..steps {
            let now = Timestamp::from_ms(1_000 + u64::try_from(step).unwrap() * 100).unwrap();
            let ops: [Op; QUEUES.len()] = std::array::from_fn(|queue| {
                let op = op(step + queue, &leases[queue]);
                op.validate().unwrap();
                let applied = states[queue].apply(now, &op);
                if story.states[step][queue] != bytes(&states[queue]) {
                    story.operations.insert(op.name());
                }
                if let Reply::Claim(claimed) = applied.reply {
                    let held = claimed.deliveries.into_iter();
                    leases[queue] = held.map(|it| (it.message.info.id, it.lease)).collect();
                }
                op
            });
            story.steps.push((now, ops));
            story.states.push(states.each_ref().map(bytes));
        }
        story
    }

    pub(crate) fn len(&self) -> usize {
        self.steps.len()
    }

    /// Does the steps from `first` on, those of all queues at once. Returns the number of the step
    /// that failed, if one did, and the errors of its operations.
    pub(crate) fn run(&self, directory: &Directory, first: usize) -> (usize, Vec<Error>) {
        let queues =
            QUEUES.map(|name| directory.queue(name.parse::<QueueName>().unwrap()).unwrap());
        let runtime = runtime();
        for (number, (now, ops)) in self.steps.iter().enumerate().skip(first) {
            let at = At::Fixed(*now);
            let results = runtime.block_on(async {
                let [a, b, c] = &queues;
                let (x, y, z) =
                    tokio::join!(a.apply(at, &ops[0]), b.apply(at, &ops[1]), c.apply(at, &ops[2]));
                [x, y, z]
            });
            let errors: Vec<_> = results.into_iter().filter_map(Result::err).collect();
            if !errors.is_empty() {
                return (number, errors);
            }
        }
        (self.len(), Vec::new())
    }

    /// Returns why a disk does not have what was acknowledged, and nothing else but the operations
    /// of the step that was under way.
    pub(crate) fn check(&self, disk: &SimulatedDisk, acknowledged: usize) -> Result<(), String> {
        let recovered = recover(disk).map_err(|error| error.to_string())?;
        for (index, name) in QUEUES.iter().enumerate() {
            let mut stored = recovered.contents.queues.values();
            let found = stored.find(|it| it.name.as_str() == *name).map(|it| &it.state);
            let found = found.map_or_else(|| bytes(&State::new()), bytes);
            let under_way = acknowledged..=self.len().min(acknowledged + 1);
            if !under_way.clone().any(|step| self.states[step][index] == found) {
                let step = self.states.iter().position(|states| states[index] == found);
                return Err(format!(
                    "{name} is as before step {step:?}, and {acknowledged} were acknowledged"
                ));
            }
        }
        Ok(())
    }

    /// Returns the step that comes next on a disk whose queues are all as before the same one.
    pub(crate) fn position(&self, disk: &SimulatedDisk) -> Option<usize> {
        let recovered = recover(disk).unwrap();
        (0..=self.len()).find(|step| {
            QUEUES.iter().enumerate().all(|(index, name)| {
                let mut stored = recovered.contents.queues.values();
                let found = stored.find(|it| it.name.as_str() == *name).map(|it| &it.state);
                found.map_or_else(|| bytes(&State::new()), bytes) == self.states[*step][index]
            })
        })
    }
}

pub(crate) fn runtime() -> Runtime {
    Builder::new_current_thread().enable_time().build().unwrap()
}

pub(crate) fn open(disk: &SimulatedDisk, options: Options) -> Result<Directory, OpenError> {
    Directory::on(Arc::new(Volume::new(disk.clone())), PathBuf::from("simulated"), options)
}

fn bytes(state: &State) -> Vec<u8> {
    rmp_serde::to_vec_named(state).unwrap()
}

/// Returns an operation of a cycle that has all that write. Messages go through most states.
fn op(step: usize, held: &[(MessageId, Lease)]) -> Op {
    let cycle = step / OPERATIONS;
    let id = |part: &str| MessageId::try_from(format!("message-{cycle}-{part}")).unwrap();
    let token = u8::try_from(step % 251 + 1).unwrap();
    let new = |id: MessageId| NewMessage::new(id, vec![token; 40]);
    let later = Schedule::In(Millis::new(60_000).unwrap());
    let lease = Millis::new(5_000).unwrap();
    match (step % OPERATIONS, held) {
        (0, _) => {
            let ready = ["acked", "redriven", "purged", "relayed"].map(|part| new(id(part)));
            let waiting = ["moved", "cancelled"].map(|part| new(id(part)).schedule(later));
            Op::Enqueue(ready.into_iter().chain(waiting).collect())
        }
        (1, _) => {
            let consumer = ConsumerName::new("worker").unwrap();
            Op::Claim(Claim::new(consumer, ClaimId::from_bytes([token; 16]), 3, lease))
        }
        (2, held @ [(first, _), ..]) => {
            let progress = Progress::new(0.5, "half");
            let save = Save::new(1).progress(progress).checkpoint(new(first.clone()).payload);
            Op::Extend(Extend::new(held.to_vec(), lease).saves(vec![(first.clone(), save)]))
        }
        (3, [(first, lease), ..]) => {
            let ack = Settlement::new(first.clone(), *lease, Outcome::Ack);
            let result = NewResult::new(vec![token; 40], Millis::new(60_000).unwrap());
            Op::HandOff(vec![HandOff::new(ack, vec![new(id("next"))]).with_result(result)])
        }
        (4, [_, rest @ ..]) => {
            let reject = || Outcome::Reject { error: "no".to_owned() };
            let settle =
                |(id, lease): &(MessageId, Lease)| Settlement::new(id.clone(), *lease, reject());
            Op::Settle(rest.iter().map(settle).collect())
        }
        (5, _) => Op::Redrive(Redrive::new(vec![id("redriven")], Schedule::NOW)),
        (6, _) => Op::Purge(vec![id("purged")]),
        (7, _) => {
            let token = UpdateToken::from_bytes([token; UpdateToken::BYTES]);
            let update = Update::new(UpdateContent::Replace, UpdateDue::Keep, token);
            Op::Enqueue(vec![new(id("moved")).known(Known::Update(update))])
        }
        (8, _) => Op::Reschedule(vec![Reschedule::new(id("moved"), Schedule::NOW)]),
        (9, _) => Op::Cancel(vec![id("cancelled")]),
        (10, _) => {
            let key = DestinationKey::try_from("due").unwrap();
            // Some messages stay.
            Op::Relay(Relay::new(Destination::List { key, max_len: None }, 2))
        }
        (11, _) => {
            let most = 100 + u32::try_from(cycle).unwrap();
            Op::SetLimits(SetLimits::new().leased(most).rate(Rate::per_second(most, most)))
        }
        (12, _) => Op::Pause,
        (13, _) => Op::Resume,
        // A queue that has nothing leased yet gets a message.
        _ => Op::Enqueue(vec![new(MessageId::try_from(format!("extra-{step}")).unwrap())]),
    }
}

/// Length of the cycle of [`op`].
const OPERATIONS: usize = 14;

#[test]
fn the_shortest_story_has_every_operation_that_writes() {
    let reading = ["get", "progress", "list", "stats", "forecast", "history", "check"];
    // A repair of an intact queue writes nothing.
    let expected = Op::NAMES.iter().filter(|it| !reading.contains(it) && **it != "repair");
    assert_eq!(Story::new(12).operations, expected.copied().collect());
}
