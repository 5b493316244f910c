//! Steps of the clock, and the real clock.

use std::time::{Duration, SystemTime};

use delayline_core::limits::MAX_TIMESTAMP_MS;
use delayline_core::{
    Applied, At, Claim, Claimed, Extended, MessageState, Op, Outcome, Reply, Settled, Status,
    Timestamp,
};

use super::queue::{Queue, after, at, claim, done, ended, ids, message, one, retry, token};

super::cases! { "clock",
    an_answer_tells_the_instant_it_was_asked_for: "G4",
    a_step_back_loses_nothing: "G19",
    a_step_back_keeps_leases: "G5, G19",
    a_step_forward_ends_leases_but_not_fences: "G6, G19",
    what_finished_in_the_future_is_known: "G8, G19",
    the_ends_of_time_are_ordinary: "G19",
    the_servers_clock_counts_milliseconds: "G4",
    the_servers_clock_is_never_early: "G4",
    leases_run_out_by_the_servers_clock: "G5, G21",
}

async fn an_answer_tells_the_instant_it_was_asked_for(queue: &Queue) {
    for ms in [500, 0, 1_000_000_000_000] {
        assert_eq!(queue.apply(ms, &Op::Stats).await.at, at(ms));
        assert_eq!(queue.apply(ms, &Op::Enqueue(vec![message(&ms.to_string())])).await.at, at(ms));
    }
}

async fn a_step_back_loses_nothing(queue: &Queue) {
    queue.enqueue_one(5_000, message("a").schedule(after(100))).await;
    let back = queue.claim(0, claim(1, 1, 50)).await;
    assert_eq!((ids(&back.deliveries), back.next), (Vec::new(), Some(at(5_100))));
    assert_eq!(queue.stats(0).await.scheduled, 1);
    queue.enqueue_one(0, message("b")).await;
    assert_eq!(queue.claim_ids(0, claim(2, 10, 9_000)).await, ["b"]);
    assert_eq!(queue.claim_ids(5_100, claim(3, 10, 50)).await, ["a"]);
}

async fn a_step_back_keeps_leases(queue: &Queue) {
    let held = queue.leased(5_000, message("a"), 100).await;
    assert_eq!(queue.claim_ids(0, claim(2, 10, 50)).await, [""; 0]);
    let extended = Extended::Done { deadline: at(200), cancel_requested: false };
    assert_eq!(queue.extend(100, "a", held, 100).await, extended, "by the clock as it stands now");
    assert_eq!(queue.claim_ids(199, claim(3, 10, 50)).await, [""; 0]);
    assert_eq!(queue.end(0, "a", held, retry(10, "boom")).await, done(Status::Scheduled));
    assert_eq!(queue.claim_ids(10, claim(4, 10, 50)).await, ["a"]);
}

async fn a_step_forward_ends_leases_but_not_fences(queue: &Queue) {
    let held = queue.leased(0, message("a"), 100).await;
    let year = 31_557_600_000;
    let taken = one(queue.claim(year, claim(2, 1, 100)).await.deliveries);
    assert_eq!(taken.message.info.crashes, 1);
    assert_eq!(queue.end(1, "a", held, Outcome::Ack).await, Settled::Stale);
    assert_eq!(queue.end(1, "a", taken.lease, Outcome::Ack).await, done(Status::Acked));
}

async fn what_finished_in_the_future_is_known(queue: &Queue) {
    let held = queue.leased(9_000, message("a"), 100).await;
    queue.end(9_000, "a", held, Outcome::Ack).await;
    assert_eq!(queue.end(0, "a", held, Outcome::Ack).await, ended(Status::Acked));
    let again = queue.enqueue_one(0, message("a")).await;
    assert_eq!(again, delayline_core::Enqueued::Duplicate { status: Status::Acked });
}

