//! Relays: messages go to a list or stream as they fall due.

use std::sync::Arc;
use std::time::Duration;

use crate::support::{Fault, Faulty, logged};
use delayline::admin::SetLimits;
use delayline::backend::{Claim, ClaimId, Millis, Op, Wakeup};
use delayline::events::EventKind;
use delayline::message::Status;
use delayline::relay::{Destination, DestinationKey, Element};
use delayline::{Connect, ErrorClass, ErrorKind, Queue, RedisClient};
use delayline_test_server::{Reply, Server};
use tokio::sync::oneshot;
use tokio::time::timeout;

const DRIVERS: &[RedisClient] = &[
    #[cfg(feature = "redis")]
    RedisClient::Redis,
    #[cfg(feature = "fred")]
    RedisClient::Fred,
];
const PATIENCE: Duration = Duration::from_secs(60);

fn list(max_len: Option<u64>) -> Destination {
    Destination::List { key: DestinationKey::try_from("due").unwrap(), max_len }
}

fn over(queue: &Arc<Faulty>) -> Queue<u64> {
    Queue::new(Arc::clone(queue) as _)
}

async fn never() {
    std::future::pending::<()>().await;
}

#[tokio::test(start_paused = true)]
async fn messages_are_relayed_to_the_millisecond() {
    let backend = Faulty::new();
    let queue = over(&backend);
    let mut events = queue.events();
    for delay in [0, 1, 2_000, 2_001, 7_500, 60_000] {
        queue.send_in(&delay, Duration::from_millis(delay)).await.unwrap();
    }
    let start = backend.now();
    let relay = queue.relay(list(None)).until_empty(true);
    assert_eq!(relay.run_until(never()).await.unwrap().relayed, 6);
    let mut moved = Vec::new();
    while let Some(event) = events.try_next() {
        if event.kind == EventKind::Relayed {
            moved.push(event.at.since(start).as_millis());
        }
    }
    assert_eq!(moved, [0, 1, 2_000, 2_001, 7_500, 60_000]);
    // A poll every five seconds, and one for each instant.
    let looks = backend.sent("relay").len();
    assert!(looks < 25, "{looks} operations");
}

#[tokio::test(start_paused = true)]
async fn a_message_that_comes_in_between_is_not_overslept() {
    let backend = Faulty::new();
    let queue = over(&backend);
    queue.send_in(&1, Duration::from_secs(4)).await.unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let relay = queue.relay(list(None)).batch(1);
    let task = tokio::spawn(relay.run_until(async { stopped.await.unwrap() }));
    tokio::time::sleep(Duration::from_millis(500)).await;
    let mut events = queue.events();
    queue.send(&2).await.unwrap();
    loop {
        let event = events.next().await.unwrap();
        if event.kind == EventKind::Relayed {
            assert_eq!(backend.elapsed().as_millis(), 500);
            break;
        }
    }
    stop.send(()).unwrap();
    assert_eq!(
        task.await.unwrap().unwrap().relayed,
        1,
        "it stops while it waits for the other one"
    );
    assert_eq!(backend.stats().await.scheduled, 1);
}

