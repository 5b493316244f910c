//! Messages with a group: groups take turns.

use delayline_core::limits::MAX_LOOK_AHEAD;
use delayline_core::{
    Enqueued, Group, HandOff, Known, NewMessage, Op, Outcome, Priority, Relay, Reply, Schedule,
    SetLimits, Settlement, Status, Update, UpdateContent, UpdateDue, UpdateToken,
};

use super::queue::{Queue, after, at, claim, done, id, ids, lease, listed, message, millis, retry};

use crate::workload::destinations::list;

super::cases! { "groups",
    groups_take_turns: "G35",
    a_queue_that_keeps_up_delivers_in_due_order: "G12, G35",
    messages_without_a_group_are_one_more_lane: "G35",
    other_priorities_come_before_and_after: "G12, G35",
    a_turn_is_used_up_by_an_expired_message: "G4, G35",
    a_due_message_is_not_behind_a_flood: "G35, G23",
    nor_if_the_lane_of_the_flood_has_no_turn: "G35, G36",
    a_lane_is_in_the_order_of_enqueueing: "G35",
    a_message_in_a_lane_is_ready: "G22, G35",
    a_message_in_a_lane_can_be_changed: "G13, G29, G35",
    empty_lanes_are_passed_over: "G23, G35",
    a_released_message_keeps_its_due_time: "G10, G35",
    a_relay_goes_by_turns: "G35",
    the_group_is_content: "G15, G35",
    groups_are_kept: "G11, G30, G35",
}

pub(super) fn of(group: &str, name: &str) -> NewMessage {
    message(name).group(Group::new(group).unwrap_or_else(|violation| panic!("{violation}")))
}

/// Messages `x1`, `x2`, ... of the group `x` for each of these, in their order.
pub(super) fn grouped(groups: &[(&str, usize)]) -> Vec<NewMessage> {
    let all = groups
        .iter()
        .flat_map(|(group, count)| (1..=*count).map(move |n| of(group, &format!("{group}{n}"))));
    all.collect()
}

async fn groups_take_turns(queue: &Queue) {
    queue.enqueue(0, grouped(&[("a", 4), ("b", 2), ("c", 1)])).await;
    assert_eq!(queue.claim_ids(1, claim(1, 2, 9_000)).await, ["a1", "b1"]);
    assert_eq!(queue.claim_ids(1, claim(2, 1, 9_000)).await, ["c1"]);
    // A group that becomes active goes to the end.
    queue.enqueue_one(2, of("d", "d1")).await;
    assert_eq!(queue.claim_ids(2, claim(3, 2, 9_000)).await, ["a2", "b2"]);
    queue.enqueue(2, vec![of("c", "c2")]).await;
    assert_eq!(queue.claim_ids(3, claim(4, 10, 9_000)).await, ["d1", "a3", "c2", "a4"]);
    assert_eq!(queue.claim_ids(3, claim(5, 10, 9_000)).await, [""; 0]);
    // Served equally often, groups keep their order. Otherwise, the group served last comes last.
    queue.enqueue(4, grouped(&[("e", 6), ("f", 6), ("g", 6)])).await;
    assert_eq!(queue.claim_ids(4, claim(6, 3, 9_000)).await, ["e1", "f1", "g1"]);
    let twice = ["e2", "f2", "g2", "e3", "f3", "g3"];
    assert_eq!(queue.claim_ids(4, claim(7, 6, 9_000)).await, twice);
    assert_eq!(queue.claim_ids(4, claim(8, 4, 9_000)).await, ["e4", "f4", "g4", "e5"]);
    assert_eq!(queue.claim_ids(4, claim(9, 2, 9_000)).await, ["f5", "g5"]);
}

async fn a_queue_that_keeps_up_delivers_in_due_order(queue: &Queue) {
    let all = [of("a", "a1"), of("a", "a2"), message("x"), of("b", "b1"), message("y")];
    let due = [5, 5, 5, 4, 6];
    let all = all.into_iter().zip(due).map(|(message, due)| message.schedule(after(due)));
    queue.enqueue(0, all.collect()).await;
    assert_eq!(queue.claim_ids(5, claim(1, 4, 9_000)).await, ["b1", "a1", "a2", "x"]);
    queue.enqueue(5, grouped(&[("a", 4)])[2..].to_vec()).await;
    assert_eq!(queue.claim_ids(6, claim(2, 3, 9_000)).await, ["a3", "a4", "y"]);
}

