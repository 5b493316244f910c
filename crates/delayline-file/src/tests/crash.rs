//! Power failures at every call, after which the disk has any part of the unsynced data.

use std::io::ErrorKind;
use std::pin::Pin;
use std::task::{Context, Waker};

use delayline_core::{At, Backend, DestinationKey, MessageId, NewMessage, Op};
#[cfg(unix)]
use rustix::io::Errno;

use super::story::{SMALL, Story, open, runtime};
use crate::disk::Volume;
use crate::disk::simulated::{Fault, Ignored, Keep, SimulatedDisk};

const STEPS: usize = 24;
/// More bytes than a batch of the story has.
const MAX_BATCH: usize = 4_000;

/// Runs the story until the power fails at a call. Returns the disk and how many steps were
/// acknowledged.
fn run_until(story: &Story, disk: SimulatedDisk, call: usize) -> (SimulatedDisk, usize) {
    let disk = disk.with_fault(call, Fault::PowerAfter);
    let acknowledged = match open(&disk, SMALL()) {
        Ok(directory) => story.run(&directory, 0).0,
        Err(_) => 0,
    };
    (disk, acknowledged)
}

/// Returns the approximate number of calls of the story. Checkpoints run concurrently, so it
/// varies.
fn calls(story: &Story) -> usize {
    let disk = SimulatedDisk::default();
    let directory = open(&disk, SMALL()).unwrap();
    assert_eq!(story.run(&directory, 0).0, story.len());
    drop(directory);
    disk.calls()
}

#[test]
fn a_power_failure_at_every_call_loses_nothing_acknowledged() {
    let (story, mut continued) = (Story::new(STEPS), 0);
    for call in 1..=calls(&story) {
        let (failed, acknowledged) = run_until(&story, SimulatedDisk::default(), call);
        for seed in 0..2 {
            let mut disk = failed.crash(Keep::Any(seed));
            let check = |disk: &SimulatedDisk, what: &str| {
                story.check(disk, acknowledged).unwrap_or_else(|error| {
                    panic!("{what} a power failure at call {call}, seed {seed}: {error}")
                });
            };
            check(&disk, "after");
            // The power fails during recoveries as well.
            for again in [2, 5, 7] {
                disk = disk.with_fault(again, Fault::PowerAfter);
                drop(open(&disk, SMALL()));
                disk = disk.crash(Keep::Any(seed + u64::try_from(again).unwrap()));
                check(&disk, "after recoveries from");
            }
            if let Some(step) = story.position(&disk) {
                let directory = open(&disk, SMALL()).unwrap();
                assert_eq!(story.run(&directory, step).0, story.len());
                drop(directory);
                story.check(&disk, story.len()).unwrap();
                continued += usize::from(step < story.len());
            }
        }
    }
    assert!(continued > STEPS, "only {continued} stories went on after a power failure");
}

#[test]
fn every_byte_of_the_last_batch_may_be_the_last_on_disk() {
    let (story, mut torn) = (Story::new(12), 0);
    for call in 1..=calls(&story) {
        let (disk, acknowledged) = run_until(&story, SimulatedDisk::default(), call);
        let after = |bytes| story.position(&disk.crash(Keep::Bytes(bytes)));
        // Only some calls leave a batch that is not synced yet.
        if acknowledged == story.len() || after(0) == after(MAX_BATCH) {
            continue;
        }
        torn += 1;
        assert!(disk.unsynced_bytes() <= MAX_BATCH);
        for bytes in 0..=disk.unsynced_bytes() {
            let disk = disk.crash(Keep::Bytes(bytes));
            story.check(&disk, acknowledged).unwrap_or_else(|error| {
                panic!("{bytes} bytes of the last batch at call {call}: {error}")
            });
        }
    }
    // Each call is of another run, in which the threads divide the steps otherwise.
    assert!(torn >= 3, "only {torn} batches were torn");
}

#[test]
fn a_process_killed_and_then_a_power_failure_lose_nothing() {
    let (story, mut shown) = (Story::new(12), 0);
    for call in 1..=calls(&story) {
        let (disk, acknowledged) = run_until(&story, SimulatedDisk::default(), call);
        // Each recovery needs a disk of its own: it makes durable what was only in the cache.
        let killed = || disk.crash(Keep::Everything);
        story.check(&killed(), acknowledged).unwrap();
        for again in 1.. {
            let recovering = killed().with_fault(again, Fault::PowerAfter);
            drop(open(&recovering, SMALL()));
            let disk = recovering.crash(Keep::Any(u64::try_from(again).unwrap()));
            story.check(&disk, acknowledged).unwrap_or_else(|error| {
                panic!(
                    "a kill at call {call}, and a power failure at call {again} after it: {error}"
                )
            });
            if recovering.calls() < again {
                break;
            }
        }
        // The data that the recovery has shown must survive, too.
        let Some(step) = story.position(&killed()) else { continue };
        shown += 1;
        let killed = killed();
        let directory = open(&killed, SMALL()).unwrap();
        let done = step + usize::from(step < story.len());
        let disk = killed.crash(Keep::Any(u64::try_from(call).unwrap()));
        drop(directory);
        story.check(&disk, step).unwrap_or_else(|error| {
            panic!("a kill at call {call}, and a power failure before step {done}: {error}")
        });
    }
    assert!(shown > story.len(), "only {shown} recoveries have shown what they found");
}

