//! Processes with workers, and the messages that they hold, as the servers list them.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use delayline::admin::{Listed, WorkerProcess};
use delayline::worker::{Summary, WorkerHandle};
use delayline::{Connect, Connection, Job, Queue, Worker, Workers};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinHandle;
use tokio::time::timeout;

const PATIENCE: Duration = Duration::from_secs(60);

/// Workers on two queues whose handlers wait.
struct Working {
    handle: WorkerHandle,
    run: JoinHandle<Summary>,
    release: Arc<Semaphore>,
    started: mpsc::UnboundedReceiver<u64>,
}

impl Working {
    async fn on(connection: &Connection) -> Self {
        let release = Arc::new(Semaphore::new(0));
        let (start, started) = mpsc::unbounded_channel();
        let handler = || {
            let (start, release) = (start.clone(), Arc::clone(&release));
            move |job: Job<u64>| {
                start.send(*job.payload()).unwrap();
                let release = Arc::clone(&release);
                async move {
                    release.acquire().await.unwrap().forget();
                    Ok::<(), std::io::Error>(())
                }
            }
        };
        let orders: Queue<u64> = connection.queue("orders").await.unwrap();
        let mails: Queue<u64> = connection.queue("mails").await.unwrap();
        let workers = Workers::sharing(5).unwrap();
        let workers = workers.add(1, Worker::builder(orders), handler()).unwrap();
        let mails = Worker::builder(mails).concurrency(2);
        let workers = workers.add(1, mails, handler()).unwrap();
        let handle = workers.handle();
        Self { handle, run: tokio::spawn(workers.run()), release, started }
    }
}

/// Asks until the list of processes is so.
async fn until(
    connection: &Connection,
    is_so: impl Fn(&[WorkerProcess]) -> bool,
) -> Vec<WorkerProcess> {
    let listed = async {
        loop {
            let list = connection.workers().await.unwrap();
            assert!(list.complete && list.failure.is_none(), "{list:?}");
            if is_so(&list.processes) {
                return list.processes;
            }
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, listed).await.expect("the processes are listed")
}

/// The workers of one connection are seen over another, until they stop.
async fn workers_are_seen(of_workers: &Connection, of_operator: &Connection) {
    until(of_operator, <[_]>::is_empty).await;
    let begin = SystemTime::now();
    let mut working = Working::on(of_workers).await;
    let [process] = &until(of_operator, |all| !all.is_empty()).await[..] else { panic!("one") };
    assert_eq!((process.handlers, process.pid), (5, std::process::id()));
    let queues: Vec<_> = process.queues.iter().map(|(name, n)| (name.as_str(), *n)).collect();
    assert_eq!((queues, process.more_queues), (vec![("mails", 2), ("orders", 5)], 0));
    let since = SystemTime::from(process.since);
    // Instants are rounded up to the millisecond.
    assert!(since >= begin && since <= SystemTime::now() + Duration::from_millis(1));
    assert!(!process.host.is_empty() && !process.version.is_empty());

    let orders: Queue<u64> = of_operator.queue("orders").await.unwrap();
    orders.send(&1).await.unwrap();
    let later = orders.message(&2).due_in(Duration::from_secs(3_600)).send().await.unwrap();
    assert!(later.is_accepted());
    assert_eq!(timeout(PATIENCE, working.started.recv()).await.unwrap(), Some(1));
    let leased = orders.list(Listed::Leased).next_page().await.unwrap().unwrap();
    assert_eq!(leased.iter().map(|info| info.holder).collect::<Vec<_>>(), [Some(process.id)]);
    let waiting = orders.list(Listed::Scheduled).next_page().await.unwrap().unwrap();
    assert_eq!(waiting[0].holder, None);

    // Another worker of the process joins, and leaves.
    let other = Worker::builder(orders.clone()).concurrency(3).build().unwrap();
    let second = other.handle();
    // It works over the connection of its queue.
    let run = tokio::spawn(other.run(async |_: Job<u64>| Ok::<(), std::io::Error>(())));
    until(of_operator, |all| all.iter().map(|it| it.handlers).sum::<u32>() == 8).await;
    second.stop(Duration::ZERO);
    timeout(PATIENCE, run).await.unwrap().unwrap();
    until(of_operator, |all| all.iter().map(|it| it.handlers).sum::<u32>() == 5).await;

    working.release.add_permits(1);
    working.handle.stop(PATIENCE);
    let summary = timeout(PATIENCE, working.run).await.unwrap().unwrap();
    assert_eq!(summary.acked, 1);
    until(of_operator, <[_]>::is_empty).await;
}

#[tokio::test]
async fn workers_in_memory_are_those_of_the_connection() {
    let connection = delayline::connect("memory:").await.unwrap();
    workers_are_seen(&connection, &connection.clone()).await;
    let working = Working::on(&connection).await;
    let other = delayline::connect("memory:").await.unwrap();
    assert_eq!(other.workers().await.unwrap().processes, []);
    // A run that is dropped has left as well.
    until(&connection, |all| all.len() == 1).await;
    working.run.abort();
    until(&connection, <[_]>::is_empty).await;
}

#[cfg(feature = "file")]
#[tokio::test]
async fn workers_on_a_directory_are_those_of_the_process() {
    let home = tempfile::tempdir().unwrap();
    let url = format!("file:{}", home.path().display());
    let connection = Connect::new(&url).unwrap().share(true).connect().await.unwrap();
    workers_are_seen(&connection, &connection.clone()).await;
    #[cfg(unix)]
    {
        let beside = Connect::new(&url).unwrap().beside(true).connect().await.unwrap();
        let working = Working::on(&connection).await;
        until(&beside, |all| all.len() == 1 && all[0].handlers == 5).await;
        working.handle.stop(Duration::ZERO);
        timeout(PATIENCE, working.run).await.unwrap().unwrap();
        until(&beside, <[_]>::is_empty).await;
    }
}

#[cfg(any(feature = "redis", feature = "fred"))]
#[tokio::test]
async fn workers_on_a_server_are_those_of_all_connections() {
    use delayline::RedisClient;

    for driver in [
        #[cfg(feature = "redis")]
        RedisClient::Redis,
        #[cfg(feature = "fred")]
        RedisClient::Fred,
    ] {
        let server = delayline_test_server::Server::start();
        let connect = Connect::new(&server.url()).unwrap().client(driver);
        let workers = connect.clone().connect().await.unwrap();
        workers_are_seen(&workers, &connect.connect().await.unwrap()).await;
    }
}
