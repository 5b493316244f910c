//! How many messages of a group are handled at once, and in which order.

use delayline_core::limits::MAX_OLDEST_LANES;
use delayline_core::{
    Claim, Hold, Known, Lease, Op, Outcome, Relay, Reply, SetLimits, Settlement, Status, Update,
    UpdateContent, UpdateDue, UpdateToken,
};

use super::groups::{grouped, of};
use super::queue::{Queue, after, at, claim, done, id, ids, lease, message, retry};

use crate::workload::destinations::list;

super::cases! { "group_limits",
    a_group_has_no_more_leases_than_its_limit: "G36",
    the_end_of_a_lease_frees_a_slot: "G3, G36",
    groups_that_are_next_tell_the_earliest_due_time: "G22, G36",
    slots_are_freed_in_the_order_of_settlements: "G35, G36",
    a_limit_of_groups_can_be_changed: "G36",
    an_expired_message_keeps_no_slot: "G4, G36",
    limits_of_the_queue_and_of_groups_hold_together: "G34, G36",
    a_group_is_handled_in_order: "G37",
    a_crash_keeps_its_place: "G3, G37",
    an_end_lets_the_next_message_go: "G13, G29, G37",
    a_message_in_order_waits_behind_earlier_ones: "G37",
    order_can_be_turned_off: "G37",
    a_relay_keeps_the_order: "G28, G37",
    several_of_a_group_are_leased_together_in_order: "G35, G37",
    a_message_that_came_back_does_not_wait_for_a_later_one: "G37",
    nothing_passes_a_message_of_several_that_waits: "G37",
    several_beside_an_expired_message_leave_nothing_to_claim: "G4, G37",
    several_of_a_group_end_before_others_begin: "G3, G37",
    several_leave_the_end_of_one_to_the_others: "G4, G13, G29, G37",
    the_message_in_front_is_shown: "G37",
    a_held_group_waits: "G38",
    holds_and_slots_count_together: "G36, G38",
    a_group_in_order_is_held: "G37, G38",
    what_ends_no_lease_holds_no_group: "G6, G38",
}

async fn limit(queue: &Queue, ms: u64, set: SetLimits) {
    assert!(queue.set_limits(ms, set).await);
}

async fn a_group_has_no_more_leases_than_its_limit(queue: &Queue) {
    limit(queue, 0, SetLimits::new().each_group(2)).await;
    queue.enqueue(0, grouped(&[("a", 5), ("b", 1)])).await;
    queue.enqueue(0, ["x", "y", "z"].map(message).to_vec()).await;
    let first = queue.claim(0, claim(1, 3, 9_000)).await;
    assert_eq!((ids(&first.deliveries).join(" "), first.more), ("x a1 b1".into(), true));
    assert_eq!(queue.claim_ids(0, claim(2, 1, 9_000)).await, ["y"]);
    let rest = queue.claim(0, claim(3, 9, 9_000)).await;
    assert_eq!((ids(&rest.deliveries).join(" "), rest.more), ("a2 z".into(), false));
    assert_eq!(rest.next, Some(at(9_000)));
    // A new message of a group without a free slot waits.
    queue.enqueue(1, grouped(&[("a", 6)])[5..].to_vec()).await;
    let none = queue.claim(1, claim(4, 9, 9_000)).await;
    assert_eq!((none.deliveries.len(), none.more, none.next), (0, false, Some(at(9_000))));
    assert_eq!(queue.stats(1).await.ready, 4);
    assert_eq!(queue.end(2, "a2", lease(3, 1), Outcome::Ack).await, done(Status::Acked));
    assert_eq!(queue.claim_ids(2, claim(5, 9, 9_000)).await, ["a3"]);
    assert_eq!(queue.stats(2).await.limits.each_group, Some(2));
}

async fn the_end_of_a_lease_frees_a_slot(queue: &Queue) {
    limit(queue, 0, SetLimits::new().each_group(1)).await;
    queue.enqueue(0, grouped(&[("a", 4), ("b", 2)])).await;
    assert_eq!(queue.claim_ids(0, claim(1, 9, 100)).await, ["a1", "b1"]);
    assert_eq!(queue.end(1, "a1", lease(1, 1), retry(50, "no")).await, done(Status::Scheduled));
    assert_eq!(queue.claim_ids(1, claim(2, 9, 9_000)).await, ["a2"]);
    assert_eq!(queue.end(2, "a2", lease(2, 1), Outcome::Release).await, done(Status::Ready));
    // a1 waits for its retry, and a2 is first again.
    assert_eq!(queue.claim_ids(3, claim(3, 9, 9_000)).await, ["a2"]);
    let dies = Outcome::Reject { error: "no".into() };
    assert_eq!(queue.end(4, "a2", lease(3, 2), dies).await, done(Status::Dead));
    assert_eq!(queue.claim_ids(51, claim(4, 9, 9_000)).await, ["a1"]);
    queue.cancel(52, "a1").await;
    assert_eq!(queue.claim_ids(52, claim(5, 9, 9_000)).await, [""; 0]);
    assert_eq!(queue.end(53, "a1", lease(4, 2), Outcome::Ack).await, done(Status::Acked));
    // The lease of b1 has run out.
    assert_eq!(queue.claim_ids(100, claim(6, 9, 9_000)).await, ["a3", "b1"]);
}

