//! Waiting on a doorbell.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use delayline_core::{ErrorClass, ErrorKind};
use delayline_redis_protocol::{CallError, Transport, classify};
use delayline_test_server::{Reply, Server};
use tokio::task::JoinHandle;

use super::{
    Connect, HEALING, PATIENCE, connected, error_line, eval, failed, impatient, options, until,
};

const BELL: Bytes = Bytes::from_static(b"bell");
/// The bell of a queue, which is rung again if no caller waits for it any more.
const OF_QUEUE: &str = "delayline:{queue}:bell";
const SHORT: Duration = Duration::from_millis(50);
const LONG: Duration = Duration::from_secs(600);

fn blocked(server: &Server) -> usize {
    server.info("clients", "blocked_clients").parse().unwrap()
}

async fn until_blocked(server: &Server, count: usize) {
    until("blocked clients", || blocked(server) == count).await;
}

pub async fn push_ends_a_wait<C: Connect>() {
    let server = Server::start();
    let transport = Arc::new(connected::<C>(&server.url()).await);
    let waiter = Arc::clone(&transport);
    let wait = tokio::spawn(async move { waiter.wait(&BELL, LONG).await });
    until_blocked(&server, 1).await;
    server.command(&["LPUSH", "bell", "x"]);
    assert!(tokio::time::timeout(PATIENCE, wait).await.unwrap().unwrap().unwrap());
}

pub async fn earlier_push_ends_a_wait_at_once<C: Connect>() {
    let server = Server::start();
    let transport = connected::<C>(&server.url()).await;
    server.command(&["LPUSH", "bell", "message", "x"]);
    for _ in 0..2 {
        let wait = tokio::time::timeout(PATIENCE, transport.wait(&BELL, LONG)).await;
        assert!(wait.unwrap().unwrap());
    }
    assert!(!transport.wait(&BELL, SHORT).await.unwrap());
}

pub async fn wait_without_push_times_out<C: Connect>() {
    let server = Server::start();
    let transport = connected::<C>(&server.url()).await;
    let begin = Instant::now();
    assert!(!transport.wait(&BELL, Duration::from_millis(300)).await.unwrap());
    assert!(begin.elapsed() >= Duration::from_millis(290), "{:?}", begin.elapsed());
    assert!(begin.elapsed() < HEALING, "{:?}", begin.elapsed());
}

pub async fn wait_of_no_time_ends<C: Connect>() {
    let server = Server::start();
    let transport = connected::<C>(&server.url()).await;
    // No server ends a wait of zero, and Redis 6 none of one millisecond.
    for limit in [0, 1, 300_000, 1_000_000, 1_500_000].map(Duration::from_nanos) {
        let wait = tokio::time::timeout(PATIENCE, transport.wait(&BELL, limit)).await;
        assert!(!wait.unwrap().unwrap());
    }
}

pub async fn wait_may_exceed_the_response_timeout<C: Connect>() {
    let server = Server::start();
    let transport = C::connect(&impatient(&server.url())).await.unwrap();
    assert!(!transport.wait(&BELL, 2 * super::SHORT).await.unwrap());
}

pub async fn wait_holds_up_no_call<C: Connect>() {
    let server = Server::start();
    let transport = Arc::new(connected::<C>(&server.url()).await);
    let waiter = Arc::clone(&transport);
    let wait = tokio::spawn(async move { waiter.wait(&BELL, LONG).await });
    until_blocked(&server, 1).await;
    let call = tokio::time::timeout(PATIENCE, eval(&*transport, "return {1}", &[])).await;
    assert!(call.unwrap().is_ok());
    assert!(!wait.is_finished());
    wait.abort();
}

/// Waits, as workers do, until a bell has rung.
fn ringing<C: Connect>(
    transport: &Arc<C::Transport>,
    bell: &'static str,
) -> JoinHandle<Result<(), CallError>> {
    ringing_after::<C>(transport, bell, Duration::from_secs(2))
}

/// The same, with the time of its first wait.
fn ringing_after<C: Connect>(
    transport: &Arc<C::Transport>,
    bell: &'static str,
    first: Duration,
) -> JoinHandle<Result<(), CallError>> {
    let transport = Arc::clone(transport);
    tokio::spawn(async move {
        let mut limit = first;
        while !transport.wait(&bell.into(), limit).await? {
            limit = Duration::from_secs(2);
        }
        Ok(())
    })
}

async fn rung(wait: JoinHandle<Result<(), CallError>>) {
    tokio::time::timeout(PATIENCE, wait).await.unwrap().unwrap().unwrap();
}