#[test]
fn a_call_that_fails_is_final_and_loses_nothing() {
    let (story, mut reported, mut at_close) = (Story::new(STEPS), 0, 0);
    for call in 1..=calls(&story) {
        let input_output = Fault::Error(ErrorKind::Other);
        for fault in [input_output, Fault::Error(ErrorKind::StorageFull), Fault::Short] {
            let disk = SimulatedDisk::default().with_fault(call, fault);
            let (acknowledged, errors) = match open(&disk, SMALL()) {
                Ok(directory) => {
                    let (acknowledged, errors) = story.run(&directory, 0);
                    if errors.iter().any(|it| *it.kind() == delayline_core::ErrorKind::DiskFailed) {
                        let again = story.run(&directory, acknowledged).1;
                        assert_eq!(again.len(), 3, "{fault:?} at call {call}: nothing is retried");
                        let closed = directory.close();
                        assert!(closed.is_err(), "{fault:?} at call {call}: it closes silently");
                        reported += 1;
                    } else if errors.is_empty() && directory.close().is_err() {
                        at_close += 1;
                    } else if errors.is_empty() {
                        let struck = disk.struck();
                        let may_fail = matches!(fault, Fault::Error(ErrorKind::StorageFull))
                            || matches!(struck, None | Some("remove" | "truncate"))
                            || matches!(fault, Fault::Short)
                                && !matches!(struck, Some("write" | "sync" | "sync_names"));
                        assert!(may_fail, "{fault:?} at call {call}: no one learns of {struck:?}");
                    }
                    (acknowledged, errors)
                }
                Err(_) => (0, Vec::new()),
            };
            for error in errors {
                use delayline_core::ErrorKind::{DiskFailed, DiskFull};
                let kind = error.kind();
                assert!(matches!(kind, DiskFailed | DiskFull), "{fault:?} at {call}: {error}");
            }
            for keep in [Keep::Everything, Keep::Any(u64::try_from(call).unwrap())] {
                story.check(&disk.crash(keep), acknowledged).unwrap_or_else(|error| {
                    panic!("{fault:?} at call {call}, then {keep:?}: {error}")
                });
            }
        }
    }
    assert!(reported > STEPS && at_close > 0, "{reported} and {at_close} failures were reported");
}

/// The system shows data that a failed sync has not written, also to later processes, and takes it
/// for synced. So each process must write the data again that it reads.
#[test]
fn what_a_failed_sync_has_left_in_the_cache_is_written_again() {
    let story = Story::new(12);
    let faults = [Fault::Error(ErrorKind::Other), Fault::Short];
    for (fault, closing) in faults.into_iter().flat_map(|it| [(it, false), (it, true)]) {
        for call in 1.. {
            let mut disk = SimulatedDisk::default();
            let mut calls = call;
            if !closing {
                disk = disk.with_fault(calls, fault);
            }
            let directory = open(&disk, SMALL());
            let acknowledged = directory.as_ref().map_or(0, |it| story.run(it, 0).0);
            if closing {
                directory.as_ref().unwrap().finish_checkpoint();
                calls += disk.calls();
                disk = disk.with_fault(calls, fault);
            }
            drop(directory);
            open_with_faults(&story, &disk, acknowledged, fault).unwrap_or_else(|error| {
                panic!("{fault:?} at call {call}, closing: {closing}, and {error}");
            });
            if disk.calls() < calls {
                break;
            }
        }
    }
}

/// Opens what a process has left, with a fault at each call, then continues without faults until
/// the power fails.
fn open_with_faults(
    story: &Story,
    left: &SimulatedDisk,
    acknowledged: usize,
    fault: Fault,
) -> Result<(), String> {
    for call in 1.. {
        let failing = left.crash(Keep::Everything).with_fault(call, fault);
        let opened = open(&failing, SMALL());
        let was_met = failing.calls() >= call;
        let disk = failing.crash(Keep::Everything);
        let step = story.position(&disk);
        let last = open(&disk, SMALL()).map_err(|error| format!("at {call}: {error}"))?;
        let acknowledged = step.map_or(acknowledged, |step| story.run(&last, step).0);
        let after = disk.crash(Keep::Any(u64::try_from(call).unwrap()));
        drop((opened, last));
        story.check(&after, acknowledged).map_err(|error| {
            format!("at {call} of the next opening, and then a power failure: {error}")
        })?;
        if !was_met {
            break;
        }
    }
    Ok(())
}

