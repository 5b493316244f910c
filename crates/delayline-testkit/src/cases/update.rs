//! Enqueues that update a message: by the state in which they find it, and however its lease ends.

use delayline_core::limits::{FINISHED_RETENTION_MS, MAX_UPDATE_BYTES, MAX_UPDATE_TOKENS};
use delayline_core::{
    Cancelled, DeathReason, Enqueued, ErrorClass, FinishedIds, Follower, Found, Known, Lease,
    MessageState, NewMessage, Op, Outcome, Priority, Schedule, Settled, Settlement, Status, Update,
    UpdateContent, UpdateDue, UpdateToken,
};

use super::queue::{
    Queue, after, at, claim, done, ended, id, message, millis, one, reject, retry, undecodable,
};

super::cases! { "update",
    an_unknown_id_is_created: "G15, G29",
    a_waiting_message_takes_content_and_due_time_as_told: "G29",
    an_equal_content_is_not_replaced: "G29",
    due_times_get_later_up_to_the_bound: "G29",
    a_replaced_message_goes_to_the_end_of_its_line: "G12, G29",
    a_replaced_retry_begins_anew_and_is_still_settled: "G8, G9, G29",
    a_large_content_gives_way: "G2, G29",
    priority_limits_and_expiry_are_replaced_too: "G11, G29",
    a_dead_letter_is_revived: "G8, G11, G29",
    whatever_a_letter_died_of_its_settlement_stands: "G8, G29",
    a_finished_id_is_a_duplicate_unless_it_may_be_reused: "G14, G15, G29",
    a_held_message_is_followed_once: "G5, G29, G30",
    a_follower_takes_over_after_an_ack: "G8, G30",
    a_follower_takes_over_after_any_other_settlement: "G8, G30",
    a_follower_takes_over_after_a_crash: "G6, G9, G30",
    a_follower_takes_over_after_a_cancelled_lease: "G13, G30",
    a_cancel_drops_the_follower: "G13, G30",
    a_follower_waits_for_its_due_time: "G4, G30",
    a_follower_is_updated_as_told: "G29, G30",
    a_follower_of_a_follower_waits_for_its_lease: "G5, G30",
    a_large_message_and_its_follower_do_not_mix: "G2, G30",
    a_repeated_update_changes_nothing: "G15, G29",
    a_late_repetition_does_not_bring_old_content_back: "G15, G29",
    a_late_repetition_revives_nothing: "G15, G29",
    more_updates_than_are_remembered_are_the_exception: "G15, G29",
    tokens_are_forgotten_with_the_id: "G15, G24",
    items_of_a_batch_mix: "G18, G29",
    updates_have_limits: "G29",
    a_batch_of_followers_takes_over: "G18, G23, G30",
}

const fn update(token: u8, content: UpdateContent, due: UpdateDue) -> Known {
    let token = UpdateToken::from_bytes([token; UpdateToken::BYTES]);
    Known::Update(Update::new(content, due, token))
}

const REPLACE: UpdateContent = UpdateContent::Replace;
const KEEP: UpdateContent = UpdateContent::Keep;
const SET: UpdateDue = UpdateDue::Set;

/// A message with this payload that replaces content and due time.
pub(super) fn set(token: u8, name: &str, payload: &str, schedule: Schedule) -> NewMessage {
    known(update(token, REPLACE, SET), name, payload, schedule)
}

fn known(known: Known, name: &str, payload: &str, schedule: Schedule) -> NewMessage {
    message(name).known(known).schedule(schedule).payload(payload.to_owned())
}

const fn duplicate(status: Status) -> Enqueued {
    Enqueued::Duplicate { status }
}

/// Claims the only ready message, which has this payload, and returns its lease.
async fn take(queue: &Queue, ms: u64, token: u8, payload: &str) -> Lease {
    let delivery = one(queue.claim(ms, claim(token, 10, 1_000)).await.deliveries);
    assert_eq!(delivery.message.payload, payload.as_bytes());
    assert_eq!(delivery.message.follower, None, "it has just been leased");
    delivery.lease
}

