//! Damaged and missing files.

use delayline_core::limits::MAX_TIMESTAMP_MS;
use delayline_core::{At, Backend, Found, MessageId, NewMessage, Op, Reply, Timestamp};
use proptest::collection::vec;
use proptest::prelude::{any, prop_oneof};
use proptest::strategy::{Just, Strategy};

use super::story::{SMALL, Story, open, runtime};
use crate::clock::{MAX_STEP_BACK_MS, machine_ms};
use crate::disk::simulated::{Keep, SimulatedDisk};
use crate::disk::{Disk, Readable, Volume};
use crate::replay::{Files, recover};
use crate::segment::{HEADER, Header, MODEL, Synced, encode_frame};
use crate::{Directory, OpenError, Options, names, record, snapshot};

/// Runs a story, and returns the disk as a killed process leaves it after its latest checkpoint.
fn killed(story: &Story, options: Options) -> SimulatedDisk {
    let disk = SimulatedDisk::default();
    let directory = open(&disk, options).unwrap();
    assert_eq!(story.run(&directory, 0).0, story.len());
    directory.finish_checkpoint();
    let killed = disk.crash(Keep::Everything);
    drop(directory);
    killed
}

fn large() -> Options {
    SMALL().segment_bytes(1 << 20)
}

#[test]
fn a_changed_byte_is_refused_unless_it_is_in_the_last_batch() {
    let story = Story::new(6);
    let disk = killed(&story, large());
    let name = names::segment(1);
    let intact = disk.bytes(&name);
    let end = intact.iter().rposition(|byte| *byte != 0).unwrap() + 1;
    let mut refused = 0;
    for offset in 0..end {
        let mut bytes = intact.clone();
        bytes[offset] ^= 0x40;
        disk.put(&name, bytes);
        match recover(&disk) {
            Err(OpenError::Damaged { file, .. }) => {
                assert_eq!(file, name);
                refused += 1;
            }
            Err(error) => panic!("byte {offset}: {error}"),
            // The last batch looks the same as a torn one.
            Ok(_) => story.check(&disk, story.len() - 1).unwrap(),
        }
    }
    assert!(refused > end / 2, "{refused} of {end}");
}

#[test]
fn a_file_that_was_cut_off_is_refused() {
    let story = Story::new(6);
    let disk = killed(&story, large());
    let name = names::segment(1);
    let intact = disk.bytes(&name);
    for len in 0..intact.len() {
        disk.put(&name, intact[..len].to_vec());
        match recover(&disk) {
            Err(OpenError::Damaged { .. }) => {}
            Err(error) => panic!("{len} bytes: {error}"),
            Ok(_) => panic!("{len} of {} bytes are taken for all", intact.len()),
        }
    }
}

#[test]
fn a_changed_byte_in_a_snapshot_is_refused() {
    let story = Story::new(6);
    let disk = SimulatedDisk::default();
    let directory = open(&disk, large()).unwrap();
    story.run(&directory, 0);
    drop(directory);
    story.check(&disk, story.len()).unwrap();
    let [name] = &disk.list().unwrap()[..] else { panic!("a closed directory is a snapshot") };
    let intact = disk.bytes(name);
    for offset in 0..intact.len() {
        let mut bytes = intact.clone();
        bytes[offset] ^= 0x04;
        disk.put(name, bytes);
        let error = recover(&disk).unwrap_err();
        assert!(matches!(error, OpenError::Damaged { .. } | OpenError::Version { .. }), "{error}");
        disk.put(name, intact[..offset].to_vec());
        assert!(matches!(recover(&disk).unwrap_err(), OpenError::Damaged { .. }));
    }
}

#[test]
fn a_missing_file_is_named() {
    let story = Story::new(40);
    let disk = killed(&story, SMALL());
    let files = disk.list().unwrap();
    assert!(files.iter().any(|name| name.starts_with("snapshot-")), "{files:?}");
    // A snapshot that was being written is of no use.
    for name in files.iter().filter(|name| !name.ends_with(".new")) {
        let bytes = disk.bytes(name);
        disk.remove(name).unwrap();
        match recover(&disk) {
            Err(OpenError::Missing { file, .. }) => assert!(file.starts_with("log-"), "{file}"),
            Err(OpenError::Damaged { .. }) => {}
            // Nothing shows that there was a segment behind the last one.
            Ok(_) => assert_eq!(Some(name), files.iter().rfind(|it| it.starts_with("log-"))),
            Err(error) => panic!("without {name}: {error}"),
        }
        disk.put(name, bytes);
    }
    for name in files.iter().filter(|name| name.starts_with("log-")) {
        disk.remove(name).unwrap();
    }
    let error = recover(&disk).unwrap_err();
    assert!(matches!(error, OpenError::Missing { .. }), "without any log: {error}");
}

