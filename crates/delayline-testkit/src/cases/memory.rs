//! The memory of finished messages and past claims, to the millisecond and to the last id.
//!
//! There are two generations. The younger becomes the older when an entry is added a retention
//! after it began; each is forgotten a retention later.

use delayline_core::limits::{
    FINISHED_RETENTION_MS, JOURNAL_RETENTION_MS, MAX_BATCH, MAX_FINISHED, MAX_LEASE_MS,
    MAX_THROTTLED_IDS,
};
use delayline_core::{
    Cancelled, Enqueued, FinishedIds, Found, Op, Outcome, Purged, Settled, Status,
};

use super::queue::{Queue, at, claim, ended, id, lease, message, millis, reject};

super::cases! { "memory",
    every_operation_forgets_a_finished_message_at_the_same_instant: "G8, G14, G15",
    what_finishes_later_begins_a_generation: "G15, G24",
    a_claim_is_forgotten_at_its_instant: "G16",
    what_is_forgotten_does_not_come_back_with_the_clock: "G15, G16, G19",
    each_way_to_finish_makes_room: "G15, G24",
    as_many_ids_are_remembered_and_throttled_as_may_be: "G8, G14, G15, G33",
}

const BEGIN: u64 = 10;

/// A token that distinguishes claims for messages of different names.
fn token_of(name: &str) -> u8 {
    name.as_bytes()[0]
}

/// Finishes one message in each of three ways.
async fn finish(queue: &Queue, ms: u64, name: &str) {
    let acked = format!("{name} acked");
    let token = token_of(name);
    let held = queue.leased_as(token, ms, message(&acked), 1_000).await;
    queue.end(ms, &acked, held, Outcome::Ack).await;
    let purged = format!("{name} purged");
    let held = queue.leased_as(token + 100, ms, message(&purged), 1_000).await;
    queue.end(ms, &purged, held, reject("boom")).await;
    assert_eq!(queue.purge(ms, &purged).await, Purged::Purged);
    let cancelled = format!("{name} cancelled");
    queue.enqueue_one(ms, message(&cancelled)).await;
    assert_eq!(queue.cancel(ms, &cancelled).await, Cancelled::Cancelled);
}

/// Checks with every operation that changes nothing.
async fn assert_known(queue: &Queue, ms: u64, name: &str, known: bool) {
    let statuses =
        [("acked", Status::Acked), ("purged", Status::Purged), ("cancelled", Status::Cancelled)];
    for (way, status) in statuses {
        let name = format!("{name} {way}");
        let found = if known { Found::Finished(status) } else { Found::Unknown };
        assert_eq!(queue.get(ms, &name).await, found, "{name} at {ms}");
    }
    let again = if known { ended(Status::Acked) } else { Settled::Missing };
    let acked = format!("{name} acked");
    let held = lease(token_of(name), 1);
    assert_eq!(queue.end(ms, &acked, held, Outcome::Ack).await, again, "{acked} at {ms}");
    let again = if known { Purged::Purged } else { Purged::NotFound };
    assert_eq!(queue.purge(ms, &format!("{name} purged")).await, again, "{name} at {ms}");
    let again = if known { Cancelled::Cancelled } else { Cancelled::NotFound };
    assert_eq!(queue.cancel(ms, &format!("{name} cancelled")).await, again, "{name} at {ms}");
}

/// Enqueues it again, which creates a new message if it has been forgotten.
async fn assert_taken(queue: &Queue, ms: u64, name: &str, taken: bool) {
    let again = queue.enqueue_one(ms, message(&format!("{name} acked"))).await;
    assert_eq!(matches!(again, Enqueued::Created { .. }), taken, "{name} at {ms}: {again:?}");
}

async fn every_operation_forgets_a_finished_message_at_the_same_instant(queue: &Queue) {
    finish(queue, BEGIN, "only").await;
    let end = BEGIN + 2 * FINISHED_RETENTION_MS;
    assert_known(queue, end - 1, "only", true).await;
    assert_taken(queue, end - 1, "only", false).await;
    assert_known(queue, end, "only", false).await;
    assert_taken(queue, end, "only", true).await;
}

async fn what_finishes_later_begins_a_generation(queue: &Queue) {
    finish(queue, BEGIN, "first").await;
    finish(queue, BEGIN + FINISHED_RETENTION_MS - 1, "last").await;
    let next = BEGIN + FINISHED_RETENTION_MS;
    finish(queue, next, "next").await;
    let end = next + FINISHED_RETENTION_MS;
    for name in ["first", "last", "next"] {
        assert_known(queue, end - 1, name, true).await;
        assert_taken(queue, end - 1, name, false).await;
    }
    for name in ["first", "last"] {
        assert_known(queue, end, name, false).await;
        assert_taken(queue, end, name, true).await;
    }
    assert_known(queue, end, "next", true).await;
    assert_known(queue, end + FINISHED_RETENTION_MS, "next", false).await;
}