async fn an_unknown_id_is_created(queue: &Queue) {
    let created = queue.enqueue_one(0, set(1, "a", "one", after(5))).await;
    assert_eq!(created, Enqueued::Created { due: at(5) });
    let message = queue.live(0, "a").await;
    assert_eq!((message.info.sequence, message.info.enqueued_at), (1, at(0)));
    take(queue, 5, 1, "one").await;
}

async fn a_waiting_message_takes_content_and_due_time_as_told(queue: &Queue) {
    let table = [
        (KEEP, UpdateDue::Keep, duplicate(Status::Scheduled), "old", 50),
        (KEEP, SET, Enqueued::Updated { due: at(90) }, "old", 90),
        (REPLACE, UpdateDue::Keep, Enqueued::Updated { due: at(50) }, "new", 50),
        (REPLACE, SET, Enqueued::Updated { due: at(90) }, "new", 90),
    ];
    for (n, (content, due, answer, payload, due_ms)) in (0..).zip(table) {
        let name = format!("m{n}");
        queue.enqueue_one(0, known(Known::Refuse, &name, "old", after(50))).await;
        let change = known(update(7, content, due), &name, "new", after(80));
        assert_eq!(queue.enqueue_one(10, change).await, answer, "{content:?} {due:?}");
        let found = queue.live(11, &name).await;
        assert_eq!(found.payload, payload, "{content:?} {due:?}");
        assert_eq!(found.info.due, at(due_ms), "{content:?} {due:?}");
        assert_eq!(found.info.enqueued_at, at(0), "the first enqueue counts");
    }
    let ready = queue.enqueue_one(60, set(8, "m0", "newer", after(0))).await;
    assert_eq!(ready, Enqueued::Updated { due: at(60) });
    assert_eq!(queue.live(60, "m0").await.payload, "newer");
}

async fn an_equal_content_is_not_replaced(queue: &Queue) {
    queue.enqueue_one(0, known(Known::Refuse, "a", "same", after(50))).await;
    let same = known(update(1, REPLACE, UpdateDue::Keep), "a", "same", after(0));
    assert_eq!(queue.enqueue_one(1, same).await, duplicate(Status::Scheduled));
    let moved = queue.enqueue_one(2, set(2, "a", "same", after(60))).await;
    assert_eq!(moved, Enqueued::Updated { due: at(62) });
    assert_eq!(queue.live(2, "a").await.info.sequence, 1);
    assert_eq!(queue.stats(2).await.totals.replaced, 0);
}

async fn due_times_get_later_up_to_the_bound(queue: &Queue) {
    let later = |token, delay| {
        let due = UpdateDue::Later { at_most: millis(100) };
        known(update(token, REPLACE, due), "a", "same", after(delay))
    };
    assert_eq!(queue.enqueue_one(0, later(1, 30)).await, Enqueued::Created { due: at(30) });
    assert_eq!(queue.enqueue_one(20, later(2, 30)).await, Enqueued::Updated { due: at(50) });
    let earlier = queue.enqueue_one(21, later(3, 10)).await;
    assert_eq!(earlier, duplicate(Status::Scheduled), "it does not get earlier");
    assert_eq!(queue.enqueue_one(45, later(4, 30)).await, Enqueued::Updated { due: at(75) });
    assert_eq!(queue.enqueue_one(74, later(5, 30)).await, Enqueued::Updated { due: at(100) });
    assert_eq!(queue.enqueue_one(99, later(6, 30)).await, duplicate(Status::Scheduled));
    take(queue, 100, 1, "same").await;
}

async fn a_replaced_message_goes_to_the_end_of_its_line(queue: &Queue) {
    queue.enqueue(0, vec![message("a"), message("b")]).await;
    queue.enqueue_one(0, set(1, "a", "new", after(0))).await;
    assert_eq!(queue.claim_ids(0, claim(1, 10, 50)).await, ["b", "a"]);
    let stats = queue.stats(0).await;
    assert_eq!((stats.totals.enqueued, stats.totals.replaced), (3, 1));
}

