//! Messages that throttle their ids: at most one is created in a window.

use delayline_core::limits::{FINISHED_RETENTION_MS, MAX_THROTTLE_MS};
use delayline_core::{
    Cancelled, Enqueued, FinishedIds, HandOff, Known, NewMessage, Op, Outcome, Priority, Purged,
    Settlement, Status, Update, UpdateContent, UpdateDue, UpdateToken,
};

use super::queue::{Queue, after, at, claim, done, id, message, millis, one, reject};

super::cases! { "throttle",
    an_id_is_created_once_per_window: "G33",
    no_end_of_a_message_ends_its_window: "G33",
    the_same_content_is_a_duplicate_first: "G15, G33",
    a_message_that_outlives_its_window_is_in_conflict: "G15, G33",
    a_remembered_id_stays_throttled_when_it_is_forgotten: "G15, G33",
    others_neither_begin_nor_meet_a_window: "G33",
    an_update_begins_a_window_if_it_creates: "G29, G33",
    a_batch_mixes_throttled_and_other_messages: "G2, G18, G33",
    many_windows_end_and_begin_anew: "G19, G33",
    what_cannot_be_throttled_is_refused: "G23, G33",
}

/// A message that may reuse its id once per `window_ms`.
fn throttled(name: &str, window_ms: u64) -> NewMessage {
    message(name).finished_ids(FinishedIds::Reuse).throttle(millis(window_ms))
}

fn until(ms: u64) -> Enqueued {
    Enqueued::Throttled { until: at(ms) }
}

async fn ack(queue: &Queue, ms: u64, n: u8, name: &str) {
    let held = one(queue.claim(ms, claim(n, 1, 50)).await.deliveries).lease;
    assert_eq!(queue.end(ms, name, held, Outcome::Ack).await, done(Status::Acked));
}

async fn an_id_is_created_once_per_window(queue: &Queue) {
    let created = queue.enqueue_one(0, throttled("a", 100)).await;
    assert_eq!(created, Enqueued::Created { due: at(0) });
    let other = || throttled("a", 7).payload("other");
    assert_eq!(queue.enqueue_one(1, other()).await, until(100), "it waits");
    ack(queue, 2, 1, "a").await;
    assert_eq!(queue.enqueue_one(3, throttled("a", 100)).await, until(100), "it is finished");
    assert_eq!(queue.enqueue_one(99, other()).await, until(100), "refusals do not count");
    let created = queue.enqueue_one(100, other().schedule(after(5))).await;
    assert_eq!(created, Enqueued::Created { due: at(105) });
    assert_eq!(queue.enqueue_one(101, throttled("a", 100)).await, until(107), "a new window");
    assert_eq!(queue.stats(102).await.totals.enqueued, 2);
}

async fn no_end_of_a_message_ends_its_window(queue: &Queue) {
    for name in ["cancelled", "purged", "held"] {
        queue.enqueue_one(0, throttled(name, 100)).await;
    }
    assert_eq!(queue.cancel(1, "cancelled").await, Cancelled::Cancelled);
    let held = queue.claim(2, claim(1, 2, 1_000)).await.deliveries;
    queue.end(3, "purged", held[0].lease, reject("boom")).await;
    let dead = queue.enqueue_one(4, throttled("purged", 100).payload("other")).await;
    assert_eq!(dead, until(100));
    assert_eq!(queue.purge(5, "purged").await, Purged::Purged);
    for name in ["cancelled", "purged", "held"] {
        let other = throttled(name, 100).payload("other");
        assert_eq!(queue.enqueue_one(6, other).await, until(100), "{name}");
    }
}

