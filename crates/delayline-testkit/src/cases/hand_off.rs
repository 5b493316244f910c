//! Settlements that carry messages.

use delayline_core::limits::{MAX_BATCH, MAX_BATCH_BYTES, MAX_FOLLOW_UPS, MAX_PAYLOAD_BYTES};
use delayline_core::{
    Cancelled, Enqueued, ErrorKind, FinishedIds, Found, HandOff, HandedOff, Known, Lease,
    MessageState, NewMessage, Op, Outcome, Reply, Schedule, Settled, Settlement, Status, Update,
    UpdateContent, UpdateDue, UpdateToken,
};

use super::queue::{
    Queue, after, at, claim, done, ended, id, lease, message, millis, one, reject, retry,
};

super::cases! { "hand_off",
    messages_follow_from_every_outcome: "G8, G31",
    a_lease_that_is_not_current_hands_nothing_off: "G6, G31",
    messages_with_known_ids_are_told: "G15, G31",
    a_follow_up_may_reuse_a_finished_id: "G14, G31",
    follow_ups_are_due_as_they_say: "G4, G12, G31",
    a_large_follow_up_is_delivered_whole: "G2, G31",
    items_of_a_hand_off_are_independent_and_in_order: "G12, G18, G31",
    a_repeated_item_beside_a_new_one_sends_nothing_again: "G8, G14, G31",
    a_cancelled_lease_hands_off_all_the_same: "G13, G31",
    a_followed_message_hands_off_beside_its_follower: "G30, G31",
    a_paused_queue_takes_hand_offs: "G17, G31",
    a_chain_goes_on_over_repetitions: "G8, G31",
    what_cannot_follow_is_refused: "G23, G31",
    a_full_batch_hands_off: "G23, G31",
}

fn item(name: &str, lease: Lease, outcome: Outcome, messages: Vec<NewMessage>) -> HandOff {
    HandOff::new(Settlement::new(id(name), lease, outcome), messages)
}

async fn hand_off(queue: &Queue, ms: u64, items: Vec<HandOff>) -> Vec<HandedOff> {
    match queue.apply(ms, &Op::HandOff(items)).await.reply {
        Reply::HandOff(answers) => answers,
        other => panic!("the reply to a hand-off is {other:?}"),
    }
}

/// Acks a message and sends what follows.
async fn ack(queue: &Queue, ms: u64, name: &str, held: Lease, next: Vec<NewMessage>) -> HandedOff {
    one(hand_off(queue, ms, vec![item(name, held, Outcome::Ack, next)]).await)
}

fn created(ms: u64) -> Enqueued {
    Enqueued::Created { due: at(ms) }
}

fn done_and(status: Status, messages: Vec<Enqueued>) -> HandedOff {
    HandedOff::new(done(status), messages)
}

fn due(message: NewMessage, ms: u64) -> NewMessage {
    message.schedule(after(ms))
}

async fn messages_follow_from_every_outcome(queue: &Queue) {
    let outcomes = [
        ("ack", Outcome::Ack, Status::Acked),
        ("retry", retry(50, "boom"), Status::Scheduled),
        ("snooze", Outcome::Snooze { schedule: Schedule::In(millis(50)) }, Status::Scheduled),
        ("release", Outcome::Release, Status::Ready),
        ("reject", reject("boom"), Status::Dead),
    ];
    for (name, outcome, status) in outcomes {
        let next = format!("after-{name}");
        let held = queue.leased_as(name.as_bytes()[2], 0, message(name), 60_000).await;
        let items = vec![item(name, held, outcome, vec![due(message(&next), 100)])];
        let first = one(hand_off(queue, 1, items.clone()).await);
        assert_eq!(first, done_and(status, vec![created(101)]), "{name}");
        let (enqueued, sent) = (queue.stats(2).await.totals.enqueued, queue.live(2, &next).await);
        for ms in [2, 3] {
            let again = one(hand_off(queue, ms, items.clone()).await);
            let ended = matches!(status, Status::Acked | Status::Dead).then_some(status);
            let already = HandedOff::from(Settled::AlreadyDone { ended });
            assert_eq!(again, already, "{name}");
        }
        assert_eq!(queue.stats(4).await.totals.enqueued, enqueued, "{name}");
        assert_eq!(queue.live(4, &next).await, sent, "{name}");
        queue.cancel(4, name).await;
        queue.cancel(4, &next).await;
    }
}

