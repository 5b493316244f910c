//! Directories of the file system: whose they are, and who uses them.

use std::fs;

use delayline_core::{At, Backend, Durability, Error, ErrorClass, ErrorKind, Op, Reply};
use delayline_file::{Directory, MAX_QUEUES, OpenError, Options};

#[test]
fn one_process_opens_a_directory_and_is_named() {
    let parent = tempfile::tempdir().unwrap();
    let path = parent.path().join("a/b");
    let directory = Directory::open(&path, Options::default()).unwrap();
    let error = Directory::open(&path, Options::default()).unwrap_err();
    assert!(error.to_string().contains(&format!("process {}", std::process::id())), "{error}");
    let error = Error::from(error);
    assert_eq!((error.kind(), error.class()), (&ErrorKind::InUse, ErrorClass::NotExecuted));
    drop(directory);
    Directory::open(&path, Options::default()).unwrap();
}

#[test]
fn files_of_another_program_are_refused_and_left_alone() {
    let parent = tempfile::tempdir().unwrap();
    let notes = parent.path().join("notes.txt");
    fs::write(&notes, "not ours").unwrap();
    let error = Directory::open(parent.path(), Options::default()).unwrap_err();
    assert!(matches!(&error, OpenError::Foreign { file, .. } if file == "notes.txt"), "{error}");
    let error = Error::from(error);
    assert_eq!((error.kind(), error.class()), (&ErrorKind::Storage, ErrorClass::Rejected));
    let error = Directory::open(&notes, Options::default()).unwrap_err();
    assert!(matches!(error, OpenError::Io { .. }), "{error}");
    assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 1);
}

#[tokio::test]
async fn a_closed_directory_is_a_snapshot_and_keeps_names_with_slashes() {
    let parent = tempfile::tempdir().unwrap();
    let open = || Directory::open(parent.path(), Options::default()).unwrap();
    let directory = open();
    let queue = directory.queue("shop/orders".parse().unwrap()).unwrap();
    queue.apply(At::Server, &Op::Pause).await.unwrap();
    // Only opened: nothing of it is stored.
    drop(directory.queue("mails".parse().unwrap()).unwrap());
    drop((directory, queue));
    let names = fs::read_dir(parent.path()).unwrap().map(|file| file.unwrap().file_name());
    let mut names: Vec<_> = names.map(|name| name.into_string().unwrap()).collect();
    names.sort();
    assert_eq!(names, ["delayline.lock", "snapshot-0000000000000002"]);
    let directory = open();
    assert_eq!(directory.queues(), ["shop/orders".parse().unwrap()]);
    let queue = directory.queue("shop/orders".parse().unwrap()).unwrap();
    let reply = queue.apply(At::Server, &Op::Pause).await.unwrap().reply;
    assert_eq!(reply, Reply::Pause { changed: false });
}

#[tokio::test]
async fn a_directory_is_durable_and_has_no_replicas_and_a_limit_of_queues() {
    let parent = tempfile::tempdir().unwrap();
    let directory = Directory::open(parent.path(), Options::default()).unwrap();
    let queue = directory.queue("orders".parse().unwrap()).unwrap();
    queue.apply_durably(At::Server, &Op::Pause, Durability::Disk).await.unwrap();
    let replicas = Durability::Replicas(1);
    let error = queue.apply_durably(At::Server, &Op::Resume, replicas).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Unsupported(_)), "{error}");
    for number in 1..MAX_QUEUES {
        directory.queue(format!("queue-{number}").parse().unwrap()).unwrap();
    }
    let error = directory.queue("one-more".parse().unwrap()).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Invalid(_)), "{error}");
    assert!(error.to_string().contains("1000"), "{error}");
}
