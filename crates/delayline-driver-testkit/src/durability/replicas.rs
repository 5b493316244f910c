//! A primary and replicas that stop and resume.

use delayline_core::{Durability, Enqueued, ErrorKind, QueueName};
use delayline_redis_protocol::AclRole;
use delayline_test_server::Reply;

use super::{
    Connect, QUEUE, calls, enqueue, enqueue_patiently, is_unconfirmed, open, options, primary,
    replica_has, replicas_of, until,
};

const ONE: Durability = Durability::Replicas(1);
const TWO: Durability = Durability::Replicas(2);

pub async fn a_replica_has_what_was_confirmed<C: Connect>() {
    let primary = primary();
    let replicas = replicas_of(&primary, 2).await;
    let queue = open::<C>(&options(&primary.url())).await;
    for number in 0..200 {
        let text = format!("message-{number}");
        enqueue(&queue, &text, TWO).await.unwrap();
        for replica in &replicas {
            assert!(replica_has(replica, &text), "{text}");
        }
    }
    is_unconfirmed(&enqueue(&queue, "three", Durability::Replicas(3)).await);
}

pub async fn a_stopped_replica_confirms_nothing<C: Connect>() {
    let primary = primary();
    let replicas = replicas_of(&primary, 1).await;
    let queue = open::<C>(&options(&primary.url())).await;
    enqueue(&queue, "before", ONE).await.unwrap();
    // So that all earlier writes are confirmed: a wait for them ends at once.
    let is_level = || {
        let offset = primary.info("replication", "master_repl_offset");
        primary.info("replication", "slave0").contains(&format!("offset={offset},"))
    };
    until("the replica has acknowledged everything", is_level).await;
    replicas[0].pause();
    for _ in 0..3 {
        let result = enqueue(&queue, "meanwhile", ONE).await;
        is_unconfirmed(&result);
        let told = result.unwrap_err().to_string();
        assert!(told.contains("0 of 1 replicas"), "{told}");
    }
    replicas[0].resume();
    enqueue_patiently(&queue, "meanwhile", ONE).await;
    assert!(replica_has(&replicas[0], "meanwhile"));
    let again = enqueue(&queue, "meanwhile", ONE).await.unwrap();
    assert!(matches!(again, Enqueued::Duplicate { .. }), "one message: {again:?}");
}

pub async fn nobody_waits_who_did_not_ask_for_it<C: Connect>() {
    let primary = primary();
    let replicas = replicas_of(&primary, 1).await;
    // The confirmation is waited for until the others are through, however long that takes.
    let mut options = options(&primary.url());
    options.response_timeout = super::PATIENCE;
    let queue = open::<C>(&options).await;
    enqueue(&queue, "plain", Durability::None).await.unwrap();
    assert_eq!(calls(&primary, "wait"), 0);
    replicas[0].pause();
    let plain = async {
        until("a call waits", || primary.info("clients", "blocked_clients") == "1").await;
        for number in 0..100 {
            enqueue(&queue, &format!("plain-{number}"), Durability::None).await.unwrap();
        }
    };
    tokio::select! {
        biased;
        () = plain => {}
        result = enqueue(&queue, "durable", ONE) => panic!("the others waited for it: {result:?}"),
    }
}

pub async fn a_missing_permission_is_told_at_once<C: Connect>() {
    let primary = primary();
    let _replicas = replicas_of(&primary, 1).await;
    let allow = |more: &str| {
        let rules = AclRole::Producer.rules(&QueueName::new(QUEUE).unwrap());
        let rules = format!("ACL SETUSER app nopass {rules}{more}");
        primary.command(&rules.split(' ').collect::<Vec<_>>());
    };
    allow("");
    let mut options = options(&primary.url());
    options.username = Some("app".to_owned());
    let queue = open::<C>(&options).await;
    enqueue(&queue, "a", ONE).await.unwrap();
    for command in ["wait", "info"] {
        allow(&format!(" -{command}"));
        // It is asked once for each connection.
        let queue = open::<C>(&options).await;
        let scripts = calls(&primary, "eval") + calls(&primary, "evalsha");
        let error = enqueue(&queue, "b", ONE).await.unwrap_err();
        assert_eq!(error.kind(), &ErrorKind::PermissionDenied, "{error}");
        assert!(error.detail().contains(command), "{error}");
        assert_eq!(
            calls(&primary, "eval") + calls(&primary, "evalsha"),
            scripts,
            "nothing is sent"
        );
        enqueue(&queue, "b", Durability::None).await.unwrap();
    }
}

/// G24: the key of a fence expires.
pub async fn a_fence_leaves_nothing<C: Connect>() {
    let primary = primary();
    let _replicas = replicas_of(&primary, 1).await;
    let queue = open::<C>(&options(&primary.url())).await;
    enqueue(&queue, "a", ONE).await.unwrap();
    let life = primary.command(&["PTTL", &format!("delayline:{{{QUEUE}}}:fence")]);
    let Reply::Int(life) = life else { panic!("{life:?}") };
    // -1 means without an end, -2 that the key does not exist.
    assert!(life <= 10_000 && life != -1, "{life}");
}