async fn a_lease_that_is_not_current_hands_nothing_off(queue: &Queue) {
    let held = queue.leased(0, message("a"), 100).await;
    let next = || vec![message("b")];
    let other = Lease { epoch: held.epoch + 1, ..held };
    assert_eq!(ack(queue, 1, "a", other, next()).await, HandedOff::from(Settled::Stale));
    assert_eq!(ack(queue, 1, "x", held, next()).await, HandedOff::from(Settled::Missing));
    // Reclaimed and leased again.
    let again = one(queue.claim(200, claim(2, 1, 100)).await.deliveries).lease;
    assert_eq!(ack(queue, 201, "a", held, next()).await, HandedOff::from(Settled::Stale));
    assert_eq!(queue.get(202, "b").await, Found::Unknown);
    assert_eq!(queue.stats(202).await.totals.enqueued, 1);
    let acked = done_and(Status::Acked, vec![created(203)]);
    assert_eq!(ack(queue, 203, "a", again, next()).await, acked);
    // With a requested cancellation, any outcome of the current lease ends the message.
    queue.cancel(300, "b").await;
    let held = queue.leased_as(3, 300, message("c"), 100).await;
    queue.cancel(301, "c").await;
    let release = |lease| vec![item("c", lease, Outcome::Release, vec![message("d")])];
    let other = Lease { epoch: held.epoch + 1, ..held };
    let stale = one(hand_off(queue, 302, release(other)).await);
    assert_eq!(stale, HandedOff::from(Settled::Stale));
    let ended = one(hand_off(queue, 303, release(held)).await);
    assert_eq!(ended.settled, done(Status::Cancelled), "{ended:?}");
}

async fn messages_with_known_ids_are_told(queue: &Queue) {
    queue.enqueue(0, vec![due(message("same"), 900), due(message("other"), 900)]).await;
    let held = queue.leased(1, message("a"), 100).await;
    let other = message("other").payload("something else");
    let answer = ack(queue, 2, "a", held, vec![message("same"), other, message("new")]).await;
    let duplicate = Enqueued::Duplicate { status: Status::Scheduled };
    let conflict = Enqueued::Conflict { status: Status::Scheduled };
    assert_eq!(answer, done_and(Status::Acked, vec![duplicate, conflict, created(2)]));
    assert_eq!(queue.get(3, "a").await, Found::Finished(Status::Acked));
    // One of which nothing is created.
    let held = queue.leased_as(2, 910, message("b"), 100).await;
    let answer = ack(queue, 911, "b", held, vec![message("a")]).await;
    assert_eq!(answer.settled, Settled::Stale, "the first in order is another message");
    let held = lease(2, 1);
    let name = queue.list(911, Status::Leased, 1).await.messages.remove(0).id.to_string();
    let duplicate = Enqueued::Duplicate { status: Status::Acked };
    let answer = ack(queue, 912, &name, held, vec![message("a")]).await;
    assert_eq!(answer, done_and(Status::Acked, vec![duplicate]));
}

async fn a_follow_up_may_reuse_a_finished_id(queue: &Queue) {
    let held = queue.leased(0, message("old"), 100).await;
    queue.end(1, "old", held, Outcome::Ack).await;
    let held = queue.leased_as(2, 2, message("a"), 100).await;
    let again = message("old").finished_ids(FinishedIds::Reuse);
    assert_eq!(
        ack(queue, 3, "a", held, vec![due(again, 5)]).await,
        done_and(Status::Acked, vec![created(8)])
    );
    assert_eq!(queue.live(4, "old").await.info.state, MessageState::Scheduled);
    assert_eq!(queue.get(4, "a").await, Found::Finished(Status::Acked));
    assert_eq!(queue.cancel(5, "old").await, Cancelled::Cancelled);
}

async fn follow_ups_are_due_as_they_say(queue: &Queue) {
    let held = queue.leased(0, message("a"), 100).await;
    let next = vec![due(message("late"), 20), due(message("soon"), 10), due(message("tie"), 10)];
    let answer = ack(queue, 5, "a", held, next).await;
    assert_eq!(answer.messages, [created(25), created(15), created(15)]);
    assert!(queue.claim_ids(14, claim(2, 9, 100)).await.is_empty());
    assert_eq!(queue.claim_ids(15, claim(3, 9, 100)).await, ["soon", "tie"]);
    assert_eq!(queue.claim_ids(25, claim(4, 9, 100)).await, ["late"]);
}

async fn a_large_follow_up_is_delivered_whole(queue: &Queue) {
    let held = queue.leased(0, message("a"), 100).await;
    let mut large = message("large").payload(vec![7; 100_000]);
    let set = large.headers.set("kind", "large");
    set.unwrap_or_else(|violation| panic!("{violation}"));
    let expiring = message("expiring").expires(after(50));
    let answer = ack(queue, 1, "a", held, vec![large.clone(), expiring]).await;
    assert_eq!(answer, done_and(Status::Acked, vec![created(1), created(1)]));
    assert_eq!(queue.live(2, "expiring").await.info.expires_at, Some(at(51)));
    let delivery = queue.claim(2, claim(2, 1, 100)).await.deliveries.remove(0).message;
    assert_eq!((delivery.payload, delivery.headers), (large.payload, large.headers));
}