async fn groups_that_are_next_tell_the_earliest_due_time(queue: &Queue) {
    limit(queue, 0, SetLimits::new().each_group(1)).await;
    queue.enqueue(0, grouped(&[("next", 3)])).await;
    assert_eq!(queue.claim_ids(0, claim(1, 1, 9_000)).await, ["next1"]);
    let names: Vec<_> = (0..MAX_OLDEST_LANES).map(|n| format!("group-{n}-")).collect();
    let others: Vec<_> = names.iter().map(|name| (name.as_str(), 2)).collect();
    queue.enqueue(5, grouped(&others)).await;
    // Each of these waits for its slot then.
    assert_eq!(queue.claim(5, claim(2, 100, 9_000)).await.deliveries.len(), MAX_OLDEST_LANES);
    assert_eq!(queue.end(6, "next1", lease(1, 1), Outcome::Ack).await, done(Status::Acked));
    assert_eq!(queue.stats(6).await.earliest_due, Some(at(0)));
}

async fn slots_are_freed_in_the_order_of_settlements(queue: &Queue) {
    limit(queue, 0, SetLimits::new().each_group(1)).await;
    // The remembered update makes no difference.
    let token = UpdateToken::from_bytes([7; UpdateToken::BYTES]);
    let update = Update::new(UpdateContent::Keep, UpdateDue::Keep, token);
    queue.enqueue_one(0, of("a", "updated").known(Known::Update(update))).await;
    queue.enqueue(0, grouped(&[("a", 1), ("b", 2)])).await;
    assert_eq!(queue.claim_ids(0, claim(1, 9, 9_000)).await, ["updated", "b1"]);
    let end = |name| Settlement::new(id(name), lease(1, 1), Outcome::Ack);
    queue.settle(1, vec![end("updated"), end("b1")]).await;
    assert_eq!(queue.claim_ids(1, claim(2, 9, 9_000)).await, ["a1", "b2"]);
}

async fn a_limit_of_groups_can_be_changed(queue: &Queue) {
    queue.enqueue(0, grouped(&[("a", 9)])).await;
    assert_eq!(queue.claim_ids(0, claim(1, 2, 9_000)).await, ["a1", "a2"]);
    // Leases from before do not count.
    limit(queue, 0, SetLimits::new().each_group(2)).await;
    assert_eq!(queue.claim_ids(0, claim(2, 9, 9_000)).await, ["a3", "a4"]);
    limit(queue, 1, SetLimits::new().each_group(1)).await;
    assert_eq!(queue.end(2, "a3", lease(2, 1), Outcome::Ack).await, done(Status::Acked));
    assert_eq!(queue.claim_ids(2, claim(3, 9, 9_000)).await, [""; 0]);
    limit(queue, 3, SetLimits::new().each_group(2)).await;
    assert_eq!(queue.claim_ids(3, claim(4, 9, 9_000)).await, ["a5"]);
    limit(queue, 4, SetLimits::new().each_group(None)).await;
    assert_eq!(queue.claim_ids(4, claim(5, 9, 9_000)).await, ["a6", "a7", "a8", "a9"]);
}

async fn an_expired_message_keeps_no_slot(queue: &Queue) {
    limit(queue, 0, SetLimits::new().each_group(1)).await;
    let mut all = grouped(&[("a", 3), ("b", 2)]);
    all[0].expires = Some(after(5));
    queue.enqueue(0, all).await;
    let first = queue.claim(5, claim(1, 9, 9_000)).await;
    assert_eq!((ids(&first.deliveries).join(" "), first.deaths.len()), ("b1".into(), 1));
    assert!(first.more);
    assert_eq!(queue.claim_ids(5, claim(2, 9, 9_000)).await, ["a2"]);
    assert_eq!(queue.claim_ids(5, claim(3, 9, 9_000)).await, [""; 0]);
}

