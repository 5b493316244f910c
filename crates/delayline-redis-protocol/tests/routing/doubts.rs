//! Servers that were silent for a while, and when they are trusted again.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use delayline_core::ErrorKind;
use delayline_redis_protocol::Value;
use tokio::runtime::Builder;
use tokio::time::{Instant, sleep};

use crate::fake::{Answer, World};
use crate::{
    SENTINELS, URL, call, call_on, calls, done, info, is_sentinel, kind, primary, range, sentinel,
    text,
};

/// The reply of a server that is slow once.
fn slow() -> Answer {
    Answer::After(Duration::from_millis(1_500), Value::Array(vec![Value::Int(1)]))
}

#[tokio::test(start_paused = true)]
async fn one_sentinel_that_does_not_reach_the_primary_ends_no_calls_for_long() {
    let begin = Instant::now();
    let world = World::new(move |server, command| match server {
        "s3:26379" => Answer::Value(sentinel(command, 1, "a", "s_down,master,disconnected", "a")),
        server if is_sentinel(server) => Answer::Value(sentinel(command, 1, "a", "master", "a")),
        _ if command == "ROLE" => primary(),
        _ if command.starts_with("EVAL") && begin.elapsed().is_zero() => slow(),
        _ => done(),
    });
    let transport = world.connect(SENTINELS).await.unwrap();
    assert_eq!(kind(call(&transport).await), ErrorKind::ConnectionLost);
    for _ in 0..100 {
        assert!(call(&transport).await.is_ok());
        sleep(Duration::from_millis(50)).await;
    }
}

/// With a sentinel that never answers, it is never known that all of them begin to count anew.
#[tokio::test(start_paused = true)]
async fn sentinels_that_count_anew_end_no_calls_for_long() {
    let begin = Instant::now();
    let world = World::new(move |server, command| {
        let epoch = if begin.elapsed().is_zero() { 9 } else { 0 };
        match server {
            "s3:26379" => Answer::Never,
            server if is_sentinel(server) => {
                Answer::Value(sentinel(command, epoch, "a", "master", "a"))
            }
            _ if command == "ROLE" => primary(),
            _ if command.starts_with("EVAL") && begin.elapsed().as_secs() < 5 => slow(),
            _ => done(),
        }
    });
    let transport = world.connect(SENTINELS).await.unwrap();
    assert_eq!(kind(call(&transport).await), ErrorKind::ConnectionLost);
    sleep(Duration::from_secs(5)).await;
    for _ in 0..100 {
        assert!(call(&transport).await.is_ok());
        sleep(Duration::from_millis(50)).await;
    }
}

/// Each refresh waits for the silent one.
#[tokio::test(start_paused = true)]
async fn a_silent_sentinel_delays_the_news_of_a_failover_by_a_second() {
    for failover_ms in (5_000..7_000).step_by(100) {
        let begin = Instant::now();
        let failover = begin + Duration::from_millis(failover_ms);
        let world = World::new(move |server, command| match server {
            "s3:26379" if command != "connect" => Answer::Never,
            server if is_sentinel(server) => {
                let (epoch, host) = if Instant::now() < failover { (1, "a") } else { (2, "b") };
                Answer::Value(sentinel(command, epoch, host, "master", host))
            }
            _ if command == "ROLE" => primary(),
            _ => done(),
        });
        let transport = world.connect(SENTINELS).await.unwrap();
        while begin.elapsed() < Duration::from_secs(10) {
            assert!(call(&transport).await.is_ok());
            sleep(Duration::from_millis(10)).await;
        }
        let sent = world.sent();
        let mut calls = sent.iter().filter(|sent| sent.command.starts_with("EVAL"));
        let last = calls.rfind(|sent| sent.server == "a:1").unwrap();
        assert!(last.at <= failover + Duration::from_secs(2), "{:?}", last.at - failover);
    }
}