async fn items_of_a_hand_off_are_independent_and_in_order(queue: &Queue) {
    queue.enqueue(0, ["a", "b", "c"].map(message).to_vec()).await;
    queue.claim(0, claim(1, 3, 100)).await;
    let held = lease(1, 1);
    let next = |name: &str| vec![message(&format!("{name}-1")), message(&format!("{name}-2"))];
    let answers = hand_off(
        queue,
        1,
        vec![
            item("b", held, Outcome::Ack, next("b")),
            item("a", lease(9, 1), Outcome::Ack, next("a")),
            item("c", held, Outcome::Release, next("c")),
        ],
    );
    let both = || vec![created(1), created(1)];
    let expected = [
        done_and(Status::Acked, both()),
        HandedOff::from(Settled::Stale),
        done_and(Status::Ready, both()),
    ];
    assert_eq!(answers.await, expected);
    let all = queue.claim_ids(2, claim(2, 9, 100)).await;
    // The released message keeps its due time and its sequence number.
    assert_eq!(all, ["c", "b-1", "b-2", "c-1", "c-2"]);
}

/// The sent message has finished meanwhile, and its id may be reused.
async fn a_repeated_item_beside_a_new_one_sends_nothing_again(queue: &Queue) {
    let outcomes = [Outcome::Ack, Outcome::Release];
    let cases = outcomes.iter().flat_map(|it| [(it, true), (it, false)]);
    for (claim_id, (outcome, others_first)) in (1_u8..).zip(cases) {
        let n = u64::from(claim_id);
        let name = |text: &str| format!("{text}-{n}");
        let ms = 1_000 * n;
        let reused = |text: String| message(&name(&text)).finished_ids(FinishedIds::Reuse);
        queue.enqueue(ms, ["a", "b", "c"].map(|it| message(&name(it))).to_vec()).await;
        queue.claim(ms, claim(claim_id, 3, 500)).await;
        let held = lease(claim_id, 1);
        let next = |text: &str| vec![reused(format!("{text}-1")), reused(format!("{text}-2"))];
        let repeated = item(&name("b"), held, outcome.clone(), next("b"));
        let first = one(hand_off(queue, ms + 1, vec![repeated.clone()]).await);
        assert_eq!(first.messages, [created(ms + 1); 2]);
        for text in ["b-1", "b-2"] {
            assert_eq!(queue.cancel(ms + 2, &name(text)).await, Cancelled::Cancelled);
        }
        let new = |text: &str| item(&name(text), held, Outcome::Ack, next(text));
        let mut items = vec![new("a"), new("c")];
        items.insert(if others_first { 2 } else { 0 }, repeated);
        let answers = hand_off(queue, ms + 3, items).await;
        let sent: Vec<_> = answers.iter().map(|answer| answer.messages.len()).collect();
        assert_eq!(sent, if others_first { [2, 2, 0] } else { [0, 2, 2] }, "{outcome:?}");
        for text in ["b-1", "b-2"] {
            assert_eq!(queue.get(ms + 4, &name(text)).await, Found::Finished(Status::Cancelled));
        }
        for text in ["a-1", "a-2", "c-1", "c-2", "b"] {
            queue.cancel(ms + 5, &name(text)).await;
        }
    }
}

async fn a_cancelled_lease_hands_off_all_the_same(queue: &Queue) {
    let held = queue.leased(0, message("a"), 100).await;
    queue.cancel(1, "a").await;
    let items = vec![item("a", held, retry(5, "boom"), vec![message("b")])];
    let expected = done_and(Status::Cancelled, vec![created(2)]);
    assert_eq!(one(hand_off(queue, 2, items.clone()).await), expected);
    assert_eq!(hand_off(queue, 3, items).await.remove(0).settled, ended(Status::Cancelled));
}

async fn a_followed_message_hands_off_beside_its_follower(queue: &Queue) {
    let held = queue.leased(0, message("a"), 100).await;
    let (content, due) = (UpdateContent::Replace, UpdateDue::Set);
    let token = UpdateToken::from_bytes([1; UpdateToken::BYTES]);
    let update = message("a")
        .payload("an update")
        .known(Known::Update(Update::new(content, due, token)))
        .finished_ids(FinishedIds::Reuse);
    queue.enqueue_one(1, update).await;
    let items = vec![item("a", held, Outcome::Release, vec![message("b")])];
    let expected = done_and(Status::Replaced, vec![created(2)]);
    assert_eq!(one(hand_off(queue, 2, items.clone()).await), expected);
    assert_eq!(hand_off(queue, 3, items).await.remove(0).settled, ended(Status::Replaced));
    assert_eq!(queue.claim_ids(4, claim(2, 9, 100)).await, ["a", "b"]);
}