async fn limits_of_the_queue_and_of_groups_hold_together(queue: &Queue) {
    limit(queue, 0, SetLimits::new().each_group(1).leased(2)).await;
    queue.enqueue(0, grouped(&[("a", 2), ("b", 2), ("c", 1)])).await;
    let first = queue.claim(0, claim(1, 9, 9_000)).await;
    assert_eq!((ids(&first.deliveries).join(" "), first.capped), ("a1 b1".into(), true));
    queue.end(1, "a1", lease(1, 1), Outcome::Ack).await;
    assert_eq!(queue.claim_ids(1, claim(2, 9, 9_000)).await, ["c1"]);
    queue.end(2, "b1", lease(1, 1), Outcome::Ack).await;
    assert_eq!(queue.claim_ids(2, claim(3, 9, 9_000)).await, ["a2"]);
}

async fn a_group_is_handled_in_order(queue: &Queue) {
    limit(queue, 0, SetLimits::new().in_order(true)).await;
    queue.enqueue(0, grouped(&[("a", 3), ("b", 1)])).await;
    assert_eq!(queue.claim_ids(0, claim(1, 9, 9_000)).await, ["a1", "b1"]);
    assert_eq!(queue.end(1, "a1", lease(1, 1), retry(50, "no")).await, done(Status::Scheduled));
    // The messages behind a retry wait.
    let none = queue.claim(1, claim(2, 9, 9_000)).await;
    assert_eq!((none.deliveries.len(), none.more, none.next), (0, false, Some(at(51))));
    assert_eq!(queue.claim_ids(51, claim(3, 9, 9_000)).await, ["a1"]);
    let snooze = Outcome::Snooze { schedule: after(9) };
    assert_eq!(queue.end(51, "a1", lease(3, 2), snooze).await, done(Status::Scheduled));
    assert_eq!(queue.claim_ids(59, claim(4, 9, 9_000)).await, [""; 0]);
    assert_eq!(queue.claim_ids(60, claim(5, 9, 9_000)).await, ["a1"]);
    assert_eq!(queue.end(61, "a1", lease(5, 3), Outcome::Ack).await, done(Status::Acked));
    assert_eq!(queue.claim_ids(61, claim(6, 9, 9_000)).await, ["a2"]);
    assert!(queue.stats(61).await.limits.in_order);
}

async fn a_crash_keeps_its_place(queue: &Queue) {
    limit(queue, 0, SetLimits::new().in_order(true)).await;
    // It is the first of its lane as soon as it is due.
    queue.enqueue_one(0, of("a", "later").schedule(after(150))).await;
    queue.enqueue(0, grouped(&[("a", 2)])).await;
    assert_eq!(queue.claim_ids(0, claim(1, 9, 100)).await, ["a1"]);
    assert_eq!(queue.claim_ids(99, claim(2, 9, 100)).await, [""; 0]);
    assert_eq!(queue.claim_ids(100, claim(3, 9, 100)).await, ["a1"]);
    assert_eq!(queue.end(101, "a1", lease(3, 2), Outcome::Ack).await, done(Status::Acked));
    assert_eq!(queue.claim_ids(140, claim(4, 9, 100)).await, ["a2"]);
    assert_eq!(queue.claim_ids(240, claim(5, 9, 100)).await, ["a2"]);
    assert_eq!(queue.end(251, "a2", lease(5, 2), Outcome::Ack).await, done(Status::Acked));
    assert_eq!(queue.claim_ids(251, claim(6, 9, 100)).await, ["later"]);
}