/// It wakes up, and the only other node is silent or cut off itself.
#[tokio::test(start_paused = true)]
async fn a_server_that_was_silent_needs_another_healthy_node() {
    for other in [Answer::Never, Answer::Value(text("cluster_state:fail\r\n"))] {
        let begin = Instant::now();
        let world = World::new(move |server, command| match (server, command) {
            ("b:1", "CLUSTER INFO") if (1..20).contains(&begin.elapsed().as_secs()) => {
                other.clone()
            }
            (_, "CLUSTER INFO") => Answer::Value(info(1)),
            (_, "CLUSTER SLOTS") => {
                Answer::Value(Value::Array(vec![range(0, 8_000, "a"), range(8_001, 16_383, "b")]))
            }
            _ if begin.elapsed().is_zero() => slow(),
            _ => done(),
        });
        let transport = world.connect(URL).await.unwrap();
        for _ in 0..5 {
            assert_eq!(kind(call(&transport).await), ErrorKind::ConnectionLost);
        }
        sleep(Duration::from_secs(20)).await;
        assert!(call(&transport).await.is_ok());
    }
}

/// The process stood still, or its network did.
#[tokio::test(start_paused = true)]
async fn servers_that_were_silent_together_confirm_each_other() {
    let world = World::new(move |_, command| match command {
        "CLUSTER INFO" => Answer::Value(info(1)),
        "CLUSTER SLOTS" => {
            Answer::Value(Value::Array(vec![range(0, 8_000, "a"), range(8_001, 16_383, "b")]))
        }
        _ => slow(),
    });
    let transport = world.connect(URL).await.unwrap();
    for _ in 0..5 {
        let (one, other) = tokio::join!(call_on(&transport, "k"), call_on(&transport, "a"));
        assert!(one.is_ok() && other.is_ok(), "{one:?} {other:?}");
    }
    let servers: HashSet<_> = calls(&world).into_iter().collect();
    assert_eq!(servers.len(), 2, "{servers:?}");
}

/// By the access rules, or because the server has no such command.
#[tokio::test(start_paused = true)]
async fn a_server_without_role_is_asked_another_way() {
    for line in ["NOPERM no permissions to run 'role'", "ERR unknown command 'ROLE'"] {
        for (info, is_taken) in [(Some("master"), true), (Some("slave"), false), (None, true)] {
            let world = World::new(move |server, command| match command {
                _ if is_sentinel(server) => Answer::Value(sentinel(command, 1, "a", "master", "a")),
                "ROLE" => Answer::Line(line.to_owned()),
                "INFO" => match info {
                    Some(role) => {
                        Answer::Value(text(format!("redis_version:7\r\nrole:{role}\r\n")))
                    }
                    None => Answer::Line(line.replace("ROLE", "INFO")),
                },
                _ => done(),
            });
            let connected = world.connect(SENTINELS).await;
            assert_eq!(connected.is_ok(), is_taken, "{line} {info:?}: {:?}", connected.err());
        }
    }
}

/// The task that refreshes the topology belongs to a runtime that is not run any more.
#[test]
fn a_failover_is_noticed_although_the_runtime_of_the_first_call_is_not_run() {
    let is_over = Arc::new(AtomicBool::new(false));
    let failover = Arc::clone(&is_over);
    let world = World::new(move |server, command| match server {
        server if is_sentinel(server) => {
            let (epoch, host) = if failover.load(Ordering::Relaxed) { (2, "b") } else { (1, "a") };
            Answer::Value(sentinel(command, epoch, host, "master", host))
        }
        _ if command == "ROLE" => primary(),
        _ => done(),
    });
    let mut builder = Builder::new_current_thread();
    let [first, second] = [0, 1].map(|_| builder.enable_all().start_paused(true).build().unwrap());
    let transport = first.block_on(world.connect(SENTINELS)).unwrap();
    first.block_on(call(&transport)).unwrap();
    is_over.store(true, Ordering::Relaxed);
    second.block_on(async {
        for _ in 0..2 {
            sleep(Duration::from_secs(6)).await;
            call(&transport).await.unwrap();
        }
    });
    assert_eq!(calls(&world), ["a:1", "a:1", "b:1"]);
}