async fn a_replaced_retry_begins_anew_and_is_still_settled(queue: &Queue) {
    let held = queue.leased(0, message("a").max_failures(2), 50).await;
    queue.end(1, "a", held, retry(50, "boom")).await;
    queue.enqueue_one(2, set(1, "a", "new", after(0)).max_failures(2)).await;
    let again = queue.end(3, "a", held, retry(50, "boom")).await;
    assert_eq!(again, Settled::AlreadyDone { ended: None });
    assert_eq!(queue.end(3, "a", held, Outcome::Ack).await, Settled::Stale);
    let info = queue.live(3, "a").await.info;
    assert_eq!((info.failures, info.last_error, info.epoch), (0, None, 1));
    let next = take(queue, 4, 2, "new").await;
    assert_eq!(next.epoch, 2);
    assert_eq!(queue.end(5, "a", next, retry(5, "boom")).await, done(Status::Scheduled));
}

async fn a_large_content_gives_way(queue: &Queue) {
    let large = "x".repeat(9_000);
    queue.enqueue_one(0, known(Known::Refuse, "a", &large, after(0))).await;
    queue.enqueue_one(1, set(1, "a", "small", after(0))).await;
    assert_eq!(queue.live(1, "a").await.payload, "small");
    queue.enqueue_one(2, set(2, "a", &"y".repeat(9_000), after(0))).await;
    let held = take(queue, 3, 1, &"y".repeat(9_000)).await;
    queue.end(4, "a", held, Outcome::Ack).await;
}

async fn priority_limits_and_expiry_are_replaced_too(queue: &Queue) {
    queue.enqueue_one(0, message("a")).await;
    let changed = set(1, "a", "new", after(0))
        .priority(Priority::Urgent)
        .max_failures(3)
        .max_crashes(2)
        .expires(after(10));
    queue.enqueue_one(1, changed.clone()).await;
    let info = queue.live(1, "a").await.info;
    assert_eq!((info.priority, info.max_failures, info.max_crashes), (Priority::Urgent, 3, 2));
    assert_eq!(info.expires_at, Some(at(11)));
    let token = UpdateToken::from_bytes([2; 8]);
    let later = Known::Update(Update::new(REPLACE, UpdateDue::Keep, token));
    let answer = queue.enqueue_one(5, changed.known(later)).await;
    assert_eq!(answer, Enqueued::Updated { due: at(1) }, "another expiry is another content");
    queue.claim(15, claim(1, 1, 50)).await;
    let dead = MessageState::Dead { reason: DeathReason::Expired, since: at(15) };
    assert_eq!(queue.live(16, "a").await.info.state, dead);
    let keep = known(update(3, KEEP, SET), "a", "revived", after(0));
    assert_eq!(queue.enqueue_one(17, keep).await, Enqueued::Updated { due: at(17) });
    let info = queue.live(17, "a").await.info;
    assert_eq!((info.priority, info.expires_at), (Priority::Normal, None), "a new life");
}

async fn a_dead_letter_is_revived(queue: &Queue) {
    let held = queue.leased(0, message("a"), 50).await;
    queue.end(1, "a", held, reject("boom")).await;
    let keep = known(update(1, KEEP, UpdateDue::Keep), "a", "new", after(9));
    assert_eq!(queue.enqueue_one(2, keep).await, Enqueued::Updated { due: at(11) });
    let again = queue.end(3, "a", held, reject("boom")).await;
    assert_eq!(again, ended(Status::Dead), "the settlement stands");
    let info = queue.live(3, "a").await.info;
    assert_eq!((info.failures, info.first_error, info.enqueued_at), (0, None, at(2)));
    let stats = queue.stats(3).await;
    assert_eq!((stats.dead, stats.scheduled, stats.totals.replaced), (0, 1, 1));
    take(queue, 11, 2, "new").await;
}

