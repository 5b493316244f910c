//! Damaged and missing files.

use super::story::{SMALL, Story, open};
use crate::disk::Disk;
use crate::disk::simulated::{Keep, SimulatedDisk};
use crate::replay::recover;
use crate::{OpenError, Options, names};

/// A disk as a killed process leaves it, and its steps.
fn killed(story: &Story, options: Options) -> SimulatedDisk {
    let disk = SimulatedDisk::default();
    let directory = open(&disk, options).unwrap();
    assert_eq!(story.run(&directory, 0).0, story.len());
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
            // Nothing tells the last batch from one that was torn.
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
            Ok(_) if len < 56 => {}
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
            // Nothing tells that there was a segment behind the last one.
            Ok(_) => assert_eq!(Some(name), files.iter().rfind(|it| it.starts_with("log-"))),
            Err(error) => panic!("without {name}: {error}"),
        }
        disk.put(name, bytes);
    }
}
