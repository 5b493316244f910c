//! Relays to a list or stream.

use delayline_core::{
    Check, DeathReason, Destination, Enqueued, Found, NewMessage, Op, Outcome, Priority, Relay,
    Relayed, Reply, Schedule, Settled, Status, limits,
};

use super::queue::{Queue, after, at, claim, death, id, lease, message, with};
use crate::workload::destinations::{list, stream};

super::cases! { "relay",
    nothing_is_relayed_before_it_is_due: "G4, G28",
    messages_are_relayed_in_the_order_of_claims: "G12, G28",
    what_is_relayed_is_finished: "G1, G15, G28",
    a_relayed_update_is_remembered: "G15, G29, G28",
    a_relay_takes_back_what_is_followed: "G30, G28",
    a_relayed_id_can_be_reused_if_asked: "G15",
    a_relay_takes_no_message_that_somebody_holds: "G5, G28",
    expired_leases_follow_with_the_next_relay: "G21, G28",
    a_cancelled_lease_that_expires_is_not_relayed: "G13, G28",
    what_has_expired_is_buried_and_not_relayed: "G9, G28",
    a_paused_queue_relays_nothing: "G17, G28",
    a_full_list_holds_messages_back: "G28",
    a_full_stream_holds_messages_back: "G28",
    relays_are_bounded_in_number_and_bytes: "G23, G28",
    contents_of_every_size_are_relayed: "G2, G28",
    a_relay_that_finds_nothing_changes_nothing: "G3",
    repeated_relays_move_what_is_next: "G28",
}

fn anywhere() -> Destination {
    list("a-list", None)
}

async fn relay(queue: &Queue, ms: u64, to: Destination, max: usize) -> Relayed {
    let op = Op::Relay(Relay::new(to, max));
    match queue.apply(ms, &op).await.reply {
        Reply::Relay(relayed) => relayed,
        other => panic!("{op:?} was answered {other:?}"),
    }
}

async fn ids(queue: &Queue, ms: u64, to: Destination, max: usize) -> Vec<String> {
    relay(queue, ms, to, max).await.ids.iter().map(ToString::to_string).collect()
}

fn later(name: &str, ms: u64) -> NewMessage {
    message(name).schedule(after(ms))
}

async fn nothing_is_relayed_before_it_is_due(queue: &Queue) {
    for (name, to) in [("a", anywhere()), ("b", stream("a-stream", None))] {
        queue.enqueue_one(0, later(name, 10)).await;
        let early = relay(queue, 9, to.clone(), 5).await;
        assert_eq!(early, with(Relayed::default(), |relayed| relayed.next = Some(at(10))));
        let due = relay(queue, 10, to, 5).await;
        assert_eq!(due, with(Relayed::default(), |relayed| relayed.ids = vec![id(name)]));
    }
}

async fn messages_are_relayed_in_the_order_of_claims(queue: &Queue) {
    let of = |priority, name| later(name, 5).priority(priority);
    let messages = vec![
        of(Priority::Low, "low"),
        of(Priority::Normal, "second"),
        later("first", 4),
        of(Priority::Normal, "third"),
        of(Priority::Urgent, "urgent"),
        of(Priority::High, "high"),
    ];
    queue.enqueue(0, messages).await;
    assert_eq!(ids(queue, 5, anywhere(), 3).await, ["urgent", "high", "first"]);
    let rest = relay(queue, 5, stream("a-stream", None), 2).await;
    assert_eq!((rest.ids, rest.more), (vec![id("second"), id("third")], true));
    assert_eq!(ids(queue, 5, anywhere(), 1_000).await, ["low"]);
}

async fn what_is_relayed_is_finished(queue: &Queue) {
    queue.enqueue(0, vec![message("a"), message("b")]).await;
    assert_eq!(ids(queue, 1, anywhere(), 1).await, ["a"]);
    assert_eq!(queue.get(2, "a").await, Found::Finished(Status::Relayed));
    let duplicate = Enqueued::Duplicate { status: Status::Relayed };
    assert_eq!(queue.enqueue_one(2, message("a")).await, duplicate);
    let other = message("a").payload("other");
    let conflict = Enqueued::Conflict { status: Status::Relayed };
    assert_eq!(queue.enqueue_one(2, other).await, conflict);
    assert_eq!(queue.cancel(3, "a").await, delayline_core::Cancelled::NotFound);
    assert_eq!(queue.purge(3, "a").await, delayline_core::Purged::NotFound);
    assert_eq!(queue.claim_ids(4, claim(1, 9, 10)).await, ["b"]);
    let stats = queue.stats(5).await;
    assert_eq!((stats.totals.relayed, stats.totals.enqueued, stats.leased), (1, 2, 1));
}

