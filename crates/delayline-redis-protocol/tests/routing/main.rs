//! Routing of calls through clusters and sentinels with scripted replies, in paused time.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "test code")]

mod doubts;
mod fake;
mod queues;

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use delayline_core::ErrorKind;
use delayline_redis_protocol::{
    CallError, DriverTransport, ScriptCall, ScriptName, Transport, Value, classify,
};
use tokio::time::{Instant, advance, sleep, timeout};

use fake::{Answer, Fake, World};

const URL: &str = "redis-cluster://a:1,b:1";

fn text(text: impl Into<Bytes>) -> Value {
    Value::Bytes(text.into())
}

/// The answer to `CLUSTER SLOTS` with one owner of everything.
fn slots(host: &str) -> Value {
    Value::Array(vec![range(0, 16_383, host)])
}

fn range(first: i64, last: i64, host: &str) -> Value {
    let primary = Value::Array(vec![text(host.to_owned()), Value::Int(1), text("id")]);
    Value::Array(vec![Value::Int(first), Value::Int(last), primary])
}

fn info(epoch: u64) -> Value {
    text(format!("cluster_state:ok\r\ncluster_current_epoch:{epoch}\r\n"))
}

fn done() -> Answer {
    Answer::Value(Value::Array(vec![Value::Int(1)]))
}

async fn call(transport: &DriverTransport<Fake>) -> Result<Value, CallError> {
    call_on(transport, "k").await
}

async fn call_on(transport: &DriverTransport<Fake>, key: &'static str) -> Result<Value, CallError> {
    let (keys, args) = ([Bytes::from_static(key.as_bytes())], []);
    let script = ScriptName::Source("return {1}");
    transport.call(ScriptCall::new(script, &keys, &args)).await
}

fn calls(world: &World) -> Vec<String> {
    let sent = world.sent();
    let calls = sent.iter().filter(|sent| sent.command.starts_with("EVAL"));
    calls.map(|sent| sent.server.clone()).collect()
}

fn kind(result: Result<Value, CallError>) -> ErrorKind {
    match result.unwrap_err() {
        CallError::Reply(line) => classify(&line).kind().clone(),
        CallError::Failed(error) => error.kind().clone(),
    }
}

#[tokio::test(start_paused = true)]
async fn servers_that_send_a_call_in_circles_end_it_soon() {
    let world = World::new(|server, command| match (server, command) {
        (_, "CLUSTER INFO") => Answer::Value(info(1)),
        (_, "CLUSTER SLOTS") => Answer::Value(slots("a")),
        ("a:1", _) => Answer::Line("MOVED 7629 b:1".to_owned()),
        _ => Answer::Line("MOVED 7629 a:1".to_owned()),
    });
    let transport = world.connect(URL).await.unwrap();
    // The map says something else than the lines, so it may also end as if its server was replaced.
    let kind = kind(call(&transport).await);
    assert!(matches!(kind, ErrorKind::Busy | ErrorKind::ConnectionLost), "{kind:?}");
    assert!(calls(&world).len() <= 6, "{:?}", calls(&world));
}

/// The owner's address does not answer; the call has not been sent when there is a new owner.
#[tokio::test(start_paused = true)]
async fn a_call_that_was_not_sent_goes_to_the_new_server() {
    let begin = Instant::now();
    let world = World::new(move |server, command| match (server, command) {
        ("a:1", "connect") if begin.elapsed() > Duration::from_millis(100) => Answer::Never,
        (_, "connect") => done(),
        ("a:1", _) if begin.elapsed() > Duration::from_millis(100) => Answer::Never,
        (_, "CLUSTER INFO") => Answer::Value(info(1)),
        (_, "CLUSTER SLOTS") if begin.elapsed() > Duration::from_secs(1) => {
            Answer::Value(slots("b"))
        }
        (_, "CLUSTER SLOTS") => Answer::Value(slots("a")),
        _ => done(),
    });
    let transport = world.connect("redis-cluster://b:1").await.unwrap();
    sleep(Duration::from_millis(200)).await;
    let begin = Instant::now();
    assert!(call(&transport).await.is_ok());
    assert!(begin.elapsed() < Duration::from_secs(2), "it does not wait for the connection");
    assert_eq!(calls(&world), ["b:1"]);
}