async fn messages_without_a_group_are_one_more_lane(queue: &Queue) {
    queue.enqueue(0, ["x", "y", "z"].map(message).to_vec()).await;
    queue.enqueue(0, grouped(&[("a", 3), ("b", 1)])).await;
    assert_eq!(queue.claim_ids(1, claim(1, 4, 9_000)).await, ["x", "a1", "b1", "y"]);
    assert_eq!(queue.claim_ids(1, claim(2, 10, 9_000)).await, ["a2", "z", "a3"]);
}

async fn other_priorities_come_before_and_after(queue: &Queue) {
    let of_priority = |name, priority| message(name).priority(priority);
    queue.enqueue(0, grouped(&[("a", 2), ("b", 1)])).await;
    queue.enqueue_one(0, of_priority("low", Priority::Low)).await;
    queue.enqueue_one(0, of_priority("urgent", Priority::Urgent)).await;
    queue.enqueue_one(0, of_priority("high", Priority::High)).await;
    assert_eq!(queue.claim_ids(1, claim(1, 3, 9_000)).await, ["urgent", "high", "a1"]);
    assert_eq!(queue.claim_ids(1, claim(2, 10, 9_000)).await, ["b1", "a2", "low"]);
}

async fn a_turn_is_used_up_by_an_expired_message(queue: &Queue) {
    let mut all = grouped(&[("a", 2), ("b", 2)]);
    all[0].expires = Some(after(5));
    queue.enqueue(0, all).await;
    let claimed = queue.claim(5, claim(1, 2, 9_000)).await;
    assert_eq!(
        (ids(&claimed.deliveries), claimed.deaths.len()),
        (vec!["b1".into(), "a2".into()], 1)
    );
    assert_eq!(queue.claim_ids(5, claim(2, 2, 9_000)).await, ["b2"]);
}

async fn a_due_message_is_not_behind_a_flood(queue: &Queue) {
    let flood: Vec<_> = (0..=3 * MAX_LOOK_AHEAD).map(|n| of("flood", &n.to_string())).collect();
    for batch in flood.chunks(MAX_LOOK_AHEAD) {
        let batch = batch.iter().map(|it| it.clone().schedule(after(10)));
        queue.enqueue(0, batch.collect()).await;
    }
    queue.enqueue_one(0, of("quiet", "scheduled").schedule(after(10))).await;
    assert_eq!(queue.claim_ids(10, claim(1, 1, 90_000)).await, ["0"]);
    // Sent when it is due, and so in its lane at once.
    queue.enqueue_one(10, of("quiet", "sent")).await;
    assert_eq!(queue.claim_ids(10, claim(2, 2, 90_000)).await, ["1", "sent"]);
    // A claim for no messages looks ahead, too, and the fourth look finds the end of the flood.
    let none = queue.claim(10, claim(3, 0, 90_000)).await;
    assert_eq!((none.deliveries.len(), none.more, none.unsorted), (0, true, true));
    let last = queue.claim(10, claim(3, 2, 90_000)).await;
    assert_eq!(
        (ids(&last.deliveries), last.unsorted),
        (vec!["2".into(), "scheduled".into()], false)
    );
    for n in 4..=8 {
        let claimed = queue.claim(10, claim(n, 1_000, 90_000)).await;
        if !claimed.more {
            return;
        }
    }
    panic!("the flood does not end");
}

async fn nor_if_the_lane_of_the_flood_has_no_turn(queue: &Queue) {
    let flood: Vec<_> = (0..=3 * MAX_LOOK_AHEAD).map(|n| of("flood", &n.to_string())).collect();
    for batch in flood.chunks(MAX_LOOK_AHEAD) {
        let batch = batch.iter().map(|it| it.clone().schedule(after(10)));
        queue.enqueue(0, batch.collect()).await;
    }
    // The claim empties the lane, which leaves the ring.
    assert_eq!(queue.claim_ids(10, claim(1, MAX_LOOK_AHEAD, 90_000)).await.len(), MAX_LOOK_AHEAD);
    queue.enqueue_one(10, of("quiet", "first")).await;
    assert_eq!(queue.claim_ids(10, claim(2, 2, 90_000)).await, ["first", "1000"]);
    // The lane waits for its slot.
    assert!(queue.set_limits(10, SetLimits::new().each_group(1)).await);
    assert_eq!(queue.claim_ids(10, claim(3, 2, 90_000)).await, ["1001"]);
    queue.enqueue_one(10, of("quiet", "second")).await;
    assert_eq!(queue.claim_ids(10, claim(4, 2, 90_000)).await, ["second"]);
}

