//! Each event is counted once, by any call and however often it is repeated.

use delayline_core::{DeathReason, Op, Outcome, Schedule, Settlement, Status, Totals};

use super::queue::{Queue, after, claim, done, ended, id, lease, message, one, reject, retry};

super::cases! { "totals",
    every_end_of_a_lease_is_counted: "G22",
    deaths_are_counted_by_reason: "G9, G22",
    a_death_is_counted_each_time: "G11, G22",
    deliveries_are_counted_by_lateness: "G4, G22",
    lateness_is_counted_from_the_latest_due_time: "G22",
    a_repetition_is_not_counted: "G8, G16, G22",
    what_changes_nothing_is_not_counted: "G6, G22",
    a_cancelled_lease_counts_as_neither_failure_nor_crash: "G13, G22",
    one_claim_counts_what_it_takes_back_and_what_it_leases: "G21, G22",
    a_large_batch_is_counted_whole: "G22, G23",
}

/// The totals, but for enqueued messages: every case knows those.
async fn totals(queue: &Queue, ms: u64) -> Totals {
    let mut totals = queue.stats(ms).await.totals;
    totals.enqueued = 0;
    totals
}

fn totals_with(change: impl FnOnce(&mut Totals)) -> Totals {
    let mut totals = Totals::default();
    change(&mut totals);
    totals
}

async fn every_end_of_a_lease_is_counted(queue: &Queue) {
    queue.enqueue(0, ["a", "b", "c", "d", "e", "f"].map(message).to_vec()).await;
    queue.claim(0, claim(1, 6, 100)).await;
    let outcomes = [
        Outcome::Ack,
        retry(900, "boom"),
        Outcome::Snooze { schedule: Schedule::In(super::queue::millis(900)) },
        Outcome::Release,
        reject("boom"),
    ];
    let mut expected = totals_with(|totals| totals.lateness[0] = 6);
    assert_eq!(totals(queue, 1).await, expected);
    for (name, outcome) in ["a", "b", "c", "d", "e"].into_iter().zip(outcomes) {
        queue.end(1, name, lease(1, 1), outcome).await;
    }
    expected.acked = 1;
    expected.failed = 1;
    expected.snoozed = 1;
    expected.released = 1;
    expected.died_rejected = 1;
    assert_eq!(totals(queue, 1).await, expected);
    queue.pause(99).await;
    queue.claim(100, claim(2, 1, 100)).await;
    expected.crashed = 1;
    assert_eq!(totals(queue, 100).await, expected);
    queue.cancel(101, "f").await;
    queue.purge(101, "e").await;
    (expected.cancelled, expected.purged) = (1, 1);
    assert_eq!(totals(queue, 101).await, expected);
}

async fn deaths_are_counted_by_reason(queue: &Queue) {
    let frail = |name| message(name).max_failures(1).max_crashes(1);
    let (fails, crashes) = (frail("fails"), frail("crashes"));
    let expires = message("expires").expires(after(5));
    queue.enqueue(0, vec![fails, crashes, message("rejected"), expires]).await;
    queue.claim(0, claim(1, 3, 10)).await;
    queue.end(1, "fails", lease(1, 1), retry(0, "boom")).await;
    queue.end(1, "rejected", lease(1, 1), reject("boom")).await;
    assert_eq!(queue.claim(10, claim(2, 9, 10)).await.deaths.len(), 2);
    let totals = totals(queue, 10).await;
    for (&reason, count) in DeathReason::ALL.iter().zip([1, 1, 1, 0, 1, 0]) {
        assert_eq!(totals.died_of(reason), count, "{reason:?}");
    }
    assert_eq!((totals.died(), totals.failed, totals.crashed, totals.delivered()), (4, 1, 1, 3));
}

async fn a_death_is_counted_each_time(queue: &Queue) {
    queue.enqueue_one(0, message("a")).await;
    for n in 1..=3 {
        queue.claim(0, claim(n, 1, 100)).await;
        queue.end(0, "a", lease(n, n.into()), reject("boom")).await;
        queue.redrive(0, "a", Schedule::NOW).await;
        queue.redrive(0, "a", Schedule::NOW).await;
    }
    let totals = totals(queue, 0).await;
    assert_eq!((totals.died_rejected, totals.redriven, totals.delivered()), (3, 3, 3));
}

async fn deliveries_are_counted_by_lateness(queue: &Queue) {
    // Each claim takes the messages of several buckets, most of them late by a power of two.
    let late = [0, 1, 2, 3, 4, 7, 8, 100, 4_096, 32_767, 32_768, 100_000_000];
    let now = 200_000_000;
    let due = |late| Schedule::At(super::queue::at(now - late));
    let messages = late.map(|late| message(&late.to_string()).schedule(due(late)));
    queue.enqueue(0, messages.to_vec()).await;
    queue.claim(now, claim(1, 5, 100)).await;
    queue.claim(now, claim(2, 50, 100)).await;
    let mut expected = Totals::default();
    for (bucket, count) in [(0, 2), (1, 2), (2, 2), (3, 1), (6, 1), (12, 1), (14, 1), (15, 2)] {
        expected.lateness[bucket] = count;
    }
    assert_eq!(totals(queue, now).await, expected);
}

