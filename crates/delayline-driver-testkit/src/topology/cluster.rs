//! Clusters of real servers.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use delayline_core::{
    At, Backend as _, Destination, DestinationKey, ErrorClass, ErrorKind, Op, QueueName, Relay,
    Reply as ApiReply, Wakeup,
};
use delayline_redis_protocol::{AclRole, ScriptBackend, Transport};
use delayline_test_server::{Cluster, Reply, Server};

use crate::transport::names::{listed, process};

use super::{
    Connect, PATIENCE, enqueue, enqueues_through_an_outage, has, open, options, queue_of, until,
};

pub async fn queues_of_all_nodes_work_over_one_transport<C: Connect>() {
    let cluster = Cluster::start();
    let transport = Arc::new(C::connect(&options(&cluster.url())).await.unwrap());
    for node in cluster.nodes() {
        let name = QueueName::new(queue_of(&cluster, node)).unwrap();
        let queue = ScriptBackend::open(Arc::clone(&transport), name, false).await.unwrap();
        enqueue(&queue, "a").await.unwrap();
        assert!(has(&queue, "a").await);
        assert_ne!(node.info("keyspace", "db0"), "");
    }
}

pub async fn processes_are_listed_once_and_across_a_failover<C: Connect>() {
    let cluster = Cluster::builder().replicas(1).start();
    let operator = C::connect(&options(&cluster.url())).await.unwrap();
    let worker = Arc::new(C::connect(&options(&cluster.url())).await.unwrap());
    let primaries = &cluster.nodes()[..3];
    let mut queues = Vec::new();
    for node in primaries {
        let name = QueueName::new(queue_of(&cluster, node)).unwrap();
        let queue = ScriptBackend::open(Arc::clone(&worker), name, false).await.unwrap();
        enqueue(&queue, "a").await.unwrap();
        queues.push(queue);
    }
    worker.introduce(Some(&process(1))).await;
    assert_eq!(listed(&operator).await, [process(1)]);
    for node in primaries {
        let clients = format!("{:?}", node.command(&["CLIENT", "LIST"]));
        assert!(clients.contains("delayline-worker;"), "{clients}");
    }
    until("the replicas have it", || primaries.iter().all(replicas_are_level)).await;
    primaries[0].kill();
    let begin = Instant::now();
    loop {
        assert!(begin.elapsed() < PATIENCE, "no recovery");
        // The others list it, whatever has become of this one.
        if let Ok(found) = operator.workers().await {
            assert_eq!(found.processes.len(), 1, "{found:?}");
            if found.complete {
                break;
            }
            let error = found.failure.unwrap();
            assert!(error.detail().contains(&primaries[0].port().to_string()), "{error}");
        }
    }
    // Its next call connects to the new primary.
    while enqueue(&queues[0], "again").await.is_err() {
        tokio::task::yield_now().await;
    }
    let lists = |node: &Server| {
        format!("{:?}", node.command(&["CLIENT", "LIST"])).contains("delayline-worker;")
    };
    let replicas = &cluster.nodes()[3..];
    until("the new primary lists it", || replicas.iter().any(lists)).await;
}

pub async fn relays_stay_in_the_slot_of_their_queue<C: Connect>() {
    let cluster = Cluster::start();
    let transport = Arc::new(C::connect(&options(&cluster.url())).await.unwrap());
    for node in cluster.nodes() {
        let name = QueueName::new(queue_of(&cluster, node)).unwrap();
        let queue = ScriptBackend::open(Arc::clone(&transport), name.clone(), false).await.unwrap();
        enqueue(&queue, "a").await.unwrap();
        let relay = |key: String| {
            let key = DestinationKey::try_from(key).unwrap();
            Op::Relay(Relay::new(Destination::List { key, max_len: None }, 1))
        };
        // A tag that no queue here has.
        let elsewhere = relay("list{elsewhere}".to_owned());
        let error = queue.apply(At::Server, &elsewhere).await.unwrap_err();
        assert_eq!(
            (error.kind(), error.class()),
            (&ErrorKind::Unsupported("a destination in another hash slot"), ErrorClass::Rejected)
        );
        let (slot, other) = (cluster.slot(name.as_str()), cluster.slot("elsewhere"));
        for text in [&format!("slot {slot}"), &format!("slot {other}"), &format!("{{{name}}}")] {
            assert!(error.detail().contains(text), "{error}");
        }
        assert!(has(&queue, "a").await, "it stays in the queue");
        let key = format!("list{{{name}}}");
        let applied = queue.apply(At::Server, &relay(key.clone())).await.unwrap();
        assert!(matches!(applied.reply, ApiReply::Relay(relayed) if relayed.ids.len() == 1));
        assert_eq!(node.command(&["LLEN", &key]), Reply::Int(1));
    }
}