async fn an_end_lets_the_next_message_go(queue: &Queue) {
    limit(queue, 0, SetLimits::new().in_order(true)).await;
    queue.enqueue(0, grouped(&[("a", 6)])).await;
    queue.claim(0, claim(1, 1, 9_000)).await;
    let dies = Outcome::Reject { error: "no".into() };
    assert_eq!(queue.end(1, "a1", lease(1, 1), dies).await, done(Status::Dead));
    assert_eq!(queue.claim_ids(1, claim(2, 9, 9_000)).await, ["a2"]);
    assert_eq!(queue.end(2, "a2", lease(2, 1), retry(50, "no")).await, done(Status::Scheduled));
    queue.cancel(3, "a2").await;
    assert_eq!(queue.claim_ids(3, claim(3, 9, 9_000)).await, ["a3"]);
    // An update that replaces a message that waits for its retry puts it behind the others.
    assert_eq!(queue.end(4, "a3", lease(3, 1), retry(50, "no")).await, done(Status::Scheduled));
    let token = UpdateToken::from_bytes([7; UpdateToken::BYTES]);
    let update = Update::new(UpdateContent::Replace, UpdateDue::Set, token);
    let other = of("a", "a3").payload("other").known(Known::Update(update));
    queue.enqueue_one(5, other).await;
    assert_eq!(queue.claim_ids(5, claim(4, 9, 9_000)).await, ["a4"]);
    // An update of a leased message ends it with its lease.
    let token = UpdateToken::from_bytes([8; UpdateToken::BYTES]);
    let update = Update::new(UpdateContent::Replace, UpdateDue::Set, token);
    queue.enqueue_one(6, of("a", "a4").payload("other").known(Known::Update(update))).await;
    assert_eq!(queue.end(7, "a4", lease(4, 1), retry(50, "no")).await, done(Status::Replaced));
    assert_eq!(queue.claim_ids(8, claim(5, 9, 9_000)).await, ["a5"]);
    queue.end(9, "a5", lease(5, 1), Outcome::Ack).await;
    assert_eq!(queue.claim_ids(9, claim(6, 9, 9_000)).await, ["a6"]);
    queue.end(10, "a6", lease(6, 1), Outcome::Ack).await;
    assert_eq!(queue.claim_ids(10, claim(7, 9, 9_000)).await, ["a3"]);
}

/// A message that is sent already due does not pass others that are in no lane yet.
async fn a_message_in_order_waits_behind_earlier_ones(queue: &Queue) {
    limit(queue, 0, SetLimits::new().in_order(true)).await;
    queue.enqueue(0, grouped(&[("b", 2)])).await;
    queue.enqueue_one(0, of("a", "first").schedule(after(10))).await;
    assert_eq!(queue.claim_ids(0, claim(1, 1, 9_000)).await, ["b1"]);
    queue.enqueue_one(10, of("a", "second")).await;
    assert_eq!(queue.claim_ids(10, claim(2, 9, 9_000)).await, ["first"]);
    // Messages without a group have no order of this kind.
    queue.enqueue(11, ["x", "y"].map(message).to_vec()).await;
    assert_eq!(queue.claim_ids(11, claim(3, 9, 9_000)).await, ["x", "y"]);
}

async fn order_can_be_turned_off(queue: &Queue) {
    limit(queue, 0, SetLimits::new().in_order(true).each_group(2)).await;
    queue.enqueue(0, grouped(&[("a", 5)])).await;
    queue.claim(0, claim(1, 9, 9_000)).await;
    assert_eq!(queue.end(1, "a1", lease(1, 1), retry(50, "no")).await, done(Status::Scheduled));
    limit(queue, 2, SetLimits::new().in_order(false)).await;
    assert_eq!(queue.claim_ids(2, claim(2, 9, 9_000)).await, ["a2", "a3"]);
    limit(queue, 3, SetLimits::new().in_order(true)).await;
    // Leases from before do not count.
    assert_eq!(queue.claim_ids(51, claim(3, 9, 9_000)).await, ["a1"]);
    assert_eq!(queue.claim_ids(51, claim(4, 9, 9_000)).await, [""; 0]);
}

async fn a_relay_keeps_the_order(queue: &Queue) {
    limit(queue, 0, SetLimits::new().in_order(true)).await;
    queue.enqueue(0, grouped(&[("a", 3), ("b", 2), ("c", 2)])).await;
    assert_eq!(queue.claim_ids(0, claim(1, 3, 9_000)).await, ["a1", "b1", "c1"]);
    assert_eq!(queue.end(1, "a1", lease(1, 1), retry(0, "no")).await, done(Status::Ready));
    assert_eq!(queue.end(1, "b1", lease(1, 1), retry(50, "no")).await, done(Status::Scheduled));
    let relay = async |ms, max| {
        let relay = Op::Relay(Relay::new(list("a-list", None), max));
        let Reply::Relay(relayed) = queue.apply(ms, &relay).await.reply else {
            panic!("not the reply to a relay")
        };
        let ids: Vec<_> = relayed.ids.iter().map(ToString::to_string).collect();
        (ids.join(" "), relayed.more)
    };
    // Nothing passes b1, which waits for its retry, or c1, which is leased.
    assert_eq!(relay(2, 2).await, ("a1 a2".into(), true));
    assert_eq!(relay(2, 9).await, ("a3".into(), false));
    queue.enqueue(3, grouped(&[("c", 3)])[2..].to_vec()).await;
    assert_eq!(relay(4, 9).await, (String::new(), false));
    assert_eq!(queue.end(5, "c1", lease(1, 1), Outcome::Release).await, done(Status::Ready));
    assert_eq!(relay(5, 9).await, ("c1 c2 c3".into(), false));
    // Groups take turns.
    queue.enqueue(51, grouped(&[("d", 2)])).await;
    assert_eq!(relay(51, 9).await, ("b1 d1 b2 d2".into(), false));
    // A relay meets leases that have ended: the messages behind them follow with the next one.
    queue.enqueue_one(60, of("e", "dies").max_crashes(1)).await;
    queue.enqueue_one(60, of("f", "returns")).await;
    assert_eq!(queue.claim_ids(60, claim(2, 9, 10)).await, ["dies", "returns"]);
    queue.enqueue_one(61, of("e", "behind")).await;
    queue.enqueue_one(61, of("f", "waits")).await;
    assert_eq!(relay(70, 9).await, (String::new(), true));
    assert_eq!(relay(70, 9).await, ("behind returns waits".into(), false));
}

