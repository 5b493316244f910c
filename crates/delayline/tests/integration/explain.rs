//! Why a message is not delivered, and when messages are due.

use std::time::Duration;

use crate::support::Faulty;
use delayline::admin::{Explanation, SetLimits};
use delayline::backend::{Claim, ClaimId, Extend, Hold, Lease, Millis, Op, Reply, Save};
use delayline::message::{Progress, Status};
use delayline::{ErrorKind, Queue, limits};
use delayline_core::{Outcome, Schedule, Settlement};
use tokio::time::sleep;

const SECOND: Duration = Duration::from_secs(1);

async fn said(queue: &Queue<u64>, id: &str) -> String {
    queue.explain(id).await.unwrap().to_string()
}

async fn claim(backend: &Faulty, number: u8, lease: Duration) -> Vec<Lease> {
    let claim = Claim::new(
        "w".parse().unwrap(),
        ClaimId::from_bytes([number; ClaimId::BYTES]),
        10,
        Millis::try_from(lease).unwrap(),
    );
    match backend.direct(Op::Claim(claim)).await {
        Reply::Claim(claimed) => claimed.deliveries.iter().map(|one| one.lease).collect(),
        other => panic!("{other:?}"),
    }
}

async fn settle(backend: &Faulty, lease: Lease, outcome: Outcome) {
    let id = "a".try_into().unwrap();
    backend.direct(Op::Settle(vec![Settlement::new(id, lease, outcome)])).await;
}

#[tokio::test(start_paused = true)]
async fn a_message_is_explained_through_its_life() {
    let backend = Faulty::new();
    let queue: Queue<u64> = Queue::new(backend.clone());
    assert!(said(&queue, "a").await.starts_with("The queue does not know it"));

    let _ = queue.message(&1).id("a").due_in(90 * SECOND).max_failures(2).send().await.unwrap();
    assert_eq!(said(&queue, "a").await, "It is due in 1 min 30 s.");
    sleep(100 * SECOND).await;
    assert_eq!(said(&queue, "a").await, "It has been due for 10.0 s, and waits for a free worker.");
    queue.pause().await.unwrap();
    assert_eq!(said(&queue, "a").await, "It has been due for 10.0 s, but the queue is paused.");
    queue.resume().await.unwrap();
    let _ = queue.message(&1).id("b").group("t-7").send().await.unwrap();
    let turn =
        "It has been due for 0 ms, and waits for a free worker and the turn of its group, t-7.";
    assert_eq!(said(&queue, "b").await, turn);
    queue.set_limits(SetLimits::new().each_group(2)).await.unwrap();
    let slot = " It may wait for a slot of its group (limit: 2).";
    assert_eq!(said(&queue, "b").await, format!("{turn}{slot}"));
    assert!(!said(&queue, "a").await.contains("group"), "it has none");
    queue.set_limits(SetLimits::new().in_order(true)).await.unwrap();
    let earlier = " It may wait for an earlier message of its group.";
    assert_eq!(said(&queue, "b").await, format!("{turn}{earlier}"));
    queue.set_limits(SetLimits::new().each_group(None).in_order(false)).await.unwrap();
    queue.cancel("b").await.unwrap();

    let leases = claim(&backend, 1, 30 * SECOND).await;
    let held = "A worker holds it (delivery 1), and its lease expires in 30.0 s unless extended.";
    assert_eq!(said(&queue, "a").await, held);
    let id = || "a".try_into().unwrap();
    let save = Save::new(1).progress(Progress::new(0.4, "page 12 of 30"));
    let extend = Extend::new(vec![(id(), leases[0])], Millis::try_from(30 * SECOND).unwrap());
    backend.direct(Op::Extend(extend.saves(vec![(id(), save)]))).await;
    assert_eq!(said(&queue, "a").await, format!("{held} Progress: 40 %, page 12 of 30."));
    let schedule = Schedule::In(Millis::try_from(5 * SECOND).unwrap());
    let error = "no luck".to_owned();
    settle(&backend, leases[0], Outcome::Retry { schedule, error }).await;
    assert_eq!(said(&queue, "a").await, "It is due in 5.0 s, after failure 1 of 2.");

    sleep(5 * SECOND).await;
    let leases = claim(&backend, 2, SECOND).await;
    sleep(2 * SECOND).await;
    let lost = "A worker holds it (delivery 2), but its lease has expired. The next claim \
                reclaims it. Progress:";
    assert!(said(&queue, "a").await.starts_with(lost));
    settle(&backend, leases[0], Outcome::Reject { error: "no such order".to_owned() }).await;
    sleep(7200 * SECOND).await;
    let dead = "It has been a dead letter for 2 h 0 min: a handler rejected it. The last error \
                was: no such order";
    assert_eq!(said(&queue, "a").await, dead);

    queue.redrive("a").await.unwrap();
    let leases = claim(&backend, 3, SECOND).await;
    queue.cancel("a").await.unwrap();
    let explanation = queue.explain("a").await.unwrap();
    assert!(matches!(explanation, Explanation::Leased { epoch: 3, cancel_requested: true, .. }));
    assert!(explanation.to_string().contains("A cancel was requested: it ends with this lease."));
    settle(&backend, leases[0], Outcome::Release).await;
    assert_eq!(queue.explain("a").await.unwrap(), Explanation::Finished(Status::Cancelled));

    for (end, sentence) in [
        (Status::Acked, "A worker has handled and acked it."),
        (Status::Cancelled, "It was cancelled."),
        (Status::Purged, "It was a dead letter, and was purged."),
        (Status::Relayed, "It was moved to a list or stream."),
        (Status::Replaced, "An update has replaced it."),
    ] {
        assert_eq!(Explanation::Finished(end).to_string(), sentence);
    }
}

