//! A disk without room.

use delayline_core::{
    At, Backend, Claim, ClaimId, Claimed, ConsumerName, Delivery, Destination, DestinationKey,
    ErrorKind, HandOff, MessageId, Millis, NewMessage, NewResult, Op, Outcome, Relay, Reply,
    Settlement,
};

use super::story::{SMALL, open, runtime};
use crate::disk::Readable;
use crate::disk::simulated::{Keep, SimulatedDisk};
use crate::replay::{Last, recover};
use crate::{FileBackend, Options, names};

/// Sends until the disk is full. Returns how many messages were taken.
async fn fill(queue: &FileBackend, first: usize) -> usize {
    for number in first.. {
        let id = MessageId::try_from(format!("message-{number}")).unwrap();
        let op = Op::Enqueue(vec![NewMessage::new(id, vec![7; 200])]);
        match queue.apply(At::Server, &op).await {
            Ok(_) => {}
            Err(error) => {
                assert_eq!(*error.kind(), ErrorKind::DiskFull, "{error}");
                assert!(error.to_string().contains("drained"), "{error}");
                return number;
            }
        }
    }
    unreachable!()
}

/// Claims and acks all messages.
async fn drain(queue: &FileBackend) -> usize {
    let mut drained = 0;
    loop {
        let token = ClaimId::from_bytes(u128::try_from(drained).unwrap().to_be_bytes());
        let worker = ConsumerName::new("worker").unwrap();
        let claim = Op::Claim(Claim::new(worker, token, 1, Millis::new(60_000).unwrap()));
        let Reply::Claim(claimed) = queue.apply(At::Server, &claim).await.unwrap().reply else {
            unreachable!()
        };
        let Some(delivery) = claimed.deliveries.into_iter().next() else { return drained };
        let id = delivery.message.info.id;
        let ack = Settlement::new(id, delivery.lease, Outcome::Ack);
        queue.apply(At::Server, &Op::Settle(vec![ack])).await.unwrap();
        drained += 1;
    }
}

#[test]
fn a_full_disk_refuses_messages_and_lets_queues_drain() {
    let disk = SimulatedDisk::default();
    disk.set_capacity(3 << 20);
    let options = SMALL().segment_bytes(100_000).reserve_bytes(400_000).chunk_bytes(50_000);
    let runtime = runtime();
    let directory = open(&disk, options).unwrap();
    let queue = directory.queue("orders".parse().unwrap()).unwrap();
    let sent = runtime.block_on(fill(&queue, 0));
    assert!(sent > 100, "{sent}");
    assert!(directory.status().full);
    // A process that starts on the full disk drains, too.
    let killed = disk.crash(Keep::Everything);
    drop((queue, directory));
    let directory = open(&killed, options).unwrap();
    let queue = directory.queue("orders".parse().unwrap()).unwrap();
    assert_eq!(runtime.block_on(drain(&queue)), sent);
    drop((queue, directory));
    let files = killed.list().unwrap();
    assert_eq!(files.len(), 1, "{files:?}");
    let directory = open(&killed, options).unwrap();
    let queue = directory.queue("orders".parse().unwrap()).unwrap();
    let more = runtime.block_on(fill(&queue, sent)) - sent;
    assert!(more > 100, "the drained disk takes {more} messages");
}

/// The room that the killed process had reserved is enough.
#[test]
fn a_disk_that_other_files_have_filled_lets_queues_drain_after_a_kill() {
    let disk = SimulatedDisk::default();
    disk.set_capacity(64 << 20);
    let options = SMALL().segment_bytes(100_000).reserve_bytes(400_000).chunk_bytes(50_000);
    let runtime = runtime();
    let directory = open(&disk, options).unwrap();
    let queue = directory.queue("orders".parse().unwrap()).unwrap();
    for number in 0..50 {
        let id = MessageId::try_from(format!("message-{number}")).unwrap();
        let op = Op::Enqueue(vec![NewMessage::new(id, vec![7; 200])]);
        runtime.block_on(queue.apply(At::Server, &op)).unwrap();
    }
    let killed = disk.crash(Keep::Everything);
    drop((queue, directory));
    killed.fill_up();
    let directory = open(&killed, options).unwrap();
    let queue = directory.queue("orders".parse().unwrap()).unwrap();
    assert_eq!(runtime.block_on(drain(&queue)), 50);
}