/// Neither the first log may go missing nor the one after a clean close.
#[test]
fn a_log_that_is_gone_or_empty_is_missed() {
    let pause = |disk: &SimulatedDisk, op: Op| {
        let directory = open(disk, large()).unwrap();
        let queue = directory.queue("orders".parse().unwrap()).unwrap();
        runtime().block_on(queue.apply(At::Server, &op)).unwrap();
        directory
    };
    let keeps = [Keep::Everything, Keep::Any(0), Keep::Any(1), Keep::Any(2)];
    for (was_closed, keep) in [false, true].into_iter().flat_map(|it| keeps.map(|keep| (it, keep)))
    {
        let disk = SimulatedDisk::default();
        if was_closed {
            drop(pause(&disk, Op::Pause));
        }
        let directory = pause(&disk, Op::Resume);
        let killed = disk.crash(keep);
        drop(directory);
        let files = killed.list().unwrap();
        assert_eq!(was_closed, files.iter().any(|it| it.starts_with("snapshot-")), "{files:?}");
        let log = files.into_iter().find(|it| it.starts_with("log-")).unwrap();
        for len in [0, 10, 55] {
            killed.put(&log, vec![0; len]);
            let error = recover(&killed).unwrap_err();
            assert!(matches!(&error, OpenError::Damaged { file, .. } if *file == log), "{error}");
        }
        killed.remove(&log).unwrap();
        let error = recover(&killed).unwrap_err();
        assert!(matches!(&error, OpenError::Missing { file, .. } if *file == log), "{error}");
    }
}

#[test]
fn a_clock_that_is_far_behind_is_refused_until_it_is_accepted() {
    let disk = SimulatedDisk::default();
    let none = std::iter::empty();
    snapshot::write(
        &Volume::new(disk.clone()),
        1,
        true,
        Timestamp::from_ms(MAX_TIMESTAMP_MS).unwrap(),
        1,
        none,
    )
    .unwrap();
    let error = open(&disk, large()).unwrap_err();
    assert!(matches!(error, OpenError::Clock { .. }), "{error}");
    let directory = open(&disk, large().accept_clock(true)).unwrap();
    let queue = directory.queue("orders".parse().unwrap()).unwrap();
    runtime().block_on(queue.apply(At::Server, &Op::Pause)).unwrap();
    let killed = disk.crash(Keep::Everything);
    drop((queue, directory));
    open(&killed, large()).unwrap();
}

/// Applies an operation often enough for a checkpoint.
fn pause_and_resume(directory: &Directory) {
    let queue = directory.queue("orders".parse().unwrap()).unwrap();
    for _ in 0..40 {
        for op in [Op::Pause, Op::Resume] {
            runtime().block_on(queue.apply(At::Server, &op)).unwrap();
        }
    }
    directory.finish_checkpoint();
    assert!(directory.status().last_checkpoint.is_some());
}

/// Otherwise, the next start would not notice a clock that is behind.
#[test]
fn the_latest_instant_is_in_the_log_and_in_every_snapshot() {
    let disk = SimulatedDisk::default();
    let before = machine_ms();
    let directory = open(&disk, SMALL()).unwrap();
    let clock = |disk: &SimulatedDisk| recover(disk).unwrap().contents.clock.as_ms();
    let queue = directory.queue("orders".parse().unwrap()).unwrap();
    runtime().block_on(queue.apply(At::Server, &Op::Pause)).unwrap();
    assert!(clock(&disk) >= before, "in the log");
    pause_and_resume(&directory);
    let number = recover(&disk).unwrap().files.snapshot;
    let (_, contents, _) = snapshot::read(&disk, number).unwrap();
    assert!(contents.clock.as_ms() >= before, "in the snapshot of a checkpoint");
    drop((queue, directory));
    assert!(clock(&disk) >= before, "in the snapshot of a closed directory");
}

#[test]
fn a_clock_that_is_a_little_behind_stands_still() {
    let disk = SimulatedDisk::default();
    let ahead = Timestamp::from_ms(machine_ms() + MAX_STEP_BACK_MS / 2).unwrap();
    snapshot::write(&Volume::new(disk.clone()), 1, true, ahead, 1, std::iter::empty()).unwrap();
    let directory = open(&disk, large()).unwrap();
    let queue = directory.queue("orders".parse().unwrap()).unwrap();
    let id = MessageId::try_from("order-1").unwrap();
    let send = Op::Enqueue(vec![NewMessage::new(id.clone(), "payload")]);
    runtime().block_on(queue.apply(At::Server, &send)).unwrap();
    let get = Op::Get(vec![id]);
    let get = queue.apply(At::Server, &get);
    let Reply::Get(found) = runtime().block_on(get).unwrap().reply else { unreachable!() };
    assert!(matches!(&found[..], [Found::Live(message)] if message.info.due == ahead), "{found:?}");
}

