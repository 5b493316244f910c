//! Deliveries and their times.

use delayline_core::{
    Claimed, Delivery, Enqueued, Headers, Message, MessageInfo, MessageState, NewMessage, Priority,
    Schedule, Timestamp,
};

use super::queue::{Queue, after, at, claim, id, ids, lease, message, millis, one, with};

super::cases! { "delivery",
    a_message_is_delivered_as_it_was_enqueued: "G2",
    nothing_is_delivered_before_it_is_due: "G4",
    past_and_present_instants_are_due_at_once: "G4",
    large_delays_are_kept_to_the_millisecond: "G4",
    a_delay_of_many_leases_is_one_delivery: "G4 G5",
    the_farthest_instants_are_kept: "G4",
    a_claim_takes_at_most_what_it_asks_for: "G12",
    a_claim_says_when_to_come_back: "G21",
    an_empty_queue_has_nothing_to_come_back_for: "G21",
    a_rescheduled_message_is_due_at_its_new_instant: "G4",
}

async fn a_message_is_delivered_as_it_was_enqueued(queue: &Queue) {
    let mut headers = Headers::new();
    for (name, value) in [("trace", "00-af-01"), ("empty", ""), ("z", "last"), ("a", "order")] {
        headers.set(name, value).unwrap_or_else(|violation| panic!("{violation}"));
    }
    let order = NewMessage::new(id("order-1"), "close it")
        .headers(headers.clone())
        .priority(Priority::High)
        .schedule(after(40))
        .expires(after(5_000))
        .max_failures(7)
        .max_crashes(3);
    assert_eq!(queue.enqueue_one(10, order).await, Enqueued::Created { due: at(50) });
    let claimed = queue.claim(60, claim(1, 10, 500)).await;
    let state = MessageState::Leased { deadline: at(560), cancel_requested: false };
    let mut info = MessageInfo::new(id("order-1"), state, 1, at(10), at(50));
    info.priority = Priority::High;
    info.expires_at = Some(at(5_010));
    info.epoch = 1;
    (info.max_failures, info.max_crashes) = (7, 3);
    info.payload_bytes = 8;
    info.holder = Some(lease(1, 1).claim_id.process());
    let mut delivered = Message::new(info, "close it".into());
    delivered.headers = headers;
    let mut expected = Claimed::default();
    expected.deliveries = vec![Delivery::new(delivered.clone(), lease(1, 1))];
    expected.next = Some(at(560));
    assert_eq!(claimed, expected);
    assert_eq!(claimed.deliveries[0].message.payload, "close it");
    let names: Vec<_> = delivered.headers.iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["trace", "empty", "z", "a"], "headers keep their order");
}

async fn nothing_is_delivered_before_it_is_due(queue: &Queue) {
    let delayed = message("a").schedule(after(500));
    assert_eq!(queue.enqueue_one(999, delayed).await, Enqueued::Created { due: at(1_499) });
    for (token, ms) in [(1, 999), (2, 1_000), (3, 1_498)] {
        let early = queue.claim(ms, claim(token, 10, 50)).await;
        let nothing = with(Claimed::default(), |claimed| claimed.next = Some(at(1_499)));
        assert_eq!(early, nothing, "at {ms}");
    }
    assert_eq!(queue.claim_ids(1_499, claim(4, 10, 50)).await, ["a"]);
}

async fn past_and_present_instants_are_due_at_once(queue: &Queue) {
    let schedules = [
        ("zero", Schedule::In(millis(0)), at(1_000)),
        ("now", Schedule::At(at(1_000)), at(1_000)),
        ("past", Schedule::At(at(1)), at(1)),
        ("epoch", Schedule::At(Timestamp::MIN), Timestamp::MIN),
    ];
    for (name, schedule, due) in schedules {
        let created = queue.enqueue_one(1_000, message(name).schedule(schedule)).await;
        assert_eq!(created, Enqueued::Created { due }, "{name}");
    }
    let claimed = queue.claim_ids(1_000, claim(1, 10, 50)).await;
    assert_eq!(claimed, ["epoch", "past", "zero", "now"]);
}

async fn large_delays_are_kept_to_the_millisecond(queue: &Queue) {
    let delays = [(1 << 31) - 1, 1 << 31, (1 << 32) + 1, 1_000_000_000_001];
    for delay in delays {
        let delayed = message(&delay.to_string()).schedule(after(delay));
        assert_eq!(queue.enqueue_one(7, delayed).await, Enqueued::Created { due: at(7 + delay) });
    }
    for (n, delay) in (0..).zip(delays) {
        let early = queue.claim(7 + delay - 1, claim(2 * n, 10, 86_400_000)).await;
        assert_eq!(ids(&early.deliveries), [""; 0], "one millisecond before {delay}");
        assert_eq!(early.next, Some(at(7 + delay)));
        let lease =
            one(queue.claim(7 + delay, claim(2 * n + 1, 10, 60_000)).await.deliveries).lease;
        let name = delay.to_string();
        queue.end(7 + delay, &name, lease, delayline_core::Outcome::Ack).await;
    }
}