#[tokio::test(start_paused = true)]
async fn a_relay_moves_soon_what_workers_at_their_limit_of_leases_cannot_take() {
    let backend = Faulty::new();
    let queue = over(&backend);
    queue.set_limits(SetLimits::new().leased(1)).await.unwrap();
    queue.send(&1).await.unwrap();
    let claim_id = ClaimId::from_bytes([1; 16]);
    let lease = Millis::saturating(3_600_000);
    let worker = "worker".parse().unwrap();
    backend.direct(Op::Claim(Claim::new(worker, claim_id, 1, lease))).await;
    let relay = queue.relay(list(None));
    let handle = relay.handle();
    let relay = tokio::spawn(relay.run());
    tokio::time::sleep(Duration::from_millis(600)).await;
    queue.send(&2).await.unwrap();
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(backend.stats().await.totals.relayed, 1);
    handle.stop();
    relay.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_handle_stops_a_relay_whether_it_runs_yet_or_waits() {
    let backend = Faulty::new();
    let queue = over(&backend);
    queue.send(&1).await.unwrap();
    queue.send_in(&2, Duration::from_secs(3_600)).await.unwrap();
    let relay = queue.relay(list(None));
    let handle = relay.handle();
    let task = tokio::spawn(relay.run());
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(!task.is_finished());
    let stopped = backend.elapsed();
    handle.stop();
    assert_eq!(task.await.unwrap().unwrap().relayed, 1);
    assert_eq!(backend.elapsed(), stopped, "at once");

    queue.send(&3).await.unwrap();
    let relay = queue.relay(list(None));
    relay.handle().stop();
    assert_eq!(relay.run().await.unwrap().relayed, 1, "the first operation is finished");
}

#[tokio::test(start_paused = true)]
async fn a_full_list_is_looked_at_now_and_then() {
    let backend = Faulty::new();
    let queue = over(&backend);
    for n in 0..5 {
        queue.send(&n).await.unwrap();
    }
    let (stop, stopped) = oneshot::channel::<()>();
    let relay = queue.relay(list(Some(3)));
    let task = tokio::spawn(relay.run_until(async { stopped.await.unwrap() }));
    tokio::time::sleep(Duration::from_secs(60)).await;
    let looks = backend.sent("relay").len();
    assert!((60..130).contains(&looks), "{looks} looks in a minute");
    assert_eq!(backend.stats().await.ready, 2);
    stop.send(()).unwrap();
    assert_eq!(task.await.unwrap().unwrap().relayed, 3);
}

#[tokio::test(start_paused = true)]
async fn a_relay_that_can_move_nothing_passes_the_hint_on() {
    // The list is full, the server is busy, or it refuses the relay.
    for fault in [Fault::None, Fault::Busy, Fault::Denied] {
        let backend = Faulty::with_faults("relay", &[Fault::None, fault]);
        let queue = over(&backend);
        queue.send(&1).await.unwrap();
        assert!(backend.wait(PATIENCE).await.unwrap(), "its hint");
        let (stop, stopped) = oneshot::channel::<()>();
        let relay = queue.relay(list(Some(1)));
        let relay = tokio::spawn(relay.run_until(async { stopped.await.unwrap() }));
        tokio::time::sleep(Duration::from_millis(500)).await;
        // It waits in front of a worker.
        let second = Arc::clone(&backend);
        let worker = tokio::spawn(async move { second.wait(PATIENCE).await });
        tokio::time::sleep(Duration::from_millis(500)).await;
        queue.send(&2).await.unwrap();
        assert!(worker.await.unwrap().unwrap(), "a hint");
        assert_eq!(backend.elapsed().as_millis(), 1_000, "{fault:?}");
        assert_eq!(backend.sent("relay").len(), 2);
        if matches!(fault, Fault::Denied) {
            relay.await.unwrap().unwrap_err();
        } else {
            stop.send(()).unwrap();
            assert_eq!(relay.await.unwrap().unwrap().relayed, 1);
        }
        assert_eq!(backend.stats().await.ready, 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_relay_that_has_promised_to_look_tells_if_it_can_move_nothing() {
    let backend = Faulty::new();
    let queue = over(&backend);
    queue.send(&1).await.unwrap();
    queue.send_in(&2, Duration::from_secs(2)).await.unwrap();
    assert!(backend.wait(PATIENCE).await.unwrap(), "the hint of the first");
    let (stop, stopped) = oneshot::channel::<()>();
    let relay = queue.relay(list(Some(1)));
    let relay = tokio::spawn(relay.run_until(async { stopped.await.unwrap() }));
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(backend.wait(PATIENCE).await.unwrap(), "a hint");
    assert_eq!(backend.elapsed().as_millis(), 2_000);
    // Once: it does not wait for the bell any more.
    assert!(!backend.wait(PATIENCE).await.unwrap(), "another hint");
    stop.send(()).unwrap();
    assert_eq!(relay.await.unwrap().unwrap().relayed, 1);
}

#[tokio::test(start_paused = true)]
async fn a_relay_that_stops_leaves_the_next_message_to_others() {
    let backend = Faulty::new();
    let queue = over(&backend);
    let relay = queue.relay(list(None));
    let handle = relay.handle();
    let relay = tokio::spawn(relay.run());
    tokio::time::sleep(Duration::from_millis(500)).await;
    // It takes the only hint.
    queue.send_in(&1, Duration::from_secs(2)).await.unwrap();
    tokio::time::sleep(Duration::from_millis(500)).await;
    handle.stop();
    assert_eq!(relay.await.unwrap().unwrap().relayed, 0);
    assert!(backend.wait(PATIENCE).await.unwrap(), "a hint");
    assert_eq!(backend.elapsed().as_millis(), 1_000);
}

#[tokio::test(start_paused = true)]
async fn one_relay_is_not_repeated() {
    for (fault, class) in
        [(Fault::LostReply, ErrorClass::Ambiguous), (Fault::Busy, ErrorClass::NotExecuted)]
    {
        let backend = Faulty::with_faults("relay", &[fault]);
        let queue = over(&backend);
        for n in 0..3 {
            queue.send(&n).await.unwrap();
        }
        let relay = queue.relay(list(None)).batch(1);
        let error = relay.once().await.unwrap_err();
        assert_eq!((error.class(), backend.sent("relay").len()), (class, 1), "{error}");
        let moved = backend.stats().await.totals.relayed;
        assert_eq!(moved, u64::from(class == ErrorClass::Ambiguous));
        assert_eq!(relay.once().await.unwrap().ids.len(), 1, "the next");
    }
}

#[tokio::test(start_paused = true)]
async fn failures_are_survived_and_told_once() {
    let faults = [Fault::Busy, Fault::LostRequest, Fault::Busy, Fault::LostReply];
    let backend = Faulty::with_faults("relay", &faults);
    let queue = over(&backend);
    for n in 0..3 {
        queue.send(&n).await.unwrap();
    }
    let log = logged(async || {
        let relay = queue.relay(list(None)).batch(1).until_empty(true);
        // One was moved by the operation whose reply was lost.
        assert_eq!(relay.run_until(never()).await.unwrap().relayed, 2);
    })
    .await;
    assert_eq!(log.matches("a relay failed").count(), 4, "each kind: {log}");
    assert!(log.contains("relays work again"), "{log}");
    let stats = backend.stats().await;
    assert_eq!((stats.totals.relayed, stats.ready), (3, 0));
}

#[tokio::test(start_paused = true)]
async fn a_refusal_ends_a_relay() {
    let backend = Faulty::with_faults("relay", &[Fault::Denied]);
    let queue = over(&backend);
    let error = queue.relay(list(None)).run_until(never()).await.unwrap_err();
    assert_eq!(error.kind(), &ErrorKind::PermissionDenied);
    let error = queue.relay(list(None)).batch(0).run_until(never()).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Invalid(_)), "{error}");
    let error = queue.relay(list(Some(0))).once().await.unwrap_err();
    assert!(error.to_string().contains("from 1 to"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_paused_queue_is_not_empty() {
    let backend = Faulty::new();
    let queue = over(&backend);
    queue.send(&1).await.unwrap();
    queue.pause().await.unwrap();
    let relay = queue.relay(list(None)).until_empty(true);
    let ended = timeout(PATIENCE, relay.run_until(never())).await;
    assert!(ended.is_err(), "{ended:?}");
    assert_eq!(backend.stats().await.ready, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn several_relays_share_the_messages_of_a_server() {
    for &driver in DRIVERS {
        let server = Server::start();
        let connect = Connect::new(&server.url()).unwrap().client(driver);
        let queue: Queue<u64> = connect.connect().await.unwrap().queue("q").await.unwrap();
        let mut events = queue.events();
        let relays = (0..3).map(|_| {
            let relay = queue.relay(list(None)).batch(7).until_empty(true);
            tokio::spawn(relay.run_until(never()))
        });
        for n in 0..100_u64 {
            queue.send_in(&n, Duration::from_millis(n * 3)).await.unwrap();
        }
        let mut moved = 0;
        for relay in relays.collect::<Vec<_>>() {
            moved += timeout(PATIENCE, relay).await.unwrap().unwrap().unwrap().relayed;
        }
        // The ids of the messages that this call moves.
        let rest = queue.relay(list(None)).once().await.unwrap().ids.len() as u64;
        assert_eq!(moved + rest, 100);
        let Reply::Array(elements) = server.command(&["LRANGE", "due", "0", "-1"]) else {
            panic!("no list")
        };
        assert_eq!(elements.len(), 100);
        // A relay may report a message before its sender does.
        let (mut due, mut relayed) = (std::collections::HashMap::new(), Vec::new());
        while let Some(event) = events.try_next() {
            match event.kind {
                EventKind::Enqueued { due: instant } => drop(due.insert(event.id, instant)),
                EventKind::Relayed => relayed.push((event.id, event.at)),
                _ => {}
            }
        }
        assert!(relayed.iter().all(|(id, at)| *at >= due[id]), "G4");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_gets_what_was_sent() {
    for &driver in DRIVERS {
        let server = Server::start();
        let connect = Connect::new(&server.url()).unwrap().client(driver);
        let queue: Queue<String> = connect.connect().await.unwrap().queue("q").await.unwrap();
        let draft = queue.message(&"hello".to_owned()).id("a").header("tenant", "7");
        assert!(draft.send().await.unwrap().is_accepted());
        let key = DestinationKey::try_from("due").unwrap();
        let to = Destination::Stream { key, backlog: None };
        assert_eq!(queue.relay(to).once().await.unwrap().ids.len(), 1);
        let explained = queue.explain("a").await.unwrap();
        assert_eq!(explained, delayline::admin::Explanation::Finished(Status::Relayed));
        let shown = format!("{:?}", server.command(&["XRANGE", "due", "-", "+"]));
        for text in [Element::ID, Element::DUE, Element::PAYLOAD, "header:tenant", "\\\"hello"] {
            let bytes = format!("{:?}", text.trim_start_matches('\\').as_bytes());
            let bytes = bytes.trim_matches(['[', ']']);
            assert!(shown.contains(text) || shown.contains(bytes), "{text}: {shown}");
        }
        server.command(&["DEL", "due"]);
        server.command(&["SET", "due", "something else"]);
        let error = queue.relay(list(None)).run_until(never()).await.unwrap_err();
        assert_eq!(error.kind(), &ErrorKind::WrongType, "{error}");
    }
}
