//! How leases end.

use delayline_core::limits::FINISHED_RETENTION_MS;
use delayline_core::{
    DeathReason, Extended, Found, MessageState, Outcome, Schedule, Settled, Settlement, Status,
    Timestamp,
};

use super::queue::{
    Queue, at, claim, death, done, ended, id, lease, message, millis, one, reject, retry,
    undecodable,
};

super::cases! { "settle",
    every_settlement_can_be_repeated: "G8",
    a_repeated_ack_is_recognised_for_the_retention: "G8",
    a_repeated_settlement_never_hits_the_next_delivery: "G6, G8",
    a_different_settlement_is_no_repetition: "G8",
    a_repetition_tells_of_the_death_it_caused: "G8, G11",
    a_repetition_tells_of_no_other_death: "G8, G11",
    a_retry_waits_for_its_delay: "G4, G9",
    the_last_failure_kills: "G9, G11",
    the_first_and_the_latest_error_are_kept: "G11",
    a_release_costs_nothing: "G10",
    a_payload_that_no_worker_can_decode_dies_of_that: "G9, G11, G22",
    the_last_failure_decides_the_reason: "G9, G11",
    a_snooze_costs_nothing: "G10",
    a_settlement_until_an_instant_is_due_exactly_then: "G4, G9, G10, G22",
    a_settlement_until_a_past_instant_is_due_now: "G4, G8, G12",
    a_reject_goes_straight_to_the_dead_letters: "G11",
    items_of_a_batch_are_independent_and_in_order: "G18",
    a_new_message_of_an_old_id_is_safe_from_old_leases: "G6, G15",
}

async fn every_settlement_can_be_repeated(queue: &Queue) {
    let outcomes = [
        ("ack", Outcome::Ack, Status::Acked),
        ("retry", retry(50, "boom"), Status::Scheduled),
        ("undecodable", undecodable(50, "no such variant"), Status::Scheduled),
        ("snooze", Outcome::Snooze { schedule: Schedule::In(millis(50)) }, Status::Scheduled),
        ("release", Outcome::Release, Status::Ready),
        ("reject", reject("boom"), Status::Dead),
    ];
    for (name, outcome, status) in outcomes {
        queue.enqueue_one(0, message(name)).await;
        // A longer lease than in the other cases, and a separate token for every message.
        let token = name.as_bytes()[2];
        let claimed = queue.claim(0, claim(token, 1, 60_000)).await;
        let held = one(claimed.deliveries).lease;
        assert_eq!(queue.end(1, name, held, outcome.clone()).await, done(status), "{name}");
        let after = queue.get(2, name).await;
        for ms in [2, 3] {
            let again = queue.end(ms, name, held, outcome.clone()).await;
            let ended = matches!(status, Status::Acked | Status::Dead).then_some(status);
            assert_eq!(again, Settled::AlreadyDone { ended }, "{name}");
        }
        assert_eq!(queue.get(2, name).await, after, "{name}");
        // Make way for the next.
        queue.cancel(4, name).await;
    }
}

async fn a_repeated_ack_is_recognised_for_the_retention(queue: &Queue) {
    let held = queue.leased(0, message("a"), 100).await;
    assert_eq!(queue.end(10, "a", held, Outcome::Ack).await, done(Status::Acked));
    for ms in [10, 1_000, FINISHED_RETENTION_MS, FINISHED_RETENTION_MS + 9] {
        let again = queue.end(ms, "a", held, Outcome::Ack).await;
        assert_eq!(again, ended(Status::Acked), "at {ms}");
    }
    let forgotten = 2 * FINISHED_RETENTION_MS + 10;
    assert_eq!(queue.end(forgotten, "a", held, Outcome::Ack).await, Settled::Missing);
    assert_eq!(queue.get(forgotten, "a").await, Found::Unknown);
}

async fn a_repeated_settlement_never_hits_the_next_delivery(queue: &Queue) {
    let first = queue.leased(0, message("a"), 100).await;
    queue.end(1, "a", first, Outcome::Release).await;
    let second = one(queue.claim(2, claim(2, 1, 100)).await.deliveries).lease;
    assert_eq!(queue.end(3, "a", first, Outcome::Release).await, Settled::Stale);
    let extended = Extended::Done { deadline: at(104), cancel_requested: false };
    assert_eq!(queue.extend(4, "a", second, 100).await, extended);
}