#[tokio::test(start_paused = true)]
async fn what_expires_is_explained() {
    let backend = Faulty::new();
    let queue: Queue<u64> = Queue::new(backend.clone());
    let draft = queue.message(&1).id("a").due_in(20 * SECOND).expires_in(10 * SECOND);
    let _ = draft.send().await.unwrap();
    let text = "It is due in 20.0 s, but expires before that, and becomes a dead letter then.";
    assert_eq!(said(&queue, "a").await, text);
    sleep(20 * SECOND).await;
    queue.pause().await.unwrap();
    claim(&backend, 3, SECOND).await;
    assert_eq!(queue.explain("a").await.unwrap(), Explanation::Expired);
    let text = "It has expired. The next claim that could deliver it makes it a dead letter.";
    assert_eq!(said(&queue, "a").await, text);
    queue.resume().await.unwrap();
    claim(&backend, 4, SECOND).await;
    let text = "It has been a dead letter for 0 ms: it expired.";
    assert_eq!(said(&queue, "a").await, text);
}

#[tokio::test(start_paused = true)]
async fn a_message_that_expires_before_its_wait_ends_is_explained() {
    let queue: Queue<u64> = Queue::new(Faulty::new());
    let _ = queue.message(&1).id("a").after(["b"]).expires_in(60 * SECOND).send().await.unwrap();
    let said = said(&queue, "a").await;
    assert!(said.ends_with("; it expires in 1 min 0 s, and is a dead letter then."), "{said}");
}

#[tokio::test]
async fn a_message_waits_for_the_share_of_its_shard() {
    let connection = delayline::connect("memory:").await.unwrap();
    let queue: Queue<u64> = connection.queue("orders").shards(2).await.unwrap();
    queue.set_limits(SetLimits::new().leased(2)).await.unwrap();
    for id in ["a", "b"] {
        let _ = queue.message(&1).id(id).group("t-7").send().await.unwrap();
    }
    let id = ClaimId::from_bytes([1; ClaimId::BYTES]);
    let lease = Millis::try_from(30 * SECOND).unwrap();
    queue.apply(&Op::Claim(Claim::new("w".parse().unwrap(), id, 10, lease))).await.unwrap();
    let said = said(&queue, "b").await;
    assert!(said.ends_with("1 of 1 are leased: it waits for the end of a lease."), "{said}");
}