pub async fn waits_share_one_connection<C: Connect>() {
    let server = Server::start();
    let transport = Arc::new(connected::<C>(&server.url()).await);
    let [first, second, other, third] =
        ["bell", "bell", "other", "third"].map(|bell| ringing::<C>(&transport, bell));
    until_blocked(&server, 1).await;
    server.command(&["LPUSH", "third", "x"]);
    rung(third).await;
    server.command(&["LPUSH", "other", "x"]);
    rung(other).await;
    until_blocked(&server, 1).await;
    server.command(&["LPUSH", "bell", "x", "x"]);
    rung(first).await;
    rung(second).await;
    until_blocked(&server, 0).await;
}

pub async fn one_hint_wakes_one_wait<C: Connect>() {
    let server = Server::start();
    let transport = Arc::new(connected::<C>(&server.url()).await);
    let waits: Vec<_> = (0..10).map(|_| ringing::<C>(&transport, "bell")).collect();
    let over = || waits.iter().filter(|wait| wait.is_finished()).count();
    for count in 1..=10 {
        server.command(&["LPUSH", "bell", "x"]);
        until("waits over", || over() >= count).await;
        assert_eq!(over(), count);
    }
}

pub async fn a_bell_that_comes_later_is_heard_too<C: Connect>() {
    let server = Server::start();
    let transport = Arc::new(connected::<C>(&server.url()).await);
    let early = ringing_after::<C>(&transport, "bell", Duration::from_secs(8));
    until_blocked(&server, 1).await;
    let late = ringing_after::<C>(&transport, "other", Duration::from_secs(10));
    // All at once, so each over its own connection; and then over one connection.
    until_blocked(&server, 2).await;
    until_blocked(&server, 1).await;
    server.command(&["LPUSH", "bell", "x"]);
    rung(early).await;
    server.command(&["LPUSH", "other", "x"]);
    rung(late).await;
}

pub async fn dropped_wait_leaves_its_bell_to_others<C: Connect>() {
    let server = Server::start();
    let transport = Arc::new(connected::<C>(&server.url()).await);
    let (dropped, kept) = (ringing::<C>(&transport, OF_QUEUE), ringing::<C>(&transport, "other"));
    until_blocked(&server, 1).await;
    dropped.abort();
    assert!(dropped.await.unwrap_err().is_cancelled());
    let stranger = Arc::new(connected::<C>(&server.url()).await);
    let strange = ringing::<C>(&stranger, OF_QUEUE);
    until_blocked(&server, 2).await;
    server.command(&["LPUSH", OF_QUEUE, "x"]);
    rung(strange).await;
    server.command(&["LPUSH", "other", "x"]);
    rung(kept).await;
}

pub async fn a_spoilt_bell_silences_no_other<C: Connect>() {
    let server = Server::start();
    let transport = Arc::new(connected::<C>(&server.url()).await);
    server.command(&["SET", "spoilt", "x"]);
    let (spoilt, good) = (ringing::<C>(&transport, "spoilt"), ringing::<C>(&transport, "bell"));
    let line = error_line(tokio::time::timeout(PATIENCE, spoilt).await.unwrap().unwrap());
    assert_eq!(classify(&line).kind(), &ErrorKind::WrongType, "{line}");
    until_blocked(&server, 1).await;
    server.command(&["LPUSH", "bell", "x"]);
    rung(good).await;
}

pub async fn wait_outlives_the_runtime_of_another<C: Connect>() {
    let server = Server::start();
    let transport = Arc::new(connected::<C>(&server.url()).await);
    let other = Arc::clone(&transport);
    let (end, ended) = tokio::sync::oneshot::channel::<()>();
    let short_lived = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.spawn(async move { other.wait(&BELL, LONG).await });
        runtime.block_on(ended).unwrap();
    });
    until_blocked(&server, 1).await;
    let waiter = Arc::clone(&transport);
    let wait = tokio::spawn(async move {
        // The end of the other runtime is reported, and the next wait works.
        while !waiter.wait(&BELL, Duration::from_secs(2)).await.unwrap_or(false) {
            tokio::time::sleep(SHORT).await;
        }
    });
    end.send(()).unwrap();
    short_lived.join().unwrap();
    until_blocked(&server, 1).await;
    server.command(&["LPUSH", "bell", "x"]);
    tokio::time::timeout(PATIENCE, wait).await.unwrap().unwrap();
}

pub async fn connection_of_a_wait_is_reused<C: Connect>() {
    let server = Server::start();
    let transport = connected::<C>(&server.url()).await;
    let connections = || server.info("stats", "total_connections_received").parse::<u32>().unwrap();
    assert!(!transport.wait(&BELL, SHORT).await.unwrap());
    let before = connections();
    for _ in 0..5 {
        assert!(!transport.wait(&BELL, SHORT).await.unwrap());
    }
    // Looking costs one.
    assert_eq!(connections(), before + 1);
}