async fn a_different_settlement_is_no_repetition(queue: &Queue) {
    let held = queue.leased(0, message("a"), 100).await;
    queue.end(1, "a", held, retry(50, "boom")).await;
    assert_eq!(queue.end(2, "a", held, Outcome::Ack).await, Settled::Stale);
    assert_eq!(queue.end(2, "a", held, Outcome::Release).await, Settled::Stale);
    let held = one(queue.claim(51, claim(2, 1, 100)).await.deliveries).lease;
    queue.end(52, "a", held, Outcome::Ack).await;
    assert_eq!(queue.end(53, "a", held, retry(0, "late")).await, Settled::Missing);
    assert_eq!(queue.get(53, "a").await, Found::Finished(Status::Acked));
}

async fn a_repetition_tells_of_the_death_it_caused(queue: &Queue) {
    queue.enqueue_one(0, message("a").max_failures(2)).await;
    let first = one(queue.claim(0, claim(1, 1, 100)).await.deliveries).lease;
    assert_eq!(queue.end(1, "a", first, retry(0, "boom")).await, done(Status::Ready));
    let not_ended = Settled::AlreadyDone { ended: None };
    assert_eq!(queue.end(1, "a", first, retry(0, "boom")).await, not_ended);
    let last = one(queue.claim(1, claim(2, 1, 100)).await.deliveries).lease;
    assert_eq!(queue.end(2, "a", last, retry(0, "boom")).await, done(Status::Dead));
    assert_eq!(queue.end(3, "a", last, retry(0, "boom")).await, ended(Status::Dead));
    assert_eq!(queue.end(3, "a", first, retry(0, "boom")).await, Settled::Stale);
    // After the redrive, it is no longer what the settlement made of it.
    queue.redrive(4, "a", Schedule::NOW).await;
    assert_eq!(queue.end(5, "a", last, retry(0, "boom")).await, Settled::Stale);
}

async fn a_repetition_tells_of_no_other_death(queue: &Queue) {
    let expires = Some(Schedule::In(millis(50)));
    let held = queue.leased(0, message("a").expires(expires), 40).await;
    queue.end(10, "a", held, retry(0, "boom")).await;
    let deaths = queue.claim(50, claim(2, 1, 100)).await.deaths;
    assert_eq!(deaths, [death("a", DeathReason::Expired)]);
    let again = queue.end(51, "a", held, retry(0, "boom")).await;
    assert_eq!(again, Settled::AlreadyDone { ended: None });
}

async fn a_retry_waits_for_its_delay(queue: &Queue) {
    let held = queue.leased(0, message("a"), 100).await;
    assert_eq!(queue.end(20, "a", held, retry(333, "boom")).await, done(Status::Scheduled));
    assert_eq!(queue.claim(352, claim(2, 1, 50)).await.next, Some(at(353)));
    let taken = one(queue.claim(353, claim(3, 1, 50)).await.deliveries);
    let info = taken.message.info;
    assert_eq!((info.due, info.failures, info.crashes, info.epoch), (at(353), 1, 0, 2));
}

async fn the_last_failure_kills(queue: &Queue) {
    queue.enqueue_one(0, message("a").max_failures(3)).await;
    for n in 1..=3 {
        let held = one(queue.claim(0, claim(n, 1, 100)).await.deliveries).lease;
        let expected = if n < 3 { Status::Ready } else { Status::Dead };
        assert_eq!(queue.end(0, "a", held, retry(0, "boom")).await, done(expected));
    }
    let info = queue.live(0, "a").await.info;
    let dead = MessageState::Dead { reason: DeathReason::MaxFailures, since: at(0) };
    assert_eq!((info.state, info.failures, info.epoch), (dead, 3, 3));
    assert_eq!(queue.claim_ids(9_000, claim(4, 1, 100)).await, [""; 0]);
}

async fn the_first_and_the_latest_error_are_kept(queue: &Queue) {
    queue.enqueue_one(0, message("a")).await;
    let errors = ["", "first", "", "second", "third"];
    let expected = [
        (None, None),
        (Some("first"), Some("first")),
        (Some("first"), Some("first")),
        (Some("first"), Some("second")),
        (Some("first"), Some("third")),
    ];
    for (n, (error, (first, last))) in (1..).zip(errors.into_iter().zip(expected)) {
        let held = one(queue.claim(0, claim(n, 1, 100)).await.deliveries).lease;
        queue.end(0, "a", held, retry(0, error)).await;
        let info = queue.live(0, "a").await.info;
        let kept = (info.first_error.as_deref(), info.last_error.as_deref());
        assert_eq!(kept, (first, last), "after {error:?}");
    }
}