#[tokio::test(start_paused = true)]
async fn only_moved_sends_a_call_on() {
    for line in ["ASK 7629 b:1", "TRYAGAIN", "CLUSTERDOWN", "MOVED 7629 ?:1", "MOVED x", "ERR"] {
        let world = World::new(move |_, command| match command {
            "CLUSTER INFO" => Answer::Value(info(1)),
            "CLUSTER SLOTS" => Answer::Value(slots("a")),
            _ => Answer::Line(line.to_owned()),
        });
        let transport = world.connect(URL).await.unwrap();
        assert!(call(&transport).await.is_err(), "{line}");
        assert_eq!(calls(&world).len(), 1, "{line}");
    }
}

/// A silent owner; after a while the others say that there is a new one.
#[tokio::test(start_paused = true)]
async fn a_call_to_a_replaced_server_ends_at_once_and_is_not_sent_again() {
    let begin = Instant::now();
    let world = World::new(move |server, command| match (server, command) {
        ("a:1", command) if command.starts_with("EVAL") => Answer::Never,
        ("a:1", _) if begin.elapsed() > Duration::from_millis(500) => Answer::Never,
        (_, "CLUSTER INFO") => Answer::Value(info(1)),
        (_, "CLUSTER SLOTS") if begin.elapsed() > Duration::from_secs(3) => {
            Answer::Value(slots("b"))
        }
        (_, "CLUSTER SLOTS") => Answer::Value(slots("a")),
        _ => done(),
    });
    let transport = world.connect(URL).await.unwrap();
    assert_eq!(kind(call(&transport).await), ErrorKind::ConnectionLost);
    let took = begin.elapsed();
    assert!(took > Duration::from_secs(3) && took < Duration::from_secs(4), "{took:?}");
    assert_eq!(calls(&world), ["a:1"]);
    assert!(call(&transport).await.is_ok());
    assert_eq!(calls(&world), ["a:1", "b:1"]);
}

/// The owner is silent for 1.5 s and then answers, but meanwhile it was replaced.
#[tokio::test(start_paused = true)]
async fn what_a_server_says_after_a_silence_needs_somebody_to_confirm_it() {
    for (replaced_after_ms, is_believed) in [(60_000, true), (1_499, false)] {
        let begin = Instant::now();
        let world = World::new(move |server, command| match (server, command) {
            (_, "CLUSTER INFO") => Answer::Value(info(1)),
            // The refresh right before the reply does not see the change yet.
            (_, "CLUSTER SLOTS") if begin.elapsed().as_millis() > replaced_after_ms => {
                Answer::Value(slots("b"))
            }
            (_, "CLUSTER SLOTS") => Answer::Value(slots("a")),
            ("a:1", _) => {
                Answer::After(Duration::from_millis(1_500), Value::Array(vec![Value::Int(1)]))
            }
            _ => done(),
        });
        let transport = world.connect(URL).await.unwrap();
        let answer = call(&transport).await;
        assert_eq!(answer.is_ok(), is_believed, "{answer:?}");
        assert_eq!(calls(&world).len(), 1);
    }
}