async fn the_same_content_is_a_duplicate_first(queue: &Queue) {
    queue.enqueue_one(0, throttled("a", 100)).await;
    let again = queue.enqueue_one(1, throttled("a", 100)).await;
    assert_eq!(again, Enqueued::Duplicate { status: Status::Ready });
    ack(queue, 2, 1, "a").await;
    let remembering = throttled("a", 100).finished_ids(FinishedIds::Refuse);
    let again = queue.enqueue_one(3, remembering.clone()).await;
    assert_eq!(again, Enqueued::Duplicate { status: Status::Acked });
    assert_eq!(queue.enqueue_one(4, remembering.clone().payload("other")).await, until(100));
    let late = queue.enqueue_one(100, remembering.payload("other")).await;
    assert_eq!(late, Enqueued::Conflict { status: Status::Acked });
}

async fn a_message_that_outlives_its_window_is_in_conflict(queue: &Queue) {
    queue.enqueue_one(0, throttled("a", 100).schedule(after(1_000))).await;
    let other = || throttled("a", 100).payload("other");
    assert_eq!(queue.enqueue_one(99, other()).await, until(100));
    let late = queue.enqueue_one(100, other()).await;
    assert_eq!(late, Enqueued::Conflict { status: Status::Scheduled });
}

async fn a_remembered_id_stays_throttled_when_it_is_forgotten(queue: &Queue) {
    let window_ms = 10 * FINISHED_RETENTION_MS;
    queue.enqueue_one(0, throttled("a", window_ms)).await;
    ack(queue, 1, 1, "a").await;
    for (n, ms) in (2..).zip([FINISHED_RETENTION_MS, 3 * FINISHED_RETENTION_MS]) {
        queue.enqueue_one(ms, message(&format!("other {n}"))).await;
        ack(queue, ms, n, &format!("other {n}")).await;
    }
    let remembering = throttled("a", 5).finished_ids(FinishedIds::Refuse);
    let forgotten = queue.enqueue_one(window_ms - 1, remembering.clone()).await;
    assert_eq!(forgotten, until(window_ms));
    let created = queue.enqueue_one(window_ms, remembering).await;
    assert_eq!(created, Enqueued::Created { due: at(window_ms) });
}

async fn others_neither_begin_nor_meet_a_window(queue: &Queue) {
    let plain = || message("a").finished_ids(FinishedIds::Reuse);
    queue.enqueue_one(0, plain()).await;
    ack(queue, 1, 1, "a").await;
    let created = queue.enqueue_one(2, throttled("a", 100)).await;
    assert_eq!(created, Enqueued::Created { due: at(2) });
    ack(queue, 3, 2, "a").await;
    assert_eq!(queue.enqueue_one(4, plain()).await, Enqueued::Created { due: at(4) });
    ack(queue, 5, 3, "a").await;
    assert_eq!(queue.enqueue_one(6, throttled("a", 100)).await, until(102));
    let created = queue.enqueue_one(6, throttled("b", 100)).await;
    assert_eq!(created, Enqueued::Created { due: at(6) }, "another id");
}

async fn an_update_begins_a_window_if_it_creates(queue: &Queue) {
    let update = |token: u8| {
        let token = UpdateToken::from_bytes([token; UpdateToken::BYTES]);
        let update = Update::new(UpdateContent::Replace, UpdateDue::Set, token);
        let payload = format!("update {token:?}");
        throttled("a", 100).known(Known::Update(update)).payload(payload)
    };
    let created = queue.enqueue_one(0, update(1)).await;
    assert_eq!(created, Enqueued::Created { due: at(0) });
    assert_eq!(queue.enqueue_one(1, update(2)).await, Enqueued::Updated { due: at(1) });
    let held = one(queue.claim(2, claim(1, 1, 50)).await.deliveries).lease;
    let follow = queue.enqueue_one(3, update(3)).await;
    assert_eq!(follow, Enqueued::Following { replaced: false });
    queue.end(4, "a", held, Outcome::Ack).await;
    ack(queue, 5, 2, "a").await;
    let repeated = queue.enqueue_one(6, update(3)).await;
    assert_eq!(repeated, Enqueued::Duplicate { status: Status::Acked });
    assert_eq!(queue.enqueue_one(7, update(4)).await, until(100));
    let created = queue.enqueue_one(100, update(4)).await;
    assert_eq!(created, Enqueued::Created { due: at(100) });
}

