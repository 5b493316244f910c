//! The actions of tests on a directory, and its expected state afterwards.

use std::path::PathBuf;
use std::sync::Arc;

use delayline_core::{
    At, Backend, Claim, ClaimId, ConsumerName, Error, Lease, MessageId, Millis, NewMessage, Op,
    Outcome, QueueName, Reply, Schedule, Settlement, State, Timestamp,
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
}

impl Story {
    pub(crate) fn new(steps: usize) -> Self {
        let mut states: [State; QUEUES.len()] = Default::default();
        let mut story = Self { steps: Vec::new(), states: vec![states.each_ref().map(bytes)] };
        let mut leases = [const { Vec::new() }; QUEUES.len()];
        for step in 0..steps {
            let now = Timestamp::from_ms(1_000 + u64::try_from(step).unwrap() * 100).unwrap();
            let ops: [Op; QUEUES.len()] = std::array::from_fn(|queue| {
                let op = op(step + queue, std::mem::take(&mut leases[queue]));
                let applied = states[queue].apply(now, &op);
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

fn op(step: usize, held: Vec<(MessageId, Lease)>) -> Op {
    let id = |part: &str| MessageId::try_from(format!("message-{step}-{part}")).unwrap();
    match step % 4 {
        0 | 1 => {
            let payload = vec![u8::try_from(step % 251).unwrap(); 40];
            let later = NewMessage::new(id("later"), payload.clone())
                .schedule(Schedule::In(Millis::new(1_000).unwrap()));
            Op::Enqueue(vec![NewMessage::new(id("now"), payload), later])
        }
        2 => {
            let token = ClaimId::from_bytes([u8::try_from(step % 251).unwrap(); 16]);
            let consumer = ConsumerName::new("worker").unwrap();
            Op::Claim(Claim::new(consumer, token, 2, Millis::new(5_000).unwrap()))
        }
        _ if held.is_empty() => Op::Pause,
        _ => {
            let settle = |(index, (id, lease))| {
                let outcome = match index % 2 {
                    0 => Outcome::Ack,
                    _ => Outcome::Retry { schedule: Schedule::NOW, error: "no".to_owned() },
                };
                Settlement::new(id, lease, outcome)
            };
            Op::Settle(held.into_iter().enumerate().map(settle).collect())
        }
    }
}