async fn whatever_a_letter_died_of_its_settlement_stands(queue: &Queue) {
    let deaths = [reject("boom"), retry(0, "boom"), undecodable(0, "boom")];
    for (token, name, death) in deaths.into_iter().zip(1..).map(|(it, n)| (n, n.to_string(), it)) {
        queue.enqueue_one(0, message(&name).max_failures(1)).await;
        let held = one(queue.claim(0, claim(token, 1, 50)).await.deliveries).lease;
        assert_eq!(queue.end(1, &name, held, death.clone()).await, done(Status::Dead));
        let revived = queue.enqueue_one(2, set(token, &name, "new", after(9))).await;
        assert_eq!(revived, Enqueued::Updated { due: at(11) });
        assert_eq!(queue.end(3, &name, held, death).await, ended(Status::Dead), "{name}");
    }
}

async fn a_finished_id_is_a_duplicate_unless_it_may_be_reused(queue: &Queue) {
    let held = queue.leased(0, message("a"), 50).await;
    queue.end(1, "a", held, Outcome::Ack).await;
    let changed = set(1, "a", "new", after(0));
    assert_eq!(queue.enqueue_one(2, changed.clone()).await, duplicate(Status::Acked));
    let reused = changed.finished_ids(FinishedIds::Reuse);
    assert_eq!(queue.enqueue_one(3, reused).await, Enqueued::Created { due: at(3) });
    let next = take(queue, 3, 2, "new").await;
    assert_eq!(next.epoch, 1, "a new message");
}

async fn a_held_message_is_followed_once(queue: &Queue) {
    queue.leased(0, message("a"), 50).await;
    let follow = queue.enqueue_one(1, set(1, "a", "first", after(0))).await;
    assert_eq!(follow, Enqueued::Following { replaced: false });
    let follow = queue.enqueue_one(2, set(2, "a", "second", after(7))).await;
    assert_eq!(follow, Enqueued::Following { replaced: true });
    let found = queue.live(3, "a").await;
    assert_eq!(found.payload, "payload of a");
    let mut follower = Follower::new(at(1), at(9));
    follower.payload_bytes = 6;
    assert_eq!(found.follower, Some(follower));
    assert_eq!(queue.claim_ids(20, claim(2, 10, 50)).await, [""; 0], "never two at once");
    assert_eq!(queue.stats(20).await.totals.enqueued, 1, "it has no sequence number yet");
}

async fn a_follower_takes_over_after_an_ack(queue: &Queue) {
    let held = queue.leased(0, message("a"), 50).await;
    queue.enqueue_one(1, set(1, "a", "new", after(0))).await;
    assert_eq!(queue.end(5, "a", held, Outcome::Ack).await, done(Status::Acked));
    assert_eq!(queue.end(6, "a", held, Outcome::Ack).await, ended(Status::Acked));
    assert_eq!(queue.end(6, "a", held, Outcome::Release).await, Settled::Stale);
    let info = queue.live(6, "a").await.info;
    assert_eq!((info.sequence, info.enqueued_at, info.due), (2, at(1), at(5)));
    let stats = queue.stats(6).await;
    assert_eq!((stats.totals.acked, stats.totals.replaced, stats.totals.enqueued), (1, 0, 2));
    let next = take(queue, 7, 2, "new").await;
    assert_eq!(queue.end(8, "a", held, Outcome::Ack).await, Settled::Stale);
    assert_eq!(queue.end(8, "a", next, Outcome::Ack).await, done(Status::Acked));
    assert_eq!(queue.get(9, "a").await, Found::Finished(Status::Acked));
}

