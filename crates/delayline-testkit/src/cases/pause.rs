//! Pausing.

use delayline_core::{Extended, Outcome, Schedule, Status};

use super::queue::{Queue, after, at, claim, done, lease, message, retry};

super::cases! { "pause",
    no_lease_is_made_while_paused: "G17",
    everything_but_claims_goes_on: "G17",
    pausing_and_resuming_tell_whether_they_changed_something: "G17",
    leases_run_out_while_paused: "G17, G21",
}

async fn no_lease_is_made_while_paused(queue: &Queue) {
    queue.enqueue_one(0, message("a")).await;
    queue.pause(1).await;
    let claimed = queue.claim(2, claim(1, 1, 50)).await;
    assert_eq!((claimed.deliveries.len(), claimed.more, claimed.next), (0, false, None));
    assert!(queue.stats(2).await.paused);
    queue.resume(3).await;
    assert_eq!(queue.claim_ids(4, claim(2, 1, 50)).await, ["a"]);
    assert!(!queue.stats(4).await.paused);
}

async fn everything_but_claims_goes_on(queue: &Queue) {
    queue.enqueue(0, ["a", "b", "c"].map(message).to_vec()).await;
    queue.claim(0, claim(1, 3, 100)).await;
    queue.pause(1).await;
    let held = lease(1, 1);
    let extended = Extended::Done { deadline: at(502), cancel_requested: false };
    assert_eq!(queue.extend(2, "a", held, 500).await, extended);
    assert_eq!(queue.end(3, "a", held, Outcome::Ack).await, done(Status::Acked));
    assert_eq!(queue.end(3, "b", held, retry(0, "boom")).await, done(Status::Ready));
    queue.enqueue_one(4, message("new").schedule(after(5))).await;
    queue.reschedule(5, "new", Schedule::NOW).await;
    assert_eq!(queue.cancel(6, "b").await, delayline_core::Cancelled::Cancelled);
    assert_eq!(queue.live(7, "new").await.info.due, at(5));
}

async fn pausing_and_resuming_tell_whether_they_changed_something(queue: &Queue) {
    assert!(!queue.resume(0).await);
    assert!(queue.pause(1).await);
    assert!(!queue.pause(2).await);
    assert!(queue.resume(3).await);
    assert!(!queue.resume(4).await);
}

async fn leases_run_out_while_paused(queue: &Queue) {
    queue.leased(0, message("a"), 10).await;
    queue.pause(1).await;
    assert_eq!(queue.claim_ids(20, claim(2, 1, 50)).await, [""; 0]);
    let info = queue.live(20, "a").await.info;
    assert_eq!((info.state.status(), info.crashes), (Status::Ready, 1));
}