async fn a_release_costs_nothing(queue: &Queue) {
    let limited = message("a").max_failures(1).max_crashes(1);
    queue.enqueue_one(0, limited).await;
    for n in 1..=5 {
        let held = one(queue.claim(7, claim(n, 1, 100)).await.deliveries).lease;
        assert_eq!(queue.end(8, "a", held, Outcome::Release).await, done(Status::Ready));
    }
    let info = queue.live(8, "a").await.info;
    assert_eq!((info.due, info.failures, info.crashes), (at(0), 0, 0));
}

async fn a_snooze_costs_nothing(queue: &Queue) {
    let limited = message("a").max_failures(1).max_crashes(1);
    let held = queue.leased(0, limited, 100).await;
    let snooze = Outcome::Snooze { schedule: Schedule::In(millis(40)) };
    assert_eq!(queue.end(10, "a", held, snooze).await, done(Status::Scheduled));
    assert_eq!(queue.claim_ids(49, claim(2, 1, 50)).await, [""; 0]);
    let info = one(queue.claim(50, claim(3, 1, 50)).await.deliveries).message.info;
    assert_eq!((info.due, info.failures, info.crashes), (at(50), 0, 0));
}

async fn a_payload_that_no_worker_can_decode_dies_of_that(queue: &Queue) {
    queue.enqueue_one(0, message("a").max_failures(2)).await;
    let first = one(queue.claim(0, claim(1, 1, 100)).await.deliveries).lease;
    let failure = undecodable(40, "unknown variant");
    assert_eq!(queue.end(10, "a", first, failure.clone()).await, done(Status::Scheduled));
    let not_ended = Settled::AlreadyDone { ended: None };
    assert_eq!(queue.end(11, "a", first, failure.clone()).await, not_ended);
    assert_eq!(queue.end(11, "a", first, retry(40, "boom")).await, Settled::Stale);
    assert_eq!(queue.claim_ids(49, claim(2, 1, 100)).await, [""; 0]);

    let again = one(queue.claim(50, claim(3, 1, 100)).await.deliveries);
    let (last, info) = (again.lease, again.message.info);
    assert_eq!((info.due, info.failures, info.crashes), (at(50), 1, 0));
    assert_eq!(info.last_error.as_deref(), Some("unknown variant"));
    assert_eq!(queue.end(60, "a", last, failure.clone()).await, done(Status::Dead));
    assert_eq!(queue.end(61, "a", last, failure).await, ended(Status::Dead));

    let info = queue.live(61, "a").await.info;
    let dead = MessageState::Dead { reason: DeathReason::Undecodable, since: at(60) };
    assert_eq!((info.state, info.failures, info.crashes), (dead, 2, 0));
    let totals = queue.stats(61).await.totals;
    assert_eq!((totals.died_undecodable, totals.died(), totals.failed), (1, 1, 2));
    queue.redrive(62, "a", Schedule::NOW).await;
    let info = queue.live(62, "a").await.info;
    assert_eq!((info.state, info.failures), (MessageState::Ready, 0));
}

async fn the_last_failure_decides_the_reason(queue: &Queue) {
    let failures = [retry(0, "boom"), undecodable(0, "unknown variant")];
    for (n, name, last) in [(0, "a", 0), (1, "b", 1)] {
        queue.enqueue_one(0, message(name).max_failures(2)).await;
        for (epoch, which) in [(1, 1 - last), (2, last)] {
            let held = one(queue.claim(0, claim(2 * n + epoch, 1, 100)).await.deliveries).lease;
            queue.end(0, name, held, failures[which].clone()).await;
        }
        let reason = [DeathReason::MaxFailures, DeathReason::Undecodable][last];
        let dead = MessageState::Dead { reason, since: at(0) };
        assert_eq!(queue.live(0, name).await.info.state, dead, "{name}");
    }
}

