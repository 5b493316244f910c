//! Limits of a queue, which hold for all of its workers.

use std::time::Duration;

use delayline_core::{
    HandOff, Hold, Limits, Millis, Op, Outcome, Rate, Reply, Schedule, SetLimits, Settled,
    Settlement, Timestamp, Violation,
};

use super::clock::{claim_on_server, on_server, sleep_until};
use super::queue::{Queue, after, at, claim, id, message, one};
use crate::workload::destinations::list;

super::cases! { "queue_limits",
    so_many_are_leased_at_once: "G34",
    a_lower_limit_ends_no_lease: "G6, G34",
    an_expired_lease_frees_its_slot: "G3, G34",
    a_rate_lets_a_burst_through_and_then_its_share: "G34",
    a_rate_is_not_saved_up_beyond_its_burst: "G34",
    a_rate_holds_by_the_servers_clock: "G34",
    a_step_back_of_the_clock_waits_for_one_burst_at_most: "G19, G34",
    another_rate_grants_no_new_burst: "G34",
    a_hold_stops_deliveries_until_its_end: "G4, G34",
    a_settlement_holds_the_queue: "G34",
    a_settlement_that_ends_nothing_holds_nothing: "G6, G34",
    of_holds_that_overlap_the_latest_end_counts: "G34",
    a_hand_off_holds_the_queue: "G31, G34",
    a_relay_counts_by_rate_and_not_by_leases: "G34",
    a_repeated_claim_counts_once: "G16, G34",
    limits_are_shown_and_changed_one_by_one: "G22, G34",
    limits_beyond_their_ranges_are_refused: "G23, G34",
}

fn rate(count: u32, per_ms: u64, burst: u32) -> Rate {
    Rate::new(count, Duration::from_millis(per_ms), burst)
}

async fn enqueue(queue: &Queue, count: usize) {
    let messages = (0..count).map(|n| message(&format!("m{n}"))).collect();
    queue.enqueue(0, messages).await;
}

async fn claimed(queue: &Queue, ms: u64, n: u8, max: usize) -> (usize, Option<Timestamp>) {
    let claimed = queue.claim(ms, claim(n, max, 60_000)).await;
    (claimed.deliveries.len(), claimed.next)
}

async fn limits(queue: &Queue, ms: u64) -> Limits {
    queue.stats(ms).await.limits
}

async fn so_many_are_leased_at_once(queue: &Queue) {
    enqueue(queue, 5).await;
    assert!(queue.set_limits(0, SetLimits::new().leased(3)).await);
    let first = queue.claim(0, claim(1, 2, 60_000)).await;
    assert_eq!(first.deliveries.len(), 2);
    assert!(first.more);
    let second = queue.claim(1, claim(2, 10, 50)).await;
    assert_eq!(second.deliveries.len(), 1);
    // The next lease that ends frees a slot.
    assert_eq!((second.more, second.next), (false, Some(at(51))));
    assert_eq!(claimed(queue, 2, 3, 10).await, (0, Some(at(51))));
    queue.end(2, "m0", first.deliveries[0].lease, Outcome::Ack).await;
    queue.end(2, "m1", first.deliveries[1].lease, Outcome::Release).await;
    assert_eq!(claimed(queue, 3, 4, 10).await.0, 2);
    assert_eq!(queue.stats(3).await.leased, 3);
}

async fn a_lower_limit_ends_no_lease(queue: &Queue) {
    enqueue(queue, 4).await;
    let held = queue.claim(0, claim(1, 3, 60_000)).await.deliveries;
    queue.set_limits(1, SetLimits::new().leased(1)).await;
    for delivery in &held {
        assert_eq!(claimed(queue, 2, 2, 10).await.0, 0);
        let name = delivery.message.info.id.to_string();
        let settled = queue.end(2, &name, delivery.lease, Outcome::Ack).await;
        assert!(matches!(settled, Settled::Done { .. }));
    }
    assert_eq!(claimed(queue, 3, 3, 10).await.0, 1);
}

async fn an_expired_lease_frees_its_slot(queue: &Queue) {
    enqueue(queue, 2).await;
    queue.set_limits(0, SetLimits::new().leased(1)).await;
    queue.claim(0, claim(1, 1, 50)).await;
    assert_eq!(claimed(queue, 49, 2, 10).await, (0, Some(at(50))));
    assert_eq!(claimed(queue, 50, 3, 10).await.0, 1);
}