#[test]
fn a_checkpoint_shows_in_the_status() {
    let disk = SimulatedDisk::default();
    let directory = open(&disk, SMALL()).unwrap();
    pause_and_resume(&directory);
    let status = directory.status();
    let Files { snapshot, segments, .. } = Files::find(&disk).unwrap();
    assert!(snapshot > 1, "{status:?}");
    assert_eq!(status.segments, u64::try_from(segments.len()).unwrap());
    let size = disk.bytes(&names::snapshot(snapshot)).len();
    assert_eq!(status.snapshot_bytes, u64::try_from(size).unwrap());
    assert_eq!(status.log_bytes, recover(&disk).unwrap().logged);
}

/// Each start adds a segment, however little a process does.
#[test]
fn many_kills_leave_few_segments() {
    let mut disk = SimulatedDisk::default();
    for _ in 0..20 {
        let directory = open(&disk, large()).unwrap();
        let queue = directory.queue("orders".parse().unwrap()).unwrap();
        for op in [Op::Pause, Op::Resume] {
            runtime().block_on(queue.apply(At::Server, &op)).unwrap();
        }
        directory.finish_checkpoint();
        let killed = disk.crash(Keep::Everything);
        drop((queue, directory));
        disk = killed;
    }
    let segments = Files::find(&disk).unwrap().segments;
    assert!(segments.len() < 10, "{segments:?}");
    // A process that changes nothing leaves a snapshot, too.
    drop(open(&disk, large()).unwrap());
    assert_eq!(disk.list().unwrap().len(), 1);
}

/// It is not damaged: the version that wrote it can read it.
#[test]
fn a_log_of_another_model_is_refused_with_its_version() {
    for model in [MODEL, MODEL + 1] {
        let header = Header { number: 1, model, first: 1, salt: 7, len: 0 };
        let mut segment = header.encode();
        let mut pause = record::encode_op(&Op::Pause).unwrap();
        // One pause has led to another revision.
        record::stamp(&mut pause, 1, Timestamp::MIN, record::Clock::Machine, 2);
        let bodies = [record::queue(1, &"orders".parse().unwrap()), pause];
        for (sequence, body) in (1..).zip(&bodies) {
            encode_frame(&mut segment, 7, sequence, Synced { offset: HEADER, len: 0 }, body);
        }
        let disk = SimulatedDisk::default();
        disk.put(&names::segment(1), segment);
        match recover(&disk).unwrap_err() {
            OpenError::Version { found, .. } => assert!(model != MODEL && found == model),
            OpenError::Damaged { .. } => assert_eq!(model, MODEL),
            error => panic!("{error}"),
        }
    }
}

/// Bodies like those of records: kinds, numbers and values in MessagePack, and any bytes.
fn body() -> impl Strategy<Value = Vec<u8>> {
    let pieces = prop_oneof![
        vec(any::<u8>(), 0..4),
        vec(Just(0), 1..9),
        Just(b"\x81\xa7enqueue\x91\x82\xa2id\xc4\x01a\xa7payload\xc4\x01b".to_vec()),
        Just(b"\xa5pause".to_vec()),
        Just(b"\x87\xa5model\x01\xa6number\x01\xa6closed\xc3".to_vec()),
    ];
    vec(pieces, 0..6).prop_map(|pieces| pieces.concat())
}

proptest::proptest! {
    #[test]
    fn any_records_and_any_snapshot_are_read_or_refused(bodies in vec(body(), 0..5)) {
        let disk = SimulatedDisk::default();
        let header = Header { number: 1, model: MODEL, first: 1, salt: 7, len: 0 };
        let mut segment = header.encode();
        for (sequence, body) in (1..).zip(&bodies) {
            encode_frame(&mut segment, 7, sequence, Synced { offset: HEADER, len: 0 }, body);
        }
        disk.put(&names::segment(1), segment);
        drop(recover(&disk));
        let disk = SimulatedDisk::default();
        let mut file = disk.create(&names::snapshot(1)).unwrap();
        snapshot::write_raw(&mut *file, 1, &bodies.concat()).unwrap();
        drop(recover(&disk));
    }
}
