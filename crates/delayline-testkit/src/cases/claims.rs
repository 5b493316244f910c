//! Claims that are repeated after a lost reply.

use delayline_core::limits::{JOURNAL_RETENTION_MS, MAX_BATCH, MAX_JOURNAL};
use delayline_core::{Outcome, Status};

use super::queue::{Queue, at, claim, consumer, done, ids, lease, message, one, token, with};

super::cases! { "claims",
    a_repeated_claim_answers_the_same_leases: "G16",
    a_repeated_claim_takes_nothing_new: "G16",
    a_repeated_claim_leaves_out_what_has_ended: "G16",
    a_repeated_claim_is_not_a_crash: "G9, G16",
    a_claim_that_got_nothing_may_get_something: "G16",
    the_next_claim_of_a_consumer_takes_new_messages: "G16",
    consumers_are_told_apart: "G16",
    a_claim_is_remembered_for_the_retention: "G16",
    a_repeated_claim_is_answered_while_paused: "G16, G17",
    a_repeated_claim_tells_of_extended_leases: "G16",
    the_memory_of_claims_is_bounded: "G16, G24",
}

async fn a_repeated_claim_answers_the_same_leases(queue: &Queue) {
    queue.enqueue(0, ["b", "a", "c"].map(message).to_vec()).await;
    let first = queue.claim(1, claim(1, 2, 100)).await;
    for ms in [1, 2, 99] {
        let again = queue.claim(ms, claim(1, 2, 100)).await;
        assert_eq!(again, first, "at {ms}");
    }
    assert_eq!(ids(&first.deliveries), ["b", "a"]);
}

async fn a_repeated_claim_takes_nothing_new(queue: &Queue) {
    queue.enqueue_one(0, message("a")).await;
    let first = queue.claim(1, claim(1, 10, 100)).await;
    queue.enqueue_one(2, message("b")).await;
    let again = queue.claim(3, claim(1, 10, 100)).await;
    assert_eq!(again.deliveries, first.deliveries);
    assert!(again.more, "b is ready for another claim");
    assert_eq!(queue.claim_ids(4, claim(2, 10, 100)).await, ["b"]);
}

async fn a_repeated_claim_leaves_out_what_has_ended(queue: &Queue) {
    queue.enqueue(0, ["acked", "released", "taken", "held"].map(message).to_vec()).await;
    queue.claim(0, claim(1, 10, 100)).await;
    let held = lease(1, 1);
    queue.end(1, "acked", held, Outcome::Ack).await;
    queue.end(1, "released", held, Outcome::Release).await;
    queue.extend(1, "held", held, 500).await;
    assert_eq!(queue.claim_ids(99, claim(1, 10, 100)).await, ["taken", "held"]);
    assert_eq!(queue.claim_ids(100, claim(1, 10, 100)).await, ["held"], "expired, not taken back");
    assert_eq!(queue.claim_ids(100, claim(2, 10, 900)).await, ["released", "taken"]);
    assert_eq!(queue.claim_ids(101, claim(1, 10, 100)).await, ["held"]);
}

async fn a_repeated_claim_is_not_a_crash(queue: &Queue) {
    queue.enqueue_one(0, message("a").max_crashes(1)).await;
    for ms in 0..5 {
        let taken = one(queue.claim(ms, claim(1, 1, 100)).await.deliveries);
        assert_eq!((taken.lease, taken.message.info.crashes), (lease(1, 1), 0));
    }
    assert_eq!(queue.end(5, "a", lease(1, 1), Outcome::Ack).await, done(Status::Acked));
}

async fn a_claim_that_got_nothing_may_get_something(queue: &Queue) {
    assert_eq!(queue.claim_ids(0, claim(1, 10, 100)).await, [""; 0]);
    queue.enqueue_one(1, message("a")).await;
    assert_eq!(queue.claim_ids(2, claim(1, 10, 100)).await, ["a"]);
}

async fn the_next_claim_of_a_consumer_takes_new_messages(queue: &Queue) {
    queue.enqueue(0, ["a", "b"].map(message).to_vec()).await;
    let next = |n| with(claim(1, 1, 100), |claim| claim.claim_id = token(n));
    assert_eq!(queue.claim_ids(0, next(1)).await, ["a"]);
    assert_eq!(queue.claim_ids(1, next(2)).await, ["b"]);
    assert_eq!(queue.claim_ids(2, next(2)).await, ["b"]);
    // A consumer makes one claim at a time: only its latest one can be repeated.
    assert_eq!(queue.claim_ids(3, next(1)).await, [""; 0]);
}