async fn a_rate_lets_a_burst_through_and_then_its_share(queue: &Queue) {
    enqueue(queue, 20).await;
    // One in 333.3 ms.
    queue.set_limits(0, SetLimits::new().rate(rate(3, 1_000, 2))).await;
    assert_eq!(claimed(queue, 0, 1, 10).await, (2, Some(at(334))));
    assert_eq!(claimed(queue, 333, 2, 10).await, (0, Some(at(334))));
    assert_eq!(claimed(queue, 334, 3, 10).await, (1, Some(at(667))));
    assert_eq!(claimed(queue, 666, 4, 10).await.0, 0);
    // The third interval ends at 1,000 ms and a few nanoseconds.
    assert_eq!(claimed(queue, 1_001, 5, 10).await, (2, Some(at(1_335))));
    assert!(queue.set_limits(1_002, SetLimits::new().rate(None)).await);
    assert_eq!(claimed(queue, 1_002, 6, 10).await.0, 10);
}

async fn a_rate_is_not_saved_up_beyond_its_burst(queue: &Queue) {
    enqueue(queue, 20).await;
    queue.set_limits(0, SetLimits::new().rate(rate(1_000, 1_000, 4))).await;
    assert_eq!(claimed(queue, 1_000_000, 1, 10).await, (4, Some(at(1_000_001))));
    assert_eq!(claimed(queue, 1_000_003, 2, 10).await.0, 3);
}

async fn a_rate_holds_by_the_servers_clock(queue: &Queue) {
    let messages = (0..5).map(|n| message(&format!("m{n}"))).collect();
    on_server(queue, &Op::Enqueue(messages)).await;
    // One in 50 ms.
    on_server(queue, &Op::SetLimits(SetLimits::new().rate(rate(20, 1_000, 1)))).await;
    let mut delivered = Vec::new();
    for n in 0..200 {
        let (now, claimed) = claim_on_server(queue, claim(n, 10, 60_000)).await;
        delivered.extend(claimed.deliveries.iter().map(|_| now));
        if delivered.len() == 5 {
            break;
        }
        sleep_until(now, &claimed).await;
    }
    for (n, at) in delivered.iter().enumerate() {
        let after = at.since(delivered[0]);
        assert!(after >= Duration::from_millis(50 * n as u64), "number {n} came after {after:?}");
    }
    assert_eq!(delivered.len(), 5);
}

async fn a_step_back_of_the_clock_waits_for_one_burst_at_most(queue: &Queue) {
    enqueue(queue, 20).await;
    queue.set_limits(0, SetLimits::new().rate(rate(10, 1_000, 2))).await;
    assert_eq!(claimed(queue, 1_000_000, 1, 10).await.0, 2);
    // The deliveries in the future count as one burst: none follows at once.
    assert_eq!(claimed(queue, 500, 2, 10).await, (0, Some(at(600))));
    assert_eq!(claimed(queue, 599, 3, 10).await.0, 0);
    assert_eq!(claimed(queue, 600, 4, 10).await, (1, Some(at(700))));
}

async fn another_rate_grants_no_new_burst(queue: &Queue) {
    enqueue(queue, 20).await;
    queue.set_limits(0, SetLimits::new().rate(rate(1, 1_000, 1))).await;
    assert_eq!(claimed(queue, 0, 1, 10).await, (1, Some(at(1_000))));
    queue.set_limits(0, SetLimits::new().rate(rate(10, 1_000, 2))).await;
    assert_eq!(claimed(queue, 99, 2, 10).await, (0, Some(at(100))));
    assert_eq!(claimed(queue, 100, 3, 10).await.0, 1);
}

async fn a_hold_stops_deliveries_until_its_end(queue: &Queue) {
    enqueue(queue, 2).await;
    assert!(queue.set_limits(0, SetLimits::new().hold_for(Duration::from_millis(100))).await);
    assert_eq!(claimed(queue, 99, 1, 1).await, (0, Some(at(100))));
    assert_eq!(limits(queue, 99).await.held_until, Some(at(100)));
    assert_eq!(claimed(queue, 100, 2, 1).await.0, 1);
    assert_eq!(limits(queue, 100).await.held_until, None);
    queue.set_limits(100, SetLimits::new().hold_for(Duration::from_millis(100))).await;
    assert!(queue.set_limits(101, SetLimits::new().end_hold()).await);
    assert_eq!(claimed(queue, 101, 3, 1).await.0, 1);
}