async fn the_ends_of_time_are_ordinary(queue: &Queue) {
    let apply = async |instant: Timestamp, op: Op| {
        let answer = queue.backend().apply(At::Fixed(instant), &op).await;
        answer.unwrap_or_else(|error| panic!("{op:?} failed: {error}")).reply
    };
    // A lease of a full day at the end of time ends with it, and counts as expired at once.
    apply(Timestamp::MIN, Op::Enqueue(vec![message("a")])).await;
    let Reply::Claim(first) = apply(Timestamp::MIN, Op::Claim(claim(1, 1, 1))).await else {
        panic!("no claim")
    };
    let info = one(first.deliveries).message.info;
    let deadline = Timestamp::from_ms(1).unwrap_or_default();
    assert_eq!(info.state, MessageState::Leased { deadline, cancel_requested: false });
    let end = Timestamp::MAX;
    let Reply::Claim(last) = apply(end, Op::Claim(claim(2, 1, 86_400_000))).await else {
        panic!("no claim")
    };
    let taken = one(last.deliveries);
    let state = MessageState::Leased { deadline: end, cancel_requested: false };
    assert_eq!(taken.message.info.state, state);
    assert!(last.more, "its lease has ended already");
    let end_ms = MAX_TIMESTAMP_MS - at(0).as_ms();
    let retried = queue.end(end_ms, "a", taken.lease, retry(86_400_000, "boom")).await;
    assert_eq!(retried, done(Status::Ready), "due at the end of time, which is now");
    for (status, expected) in [(Status::Scheduled, 0), (Status::Ready, 1)] {
        let page = queue.list(end_ms, status, 10).await;
        assert_eq!(page.messages.len(), expected, "{status:?} at the end of time");
    }
}

async fn the_servers_clock_counts_milliseconds(queue: &Queue) {
    for _ in 0..3 {
        let before = on_server(queue, &Op::Stats).await.at;
        tokio::time::sleep(Duration::from_millis(50)).await;
        let after = on_server(queue, &Op::Stats).await.at;
        let passed = after.since(before);
        assert!(passed >= Duration::from_millis(40), "{passed:?} of 50 ms passed");
    }
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let now = now.unwrap_or_else(|error| panic!("{error}")).as_millis();
    let at = on_server(queue, &Op::Stats).await.at.as_ms();
    let apart = now.abs_diff(at.into());
    assert!(apart < 600_000, "the clock is {apart} ms away from this computer's");
}

async fn the_servers_clock_is_never_early(queue: &Queue) {
    let mut due = Vec::new();
    for (name, delay) in [("third", 45), ("first", 5), ("second", 25), ("now", 0)] {
        let enqueue = Op::Enqueue(vec![message(name).schedule(after(delay))]);
        let applied = on_server(queue, &enqueue).await;
        due.push((name.to_owned(), applied.at.as_ms() + delay));
    }
    due.sort_by_key(|(_, due)| *due);
    let mut seen = Vec::new();
    for n in 0..200 {
        let (now, claimed) = claim_on_server(queue, claim(n, 1, 60_000)).await;
        for delivery in &claimed.deliveries {
            let info = &delivery.message.info;
            assert!(info.due <= now, "{} is due at {} and came at {now}", info.id, info.due);
            seen.push((info.id.to_string(), info.due.as_ms()));
        }
        if seen.len() == due.len() {
            break;
        }
        sleep_until(now, &claimed).await;
    }
    assert_eq!(seen, due);
}

async fn leases_run_out_by_the_servers_clock(queue: &Queue) {
    on_server(queue, &Op::Enqueue(vec![message("a")])).await;
    let (taken_at, claimed) = claim_on_server(queue, claim(1, 1, 20)).await;
    let deadline = taken_at.as_ms() + 20;
    let lease = one(claimed.deliveries).lease;
    for n in 2..200 {
        let (now, claimed) = claim_on_server(queue, claim(n, 1, 60_000)).await;
        if let [delivery] = &claimed.deliveries[..] {
            assert!(now.as_ms() >= deadline, "taken back at {now}, leased until {deadline}");
            assert_eq!(delivery.message.info.crashes, 1);
            assert_eq!(delivery.lease.claim_id, token(n));
            assert_ne!(delivery.lease, lease);
            return;
        }
        sleep_until(now, &claimed).await;
    }
    panic!("the lease did not run out");
}

pub(super) async fn on_server(queue: &Queue, op: &Op) -> Applied {
    let answer = queue.backend().apply(At::Server, op).await;
    answer.unwrap_or_else(|error| panic!("{op:?} failed: {error}"))
}

pub(super) async fn claim_on_server(queue: &Queue, claim: Claim) -> (Timestamp, Claimed) {
    let applied = on_server(queue, &Op::Claim(claim)).await;
    match applied.reply {
        Reply::Claim(claimed) => (applied.at, claimed),
        other => panic!("a claim was answered {other:?}"),
    }
}

/// The server's clock is the subject here, so this really waits, for a few milliseconds.
pub(super) async fn sleep_until(now: Timestamp, claimed: &Claimed) {
    let next = claimed.next.unwrap_or_else(|| panic!("there is nothing to wait for"));
    tokio::time::sleep(next.since(now).max(Duration::from_millis(1))).await;
}