async fn a_follower_takes_over_after_any_other_settlement(queue: &Queue) {
    let outcomes = [
        ("retry", retry(50, "boom")),
        ("undecodable", undecodable(50, "boom")),
        ("snooze", Outcome::Snooze { schedule: Schedule::In(millis(50)) }),
        ("release", Outcome::Release),
        ("reject", reject("boom")),
    ];
    for (n, (name, outcome)) in (1..).zip(outcomes) {
        let held = queue.leased_as(n, 0, message(name), 50).await;
        queue.enqueue_one(1, set(1, name, "new", after(0))).await;
        assert_eq!(queue.end(2, name, held, outcome.clone()).await, done(Status::Replaced));
        assert_eq!(queue.end(3, name, held, outcome).await, ended(Status::Replaced), "{name}");
        let info = queue.live(3, name).await.info;
        assert_eq!((info.failures, info.last_error), (0, None), "{name}");
        let totals = queue.stats(3).await.totals;
        let counted = [totals.failed, totals.snoozed, totals.released, totals.died_rejected];
        let expected = [u64::from(n.min(2)), u64::from(n >= 3), u64::from(n >= 4), 0];
        assert_eq!(counted, expected, "{name}");
        let next = take(queue, 4, n + 10, "new").await;
        assert_eq!(queue.end(5, name, next, Outcome::Ack).await, done(Status::Acked), "{name}");
    }
    assert_eq!(queue.stats(6).await.totals.replaced, 5);
}

async fn a_follower_takes_over_after_a_crash(queue: &Queue) {
    let held = queue.leased(0, message("a").max_crashes(1), 50).await;
    queue.enqueue_one(1, set(1, "a", "new", after(0))).await;
    let claimed = queue.claim(60, claim(2, 10, 50)).await;
    assert_eq!(claimed.deaths, []);
    let next = one(claimed.deliveries);
    assert_eq!((&*next.message.payload, next.message.info.crashes), (&b"new"[..], 0));
    assert_eq!(queue.end(61, "a", held, Outcome::Ack).await, Settled::Stale);
    assert_eq!(queue.end(61, "a", next.lease, Outcome::Ack).await, done(Status::Acked));
    assert_eq!(queue.stats(62).await.totals.replaced, 1);
}

async fn a_follower_takes_over_after_a_cancelled_lease(queue: &Queue) {
    for (n, name) in (1..).zip(["released", "crashed", "acked"]) {
        let held = queue.leased_as(n, 0, message(name), 50).await;
        assert_eq!(queue.cancel(1, name).await, Cancelled::InFlight);
        let follow = queue.enqueue_one(2, set(1, name, "new", after(0))).await;
        assert_eq!(follow, Enqueued::Following { replaced: false });
        match name {
            "released" => {
                let cancelled = queue.end(3, name, held, Outcome::Release).await;
                assert_eq!(cancelled, done(Status::Cancelled));
                let again = queue.end(4, name, held, Outcome::Release).await;
                assert_eq!(again, ended(Status::Cancelled));
            }
            "acked" => {
                assert_eq!(queue.end(3, name, held, Outcome::Ack).await, done(Status::Acked));
            }
            _ => {}
        }
        take(queue, 60, n + 10, "new").await;
    }
    let stats = queue.stats(61).await;
    assert_eq!((stats.totals.cancelled, stats.totals.acked, stats.totals.replaced), (2, 1, 0));
}

async fn a_cancel_drops_the_follower(queue: &Queue) {
    let held = queue.leased(0, message("a"), 50).await;
    queue.enqueue_one(1, set(1, "a", "new", after(0))).await;
    assert_eq!(queue.cancel(2, "a").await, Cancelled::InFlight);
    assert_eq!(queue.live(3, "a").await.follower, None);
    let repeated = queue.enqueue_one(3, set(1, "a", "new", after(0))).await;
    assert_eq!(repeated, duplicate(Status::Leased), "its token is still known");
    assert_eq!(queue.end(4, "a", held, Outcome::Release).await, done(Status::Cancelled));
    assert_eq!(queue.get(5, "a").await, Found::Finished(Status::Cancelled));
    queue.leased_as(2, 6, message("b"), 50).await;
    queue.cancel(7, "b").await;
    queue.enqueue_one(8, set(1, "b", "new", after(0))).await;
    assert_eq!(queue.cancel(9, "b").await, Cancelled::InFlight);
    assert_eq!(queue.live(9, "b").await.follower, None, "a second cancel drops it as well");
}

