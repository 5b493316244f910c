//! Directories of the file system: whose they are, and who uses them.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

use std::fs;
use std::io::Write as _;

use delayline_core::{
    At, Backend, Destination, DestinationKey, Durability, Error, ErrorClass, ErrorKind, MessageId,
    NewMessage, Op, Relay, Reply, Timestamp,
};
use delayline_file::{Directory, FileBackend, MAX_QUEUES, OpenError, Options};

fn open(path: impl AsRef<std::path::Path>) -> Directory {
    Directory::open(path, Options::default()).unwrap()
}

fn queue(directory: &Directory, name: &str) -> FileBackend {
    directory.queue(name.parse().unwrap()).unwrap()
}

async fn send(queue: &FileBackend, id: &str) {
    let message = NewMessage::new(MessageId::try_from(id).unwrap(), "payload");
    queue.apply(At::Server, &Op::Enqueue(vec![message])).await.unwrap();
}

#[test]
fn one_process_opens_a_directory_and_is_named() {
    let parent = tempfile::tempdir().unwrap();
    let path = parent.path().join("a/b");
    let directory = Directory::open(&path, Options::default()).unwrap();
    let error = Directory::open(&path, Options::default()).unwrap_err();
    let holder = format!("this process (process {}) has already opened", std::process::id());
    assert!(error.to_string().contains(&holder), "{error}");
    assert!(error.to_string().ends_with("share its connection"), "{error}");
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
    let mut used = Vec::new();
    for number in 1..MAX_QUEUES {
        // One that was only looked up, such as a misspelt name, does not count.
        drop(directory.queue(format!("misspelt-{number}").parse().unwrap()).unwrap());
        used.push(directory.queue(format!("queue-{number}").parse().unwrap()).unwrap());
    }
    let error = directory.queue("one-more".parse().unwrap()).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Invalid(_)), "{error}");
    assert!(error.to_string().contains("1000"), "{error}");
    // Once they are dropped, new queues reuse their numbers, each a different one.
    drop(used);
    for name in ["a", "b"] {
        send(&self::queue(&directory, name), "message").await;
    }
    drop((directory, queue));
    assert_eq!(open(parent.path()).queues(), ["a", "b", "orders"].map(|it| it.parse().unwrap()));
}

/// Copies the files, as a killed process leaves them.
fn killed(directory: &std::path::Path) -> tempfile::TempDir {
    let copy = tempfile::tempdir().unwrap();
    for file in fs::read_dir(directory).unwrap().map(Result::unwrap) {
        fs::copy(file.path(), copy.path().join(file.file_name())).unwrap();
    }
    copy
}

#[tokio::test]
async fn what_a_relay_moved_is_kept_until_it_is_taken_and_never_taken_twice() {
    let parent = tempfile::tempdir().unwrap();
    let directory = open(parent.path());
    let orders = queue(&directory, "orders");
    let key = DestinationKey::try_from("due-orders").unwrap();
    let to = Destination::List { key: key.clone(), max_len: None };
    send(&orders, "order-1").await;
    assert_eq!(orders.take_relayed(&key).await.unwrap(), []);
    orders.apply(At::Server, &Op::Relay(Relay::new(to, 10))).await.unwrap();
    let before = killed(parent.path());
    let taken = orders.take_relayed(&key).await.unwrap();
    assert_eq!(taken.iter().map(|it| &it.payload[..]).collect::<Vec<_>>(), [b"payload"]);
    assert_eq!(orders.take_relayed(&key).await.unwrap(), []);
    let after = killed(parent.path());
    drop((directory, orders));
    for (path, expected) in
        [(before.path(), taken), (after.path(), vec![]), (parent.path(), vec![])]
    {
        let orders = queue(&open(path), "orders");
        assert_eq!(orders.take_relayed(&key).await.unwrap(), expected);
    }
}

/// Else a worker takes each due instant for up to a millisecond later than it is.
#[tokio::test]
async fn replies_tell_the_microseconds_of_the_clock_unless_a_test_sets_it() {
    let parent = tempfile::tempdir().unwrap();
    let queue = queue(&open(parent.path()), "orders");
    let mut told = 0;
    for _ in 0..20 {
        told += queue.apply(At::Server, &Op::Stats).await.unwrap().micros;
    }
    assert!(told > 0);
    assert_eq!(queue.apply(At::Fixed(Timestamp::MIN), &Op::Stats).await.unwrap().micros, 0);
}

