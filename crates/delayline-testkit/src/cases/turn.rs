//! Settlements and a claim in one step.

use delayline_core::limits::MAX_BATCH;
use delayline_core::{
    Claim, Claimed, DeathReason, Enqueued, Error, ErrorKind, FinishedIds, Found, Known, Lease, Op,
    Outcome, Reply, Settled, Settlement, Status, Turn, Turned, Update, UpdateContent, UpdateDue,
    UpdateToken,
};

use super::queue::{
    Queue, at, claim, death, done, ended, id, ids, lease, message, millis, one, reject, retry,
};

super::cases! { "turn",
    settlements_come_first_and_the_claim_follows: "G6, G12, G18",
    a_repeated_turn_settles_nothing_and_claims_the_same: "G8, G16",
    a_repeated_claim_does_not_bring_back_what_is_settled: "G8, G16",
    what_is_given_back_may_be_claimed_at_once: "G10, G12",
    what_comes_back_later_is_told: "G4",
    a_settled_lease_is_not_taken_back: "G7, G21",
    other_leases_are_taken_back: "G9, G21",
    the_next_instant_is_that_of_other_leases: "G21",
    a_paused_queue_is_settled_only: "G17",
    a_turn_is_one_change: "G18",
    a_turn_that_changes_nothing_is_none: "G6, G18",
    every_outcome_may_be_in_one_turn: "G9, G11, G13",
    an_update_may_be_claimed_when_its_lease_ends: "G30",
    what_has_no_room_in_a_turn_is_refused: "G23",
    a_full_turn_settles_and_claims: "G23",
}

fn settlement(name: &str, lease: Lease, outcome: Outcome) -> Settlement {
    Settlement::new(id(name), lease, outcome)
}

/// The result of a claim that leases nothing, and tells when there may be something.
fn nothing_until(ms: u64) -> Claimed {
    let mut claimed = Claimed::default();
    claimed.next = Some(at(ms));
    claimed
}

fn turn_of(settlements: Vec<Settlement>, claim: Claim) -> Op {
    Op::Turn(Turn::new(settlements, claim))
}

async fn turn(
    queue: &Queue,
    ms: u64,
    settlements: Vec<Settlement>,
    claim: Claim,
) -> (Vec<Settled>, Claimed) {
    match queue.apply(ms, &turn_of(settlements, claim)).await.reply {
        Reply::Turn(turned) => (turned.settled, turned.claimed),
        other => panic!("the reply to a turn is {other:?}"),
    }
}

fn ack(name: &str, lease: Lease) -> Settlement {
    settlement(name, lease, Outcome::Ack)
}

async fn settlements_come_first_and_the_claim_follows(queue: &Queue) {
    queue.enqueue(0, ["a", "b", "c", "d"].map(message).to_vec()).await;
    queue.claim(0, claim(1, 2, 100)).await;
    let other = Lease { epoch: 2, ..lease(1, 1) };
    let items = vec![ack("a", lease(1, 1)), ack("b", other), ack("nobody", other)];
    let (settled, claimed) = turn(queue, 1, items, claim(2, 1, 100)).await;
    assert_eq!(settled, [done(Status::Acked), Settled::Stale, Settled::Missing]);
    assert_eq!(ids(&claimed.deliveries), ["c"]);
    assert_eq!((claimed.more, claimed.next), (true, Some(at(0))));
    assert_eq!(claimed.deliveries[0].lease, lease(2, 1));
    assert_eq!(queue.get(2, "a").await, Found::Finished(Status::Acked));
    assert_eq!(queue.live(2, "b").await.info.state.status(), Status::Leased);
    let (settled, claimed) = turn(queue, 3, vec![ack("c", lease(2, 1))], claim(3, 5, 100)).await;
    assert_eq!(settled, [done(Status::Acked)]);
    assert_eq!(ids(&claimed.deliveries), ["d"]);
    // The lease of b.
    assert_eq!((claimed.more, claimed.next), (false, Some(at(100))));
}