async fn a_message_that_came_back_does_not_wait_for_a_later_one(queue: &Queue) {
    limit(queue, 0, SetLimits::new().in_order(true)).await;
    queue.enqueue(0, grouped(&[("a", 3)])).await;
    assert_eq!(queue.claim_ids(0, several(1, 2, 100)).await, ["a1", "a2"]);
    assert_eq!(queue.end(1, "a1", lease(1, 1), Outcome::Release).await, done(Status::Ready));
    // While a2 is leased, a1 waits; not until its retry.
    nothing_until(queue, 2, 2, 100).await;
    assert_eq!(queue.end(3, "a2", lease(1, 1), retry(9_000, "no")).await, done(Status::Scheduled));
    assert_eq!(queue.claim_ids(3, claim(3, 9, 100)).await, ["a1"]);
    assert_eq!(queue.end(4, "a1", lease(3, 2), Outcome::Ack).await, done(Status::Acked));
    nothing_until(queue, 5, 4, 9_003).await;
    // The same if a lease runs out.
    assert_eq!(queue.claim_ids(9_003, several(5, 2, 100)).await, ["a2", "a3"]);
    assert_eq!(queue.end(9_004, "a2", lease(5, 2), Outcome::Release).await, done(Status::Ready));
    nothing_until(queue, 9_005, 6, 9_103).await;
    assert_eq!(queue.claim_ids(9_103, claim(7, 9, 100)).await, ["a2"]);
}

/// A claim of several messages of a group.
fn several(number: u8, max: usize, lease_ms: u64) -> Claim {
    claim(number, max, lease_ms).several_in_order(true)
}

async fn several_of_a_group_are_leased_together_in_order(queue: &Queue) {
    queue.enqueue(0, grouped(&[("z", 2)])).await;
    // Without an order, it makes no difference.
    assert_eq!(queue.claim_ids(0, several(1, 9, 9_000)).await, ["z1", "z2"]);
    limit(queue, 0, SetLimits::new().in_order(true)).await;
    queue.enqueue(0, grouped(&[("a", 5), ("b", 2), ("c", 1)])).await;
    queue.enqueue(0, vec![message("plain")]).await;
    // The first group fills the claim, and the next claim begins with the second.
    let first = queue.claim(0, several(2, 4, 9_000)).await;
    assert_eq!((ids(&first.deliveries).join(" "), first.more), ("plain a1 a2 a3".into(), true));
    // The same claim again.
    assert_eq!(queue.claim_ids(0, several(2, 4, 9_000)).await.len(), 4);
    let second = queue.claim(0, several(3, 9, 9_000)).await;
    assert_eq!((ids(&second.deliveries).join(" "), second.more), ("b1 b2 c1".into(), false));
    let ends = |name| Settlement::new(id(name), lease(2, 1), Outcome::Ack);
    queue.settle(1, vec![ends("a1"), ends("a3"), ends("a2")]).await;
    // A claim that does not ask gets one.
    assert_eq!(queue.claim_ids(1, claim(4, 9, 9_000)).await, ["a4"]);
    assert_eq!(queue.end(2, "a4", lease(4, 1), Outcome::Release).await, done(Status::Ready));
    assert_eq!(queue.claim_ids(2, several(5, 9, 9_000)).await, ["a4", "a5"]);
}

