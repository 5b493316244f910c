//! Lookups change nothing and return the truth.

use delayline_core::{
    Check, Found, Op, Outcome, Position, Priority, Reply, Schedule, Stats, Status, Timestamp,
};

use crate::Trace;
use crate::regressions::EVERY_OPERATION;

use super::queue::{Queue, after, at, claim, id, lease, listed, message, reject, with};

super::cases! { "look",
    lists_have_the_order_of_their_status: "G12",
    lists_go_on_where_a_page_ended: "G22",
    a_cursor_stays_valid_whatever_happens: "G22",
    odd_cursors_do_no_harm: "G20",
    look_ups_are_answered_in_the_order_asked: "G18",
    counts_follow_a_message_through_its_life: "G22",
    the_earliest_due_instant_is_told: "G22",
    a_forecast_counts_by_due_time: "G22",
    a_forecast_reaches_to_the_end_of_time: "G20, G22",
    the_audit_sees_every_message_once: "G1, G22",
    only_what_changes_something_raises_the_revision: "G3",
}

/// Enqueues messages of every status: s1 s2 scheduled, r1 r2 ready, l1 l2 leased, d1 d2 dead.
async fn populated(queue: &Queue) {
    queue.enqueue(0, ["d2", "d1", "l1", "l2"].map(message).to_vec()).await;
    queue.claim(0, claim(1, 2, 90)).await;
    queue.end(1, "d1", lease(1, 1), reject("boom")).await;
    queue.end(2, "d2", lease(1, 1), reject("boom")).await;
    queue.claim(3, claim(2, 2, 90)).await;
    queue.extend(4, "l1", lease(2, 1), 5).await;
    let schedule = after(500);
    let high = message("s1").schedule(after(900)).priority(Priority::High);
    queue.enqueue(5, vec![message("s2").schedule(schedule), high]).await;
    queue.enqueue(6, vec![message("r2"), message("r1").schedule(Schedule::At(at(1)))]).await;
}

async fn lists_have_the_order_of_their_status(queue: &Queue) {
    populated(queue).await;
    for (status, expected) in [
        (Status::Scheduled, ["s1", "s2"]),
        (Status::Ready, ["r1", "r2"]),
        (Status::Leased, ["l1", "l2"]),
        (Status::Dead, ["d1", "d2"]),
    ] {
        let page = queue.list(7, status, 100).await;
        assert_eq!((listed(&page), page.next), (expected.map(str::to_owned).to_vec(), None));
        assert!(page.messages.iter().all(|info| info.state.status() == status));
    }
    assert_eq!(listed(&queue.list(905, Status::Ready, 100).await), ["s1", "r1", "r2", "s2"]);
}

async fn lists_go_on_where_a_page_ended(queue: &Queue) {
    let names: Vec<_> = (0..7).map(|n| n.to_string()).collect();
    for (n, name) in (0..).zip(&names) {
        let priority = if n < 3 { Priority::Urgent } else { Priority::Low };
        let schedule = after(10 - n / 2);
        queue.enqueue_one(0, message(name).priority(priority).schedule(schedule)).await;
    }
    let (mut all, mut next) = (Vec::new(), None);
    for _ in 0..4 {
        let page = queue.list_after(0, Status::Scheduled, next, 2).await;
        all.extend(listed(&page));
        next = page.next;
    }
    assert_eq!(next, None, "the last page is not full");
    assert_eq!(all, ["2", "0", "1", "6", "4", "5", "3"]);
    let full = queue.list(0, Status::Scheduled, 7).await;
    let last = Position { index: 3, instant: at(9), sequence: 4 };
    assert_eq!(full.next, Some(last), "a full page may have a successor");
    let rest = queue.list_after(0, Status::Scheduled, full.next, 7).await;
    assert_eq!((rest.messages.len(), rest.next), (0, None));
}