async fn consumers_are_told_apart(queue: &Queue) {
    queue.enqueue(0, ["a", "b"].map(message).to_vec()).await;
    let by = |name: &str| with(claim(7, 1, 100), |claim| claim.consumer = consumer(name));
    assert_eq!(queue.claim_ids(0, by("x")).await, ["a"]);
    assert_eq!(queue.claim_ids(1, by("y")).await, ["b"], "the same token, another consumer");
    assert_eq!(queue.claim_ids(2, by("x")).await, ["a"]);
    assert_eq!(queue.claim_ids(3, by("y")).await, ["b"]);
}

async fn a_claim_is_remembered_for_the_retention(queue: &Queue) {
    queue.enqueue_one(0, message("a")).await;
    let long = 86_400_000;
    assert_eq!(queue.claim_ids(10, claim(1, 1, long)).await, ["a"]);
    for ms in [JOURNAL_RETENTION_MS, JOURNAL_RETENTION_MS + 9] {
        assert_eq!(queue.claim_ids(ms, claim(1, 1, long)).await, ["a"], "at {ms}");
    }
    let late = 2 * JOURNAL_RETENTION_MS + 10;
    assert_eq!(queue.claim_ids(late, claim(1, 1, long)).await, [""; 0], "forgotten, still leased");
    assert_eq!(queue.end(late, "a", lease(1, 1), Outcome::Ack).await, done(Status::Acked));
}

async fn a_repeated_claim_is_answered_while_paused(queue: &Queue) {
    queue.enqueue(0, ["a", "b"].map(message).to_vec()).await;
    assert_eq!(queue.claim_ids(0, claim(1, 1, 100)).await, ["a"]);
    queue.pause(1).await;
    assert_eq!(queue.claim_ids(2, claim(1, 1, 100)).await, ["a"], "no new lease");
    assert_eq!(queue.claim_ids(3, claim(2, 1, 100)).await, [""; 0]);
}

async fn a_repeated_claim_tells_of_extended_leases(queue: &Queue) {
    use delayline_core::MessageState::Leased;
    let held = queue.leased(0, message("a"), 100).await;
    queue.extend(50, "a", held, 400).await;
    queue.cancel(60, "a").await;
    let again = one(queue.claim(70, claim(1, 1, 100)).await.deliveries);
    assert_eq!(again.lease, held);
    assert_eq!(again.message.info.state, Leased { deadline: at(450), cancel_requested: true });
}

async fn the_memory_of_claims_is_bounded(queue: &Queue) {
    let names: Vec<_> = (0..=2 * MAX_JOURNAL + 1).map(|n| n.to_string()).collect();
    for batch in names.chunks(MAX_BATCH) {
        queue.enqueue(0, batch.iter().map(|name| message(name)).collect()).await;
    }
    let by = |name: &str| with(claim(1, 1, 9_000), |claim| claim.consumer = consumer(name));
    let (last, full) = (&names[2 * MAX_JOURNAL + 1], &names[2 * MAX_JOURNAL]);
    assert_eq!(queue.claim_ids(0, by("0")).await, ["0"]);
    for (n, name) in names.iter().enumerate().take(2 * MAX_JOURNAL).skip(1) {
        if n == MAX_JOURNAL {
            assert_eq!(queue.claim_ids(0, by("0")).await, ["0"], "after {} others", n - 1);
        }
        assert_eq!(queue.claim_ids(0, by(name)).await, [name.as_str()]);
    }
    // A known consumer's next claim replaces its last one, and nothing else.
    let known = consumer(&names[2 * MAX_JOURNAL - 1]);
    let next = with(claim(2, 1, 9_000), |claim| claim.consumer = known);
    assert_eq!(queue.claim_ids(0, next).await, [full.as_str()]);
    assert_eq!(queue.claim_ids(0, by("0")).await, ["0"], "both generations are full");
    assert_eq!(queue.claim_ids(0, by("a new worker")).await, [last.as_str()]);
    // Forgotten, so it is a new claim; and there is nothing left to claim.
    assert_eq!(queue.claim_ids(0, by("0")).await, [""; 0]);
}