/// Otherwise, a checkpoint removes files because its own sync succeeds after that of the log, which
/// has taken the name of its snapshot for synced.
#[test]
fn once_a_sync_of_the_directory_has_failed_no_name_counts_as_durable() {
    let disk = SimulatedDisk::default().with_fault(2, Fault::Error(ErrorKind::Other));
    let volume = Volume::new(disk);
    drop(volume.create("snapshot").unwrap());
    for _ in 0..2 {
        volume.sync_directory().unwrap_err();
    }
}

/// Otherwise, a caller that reads or repeats a call could see a change that a crash then undoes.
#[test]
fn no_reply_shows_what_is_not_yet_on_disk() {
    let disk = SimulatedDisk::default();
    let directory = open(&disk, SMALL()).unwrap();
    let queue = directory.queue("orders".parse().unwrap()).unwrap();
    let id = MessageId::try_from("order-1").unwrap();
    let send = Op::Enqueue(vec![NewMessage::new(id.clone(), "payload")]);
    let get = Op::Get(vec![id]);
    let name = "orders".parse().unwrap();
    let key = DestinationKey::try_from("due-orders").unwrap();
    let mut calls: Vec<Pin<Box<dyn Future<Output = bool>>>> = Vec::new();
    for op in [&send, &send, &get, &Op::Stats] {
        calls.push(Box::pin(async { queue.apply(At::Server, op).await.is_ok() }));
    }
    calls.push(Box::pin(async { queue.take_relayed(&key).await.is_ok() }));
    calls.push(Box::pin(async { directory.delete_if_empty(&name).await.is_ok() }));
    let held = disk.hold();
    for call in &mut calls {
        let mut context = Context::from_waker(Waker::noop());
        assert!(call.as_mut().poll(&mut context).is_pending());
    }
    drop(held);
    for call in calls {
        assert!(runtime().block_on(call));
    }
}

#[cfg(unix)]
#[test]
fn a_process_with_too_many_open_files_continues_in_those_that_it_has() {
    let story = Story::new(STEPS);
    for refused in ["log-", "snapshot-"] {
        let disk = SimulatedDisk::default();
        let directory = open(&disk, SMALL()).unwrap();
        disk.refuse(refused, Errno::MFILE.raw_os_error());
        assert_eq!(story.run(&directory, 0).0, story.len(), "without {refused}");
        directory.finish_checkpoint();
        let status = directory.status();
        assert_eq!((status.failure, status.snapshot_bytes), (None, 0));
        assert!(status.log_bytes > 3_000 && (status.segments == 1) == (refused == "log-"));
        let closed = directory.close();
        assert_eq!(closed.is_ok(), refused == "log-", "{closed:?}");
        story.check(&disk, story.len()).unwrap();
    }
}

/// A disk that cannot write one file is not trusted with the others.
#[cfg(unix)]
#[test]
fn a_checkpoint_that_the_disk_fails_is_final() {
    let story = Story::new(STEPS);
    let disk = SimulatedDisk::default();
    let directory = open(&disk, SMALL()).unwrap();
    disk.refuse("snapshot-", Errno::IO.raw_os_error());
    let acknowledged = story.run(&directory, 0).0;
    directory.finish_checkpoint();
    assert!(directory.status().failure.is_some());
    directory.close().unwrap_err();
    story.check(&disk, acknowledged).unwrap();
}

#[test]
fn a_close_without_changes_reports_a_call_that_fails() {
    let closed = || {
        let disk = SimulatedDisk::default();
        open(&disk, SMALL()).unwrap().close().unwrap();
        let directory = open(&disk, SMALL()).unwrap();
        (disk, directory)
    };
    let (disk, directory) = closed();
    let before = disk.calls();
    directory.close().unwrap();
    let calls = disk.calls() - before;
    assert!(calls >= 3, "{calls}");
    for call in 1..=calls {
        let (disk, directory) = closed();
        let disk = disk.with_fault(before + call, Fault::Error(ErrorKind::Other));
        directory.close().unwrap_err();
        let after = disk.crash(Keep::Any(u64::try_from(call).unwrap()));
        open(&after, SMALL()).unwrap().close().unwrap();
    }
}

/// Returns whether the checks above detect a disk that ignores some calls.
fn finds(ignores: Ignored) -> bool {
    let story = Story::new(STEPS);
    (1..=calls(&story)).any(|call| {
        let disk = SimulatedDisk::default().ignoring(ignores);
        let (disk, acknowledged) = run_until(&story, disk, call);
        (0..9).any(|seed| story.check(&disk.crash(Keep::Any(seed)), acknowledged).is_err())
    })
}

#[test]
fn a_sync_that_is_left_out_is_found() {
    assert!(finds(Ignored { syncs: true, ..Ignored::default() }));
}

#[test]
fn a_sync_of_the_directory_that_is_left_out_is_found() {
    assert!(finds(Ignored { directory_syncs: true, ..Ignored::default() }));
}
