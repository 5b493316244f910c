//! What a queue does in a cluster and behind sentinels whose servers fail, freeze, fail over and
//! hand their slots on.

pub mod cluster;
pub mod mistakes;
pub mod sentinel;
pub mod upgrades;

use std::sync::Arc;
use std::time::{Duration, Instant};

use delayline_core::{
    At, Backend, Error, ErrorClass, ErrorKind, Found, MessageId, NewMessage, Op, QueueName, Reply,
};
use delayline_redis_protocol::{ConnectOptions, ScriptBackend};
use delayline_test_server::{Cluster, Server, until};

use crate::Connect;

/// More than any failover takes on a machine that is busy with other things.
pub const PATIENCE: Duration = Duration::from_secs(90);

pub fn options(url: &str) -> ConnectOptions {
    url.parse().unwrap()
}

/// The queue of that name.
pub async fn open<C: Connect>(
    options: &ConnectOptions,
    name: &str,
) -> Result<ScriptBackend<C::Transport>, Error> {
    let transport = Arc::new(C::connect(options).await?);
    ScriptBackend::open(transport, QueueName::new(name).unwrap(), false).await
}

/// A queue that the node serves, by name.
pub fn queue_of(cluster: &Cluster, node: &Server) -> String {
    let mut names = (0..).map(|number| format!("queue-{number}"));
    names.find(|name| std::ptr::eq(cluster.owner(node, cluster.slot(name)), node)).unwrap()
}

pub fn id(text: &str) -> MessageId {
    MessageId::try_from(text).unwrap()
}

pub async fn enqueue(queue: &impl Backend, text: &str) -> Result<(), Error> {
    let message = NewMessage::new(id(text), format!("payload of {text}"));
    queue.apply(At::Server, &Op::Enqueue(vec![message])).await.map(drop)
}

/// Whether the message exists. Asked again where a call was cut short, as by a change of the
/// topology.
pub async fn has(queue: &impl Backend, text: &str) -> bool {
    let (begin, get) = (Instant::now(), Op::Get(vec![id(text)]));
    let get = loop {
        match queue.apply(At::Server, &get).await {
            Ok(get) => break get,
            Err(error) if error.kind() == &ErrorKind::ConnectionLost => {
                assert!(begin.elapsed() < PATIENCE, "{error}");
            }
            Err(error) => panic!("{error}"),
        }
    };
    matches!(get.reply, Reply::Get(found) if matches!(found[..], [Found::Live(_)]))
}

/// Enqueues one message after another until one is taken after another one failed, and answers
/// which were acknowledged. Nothing waits longer than the response timeout.
pub async fn enqueues_through_an_outage(queue: &impl Backend) -> Vec<String> {
    let (begin, mut has_failed, mut acknowledged) = (Instant::now(), false, Vec::new());
    for number in 0.. {
        assert!(begin.elapsed() < PATIENCE, "no outage, or no recovery");
        let text = format!("message-{number}");
        match tokio::time::timeout(PATIENCE, enqueue(queue, &text)).await.expect("a call hangs") {
            Ok(()) => {
                acknowledged.push(text);
                if has_failed {
                    break;
                }
            }
            Err(error) => {
                has_failed = true;
                assert_ne!(error.class(), ErrorClass::Rejected, "{error}");
            }
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    acknowledged
}

/// What opening a queue is refused with.
pub async fn refusal<C: Connect>(options: &ConnectOptions, queue: &str) -> Error {
    match open::<C>(options, queue).await {
        Ok(_) => panic!("{options} opens"),
        Err(error) => error,
    }
}

pub fn is_unsupported(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Unsupported(_))
}

/// Tests of clusters and sentinels, one for each case: failovers, frozen primaries, slots that
/// move, and addresses of the wrong kind of server.
///
/// Takes a type that implements [`Connect`]. Write it once in a test program: it makes modules with
/// the tests. They include TLS.
#[macro_export]
macro_rules! topology_cases {
    ($connect:ty) => {
        $crate::each_case!(topology, $connect,
            cluster: [
                queues_of_all_nodes_work_over_one_transport
                relays_stay_in_the_slot_of_their_queue queues_are_listed_across_a_failover
                processes_are_listed_once_and_across_a_failover
                bells_of_different_slots_are_heard
                a_killed_primary_is_replaced a_frozen_primary_keeps_no_call
                what_a_frozen_primary_acknowledges_late_is_not_believed
                a_slot_that_moves_is_followed a_queue_on_its_way_is_busy
                a_flushed_node_gets_its_scripts_again views_of_a_node_apart_change_nothing
                addresses_are_mapped the_documented_permissions_are_enough
            ],
            upgrades: [a_slot_that_moves_during_an_upgrade_loses_nothing],
            sentinel: [
                a_killed_primary_is_replaced a_failover_by_hand_is_followed
                a_failover_that_takes_long_loses_nothing_after_the_next_look
                a_sentinel_that_is_away_does_no_harm one_sentinel_of_three_is_not_believed
                logins_of_sentinels_and_servers_differ processes_are_listed_by_the_new_primary
                the_documented_permissions_are_enough
            ],
            mistakes: [
                cluster_url_at_a_single_server single_url_at_a_cluster
                single_url_at_a_sentinel sentinel_url_at_a_server wrong_service_name
                unreachable_seeds_are_all_named one_reachable_seed_is_enough
                slot_without_an_owner calls_that_a_cluster_refuses_are_not_executed
                database_number_in_a_cluster password_of_one_node_only
                encrypted_url_at_a_plain_cluster
            ],
        );
    };
}