async fn a_follower_waits_for_its_due_time(queue: &Queue) {
    let held = queue.leased(0, message("a"), 50).await;
    queue.enqueue_one(1, set(1, "a", "new", after(40))).await;
    queue.end(2, "a", held, Outcome::Ack).await;
    let info = queue.live(3, "a").await.info;
    assert_eq!((info.state, info.due), (MessageState::Scheduled, at(41)));
    assert_eq!(queue.claim_ids(40, claim(2, 10, 50)).await, [""; 0]);
    take(queue, 41, 3, "new").await;
}

async fn a_follower_is_updated_as_told(queue: &Queue) {
    let held = queue.leased(0, message("a"), 1_000).await;
    queue.enqueue_one(10, set(1, "a", "first", after(20))).await;
    let bounded = UpdateDue::Later { at_most: millis(50) };
    let steps = [
        (KEEP, UpdateDue::Keep, "a", 100, 30),
        (KEEP, SET, "b", 35, 45),
        (REPLACE, bounded, "third", 20, 45),
        (REPLACE, bounded, "fourth", 90, 60),
        (KEEP, UpdateDue::Keep, "fifth", 5, 60),
    ];
    for (token, (content, due, payload, delay, due_ms)) in (2..).zip(steps) {
        let change = known(update(token, content, due), "a", payload, after(delay));
        let answer = queue.enqueue_one(10, change).await;
        assert_eq!(answer, Enqueued::Following { replaced: true });
        let follower = queue.live(10, "a").await.follower.unwrap_or_else(|| panic!("it is gone"));
        assert_eq!((follower.due, follower.enqueued_at), (at(due_ms), at(10)), "{token}");
    }
    queue.end(11, "a", held, Outcome::Ack).await;
    take(queue, 60, 2, "fourth").await;
}

async fn a_follower_of_a_follower_waits_for_its_lease(queue: &Queue) {
    let mut held = queue.leased(0, message("a"), 50).await;
    for round in 1..6_u8 {
        let payload = format!("round {round}");
        let follow = queue.enqueue_one(1, set(round, "a", &payload, after(0))).await;
        assert_eq!(follow, Enqueued::Following { replaced: false });
        assert_eq!(queue.end(2, "a", held, Outcome::Ack).await, done(Status::Acked));
        held = take(queue, 2, round + 1, &payload).await;
        assert_eq!(held.epoch, u64::from(round) + 1);
    }
    assert_eq!(queue.end(3, "a", held, Outcome::Ack).await, done(Status::Acked));
    assert_eq!(queue.stats(4).await.totals.acked, 6);
}

async fn a_large_message_and_its_follower_do_not_mix(queue: &Queue) {
    let (large, next) = ("x".repeat(9_000), "y".repeat(9_000));
    let held = queue.leased(0, known(Known::Refuse, "a", &large, after(0)), 1_000).await;
    queue.enqueue_one(1, set(1, "a", &next, after(0))).await;
    assert_eq!(queue.live(2, "a").await.payload, large.as_bytes());
    queue.end(3, "a", held, Outcome::Ack).await;
    let held = take(queue, 4, 2, &next).await;
    queue.end(5, "a", held, Outcome::Ack).await;
}