async fn nothing_passes_a_message_of_several_that_waits(queue: &Queue) {
    limit(queue, 0, SetLimits::new().in_order(true)).await;
    queue.enqueue_one(0, of("a", "later").schedule(after(100))).await;
    queue.enqueue(0, grouped(&[("a", 6)])).await;
    assert_eq!(queue.claim_ids(0, several(1, 4, 9_000)).await, ["a1", "a2", "a3", "a4"]);
    assert_eq!(queue.end(1, "a1", lease(1, 1), Outcome::Ack).await, done(Status::Acked));
    assert_eq!(queue.end(1, "a2", lease(1, 1), retry(50, "no")).await, done(Status::Scheduled));
    assert_eq!(queue.end(1, "a3", lease(1, 1), Outcome::Release).await, done(Status::Ready));
    assert_eq!(queue.end(1, "a4", lease(1, 1), retry(99, "no")).await, done(Status::Scheduled));
    nothing_until(queue, 1, 2, 51).await;
    assert_eq!(queue.claim_ids(50, several(3, 9, 9_000)).await, [""; 0]);
    // The first is delivered again, then the message behind it, and none behind the other retry.
    assert_eq!(queue.claim_ids(51, several(4, 9, 9_000)).await, ["a2", "a3"]);
    assert_eq!(queue.end(52, "a3", lease(4, 2), Outcome::Ack).await, done(Status::Acked));
    assert_eq!(queue.end(52, "a2", lease(4, 2), Outcome::Ack).await, done(Status::Acked));
    nothing_until(queue, 53, 5, 100).await;
    // A message that was due later is behind messages that were leased before.
    assert_eq!(queue.claim_ids(100, several(6, 9, 9_000)).await, ["a4", "later", "a5", "a6"]);
    assert_eq!(queue.end(101, "a5", lease(6, 1), Outcome::Release).await, done(Status::Ready));
    assert_eq!(queue.end(101, "a4", lease(6, 2), Outcome::Release).await, done(Status::Ready));
    assert_eq!(queue.end(101, "later", lease(6, 1), Outcome::Release).await, done(Status::Ready));
    assert_eq!(queue.end(102, "a6", lease(6, 1), Outcome::Ack).await, done(Status::Acked));
    assert_eq!(queue.claim_ids(102, several(7, 9, 9_000)).await, ["later", "a4", "a5"]);
}

async fn several_beside_an_expired_message_leave_nothing_to_claim(queue: &Queue) {
    limit(queue, 0, SetLimits::new().in_order(true)).await;
    let expired = |group, name| of(group, name).expires(after(1));
    queue.enqueue(0, vec![expired("b", "x"), of("a", "a1"), of("a", "a2"), of("a", "a3")]).await;
    let first = queue.claim(1, several(1, 2, 9_000)).await;
    // The third message of a leased group is none.
    assert_eq!((ids(&first.deliveries).join(" "), first.more), ("a1 a2".into(), false));
    // A message that has expired does not end the turn of its group.
    queue.enqueue(0, vec![expired("c", "y"), of("c", "c1"), of("d", "d1")]).await;
    let second = queue.claim(1, several(2, 1, 9_000)).await;
    assert_eq!((ids(&second.deliveries).join(" "), second.more), ("c1".into(), true));
    assert_eq!(queue.claim_ids(1, several(3, 9, 9_000)).await, ["d1"]);
}

async fn several_of_a_group_end_before_others_begin(queue: &Queue) {
    limit(queue, 0, SetLimits::new().in_order(true)).await;
    queue.enqueue(0, grouped(&[("a", 5), ("b", 3)])).await;
    assert_eq!(queue.claim_ids(0, several(1, 3, 100)).await, ["a1", "a2", "a3"]);
    assert_eq!(queue.claim_ids(0, several(2, 3, 100)).await, ["b1", "b2", "b3"]);
    queue.extend(0, "a3", lease(1, 1), 200).await;
    assert_eq!(queue.end(1, "a1", lease(1, 1), retry(0, "no")).await, done(Status::Ready));
    assert_eq!(queue.claim_ids(1, several(3, 9, 100)).await, [""; 0]);
    // Two leases of b end with their worker, and one by a message that has crashed.
    assert_eq!(queue.end(2, "b1", lease(2, 1), Outcome::Ack).await, done(Status::Acked));
    assert_eq!(queue.claim_ids(100, several(4, 9, 500)).await, ["b2", "b3"]);
    assert_eq!(queue.claim_ids(199, several(5, 9, 100)).await, [""; 0]);
    assert_eq!(queue.end(199, "a3", lease(1, 1), Outcome::Ack).await, done(Status::Acked));
    assert_eq!(queue.claim_ids(199, several(6, 9, 100)).await, ["a1", "a2", "a4", "a5"]);
}

