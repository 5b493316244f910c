//! Cancelling messages.

use delayline_core::Cancelled::{Cancelled, InFlight, NotFound};
use delayline_core::{Extended, Found, Op, Outcome, Reply, Schedule, Settled, Status};

use super::queue::{Queue, after, at, claim, done, ended, id, message, one, reject, retry};

super::cases! { "cancel",
    a_cancelled_message_is_never_delivered: "G13",
    cancelling_again_answers_the_same: "G13",
    a_worker_learns_of_it_when_it_extends: "G13",
    an_ack_still_wins: "G13",
    whatever_else_ends_the_lease_ends_the_message: "G13",
    a_lease_that_runs_out_ends_the_message: "G13",
    a_dead_letter_can_be_cancelled: "G13",
    what_was_acked_cannot_be_cancelled: "G13",
    items_of_a_batch_are_independent: "G13, G18",
}

async fn a_cancelled_message_is_never_delivered(queue: &Queue) {
    queue.enqueue(0, vec![message("ready"), message("later").schedule(after(50))]).await;
    for name in ["ready", "later"] {
        assert_eq!(queue.cancel(10, name).await, Cancelled);
        assert_eq!(queue.get(10, name).await, Found::Finished(Status::Cancelled));
    }
    let claimed = queue.claim(9_000, claim(1, 10, 50)).await;
    assert_eq!((claimed.deliveries.len(), claimed.more, claimed.next), (0, false, None));
    let stats = queue.stats(9_000).await;
    assert_eq!((stats.totals.cancelled, stats.totals.enqueued, stats.scheduled), (2, 2, 0));
}

async fn cancelling_again_answers_the_same(queue: &Queue) {
    queue.enqueue_one(0, message("a")).await;
    for ms in [1, 2, 1_000] {
        assert_eq!(queue.cancel(ms, "a").await, Cancelled);
    }
    queue.leased(2_000, message("b"), 100).await;
    for ms in [2_001, 2_002] {
        assert_eq!(queue.cancel(ms, "b").await, InFlight);
    }
    assert_eq!(queue.stats(2_002).await.totals.cancelled, 1);
}

async fn a_worker_learns_of_it_when_it_extends(queue: &Queue) {
    let held = queue.leased(0, message("a"), 100).await;
    assert_eq!(queue.cancel(10, "a").await, InFlight);
    let told = Extended::Done { deadline: at(120), cancel_requested: true };
    assert_eq!(queue.extend(20, "a", held, 100).await, told);
    assert_eq!(queue.cancel(30, "a").await, InFlight, "extending does not forget it");
    assert_eq!(queue.end(40, "a", held, Outcome::Release).await, done(Status::Cancelled));
}

async fn an_ack_still_wins(queue: &Queue) {
    let held = queue.leased(0, message("a"), 100).await;
    assert_eq!(queue.cancel(10, "a").await, InFlight);
    assert_eq!(queue.end(20, "a", held, Outcome::Ack).await, done(Status::Acked));
    assert_eq!(queue.cancel(30, "a").await, NotFound);
    let stats = queue.stats(30).await;
    assert_eq!((stats.totals.acked, stats.totals.cancelled), (1, 0));
}

async fn whatever_else_ends_the_lease_ends_the_message(queue: &Queue) {
    let outcomes = [
        retry(0, "boom"),
        Outcome::Snooze { schedule: Schedule::In(super::queue::millis(5)) },
        Outcome::Release,
        reject("boom"),
    ];
    for (n, outcome) in (1..).zip(outcomes) {
        let name = format!("message-{n}");
        // Its last allowed failure: the cancel request takes precedence over death.
        queue.enqueue_one(0, message(&name).max_failures(1)).await;
        let held = one(queue.claim(0, claim(n, 1, 100)).await.deliveries).lease;
        assert_eq!(queue.cancel(1, &name).await, InFlight);
        let settled = queue.end(2, &name, held, outcome.clone()).await;
        assert_eq!(settled, done(Status::Cancelled), "{outcome:?}");
        let again = queue.end(3, &name, held, outcome.clone()).await;
        assert_eq!(again, ended(Status::Cancelled), "{outcome:?}");
        assert_eq!(queue.get(3, &name).await, Found::Finished(Status::Cancelled));
    }
    assert_eq!(queue.stats(4).await.dead, 0);
}

async fn a_lease_that_runs_out_ends_the_message(queue: &Queue) {
    let held = queue.leased(0, message("a"), 100).await;
    assert_eq!(queue.cancel(10, "a").await, InFlight);
    assert_eq!(queue.claim_ids(100, claim(2, 1, 100)).await, [""; 0]);
    assert_eq!(queue.get(100, "a").await, Found::Finished(Status::Cancelled));
    assert_eq!(queue.end(101, "a", held, Outcome::Ack).await, Settled::Missing);
}

async fn a_dead_letter_can_be_cancelled(queue: &Queue) {
    let held = queue.leased(0, message("a"), 100).await;
    queue.end(1, "a", held, reject("boom")).await;
    assert_eq!(queue.cancel(2, "a").await, Cancelled);
    let stats = queue.stats(2).await;
    assert_eq!((stats.dead, stats.totals.cancelled, stats.totals.purged), (0, 1, 0));
}

async fn what_was_acked_cannot_be_cancelled(queue: &Queue) {
    let held = queue.leased(0, message("a"), 100).await;
    queue.end(1, "a", held, Outcome::Ack).await;
    assert_eq!(queue.cancel(2, "a").await, NotFound);
    assert_eq!(queue.cancel(2, "absent").await, NotFound);
    assert_eq!(queue.get(2, "a").await, Found::Finished(Status::Acked));
}

async fn items_of_a_batch_are_independent(queue: &Queue) {
    queue.leased(0, message("leased"), 100).await;
    queue.enqueue_one(1, message("ready")).await;
    let op = Op::Cancel(["absent", "ready", "leased"].map(id).to_vec());
    assert_eq!(queue.apply(2, &op).await.reply, Reply::Cancel(vec![NotFound, Cancelled, InFlight]));
}
