//! When the connection that carries calls is probed and replaced, in paused time.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "test code")]

#[path = "../routing/fake.rs"]
mod fake;

use std::future::ready;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use delayline_core::ErrorKind;
use delayline_redis_protocol::{
    CallError, DriverTransport, ScriptCall, ScriptName, Transport, Value,
};
use tokio::runtime::{Builder, Runtime};
use tokio::task::yield_now;
use tokio::time::{advance, sleep, timeout};

use fake::{Answer, Fake, World};

/// Longer than a reply may take.
const LONG: Duration = Duration::from_secs(10);

/// A server that answers the `number`th call, from 0, by a function, and how often it was dialed.
fn world(
    answer: impl Fn(usize) -> Answer + Send + Sync + 'static,
) -> (Arc<World>, Arc<AtomicUsize>) {
    let (dials, calls) = (Arc::new(AtomicUsize::new(0)), AtomicUsize::new(0));
    let counted = Arc::clone(&dials);
    let world = World::new(move |_, command| match command {
        "connect" => {
            counted.fetch_add(1, Ordering::Relaxed);
            done()
        }
        _ if command.starts_with("EVAL") => answer(calls.fetch_add(1, Ordering::Relaxed)),
        _ => Answer::Value(Value::Bytes("redis_mode:standalone\r\n".into())),
    });
    (world, dials)
}

fn done() -> Answer {
    Answer::Value(Value::Array(vec![Value::Int(1)]))
}

async fn call(transport: &DriverTransport<Fake>) -> Result<Value, CallError> {
    let (keys, args) = ([Bytes::from_static(b"k")], []);
    let script = ScriptName::Source("return {1}");
    transport.call(ScriptCall::new(script, &keys, &args)).await
}

fn kind(result: Result<Value, CallError>) -> ErrorKind {
    match result.unwrap_err() {
        CallError::Failed(error) => error.kind().clone(),
        CallError::Reply(line) => panic!("{line}"),
    }
}

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().start_paused(true).build().unwrap()
}

/// Drops a call that the server does not answer.
async fn drop_a_call(transport: &DriverTransport<Fake>) {
    timeout(Duration::from_millis(100), call(transport)).await.unwrap_err();
}

#[tokio::test(start_paused = true)]
async fn a_connection_whose_first_call_is_dropped_is_probed_and_replaced() {
    let (world, dials) = world(|call| if call == 0 { Answer::Never } else { done() });
    let transport = world.connect("redis://a:1").await.unwrap();
    let before = world.pings();
    world.answer_pings(false);
    drop_a_call(&transport).await;
    sleep(LONG).await;
    world.answer_pings(true);
    assert_eq!(world.pings() - before, 1);
    assert_eq!(dials.load(Ordering::Relaxed), 1);
    call(&transport).await.unwrap();
    assert_eq!(dials.load(Ordering::Relaxed), 2, "the silent connection was used again");
}

#[tokio::test(start_paused = true)]
async fn one_probe_at_a_time_follows_dropped_calls() {
    let (world, dials) = world(|_| Answer::Never);
    let transport = world.connect("redis://a:1").await.unwrap();
    let before = world.pings();
    tokio::join!(drop_a_call(&transport), drop_a_call(&transport), drop_a_call(&transport));
    sleep(LONG).await;
    assert_eq!(world.pings() - before, 1, "they were dropped at the same time");
    // The probe was answered, so the next one is due with the next dropped call.
    drop_a_call(&transport).await;
    sleep(LONG).await;
    assert_eq!(world.pings() - before, 2);
    assert_eq!(dials.load(Ordering::Relaxed), 1);
}