async fn a_repeated_update_changes_nothing(queue: &Queue) {
    let repeat = |ms| queue.enqueue_one(ms, set(1, "a", "one", after(20)));
    assert_eq!(repeat(0).await, Enqueued::Created { due: at(20) });
    assert_eq!(repeat(1).await, duplicate(Status::Scheduled));
    assert_eq!(queue.live(1, "a").await.info.due, at(20));
    assert_eq!(repeat(25).await, duplicate(Status::Ready));
    let held = take(queue, 26, 1, "one").await;
    assert_eq!(repeat(27).await, duplicate(Status::Leased));
    assert_eq!(queue.live(27, "a").await.follower, None);
    queue.end(28, "a", held, reject("boom")).await;
    assert_eq!(repeat(29).await, duplicate(Status::Dead));
    queue.purge(30, "a").await;
    assert_eq!(repeat(31).await, duplicate(Status::Purged));
    let held = queue.leased_as(2, 40, message("b"), 1_000).await;
    let follow = |ms| queue.enqueue_one(ms, set(9, "b", "two", after(0)));
    assert_eq!(follow(41).await, Enqueued::Following { replaced: false });
    assert_eq!(follow(42).await, duplicate(Status::Leased));
    queue.end(43, "b", held, Outcome::Ack).await;
    assert_eq!(follow(44).await, duplicate(Status::Ready));
}

async fn a_late_repetition_does_not_bring_old_content_back(queue: &Queue) {
    queue.enqueue_one(0, set(1, "a", "one", after(50))).await;
    queue.enqueue_one(1, set(2, "a", "two", after(60))).await;
    let late = queue.enqueue_one(2, set(1, "a", "one", after(50))).await;
    assert_eq!(late, duplicate(Status::Scheduled));
    let unchanged = known(update(3, KEEP, UpdateDue::Keep), "a", "three", after(0));
    assert_eq!(queue.enqueue_one(3, unchanged.clone()).await, duplicate(Status::Scheduled));
    let held = take(queue, 61, 1, "two").await;
    queue.enqueue_one(62, set(4, "a", "four", after(0))).await;
    let late = queue.enqueue_one(63, set(2, "a", "two", after(0))).await;
    assert_eq!(late, duplicate(Status::Leased), "nor in the follower");
    let late = queue.enqueue_one(63, unchanged).await;
    assert_eq!(late, duplicate(Status::Leased), "nor one that changed nothing the first time");
    queue.end(64, "a", held, Outcome::Ack).await;
    take(queue, 65, 2, "four").await;
}

async fn a_late_repetition_revives_nothing(queue: &Queue) {
    let reusing =
        |token, payload| set(token, "a", payload, after(0)).finished_ids(FinishedIds::Reuse);
    let ends = [Status::Acked, Status::Cancelled, Status::Purged];
    for (token, status) in (1..).zip(ends) {
        queue.enqueue_one(0, reusing(token, "one")).await;
        match status {
            Status::Cancelled => assert_eq!(queue.cancel(1, "a").await, Cancelled::Cancelled),
            _ => {
                let held = take(queue, 1, token, "one").await;
                let acks = status == Status::Acked;
                let outcome = if acks { Outcome::Ack } else { reject("boom") };
                queue.end(2, "a", held, outcome).await;
                queue.purge(3, "a").await;
            }
        }
        assert_eq!(queue.get(4, "a").await, Found::Finished(status));
        assert_eq!(queue.enqueue_one(5, reusing(token, "one")).await, duplicate(status));
    }
    let created = queue.enqueue_one(6, reusing(4, "two")).await;
    assert_eq!(created, Enqueued::Created { due: at(6) });
    let late = queue.enqueue_one(7, reusing(1, "one")).await;
    assert_eq!(late, duplicate(Status::Ready), "the tokens go on with the id");
}

async fn more_updates_than_are_remembered_are_the_exception(queue: &Queue) {
    let tokens = 1..=u8::try_from(MAX_UPDATE_TOKENS).unwrap_or(u8::MAX);
    for token in tokens {
        queue.enqueue_one(0, set(token, "a", &token.to_string(), after(50))).await;
    }
    let known = queue.enqueue_one(1, set(1, "a", "1", after(50))).await;
    assert_eq!(known, duplicate(Status::Scheduled));
    queue.enqueue_one(2, set(99, "a", "99", after(50))).await;
    let forgotten = queue.enqueue_one(3, set(1, "a", "1", after(50))).await;
    assert_eq!(forgotten, Enqueued::Updated { due: at(53) });
}