pub async fn queues_are_listed_across_a_failover<C: Connect>() {
    let cluster = Cluster::builder().replicas(1).start();
    let transport = Arc::new(C::connect(&options(&cluster.url())).await.unwrap());
    let none = transport.queues(u64::MAX).await.unwrap();
    assert!(none.names.is_empty() && none.complete && none.failure.is_none(), "{none:?}");
    let primaries = &cluster.nodes()[..3];
    let mut names = Vec::new();
    for node in primaries {
        let name = QueueName::new(queue_of(&cluster, node)).unwrap();
        let queue = ScriptBackend::open(Arc::clone(&transport), name.clone(), false).await.unwrap();
        enqueue(&queue, "a").await.unwrap();
        names.push(name);
    }
    let names = BTreeSet::from_iter(names);
    let all = transport.queues(u64::MAX).await.unwrap();
    assert!(all.names == names && all.complete && all.failure.is_none(), "{all:?}");
    until("the replicas have it", || primaries.iter().all(replicas_are_level)).await;
    primaries[0].kill();
    let begin = Instant::now();
    loop {
        match transport.queues(u64::MAX).await {
            Ok(found) if found.failure.is_none() => break assert_eq!(found.names, names),
            Ok(found) => {
                let error = found.failure.unwrap();
                assert!(!found.complete && found.names.is_subset(&names), "{:?}", found.names);
                assert_eq!(found.names.len(), 2, "the other primaries answer");
                assert!(error.detail().contains(&primaries[0].port().to_string()), "{error}");
                assert_ne!(error.class(), ErrorClass::Rejected, "{error}");
            }
            Err(error) => assert_ne!(error.class(), ErrorClass::Rejected, "{error}"),
        }
        assert!(begin.elapsed() < PATIENCE, "the queues of the killed node are missing");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

pub async fn bells_of_different_slots_are_heard<C: Connect>() {
    let cluster = Cluster::start();
    let node = &cluster.nodes()[0];
    let first = queue_of(&cluster, node);
    let is_apart = |name: &String| {
        *name != first && std::ptr::eq(cluster.owner(node, cluster.slot(name)), node)
    };
    let second = (0..).map(|number| format!("other-{number}")).find(is_apart).unwrap();
    let transport = Arc::new(C::connect(&options(&cluster.url())).await.unwrap());
    let queue = |name: &String| {
        let name = QueueName::new(name.as_str()).unwrap();
        ScriptBackend::open(Arc::clone(&transport), name, false)
    };
    let (first, second) = (queue(&first).await.unwrap(), queue(&second).await.unwrap());
    let ring = async {
        until("both wait", || node.info("clients", "blocked_clients") == "2").await;
        first.ring().await.unwrap();
        second.ring().await.unwrap();
    };
    let (one, other, ()) = tokio::join!(first.wait(PATIENCE), second.wait(PATIENCE), ring);
    assert!(one.unwrap() && other.unwrap());
}

pub async fn a_killed_primary_is_replaced<C: Connect>() {
    let cluster = Cluster::builder().replicas(1).start();
    let primary = &cluster.nodes()[0];
    let queue = open::<C>(&options(&cluster.url()), &queue_of(&cluster, primary)).await.unwrap();
    enqueue(&queue, "before").await.unwrap();
    until("the replica has it", || replicas_are_level(primary)).await;
    primary.kill();
    let acknowledged = enqueues_through_an_outage(&queue).await;
    for text in acknowledged.iter().map(String::as_str).chain(["before"]) {
        assert!(has(&queue, text).await, "{text} is lost");
    }
}

pub async fn a_frozen_primary_keeps_no_call<C: Connect>() {
    let cluster = Cluster::builder().replicas(1).start();
    let primary = &cluster.nodes()[0];
    // Much longer than the failover: what ends the call is that the primary is replaced.
    let mut options = options(&cluster.url());
    options.response_timeout = 2 * PATIENCE;
    let queue = open::<C>(&options, &queue_of(&cluster, primary)).await.unwrap();
    let call = async {
        until("a call waits", || primary.info("clients", "blocked_clients") == "1").await;
        primary.pause();
        tokio::time::timeout(PATIENCE, enqueue(&queue, "lost")).await
    };
    let wait = tokio::time::timeout(PATIENCE, queue.wait(2 * PATIENCE));
    let (call, wait) = tokio::join!(call, wait);
    let error = call.expect("the call hangs").unwrap_err();
    assert_eq!(error.kind(), &ErrorKind::ConnectionLost, "{error}");
    assert_eq!(error.class(), ErrorClass::Ambiguous);
    assert!(error.detail().contains(&primary.port().to_string()), "{error}");
    assert!(!wait.expect("the wait hangs").unwrap(), "nothing rang");
    // The new primary is known by now.
    enqueue(&queue, "kept").await.unwrap();
    primary.resume();
    assert!(has(&queue, "kept").await);
}

/// A primary that was frozen executes and acknowledges what waits in its sockets before it hears
/// that it was replaced, and loses it then.
pub async fn what_a_frozen_primary_acknowledges_late_is_not_believed<C: Connect>() {
    let cluster = Cluster::builder().replicas(1).start();
    let primary = &cluster.nodes()[0];
    let mut options = options(&cluster.url());
    options.response_timeout = PATIENCE;
    let name = queue_of(&cluster, primary);
    let queue = Arc::new(open::<C>(&options, &name).await.unwrap());
    let texts: Vec<_> = (0..50).map(|number| format!("message-{number}")).collect();
    primary.pause();
    let mut calls = tokio::task::JoinSet::new();
    for text in texts {
        let queue = Arc::clone(&queue);
        calls.spawn(async move {
            let outcome = enqueue(&*queue, &text).await;
            (text, outcome)
        });
    }
    await_failover(&cluster, &name, primary).await;
    primary.resume();
    while let Some(outcome) = calls.join_next().await {
        match outcome.unwrap() {
            (text, Ok(())) => assert!(has(&*queue, &text).await, "{text} was acknowledged"),
            (_, Err(error)) => assert_ne!(error.class(), ErrorClass::Rejected, "{error}"),
        }
    }
}

pub async fn a_slot_that_moves_is_followed<C: Connect>() {
    let cluster = Cluster::start();
    let [from, to, _] = cluster.nodes() else { panic!("three nodes") };
    let name = queue_of(&cluster, from);
    let queue = open::<C>(&options(&cluster.url()), &name).await.unwrap();
    enqueue(&queue, "a").await.unwrap();
    let slot = cluster.slot(&name);
    cluster.begin_to_move(slot, from, to);
    cluster.move_keys(from, to, &cluster.keys(from, slot));
    cluster.end_to_move(slot, to);
    let begin = Instant::now();
    assert!(has(&queue, "a").await);
    enqueue(&queue, "b").await.unwrap();
    assert!(begin.elapsed() < Duration::from_secs(30), "MOVED says where to go");
    assert_ne!(to.info("keyspace", "db0"), "");
}

pub async fn a_queue_on_its_way_is_busy<C: Connect>() {
    let cluster = Cluster::start();
    let [from, to, _] = cluster.nodes() else { panic!("three nodes") };
    let name = queue_of(&cluster, from);
    let queue = open::<C>(&options(&cluster.url()), &name).await.unwrap();
    enqueue(&queue, "a").await.unwrap();
    let slot = cluster.slot(&name);
    let keys = cluster.keys(from, slot);
    assert!(keys.len() > 1, "{keys:?}");
    cluster.begin_to_move(slot, from, to);
    let (first, rest) = keys.split_at(1);
    for moved in [first, rest] {
        cluster.move_keys(from, to, moved);
        let error = enqueue(&queue, "b").await.unwrap_err();
        assert_eq!(error.kind(), &ErrorKind::Busy, "{error}");
        assert_eq!(error.class(), ErrorClass::NotExecuted);
    }
    cluster.end_to_move(slot, to);
    assert!(has(&queue, "a").await && !has(&queue, "b").await);
}

pub async fn a_flushed_node_gets_its_scripts_again<C: Connect>() {
    let cluster = Cluster::start();
    let node = &cluster.nodes()[1];
    let queue = open::<C>(&options(&cluster.url()), &queue_of(&cluster, node)).await.unwrap();
    enqueue(&queue, "a").await.unwrap();
    node.command(&["SCRIPT", "FLUSH"]);
    enqueue(&queue, "b").await.unwrap();
    assert!(has(&queue, "a").await && has(&queue, "b").await);
}

/// After a failover the old primary, cut off from the others, still takes itself for the owner.
pub async fn views_of_a_node_apart_change_nothing<C: Connect>() {
    let cluster = Cluster::builder().replicas(1).start();
    let primary = &cluster.nodes()[0];
    let name = queue_of(&cluster, primary);
    let queue = open::<C>(&options(&cluster.url()), &name).await.unwrap();
    primary.pause();
    await_failover(&cluster, &name, primary).await;
    let begin = Instant::now();
    while enqueue(&queue, "probe").await.is_err() {
        assert!(begin.elapsed() < PATIENCE, "no recovery");
    }
    // Until it hears from the other nodes, it reports its old view.
    primary.resume();
    for number in 0..200 {
        enqueue(&queue, &format!("after-{number}")).await.unwrap();
    }
}

async fn await_failover(cluster: &Cluster, queue: &str, primary: &Server) {
    let witness = &cluster.nodes()[1];
    // The first node may be the frozen one.
    let Reply::Int(slot) = witness.command(&["CLUSTER", "KEYSLOT", queue]) else {
        panic!("no slot")
    };
    let slot = slot.try_into().unwrap();
    let is_over = || !std::ptr::eq(cluster.owner(witness, slot), primary);
    until("another node serves the slot", is_over).await;
}

pub async fn addresses_are_mapped<C: Connect>() {
    // A name has precedence over an address, and this name cannot be resolved.
    let cluster = Cluster::builder().config("cluster-announce-hostname", "node.invalid").start();
    let mut options = options(&cluster.url());
    let error = super::refusal::<C>(&options, "q").await;
    assert_eq!(error.kind(), &ErrorKind::Unreachable, "{error}");
    assert!(error.to_string().contains("node.invalid"), "{error}");
    let map = cluster.nodes().iter().map(|node| {
        let port = node.port();
        let parse = |text: String| text.parse().unwrap();
        (parse(format!("node.invalid:{port}")), parse(format!("127.0.0.1:{port}")))
    });
    options.address_map = map.collect::<HashMap<_, _>>();
    let queue = open::<C>(&options, "q").await.unwrap();
    enqueue(&queue, "a").await.unwrap();
    assert!(has(&queue, "a").await);
}

pub async fn the_documented_permissions_are_enough<C: Connect>() {
    let cluster = Cluster::start();
    let name = QueueName::new("q").unwrap();
    let allow = |more: &str| {
        let rules = format!("ACL SETUSER app nopass {}{more}", AclRole::Worker.rules(&name));
        let words: Vec<_> = rules.split(' ').collect();
        cluster.nodes().iter().for_each(|node| drop(node.command(&words)));
    };
    let mut options = options(&cluster.url());
    options.username = Some("app".to_owned());
    allow("");
    let error = super::refusal::<C>(&options, "q").await;
    assert_eq!(error.kind(), &ErrorKind::PermissionDenied, "{error}");
    for more in [" +cluster|slots", " +cluster|slots +cluster|info"] {
        allow(more);
        let queue = open::<C>(&options, "q").await.unwrap();
        assert!(!queue.wait(Duration::from_millis(10)).await.unwrap());
    }
}

/// Whether each replica has all that the primary has written.
pub fn replicas_are_level(primary: &Server) -> bool {
    let offset = primary.info("replication", "master_repl_offset");
    let replica = primary.info("replication", "slave0");
    replica.contains(&format!("offset={offset},"))
}
