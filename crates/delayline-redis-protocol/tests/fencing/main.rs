//! Calls that are confirmed before they are answered (G25, G26), with servers that say what they
//! like, in paused time.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "test code")]

#[path = "../routing/fake.rs"]
mod fake;
mod refusals;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use delayline_core::{Durability, Error, ErrorClass, ErrorKind};
use delayline_redis_protocol::{
    CallError, DriverTransport, Fence, ScriptCall, ScriptName, Transport, Value, classify,
};
use tokio::runtime::Builder;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use fake::{Answer, Fake, World};

const URL: &str = "redis://a:1";
const ONE: Durability = Durability::Replicas(1);

pub(crate) fn text(text: impl Into<Bytes>) -> Value {
    Value::Bytes(text.into())
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// The usual reply to a routine command; `None` leaves the reply to the test.
fn plain(command: &str) -> Option<Answer> {
    let value = match command {
        "connect" => Value::Nil,
        "INFO" => text("redis_version:7.0.15\r\nrun_id:abc\r\naof_enabled:0\r\n"),
        "WAIT 0 1" => Value::Int(0),
        _ if command.starts_with("SET f ") => text("OK"),
        _ if command.starts_with("EVAL") => Value::Array(vec![Value::Int(1)]),
        _ => return None,
    };
    Some(Answer::Value(value))
}

/// A server with an answer to the commands that begin with a word, and plain ones to others.
fn world(word: &'static str, answer: impl Fn() -> Answer + Send + Sync + 'static) -> Arc<World> {
    World::new(move |_, command| {
        if command.starts_with(word) && command != "WAIT 0 1" {
            return answer();
        }
        plain(command).unwrap_or_else(|| Answer::Value(Value::Int(1)))
    })
}

pub(crate) async fn call(
    transport: &DriverTransport<Fake>,
    durability: Durability,
) -> Result<Value, Error> {
    named_call(transport, "", durability).await
}

/// A call with an argument by which the server can tell it from others.
async fn named_call(
    transport: &DriverTransport<Fake>,
    name: &'static str,
    durability: Durability,
) -> Result<Value, Error> {
    let (keys, args) = ([Bytes::from_static(b"k")], [Bytes::from_static(name.as_bytes())]);
    let key = Bytes::from_static(b"f");
    let fence =
        Some(Fence { durability, key: &key }).filter(|it| it.durability != Durability::None);
    let script = ScriptName::Source("return {1}");
    let mut call = ScriptCall::new(script, &keys, &args);
    call.fence = fence;
    transport.call(call).await.map_err(|error| match error {
        CallError::Reply(line) => classify(&line),
        CallError::Failed(error) => error,
    })
}

/// The commands that begin so, with the time of each in ms.
fn sent(world: &World, word: &str, begin: Instant) -> Vec<u128> {
    let sent = world.sent();
    let sent = sent.iter().filter(|sent| sent.command.starts_with(word));
    sent.map(|sent| sent.at.duration_since(begin).as_millis()).collect()
}

#[track_caller]
fn unconfirmed(result: Result<Value, Error>) -> String {
    let error = result.unwrap_err();
    assert_eq!((error.kind(), error.class()), (&ErrorKind::Unconfirmed, ErrorClass::Ambiguous));
    error.detail().to_owned()
}

#[tokio::test(start_paused = true)]
async fn a_durable_call_is_answered_when_a_replica_has_it() {
    let world = world("WAIT", || Answer::After(ms(300), Value::Int(1)));
    let transport = world.connect(URL).await.unwrap();
    let begin = Instant::now();
    let (durable, plain) = tokio::join!(call(&transport, ONE), async {
        sleep(ms(10)).await;
        call(&transport, Durability::None).await.unwrap();
        begin.elapsed()
    });
    assert_eq!(durable.unwrap(), Value::Array(vec![Value::Int(1)]));
    assert_eq!(begin.elapsed(), ms(300));
    assert!(plain < ms(20), "other calls do not wait");
    let commands: Vec<_> = world.sent().into_iter().map(|sent| sent.command).collect();
    let call = commands.iter().position(|command| command.starts_with("EVAL")).unwrap();
    assert_eq!(commands[call + 1..call + 3], ["SET f  PX 10000", "WAIT 1 2000"]);
}

#[tokio::test(start_paused = true)]
async fn a_program_that_needs_no_confirmation_pays_nothing() {
    let connections = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&connections);
    let world = World::new(move |_, command| {
        count.fetch_add(usize::from(command == "connect"), Ordering::Relaxed);
        plain(command).unwrap()
    });
    let transport = world.connect(URL).await.unwrap();
    call(&transport, Durability::None).await.unwrap();
    assert_eq!(connections.load(Ordering::Relaxed), 1);
    assert_eq!(world.sent().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_late_replica_confirms_the_repetition() {
    let begin = Instant::now();
    let world = world("WAIT", move || {
        let late = begin.elapsed() < ms(1_000);
        Answer::After(ms(if late { 2_000 } else { 1 }), Value::Int(i64::from(!late)))
    });
    let transport = world.connect(URL).await.unwrap();
    let detail = unconfirmed(call(&transport, ONE).await);
    assert_eq!(detail, "0 of 1 replicas confirmed it within 2s");
    call(&transport, ONE).await.unwrap();
    assert_eq!(sent(&world, "SET", begin).len(), 2);
}

#[tokio::test(start_paused = true)]
async fn as_many_replicas_as_were_asked_for_must_confirm() {
    for (confirmed, wanted, is_enough) in [(0, 1, false), (1, 1, true), (1, 2, false), (3, 2, true)]
    {
        let world = world("WAIT", move || Answer::Value(Value::Int(confirmed)));
        let transport = world.connect(URL).await.unwrap();
        let result = call(&transport, Durability::Replicas(wanted)).await;
        assert_eq!(result.is_ok(), is_enough, "{confirmed} of {wanted}");
    }
}

/// A pair confirms the calls that were answered before it was sent; the next pair confirms the
/// rest.
#[tokio::test(start_paused = true)]
async fn many_calls_share_a_pair_and_one_is_under_way() {
    let world = world("WAIT", || Answer::After(ms(100), Value::Int(1)));
    let transport = Arc::new(world.connect(URL).await.unwrap());
    let begin = Instant::now();
    let mut calls = JoinSet::new();
    for (starts, ends) in [(0, 100), (1, 200), (50, 200), (99, 200), (101, 300), (350, 450)] {
        for _ in 0..100 {
            let transport = Arc::clone(&transport);
            // Calls that start with the first one can be too late for its pair.
            let first = starts == 0;
            calls.spawn(async move {
                sleep(ms(starts)).await;
                call(&transport, ONE).await.unwrap();
                let ended = begin.elapsed();
                assert!(ended == ms(ends) || first && ended == ms(200), "{starts}: {ended:?}");
            });
        }
    }
    while let Some(call) = calls.join_next().await {
        call.unwrap();
    }
    assert_eq!(sent(&world, "SET", begin), [0, 100, 200, 350]);
    assert_eq!(sent(&world, "WAIT 1", begin), [0, 100, 200, 350]);
}

#[tokio::test(start_paused = true)]
async fn different_durabilities_take_turns() {
    let world = world("WAIT", || Answer::After(ms(100), Value::Int(1)));
    let transport = world.connect(URL).await.unwrap();
    let begin = Instant::now();
    let (one, two, again) = tokio::join!(
        call(&transport, ONE),
        call(&transport, Durability::Replicas(2)),
        call(&transport, ONE),
    );
    assert!(one.is_ok() && again.is_ok());
    assert_eq!(unconfirmed(two), "1 of 2 replicas confirmed it within 2s");
    let pairs = sent(&world, "SET", begin);
    assert!(pairs.windows(2).all(|pair| pair[1] >= pair[0] + 100), "{pairs:?}");
}

#[tokio::test(start_paused = true)]
async fn callers_that_give_up_take_nothing_from_others() {
    let world = world("WAIT", || Answer::After(ms(100), Value::Int(1)));
    let transport = Arc::new(world.connect(URL).await.unwrap());
    let begin = Instant::now();
    for _ in 0..50 {
        assert!(timeout(ms(1), call(&transport, ONE)).await.is_err());
    }
    call(&transport, ONE).await.unwrap();
    assert_eq!(begin.elapsed(), ms(200), "the pair after the one under way");
    assert_eq!(sent(&world, "SET", begin), [0, 100]);
}

/// One loses the connection for confirmations while the other waits for its reply.
#[tokio::test(start_paused = true)]
async fn a_connection_that_broke_since_the_call_was_sent_confirms_nothing() {
    let begin = Instant::now();
    let world = World::new(move |_, command| match command {
        _ if command.starts_with("EVAL") && command.ends_with("slow") => {
            Answer::After(ms(500), Value::Array(vec![Value::Int(1)]))
        }
        _ if command.starts_with("WAIT 1") && begin.elapsed() < ms(100) => Answer::Lost,
        _ => plain(command).unwrap_or(Answer::Value(Value::Int(1))),
    });
    let transport = world.connect(URL).await.unwrap();
    let (slow, quick, later) =
        tokio::join!(named_call(&transport, "slow", ONE), call(&transport, ONE), async {
            sleep(ms(200)).await;
            call(&transport, ONE).await
        });
    assert!(unconfirmed(quick).contains("lost"));
    assert!(unconfirmed(slow).contains("lost"), "it was sent before the connection was made");
    later.unwrap();
    named_call(&transport, "slow", ONE).await.unwrap();
}

/// A demoted server says so, and all that it has answered may be lost; it may even be promoted
/// again.
#[tokio::test(start_paused = true)]
async fn a_refusal_ends_the_connection_and_its_calls() {
    let begin = Instant::now();
    let connections = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&connections);
    let world = World::new(move |_, command| match command {
        "connect" => {
            count.fetch_add(1, Ordering::Relaxed);
            plain(command).unwrap()
        }
        _ if command.starts_with("EVAL") && command.ends_with("slow") => {
            Answer::After(ms(500), Value::Array(vec![Value::Int(1)]))
        }
        _ if command.starts_with("WAIT 1") && begin.elapsed() < ms(100) => Answer::Line(
            "UNBLOCKED force unblock from blocking operation, instance state changed".to_owned(),
        ),
        _ => plain(command).unwrap_or(Answer::Value(Value::Int(1))),
    });
    let transport = world.connect(URL).await.unwrap();
    let (slow, quick) = tokio::join!(named_call(&transport, "slow", ONE), call(&transport, ONE));
    assert!(unconfirmed(quick).starts_with("UNBLOCKED"));
    unconfirmed(slow);
    call(&transport, ONE).await.unwrap();
    assert_eq!(connections.load(Ordering::Relaxed), 3, "one for calls, two for confirmations");
}

/// After a failover behind one address: calls still go to the old server, confirmations to the new
/// one.
#[tokio::test(start_paused = true)]
async fn calls_and_confirmations_must_reach_the_same_process() {
    let asked = AtomicUsize::new(0);
    let world = World::new(move |_, command| match command {
        "INFO" => {
            let process = if asked.fetch_add(1, Ordering::Relaxed) == 0 { "old" } else { "new" };
            Answer::Value(text(format!("redis_version:7.0.15\r\nrun_id:{process}\r\n")))
        }
        _ => plain(command).unwrap_or(Answer::Value(Value::Int(1))),
    });
    let transport = world.connect(URL).await.unwrap();
    let error = call(&transport, ONE).await.unwrap_err();
    assert_eq!((error.kind(), error.class()), (&ErrorKind::Busy, ErrorClass::NotExecuted));
    assert!(world.sent().iter().all(|sent| !sent.command.starts_with("EVAL")), "it was not sent");
    call(&transport, ONE).await.unwrap();
    call(&transport, Durability::None).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_silent_server_confirms_nothing_within_a_bound() {
    let begin = Instant::now();
    let world = world("WAIT", move || {
        if begin.elapsed() < ms(1_000) { Answer::Never } else { Answer::Value(Value::Int(1)) }
    });
    let transport = Arc::new(world.connect(URL).await.unwrap());
    let mut calls = JoinSet::new();
    for start in [0, 10, 20] {
        let transport = Arc::clone(&transport);
        calls.spawn(async move {
            sleep(ms(start)).await;
            unconfirmed(call(&transport, ONE).await)
        });
    }
    while let Some(detail) = calls.join_next().await {
        detail.unwrap();
    }
    assert!(begin.elapsed() <= ms(5_100), "{:?}", begin.elapsed());
    call(&transport, ONE).await.unwrap();
}

fn slots(host: &'static str) -> Answer {
    let primary = Value::Array(vec![text(host), Value::Int(1), text("id")]);
    let range = Value::Array(vec![Value::Int(0), Value::Int(16_383), primary]);
    Answer::Value(Value::Array(vec![range]))
}

/// The server freezes before the connection for confirmations is made, and is replaced.
#[tokio::test(start_paused = true)]
async fn a_server_that_does_not_accept_a_second_connection_is_doubted() {
    let (begin, connections) = (Instant::now(), AtomicUsize::new(0));
    let world = World::new(move |server, command| match (server, command) {
        // The first connection asks for the map, the second is for calls.
        ("a:1", "connect") if connections.fetch_add(1, Ordering::Relaxed) > 1 => Answer::Never,
        (_, "CLUSTER INFO") => Answer::Value(text("cluster_current_epoch:1\r\n")),
        (_, "CLUSTER SLOTS") if begin.elapsed() > ms(1_500) => slots("b"),
        (_, "CLUSTER SLOTS") => slots("a"),
        _ => plain(command).unwrap_or(Answer::Value(Value::Int(1))),
    });
    let transport = world.connect("redis-cluster://a:1,b:1").await.unwrap();
    call(&transport, ONE).await.unwrap_err();
    assert!(begin.elapsed() < ms(1_900), "{:?}", begin.elapsed());
    call(&transport, ONE).await.unwrap();
    let writes = world.sent().into_iter().filter(|sent| sent.command.starts_with("SET"));
    assert_eq!(writes.map(|sent| sent.server).collect::<Vec<_>>(), ["b:1"]);
}

/// The server has answered the call and is replaced before it is confirmed.
#[tokio::test(start_paused = true)]
async fn a_change_of_the_topology_before_the_confirmation_ends_the_call() {
    let begin = Instant::now();
    let world = World::new(move |server, command| match (server, command) {
        (_, "CLUSTER INFO") => Answer::Value(text("cluster_current_epoch:1\r\n")),
        (_, "CLUSTER SLOTS") if begin.elapsed() > ms(1_500) => slots("b"),
        (_, "CLUSTER SLOTS") => slots("a"),
        ("a:1", "WAIT 1 2000") => Answer::After(ms(1_900), Value::Int(1)),
        _ => plain(command).unwrap_or(Answer::Value(Value::Int(1))),
    });
    let transport = world.connect("redis-cluster://a:1,b:1").await.unwrap();
    let error = call(&transport, ONE).await.unwrap_err();
    assert_eq!(error.class(), ErrorClass::Ambiguous, "{error}");
    assert!(begin.elapsed() < ms(1_900), "{:?}", begin.elapsed());
    call(&transport, ONE).await.unwrap();
    let servers = world.sent().into_iter().filter(|sent| sent.command.starts_with("SET"));
    assert_eq!(servers.map(|sent| sent.server).collect::<Vec<_>>(), ["a:1", "b:1"]);
}

/// The server may have been frozen meanwhile.
#[tokio::test(start_paused = true)]
async fn a_confirmation_that_lasted_is_believed_after_a_look_only() {
    for (replaced_after, is_believed) in [(60_000, true), (1_499, false)] {
        let begin = Instant::now();
        let world = World::new(move |_, command| match command {
            "CLUSTER INFO" => Answer::Value(text("cluster_current_epoch:1\r\n")),
            "CLUSTER SLOTS" if begin.elapsed() > ms(replaced_after) => slots("b"),
            "CLUSTER SLOTS" => slots("a"),
            "WAIT 1 2000" => Answer::After(ms(1_500), Value::Int(1)),
            _ => plain(command).unwrap_or(Answer::Value(Value::Int(1))),
        });
        let transport = world.connect("redis-cluster://a:1,b:1").await.unwrap();
        let result = call(&transport, ONE).await;
        assert_eq!(result.is_ok(), is_believed, "{result:?}");
    }
}

/// A replica and a sentinel are silent. Calls that need neither do not wait for them.
#[tokio::test(start_paused = true)]
async fn a_confirmation_that_lasts_delays_no_other_call() {
    let world = World::new(|server, command| match (server, command) {
        ("s3:1", _) => Answer::Never,
        (_, command) if command.starts_with("SENTINEL") => {
            let fields = ["ip", "a", "port", "1", "config-epoch", "1"];
            Answer::Value(Value::Array(fields.map(text).to_vec()))
        }
        (_, "ROLE") => Answer::Value(Value::Array(vec![text("master")])),
        (_, "WAIT 1 2000") => Answer::After(ms(2_000), Value::Int(0)),
        _ => plain(command).unwrap_or(Answer::Value(Value::Int(1))),
    });
    let url = "redis-sentinel://s1:1,s2:1,s3:1/primary";
    let transport = Arc::new(world.connect(url).await.unwrap());
    let mut durable = JoinSet::new();
    for start in [0, 1_000, 2_000, 3_000] {
        let transport = Arc::clone(&transport);
        durable.spawn(async move {
            sleep(ms(start)).await;
            unconfirmed(call(&transport, ONE).await)
        });
    }
    let plain_calls = async {
        while !durable.is_empty() {
            let begin = Instant::now();
            call(&transport, Durability::None).await.unwrap();
            assert!(begin.elapsed() < ms(10), "{:?}", begin.elapsed());
            sleep(ms(50)).await;
            while let Some(ended) = durable.try_join_next() {
                ended.unwrap();
            }
        }
    };
    timeout(ms(20_000), plain_calls).await.unwrap();
}

/// The server itself is silent: it answers neither the write before the wait nor other calls.
#[tokio::test(start_paused = true)]
async fn a_write_before_a_confirmation_that_lasts_delays_all_calls() {
    let begin = Instant::now();
    let world = World::new(move |server, command| match (server, command) {
        (_, "CLUSTER INFO") => Answer::Value(text("cluster_current_epoch:1\r\n")),
        (_, "CLUSTER SLOTS") if begin.elapsed() > ms(1_250) => slots("b"),
        (_, "CLUSTER SLOTS") => slots("a"),
        ("a:1", _) if command.starts_with("SET") => Answer::After(ms(4_000), text("OK")),
        // It was sent before the doubt, and is answered after the server was replaced.
        ("a:1", _) if command.ends_with("slow") => {
            Answer::After(ms(800), Value::Array(vec![Value::Int(1)]))
        }
        _ => plain(command).unwrap_or(Answer::Value(Value::Int(1))),
    });
    let transport = world.connect("redis-cluster://a:1,b:1").await.unwrap();
    let (durable, slow) = tokio::join!(call(&transport, ONE), async {
        sleep(ms(500)).await;
        named_call(&transport, "slow", Durability::None).await
    });
    durable.unwrap_err();
    assert_eq!(slow.unwrap_err().kind(), &ErrorKind::ConnectionLost);
}

/// The slot moves between the call and its confirmation. Only the call's own `MOVED` sends it on.
#[tokio::test(start_paused = true)]
async fn a_refused_confirmation_does_not_repeat_the_call() {
    let world = World::new(move |_, command| match command {
        "CLUSTER INFO" => Answer::Value(text("cluster_current_epoch:1\r\n")),
        "CLUSTER SLOTS" => slots("a"),
        _ if command.starts_with("SET") => Answer::Line("MOVED 8579 b:1".to_owned()),
        _ => plain(command).unwrap_or(Answer::Value(Value::Int(1))),
    });
    let transport = world.connect("redis-cluster://a:1,b:1").await.unwrap();
    assert!(unconfirmed(call(&transport, ONE).await).starts_with("MOVED"));
    let calls = world.sent().into_iter().filter(|sent| sent.command.starts_with("EVAL")).count();
    assert_eq!(calls, 1);
}

/// The task that asks, or confirms, belongs to a runtime that is not run any more.
#[test]
fn a_durable_call_outlasts_another_whose_runtime_is_not_run() {
    for silent in ["INFO", "WAIT 0 1", "WAIT 1 2000"] {
        let is_silent = Arc::new(AtomicBool::new(false));
        let silence = Arc::clone(&is_silent);
        let world = World::new(move |_, command| match command {
            _ if command == silent && silence.load(Ordering::Relaxed) => Answer::Never,
            _ => plain(command).unwrap_or(Answer::Value(Value::Int(1))),
        });
        let mut builder = Builder::new_current_thread();
        let [first, second] =
            [0, 1].map(|_| builder.enable_all().start_paused(true).build().unwrap());
        let transport = Arc::new(first.block_on(world.connect(URL)).unwrap());
        is_silent.store(true, Ordering::Relaxed);
        let caller = Arc::clone(&transport);
        first.spawn(async move { call(&caller, ONE).await });
        first.block_on(async { sleep(ms(100)).await });
        is_silent.store(false, Ordering::Relaxed);
        second.block_on(async {
            let waited = timeout(ms(20_000), call(&transport, ONE)).await.unwrap();
            assert_eq!(waited.is_ok(), silent != "WAIT 1 2000", "{silent}: {waited:?}");
            call(&transport, ONE).await.unwrap();
        });
    }
}