#[test]
fn a_message_that_is_larger_than_the_room_waits_until_the_log_has_grown() {
    let disk = SimulatedDisk::default();
    let options = SMALL().segment_bytes(1 << 20);
    let directory = open(&disk, options).unwrap();
    let queue = directory.queue("orders".parse().unwrap()).unwrap();
    for id in ["order-1", "order-2"] {
        let message = NewMessage::new(MessageId::try_from(id).unwrap(), vec![7; 50_000]);
        runtime().block_on(queue.apply(At::Server, &Op::Enqueue(vec![message]))).unwrap();
        let room = usize::try_from(directory.status().room_bytes).unwrap();
        assert!(room < disk.bytes(&names::segment(1)).len(), "{room}");
    }
}

#[test]
fn the_room_of_the_status_is_what_operations_have_left_in_the_file() {
    let disk = SimulatedDisk::default();
    // Large enough that it does not grow.
    let directory = open(&disk, SMALL().chunk_bytes(1 << 20)).unwrap();
    let queue = directory.queue("orders".parse().unwrap()).unwrap();
    let message = |id: &str| NewMessage::new(MessageId::try_from(id).unwrap(), "payload");
    let key = DestinationKey::try_from("due-orders").unwrap();
    let relay = Relay::new(Destination::List { key: key.clone(), max_len: None }, 10);
    let runtime = runtime();
    for (op, frames) in [
        // The first frame is the queue's name.
        (Op::Enqueue(vec![message("a"), message("b")]), 2),
        (Op::Enqueue(vec![message("a")]), 2),
        (Op::Stats, 2),
        (Op::Relay(relay), 3),
    ] {
        runtime.block_on(queue.apply(At::Server, &op)).unwrap();
        let recovered = recover(&disk).unwrap();
        assert_eq!(recovered.contents.next - 1, frames, "{op:?}");
    }
    runtime.block_on(queue.take_relayed(&key)).unwrap();
    runtime.block_on(queue.take_relayed(&key)).unwrap();
    let removed = directory.delete_if_empty(queue.queue_name().unwrap());
    assert!(runtime.block_on(removed).unwrap().1.is_empty());
    let recovered = recover(&disk).unwrap();
    assert_eq!(recovered.contents.next - 1, 5);
    let Last { number, end, .. } = recovered.last.unwrap();
    let len = u64::try_from(disk.bytes(&names::segment(number)).len()).unwrap();
    assert_eq!(directory.status().room_bytes, len - end);
}

/// Otherwise, messages that send others would use up the reserve.
#[test]
fn a_handler_on_a_full_disk_ends_its_message_and_sends_no_other() {
    let disk = SimulatedDisk::default();
    disk.set_capacity(64 << 20);
    // Too large for a checkpoint that makes room.
    let options = SMALL().segment_bytes(8 << 20).reserve_bytes(100_000).chunk_bytes(50_000);
    let runtime = runtime();
    let directory = open(&disk, options).unwrap();
    disk.fill_up();
    let queue = directory.queue("orders".parse().unwrap()).unwrap();
    runtime.block_on(fill(&queue, 0));
    let worker = ConsumerName::new("worker").unwrap();
    let token = ClaimId::from_bytes([1; 16]);
    let claim = Op::Claim(Claim::new(worker, token, 1, Millis::new(60_000).unwrap()));
    let claimed = runtime.block_on(queue.apply(At::Server, &claim)).unwrap().reply;
    let Reply::Claim(Claimed { mut deliveries, .. }) = claimed else { unreachable!() };
    let Delivery { message, lease, .. } = deliveries.remove(0);
    let ack = || Settlement::new(message.info.id.clone(), lease, Outcome::Ack);
    let next = NewMessage::new(MessageId::try_from("next").unwrap(), vec![7; 400]);
    let result = NewResult::new(vec![7; 400], Millis::new(60_000).unwrap());
    for item in [HandOff::new(ack(), vec![next]), HandOff::new(ack(), vec![]).with_result(result)] {
        let refused = runtime.block_on(queue.apply(At::Server, &Op::HandOff(vec![item])));
        let error = refused.unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::DiskFull, "{error}");
    }
    runtime.block_on(queue.apply(At::Server, &Op::Settle(vec![ack()]))).unwrap();
}

#[test]
fn a_small_disk_takes_messages() {
    let disk = SimulatedDisk::default();
    disk.set_capacity(6 << 20);
    let runtime = runtime();
    let directory = open(&disk, Options::default()).unwrap();
    let queue = directory.queue("orders".parse().unwrap()).unwrap();
    let sent = runtime.block_on(fill(&queue, 0));
    assert!(sent > 500, "{sent}");
    assert_eq!(runtime.block_on(drain(&queue)), sent);
}