#[test]
fn a_probe_that_ends_with_its_runtime_is_followed_by_others() {
    let (world, _) = world(|_| Answer::Never);
    let transport = runtime().block_on(world.connect("redis://a:1")).unwrap();
    let before = world.pings();
    // The first probe does not even begin.
    runtime().block_on(drop_a_call(&transport));
    runtime().block_on(async {
        drop_a_call(&transport).await;
        sleep(LONG).await;
    });
    assert_eq!(world.pings() - before, 1);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_ends_is_followed_by_no_probe() {
    let (world, _) = world(|call| if call == 0 { done() } else { Answer::Line("ERR".into()) });
    let transport = world.connect("redis://a:1").await.unwrap();
    let before = world.pings();
    call(&transport).await.unwrap();
    call(&transport).await.unwrap_err();
    sleep(LONG).await;
    assert_eq!(world.pings(), before);
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_has_served_is_replaced_at_once() {
    let (world, dials) = world(|call| if call % 2 == 0 { done() } else { Answer::Lost });
    let transport = world.connect("redis://a:1").await.unwrap();
    for round in 1..10 {
        call(&transport).await.unwrap();
        assert_eq!(kind(call(&transport).await), ErrorKind::ConnectionLost);
        assert_eq!(dials.load(Ordering::Relaxed), round);
    }
}

#[tokio::test(start_paused = true)]
async fn connections_that_never_served_are_replaced_after_a_pause() {
    let (world, dials) = world(|call| if call < 2 { Answer::Lost } else { done() });
    let transport = world.connect("redis://a:1").await.unwrap();
    for _ in 0..2 {
        assert_eq!(kind(call(&transport).await), ErrorKind::ConnectionLost);
    }
    assert_eq!(kind(call(&transport).await), ErrorKind::Unreachable, "it is too early");
    assert_eq!(dials.load(Ordering::Relaxed), 2);
    sleep(LONG).await;
    call(&transport).await.unwrap();
    assert_eq!(dials.load(Ordering::Relaxed), 3);
}

/// The task that was to connect does not run, and ends too late.
#[test]
fn a_call_outlasts_an_attempt_to_connect_whose_runtime_is_not_run() {
    for pause in [Duration::ZERO, LONG] {
        let (calls, dials) = (AtomicUsize::new(0), Arc::new(AtomicUsize::new(0)));
        let counted = Arc::clone(&dials);
        let world = World::new(move |_, command| match command {
            "connect" if counted.fetch_add(1, Ordering::Relaxed) == 2 => Answer::Never,
            "INFO" => Answer::Value(Value::Bytes("redis_mode:standalone\r\n".into())),
            _ if command.starts_with("EVAL") && calls.fetch_add(1, Ordering::Relaxed) == 0 => {
                Answer::Lost
            }
            _ => done(),
        });
        let (first, second) = (runtime(), runtime());
        let transport = first.block_on(world.connect("redis://a:1")).unwrap();
        first.block_on(async {
            assert_eq!(kind(call(&transport).await), ErrorKind::ConnectionLost);
            tokio::select! { biased; _ = call(&transport) => panic!(), () = ready(()) => {} }
        });
        second.block_on(async {
            sleep(pause).await;
            if pause.is_zero() {
                let waited = timeout(LONG, call(&transport)).await.unwrap();
                assert_eq!(kind(waited), ErrorKind::Unreachable);
                sleep(LONG).await;
            }
            timeout(LONG, call(&transport)).await.unwrap().unwrap();
        });
        first.block_on(async { sleep(LONG).await });
        second.block_on(call(&transport)).unwrap();
        assert_eq!(dials.load(Ordering::Relaxed), 3);
    }
}

#[tokio::test(start_paused = true)]
async fn a_wait_tells_of_a_silent_server_although_the_process_stood_still() {
    let world = World::new(|_, command| match command {
        "connect" => done(),
        _ if command.starts_with("BLPOP") => Answer::Never,
        _ => Answer::Value(Value::Bytes("redis_mode:standalone\r\n".into())),
    });
    let transport = world.connect("redis://a:1").await.unwrap();
    let wait = tokio::spawn(async move {
        transport.wait(&Bytes::from_static(b"bell"), Duration::from_millis(50)).await
    });
    // The wait has begun, and its command has not, when the clock jumps behind all time limits.
    yield_now().await;
    advance(LONG).await;
    let error = match wait.await.unwrap().unwrap_err() {
        CallError::Failed(error) => error,
        CallError::Reply(line) => panic!("{line}"),
    };
    assert_eq!(error.kind(), &ErrorKind::Timeout);
}

#[tokio::test(start_paused = true)]
async fn a_connection_without_waits_is_closed_after_a_while() {
    let dials = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&dials);
    let world = World::new(move |_, command| match command {
        "connect" => {
            counted.fetch_add(1, Ordering::Relaxed);
            done()
        }
        _ if command.starts_with("BLPOP") => Answer::Value(Value::Nil),
        _ => Answer::Value(Value::Bytes("redis_mode:standalone\r\n".into())),
    });
    let transport = world.connect("redis://a:1").await.unwrap();
    let bell = Bytes::from_static(b"bell");
    for (pause_s, connections) in [(0, 2), (10, 2), (25, 2), (61, 3), (10, 3), (61, 4)] {
        sleep(Duration::from_secs(pause_s)).await;
        transport.wait(&bell, Duration::from_secs(1)).await.unwrap();
        assert_eq!(dials.load(Ordering::Relaxed), connections, "after {pause_s} s");
    }
}

/// They begin together, so they share a command.
#[tokio::test(start_paused = true)]
async fn a_short_wait_ends_before_a_long_one_of_the_same_bell() {
    let world = World::new(|_, command| match command.rsplit_once(' ') {
        Some((bells, seconds)) if bells.starts_with("BLPOP") => {
            Answer::After(Duration::from_secs_f64(seconds.parse().unwrap()), Value::Nil)
        }
        _ => Answer::Value(Value::Bytes("redis_mode:standalone\r\n".into())),
    });
    let transport = world.connect("redis://a:1").await.unwrap();
    let bell = Bytes::from_static(b"bell");
    let wait = |seconds| transport.wait(&bell, Duration::from_secs(seconds));
    let short = timeout(LONG, wait(1));
    let (_, short) = tokio::join!(timeout(LONG, wait(50)), short);
    assert!(matches!(short, Ok(Ok(false))), "{short:?}");
}

/// The task that was to listen never ran.
#[test]
fn a_wait_outlives_the_runtime_of_another() {
    let world = World::new(|_, command| match command {
        _ if command.starts_with("BLPOP") => Answer::Value(Value::Nil),
        _ => Answer::Value(Value::Bytes("redis_mode:standalone\r\n".into())),
    });
    let transport = runtime().block_on(world.connect("redis://a:1")).unwrap();
    let bell = Bytes::from_static(b"bell");
    let wait = || transport.wait(&bell, Duration::from_secs(1));
    runtime().block_on(async { timeout(Duration::ZERO, wait()).await.unwrap_err() });
    let answer = runtime().block_on(async { timeout(LONG, wait()).await });
    assert!(matches!(answer, Ok(Ok(false))), "{answer:?}");
}

/// The task that was to listen does not run.
#[test]
fn waits_outlast_a_listener_whose_runtime_is_not_run() {
    let world = World::new(|_, command| match command {
        _ if command.starts_with("BLPOP") => Answer::Value(Value::Nil),
        _ => Answer::Value(Value::Bytes("redis_mode:standalone\r\n".into())),
    });
    let (first, second) = (runtime(), runtime());
    let transport = first.block_on(world.connect("redis://a:1")).unwrap();
    let bell = Bytes::from_static(b"bell");
    let wait = || transport.wait(&bell, Duration::from_secs(1));
    first.block_on(async {
        tokio::select! { biased; _ = wait() => panic!(), () = ready(()) => {} }
    });
    second.block_on(async {
        for commands in 0..2 {
            assert!(!timeout(LONG, wait()).await.unwrap().unwrap());
            let sent = world.sent().into_iter();
            assert_eq!(sent.filter(|sent| sent.command.starts_with("BLPOP")).count(), commands);
        }
    });
}