async fn a_claim_is_forgotten_at_its_instant(queue: &Queue) {
    queue.enqueue(0, ["a", "b", "c"].map(message).to_vec()).await;
    let take = |n| claim(n, 1, MAX_LEASE_MS);
    assert_eq!(queue.claim_ids(BEGIN, take(1)).await, ["a"]);
    assert_eq!(queue.claim_ids(BEGIN + JOURNAL_RETENTION_MS - 1, take(2)).await, ["b"]);
    let next = BEGIN + JOURNAL_RETENTION_MS;
    assert_eq!(queue.claim_ids(next, take(3)).await, ["c"]);
    let end = next + JOURNAL_RETENTION_MS;
    for (n, name) in [(1, "a"), (2, "b"), (3, "c")] {
        assert_eq!(queue.claim_ids(end - 1, take(n)).await, [name]);
    }
    for (n, names) in [(1, &[][..]), (2, &[]), (3, &["c"])] {
        assert_eq!(queue.claim_ids(end, take(n)).await, names);
    }
    let end = end + JOURNAL_RETENTION_MS;
    assert_eq!(queue.claim_ids(end - 1, take(3)).await, ["c"]);
    assert_eq!(queue.claim_ids(end, take(3)).await, [""; 0]);
}

async fn what_is_forgotten_does_not_come_back_with_the_clock(queue: &Queue) {
    finish(queue, BEGIN, "old").await;
    let late = BEGIN + 2 * FINISHED_RETENTION_MS;
    finish(queue, late, "new").await;
    assert_known(queue, late, "old", false).await;
    assert_known(queue, BEGIN, "old", false).await;
    assert_known(queue, BEGIN, "new", true).await;

    queue.enqueue(0, ["a", "b"].map(message).to_vec()).await;
    let take = |n| claim(n, 1, MAX_LEASE_MS);
    assert_eq!(queue.claim_ids(late, take(8)).await, ["a"]);
    assert_eq!(queue.claim_ids(late + 2 * JOURNAL_RETENTION_MS, take(9)).await, ["b"]);
    assert_eq!(queue.claim_ids(late, take(8)).await, [""; 0]);
    assert_eq!(queue.claim_ids(late, take(9)).await, ["b"]);
}

/// The first message to finish after a long time replaces the ones that finished before.
async fn each_way_to_finish_makes_room(queue: &Queue) {
    let mut before: Option<String> = None;
    for (n, way) in (1..).zip(["ack", "purge", "cancel", "claim", "ack"]) {
        let (name, ms) = (n.to_string(), BEGIN + u64::from(n) * (2 * FINISHED_RETENTION_MS + 1));
        let held = queue.leased_as(n, ms, message(&name), 1).await;
        match way {
            "ack" => drop(queue.end(ms, &name, held, Outcome::Ack).await),
            "purge" => {
                queue.end(ms, &name, held, reject("boom")).await;
                queue.purge(ms, &name).await;
            }
            "cancel" => {
                queue.end(ms, &name, held, Outcome::Release).await;
                queue.cancel(ms, &name).await;
            }
            _ => {
                queue.cancel(ms, &name).await;
                queue.claim(ms + 1, claim(n + 100, 1, 1)).await;
            }
        }
        assert!(matches!(queue.get(ms, &name).await, Found::Finished(_)), "{way}");
        if let Some(before) = &before {
            for ms in [ms, BEGIN] {
                assert_eq!(queue.get(ms, before).await, Found::Unknown, "{way} at {ms}");
            }
        }
        before = Some(name);
    }
}

async fn as_many_ids_are_remembered_and_throttled_as_may_be(queue: &Queue) {
    finish(queue, BEGIN, "first").await;
    let throttled = |name: &String| {
        let reused = message(name).payload("").finished_ids(FinishedIds::Reuse);
        reused.throttle(millis(FINISHED_RETENTION_MS))
    };
    let names: Vec<_> = (0..MAX_THROTTLED_IDS).map(|n| n.to_string()).collect();
    // With one more, the first would be forgotten.
    let (finished, waiting) = names.split_at(MAX_FINISHED - 3);
    let created = Enqueued::Created { due: at(BEGIN) };
    for names in finished.chunks(MAX_BATCH).chain([waiting]) {
        let answers = queue.enqueue(BEGIN, names.iter().map(throttled).collect()).await;
        assert!(answers.iter().all(|answer| *answer == created), "{}: {answers:?}", names[0]);
        if names != waiting {
            queue.apply(BEGIN, &Op::Cancel(names.iter().map(|name| id(name)).collect())).await;
        }
    }
    let last = BEGIN + FINISHED_RETENTION_MS - 1;
    assert_known(queue, last, "first", true).await;
    assert_taken(queue, last, "first", false).await;
    let until = Enqueued::Throttled { until: at(last + 1) };
    assert_eq!(queue.enqueue_one(last, throttled(&names[0])).await, until);
    let one_more = queue.enqueue_one(last, throttled(&"one more".to_owned())).await;
    assert_eq!(one_more, Enqueued::TooManyThrottled);
}
