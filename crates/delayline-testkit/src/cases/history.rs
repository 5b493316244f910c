//! What a queue was like when each minute and each hour began.

use delayline_core::limits::{HISTORY_HOURS, HISTORY_MINUTES};
use delayline_core::{HistoryPoint, Op, Outcome, Resolution, Timestamp};

use super::queue::{Queue, after, at, claim, lease, message, one, retry};

super::cases! { "history",
    the_first_change_of_a_minute_stores_what_was_before: "G22",
    differences_between_points_are_exact: "G22",
    what_changes_nothing_stores_nothing: "G22, G24",
    a_repeated_call_stores_nothing: "G8, G16, G22",
    every_kind_of_change_stores_a_point: "G22",
    a_claim_that_takes_back_stores_what_was_before: "G21, G22",
    hours_are_kept_beside_minutes: "G22",
    a_ring_of_minutes_holds_six_hours: "G22, G23",
    a_ring_of_hours_holds_a_month: "G22, G23",
    points_that_are_too_old_are_not_told: "G22",
    a_step_back_drops_what_has_not_come_yet: "G19, G22",
    a_long_step_forth_and_back_leaves_no_future: "G19, G22",
    the_ends_of_time_have_a_history: "G19, G22",
}

const MINUTE: u64 = 60_000;
const HOUR: u64 = 60 * MINUTE;
/// A beginning of an hour, and of the first slot of both rings.
const START: u64 = HISTORY_HOURS * HISTORY_MINUTES * HOUR;

async fn minutes(queue: &Queue, ms: u64) -> Vec<HistoryPoint> {
    queue.history(ms, Resolution::Minutes).await
}

async fn hours(queue: &Queue, ms: u64) -> Vec<HistoryPoint> {
    queue.history(ms, Resolution::Hours).await
}

/// The instants of the points, in ms since the beginning, without the last, which is now.
fn times(points: &[HistoryPoint], now: u64) -> Vec<u64> {
    let (last, past) = points.split_last().unwrap_or_else(|| panic!("no point"));
    assert_eq!(last.at, at(now), "the last point is of now");
    past.iter().map(|point| point.at.as_ms() - at(START).as_ms()).collect()
}

/// How many messages had been enqueued at each point.
fn enqueued(points: &[HistoryPoint]) -> Vec<u64> {
    points.iter().map(|point| point.totals.enqueued).collect()
}

async fn send(queue: &Queue, ms: u64) {
    queue.enqueue_one(ms, message(&format!("sent at {ms}"))).await;
}

async fn the_first_change_of_a_minute_stores_what_was_before(queue: &Queue) {
    assert_eq!(enqueued(&minutes(queue, START).await), [0], "an empty queue has a present");
    let due = |ms| message(&format!("due in {ms}")).schedule(after(ms));
    queue.enqueue(START + 5, [0, 1, MINUTE - 5, MINUTE - 4].map(due).to_vec()).await;
    queue.claim(START + 5, claim(1, 1, 9 * MINUTE)).await;
    let points = minutes(queue, START + 6).await;
    assert_eq!((times(&points, START + 6), enqueued(&points)), (vec![0], vec![0, 4]));
    assert_eq!((points[1].scheduled, points[1].ready, points[1].leased), (2, 1, 1));

    queue.end(START + 2 * MINUTE + 7, "due in 0", lease(1, 1), super::queue::reject("no")).await;
    let now = START + 2 * MINUTE + 8;
    let points = minutes(queue, now).await;
    assert_eq!(times(&points, now), [0, 2 * MINUTE], "nothing changed in the minute between");
    let (before, since) = (points[1], points[2]);
    assert_eq!((before.scheduled, before.ready, before.leased, before.dead), (0, 3, 1, 0));
    assert_eq!((before.totals.died(), before.totals.delivered()), (0, 1));
    assert_eq!((since.leased, since.dead, since.totals.died()), (0, 1, 1));
    queue.purge(now, "due in 0").await;
    let points = minutes(queue, now).await;
    assert_eq!(points[1], before, "the second change of a minute stores nothing");

    // Due messages are counted at the beginning of the minute.
    let late = START + 9 * MINUTE;
    for delay in [1, 2] {
        let name = format!("late in {delay}");
        queue.enqueue_one(late - 1, message(&name).schedule(after(delay))).await;
    }
    queue.pause(late + 9).await;
    let points = minutes(queue, late + 9).await;
    let [.., at_start, now] = points[..] else { panic!("{points:?}") };
    assert_eq!((at_start.at, at_start.scheduled, at_start.ready), (at(late), 1, 4));
    assert_eq!((now.scheduled, now.ready), (0, 5));
}

async fn differences_between_points_are_exact(queue: &Queue) {
    for minute in 0..9 {
        for n in 0..minute {
            send(queue, START + minute * MINUTE + 7 * n).await;
        }
    }
    let points = minutes(queue, START + 9 * MINUTE).await;
    let sent = points.windows(2).map(|pair| pair[1].totals.enqueued - pair[0].totals.enqueued);
    assert_eq!(sent.collect::<Vec<_>>(), (1..9).collect::<Vec<_>>());
}