async fn tokens_are_forgotten_with_the_id(queue: &Queue) {
    let changed = set(1, "a", "one", after(0)).finished_ids(FinishedIds::Reuse);
    queue.enqueue_one(0, changed.clone()).await;
    queue.cancel(1, "a").await;
    let remembered = FINISHED_RETENTION_MS;
    assert_eq!(queue.enqueue_one(remembered, changed.clone()).await, duplicate(Status::Cancelled));
    let late = 2 * FINISHED_RETENTION_MS + 2;
    assert_eq!(queue.enqueue_one(late, changed).await, Enqueued::Created { due: at(late) });
}

async fn items_of_a_batch_mix(queue: &Queue) {
    queue.enqueue(0, vec![message("waiting"), message("same"), message("other")]).await;
    let items = vec![
        set(1, "waiting", "new", after(9)),
        message("same"),
        message("other").payload(""),
        message("plain").expires(after(70)),
        message("large").payload("z".repeat(9_000)),
        set(1, "created", "new", after(0)).expires(after(70)),
    ];
    let status = Status::Ready;
    let expected = [
        Enqueued::Updated { due: at(10) },
        duplicate(status),
        Enqueued::Conflict { status },
        Enqueued::Created { due: at(1) },
        Enqueued::Created { due: at(1) },
        Enqueued::Created { due: at(1) },
    ];
    assert_eq!(queue.enqueue(1, items).await, expected);
    assert_eq!(queue.live(1, "plain").await.info.expires_at, Some(at(71)));
    assert_eq!(queue.live(1, "large").await.payload.len(), 9_000);
    let order = queue.claim_ids(20, claim(1, 10, 50)).await;
    assert_eq!(order, ["same", "other", "plain", "large", "created", "waiting"]);
}

async fn updates_have_limits(queue: &Queue) {
    let exact = "x".repeat(MAX_UPDATE_BYTES);
    let created = queue.enqueue_one(0, set(1, "a", &exact, after(0))).await;
    assert_eq!(created, Enqueued::Created { due: at(0) });
    for beyond in [set(1, "b", &(exact.clone() + "x"), after(0)), set(0, "c", "", after(0))] {
        let error = queue.try_apply(0, &Op::Enqueue(vec![beyond])).await;
        assert_eq!(error.map_err(|error| error.class()), Err(ErrorClass::Rejected));
    }
    take(queue, 1, 1, &exact).await;
}

async fn a_batch_of_followers_takes_over(queue: &Queue) {
    let names: Vec<_> = (0..100).map(|n| format!("m{n:02}")).collect();
    queue.enqueue(0, names.iter().map(|name| message(name)).collect()).await;
    let deliveries = queue.claim(0, claim(1, 100, 50)).await.deliveries;
    let follow = names.iter().map(|name| set(1, name, "new", after(0))).collect();
    let following = Enqueued::Following { replaced: false };
    assert_eq!(queue.enqueue(1, follow).await, vec![following; 100]);
    let settle = |(n, delivery): (usize, &delayline_core::Delivery)| {
        let outcome = if n.is_multiple_of(2) { Outcome::Ack } else { Outcome::Release };
        let name = &delivery.message.info.id;
        Settlement::new(id(&name.to_string()), delivery.lease, outcome)
    };
    let settlements: Vec<_> = deliveries.iter().enumerate().map(settle).collect();
    let settled = queue.settle(2, settlements.clone()).await;
    let status = |n: usize| if n.is_multiple_of(2) { Status::Acked } else { Status::Replaced };
    assert_eq!(settled, (0..100).map(|n| done(status(n))).collect::<Vec<_>>());
    let again = queue.settle(3, settlements).await;
    assert_eq!(again, (0..100).map(|n| ended(status(n))).collect::<Vec<_>>());
    assert_eq!(queue.claim_ids(4, claim(2, 100, 50)).await, names, "in order");
}
