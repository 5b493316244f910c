//! A crash undoes claims whose messages were handed out.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use delayline_core::{
    Applied, At, Backend, Claim, ClaimId, ConsumerName, Delivery, Durability, Error, Found,
    MessageId, Millis, NewMessage, Op, Outcome, Reply, Schedule, Settlement,
};

use super::story::{SMALL, open, runtime};
use crate::FileBackend;
use crate::backup::copy;
use crate::disk::Volume;
use crate::disk::simulated::{Fault, Keep, SimulatedDisk};

/// What producers and workers have seen of a queue.
#[derive(Clone, Default)]
struct Seen {
    sent: BTreeSet<MessageId>,
    acked: BTreeSet<MessageId>,
    /// The latest epoch of each message that was handed out.
    epochs: BTreeMap<MessageId, u64>,
    /// Messages that are leased, as far as the workers know.
    leased: BTreeSet<MessageId>,
    /// Messages that were handed out again during their lease.
    lost_leases: usize,
}

impl Seen {
    /// Sends, claims and settles until a call fails.
    fn work(&mut self, disk: &SimulatedDisk, run: u8) {
        let Ok(directory) = open(disk, SMALL()) else { return };
        let queue = directory.queue("orders".parse().unwrap()).unwrap();
        let steps = 0..12;
        let _ = runtime().block_on(async {
            for step in steps {
                self.step(&queue, run, step).await?;
            }
            Ok::<(), Error>(())
        });
    }

    async fn step(&mut self, queue: &FileBackend, run: u8, step: u8) -> Result<(), Error> {
        let id = MessageId::try_from(format!("message-{run}-{step}")).unwrap();
        queue.apply(At::Server, &Op::Enqueue(vec![NewMessage::new(id.clone(), "order")])).await?;
        self.sent.insert(id);
        for delivery in self.claim(queue, [run, step]).await? {
            let id = delivery.message.info.id;
            let outcome = match step % 3 {
                0 => Outcome::Ack,
                1 => Outcome::Retry { schedule: Schedule::NOW, error: "no".to_owned() },
                _ => continue,
            };
            let acks = matches!(outcome, Outcome::Ack);
            let settlement = Settlement::new(id.clone(), delivery.lease, outcome);
            // Even if the call fails, the lease may have ended.
            self.leased.remove(&id);
            queue.apply(At::Server, &Op::Settle(vec![settlement])).await?;
            if acks {
                self.acked.insert(id);
            }
        }
        Ok(())
    }

    async fn claim(&mut self, queue: &FileBackend, claim: [u8; 2]) -> Result<Vec<Delivery>, Error> {
        let mut bytes = [1; 16];
        bytes[..2].copy_from_slice(&claim);
        let consumer = ConsumerName::new("worker").unwrap();
        let lease = Millis::new(3_600_000).unwrap();
        let op = Op::Claim(Claim::new(consumer, ClaimId::from_bytes(bytes), 1, lease));
        let Applied { reply, .. } = queue.apply_durably(At::Server, &op, Durability::None).await?;
        let Reply::Claim(claimed) = reply else { panic!("{reply:?}") };
        for delivery in &claimed.deliveries {
            let (id, epoch) = (&delivery.message.info.id, delivery.lease.epoch);
            assert!(!self.acked.contains(id), "{id} was acked, and is delivered again");
            let earlier = self.epochs.insert(id.clone(), epoch).unwrap_or(0);
            assert!(earlier < epoch, "{id} has epoch {epoch} after {earlier}");
            self.lost_leases += usize::from(!self.leased.insert(id.clone()));
        }
        Ok(claimed.deliveries)
    }

    /// Checks that no acknowledged call is lost, and that no epoch repeats.
    fn check(&mut self, disk: &SimulatedDisk) {
        let directory = open(disk, SMALL()).unwrap();
        let queue = directory.queue("orders".parse().unwrap()).unwrap();
        runtime().block_on(async {
            for step in 0..u8::MAX {
                if self.claim(&queue, [u8::MAX, step]).await.unwrap().is_empty() {
                    break;
                }
            }
            for id in &self.sent {
                let get = Op::Get(vec![id.clone()]);
                let reply = queue.apply(At::Server, &get).await.unwrap().reply;
                let Reply::Get(found) = reply else { panic!("{reply:?}") };
                let is_acked = matches!(found[0], Found::Finished(_));
                let is_live = matches!(found[0], Found::Live(_));
                assert!(is_acked || is_live && !self.acked.contains(id), "{id}: {found:?}");
            }
        });
    }
}

/// The power fails at every call, once or twice.
#[test]
fn no_epoch_of_a_lost_claim_is_handed_out_again() {
    let mut lost = 0;
    for call in 1.. {
        let disk = SimulatedDisk::default().with_fault(call, Fault::PowerAfter);
        let mut seen = Seen::default();
        seen.work(&disk, 0);
        if disk.calls() < call {
            break;
        }
        for seed in 0..2 {
            for again in [5, 13, 21] {
                let (mut seen, disk) = (seen.clone(), disk.crash(Keep::Any(seed)));
                let disk = disk.with_fault(again, Fault::PowerAfter);
                seen.work(&disk, 1);
                let left = disk.crash(Keep::Any(seed));
                let copied = SimulatedDisk::default();
                // A backup before the directory is opened again.
                copy(Path::new("queues"), &left, &Volume::new(copied.clone())).unwrap();
                seen.clone().check(&copied);
                seen.check(&left);
                lost += seen.lost_leases;
            }
        }
    }
    assert!(lost > 5, "only {lost} leases were lost");
}

/// Otherwise, a message that kills the process at once would never be counted as crashed.
#[test]
fn a_killed_process_loses_no_claim_that_it_has_handed_out() {
    for call in 1.. {
        let disk = SimulatedDisk::default().with_fault(call, Fault::PowerAfter);
        let mut seen = Seen::default();
        seen.work(&disk, 0);
        if disk.calls() < call {
            break;
        }
        seen.check(&disk.crash(Keep::Everything));
        assert_eq!(seen.lost_leases, 0, "killed at call {call}");
    }
}
