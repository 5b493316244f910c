//! Who may hold a message, and for how long.

use delayline_core::limits::{MAX_BATCH, MAX_RECLAIM};
use delayline_core::{DeathReason, Extended, MessageState, Outcome, Schedule, Settled, Status};

use super::queue::{Queue, at, claim, death, done, ids, lease, message, one, reject, retry};

super::cases! { "leases",
    a_leased_message_is_delivered_to_nobody_else: "G5",
    a_lease_ends_at_its_deadline_and_not_before: "G5, G21",
    a_stale_lease_changes_nothing: "G6",
    neither_token_nor_epoch_alone_is_a_fence: "G6",
    an_ended_lease_counts_until_it_is_taken_back: "G7",
    an_ended_lease_can_be_prolonged_until_it_is_taken_back: "G7",
    extending_moves_the_deadline: "G5",
    only_the_current_lease_can_be_extended: "G6",
    expired_leases_are_counted_and_kill_in_the_end: "G9, G11",
    failures_and_crashes_are_counted_apart: "G9",
    one_claim_takes_back_a_bounded_number_of_leases: "G21, G23",
    the_epoch_rises_with_every_claim: "G6, G9",
}

async fn a_leased_message_is_delivered_to_nobody_else(queue: &Queue) {
    queue.leased(0, message("a"), 100).await;
    for (token, ms) in [(2, 0), (3, 50), (4, 99)] {
        let claimed = queue.claim(ms, claim(token, 10, 100)).await;
        assert_eq!(ids(&claimed.deliveries), [""; 0], "at {ms}");
        assert_eq!((claimed.more, claimed.next), (false, Some(at(100))));
    }
}

async fn a_lease_ends_at_its_deadline_and_not_before(queue: &Queue) {
    queue.leased(10, message("a"), 90).await;
    assert_eq!(queue.claim_ids(99, claim(2, 10, 50)).await, [""; 0]);
    let taken = one(queue.claim(100, claim(3, 10, 50)).await.deliveries);
    assert_eq!(taken.lease, lease(3, 2));
    let info = taken.message.info;
    assert_eq!((info.crashes, info.failures, info.epoch), (1, 0, 2));
    assert_eq!(info.due, at(10), "an expired lease does not move the due instant");
    assert_eq!(info.state, MessageState::Leased { deadline: at(150), cancel_requested: false });
}

async fn a_stale_lease_changes_nothing(queue: &Queue) {
    let old = queue.leased(0, message("a"), 100).await;
    let new = one(queue.claim(100, claim(2, 1, 100)).await.deliveries).lease;
    let before = queue.live(101, "a").await;
    let outcomes = [
        Outcome::Ack,
        retry(0, "late"),
        Outcome::Snooze { schedule: Schedule::In(super::queue::millis(5)) },
        Outcome::Release,
        reject("late"),
    ];
    for outcome in outcomes {
        let settled = queue.end(101, "a", old, outcome.clone()).await;
        assert_eq!(settled, Settled::Stale, "{outcome:?}");
    }
    assert_eq!(queue.extend(101, "a", old, 9_000).await, Extended::Stale);
    assert_eq!(queue.live(101, "a").await, before);
    assert_eq!(queue.end(101, "a", new, Outcome::Ack).await, done(Status::Acked));
    assert_eq!(queue.end(102, "a", old, Outcome::Ack).await, Settled::Missing);
}

async fn neither_token_nor_epoch_alone_is_a_fence(queue: &Queue) {
    queue.leased(0, message("a"), 100).await;
    let before = queue.live(1, "a").await;
    for wrong in
        [lease(2, 1), lease(1, 2), lease(1, 0), lease(1, u64::MAX), lease(1, (1 << 53) + 1)]
    {
        assert_eq!(queue.end(1, "a", wrong, Outcome::Ack).await, Settled::Stale, "{wrong:?}");
        assert_eq!(queue.extend(1, "a", wrong, 500).await, Extended::Stale, "{wrong:?}");
    }
    assert_eq!(queue.live(1, "a").await, before);
    assert_eq!(queue.end(1, "a", lease(1, 1), Outcome::Ack).await, done(Status::Acked));
}

async fn an_ended_lease_counts_until_it_is_taken_back(queue: &Queue) {
    let held = queue.leased(0, message("a"), 10).await;
    let state = MessageState::Leased { deadline: at(10), cancel_requested: false };
    assert_eq!(queue.live(5_000, "a").await.info.state, state, "it was not reclaimed");
    assert_eq!(queue.stats(5_000).await.leased, 1);
    assert_eq!(queue.end(5_000, "a", held, Outcome::Ack).await, done(Status::Acked));
}

async fn an_ended_lease_can_be_prolonged_until_it_is_taken_back(queue: &Queue) {
    let held = queue.leased(0, message("a"), 10).await;
    let extended = Extended::Done { deadline: at(5_100), cancel_requested: false };
    assert_eq!(queue.extend(5_000, "a", held, 100).await, extended);
    assert_eq!(queue.claim_ids(5_099, claim(2, 10, 50)).await, [""; 0]);
    assert_eq!(queue.live(5_099, "a").await.info.crashes, 0);
}