async fn a_relayed_update_is_remembered(queue: &Queue) {
    let update = || {
        super::update::set(1, "a", "new", after(0)).finished_ids(delayline_core::FinishedIds::Reuse)
    };
    queue.enqueue_one(0, update()).await;
    queue.enqueue_one(0, message("b")).await;
    assert_eq!(ids(queue, 1, anywhere(), 9).await, ["a", "b"]);
    let late = queue.enqueue_one(2, update()).await;
    assert_eq!(late, Enqueued::Duplicate { status: Status::Relayed });
}

async fn a_relay_takes_back_what_is_followed(queue: &Queue) {
    queue.leased(0, message("a"), 10).await;
    queue.enqueue_one(1, super::update::set(1, "a", "new", after(0))).await;
    assert_eq!(ids(queue, 5, anywhere(), 9).await, [""; 0], "it is held");
    let taken = ids(queue, 11, anywhere(), 9).await;
    let moved = if taken.is_empty() { ids(queue, 11, anywhere(), 9).await } else { taken };
    assert_eq!(moved, ["a"], "the follower");
    let stats = queue.stats(12).await;
    assert_eq!((stats.totals.relayed, stats.totals.replaced, stats.totals.enqueued), (1, 1, 2));
}

async fn a_relayed_id_can_be_reused_if_asked(queue: &Queue) {
    let again = || message("again").finished_ids(delayline_core::FinishedIds::Reuse);
    for round in 0..3 {
        let created = Enqueued::Created { due: at(round) };
        assert_eq!(queue.enqueue_one(round, again()).await, created);
        assert_eq!(ids(queue, round, anywhere(), 9).await, ["again"]);
    }
    assert_eq!(queue.stats(4).await.totals.relayed, 3);
}

async fn a_relay_takes_no_message_that_somebody_holds(queue: &Queue) {
    let held = queue.leased(0, message("held"), 100).await;
    queue.enqueue_one(0, message("free")).await;
    let relayed = relay(queue, 99, anywhere(), 9).await;
    assert_eq!((relayed.ids, relayed.next), (vec![id("free")], Some(at(100))));
    let done = Settled::Done { status: Status::Acked };
    assert_eq!(queue.end(99, "held", held, Outcome::Ack).await, done);
}

async fn expired_leases_follow_with_the_next_relay(queue: &Queue) {
    let held = queue.leased(0, message("held"), 10).await;
    queue.enqueue_one(1, message("free")).await;
    let first = relay(queue, 10, anywhere(), 9).await;
    assert_eq!((first.ids, first.more, first.next), (vec![id("free")], true, Some(at(0))));
    assert_eq!(queue.live(10, "held").await.info.crashes, 1);
    assert_eq!(ids(queue, 10, anywhere(), 9).await, ["held"]);
    assert_eq!(queue.end(11, "held", held, Outcome::Ack).await, Settled::Missing);
    // Its last crash.
    let last = message("last").max_crashes(1);
    queue.leased_as(2, 20, last, 10).await;
    let buried = relay(queue, 30, anywhere(), 9).await;
    assert_eq!(buried.deaths, [death("last", DeathReason::MaxCrashes)]);
    assert_eq!((buried.ids.len(), buried.more, buried.next), (0, false, None));
}

async fn a_cancelled_lease_that_expires_is_not_relayed(queue: &Queue) {
    queue.leased(0, message("held"), 10).await;
    queue.enqueue_one(1, message("free")).await;
    queue.cancel(1, "held").await;
    assert_eq!(ids(queue, 10, anywhere(), 9).await, ["free"]);
    assert_eq!(ids(queue, 10, anywhere(), 9).await, [""; 0]);
    assert_eq!(queue.get(10, "held").await, Found::Finished(Status::Cancelled));
    assert_eq!(queue.get(10, "free").await, Found::Finished(Status::Relayed));
}

async fn what_has_expired_is_buried_and_not_relayed(queue: &Queue) {
    let short = |name| message(name).expires(after(5));
    queue.enqueue(0, vec![short("x"), message("a"), short("y"), message("b")]).await;
    let relayed = relay(queue, 5, anywhere(), 2).await;
    assert_eq!(relayed.ids, [id("a"), id("b")]);
    let deaths = ["x", "y"].map(|name| death(name, DeathReason::Expired));
    assert_eq!(relayed.deaths, deaths);
    let stats = queue.stats(6).await;
    assert_eq!((stats.dead, stats.totals.died_expired, stats.totals.relayed), (2, 2, 2));
}

async fn a_paused_queue_relays_nothing(queue: &Queue) {
    queue.leased(0, message("held"), 10).await;
    queue.enqueue_one(0, message("a")).await;
    queue.pause(1).await;
    // Expired leases are reclaimed even so.
    let paused = relay(queue, 20, list("a-list", Some(1)), 9).await;
    assert_eq!(paused, Relayed::default());
    assert_eq!(queue.live(20, "held").await.info.crashes, 1);
    queue.resume(21).await;
    assert_eq!(ids(queue, 22, anywhere(), 9).await, ["held", "a"]);
}