async fn a_repeated_turn_settles_nothing_and_claims_the_same(queue: &Queue) {
    queue.enqueue(0, ["a", "b", "c"].map(message).to_vec()).await;
    queue.claim(0, claim(1, 1, 100)).await;
    let items = vec![ack("a", lease(1, 1))];
    let (_, first) = turn(queue, 1, items.clone(), claim(2, 1, 100)).await;
    for ms in [2, 3] {
        let (settled, claimed) = turn(queue, ms, items.clone(), claim(2, 1, 100)).await;
        assert_eq!(settled, [ended(Status::Acked)]);
        assert_eq!(claimed, first);
    }
    // In two steps.
    assert_eq!(queue.settle(4, items).await, [ended(Status::Acked)]);
    assert_eq!(queue.claim(4, claim(2, 1, 100)).await, first);
    assert_eq!(queue.stats(5).await.totals.acked, 1);
}

async fn a_repeated_claim_does_not_bring_back_what_is_settled(queue: &Queue) {
    queue.enqueue(0, ["a", "b", "c"].map(message).to_vec()).await;
    queue.claim(0, claim(1, 2, 100)).await;
    let (settled, claimed) = turn(queue, 1, vec![ack("a", lease(1, 1))], claim(1, 2, 100)).await;
    assert_eq!((settled, ids(&claimed.deliveries)), (vec![done(Status::Acked)], vec!["b".into()]));
    let release = vec![settlement("b", lease(1, 1), Outcome::Release)];
    let (settled, claimed) = turn(queue, 2, release, claim(1, 2, 100)).await;
    assert_eq!((settled, claimed.deliveries), (vec![done(Status::Ready)], Vec::new()));
    assert_eq!((claimed.more, claimed.next), (true, Some(at(0))));
}

async fn what_is_given_back_may_be_claimed_at_once(queue: &Queue) {
    for (n, name, outcome) in [(1, "a", Outcome::Release), (3, "b", retry(0, "boom"))] {
        let held = queue.leased_as(n, 0, message(name), 100).await;
        let (settled, claimed) =
            turn(queue, 1, vec![settlement(name, held, outcome)], claim(n + 1, 1, 100)).await;
        assert_eq!(settled, [done(Status::Ready)]);
        let delivery = one(claimed.deliveries);
        assert_eq!(delivery.lease, lease(n + 1, held.epoch + 1));
        assert_eq!((claimed.more, claimed.next), (false, Some(at(101))));
        assert_eq!(queue.end(2, name, delivery.lease, Outcome::Ack).await, done(Status::Acked));
    }
}

async fn what_comes_back_later_is_told(queue: &Queue) {
    queue.enqueue(0, ["a", "b"].map(message).to_vec()).await;
    queue.claim(0, claim(1, 2, 1_000)).await;
    let snooze = Outcome::Snooze { delay: millis(40) };
    let items = vec![settlement("a", lease(1, 1), snooze), ack("b", lease(1, 1))];
    let (settled, claimed) = turn(queue, 10, items, claim(2, 1, 1_000)).await;
    assert_eq!(settled, [done(Status::Scheduled), done(Status::Acked)]);
    assert_eq!(claimed, nothing_until(50));
}

async fn a_settled_lease_is_not_taken_back(queue: &Queue) {
    queue.enqueue(0, ["a", "b"].map(message).to_vec()).await;
    queue.claim(0, claim(1, 1, 10)).await;
    // Nobody has taken it back, so it still counts.
    let (settled, claimed) = turn(queue, 20, vec![ack("a", lease(1, 1))], claim(2, 5, 100)).await;
    assert_eq!((settled, ids(&claimed.deliveries)), (vec![done(Status::Acked)], vec!["b".into()]));
    assert_eq!(queue.stats(20).await.totals.crashed, 0);
}