async fn several_leave_the_end_of_one_to_the_others(queue: &Queue) {
    limit(queue, 0, SetLimits::new().in_order(true)).await;
    let mut all = grouped(&[("a", 7)]);
    (all[1].expires, all[6].expires) = (Some(after(5)), Some(after(5)));
    queue.enqueue(0, all).await;
    // An expired message is passed over, and takes none of the others with it.
    let first = queue.claim(5, several(1, 4, 9_000)).await;
    assert_eq!((ids(&first.deliveries).join(" "), first.deaths.len()), ("a1 a3 a4 a5".into(), 1));
    for (name, outcome) in
        [("a3", Outcome::Release), ("a4", Outcome::Release), ("a1", retry(9, ""))]
    {
        queue.end(6, name, lease(1, 1), outcome).await;
    }
    queue.claim(6, several(2, 9, 9_000)).await;
    // The end of one that waits lets nothing pass a lease, and the end of the lease does.
    queue.cancel(7, "a1").await;
    assert_eq!(queue.claim_ids(7, several(3, 9, 9_000)).await, [""; 0]);
    let token = |n| UpdateToken::from_bytes([n; UpdateToken::BYTES]);
    let moved = Update::new(UpdateContent::Keep, UpdateDue::Set, token(1));
    let replaced = Update::new(UpdateContent::Replace, UpdateDue::Set, token(2));
    let updates = [
        of("a", "a3").schedule(after(20)).known(Known::Update(moved)),
        of("a", "a4").payload("other").known(Known::Update(replaced)),
    ];
    queue.enqueue(8, updates.to_vec()).await;
    let dies = Outcome::Reject { error: "no".into() };
    assert_eq!(queue.end(9, "a5", lease(1, 1), dies).await, done(Status::Dead));
    nothing_until(queue, 9, 4, 28).await;
    let last = queue.claim(28, several(5, 9, 9_000)).await;
    assert_eq!((ids(&last.deliveries).join(" "), last.deaths.len()), ("a3 a6 a4".into(), 1));
}

async fn the_message_in_front_is_shown(queue: &Queue) {
    let front = async |ms, name| queue.live(ms, name).await.behind.map(|id| id.to_string());
    limit(queue, 0, SetLimits::new().in_order(true)).await;
    queue.enqueue(0, grouped(&[("a", 5)])).await;
    queue.enqueue_one(0, message("plain")).await;
    assert_eq!(queue.claim_ids(0, several(1, 4, 9_000)).await, ["plain", "a1", "a2", "a3"]);
    assert_eq!((front(1, "a1").await, front(1, "a4").await.as_deref()), (None, Some("a1")));
    // The first message that was leased waits for the others.
    assert_eq!(queue.end(1, "a1", lease(1, 1), Outcome::Release).await, done(Status::Ready));
    assert_eq!(front(1, "a1").await.as_deref(), Some("a2"));
    assert_eq!(queue.end(1, "a2", lease(1, 1), retry(9, "no")).await, done(Status::Scheduled));
    assert_eq!(front(1, "a2").await, None);
    assert_eq!(front(10, "a2").await.as_deref(), Some("a1"));
    assert_eq!(queue.end(10, "a3", lease(1, 1), Outcome::Ack).await, done(Status::Acked));
    assert_eq!(front(10, "a1").await, None);
    queue.cancel(11, "a1").await;
    queue.cancel(11, "a2").await;
    // Without one that was leased, the first that is due.
    assert_eq!((front(11, "a4").await, front(11, "a5").await.as_deref()), (None, Some("a4")));
    limit(queue, 12, SetLimits::new().in_order(false)).await;
    assert_eq!(front(12, "a5").await, None);
}

/// Ends a lease, and holds the message's group for this long.
async fn hold(queue: &Queue, ms: u64, name: &str, held: Lease, outcome: Outcome, hold_ms: u64) {
    let settlement = Settlement::new(id(name), held, outcome);
    queue.settle(ms, vec![settlement.hold(Hold::Group(after(hold_ms)))]).await;
}

/// Claims nothing, and expects the next message at this instant.
async fn nothing_until(queue: &Queue, ms: u64, number: u8, next: u64) {
    let none = queue.claim(ms, claim(number, 9, 9_000)).await;
    assert_eq!((none.deliveries.len(), none.more, none.next), (0, false, Some(at(next))));
}