async fn what_changes_nothing_stores_nothing(queue: &Queue) {
    send(queue, START).await;
    let before = minutes(queue, START).await;
    queue.claim(START, claim(1, 1, 9 * MINUTE)).await;
    for minute in 1..5 {
        let now = START + minute * MINUTE;
        queue.claim(now, claim(2, 1, 50)).await;
        queue.cancel(now, "absent").await;
        queue.resume(now).await;
        queue.end(now, &format!("sent at {START}"), lease(9, 9), Outcome::Ack).await;
        let points = minutes(queue, now).await;
        assert_eq!(points[..1], before[..1]);
        assert_eq!(times(&points, now), [0]);
    }
}

async fn a_repeated_call_stores_nothing(queue: &Queue) {
    send(queue, START).await;
    queue.claim(START, claim(1, 1, 9 * MINUTE)).await;
    send(queue, START + MINUTE).await;
    let now = START + 2 * MINUTE;
    assert_eq!(queue.claim(now, claim(1, 1, 9 * MINUTE)).await.deliveries.len(), 1);
    send(queue, START).await;
    assert_eq!(times(&minutes(queue, now).await, now), [0, MINUTE]);
}

async fn every_kind_of_change_stores_a_point(queue: &Queue) {
    let name = "a";
    let mut seen = Vec::new();
    // What the change of this minute finds.
    let mut in_minute = async |n: u64| {
        let now = START + n * MINUTE;
        seen.push(queue.stats(now).await);
        now
    };
    let frail = message(name).schedule(after(9));
    queue.enqueue_one(in_minute(0).await, frail).await;
    queue.reschedule(in_minute(1).await, name, after(0)).await;
    queue.claim(in_minute(2).await, claim(1, 1, 90 * MINUTE)).await;
    queue.extend(in_minute(3).await, name, lease(1, 1), 80 * MINUTE).await;
    queue.end(in_minute(4).await, name, lease(1, 1), super::queue::reject("boom")).await;
    queue.redrive(in_minute(5).await, name, after(0)).await;
    queue.pause(in_minute(6).await).await;
    queue.resume(in_minute(7).await).await;
    queue.claim(in_minute(8).await, claim(2, 1, 90 * MINUTE)).await;
    queue.cancel(in_minute(9).await, name).await;
    queue.end(in_minute(10).await, name, lease(2, 2), retry(0, "boom")).await;
    send(queue, in_minute(11).await).await;
    queue.cancel(in_minute(12).await, &format!("sent at {}", START + 11 * MINUTE)).await;
    let held = queue.leased_as(3, in_minute(13).await, message("b"), 90 * MINUTE).await;
    queue.end(START + 13 * MINUTE, "b", held, super::queue::reject("boom")).await;
    queue.purge(in_minute(14).await, "b").await;
    let now = START + 14 * MINUTE;
    let points = minutes(queue, now).await;
    let expected: Vec<_> = (0..=14).map(|n| n * MINUTE).collect();
    assert_eq!(times(&points, now), expected);
    for (n, (point, before)) in points.iter().zip(&seen).enumerate() {
        let levels = [point.scheduled, point.ready, point.leased, point.dead];
        let expected = [before.scheduled, before.ready, before.leased, before.dead];
        assert_eq!(levels, expected, "in minute {n}");
        assert_eq!(point.totals, before.totals, "in minute {n}");
    }
}

async fn a_claim_that_takes_back_stores_what_was_before(queue: &Queue) {
    send(queue, START).await;
    queue.claim(START, claim(1, 1, 50)).await;
    let now = START + MINUTE;
    assert_eq!(queue.claim(now, claim(2, 1, 50)).await.deliveries.len(), 1);
    let points = minutes(queue, now).await;
    let [_, before, after] = points[..] else { panic!("{points:?}") };
    assert_eq!((before.leased, before.ready), (1, 0));
    assert_eq!((before.totals.crashed, before.totals.delivered()), (0, 1));
    assert_eq!((after.leased, after.totals.crashed, after.totals.delivered()), (1, 1, 2));
}

async fn hours_are_kept_beside_minutes(queue: &Queue) {
    for minutes in [5, 6, 59, 60, 61, 200] {
        send(queue, START + minutes * MINUTE).await;
    }
    let now = START + 200 * MINUTE + 1;
    let points = hours(queue, now).await;
    assert_eq!(times(&points, now), [0, HOUR, 3 * HOUR]);
    assert_eq!(enqueued(&points), [0, 3, 5, 6]);
    assert_eq!(enqueued(&minutes(queue, now).await), [0, 1, 2, 3, 4, 5, 6]);
}

async fn a_ring_of_minutes_holds_six_hours(queue: &Queue) {
    // One more than there are slots, and then some that take the place of others.
    for minute in 0..=HISTORY_MINUTES + 9 {
        send(queue, START + minute * MINUTE).await;
    }
    let now = START + (HISTORY_MINUTES + 9) * MINUTE;
    let points = minutes(queue, now).await;
    let expected: Vec<_> = (10..=HISTORY_MINUTES + 9).collect();
    let expected_times: Vec<_> = expected.iter().map(|minute| minute * MINUTE).collect();
    assert_eq!(times(&points, now), expected_times);
    assert_eq!(enqueued(&points)[..expected.len()], expected);
    assert_eq!(hours(queue, now).await.len(), 8);
}