async fn extending_moves_the_deadline(queue: &Queue) {
    let held = queue.leased(0, message("a"), 100).await;
    for (ms, for_ms) in [(50, 500), (60, 20)] {
        let deadline = at(ms + for_ms);
        let extended = Extended::Done { deadline, cancel_requested: false };
        assert_eq!(queue.extend(ms, "a", held, for_ms).await, extended);
    }
    assert_eq!(queue.claim(79, claim(2, 10, 50)).await.next, Some(at(80)));
    assert_eq!(queue.claim_ids(80, claim(3, 10, 50)).await, ["a"], "the latest deadline counts");
}

async fn only_the_current_lease_can_be_extended(queue: &Queue) {
    let held = queue.leased(0, message("a"), 100).await;
    queue.enqueue_one(0, message("waiting")).await;
    assert_eq!(queue.extend(1, "waiting", held, 50).await, Extended::Stale);
    assert_eq!(queue.extend(1, "absent", held, 50).await, Extended::Missing);
    queue.end(2, "a", held, Outcome::Release).await;
    assert_eq!(queue.extend(3, "a", held, 50).await, Extended::Stale);
    let held = one(queue.claim(4, claim(2, 1, 100)).await.deliveries).lease;
    queue.end(5, "a", held, Outcome::Ack).await;
    assert_eq!(queue.extend(6, "a", held, 50).await, Extended::Missing);
}

async fn expired_leases_are_counted_and_kill_in_the_end(queue: &Queue) {
    queue.enqueue_one(0, message("a").max_crashes(3)).await;
    for n in 0..3 {
        let taken = one(queue.claim(u64::from(n) * 10, claim(n, 10, 10)).await.deliveries);
        assert_eq!(taken.message.info.crashes, u32::from(n));
    }
    queue.enqueue_one(25, message("neighbour")).await;
    let claimed = queue.claim(35, claim(9, 10, 10)).await;
    assert_eq!(ids(&claimed.deliveries), ["neighbour"]);
    assert_eq!(claimed.deaths, [death("a", DeathReason::MaxCrashes)]);
    let info = queue.live(35, "a").await.info;
    let dead = MessageState::Dead { reason: DeathReason::MaxCrashes, since: at(35) };
    assert_eq!((info.state, info.crashes, info.failures, info.epoch), (dead, 3, 0, 3));
}

async fn failures_and_crashes_are_counted_apart(queue: &Queue) {
    let limited = message("a").max_failures(2).max_crashes(2);
    let held = queue.leased(0, limited, 10).await;
    assert_eq!(queue.end(1, "a", held, retry(0, "first")).await, done(Status::Ready));
    queue.claim(2, claim(2, 1, 10)).await;
    let held = one(queue.claim(12, claim(3, 1, 10)).await.deliveries);
    let info = &held.message.info;
    assert_eq!((info.failures, info.crashes, info.epoch), (1, 1, 3), "one of each is not two");
    assert_eq!(queue.end(13, "a", held.lease, retry(0, "last")).await, done(Status::Dead));
    let info = queue.live(13, "a").await.info;
    let dead = MessageState::Dead { reason: DeathReason::MaxFailures, since: at(13) };
    assert_eq!((info.state, info.failures, info.crashes), (dead, 2, 1));
}

async fn one_claim_takes_back_a_bounded_number_of_leases(queue: &Queue) {
    let messages: Vec<_> = (0..=MAX_RECLAIM).map(|n| message(&n.to_string())).collect();
    queue.enqueue(0, messages).await;
    let claimed = queue.claim(0, claim(1, MAX_BATCH, 10)).await;
    assert_eq!(claimed.deliveries.len(), MAX_RECLAIM + 1);
    let claimed = queue.claim(100, claim(3, 1, 50)).await;
    assert_eq!(ids(&claimed.deliveries), ["0"]);
    assert!(claimed.more);
    let most = u64::try_from(MAX_RECLAIM).unwrap_or(u64::MAX);
    let stats = queue.stats(100).await;
    assert_eq!((stats.leased, stats.ready), (2, most - 1), "one ended lease was left for the next");
    queue.claim(100, claim(4, 1, 50)).await;
    let stats = queue.stats(100).await;
    assert_eq!((stats.leased, stats.ready), (2, most - 1));
}

async fn the_epoch_rises_with_every_claim(queue: &Queue) {
    queue.enqueue_one(0, message("a")).await;
    for n in 1..=12 {
        let taken = one(queue.claim(0, claim(n, 1, 10)).await.deliveries);
        assert_eq!(taken.lease, lease(n, u64::from(n)));
        queue.end(0, "a", taken.lease, Outcome::Release).await;
    }
}