async fn a_held_group_waits(queue: &Queue) {
    queue.enqueue(0, grouped(&[("a", 3), ("b", 3)])).await;
    assert_eq!(queue.claim_ids(0, claim(1, 2, 9_000)).await, ["a1", "b1"]);
    hold(queue, 1, "a1", lease(1, 1), Outcome::Release, 30).await;
    let others = queue.claim(1, claim(2, 9, 9_000)).await;
    assert_eq!((ids(&others.deliveries).join(" "), others.more), ("b2 b3".into(), false));
    assert_eq!(others.next, Some(at(31)));
    // New messages of the group wait, too, and other groups continue.
    queue.enqueue(2, vec![of("a", "new"), message("plain")]).await;
    assert_eq!(queue.claim_ids(2, claim(3, 9, 9_000)).await, ["plain"]);
    nothing_until(queue, 30, 4, 31).await;
    let held_until = async |ms, name| queue.live(ms, name).await.group_held_until;
    queue.enqueue_one(30, of("a", "later").schedule(after(99))).await;
    assert_eq!(
        (held_until(30, "a1").await, held_until(30, "new").await),
        (Some(at(31)), Some(at(31)))
    );
    assert_eq!((held_until(30, "b2").await, held_until(30, "later").await), (None, None));
    queue.cancel(30, "later").await;
    assert_eq!(queue.stats(30).await.ready, 4);
    assert_eq!(held_until(31, "a1").await, None);
    let all = queue.claim(31, claim(5, 9, 9_000)).await;
    assert_eq!(ids(&all.deliveries), ["a1", "a2", "a3", "new"]);
}

async fn holds_and_slots_count_together(queue: &Queue) {
    limit(queue, 0, SetLimits::new().each_group(2)).await;
    queue.enqueue(0, grouped(&[("a", 5)])).await;
    assert_eq!(queue.claim_ids(0, claim(1, 9, 9_000)).await, ["a1", "a2"]);
    hold(queue, 1, "a1", lease(1, 1), Outcome::Ack, 50).await;
    nothing_until(queue, 1, 2, 51).await;
    // A free slot does not end the hold, and a shorter one changes nothing.
    hold(queue, 2, "a2", lease(1, 1), Outcome::Ack, 20).await;
    nothing_until(queue, 22, 3, 51).await;
    assert_eq!(queue.claim_ids(51, claim(4, 9, 9_000)).await, ["a3", "a4"]);
    // A longer one counts.
    hold(queue, 52, "a3", lease(4, 1), Outcome::Ack, 10).await;
    hold(queue, 53, "a4", lease(4, 1), Outcome::Ack, 20).await;
    nothing_until(queue, 62, 5, 73).await;
    assert_eq!(queue.claim_ids(73, claim(6, 9, 9_000)).await, ["a5"]);
}

async fn a_group_in_order_is_held(queue: &Queue) {
    limit(queue, 0, SetLimits::new().in_order(true)).await;
    queue.enqueue(0, grouped(&[("a", 2), ("b", 1)])).await;
    assert_eq!(queue.claim_ids(0, claim(1, 9, 9_000)).await, ["a1", "b1"]);
    hold(queue, 1, "a1", lease(1, 1), retry(5, "no"), 30).await;
    nothing_until(queue, 7, 2, 31).await;
    // A relay waits, too.
    let relay = Op::Relay(Relay::new(list("a-list", None), 9));
    let Reply::Relay(relayed) = queue.apply(8, &relay).await.reply else {
        panic!("not the reply to a relay")
    };
    assert_eq!((relayed.ids, relayed.next), (vec![], Some(at(31))));
    assert_eq!(queue.claim_ids(31, claim(3, 9, 9_000)).await, ["a1"]);
    // While it is leased, the messages behind it wait; after its end, for the hold.
    hold(queue, 32, "a1", lease(3, 2), Outcome::Ack, 10).await;
    nothing_until(queue, 33, 4, 42).await;
    assert_eq!(queue.claim_ids(42, claim(5, 9, 9_000)).await, ["a2"]);
}

async fn what_ends_no_lease_holds_no_group(queue: &Queue) {
    queue.enqueue(0, grouped(&[("a", 3)])).await;
    queue.enqueue(0, vec![message("plain"), message("other")]).await;
    assert_eq!(queue.claim_ids(0, claim(1, 2, 9_000)).await, ["plain", "a1"]);
    // Of no lease, until an instant that is past, and of a message without a group.
    hold(queue, 1, "a1", lease(9, 1), Outcome::Ack, 500).await;
    hold(queue, 1, "a1", lease(1, 1), Outcome::Ack, 0).await;
    hold(queue, 1, "plain", lease(1, 1), Outcome::Ack, 500).await;
    // A repetition.
    hold(queue, 2, "a1", lease(1, 1), Outcome::Ack, 500).await;
    assert_eq!(queue.claim_ids(2, claim(2, 9, 9_000)).await, ["other", "a2", "a3"]);
}