#[test]
fn a_removed_lock_file_lets_no_second_process_in() {
    let parent = tempfile::tempdir().unwrap();
    let directory = open(parent.path());
    fs::remove_file(parent.path().join("delayline.lock")).unwrap();
    let error = Directory::open(parent.path(), Options::default()).unwrap_err();
    assert!(matches!(error, OpenError::InUse { .. }), "{error}");
    drop(directory);
    // What a killed process leaves, but for the lock file.
    fs::remove_file(parent.path().join("delayline.lock")).unwrap();
    fs::write(parent.path().join("delayline.sock"), "").unwrap();
    // The root of a disk has this.
    fs::create_dir(parent.path().join("lost+found")).unwrap();
    open(parent.path());
}

#[tokio::test]
async fn a_queue_that_holds_nothing_is_deleted_for_good() {
    let parent = tempfile::tempdir().unwrap();
    let directory = open(parent.path());
    let (orders, name) = (queue(&directory, "orders"), "orders".parse().unwrap());
    let (existed, held) = directory.delete_if_empty(&"absent".parse().unwrap()).await.unwrap();
    assert!(!existed && held.is_empty());
    send(&orders, "order-1").await;
    let (existed, held) = directory.delete_if_empty(&name).await.unwrap();
    assert!(existed && !held.is_empty() && held.messages == 1, "{held:?}");
    let cancel = Op::Cancel(vec![MessageId::try_from("order-1").unwrap()]);
    orders.apply(At::Server, &cancel).await.unwrap();
    let (existed, held) = directory.delete_if_empty(&name).await.unwrap();
    assert!(existed && held.is_empty(), "{held:?}");
    assert_eq!(directory.queues(), []);
    // The log says so, too; and the next message stores it again.
    assert_eq!(open(killed(parent.path()).path()).queues(), []);
    send(&orders, "order-1").await;
    drop((directory, orders));
    let directory = open(parent.path());
    assert_eq!(directory.queues(), [name]);
    let stats = queue(&directory, "orders").apply(At::Server, &Op::Stats).await.unwrap().reply;
    let Reply::Stats(stats) = stats else { unreachable!() };
    assert_eq!((stats.totals.enqueued, stats.ready), (1, 1));
    // A change with the revision of the deleted queue is stored, too.
    let (mails, name) = (queue(&directory, "mails"), "mails".parse().unwrap());
    mails.apply(At::Server, &Op::Pause).await.unwrap();
    assert!(directory.delete_if_empty(&name).await.unwrap().1.is_empty());
    send(&mails, "mail-1").await;
    assert!(open(killed(parent.path()).path()).queues().contains(&name));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_closed_directory_is_free_while_its_queues_are_still_held() {
    let parent = tempfile::tempdir().unwrap();
    let directory = open(parent.path());
    let orders = queue(&directory, "orders");
    send(&orders, "order-1").await;
    // Some of these are under way when it closes: each is executed and kept, or refused.
    let orders = std::sync::Arc::new(orders);
    let calls: Vec<_> = (2..200)
        .map(|number| {
            let orders = std::sync::Arc::clone(&orders);
            tokio::spawn(async move {
                let id = MessageId::try_from(format!("order-{number}")).unwrap();
                let op = Op::Enqueue(vec![NewMessage::new(id, "payload")]);
                orders.apply(At::Server, &op).await
            })
        })
        .collect();
    directory.close().unwrap();
    directory.close().unwrap();
    let mut taken = 1;
    for call in calls {
        match call.await.unwrap() {
            Ok(_) => taken += 1,
            Err(error) => {
                assert_eq!(
                    (error.kind(), error.class()),
                    (&ErrorKind::Storage, ErrorClass::Rejected)
                );
                assert!(error.to_string().contains("was closed"), "{error}");
            }
        }
    }
    let error = orders.apply(At::Server, &Op::Stats).await.unwrap_err();
    assert_eq!(error.kind(), &ErrorKind::Storage);
    let again = open(parent.path());
    let stats = queue(&again, "orders").apply(At::Server, &Op::Stats).await.unwrap().reply;
    let Reply::Stats(stats) = stats else { unreachable!() };
    assert_eq!(stats.ready, taken);
}

#[tokio::test]
async fn the_status_counts_bytes_segments_and_syncs() {
    let parent = tempfile::tempdir().unwrap();
    let directory = open(parent.path());
    let orders = queue(&directory, "orders");
    for number in 0..10 {
        send(&orders, &format!("order-{number}")).await;
    }
    let status = directory.status();
    assert_eq!((status.queues, status.segments, status.syncs.count()), (1, 1, 10));
    assert!(status.log_bytes > 1_000 && status.snapshot_bytes == 0, "{status:?}");
    assert!(status.room_bytes > status.reserve_bytes && status.free_bytes > 0, "{status:?}");
    assert!(!status.full && status.failure.is_none() && status.last_checkpoint.is_none());
    assert!(status.syncs.quantile(0.5) <= status.syncs.max());
    drop((directory, orders));
    let status = open(parent.path()).status();
    assert_eq!((status.segments, status.log_bytes), (1, 0));
    assert!(status.snapshot_bytes > 1_000, "{status:?}");
}

#[cfg(unix)]
mod unix {
    use std::os::unix::fs::PermissionsExt;

    use delayline_file::Beside;

    use super::*;

    #[tokio::test]
    async fn only_this_user_reads_the_files() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("new");
        let directory = open(&path);
        send(&queue(&directory, "orders"), "order-1").await;
        let mode =
            |path: &std::path::Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&path), 0o700);
        for file in fs::read_dir(&path).unwrap().map(Result::unwrap) {
            assert_eq!(mode(&file.path()), 0o600, "{file:?}");
        }
        // A directory that was there keeps its mode.
        fs::set_permissions(&path, fs::Permissions::from_mode(0o750)).unwrap();
        drop(directory);
        drop(open(&path));
        assert_eq!(mode(&path), 0o750);
    }

    /// A command that root runs must not take the directory from its service.
    #[tokio::test]
    async fn files_of_root_belong_to_the_owner_of_the_directory() {
        use std::os::unix::fs::{MetadataExt, chown, symlink};

        let parent = tempfile::tempdir().unwrap();
        let elsewhere = tempfile::NamedTempFile::new().unwrap();
        if elsewhere.as_file().metadata().unwrap().uid() != 0 {
            // Past the capture of a test's output.
            std::io::stderr().write_all(b"skipped: only root gives files away\n").unwrap();
            return;
        }
        fs::write(elsewhere.path(), "not ours").unwrap();
        let path = parent.path().join("queues");
        fs::create_dir(&path).unwrap();
        chown(&path, Some(12_345), Some(12_346)).unwrap();
        let directory = open(&path);
        send(&queue(&directory, "orders"), "order-1").await;
        drop(directory);
        let directory = open(&path);
        send(&queue(&directory, "orders"), "order-2").await;
        // The owner leads the next file somewhere else.
        symlink(elsewhere.path(), path.join("snapshot-0000000000000003.new")).unwrap();
        drop(directory);
        assert!(path.join("snapshot-0000000000000003").is_file());
        for file in fs::read_dir(&path).unwrap().map(Result::unwrap) {
            let file = file.metadata().unwrap();
            assert_eq!((file.uid(), file.gid(), file.mode() & 0o777), (12_345, 12_346, 0o600));
        }
        assert_eq!(fs::read_to_string(elsewhere.path()).unwrap(), "not ours");
        assert_eq!(elsewhere.as_file().metadata().unwrap().uid(), 0);
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn a_long_path_has_a_socket_all_the_same() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("long/".repeat(60));
        fs::create_dir_all(&path).unwrap();
        let directory = open(&path);
        directory.share(std::time::Duration::ZERO, || "a text".to_owned()).unwrap();
        send(&queue(&directory, "orders"), "order-1").await;
        let beside = loop {
            match Beside::connect(&path).await {
                Ok(beside) => break beside,
                Err(error) => assert_eq!(error.kind(), &ErrorKind::Unreachable, "{error}"),
            }
            tokio::task::yield_now().await;
        };
        assert_eq!(beside.queues().await.unwrap(), directory.queues());
        assert_eq!(beside.status().await.unwrap().syncs.count(), 1);
        assert_eq!(beside.about().await.unwrap(), "a text");
        let (existed, held) = beside.delete_if_empty(&"orders".parse().unwrap()).await.unwrap();
        assert!(existed && held.messages == 1);
        drop(directory);
        assert!(!path.join("delayline.sock").exists());
    }

    #[tokio::test(start_paused = true)]
    async fn a_process_that_does_not_reply_is_not_waited_for_forever() {
        let parent = tempfile::tempdir().unwrap();
        // Accepts by its backlog, and says nothing.
        let path = parent.path().join("delayline.sock");
        let silent = std::os::unix::net::UnixListener::bind(path).unwrap();
        let error = Beside::connect(parent.path()).await.unwrap_err();
        assert_eq!(error.kind(), &ErrorKind::Unreachable, "{error}");
        drop(silent);
    }
}