async fn a_delay_of_many_leases_is_one_delivery(queue: &Queue) {
    let order = message("order-1").schedule(after(1_000));
    queue.enqueue_one(0, order).await;
    for n in 0..100_u8 {
        assert_eq!(queue.claim(u64::from(n) * 10, claim(n, 10, 100)).await.deliveries, []);
    }
    let delivery = one(queue.claim(1_000, claim(100, 10, 100)).await.deliveries);
    assert_eq!(delivery.message.info.crashes, 0, "it was not delivered before");
    for n in 0..100_u8 {
        let ms = 1_000 + u64::from(n);
        assert_eq!(queue.claim(ms, claim(101 + n, 10, 100)).await.deliveries, []);
    }
}

async fn the_farthest_instants_are_kept(queue: &Queue) {
    let last = message("last").schedule(Schedule::At(Timestamp::MAX));
    let due = Timestamp::MAX;
    assert_eq!(queue.enqueue_one(0, last).await, Enqueued::Created { due });
    let century = millis(delayline_core::limits::MAX_DELAY_MS);
    let late = message("century").schedule(Schedule::In(century));
    let due = at(century.as_ms());
    assert_eq!(queue.enqueue_one(0, late).await, Enqueued::Created { due });
    assert_eq!(queue.claim(0, claim(1, 10, 50)).await.next, Some(due));
    let early = queue.claim(century.as_ms() - 1, claim(2, 10, 50)).await;
    assert_eq!(ids(&early.deliveries), [""; 0]);
    assert_eq!(queue.claim_ids(century.as_ms(), claim(3, 10, 50)).await, ["century"]);
    assert_eq!(queue.live(century.as_ms(), "last").await.info.due, Timestamp::MAX);
}

async fn a_claim_takes_at_most_what_it_asks_for(queue: &Queue) {
    queue.enqueue(0, ["a", "b", "c"].map(message).to_vec()).await;
    let first = queue.claim(5, claim(1, 2, 50)).await;
    assert_eq!(ids(&first.deliveries), ["a", "b"]);
    assert!(first.more, "c is ready");
    assert_eq!(first.next, Some(at(0)), "c has been due since 0");
    let second = queue.claim(6, claim(2, 2, 50)).await;
    assert_eq!(ids(&second.deliveries), ["c"]);
    assert!(!second.more);
    assert_eq!(second.next, Some(at(55)), "the first two leases end");
}

async fn a_claim_says_when_to_come_back(queue: &Queue) {
    let later = message("later").schedule(after(700));
    queue.enqueue(0, vec![message("now"), later]).await;
    let claimed = queue.claim(0, claim(1, 10, 1_000)).await;
    assert_eq!((ids(&claimed.deliveries), claimed.next), (vec!["now".to_owned()], Some(at(700))));
    let claimed = queue.claim(700, claim(2, 10, 5_000)).await;
    assert_eq!(claimed.next, Some(at(1_000)), "the lease of the first ends before the second's");
}

async fn an_empty_queue_has_nothing_to_come_back_for(queue: &Queue) {
    assert_eq!(queue.claim(0, claim(1, 10, 50)).await, Claimed::default());
    let lease = queue.leased(0, message("a"), 50).await;
    queue.end(1, "a", lease, delayline_core::Outcome::Ack).await;
    assert_eq!(queue.claim(2, claim(2, 10, 50)).await, Claimed::default());
}

async fn a_rescheduled_message_is_due_at_its_new_instant(queue: &Queue) {
    use delayline_core::Rescheduled::{Done, InFlight, NotFound};
    queue.enqueue(0, vec![message("a"), message("b").schedule(after(9_000))]).await;
    let done = queue.reschedule(10, "a", after(90)).await;
    assert_eq!(done, Done { due: at(100) }, "a ready message can wait again");
    assert_eq!(queue.reschedule(10, "b", Schedule::At(at(99))).await, Done { due: at(99) });
    assert_eq!(queue.claim_ids(98, claim(1, 10, 50)).await, [""; 0]);
    assert_eq!(queue.claim_ids(99, claim(2, 10, 50)).await, ["b"]);
    assert_eq!(queue.reschedule(99, "b", Schedule::NOW).await, InFlight);
    assert_eq!(queue.claim_ids(100, claim(3, 10, 50)).await, ["a"]);
    assert_eq!(queue.reschedule(99, "absent", Schedule::NOW).await, NotFound);
}