async fn a_lane_is_in_the_order_of_enqueueing(queue: &Queue) {
    let mut all = grouped(&[("a", 3), ("b", 1)]);
    all[0].schedule = after(9);
    all[1].schedule = after(8);
    queue.enqueue(0, all).await;
    // a3 and b1 are due, and this claim takes one: both go to lanes.
    assert_eq!(queue.claim_ids(1, claim(1, 1, 9_000)).await, ["a3"]);
    assert_eq!(queue.claim_ids(9, claim(2, 2, 9_000)).await, ["b1", "a1"]);
    assert_eq!(queue.claim_ids(9, claim(3, 2, 9_000)).await, ["a2"]);
}

async fn a_message_in_a_lane_is_ready(queue: &Queue) {
    let mut all = grouped(&[("a", 3)]);
    all[2].schedule = after(100);
    queue.enqueue(5, all).await;
    queue.claim(6, claim(1, 1, 9_000)).await;
    let info = queue.live(7, "a2").await.info;
    assert_eq!((info.state.status(), info.due), (Status::Ready, at(5)));
    assert_eq!(info.group.map(|group| group.to_string()).as_deref(), Some("a"));
    assert_eq!(listed(&queue.list(7, Status::Ready, 10).await), ["a2"]);
    assert_eq!(listed(&queue.list(7, Status::Scheduled, 10).await), ["a3"]);
    let stats = queue.stats(7).await;
    assert_eq!((stats.scheduled, stats.ready, stats.leased), (1, 1, 1));
    assert_eq!((stats.earliest_due, stats.waiting_groups), (Some(at(5)), 1));
    assert_eq!(queue.forecast(7, &[200]).await, (1, vec![1], 0));
    // The clock steps back behind its due time.
    assert_eq!(queue.live(4, "a2").await.info.state.status(), Status::Ready);
    let taken = queue.claim(4, claim(2, 1, 9_000)).await;
    assert_eq!((ids(&taken.deliveries), taken.more), (vec!["a2".into()], false));
    assert_eq!(taken.deliveries[0].message.info.due, at(5));
}

async fn a_message_in_a_lane_can_be_changed(queue: &Queue) {
    queue.enqueue(0, grouped(&[("a", 7)])).await;
    assert_eq!(queue.claim_ids(0, claim(1, 1, 9_000)).await, ["a1"]);
    queue.cancel(1, "a2").await;
    queue.reschedule(1, "a3", after(50)).await;
    let update = |name: &str, due, content| {
        let token = UpdateToken::from_bytes([7; UpdateToken::BYTES]);
        of("a", name).schedule(after(60)).known(Known::Update(Update::new(content, due, token)))
    };
    let moved = update("a4", UpdateDue::Set, UpdateContent::Keep);
    assert_eq!(queue.enqueue_one(1, moved).await, Enqueued::Updated { due: at(61) });
    let same = update("a5", UpdateDue::Keep, UpdateContent::Keep);
    assert_eq!(queue.enqueue_one(1, same).await, Enqueued::Duplicate { status: Status::Ready });
    let other = update("a6", UpdateDue::Set, UpdateContent::Replace).payload("other");
    assert_eq!(queue.enqueue_one(1, other).await, Enqueued::Updated { due: at(61) });
    assert_eq!(queue.claim_ids(2, claim(2, 10, 9_000)).await, ["a5", "a7"]);
    assert_eq!(queue.claim_ids(50, claim(3, 10, 9_000)).await, [""; 0]);
    assert_eq!(queue.claim_ids(51, claim(4, 10, 9_000)).await, ["a3"]);
    assert_eq!(queue.claim_ids(61, claim(5, 10, 9_000)).await, ["a4", "a6"]);
    assert_eq!(queue.live(61, "a4").await.info.due, at(61));
}

async fn empty_lanes_are_passed_over(queue: &Queue) {
    let groups = MAX_LOOK_AHEAD - 1;
    let all: Vec<_> = (0..groups).map(|n| of(&format!("g{n}"), &n.to_string())).collect();
    queue.enqueue(0, all.clone()).await;
    queue.enqueue(0, vec![of("last", "last"), of("last", "later")]).await;
    assert_eq!(queue.claim_ids(0, claim(1, 1, 9_000)).await, ["0"]);
    let others = all[1..].iter().map(|message| message.id.clone()).collect();
    queue.apply(1, &Op::Cancel(others)).await;
    let claimed = queue.claim(1, claim(2, 10, 9_000)).await;
    assert_eq!(
        (ids(&claimed.deliveries), claimed.more),
        (vec!["last".into(), "later".into()], false)
    );
}