pub async fn wait_survives_its_connection<C: Connect>() {
    let server = Server::start();
    let transport = Arc::new(connected::<C>(&server.url()).await);
    for _ in 0..3 {
        let waiter = Arc::clone(&transport);
        let wait = tokio::spawn(async move {
            loop {
                match waiter.wait(&BELL, LONG).await {
                    // Too early for another connection.
                    Err(CallError::Failed(error)) if error.class() == ErrorClass::NotExecuted => {
                        tokio::time::sleep(SHORT).await;
                    }
                    result => return result,
                }
            }
        });
        until_blocked(&server, 1).await;
        server.command(&["CLIENT", "KILL", "TYPE", "normal"]);
        let error = failed(tokio::time::timeout(PATIENCE, wait).await.unwrap().unwrap());
        assert_eq!(error.kind(), &ErrorKind::ConnectionLost, "{error}");
    }
    server.command(&["LPUSH", "bell", "x"]);
    let begin = Instant::now();
    while !transport.wait(&BELL, SHORT).await.unwrap_or(false) {
        assert!(begin.elapsed() < HEALING);
        tokio::time::sleep(SHORT).await;
    }
}

pub async fn dropped_wait_keeps_its_connection<C: Connect>() {
    let server = Server::start();
    let transport = Arc::new(connected::<C>(&server.url()).await);
    let waiting = || {
        let Reply::BulkString(list) = server.command(&["CLIENT", "LIST"]) else { panic!() };
        let list = String::from_utf8(list).unwrap();
        let line = list.lines().find(|line| line.contains("cmd=blpop")).unwrap();
        line.split(' ').next().unwrap().to_owned()
    };
    let mut ids = HashSet::new();
    for _ in 0..5 {
        let waiter = Arc::clone(&transport);
        let wait = tokio::spawn(async move { waiter.wait(&OF_QUEUE.into(), LONG).await });
        until_blocked(&server, 1).await;
        ids.insert(waiting());
        wait.abort();
        assert!(wait.await.unwrap_err().is_cancelled());
    }
    assert_eq!(ids.len(), 1, "{ids:?}");
    server.command(&["LPUSH", OF_QUEUE, "x"]);
    let wait = tokio::time::timeout(PATIENCE, transport.wait(&OF_QUEUE.into(), LONG)).await;
    assert!(wait.unwrap().unwrap(), "the hint is not lost");
    let bell = OF_QUEUE.into();
    assert!(tokio::time::timeout(SHORT, transport.wait(&bell, LONG)).await.is_err());
    drop(transport);
    until_blocked(&server, 0).await;
}

pub async fn frozen_server_ends_a_wait<C: Connect>() {
    let server = Server::start();
    let transport = C::connect(&impatient(&server.url())).await.unwrap();
    assert!(!transport.wait(&BELL, SHORT).await.unwrap());
    server.pause();
    let wait = tokio::time::timeout(PATIENCE, transport.wait(&BELL, SHORT)).await.unwrap();
    let error = failed(wait);
    assert_eq!(error.kind(), &ErrorKind::Timeout);
    assert!(error.detail().contains(&server.url()), "{error}");
    // The next one has to connect, which a frozen server doesn't let it.
    let wait = tokio::time::timeout(PATIENCE, transport.wait(&BELL, SHORT)).await.unwrap();
    assert_eq!(failed(wait).class(), ErrorClass::NotExecuted);
    server.resume();
    let begin = Instant::now();
    while transport.wait(&BELL, SHORT).await.is_err() {
        assert!(begin.elapsed() < HEALING);
        tokio::time::sleep(SHORT).await;
    }
}

pub async fn wrong_type_is_told<C: Connect>() {
    let server = Server::start();
    let transport = connected::<C>(&server.url()).await;
    server.command(&["SET", "bell", "x"]);
    let line = error_line(transport.wait(&BELL, SHORT).await);
    assert_eq!(classify(&line).kind(), &ErrorKind::WrongType, "{line}");
    server.command(&["DEL", "bell"]);
    assert!(!transport.wait(&BELL, SHORT).await.unwrap());
}

pub async fn unblocked_wait_is_told<C: Connect>() {
    let server = Server::start();
    let transport = Arc::new(C::connect(&options(&server.url())).await.unwrap());
    let waiter = Arc::clone(&transport);
    let wait = tokio::spawn(async move { waiter.wait(&BELL, LONG).await });
    until_blocked(&server, 1).await;
    // The ids of a fresh server are small.
    for id in 1..50 {
        server.command(&["CLIENT", "UNBLOCK", &id.to_string(), "ERROR"]);
    }
    let line = error_line(tokio::time::timeout(PATIENCE, wait).await.unwrap().unwrap());
    assert_eq!(classify(&line).kind(), &ErrorKind::Busy, "{line}");
}
