//! Processes with workers name their connections, and are listed by these names.

use delayline_core::{ErrorKind, ProcessId, QueueName, Timestamp};
use delayline_redis_protocol::{Transport, WorkerProcess};
use delayline_test_server::Server;
use delayline_test_server::proxy::{Fault, Proxy};

use super::{Connect, PATIENCE, connected, heals, impatient, increment, options};

/// A process with a queue.
pub fn process(number: u8) -> WorkerProcess {
    let id = ProcessId::from_bytes([number; ProcessId::BYTES]);
    let mut process = WorkerProcess::new(id, "0.1.0", "host-1", 17, Timestamp::MIN);
    process.handlers = 16;
    process.queues.insert(QueueName::new("orders").unwrap(), 16);
    process
}

/// The processes that the server lists, without their addresses.
pub async fn listed(transport: &(impl Transport + ?Sized)) -> Vec<WorkerProcess> {
    let list = transport.workers().await.unwrap();
    assert!(list.complete && list.failure.is_none(), "{list:?}");
    let mut processes = list.processes;
    processes.iter_mut().for_each(|process| process.address = None);
    processes
}

/// Asks until the server lists these processes.
pub async fn lists(transport: &(impl Transport + ?Sized), expected: &[WorkerProcess]) {
    let listed = async {
        while listed(transport).await != expected {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, listed).await.expect("the processes are listed");
}

pub async fn processes_are_listed_until_they_leave<C: Connect>() {
    let server = Server::start();
    let operator = connected::<C>(&server.url()).await;
    let (one, other) = (connected::<C>(&server.url()).await, connected::<C>(&server.url()).await);
    assert_eq!(listed(&operator).await, []);
    one.introduce(Some(&process(1))).await;
    other.introduce(Some(&process(2))).await;
    assert_eq!(listed(&operator).await, [process(1), process(2)]);
    // It has other queues now, and a hostile neighbour.
    let mut changed = process(1);
    changed.queues.insert(QueueName::new("mails").unwrap(), 3);
    one.introduce(Some(&changed)).await;
    server.command(&["CLIENT", "SETNAME", "delayline-worker;1;<b>"]);
    assert_eq!(listed(&operator).await, [changed, process(2)]);
    one.introduce(None).await;
    assert_eq!(listed(&operator).await, [process(2)]);
    drop(other);
    lists(&operator, &[]).await;
}

/// Its queues are others, even those with the same names.
pub async fn a_process_of_another_database_is_not_listed<C: Connect>() {
    let server = Server::start();
    let mut options = options(&server.url());
    let here = C::connect(&options).await.unwrap();
    options.database = 1;
    let there = C::connect(&options).await.unwrap();
    there.introduce(Some(&process(1))).await;
    assert_eq!((listed(&here).await, listed(&there).await), (vec![], vec![process(1)]));
}

pub async fn a_process_that_has_not_changed_is_introduced_once<C: Connect>() {
    let server = Server::start();
    let worker = connected::<C>(&server.url()).await;
    for introduced in [Some(process(1)), Some(process(1)), None, None, Some(process(1))] {
        worker.introduce(introduced.as_ref()).await;
    }
    let named = server.info("commandstats", "cmdstat_client|setname");
    assert!(named.starts_with("calls=3,"), "{named}");
}

pub async fn a_new_connection_has_the_name<C: Connect>() {
    let server = Server::start();
    let operator = connected::<C>(&server.url()).await;
    let worker = connected::<C>(&server.url()).await;
    worker.introduce(Some(&process(1))).await;
    server.command(&["CLIENT", "KILL", "TYPE", "normal"]);
    heals(&worker).await;
    heals(&operator).await;
    lists(&operator, &[process(1)]).await;
}

pub async fn a_server_that_refuses_names_is_used_without<C: Connect>() {
    let server = Server::builder().acl_user("worker on >pw ~* +eval +evalsha +incr +ping").start();
    let worker = connected::<C>(&server.url_with_login("worker", "pw")).await;
    worker.introduce(Some(&process(1))).await;
    assert!(increment(&worker).await.is_ok());
    server.command(&["CLIENT", "KILL", "TYPE", "normal"]);
    heals(&worker).await;
    assert_eq!(worker.workers().await.unwrap_err().kind(), &ErrorKind::PermissionDenied);
    let operator = connected::<C>(&server.url()).await;
    assert_eq!(listed(&operator).await, []);
}

/// Old proxies do so with commands that they do not know.
pub async fn a_peer_that_hangs_up_on_names_is_used_without<C: Connect>() {
    let server = Server::start();
    let operator = connected::<C>(&server.url()).await;
    for fault in [Fault::CutBeforeRequest, Fault::Blackhole] {
        let proxy = Proxy::start(&server).await.unwrap();
        let worker = C::connect(&impatient(proxy.url())).await.unwrap();
        worker.introduce(Some(&process(1))).await;
        lists(&operator, &[process(1)]).await;
        proxy.once(fault, "SETNAME");
        proxy.cut_all();
        // A call before the cut arrives would need no new connection.
        lists(&operator, &[]).await;
        heals(&worker).await;
        assert_eq!(proxy.faults(), 1);
        lists(&operator, &[]).await;
    }
}