async fn other_leases_are_taken_back(queue: &Queue) {
    let fragile = message("b").max_crashes(1);
    queue.enqueue(0, vec![message("a"), fragile, message("c")]).await;
    queue.claim(0, claim(1, 3, 10)).await;
    let (settled, claimed) = turn(queue, 20, vec![ack("a", lease(1, 1))], claim(2, 5, 100)).await;
    assert_eq!((settled, ids(&claimed.deliveries)), (vec![done(Status::Acked)], vec!["c".into()]));
    assert_eq!(claimed.deaths, [death("b", DeathReason::MaxCrashes)]);
    assert_eq!(queue.stats(20).await.totals.crashed, 2);
}

async fn the_next_instant_is_that_of_other_leases(queue: &Queue) {
    queue.enqueue(0, ["a", "b", "c"].map(message).to_vec()).await;
    queue.claim(0, claim(1, 2, 50)).await;
    queue.claim(0, claim(2, 1, 90)).await;
    let items = vec![ack("a", lease(1, 1)), ack("b", lease(1, 1))];
    let (_, claimed) = turn(queue, 1, items, claim(3, 1, 100)).await;
    assert_eq!(claimed, nothing_until(90));
    let (_, claimed) = turn(queue, 2, vec![ack("c", lease(2, 1))], claim(4, 1, 100)).await;
    assert_eq!(claimed, Claimed::default());
}

async fn a_paused_queue_is_settled_only(queue: &Queue) {
    queue.enqueue(0, ["a", "b", "c"].map(message).to_vec()).await;
    queue.claim(0, claim(1, 2, 100)).await;
    queue.pause(1).await;
    let items = vec![ack("a", lease(1, 1)), settlement("b", lease(1, 1), Outcome::Release)];
    let (settled, claimed) = turn(queue, 2, items, claim(2, 5, 100)).await;
    assert_eq!(settled, [done(Status::Acked), done(Status::Ready)]);
    assert_eq!(claimed, Claimed::default());
    queue.resume(3).await;
    assert_eq!(queue.claim_ids(3, claim(3, 5, 100)).await, ["b", "c"]);
}

async fn a_turn_is_one_change(queue: &Queue) {
    queue.enqueue(0, ["a", "b", "c", "d"].map(message).to_vec()).await;
    let before = queue.apply(0, &Op::Claim(claim(1, 2, 100))).await.revision;
    let acked = turn_of(vec![ack("a", lease(1, 1))], claim(2, 1, 100));
    assert_eq!(queue.apply(1, &acked).await.revision, before + 1);
    let released = vec![settlement("b", lease(1, 1), Outcome::Release)];
    let released = turn_of(released, claim(3, 1, 100));
    assert_eq!(queue.apply(2, &released).await.revision, before + 2);
    // A settlement alone, and a claim alone.
    let (c, d) = (ack("c", lease(2, 1)), ack("b", lease(3, 2)));
    queue.cancel(3, "d").await;
    assert_eq!(queue.apply(3, &turn_of(vec![c], claim(4, 1, 100))).await.revision, before + 4);
    assert_eq!(queue.apply(4, &turn_of(vec![d], claim(5, 1, 100))).await.revision, before + 5);
}

async fn a_turn_that_changes_nothing_is_none(queue: &Queue) {
    let held = queue.leased(0, message("a"), 100).await;
    let before = queue.apply(1, &Op::Stats).await.revision;
    let stale = Lease { epoch: 9, ..held };
    let op = turn_of(vec![ack("a", stale), ack("b", stale)], claim(2, 1, 100));
    for ms in [2, 3] {
        let applied = queue.apply(ms, &op).await;
        let settled = vec![Settled::Stale, Settled::Missing];
        assert_eq!(applied.reply, Reply::Turn(Turned::new(settled, nothing_until(100))));
        assert_eq!(applied.revision, before);
    }
}