/// No sentinel can be asked, and then all of them answer again at once.
#[tokio::test(start_paused = true)]
async fn many_answers_after_a_silence_wait_for_one_look() {
    let begin = Instant::now();
    let world = World::new(move |_, command| match command {
        "connect" => done(),
        _ if command.starts_with("EVAL") => {
            Answer::After(Duration::from_secs(3), Value::Array(vec![Value::Int(1)]))
        }
        _ if begin.elapsed() > Duration::from_millis(500) => Answer::Never,
        "CLUSTER INFO" => Answer::Value(info(1)),
        _ => Answer::Value(slots("a")),
    });
    let transport = Arc::new(world.connect(URL).await.unwrap());
    sleep(Duration::from_secs(1)).await;
    let mut waiting = tokio::task::JoinSet::new();
    for _ in 0..1_000 {
        let transport = Arc::clone(&transport);
        waiting.spawn(async move { kind(call(&transport).await) });
    }
    while let Some(kind) = waiting.join_next().await {
        assert_eq!(kind.unwrap(), ErrorKind::ConnectionLost);
    }
    assert!(begin.elapsed() < Duration::from_secs(15), "{:?}", begin.elapsed());
}

/// It wakes up, answers, and still takes itself for the owner, whatever name it is asked by.
#[tokio::test(start_paused = true)]
async fn a_server_that_was_silent_cannot_confirm_itself() {
    for _ in 0..20 {
        let begin = Instant::now();
        let is_replaced = move || begin.elapsed() >= Duration::from_millis(1_405);
        let world = World::new(move |server, command| match (server, command) {
            ("a:1" | "seed-of-a:1", "CLUSTER INFO") => Answer::Value(info(1)),
            ("b:1", "CLUSTER INFO") => Answer::Value(info(1 + u64::from(is_replaced()))),
            ("b:1", "CLUSTER SLOTS") if is_replaced() => Answer::Value(slots("b")),
            (_, "CLUSTER SLOTS") => {
                Answer::Value(Value::Array(vec![range(0, 8_000, "a"), range(8_001, 16_383, "b")]))
            }
            ("a:1", _) => {
                Answer::After(Duration::from_millis(1_410), Value::Array(vec![Value::Int(1)]))
            }
            _ => done(),
        });
        let transport = world.connect("redis-cluster://seed-of-a:1").await.unwrap();
        assert_eq!(kind(call(&transport).await), ErrorKind::ConnectionLost);
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_that_knows_less_ends_no_call() {
    let begin = Instant::now();
    let world = World::new(move |server, command| match (server, command) {
        ("a:1", "CLUSTER INFO") => Answer::Value(info(7)),
        ("a:1", "CLUSTER SLOTS") => Answer::Value(slots("a")),
        // It missed the last failover.
        (_, "CLUSTER INFO") => Answer::Value(info(6)),
        (_, "CLUSTER SLOTS") => Answer::Value(slots("b")),
        ("a:1", _) if begin.elapsed() < Duration::from_secs(100) => {
            Answer::After(Duration::from_secs(4), Value::Array(vec![Value::Int(1)]))
        }
        _ => done(),
    });
    let transport = world.connect("redis-cluster://a:1").await.unwrap();
    for _ in 0..10 {
        assert!(call(&transport).await.is_ok());
    }
    assert_eq!(calls(&world), vec!["a:1"; 10]);
}

#[tokio::test(start_paused = true)]
async fn nobody_is_asked_more_than_twenty_times_a_second() {
    let world = World::new(|server, command| match (server, command) {
        (_, "CLUSTER INFO") => Answer::Value(info(1)),
        (_, "CLUSTER SLOTS") => Answer::Value(slots("a")),
        _ => Answer::Line("CLUSTERDOWN".to_owned()),
    });
    let transport = Arc::new(world.connect(URL).await.unwrap());
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(30) {
        assert_eq!(kind(call(&transport).await), ErrorKind::Busy);
        sleep(Duration::from_millis(1)).await;
    }
    let looks = world.sent().into_iter().filter(|sent| sent.command.starts_with("CLUSTER"));
    let looks: Vec<_> = looks.collect();
    assert!(looks.len() > 100, "{} looks", looks.len());
    for (number, look) in looks.iter().enumerate() {
        let within =
            looks[number..].iter().take_while(|it| it.at - look.at < Duration::from_secs(1));
        assert!(within.count() <= 20, "at {:?}", look.at - begin);
    }
}

#[tokio::test(start_paused = true)]
async fn an_idle_transport_asks_one_node_in_half_a_minute() {
    let world = World::new(|_, command| match command {
        "CLUSTER INFO" => Answer::Value(info(1)),
        "CLUSTER SLOTS" => Answer::Value(slots("a")),
        _ => done(),
    });
    let transport = world.connect(URL).await.unwrap();
    assert!(call(&transport).await.is_ok());
    let before = world.sent().len();
    sleep(Duration::from_secs(301)).await;
    let asked = world.sent().len() - before;
    assert!((18..=20).contains(&asked), "{asked} commands in five minutes");
    drop(transport);
    sleep(Duration::from_secs(1)).await;
    let before = world.sent().len();
    advance(Duration::from_secs(300)).await;
    sleep(Duration::from_secs(1)).await;
    assert_eq!(world.sent().len(), before, "a dropped transport is not refreshed");
}

const SENTINELS: &str = "redis-sentinel://s1:26379,s2:26379,s3:26379/primary";

/// What a sentinel answers to `SENTINEL MASTER` and `GET-MASTER-ADDR-BY-NAME`.
fn sentinel(command: &str, epoch: u64, described: &str, flags: &str, address: &str) -> Value {
    let fields = match command {
        "SENTINEL MASTER primary" => {
            let epoch = &epoch.to_string();
            ["ip", described, "port", "1", "config-epoch", epoch, "flags", flags]
                .map(|it| text(it.to_owned()))
                .to_vec()
        }
        "SENTINEL GET-MASTER-ADDR-BY-NAME primary" => {
            vec![text(address.to_owned()), text("1")]
        }
        "connect" => Vec::new(),
        command => panic!("{command}"),
    };
    Value::Array(fields)
}

fn is_sentinel(server: &str) -> bool {
    server.ends_with(":26379")
}

fn primary() -> Answer {
    Answer::Value(Value::Array(vec![text("master")]))
}

/// A replica is silent, so the failover takes long: until its end the leading sentinel describes
/// the old primary beside the new epoch, and the others know nothing of it.
#[tokio::test(start_paused = true)]
async fn nobody_returns_to_the_old_primary_while_a_failover_takes_its_time() {
    for (leader_ms, others_ms) in [(0, 0), (0, 150), (150, 0), (500, 10), (900, 0)] {
        let begin = Instant::now();
        let world = World::new(move |server, command| {
            let since = begin.elapsed().as_secs();
            let told = |epoch, described, flags, address| {
                sentinel(command, epoch, described, flags, address)
            };
            let wait = |ms| Duration::from_millis(ms);
            match server {
                "s1:26379" if (30..40).contains(&since) => Answer::Never,
                "s1:26379" if since < 5 => {
                    Answer::After(wait(leader_ms), told(1, "a", "master", "a"))
                }
                "s1:26379" => {
                    let flags = "master,failover_in_progress,force_failover";
                    Answer::After(wait(leader_ms), told(2, "a", flags, "b"))
                }
                server if is_sentinel(server) => {
                    Answer::After(wait(others_ms), told(1, "a", "master", "a"))
                }
                // The old primary does not know either.
                _ if command == "ROLE" => primary(),
                _ => done(),
            }
        });
        let transport = world.connect(SENTINELS).await.unwrap();
        assert!(call(&transport).await.is_ok());
        sleep(Duration::from_secs(8)).await;
        while begin.elapsed() < Duration::from_secs(60) {
            assert!(call(&transport).await.is_ok());
            sleep(Duration::from_millis(50)).await;
        }
        let calls = calls(&world);
        assert_eq!(calls[0], "a:1");
        assert!(calls[1..].iter().all(|server| server == "b:1"), "{leader_ms} {others_ms}");
    }
}

/// The user of a sentinel may have the right to `SENTINEL MASTER` alone.
#[tokio::test(start_paused = true)]
async fn sentinels_need_not_say_more_than_their_description() {
    let world = World::new(|server, command| match command {
        _ if command.starts_with("SENTINEL GET") => Answer::Line("NOPERM no".to_owned()),
        _ if is_sentinel(server) => Answer::Value(sentinel(command, 1, "a", "master", "a")),
        "ROLE" => primary(),
        _ => done(),
    });
    let transport = world.connect(SENTINELS).await.unwrap();
    sleep(Duration::from_secs(5)).await;
    assert!(call(&transport).await.is_ok());
}

/// Two sentinels that have not heard of the failover answer at once.
#[tokio::test(start_paused = true)]
async fn a_connection_that_opens_during_a_failover_goes_to_the_new_primary() {
    let world = World::new(|server, command| match server {
        "s1:26379" => {
            let told = sentinel(command, 2, "a", "master,failover_in_progress", "b");
            Answer::After(Duration::from_millis(50), told)
        }
        server if is_sentinel(server) => Answer::Value(sentinel(command, 1, "a", "master", "a")),
        _ if command == "ROLE" => primary(),
        _ => done(),
    });
    let transport = world.connect(SENTINELS).await.unwrap();
    assert!(call(&transport).await.is_ok());
    assert_eq!(calls(&world), ["b:1"]);
}

/// A replica that is promoted at once loses what the old primary accepts from then on.
#[tokio::test(start_paused = true)]
async fn a_primary_that_is_being_replaced_on_request_gets_no_calls() {
    let begin = Instant::now();
    let world = World::new(move |server, command| match begin.elapsed().as_secs() {
        _ if command == "ROLE" => primary(),
        _ if !is_sentinel(server) => done(),
        5..10 if server == "s2:26379" => {
            let flags = "master,failover_in_progress,force_failover";
            Answer::Value(sentinel(command, 1, "a", flags, "a"))
        }
        0..10 => Answer::Value(sentinel(command, 1, "a", "master", "a")),
        _ => Answer::Value(sentinel(command, 2, "b", "master", "b")),
    });
    let transport = world.connect(SENTINELS).await.unwrap();
    assert!(call(&transport).await.is_ok());
    sleep(Duration::from_millis(6_500)).await;
    let before = calls(&world).len();
    while begin.elapsed() < Duration::from_secs(10) {
        assert_eq!(kind(call(&transport).await), ErrorKind::Unreachable);
        sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(calls(&world).len(), before, "nothing was sent");
    sleep(Duration::from_secs(2)).await;
    assert!(call(&transport).await.is_ok());
    assert_eq!(calls(&world), ["a:1", "b:1"]);
}

/// Cut off with one sentinel of three and the primary, which the others replace.
#[tokio::test(start_paused = true)]
async fn a_minority_of_the_sentinels_is_not_believed() {
    for cut_ms in (5_000..6_300).step_by(100) {
        let begin = Instant::now();
        let cut = begin + Duration::from_millis(cut_ms);
        let is_cut = move || Instant::now() >= cut && begin.elapsed() < Duration::from_secs(20);
        let world = World::new(move |server, command| match server {
            "s2:26379" | "s3:26379" if is_cut() => Answer::Never,
            server if is_sentinel(server) => {
                Answer::Value(sentinel(command, 1, "a", "master", "a"))
            }
            _ if command == "ROLE" => primary(),
            _ => done(),
        });
        let transport = world.connect(SENTINELS).await.unwrap();
        let mut last = begin;
        while begin.elapsed() < Duration::from_secs(20) {
            match call(&transport).await {
                Ok(_) => last = Instant::now(),
                Err(error) => assert_eq!(kind(Err(error)), ErrorKind::Unreachable),
            }
            sleep(Duration::from_millis(10)).await;
        }
        // One look a second, which waits for a second.
        assert!(last <= cut + Duration::from_millis(2_010), "{:?}", last - cut);
        sleep(Duration::from_secs(2)).await;
        assert!(call(&transport).await.is_ok(), "they can be asked again");
    }
}

#[tokio::test(start_paused = true)]
async fn a_minority_of_the_sentinels_opens_nothing() {
    let world = World::new(move |server, command| match server {
        "s1:26379" => Answer::Value(sentinel(command, 1, "a", "master", "a")),
        _ if command == "ROLE" => primary(),
        _ => Answer::Never,
    });
    let error = world.connect(SENTINELS).await.unwrap_err();
    assert_eq!(error.kind(), &ErrorKind::Unreachable);
    let detail = error.detail();
    assert!(detail.contains("1 of 3 sentinels answered, 2 are needed"), "{detail}");
    assert!(detail.contains("s2:26379") && detail.contains("rediss-sentinel://"), "{detail}");
}

/// The view was asked for before a server said that another one has the slot.
#[tokio::test(start_paused = true)]
async fn an_older_view_does_not_overwrite_what_was_learned_meanwhile() {
    let begin = Instant::now();
    let is_moved = move || begin.elapsed() > Duration::from_millis(30_200);
    let world = World::new(move |server, command| match (server, command) {
        (_, "CLUSTER INFO") => Answer::Value(info(1)),
        (_, "CLUSTER SLOTS") if is_moved() => Answer::Value(slots("b")),
        (_, "CLUSTER SLOTS") => Answer::After(Duration::from_millis(150), slots("a")),
        ("a:1", command) if command.starts_with("EVAL") && is_moved() => {
            Answer::Line("MOVED 7629 b:1".to_owned())
        }
        _ => done(),
    });
    let transport = world.connect("redis-cluster://a:1").await.unwrap();
    assert!(call(&transport).await.is_ok());
    // The periodic refresh is in progress.
    sleep(Duration::from_millis(30_250) - begin.elapsed()).await;
    for _ in 0..100 {
        assert!(call(&transport).await.is_ok());
        sleep(Duration::from_millis(5)).await;
    }
    let calls = calls(&world);
    assert_eq!(calls.iter().filter(|server| *server == "a:1").count(), 2, "{calls:?}");
}

#[tokio::test(start_paused = true)]
async fn a_cluster_of_servers_that_cannot_be_dialed_does_not_open() {
    let world = World::new(move |_, command| match command {
        "CLUSTER INFO" => Answer::Value(info(1)),
        "CLUSTER SLOTS" => Answer::Value(slots("?")),
        _ => done(),
    });
    let error = world.connect(URL).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Unsupported(_)), "{error}");
    assert!(error.detail().contains("cluster-announce-hostname"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_cluster_url_at_a_sentinel_says_which_url_to_use() {
    let line = "ERR unknown command 'CLUSTER', with args beginning with: 'INFO' ";
    let world = World::new(move |_, _| Answer::Line(line.to_owned()));
    let error = world.connect(URL).await.unwrap_err();
    assert_eq!(error.kind(), &ErrorKind::Unsupported("a cluster URL"));
    assert!(error.detail().contains("redis-sentinel://HOST:PORT/SERVICE"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn the_newest_answer_of_most_sentinels_counts() {
    let epoch_of_b = Arc::new(AtomicU64::new(1));
    let epoch = Arc::clone(&epoch_of_b);
    let world = World::new(move |server, command| {
        let master = |host: &str, epoch: u64| {
            let fields = ["ip", host, "port", "1", "config-epoch", &epoch.to_string()];
            Answer::Value(Value::Array(fields.map(|it| text(it.to_owned())).to_vec()))
        };
        match (server, command) {
            // Cut off from the others, it never hears of a failover.
            ("s1:26379", _) => master("a", 1),
            ("s2:26379" | "s3:26379", _) => match epoch.load(Ordering::Relaxed) {
                1 => master("a", 1),
                newer => master("b", newer),
            },
            (_, "ROLE") => Answer::Value(Value::Array(vec![text("master")])),
            _ => done(),
        }
    });
    let transport = world.connect(SENTINELS).await.unwrap();
    assert!(call(&transport).await.is_ok());
    assert_eq!(calls(&world), ["a:1"]);
    epoch_of_b.store(2, Ordering::Relaxed);
    sleep(Duration::from_secs(2)).await;
    for _ in 0..10 {
        assert!(call(&transport).await.is_ok());
        sleep(Duration::from_secs(1)).await;
    }
    assert_eq!(calls(&world)[1..], vec!["b:1"; 10]);
}

/// The one that leads a failover knows of it before the others do, and is the last to name the new
/// primary. Until then they name the old one, which may wake up and answer.
#[tokio::test(start_paused = true)]
async fn a_silent_primary_is_not_believed_while_it_is_being_replaced() {
    for (flags, is_believed) in [
        ("master", true),
        ("master,disconnected", true),
        ("master,failover_in_progress", false),
        ("s_down,master", false),
    ] {
        let world = World::new(move |server, command| match server {
            "s1:26379" | "s2:26379" | "s3:26379" => {
                let flags = if server.starts_with("s3") { flags } else { "master" };
                let fields = ["ip", "a", "port", "1", "config-epoch", "1", "flags", flags];
                let told = Value::Array(fields.map(|it| text(it.to_owned())).to_vec());
                // It is the last to answer.
                let late = Duration::from_millis(if server.starts_with("s3") { 500 } else { 0 });
                Answer::After(late, told)
            }
            _ if command == "ROLE" => Answer::Value(Value::Array(vec![text("master")])),
            _ => Answer::After(Duration::from_millis(1_500), Value::Array(vec![Value::Int(1)])),
        });
        let transport = world.connect(SENTINELS).await.unwrap();
        let answer = call(&transport).await;
        assert_eq!(answer.is_ok(), is_believed, "{flags}: {answer:?}");
        assert_eq!(calls(&world).len(), 1);
    }
}

/// Operators may remove a service from all sentinels and add it again.
#[tokio::test(start_paused = true)]
async fn sentinels_may_begin_to_count_anew() {
    let epoch_and_host = Arc::new(std::sync::Mutex::new((9, "a")));
    let now = Arc::clone(&epoch_and_host);
    let world = World::new(move |_, command| match command {
        _ if command.starts_with("SENTINEL") => {
            let (epoch, host) = *now.lock().unwrap();
            let fields = ["ip", host, "port", "1", "config-epoch", &epoch.to_string()];
            Answer::Value(Value::Array(fields.map(|it| text(it.to_owned())).to_vec()))
        }
        "ROLE" => Answer::Value(Value::Array(vec![text("master")])),
        _ => done(),
    });
    let transport = world.connect(SENTINELS).await.unwrap();
    assert!(call(&transport).await.is_ok());
    *epoch_and_host.lock().unwrap() = (0, "b");
    sleep(Duration::from_secs(3)).await;
    assert!(call(&transport).await.is_ok());
    assert_eq!(calls(&world), ["a:1", "b:1"]);
}

#[tokio::test(start_paused = true)]
async fn passwords_of_servers_and_hosts_in_lines_go_nowhere_else() {
    let world = World::new(|server, command| match (server, command) {
        (_, "CLUSTER INFO") => Answer::Value(info(1)),
        (_, "CLUSTER SLOTS") => Answer::Value(slots("a")),
        // Nothing here is a host and a port.
        ("a:1", _) => Answer::Line("MOVED 7629 user:secret@evil/x:1".to_owned()),
        _ => done(),
    });
    let transport = world.connect(URL).await.unwrap();
    assert!(timeout(Duration::from_secs(60), call(&transport)).await.unwrap().is_err());
    let servers: HashSet<_> = world.sent().into_iter().map(|sent| sent.server).collect();
    assert!(servers.iter().all(|server| ["a:1", "b:1"].contains(&server.as_str())), "{servers:?}");
}
