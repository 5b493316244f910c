//! Calls that real replicas and disks have to confirm (G25, G26).

pub mod disk;
pub mod failover;
pub mod replicas;
pub mod restarts;
pub mod upgrades;

use std::sync::Arc;
use std::time::{Duration, Instant};

use delayline_core::{
    At, Backend, Durability, Enqueued, Error, ErrorKind, Found, MessageId, NewMessage, Op,
    QueueName, Reply,
};
use delayline_redis_protocol::{ConnectOptions, ScriptBackend};
use delayline_test_server::{Server, until};

use crate::Connect;

/// More than any failover takes on a machine that is busy with other things.
pub const PATIENCE: Duration = Duration::from_secs(60);
pub const QUEUE: &str = "q";

pub fn options(url: &str) -> ConnectOptions {
    url.parse().unwrap()
}

pub async fn open<C: Connect>(options: &ConnectOptions) -> ScriptBackend<C::Transport> {
    let transport = Arc::new(C::connect(options).await.unwrap());
    ScriptBackend::open(transport, QueueName::new(QUEUE).unwrap(), false).await.unwrap()
}

/// Enqueues a message once.
pub async fn enqueue(
    queue: &impl Backend,
    text: &str,
    durability: Durability,
) -> Result<Enqueued, Error> {
    let id = MessageId::try_from(text).unwrap();
    let op = Op::Enqueue(vec![NewMessage::new(id, "payload")]);
    let applied = queue.apply_durably(At::Server, &op, durability).await?;
    let Reply::Enqueue(outcomes) = applied.reply else { panic!("{:?}", applied.reply) };
    Ok(outcomes[0])
}

/// Enqueues a message until that is confirmed.
pub async fn enqueue_patiently(queue: &impl Backend, text: &str, durability: Durability) {
    let begin = Instant::now();
    while let Err(error) = enqueue(queue, text, durability).await {
        assert!(begin.elapsed() < PATIENCE, "{error}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Returns whether the message exists. Repeats the call until a server replies.
pub async fn has(queue: &impl Backend, text: &str) -> bool {
    let begin = Instant::now();
    let get = Op::Get(vec![MessageId::try_from(text).unwrap()]);
    loop {
        match queue.apply(At::Server, &get).await {
            Ok(applied) => {
                let Reply::Get(found) = applied.reply else { panic!("{:?}", applied.reply) };
                return matches!(found[..], [Found::Live(_)]);
            }
            Err(error) => assert!(begin.elapsed() < PATIENCE, "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Replicas of a server that have its data.
pub async fn replicas_of(primary: &Server, count: usize) -> Vec<Server> {
    let of_primary = format!("127.0.0.1 {}", primary.port());
    let replica = Server::builder().tcp().config("replicaof", &of_primary);
    let replicas: Vec<_> = (0..count).map(|_| replica.clone().start()).collect();
    for replica in &replicas {
        let is_up = || replica.info("replication", "master_link_status") == "up";
        until("the replica has its primary's data", is_up).await;
    }
    replicas
}

/// A primary whose replicas come at once.
pub fn primary() -> Server {
    Server::builder().tcp().config("repl-diskless-sync-delay", "0").start()
}

/// Whether a replica has the message.
pub fn replica_has(replica: &Server, text: &str) -> bool {
    let key = format!("delayline:{{{QUEUE}}}:records");
    replica.command(&["HEXISTS", &key, text]) == delayline_test_server::Reply::Int(1)
}

#[track_caller]
pub fn is_unconfirmed(result: &Result<Enqueued, Error>) {
    let error = result.as_ref().unwrap_err();
    assert_eq!(error.kind(), &ErrorKind::Unconfirmed, "{error}");
}

/// How many commands of that name the server has executed.
pub fn calls(server: &Server, command: &str) -> u64 {
    let info = format!("{:?}", server.command(&["INFO", "commandstats"]));
    let calls = info.split(&format!("cmdstat_{command}:calls=")).nth(1).unwrap_or("0");
    calls.split(|c: char| !c.is_ascii_digit()).next().unwrap().parse().unwrap()
}

/// Tests of confirmed calls, one for each case: what replicas and disks have confirmed survives
/// (G25, G26), and messages without a confirmation are reported.
///
/// Takes a type that implements [`Connect`]. Write it once in a test program: it makes modules with
/// the tests.
#[macro_export]
macro_rules! durability_cases {
    ($connect:ty) => {
        $crate::each_case!(durability, $connect,
            replicas: [
                a_replica_has_what_was_confirmed a_stopped_replica_confirms_nothing
                nobody_waits_who_did_not_ask_for_it a_missing_permission_is_told_at_once
                a_fence_leaves_nothing
            ],
            disk: [
                the_disk_confirms_or_is_refused a_reply_is_enough_where_each_write_is_synced
                a_server_without_a_file_is_refused
                a_server_that_never_syncs_is_refused
            ],
            restarts: [
                a_killed_server_has_all_that_it_acknowledged
            ],
            upgrades: [an_upgrade_under_load_with_kills_loses_nothing],
            failover: [
                what_all_replicas_confirmed_survives_a_killed_primary
                what_all_replicas_confirmed_survives_a_frozen_primary
                a_confirmed_claim_keeps_its_epoch_across_a_failover
            ],
        );
    };
}
