//! Servers that are not meant for a queue, or not at the moment.

use std::time::Duration;

use delayline_core::ErrorClass;

use super::*;

/// More than a server needs on a machine that is busy with other things.
const PATIENCE: Duration = Duration::from_secs(60);

pub async fn a_replica_is_refused<C: Connect>() {
    let (primary, replica) = (Server::builder().tcp().start(), Server::start());
    replica.command(&["REPLICAOF", "127.0.0.1", &primary.port().to_string()]);
    let error = open::<C>(&replica.url()).await.unwrap_err();
    assert_eq!(error.kind(), &ErrorKind::ReadOnly);
    assert!(error.detail().contains("127.0.0.1"), "{error}");
}

pub async fn a_demoted_primary_is_an_error_that_may_be_repeated<C: Connect>() {
    let (primary, server) = (Server::builder().tcp().start(), Server::start());
    let queue = open::<C>(&server.url()).await.unwrap();
    fill(&queue).await;
    server.command(&["CONFIG", "SET", "replica-serve-stale-data", "yes"]);
    // The address leads nowhere, so the replica keeps its data.
    server.command(&["REPLICAOF", "127.0.0.1", "1"]);
    drop(primary);
    let error = queue.apply(at(10), &Op::Enqueue(vec![message("new")])).await.unwrap_err();
    assert_eq!((error.kind(), error.class()), (&ErrorKind::ReadOnly, ErrorClass::NotExecuted));
    server.command(&["REPLICAOF", "NO", "ONE"]);
    until_applied(&queue, Op::Enqueue(vec![message("new")])).await;
    assert_eq!(findings(&queue, 12).await, []);
}

pub async fn an_evicting_server_is_refused_unless_allowed<C: Connect>() {
    for policy in ["allkeys-lru", "volatile-ttl", "allkeys-random"] {
        let server = Server::builder().config("maxmemory-policy", policy).start();
        let error = open::<C>(&server.url()).await.unwrap_err();
        assert_eq!(error.kind(), &ErrorKind::Evicting { policy: policy.to_owned() });
        assert!(error.to_string().contains("noeviction"), "{error}");
        let transport = C::connect(&server.url().parse().unwrap()).await.unwrap();
        let name = QueueName::new("q").unwrap();
        ScriptBackend::open(Arc::new(transport), name, true).await.unwrap();
    }
}

pub async fn flushed_scripts_go_unnoticed<C: Connect>() {
    let server = Server::start();
    let queue = open::<C>(&server.url()).await.unwrap();
    fill(&queue).await;
    for op in every_op() {
        server.command(&["SCRIPT", "FLUSH"]);
        assert!(kind_of(&queue, 10, &op).await.is_ok(), "{}", op.name());
    }
}

pub async fn a_busy_server_is_an_error_that_may_be_repeated<C: Connect>() {
    let server = Server::builder().config("lua-time-limit", "1").start();
    let queue = open::<C>(&server.url()).await.unwrap();
    std::thread::scope(|scope| {
        let endless = scope.spawn(|| server.try_command(&["EVAL", "while true do end", "0"]));
        let runtime = tokio::runtime::Handle::current();
        let error = tokio::task::block_in_place(|| {
            runtime.block_on(async {
                loop {
                    // Until the server has begun the script, calls still succeed.
                    if let Err(error) = queue.apply(At::Server, &Op::Pause).await {
                        return error;
                    }
                }
            })
        });
        assert_eq!((error.kind(), error.class()), (&ErrorKind::Busy, ErrorClass::NotExecuted));
        server.command(&["SCRIPT", "KILL"]);
        endless.join().unwrap().unwrap_err();
    });
    until_applied(&queue, Op::Resume).await;
}

pub async fn missing_replicas_are_an_error_that_may_be_repeated<C: Connect>() {
    let server = Server::start();
    let queue = open::<C>(&server.url()).await.unwrap();
    fill(&queue).await;
    server.command(&["CONFIG", "SET", "min-replicas-to-write", "1"]);
    let before = dump(&server, queue.keys().all());
    for op in every_op() {
        if let Err(kind) = kind_of(&queue, 6_000, &op).await {
            assert_eq!((kind.class(), kind), (ErrorClass::NotExecuted, ErrorKind::Busy));
        }
    }
    if Capability::ReplicasCountInScripts.is_of(&server) {
        assert_eq!(dump(&server, queue.keys().all()), before);
    }
    server.command(&["CONFIG", "SET", "min-replicas-to-write", "0"]);
    until_applied(&queue, Op::Enqueue(vec![message("new")])).await;
}

pub async fn a_failed_snapshot_is_an_error_that_may_be_repeated<C: Connect>() {
    let server = Server::start();
    // The snapshot cannot take its place.
    std::fs::create_dir(server.data_dir().join("dump.rdb")).unwrap();
    let queue = open::<C>(&server.url()).await.unwrap();
    fill(&queue).await;
    server.command(&["CONFIG", "SET", "save", "3600 1"]);
    server.command(&["BGSAVE"]);
    let failed = async {
        while server.info("persistence", "rdb_last_bgsave_status") != "err" {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, failed).await.expect("the snapshot fails");
    let before = dump(&server, queue.keys().all());
    let kind = kind_of(&queue, 6_000, &Op::Enqueue(vec![message("new")])).await.unwrap_err();
    assert_eq!((kind.class(), kind), (ErrorClass::NotExecuted, ErrorKind::Busy));
    assert_eq!(dump(&server, queue.keys().all()), before);
    server.command(&["CONFIG", "SET", "stop-writes-on-bgsave-error", "no"]);
    until_applied(&queue, Op::Enqueue(vec![message("new")])).await;
}

pub async fn lost_data_does_not_stop_the_queue<C: Connect>() {
    let server = Server::start();
    let queue = open::<C>(&server.url()).await.unwrap();
    fill(&queue).await;
    server.command(&["FLUSHALL"]);
    assert_eq!(
        apply(&queue, 10, settle("leased", 1, Outcome::Ack)).await,
        Reply::Settle(vec![delayline_core::Settled::Missing]),
        "a lease from before is refused"
    );
    apply(&queue, 11, Op::Enqueue(vec![message("leased")])).await;
    assert_eq!(claimed(&queue, 11, 3).await.deliveries.len(), 1);
    assert_eq!(findings(&queue, 12).await, []);
}

/// Repeats an operation until the server has healed.
async fn until_applied(queue: &impl Backend, op: Op) {
    let healed = async {
        while queue.apply(at(11), &op).await.is_err() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, healed).await.expect("it heals");
}

/// As some services are, and servers with `rename-command`.
pub async fn a_server_without_commands_for_checks_is_used<C: Connect>() {
    let without = |command: &str| ("rename-command", format!("{command} \"\""));
    let mut server = Server::builder();
    for (directive, value) in ["PING", "INFO", "ROLE"].map(without) {
        server = server.config(directive, &value);
    }
    let server = server.start();
    // fred needs the name of the user.
    let queue = open::<C>(&server.url_with_login("default", "")).await.unwrap();
    fill(&queue).await;
    assert_eq!(findings(&queue, 10).await, []);
}