async fn a_ring_of_hours_holds_a_month(queue: &Queue) {
    for hour in 0..=HISTORY_HOURS + 1 {
        send(queue, START + hour * HOUR).await;
    }
    let now = START + (HISTORY_HOURS + 1) * HOUR;
    let points = hours(queue, now).await;
    let expected: Vec<_> = (2..=HISTORY_HOURS + 1).map(|hour| hour * HOUR).collect();
    assert_eq!(times(&points, now), expected);
    assert_eq!(times(&minutes(queue, now).await, now).len(), 6);
}

async fn points_that_are_too_old_are_not_told(queue: &Queue) {
    send(queue, START).await;
    send(queue, START + MINUTE).await;
    let now = START + HISTORY_MINUTES * MINUTE;
    assert_eq!(times(&minutes(queue, now - 1).await, now - 1), [0, MINUTE]);
    assert_eq!(times(&minutes(queue, now).await, now), [MINUTE]);
    assert_eq!(minutes(queue, now + MINUTE).await.len(), 1, "only the present is left");
    let month = START + HISTORY_HOURS * HOUR;
    assert_eq!(times(&hours(queue, month - 1).await, month - 1), [0]);
    assert_eq!(hours(queue, month).await.len(), 1);
}

async fn a_step_back_drops_what_has_not_come_yet(queue: &Queue) {
    for minutes in [0, 1, 58, 59, 60, 61] {
        send(queue, START + minutes * MINUTE).await;
    }
    // A query for an earlier time does not see the future, and changes nothing.
    let back = START + 59 * MINUTE + 30;
    let points = minutes(queue, back).await;
    assert_eq!(times(&points, back), [0, 1, 58, 59].map(|minute| minute * MINUTE));
    assert_eq!(times(&hours(queue, back).await, back), [0]);
    send(queue, back).await;
    let later = START + 61 * MINUTE;
    let points = minutes(queue, later).await;
    assert_eq!(times(&points, later), [0, 1, 58, 59].map(|minute| minute * MINUTE));
    assert_eq!(enqueued(&points), [0, 1, 2, 6, 7], "no counter ever falls");
    assert_eq!(enqueued(&hours(queue, later).await), [6, 7], "the hour began anew, too");
    send(queue, later + 1).await;
    assert_eq!(enqueued(&minutes(queue, later + 1).await), [0, 1, 2, 6, 7, 8]);
}

async fn a_long_step_forth_and_back_leaves_no_future(queue: &Queue) {
    for minutes in [0, 1, 70, 130] {
        send(queue, START + minutes * MINUTE).await;
    }
    // It takes the slots of minute 5 and of the first hour.
    let far = START + 3 * HISTORY_HOURS * HOUR + 5 * MINUTE;
    queue.enqueue_one(far, message("far")).await;
    queue.enqueue_one(START + 131 * MINUTE, message("back")).await;
    let now = START + 139 * MINUTE;
    let points = minutes(queue, now).await;
    let expected = [0, 1, 70, 130, 131].map(|minute| minute * MINUTE);
    assert_eq!(times(&points, now), expected, "a step drops nothing that has come before");
    assert_eq!(enqueued(&points), [0, 1, 2, 3, 5, 6]);
    let points = hours(queue, now).await;
    assert_eq!(times(&points, now), [HOUR, 2 * HOUR]);
    assert_eq!(enqueued(&points), [2, 5, 6], "the hour began anew");
    assert_eq!(times(&minutes(queue, far).await, far).len(), 0);
    assert_eq!(times(&hours(queue, far).await, far).len(), 0);
    queue.enqueue_one(far, message("far again")).await;
    assert_eq!(enqueued(&hours(queue, far).await), [6, 7]);
}

async fn the_ends_of_time_have_a_history(queue: &Queue) {
    queue.enqueue_one(0, message("first")).await;
    queue.enqueue_one(MINUTE, message("second")).await;
    let points = minutes(queue, MINUTE).await;
    assert_eq!(enqueued(&points), [0, 1, 2]);
    let end = Timestamp::MAX.as_ms() - at(0).as_ms();
    queue.enqueue_one(end, message("last")).await;
    for resolution in [Resolution::Minutes, Resolution::Hours] {
        let points = queue.history(end, resolution).await;
        assert_eq!(enqueued(&points), [2, 3]);
        let unit = resolution.unit_ms();
        assert_eq!(points[0].at.as_ms(), Timestamp::MAX.as_ms() / unit * unit);
    }
    let op = Op::History(Resolution::Minutes);
    assert_eq!(queue.apply(end, &op).await.at, Timestamp::MAX);
    let first = one(queue.claim(end, claim(1, 1, 50)).await.deliveries);
    assert_eq!(first.message.info.sequence, 1);
}