async fn a_released_message_keeps_its_due_time(queue: &Queue) {
    queue.enqueue(3, grouped(&[("a", 3), ("b", 1)])).await;
    assert_eq!(queue.claim_ids(4, claim(1, 1, 9_000)).await, ["a1"]);
    assert_eq!(queue.claim_ids(4, claim(2, 2, 9_000)).await, ["b1", "a2"]);
    assert_eq!(queue.end(5, "a2", lease(2, 1), Outcome::Release).await, done(Status::Ready));
    assert_eq!(queue.live(5, "a2").await.info.due, at(3));
    assert_eq!(queue.end(5, "a1", lease(1, 1), retry(10, "")).await, done(Status::Scheduled));
    assert_eq!(queue.claim_ids(15, claim(3, 1, 9_000)).await, ["a1"]);
    assert_eq!(queue.claim_ids(15, claim(4, 9, 9_000)).await, ["a2", "a3"]);
}

async fn a_relay_goes_by_turns(queue: &Queue) {
    queue.enqueue(0, grouped(&[("a", 3), ("b", 2)])).await;
    let to = list("a-list", None);
    for expected in [&["a1", "b1"][..], &["a2", "b2"], &["a3"]] {
        let relay = Op::Relay(Relay::new(to.clone(), 2));
        let Reply::Relay(relayed) = queue.apply(1, &relay).await.reply else {
            panic!("not the reply to a relay")
        };
        let moved: Vec<_> = relayed.ids.iter().map(ToString::to_string).collect();
        assert_eq!(moved, expected);
    }
}

async fn the_group_is_content(queue: &Queue) {
    queue.enqueue_one(0, of("a", "x")).await;
    for other in [message("x"), of("b", "x")] {
        let conflict = Enqueued::Conflict { status: Status::Ready };
        assert_eq!(queue.enqueue_one(0, other).await, conflict);
    }
    let duplicate = Enqueued::Duplicate { status: Status::Ready };
    assert_eq!(queue.enqueue_one(0, of("a", "x")).await, duplicate);
    let invalid = of("a", "y").priority(Priority::High);
    assert!(queue.try_apply(0, &Op::Enqueue(vec![invalid])).await.is_err());
}

/// Of a dead letter, a redriven one, a follower, and one of a hand-off.
async fn groups_are_kept(queue: &Queue) {
    let group = |info: delayline_core::MessageInfo| info.group.map(|group| group.to_string());
    let held = queue.leased(0, of("a", "x").max_failures(1), 9_000).await;
    let token = UpdateToken::from_bytes([7; UpdateToken::BYTES]);
    let update = Update::new(UpdateContent::Replace, UpdateDue::Set, token);
    queue.enqueue_one(1, of("b", "x").max_failures(1).known(Known::Update(update))).await;
    let follower = queue.live(1, "x").await.follower.and_then(|follower| follower.group);
    assert_eq!(follower.map(|group| group.to_string()).as_deref(), Some("b"));
    assert_eq!(queue.end(2, "x", held, Outcome::Ack).await, done(Status::Acked));
    assert_eq!(group(queue.live(2, "x").await.info).as_deref(), Some("b"));
    queue.claim(3, claim(2, 1, 9_000)).await;
    assert_eq!(queue.end(4, "x", lease(2, 2), retry(1, "no")).await, done(Status::Dead));
    assert_eq!(group(queue.live(4, "x").await.info).as_deref(), Some("b"));
    let redriven = Schedule::In(millis(5));
    queue.redrive(5, "x", redriven).await;
    assert_eq!(group(queue.live(6, "x").await.info).as_deref(), Some("b"));
    let page = queue.list(6, Status::Scheduled, 10).await;
    assert_eq!(page.messages.iter().cloned().find_map(group).as_deref(), Some("b"));
    let taken = queue.claim(10, claim(3, 1, 9_000)).await;
    assert_eq!(taken.deliveries[0].message.info.id, id("x"));
    assert_eq!(group(taken.deliveries[0].message.info.clone()).as_deref(), Some("b"));
    let acked = Settlement::new(id("x"), taken.deliveries[0].lease, Outcome::Ack);
    let op = Op::HandOff(vec![HandOff::new(acked, vec![of("c", "y")])]);
    queue.apply(11, &op).await;
    assert_eq!(group(queue.live(11, "y").await.info).as_deref(), Some("c"));
}