async fn a_paused_queue_takes_hand_offs(queue: &Queue) {
    let held = queue.leased(0, message("a"), 100).await;
    queue.pause(1).await;
    let answer = ack(queue, 2, "a", held, vec![message("b")]).await;
    assert_eq!(answer, done_and(Status::Acked, vec![created(2)]));
    assert!(queue.claim_ids(3, claim(2, 9, 100)).await.is_empty());
    queue.resume(4).await;
    assert_eq!(queue.claim_ids(5, claim(3, 9, 100)).await, ["b"]);
}

async fn a_chain_goes_on_over_repetitions(queue: &Queue) {
    queue.enqueue_one(0, message("step-0")).await;
    for step in 0..5_u8 {
        let (ms, name) = (u64::from(step) * 10, format!("step-{step}"));
        let held = one(queue.claim(ms, claim(step + 1, 9, 100)).await.deliveries).lease;
        let next = || vec![message(&format!("step-{}", step + 1))];
        let first = ack(queue, ms + 1, &name, held, next()).await;
        assert_eq!(first, done_and(Status::Acked, vec![created(ms + 1)]));
        let again = ack(queue, ms + 2, &name, held, next()).await;
        assert_eq!(again, HandedOff::from(ended(Status::Acked)));
    }
    assert_eq!(queue.stats(60).await.totals.enqueued, 6);
}

async fn what_cannot_follow_is_refused(queue: &Queue) {
    let held = queue.leased(0, message("a"), 60_000).await;
    let before = queue.stats(1).await;
    let token = UpdateToken::from_bytes([1; UpdateToken::BYTES]);
    let update = Update::new(UpdateContent::Replace, UpdateDue::Set, token);
    let update = message("b").known(Known::Update(update));
    let many = |count: usize| (0..count).map(|n| message(&format!("n-{n}"))).collect::<Vec<_>>();
    let large = |name| message(name).payload(vec![0; MAX_PAYLOAD_BYTES]);
    let names = ["1", "2", "3", "4", "5"];
    assert!(names.len() * MAX_PAYLOAD_BYTES > MAX_BATCH_BYTES, "they are too large together");
    let too_long = message("b").payload(vec![0; MAX_PAYLOAD_BYTES + 1]);
    for (what, messages) in [
        ("none", Vec::new()),
        ("its own id", vec![message("a")]),
        ("the same id twice", vec![message("b"), message("b")]),
        ("an update", vec![update]),
        ("too long a payload", vec![too_long]),
        ("too many", many(MAX_FOLLOW_UPS + 1)),
        ("too large together", names.map(large).to_vec()),
    ] {
        let op = Op::HandOff(vec![item("a", held, Outcome::Ack, messages)]);
        let error = queue.try_apply(2, &op).await.err();
        let kind = error.as_ref().map(delayline_core::Error::kind);
        assert!(matches!(kind, Some(ErrorKind::Invalid(_))), "{what}: {error:?}");
    }
    let items = (0..11).map(|n| {
        item(&format!("s-{n}"), held, Outcome::Ack, {
            let messages = (0..MAX_FOLLOW_UPS).map(|m| message(&format!("{n}-{m}")));
            messages.collect()
        })
    });
    let error = queue.try_apply(2, &Op::HandOff(items.collect())).await.err();
    let kind = error.as_ref().map(delayline_core::Error::kind);
    assert!(matches!(kind, Some(ErrorKind::Invalid(_))), "more than a batch: {error:?}");
    assert_eq!(queue.stats(1).await, before, "nothing was done");
    let answer = ack(queue, 3, "a", held, many(MAX_FOLLOW_UPS)).await;
    assert_eq!(answer, done_and(Status::Acked, vec![created(3); MAX_FOLLOW_UPS]));
}

async fn a_full_batch_hands_off(queue: &Queue) {
    let count = MAX_BATCH / 2;
    let names: Vec<_> = (0..count).map(|n| format!("a-{n:03}")).collect();
    queue.enqueue(0, names.iter().map(|name| message(name)).collect()).await;
    queue.claim(0, claim(1, count, 60_000)).await;
    let items = names
        .iter()
        .map(|name| item(name, lease(1, 1), Outcome::Ack, vec![message(&name.replace('a', "b"))]));
    let answers = hand_off(queue, 1, items.collect()).await;
    assert_eq!(answers, vec![done_and(Status::Acked, vec![created(1)]); count]);
    let claimed = queue.claim_ids(2, claim(2, MAX_BATCH, 60_000)).await;
    assert_eq!(claimed, names.iter().map(|name| name.replace('a', "b")).collect::<Vec<_>>());
}