#[tokio::test(start_paused = true)]
async fn a_hold_of_a_message_that_waits_for_others_is_explained() {
    let backend = Faulty::new();
    let queue: Queue<u64> = Queue::new(backend.clone());
    let _ = queue.message(&1).id("a").after(["b"]).send().await.unwrap();
    let now = Schedule::NOW;
    let (snooze, error) = (Outcome::Snooze { schedule: now }, String::new());
    for (number, outcome, words) in [
        (1, snooze, "It waits for 1 of 1 message. The next check is in 20.0 s, or when one ends; "),
        (2, Outcome::Retry { schedule: now, error }, "It has been due for 0 ms, but its group, "),
    ] {
        let lease = claim(&backend, number, 30 * SECOND).await[0];
        let hold = Hold::Group(Schedule::In(Millis::try_from(20 * SECOND).unwrap()));
        let held = Settlement::new("a".try_into().unwrap(), lease, outcome).hold(Some(hold));
        backend.direct(Op::Settle(vec![held])).await;
        let said = said(&queue, "a").await;
        assert!(said.starts_with(words), "{said}");
        sleep(20 * SECOND).await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_message_that_ends_first_is_named() {
    let backend = Faulty::new();
    let queue: Queue<u64> = Queue::new(backend.clone());
    queue.set_limits(SetLimits::new().in_order(true)).await.unwrap();
    for id in ["a", "b", "c"] {
        let _ = queue.message(&1).id(id).group("t-7").send().await.unwrap();
    }
    let front = async |id: &str| queue.explain(id).await.unwrap().behind().map(ToString::to_string);
    assert_eq!(front("b").await, None);
    let leases = claim(&backend, 1, 30 * SECOND).await;
    assert_eq!((front("a").await, front("b").await), (None, Some("a".to_owned())));
    let words = said(&queue, "c").await;
    assert!(words.ends_with("group, t-7. The message a of its group must end before."), "{words}");
    let schedule = Schedule::In(Millis::try_from(5 * SECOND).unwrap());
    settle(&backend, leases[0], Outcome::Retry { schedule, error: String::new() }).await;
    assert_eq!(front("c").await, Some("a".to_owned()));
    sleep(5 * SECOND).await;
    let leases = claim(&backend, 2, 30 * SECOND).await;
    let hold = Hold::Group(Schedule::In(Millis::try_from(20 * SECOND).unwrap()));
    let held = Settlement::new("a".try_into().unwrap(), leases[0], Outcome::Ack).hold(Some(hold));
    backend.direct(Op::Settle(vec![held])).await;
    let words = "It has been due for 5.0 s, but its group, t-7, is held for 20.0 s.";
    assert_eq!(said(&queue, "b").await, words);
    sleep(20 * SECOND).await;
    assert_eq!((front("b").await, front("c").await), (None, Some("b".to_owned())));
}

#[tokio::test(start_paused = true)]
async fn a_bad_forecast_is_refused() {
    let queue: Queue<u64> = Queue::new(Faulty::new());
    let rising = |count: u64| (0..count).map(Duration::from_secs).collect::<Vec<_>>();
    for (delays, said) in [
        (vec![], "the forecast is empty"),
        (rising(101), "101 items long; at most 100"),
        (
            vec![SECOND, SECOND],
            "\"1000\" is not valid: it must be longer than the one before, 1000",
        ),
        (vec![2 * SECOND, SECOND], "it must be longer than the one before, 2000"),
        (
            vec![Duration::MAX],
            "the forecast's delay in ms is 18446744073709551615; it must be from 0",
        ),
    ] {
        let error = queue.forecast(delays).await.unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Invalid(_)), "{error:?}");
        assert!(error.to_string().contains(said), "{error}");
    }
    let due = queue.forecast(rising(100)).await.unwrap().due;
    assert_eq!(due.len(), limits::MAX_FORECAST);
}