async fn a_cursor_stays_valid_whatever_happens(queue: &Queue) {
    queue.enqueue(0, ["a", "b", "c", "d"].map(message).to_vec()).await;
    let page = queue.list(0, Status::Ready, 2).await;
    assert_eq!(listed(&page), ["a", "b"]);
    queue.cancel(1, "b").await;
    queue.cancel(1, "c").await;
    let rest = queue.list_after(2, Status::Ready, page.next, 2).await;
    assert_eq!(listed(&rest), ["d"]);
}

async fn odd_cursors_do_no_harm(queue: &Queue) {
    populated(queue).await;
    let odd = |index, instant, sequence| Some(Position { index, instant, sequence });
    let page = queue.list_after(7, Status::Ready, odd(0, Timestamp::MIN, 0), 100).await;
    assert_eq!(listed(&page), ["r1", "r2"]);
    let page = queue.list_after(7, Status::Ready, odd(2, at(1), u64::MAX), 100).await;
    assert_eq!(listed(&page), ["r2"]);
    for after in [odd(255, Timestamp::MAX, u64::MAX), odd(5, Timestamp::MAX, 0)] {
        for status in [Status::Scheduled, Status::Ready, Status::Leased, Status::Dead] {
            assert_eq!(listed(&queue.list_after(7, status, after, 100).await), [""; 0]);
        }
    }
    let page = queue.list_after(7, Status::Dead, odd(4, Timestamp::MAX, 9), 100).await;
    assert_eq!(listed(&page), ["d1", "d2"], "a cursor of an index before");
}

async fn look_ups_are_answered_in_the_order_asked(queue: &Queue) {
    populated(queue).await;
    queue.end(7, "l2", lease(2, 1), Outcome::Ack).await;
    queue.cancel(7, "s1").await;
    queue.purge(7, "d1").await;
    let ids = ["l2", "r1", "s1", "absent", "d1", "d2"].map(id).to_vec();
    let Reply::Get(found) = queue.apply(8, &Op::Get(ids)).await.reply else { panic!("no look-up") };
    let ends: Vec<_> = found
        .into_iter()
        .map(|found| match found {
            Found::Live(message) => (Some(message.info.id), Some(message.info.state.status())),
            Found::Finished(status) => (None, Some(status)),
            _ => (None, None),
        })
        .collect();
    let expected = [
        (None, Some(Status::Acked)),
        (Some(id("r1")), Some(Status::Ready)),
        (None, Some(Status::Cancelled)),
        (None, None),
        (None, Some(Status::Purged)),
        (Some(id("d2")), Some(Status::Dead)),
    ];
    assert_eq!(ends, expected);
}

async fn counts_follow_a_message_through_its_life(queue: &Queue) {
    assert_eq!(queue.stats(0).await, Stats::default());
    let mut expected = Stats::default();
    expected.totals.enqueued = 1;
    queue.enqueue_one(0, message("a").schedule(after(10))).await;
    let waiting = with(expected, |stats| stats.earliest_due = Some(at(10)));
    assert_eq!(queue.stats(9).await, with(waiting, |stats| stats.scheduled = 1));
    assert_eq!(queue.stats(10).await, with(waiting, |stats| stats.ready = 1));
    queue.claim(10, claim(1, 1, 50)).await;
    expected.totals.lateness[0] = 1;
    assert_eq!(queue.stats(10).await, with(expected, |stats| stats.leased = 1));
    queue.end(11, "a", lease(1, 1), reject("boom")).await;
    expected.totals.died_rejected = 1;
    assert_eq!(queue.stats(11).await, with(expected, |stats| stats.dead = 1));
    queue.redrive(12, "a", Schedule::NOW).await;
    queue.claim(12, claim(2, 1, 50)).await;
    queue.end(13, "a", lease(2, 2), Outcome::Ack).await;
    (expected.totals.redriven, expected.totals.lateness[0], expected.totals.acked) = (1, 2, 1);
    assert_eq!(queue.stats(13).await, expected);
    queue.pause(14).await;
    assert_eq!(queue.stats(14).await, with(expected, |stats| stats.paused = true));
}

async fn the_earliest_due_instant_is_told(queue: &Queue) {
    populated(queue).await;
    assert_eq!(queue.stats(7).await.earliest_due, Some(at(1)), "r1, whatever the priorities");
    queue.cancel(8, "r1").await;
    queue.cancel(8, "r2").await;
    assert_eq!(queue.stats(8).await.earliest_due, Some(at(505)), "s2 before s1");
}