async fn lateness_is_counted_from_the_latest_due_time(queue: &Queue) {
    queue.enqueue_one(0, message("a")).await;
    queue.claim(0, claim(1, 1, 1_000)).await;
    queue.end(500, "a", lease(1, 1), retry(500, "boom")).await;
    queue.claim(1_000, claim(2, 1, 1_000)).await;
    let mut expected = totals_with(|totals| (totals.lateness[0], totals.failed) = (2, 1));
    assert_eq!(totals(queue, 1_000).await, expected);
    queue.end(1_016, "a", lease(2, 2), Outcome::Release).await;
    queue.claim(1_016, claim(3, 1, 1_000)).await;
    (expected.lateness[4], expected.released) = (1, 1);
    assert_eq!(totals(queue, 1_016).await, expected);
    queue.claim(2_016, claim(4, 1, 1_000)).await;
    (expected.lateness[9], expected.crashed) = (1, 1);
    assert_eq!(totals(queue, 2_016).await, expected, "late by 1,016 ms, with the expired lease");
}

async fn a_repetition_is_not_counted(queue: &Queue) {
    queue.enqueue(0, ["a", "b", "c"].map(message).to_vec()).await;
    for _ in 0..3 {
        assert_eq!(queue.claim(8, claim(1, 3, 100)).await.deliveries.len(), 3);
    }
    let mut expected = totals_with(|totals| totals.lateness[3] = 3);
    assert_eq!(totals(queue, 8).await, expected);
    let items = [("a", retry(9_000, "boom")), ("b", Outcome::Release), ("c", reject("boom"))];
    for _ in 0..3 {
        for (name, outcome) in items.clone() {
            queue.end(9, name, lease(1, 1), outcome).await;
        }
    }
    (expected.failed, expected.released, expected.died_rejected) = (1, 1, 1);
    assert_eq!(totals(queue, 9).await, expected);
}

async fn what_changes_nothing_is_not_counted(queue: &Queue) {
    queue.enqueue_one(0, message("a")).await;
    queue.claim(0, claim(1, 1, 100)).await;
    let expected = totals(queue, 0).await;
    for outcome in [retry(0, "boom"), Outcome::Release, reject("boom")] {
        queue.end(1, "a", lease(9, 1), outcome.clone()).await;
        queue.end(1, "absent", lease(1, 1), outcome).await;
    }
    queue.redrive(1, "a", Schedule::NOW).await;
    queue.extend(1, "a", lease(1, 1), 100).await;
    queue.claim(2, claim(2, 9, 100)).await;
    assert_eq!(totals(queue, 2).await, expected);
}

async fn a_cancelled_lease_counts_as_neither_failure_nor_crash(queue: &Queue) {
    queue.enqueue(0, ["a", "b"].map(message).to_vec()).await;
    queue.claim(0, claim(1, 2, 100)).await;
    queue.cancel(1, "a").await;
    queue.cancel(1, "b").await;
    assert_eq!(queue.end(2, "a", lease(1, 1), retry(0, "boom")).await, done(Status::Cancelled));
    assert_eq!(queue.end(2, "a", lease(1, 1), retry(0, "boom")).await, ended(Status::Cancelled));
    queue.claim(100, claim(2, 1, 100)).await;
    let expected = totals_with(|totals| (totals.lateness[0], totals.cancelled) = (2, 2));
    assert_eq!(totals(queue, 100).await, expected);
}

async fn one_claim_counts_what_it_takes_back_and_what_it_leases(queue: &Queue) {
    let frail = message("a").max_crashes(1);
    queue.enqueue(0, vec![frail, message("b")]).await;
    queue.claim(0, claim(1, 2, 10)).await;
    let again = queue.claim(10, claim(2, 9, 10)).await;
    assert_eq!((one(again.deliveries).message.info.id, again.deaths.len()), (id("b"), 1));
    let mut expected = totals_with(|totals| (totals.crashed, totals.died_max_crashes) = (2, 1));
    (expected.lateness[0], expected.lateness[3]) = (2, 1);
    assert_eq!(totals(queue, 10).await, expected);
}

async fn a_large_batch_is_counted_whole(queue: &Queue) {
    let names: Vec<_> = (0..1_000).map(|n| format!("message-{n}")).collect();
    let frail = |name: &String| message(name).max_failures(1);
    queue.enqueue(0, names.iter().map(frail).collect()).await;
    let all = claim(1, 1_000, 100);
    assert_eq!(queue.claim(0, all).await.deliveries.len(), 1_000);
    let failure = |name: &String| Settlement::new(id(name), lease(1, 1), retry(0, "boom"));
    queue.settle(1, names.iter().map(failure).collect()).await;
    let totals = totals(queue, 1).await;
    assert_eq!((totals.delivered(), totals.failed), (1_000, 1_000));
    assert_eq!(totals.died_max_failures, 1_000);
    let ids = names.iter().map(|name| id(name)).collect();
    queue.apply(2, &Op::Purge(ids)).await;
}