/// Instants of settlements, each with whether it counts as a failure.
fn until(instant: Timestamp) -> [(&'static str, Outcome, u32); 3] {
    let (schedule, error) = (Schedule::At(instant), "busy".to_owned());
    [
        ("snooze", Outcome::Snooze { schedule }, 0),
        ("retry", Outcome::Retry { schedule, error: error.clone() }, 1),
        ("undecodable", Outcome::Undecodable { schedule, error }, 1),
    ]
}

async fn a_settlement_until_an_instant_is_due_exactly_then(queue: &Queue) {
    for (n, (name, outcome, failures)) in (1..).zip(until(at(500))) {
        let held = queue.leased_as(n, 0, message(name), 100).await;
        // Neither the time of the settlement nor that of its repetition matters.
        let settled = queue.end(7 * u64::from(n), name, held, outcome.clone()).await;
        assert_eq!(settled, done(Status::Scheduled), "{name}");
        let again = queue.end(90, name, held, outcome).await;
        assert_eq!(again, Settled::AlreadyDone { ended: None }, "{name}");
        let info = queue.live(90, name).await.info;
        assert_eq!((info.due, info.failures), (at(500), failures), "{name}");
    }
    let early = queue.claim(499, claim(8, 3, 100)).await;
    assert_eq!((early.deliveries.len(), early.next), (0, Some(at(500))));
    let taken = queue.claim(503, claim(9, 3, 100)).await.deliveries;
    assert_eq!(taken.len(), 3);
    for delivery in taken {
        assert_eq!(delivery.lateness(at(503)).as_millis(), 3, "{delivery:?}");
    }
    // The latest instant is one, too.
    let held = queue.leased_as(10, 503, message("far"), 100).await;
    let far = Outcome::Snooze { schedule: Schedule::At(Timestamp::MAX) };
    assert_eq!(queue.end(504, "far", held, far).await, done(Status::Scheduled));
    assert_eq!(queue.live(504, "far").await.info.due, Timestamp::MAX);
}

async fn a_settlement_until_a_past_instant_is_due_now(queue: &Queue) {
    let mut all = Vec::new();
    for (n, (name, outcome, _)) in (1..).zip(until(at(3))) {
        let held = queue.leased_as(n, 10, message(name), 100).await;
        all.push(Settlement::new(id(name), held, outcome));
    }
    assert_eq!(queue.settle(20, all).await, [done(Status::Ready); 3]);
    queue.enqueue_one(20, message("later")).await;
    // The message that is due since 1970 is ahead of all.
    let held = queue.leased_as(9, 20, message("first").schedule(Schedule::At(at(0))), 100).await;
    let (_, outcome, _) = until(Timestamp::MIN)[0].clone();
    assert_eq!(queue.end(21, "first", held, outcome).await, done(Status::Ready));
    let order = queue.claim_ids(21, claim(10, 9, 100)).await;
    assert_eq!(order, ["first", "snooze", "retry", "undecodable", "later"]);
}

async fn a_reject_goes_straight_to_the_dead_letters(queue: &Queue) {
    let held = queue.leased(0, message("a"), 100).await;
    assert_eq!(queue.end(5, "a", held, reject("not for me")).await, done(Status::Dead));
    let info = queue.live(5, "a").await.info;
    let dead = MessageState::Dead { reason: DeathReason::Rejected, since: at(5) };
    assert_eq!((info.state, info.failures, info.crashes), (dead, 0, 0));
    assert_eq!(info.last_error.as_deref(), Some("not for me"));
}

async fn items_of_a_batch_are_independent_and_in_order(queue: &Queue) {
    queue.enqueue(0, ["a", "b", "c", "d"].map(message).to_vec()).await;
    queue.claim(0, claim(1, 3, 100)).await;
    let item = |name: &str, lease, outcome| Settlement::new(id(name), lease, outcome);
    let held = lease(1, 1);
    let settled = queue
        .settle(
            1,
            vec![
                item("absent", held, Outcome::Ack),
                item("c", held, Outcome::Ack),
                item("b", lease(2, 1), Outcome::Ack),
                item("d", held, Outcome::Ack),
                item("a", held, retry(10, "boom")),
            ],
        )
        .await;
    use Settled::{Missing, Stale};
    assert_eq!(settled, [Missing, done(Status::Acked), Stale, Stale, done(Status::Scheduled)]);
    let stats = queue.stats(1).await;
    let counts = (stats.scheduled, stats.ready, stats.leased, stats.totals.acked);
    assert_eq!(counts, (1, 1, 1, 1));
}

async fn a_new_message_of_an_old_id_is_safe_from_old_leases(queue: &Queue) {
    use delayline_core::FinishedIds::Reuse;
    let old = queue.leased(0, message("a"), 100).await;
    queue.end(1, "a", old, Outcome::Ack).await;
    queue.enqueue_one(2, message("a").finished_ids(Reuse)).await;
    assert_eq!(queue.end(3, "a", old, Outcome::Ack).await, Settled::Stale);
    let new = one(queue.claim(3, claim(2, 1, 100)).await.deliveries).lease;
    assert_eq!(queue.end(4, "a", old, Outcome::Ack).await, Settled::Stale);
    assert_eq!(queue.end(5, "a", new, Outcome::Ack).await, done(Status::Acked));
}