async fn a_settlement_holds_the_queue(queue: &Queue) {
    for (n, outcome) in [Outcome::Ack, Outcome::Release, Outcome::Snooze { schedule: after(5) }]
        .into_iter()
        .enumerate()
    {
        let (n, start) = (u8::try_from(n).unwrap_or(0), n as u64 * 1_000);
        let names = [format!("a{n}"), format!("b{n}")];
        queue.enqueue(start, names.iter().map(|name| message(name)).collect()).await;
        let held = one(queue.claim(start, claim(2 * n + 1, 1, 500)).await.deliveries);
        let settlement = Settlement::new(held.message.info.id, held.lease, outcome);
        let answers = queue.settle(start + 1, vec![settlement.hold(Hold::Queue(after(100)))]).await;
        assert!(matches!(one(answers), Settled::Done { .. }));
        let none = queue.claim(start + 100, claim(30, 1, 500)).await;
        assert_eq!((none.deliveries.len(), none.next), (0, Some(at(start + 101))));
        queue.cancel(start + 101, &names[0]).await;
        let next = queue.claim(start + 101, claim(2 * n + 2, 1, 500)).await.deliveries;
        queue.end(start + 102, &names[1], one(next).lease, Outcome::Ack).await;
    }
}

async fn a_settlement_that_ends_nothing_holds_nothing(queue: &Queue) {
    let lease = queue.leased(0, message("a"), 50).await;
    let settlement = Settlement::new(id("a"), lease, Outcome::Ack);
    queue.settle(1, vec![settlement.clone()]).await;
    for stale in [settlement, Settlement::new(id("gone"), lease, Outcome::Release)] {
        queue.settle(2, vec![stale.hold(Hold::Queue(after(1_000)))]).await;
        assert_eq!(limits(queue, 2).await, Limits::default());
    }
    // Nor does it beside one that ends a lease, so that the call writes something.
    let real = queue.leased_as(2, 3, message("b"), 50).await;
    let stale = Settlement::new(id("gone"), real, Outcome::Release).hold(Hold::Queue(after(1_000)));
    queue.settle(4, vec![stale, Settlement::new(id("b"), real, Outcome::Ack)]).await;
    assert_eq!(limits(queue, 4).await, Limits::default());
}

async fn of_holds_that_overlap_the_latest_end_counts(queue: &Queue) {
    enqueue(queue, 4).await;
    let held = queue.claim(0, claim(1, 3, 60_000)).await.deliveries;
    let [first, second, third] = &held[..] else { panic!("{held:?}") };
    let end = |delivery: &delayline_core::Delivery, ms| {
        let id = delivery.message.info.id.clone();
        Settlement::new(id, delivery.lease, Outcome::Ack).hold(Hold::Queue(Schedule::At(at(ms))))
    };
    queue.settle(1, vec![end(first, 50), end(second, 70)]).await;
    assert_eq!(limits(queue, 1).await.held_until, Some(at(70)));
    queue.settle(2, vec![end(third, 60)]).await;
    assert_eq!(limits(queue, 2).await.held_until, Some(at(70)));
    // An operator decides.
    queue.set_limits(3, SetLimits::new().hold_until(at(60).into())).await;
    assert_eq!(claimed(queue, 60, 2, 1).await.0, 1);
}

async fn a_hand_off_holds_the_queue(queue: &Queue) {
    let lease = queue.leased(0, message("a"), 50).await;
    let settlement = Settlement::new(id("a"), lease, Outcome::Ack).hold(Hold::Queue(after(30)));
    let op = Op::HandOff(vec![HandOff::new(settlement, vec![message("b")])]);
    let Reply::HandOff(_) = queue.apply(1, &op).await.reply else { panic!() };
    assert_eq!(claimed(queue, 30, 2, 1).await, (0, Some(at(31))));
    assert_eq!(claimed(queue, 31, 3, 1).await.0, 1);
}