async fn every_outcome_may_be_in_one_turn(queue: &Queue) {
    let names = ["ack", "cancel", "later", "now", "reject", "retry", "snooze"];
    queue.enqueue(0, names.map(message).to_vec()).await;
    queue.claim(0, claim(1, 7, 100)).await;
    queue.cancel(1, "cancel").await;
    let held = lease(1, 1);
    let snooze = |ms| Outcome::Snooze { delay: millis(ms) };
    let items = vec![
        ack("ack", held),
        settlement("cancel", held, Outcome::Release),
        settlement("later", held, snooze(30)),
        settlement("now", held, snooze(0)),
        settlement("reject", held, reject("no")),
        settlement("retry", held, retry(20, "boom")),
    ];
    let (settled, claimed) = turn(queue, 2, items, claim(2, 5, 100)).await;
    let (scheduled, ready) = (done(Status::Scheduled), done(Status::Ready));
    let (acked, cancelled) = (done(Status::Acked), done(Status::Cancelled));
    assert_eq!(settled, [acked, cancelled, scheduled, ready, done(Status::Dead), scheduled]);
    assert_eq!(ids(&claimed.deliveries), ["now"]);
    assert_eq!((claimed.more, claimed.next), (false, Some(at(22))));
    // A death by settlement is told there.
    assert_eq!(claimed.deaths, []);
    let totals = queue.stats(3).await.totals;
    assert_eq!((totals.acked, totals.cancelled, totals.snoozed, totals.failed), (1, 1, 2, 1));
}

async fn an_update_may_be_claimed_when_its_lease_ends(queue: &Queue) {
    let held = queue.leased(0, message("a"), 100).await;
    let token = UpdateToken::from_bytes([7; UpdateToken::BYTES]);
    let update = Update::new(UpdateContent::Replace, UpdateDue::Set, token);
    let update = message("a").payload("newer").known(Known::Update(update));
    let update = update.finished_ids(FinishedIds::Reuse);
    let following = Enqueued::Following { replaced: false };
    assert_eq!(queue.enqueue_one(1, update).await, following);
    let (settled, claimed) = turn(queue, 2, vec![ack("a", held)], claim(2, 1, 100)).await;
    assert_eq!(settled, [done(Status::Acked)]);
    let delivery = one(claimed.deliveries);
    assert_eq!(delivery.message.payload, "newer");
    assert_eq!(delivery.lease, lease(2, 2));
}

async fn what_has_no_room_in_a_turn_is_refused(queue: &Queue) {
    let held = queue.leased(0, message("a"), 100).await;
    let many = |n: usize| (0..n).map(|n| ack(&n.to_string(), held)).collect::<Vec<_>>();
    let twice = vec![ack("a", held), settlement("a", held, Outcome::Release)];
    let too_long = vec![settlement("a", held, reject(&"x".repeat(1_025)))];
    for (settlements, max) in [
        (Vec::new(), 1),
        (many(1), MAX_BATCH),
        (many(MAX_BATCH), 1),
        (many(MAX_BATCH / 2), MAX_BATCH / 2 + 1),
        (many(1), 0),
        (twice, 1),
        (too_long, 1),
    ] {
        let op = turn_of(settlements, claim(2, max, 100));
        let refused = queue.try_apply(1, &op).await;
        let is_invalid = |error: &Error| matches!(error.kind(), ErrorKind::Invalid(_));
        assert!(refused.as_ref().is_err_and(is_invalid), "{refused:?}");
    }
    assert_eq!(queue.live(2, "a").await.info.state.status(), Status::Leased);
}

async fn a_full_turn_settles_and_claims(queue: &Queue) {
    let half = MAX_BATCH / 2;
    let names: Vec<_> = (0..MAX_BATCH).map(|n| format!("{n:04}")).collect();
    queue.enqueue(0, names.iter().map(|name| message(name)).collect()).await;
    queue.claim(0, claim(1, half, 10_000)).await;
    for (n, outcome) in [(1, Outcome::Ack), (2, Outcome::Release)] {
        let held = lease(n, 1);
        let first = usize::from(n - 1) * half;
        let settle = |name: &String| settlement(name, held, outcome.clone());
        let items = names[first..first + half].iter().map(settle).collect();
        let (settled, claimed) = turn(queue, u64::from(n), items, claim(n + 1, half, 10_000)).await;
        let status = if n == 1 { Status::Acked } else { Status::Ready };
        assert_eq!(settled, vec![done(status); half]);
        assert_eq!(ids(&claimed.deliveries), names[half..]);
        assert!(!claimed.more);
    }
}