async fn a_batch_mixes_throttled_and_other_messages(queue: &Queue) {
    queue.enqueue_one(0, throttled("old", 100)).await;
    queue.cancel(0, "old").await;
    let large = "x".repeat(9_000);
    let token = UpdateToken::from_bytes([1; UpdateToken::BYTES]);
    let update = Update::new(UpdateContent::Keep, UpdateDue::Keep, token);
    let sent = vec![
        message("plain"),
        throttled("old", 100),
        throttled("large", 100).payload(large.clone()).expires(after(1_000)).max_failures(3),
        message("update").known(Known::Update(update)),
        throttled("small", 200),
    ];
    let answers = queue.enqueue(1, sent).await;
    let created = Enqueued::Created { due: at(1) };
    assert_eq!(answers, [created, until(100), created, created, created]);
    let claimed = queue.claim(2, claim(1, 10, 50)).await.deliveries;
    let ids: Vec<_> = claimed.iter().map(|delivery| delivery.message.info.id.clone()).collect();
    assert_eq!(ids, ["plain", "large", "update", "small"].map(id));
    let message = &claimed[1].message;
    assert_eq!(message.payload, large);
    assert_eq!((message.info.expires_at, message.info.max_failures), (Some(at(1_001)), 3));
    for (name, end) in [("large", 101), ("small", 201)] {
        assert_eq!(queue.enqueue_one(3, throttled(name, 1).payload("other")).await, until(end));
    }
}

async fn many_windows_end_and_begin_anew(queue: &Queue) {
    let name = |n: u64| format!("{:03}", n * 37 % 200);
    let sent = |count| (0..count).map(|n| throttled(&name(n), 100 + n)).collect();
    queue.enqueue(0, sent(200)).await;
    for n in 0..200 {
        queue.cancel(0, &name(n)).await;
    }
    let answers = queue.enqueue(150, sent(200)).await;
    for (n, answer) in (0..).zip(answers) {
        let expected = match n {
            0..=50 => Enqueued::Created { due: at(150) },
            _ => until(100 + n),
        };
        assert_eq!(answer, expected, "{n}");
    }
    // The clock steps back: windows that have begun anew end later, the rest as before.
    let answers = queue.enqueue(120, sent(200)).await;
    for (n, answer) in (0..).zip(answers) {
        let expected = match n {
            0..=50 => Enqueued::Duplicate { status: Status::Scheduled },
            _ => until(100 + n),
        };
        assert_eq!(answer, expected, "{n} after a step back");
    }
}

async fn what_cannot_be_throttled_is_refused(queue: &Queue) {
    for (window_ms, is_valid) in [(0, false), (1, true), (MAX_THROTTLE_MS, true)] {
        let name = format!("{window_ms}");
        let op = Op::Enqueue(vec![throttled(&name, window_ms)]);
        assert_eq!(queue.try_apply(0, &op).await.is_ok(), is_valid, "{window_ms} ms");
    }
    let refusal = |op: Op| async move {
        match queue.try_apply(1, &op).await {
            Ok(applied) => panic!("{op:?} was accepted: {applied:?}"),
            Err(error) => error.to_string(),
        }
    };
    let error = refusal(Op::Enqueue(vec![throttled("a", MAX_THROTTLE_MS + 1)])).await;
    assert!(error.contains("throttle") && error.contains("2678400000"), "{error}");
    let held = queue.leased(0, message("held").priority(Priority::Urgent), 50).await;
    let settlement = Settlement::new(id("held"), held, Outcome::Ack);
    let item = HandOff::new(settlement, vec![throttled("next", 100)]);
    let error = refusal(Op::HandOff(vec![item])).await;
    assert!(error.contains("throttle"), "{error}");
}