async fn a_forecast_counts_by_due_time(queue: &Queue) {
    assert_eq!(queue.forecast(0, &[1]).await, (0, vec![0], 0));
    populated(queue).await; // r1 is due at 1, r2 at 6, s2 at 505, s1 at 905
    assert_eq!(queue.forecast(5, &[1]).await, (1, vec![1], 2));
    assert_eq!(queue.forecast(6, &[1]).await, (2, vec![0], 2));
    assert_eq!(queue.forecast(7, &[497, 498, 897, 898, 899]).await, (2, vec![0, 1, 0, 1, 0], 0));
    assert_eq!(queue.forecast(7, &[0, 10_000]).await, (2, vec![0, 2], 0));
    assert_eq!(queue.forecast(905, &[1]).await, (4, vec![0], 0));
    queue.pause(906).await;
    assert_eq!(queue.forecast(906, &[1]).await, (4, vec![0], 0), "paused or not");
    let all: Vec<_> = (0..100).collect();
    assert_eq!(queue.forecast(455, &all).await.1.iter().sum::<u64>(), 1, "100 delays");
}

async fn a_forecast_reaches_to_the_end_of_time(queue: &Queue) {
    let end = Timestamp::MAX.as_ms() - at(0).as_ms();
    let last = message("last").schedule(Schedule::At(Timestamp::MAX));
    let low = message("low").priority(Priority::Low).schedule(after(3));
    queue.enqueue(end - 10, vec![last, low]).await;
    assert_eq!(queue.forecast(end - 10, &[2, 9]).await, (0, vec![0, 1], 1));
    assert_eq!(queue.forecast(end - 10, &[9, 10, 11]).await, (0, vec![1, 1, 0], 0));
    assert_eq!(queue.forecast(end, &[1, 2]).await, (2, vec![0, 0], 0));
}

async fn the_audit_sees_every_message_once(queue: &Queue) {
    populated(queue).await;
    for limit in [1, 3, 8, 100] {
        assert_eq!(queue.check(7, limit).await, 8, "in pages of {limit}");
    }
    let after = Some(Position { index: Position::LEASED, instant: Timestamp::MAX, sequence: 0 });
    let op = Op::Check(Check::new(100).after(after));
    let Reply::Check(dead) = queue.apply(7, &op).await.reply else { panic!("no audit") };
    assert_eq!((dead.examined, dead.findings, dead.next), (2, Vec::new(), None));
}

async fn only_what_changes_something_raises_the_revision(queue: &Queue) {
    let Ok(every) = EVERY_OPERATION.parse::<Trace>() else { panic!("it is no trace") };
    let looks = every.steps.into_iter().map(|step| step.op).filter(Op::is_read_only);
    let others = [Op::Resume, Op::Cancel(vec![id("absent")]), Op::Claim(claim(9, 1, 50))];
    let nothing: Vec<_> = looks.chain(others).collect();
    for op in &nothing {
        assert_eq!(queue.apply(0, op).await.revision, 0, "{op:?}");
    }
    let enqueue = Op::Enqueue(["a", "b"].map(message).to_vec());
    assert_eq!(queue.apply(0, &enqueue).await.revision, 1, "a batch is one change");
    assert_eq!(queue.apply(0, &enqueue).await.revision, 1, "repeated");
    let take = Op::Claim(claim(1, 2, 50));
    assert_eq!(queue.apply(0, &take).await.revision, 2);
    for op in nothing.iter().chain([&take]) {
        assert_eq!(queue.apply(0, op).await.revision, 2, "{op:?}");
    }
    assert_eq!(queue.apply(0, &Op::Cancel(vec![id("a")])).await.revision, 3, "the wish is noted");
    assert_eq!(queue.apply(0, &Op::Cancel(vec![id("a")])).await.revision, 3);
    assert_eq!(queue.apply(0, &Op::Pause).await.revision, 4);
}