async fn a_relay_counts_by_rate_and_not_by_leases(queue: &Queue) {
    enqueue(queue, 6).await;
    queue.set_limits(0, SetLimits::new().leased(1)).await;
    let op = |max| Op::Relay(delayline_core::Relay::new(list("a-list", None), max));
    let moved = async |ms, max| {
        let Reply::Relay(relayed) = queue.apply(ms, &op(max)).await.reply else { panic!() };
        assert!(relayed.leases_limited);
        (relayed.ids.len(), relayed.next)
    };
    assert_eq!(claimed(queue, 0, 1, 10).await.0, 1);
    assert_eq!(moved(0, 2).await, (2, Some(at(0))));
    queue.set_limits(0, SetLimits::new().rate(rate(10, 1_000, 2))).await;
    assert_eq!(moved(0, 10).await, (2, Some(at(100))));
    queue.set_limits(1, SetLimits::new().hold_for(Duration::from_millis(200))).await;
    assert_eq!(moved(150, 10).await, (0, Some(at(201))));
    assert_eq!(moved(201, 10).await.0, 1);
}

async fn a_repeated_claim_counts_once(queue: &Queue) {
    enqueue(queue, 3).await;
    queue.set_limits(0, SetLimits::new().leased(2).rate(rate(1, 1_000, 1))).await;
    let first = queue.claim(0, claim(1, 10, 60_000)).await;
    let again = queue.claim(0, claim(1, 10, 60_000)).await;
    assert_eq!(first, again);
    assert_eq!((first.deliveries.len(), first.next), (1, Some(at(1_000))));
}

async fn limits_are_shown_and_changed_one_by_one(queue: &Queue) {
    assert_eq!(limits(queue, 0).await, Limits::default());
    assert!(!queue.set_limits(0, SetLimits::new()).await);
    assert!(!queue.set_limits(0, SetLimits::new().leased(None).rate(None).end_hold()).await);
    assert!(queue.set_limits(0, SetLimits::new().leased(3)).await);
    assert!(!queue.set_limits(0, SetLimits::new().leased(3)).await, "it is so already");
    assert!(queue.set_limits(0, SetLimits::new().rate(rate(5, 1_000, 1))).await);
    let shown = limits(queue, 0).await;
    assert_eq!((shown.leased, shown.rate), (Some(3), Some(rate(5, 1_000, 1))));
    assert_eq!((shown.rate_open_at, shown.held_until), (None, None));
    enqueue(queue, 2).await;
    claimed(queue, 0, 1, 1).await;
    assert_eq!(limits(queue, 0).await.rate_open_at, Some(at(200)));
    assert!(queue.set_limits(0, SetLimits::new().leased(None)).await);
    let shown = limits(queue, 0).await;
    assert_eq!((shown.leased, shown.rate), (None, Some(rate(5, 1_000, 1))));
    assert!(queue.set_limits(0, SetLimits::new().rate(None)).await);
    assert_eq!(limits(queue, 0).await, Limits::default());
}

async fn limits_beyond_their_ranges_are_refused(queue: &Queue) {
    let refused = [
        SetLimits::new().leased(0),
        SetLimits::new().leased(1_000_001),
        SetLimits::new().rate(rate(0, 1_000, 1)),
        SetLimits::new().rate(rate(1_000_001, 1_000, 1)),
        SetLimits::new().rate(rate(10, 999, 1)),
        SetLimits::new().rate(rate(10, 86_400_001, 1)),
        SetLimits::new().rate(rate(10, 1_000, 0)),
        SetLimits::new().rate(rate(10, 1_000, 11)),
    ];
    for set in refused {
        let refused = Op::SetLimits(set).validate();
        assert!(matches!(refused, Err(Violation::OutOfRange { .. })), "{refused:?}");
        assert!(queue.try_apply(0, &Op::SetLimits(set)).await.is_err(), "{set:?}");
    }
    assert_eq!(limits(queue, 0).await, Limits::default());
    enqueue(queue, 3).await;
    let most = SetLimits::new().leased(1_000_000).rate(rate(1_000_000, 1_000, 1_000_000));
    queue.set_limits(0, most.hold_for(Millis::MAX.into())).await;
    queue.set_limits(0, SetLimits::new().end_hold()).await;
    let least = SetLimits::new().rate(rate(1, 86_400_000, 1));
    assert_eq!(claimed(queue, 0, 1, 2).await.0, 2);
    queue.set_limits(0, least).await;
    assert_eq!(claimed(queue, 1, 2, 2).await.0, 1);
}