async fn a_full_list_holds_messages_back(queue: &Queue) {
    full(queue, |most| list("a-list", most)).await;
}

async fn a_full_stream_holds_messages_back(queue: &Queue) {
    full(queue, |most| stream("a-stream", most)).await;
}

async fn full(queue: &Queue, to: impl Fn(Option<u64>) -> Destination) {
    let names = ["a", "b", "c", "d", "e"];
    queue.enqueue(0, names.map(message).to_vec()).await;
    let first = relay(queue, 1, to(Some(2)), 9).await;
    assert_eq!((first.ids, first.more, first.held_back), (vec![id("a"), id("b")], false, true));
    let full = relay(queue, 2, to(Some(2)), 9).await;
    let held_back = with(Relayed::default(), |relayed| {
        (relayed.held_back, relayed.next) = (true, Some(at(0)));
    });
    assert_eq!(full, held_back);
    let some = relay(queue, 3, to(Some(4)), 1).await;
    assert_eq!((some.ids, some.more, some.held_back), (vec![id("c")], true, false));
    let rest = relay(queue, 4, to(Some(5)), 9).await;
    assert_eq!((rest.ids, rest.more, rest.held_back), (vec![id("d"), id("e")], false, false));
    queue.enqueue_one(5, message("f")).await;
    assert_eq!(ids(queue, 5, to(None), 9).await, ["f"]);
}

async fn relays_are_bounded_in_number_and_bytes(queue: &Queue) {
    let many = (0..limits::MAX_BATCH).map(|n| message(&format!("m{n}")));
    queue.enqueue(0, many.collect()).await;
    queue.enqueue_one(1, message("last")).await;
    let relayed = relay(queue, 1, anywhere(), limits::MAX_BATCH).await;
    assert_eq!((relayed.ids.len(), relayed.more), (limits::MAX_BATCH, true));
    assert_eq!(relayed.ids[999], id("m999"));
    let large = |n: usize| message(&format!("l{n}")).payload(vec![7; 1_000_000]);
    queue.enqueue(2, (0..3).map(large).collect()).await;
    queue.enqueue(2, (3..6).map(large).collect()).await;
    let some = relay(queue, 3, stream("a-stream", None), 9).await;
    assert_eq!((some.ids.len(), some.more), (4, true), "last, and 3 MB");
    assert_eq!(ids(queue, 3, anywhere(), 9).await, ["l3", "l4", "l5"]);
}

async fn contents_of_every_size_are_relayed(queue: &Queue) {
    let mut messages = Vec::new();
    for length in [0, 1, 4_000, 5_000, 100_000] {
        for headers in [0, 1, 3] {
            let mut message = message(&format!("{length}-{headers}"));
            message.payload = vec![b'x'; length].into();
            for n in 0..headers {
                let set = message.headers.set(format!("h{n}"), vec![n; usize::from(n) * 100]);
                assert_eq!(set, Ok(()));
            }
            messages.push(message);
        }
    }
    let names: Vec<_> = messages.iter().map(|message| message.id.clone()).collect();
    queue.enqueue(0, messages).await;
    assert_eq!(relay(queue, 1, anywhere(), 8).await.ids, names[..8]);
    assert_eq!(relay(queue, 1, stream("a-stream", None), 8).await.ids, names[8..]);
    assert_eq!(queue.stats(1).await.totals.relayed, 15);
    assert_eq!(queue.check(1, 10).await, 0);
}

async fn a_relay_that_finds_nothing_changes_nothing(queue: &Queue) {
    queue.enqueue_one(0, later("a", 100)).await;
    queue.leased_as(1, 0, message("b"), 100).await;
    let before = queue.apply(1, &Op::Stats).await.revision;
    let op = Op::Relay(Relay::new(anywhere(), 9));
    assert_eq!(queue.apply(2, &op).await.revision, before);
    let op = Op::Check(Check::new(9));
    assert_eq!(queue.apply(3, &op).await.revision, before);
    assert!(matches!(queue.end(3, "b", lease(1, 1), Outcome::Ack).await, Settled::Done { .. }));
    queue.reschedule(3, "a", Schedule::NOW).await;
    let op = Op::Relay(Relay::new(anywhere(), 9));
    assert_eq!(queue.apply(4, &op).await.revision, before + 3);
}

async fn repeated_relays_move_what_is_next(queue: &Queue) {
    queue.enqueue(0, ["a", "b", "c"].map(message).to_vec()).await;
    for expected in ["a", "b", "c"] {
        assert_eq!(ids(queue, 1, anywhere(), 1).await, [expected]);
    }
    assert_eq!(relay(queue, 1, anywhere(), 1).await, Relayed::default());
}
