//! Sentinels over real servers.

use std::sync::Arc;
use std::time::{Duration, Instant};

use delayline_core::QueueName;
use delayline_redis_protocol::{AclRole, ScriptBackend, Transport as _};
use delayline_test_server::{Reply, Sentinels};

use super::cluster::replicas_are_level;
use super::{Connect, PATIENCE, enqueue, enqueues_through_an_outage, has, open, options, until};
use crate::transport::names::{lists, process};

pub async fn a_killed_primary_is_replaced<C: Connect>() {
    let sentinels = Sentinels::start();
    let queue = open::<C>(&options(&sentinels.url()), "q").await.unwrap();
    enqueue(&queue, "before").await.unwrap();
    let primary = sentinels.primary();
    until("the replica has it", || replicas_are_level(primary)).await;
    primary.kill();
    let acknowledged = enqueues_through_an_outage(&queue).await;
    for text in acknowledged.iter().map(String::as_str).chain(["before"]) {
        assert!(has(&queue, text).await, "{text} is lost");
    }
}

/// The old primary takes writes for about ten seconds more, all of which are lost: the sentinels
/// have to be asked.
pub async fn a_failover_by_hand_is_followed<C: Connect>() {
    let sentinels = Sentinels::start();
    let queue = open::<C>(&options(&sentinels.url()), "q").await.unwrap();
    let old = sentinels.primary();
    sentinels.sentinels()[0].command(&["SENTINEL", "FAILOVER", "primary"]);
    until("the sentinels know the new primary", || !std::ptr::eq(sentinels.primary(), old)).await;
    // The next look is a second away at most; calls until then may be lost. Counted are pauses, not
    // the time, for a machine that stands still.
    for number in 0..150 {
        let _ = enqueue(&queue, &format!("early-{number}")).await;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    enqueue(&queue, "kept").await.unwrap();
    // It ends all connections when it is.
    let is_replica = || match old.try_command(&["ROLE"]) {
        Ok(Reply::Array(role)) => role.first() == Some(&Reply::BulkString(b"slave".to_vec())),
        _ => false,
    };
    until("the old primary is demoted", is_replica).await;
    assert!(has(&queue, "kept").await);
}

/// Until all replicas follow the new primary, the leading sentinel describes the old one, and that
/// one accepts writes.
pub async fn a_failover_that_takes_long_loses_nothing_after_the_next_look<C: Connect>() {
    let sentinels = Sentinels::builder().replicas(2).start();
    let queue = open::<C>(&options(&sentinels.url()), "q").await.unwrap();
    // The other replica cannot follow the promoted one.
    for replica in &sentinels.servers()[1..] {
        replica.command(&["CONFIG", "SET", "masterauth", "wrong"]);
    }
    let old = sentinels.primary();
    sentinels.sentinels()[0].command(&["SENTINEL", "FAILOVER", "primary"]);
    let (begin, mut kept) = (Instant::now(), Vec::new());
    let (mut last, mut awake) = (begin, Duration::ZERO);
    while std::ptr::eq(sentinels.primary(), old) {
        let id = format!("at-{}", begin.elapsed().as_micros());
        // One look a second, which hears all sentinels. A machine that stands still does not look.
        awake += last.elapsed().min(Duration::from_millis(50));
        last = Instant::now();
        let is_aware = awake > Duration::from_secs(2);
        if enqueue(&queue, &id).await.is_ok() && is_aware {
            kept.push(id);
        }
        assert!(begin.elapsed() < Duration::from_secs(60), "the failover does not end");
    }
    assert!(kept.len() > 20, "{} messages while the failover lasted", kept.len());
    for id in &kept {
        assert!(has(&queue, id).await, "{id} is lost");
    }
}

pub async fn a_sentinel_that_is_away_does_no_harm<C: Connect>() {
    let sentinels = Sentinels::start();
    sentinels.sentinels()[0].pause();
    let queue = open::<C>(&options(&sentinels.url()), "q").await.unwrap();
    enqueue(&queue, "a").await.unwrap();
    assert!(has(&queue, "a").await);
}

/// The others may have replaced the primary meanwhile.
pub async fn one_sentinel_of_three_is_not_believed<C: Connect>() {
    let sentinels = Sentinels::start();
    let queue = open::<C>(&options(&sentinels.url()), "q").await.unwrap();
    for away in &sentinels.sentinels()[..2] {
        away.pause();
    }
    let (begin, mut number) = (Instant::now(), 0);
    let error = loop {
        assert!(begin.elapsed() < PATIENCE, "it is believed");
        number += 1;
        match enqueue(&queue, &number.to_string()).await {
            Ok(_) => tokio::task::yield_now().await,
            Err(error) => break error,
        }
    };
    // Calls in progress may have been executed.
    let kinds = [delayline_core::ErrorKind::Unreachable, delayline_core::ErrorKind::ConnectionLost];
    assert!(kinds.contains(error.kind()), "{error}");
    for away in &sentinels.sentinels()[..2] {
        away.resume();
    }
    while enqueue(&queue, "again").await.is_err() {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

pub async fn the_documented_permissions_are_enough<C: Connect>() {
    let sentinels = Sentinels::start();
    let name = QueueName::new("q").unwrap();
    let mut options = options(&sentinels.url());
    options.username = Some("app".to_owned());
    for more in ["", " +role"] {
        let rules = format!("ACL SETUSER app nopass {}{more}", AclRole::Producer.rules(&name));
        let words: Vec<_> = rules.split(' ').collect();
        sentinels.servers().iter().for_each(|server| drop(server.command(&words)));
        let queue = open::<C>(&options, "q").await.unwrap();
        enqueue(&queue, "a").await.unwrap();
    }
}

pub async fn processes_are_listed_by_the_new_primary<C: Connect>() {
    let sentinels = Sentinels::start();
    let queue = open::<C>(&options(&sentinels.url()), "q").await.unwrap();
    let operator = C::connect(&options(&sentinels.url())).await.unwrap();
    let worker = Arc::new(C::connect(&options(&sentinels.url())).await.unwrap());
    let name = QueueName::new("q").unwrap();
    let of_worker = ScriptBackend::open(Arc::clone(&worker), name, false).await.unwrap();
    worker.introduce(Some(&process(1))).await;
    lists(&operator, &[process(1)]).await;
    sentinels.primary().kill();
    enqueues_through_an_outage(&queue).await;
    // Its next call connects to the new primary.
    while enqueue(&of_worker, "again").await.is_err() {
        tokio::task::yield_now().await;
    }
    lists(&operator, &[process(1)]).await;
}

pub async fn logins_of_sentinels_and_servers_differ<C: Connect>() {
    let sentinels = Sentinels::builder().password("server").sentinel_password("sentinel").start();
    let mut options = options(&sentinels.url());
    options.password = Some("server".into());
    let error = super::refusal::<C>(&options, "q").await;
    assert_eq!(error.kind(), &delayline_core::ErrorKind::Authentication, "{error}");
    options.sentinel_password = Some("sentinel".into());
    let queue = open::<C>(&options, "q").await.unwrap();
    enqueue(&queue, "a").await.unwrap();
}
