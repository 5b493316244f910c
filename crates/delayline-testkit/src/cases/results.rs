//! Results of acks, and how far messages have come.

use delayline_core::limits::{
    MAX_BATCH_BYTES, MAX_RESULT_BYTES, MAX_RESULT_RETENTION_MS, MAX_RESULTS_BYTES,
};
use delayline_core::{
    Completion, DeathReason, Enqueued, ErrorKind, FinishedIds, HandOff, HandedOff, Known, Lease,
    MessageId, Millis, NewMessage, NewResult, Op, Outcome, Reply, Settled, Settlement, Status,
    Update, UpdateContent, UpdateDue, UpdateToken,
};

use super::queue::{Queue, after, at, claim, done, ended, id, lease, message, millis, one, reject};

super::cases! { "results",
    an_ack_leaves_its_result: "G8, G32",
    a_result_outlives_the_finished_id: "G32",
    every_end_is_told: "G32",
    a_lease_that_is_not_current_leaves_no_result: "G6, G32",
    a_result_belongs_to_its_lease: "G14, G32",
    a_followed_message_leaves_its_result_and_is_pending: "G30, G32",
    a_result_and_messages_come_together: "G31, G32",
    results_beyond_the_limit_are_not_kept: "G23, G32",
    an_answer_has_so_many_bytes_at_most: "G23, G32",
    what_cannot_be_a_result_is_refused: "G23, G32",
}

fn with_result(name: &str, held: Lease, bytes: &[u8], retention_ms: u64) -> HandOff {
    let settlement = Settlement::new(id(name), held, Outcome::Ack);
    let result = NewResult::new(bytes.to_vec(), millis(retention_ms));
    HandOff::new(settlement, Vec::new()).with_result(result)
}

async fn hand_off(queue: &Queue, ms: u64, items: Vec<HandOff>) -> Vec<HandedOff> {
    match queue.apply(ms, &Op::HandOff(items)).await.reply {
        Reply::HandOff(answers) => answers,
        other => panic!("the reply to a hand-off is {other:?}"),
    }
}

async fn progress_of_all(queue: &Queue, ms: u64, ids: Vec<MessageId>) -> Vec<Completion> {
    match queue.apply(ms, &Op::Progress(ids)).await.reply {
        Reply::Progress(answers) => answers,
        other => panic!("the reply to a look-up is {other:?}"),
    }
}

async fn progress(queue: &Queue, ms: u64, name: &str) -> Completion {
    one(progress_of_all(queue, ms, vec![id(name)]).await)
}

fn acked() -> Completion {
    Completion::finished(Status::Acked)
}

const HOUR: u64 = 3_600_000;

async fn an_ack_leaves_its_result(queue: &Queue) {
    let held = queue.leased(0, message("a"), 60_000).await;
    let item = || with_result("a", held, b"\0 42\r\n", 1_000);
    let first = one(hand_off(queue, 10, vec![item()]).await);
    assert_eq!(first, HandedOff::from(done(Status::Acked)).with_result_kept(true));
    assert_eq!(progress(queue, 1_009, "a").await, Completion::acked_with(&b"\0 42\r\n"[..]));
    let again = one(hand_off(queue, 1_009, vec![item()]).await);
    assert_eq!(again, HandedOff::from(ended(Status::Acked)).with_result_kept(true));
    assert_eq!(progress(queue, 1_010, "a").await, acked());
    let late = one(hand_off(queue, 1_010, vec![item()]).await);
    assert_eq!(late, HandedOff::from(ended(Status::Acked)));
}

async fn a_result_outlives_the_finished_id(queue: &Queue) {
    let held = queue.leased(0, message("a"), 60_000).await;
    hand_off(queue, 1, vec![with_result("a", held, b"", MAX_RESULT_RETENTION_MS)]).await;
    assert_eq!(progress(queue, 3 * HOUR, "a").await, Completion::acked_with(""));
    assert_eq!(progress(queue, MAX_RESULT_RETENTION_MS, "a").await, Completion::acked_with(""));
    assert_eq!(progress(queue, MAX_RESULT_RETENTION_MS + 1, "a").await, Completion::Unknown);
}

async fn every_end_is_told(queue: &Queue) {
    queue.enqueue_one(0, message("later").schedule(after(1_000))).await;
    let held = queue.leased(0, message("dead"), 60_000).await;
    queue.enqueue_one(0, message("due")).await;
    let names = ["later", "due", "dead", "absent"].map(id);
    assert_eq!(
        progress_of_all(queue, 1, names.to_vec()).await,
        [Completion::Pending, Completion::Pending, Completion::Pending, Completion::Unknown]
    );
    queue.end(1, "dead", held, reject("no")).await;
    queue.cancel(1, "later").await;
    let held = one(queue.claim(1, claim(2, 1, 60_000)).await.deliveries).lease;
    queue.end(1, "due", held, Outcome::Ack).await;
    let ends = || {
        let cancelled = Completion::finished(Status::Cancelled);
        vec![cancelled, acked(), Completion::Dead(DeathReason::Rejected), Completion::Unknown]
    };
    assert_eq!(progress_of_all(queue, 2, names.to_vec()).await, ends());
    queue.purge(3, "dead").await;
    assert_eq!(progress(queue, 3, "dead").await, Completion::finished(Status::Purged));
    // Never claimed before its end.
    queue.enqueue_one(4, message("expired").expires(after(1))).await;
    queue.claim(5, claim(3, 1, 60_000)).await;
    assert_eq!(progress(queue, 5, "expired").await, Completion::Dead(DeathReason::Expired));
    queue.redrive(6, "expired", after(0)).await;
    assert_eq!(progress(queue, 6, "expired").await, Completion::Pending);
    assert_eq!(progress(queue, 3 * HOUR, "due").await, Completion::Unknown);
}

async fn a_lease_that_is_not_current_leaves_no_result(queue: &Queue) {
    let held = queue.leased(0, message("a"), 100).await;
    let other = Lease { epoch: held.epoch + 1, ..held };
    let stale = HandedOff::from(Settled::Stale);
    assert_eq!(one(hand_off(queue, 1, vec![with_result("a", other, b"1", 1_000)]).await), stale);
    let missing = HandedOff::from(Settled::Missing);
    assert_eq!(one(hand_off(queue, 1, vec![with_result("x", held, b"1", 1_000)]).await), missing);
    assert_eq!(progress(queue, 1, "a").await, Completion::Pending);
    assert_eq!(progress(queue, 1, "x").await, Completion::Unknown);
    queue.end(2, "a", held, Outcome::Ack).await;
    assert_eq!(progress(queue, 2, "a").await, acked());
}

async fn a_result_belongs_to_its_lease(queue: &Queue) {
    let reused = || message("a").finished_ids(FinishedIds::Reuse);
    let held = queue.leased(0, reused(), 60_000).await;
    hand_off(queue, 1, vec![with_result("a", held, b"first", HOUR)]).await;
    let held = queue.leased_as(2, 2, reused(), 60_000).await;
    assert_eq!(progress(queue, 3, "a").await, Completion::Pending);
    queue.end(3, "a", held, Outcome::Ack).await;
    assert_eq!(progress(queue, 4, "a").await, acked());
    let held = queue.leased_as(3, 4, reused(), 60_000).await;
    hand_off(queue, 5, vec![with_result("a", held, b"third", 10)]).await;
    assert_eq!(progress(queue, 6, "a").await, Completion::acked_with("third"));
    // The first one does not return.
    assert_eq!(progress(queue, 15, "a").await, acked());
}

/// Acks it with a result after an update.
async fn follow(queue: &Queue, name: &str, held: Lease) {
    let token = UpdateToken::from_bytes([7; UpdateToken::BYTES]);
    let update = Update::new(UpdateContent::Replace, UpdateDue::Set, token);
    let follower = NewMessage::new(id(name), "next").known(Known::Update(update));
    queue.enqueue_one(1, follower.finished_ids(FinishedIds::Reuse)).await;
    let told = one(hand_off(queue, 2, vec![with_result(name, held, b"1", HOUR)]).await);
    assert_eq!(told, HandedOff::from(done(Status::Acked)).with_result_kept(true));
    assert_eq!(progress(queue, 2, name).await, Completion::Pending);
}

async fn a_followed_message_leaves_its_result_and_is_pending(queue: &Queue) {
    let held = queue.leased_as(9, 0, message("cancelled"), 60_000).await;
    follow(queue, "cancelled", held).await;
    queue.cancel(2, "cancelled").await;
    let cancelled = Completion::finished(Status::Cancelled);
    assert_eq!(progress(queue, 2, "cancelled").await, cancelled);
    let held = queue.leased(2, message("a"), 60_000).await;
    follow(queue, "a", held).await;
    let again = one(queue.claim(3, claim(2, 1, 60_000)).await.deliveries).lease;
    queue.end(4, "a", again, Outcome::Ack).await;
    assert_eq!(progress(queue, 4, "a").await, acked());
}

async fn a_result_and_messages_come_together(queue: &Queue) {
    let held = queue.leased(0, message("a"), 60_000).await;
    let result = NewResult::new("1", millis(HOUR));
    let both = |name: &str, held| {
        let settlement = Settlement::new(id(name), held, Outcome::Ack);
        HandOff::new(settlement, vec![message(&format!("after-{name}"))])
    };
    let other = queue.leased_as(2, 0, message("b"), 60_000).await;
    let items = vec![both("a", held).with_result(result), both("b", other)];
    let told = hand_off(queue, 1, items).await;
    let sent = || vec![Enqueued::Created { due: at(1) }];
    let plain = HandedOff::new(done(Status::Acked), sent());
    assert_eq!(told, [plain.clone().with_result_kept(true), plain]);
    let names = ["a", "b", "after-a"].map(id).to_vec();
    let expected = [Completion::acked_with("1"), acked(), Completion::Pending];
    assert_eq!(progress_of_all(queue, 1, names).await, expected);
}

/// Enqueues and leases `count` messages, and returns hand-offs with results of `bytes`.
async fn leased_with_results(
    queue: &Queue,
    ms: u64,
    round: u8,
    count: usize,
    bytes: usize,
) -> Vec<HandOff> {
    let names = (0..count).map(|n| format!("{round}-{n}"));
    let messages = names.map(|name| NewMessage::new(id(&name), ""));
    queue.enqueue(ms, messages.collect()).await;
    let claimed = queue.claim(ms, claim(round, count, 60_000)).await;
    let item = |delivery: &delayline_core::Delivery| {
        let settlement = crate::oracle::ack(delivery);
        let result = NewResult::new(vec![b'r'; bytes], millis(1_000 + u64::from(round)));
        HandOff::new(settlement, Vec::new()).with_result(result)
    };
    claimed.deliveries.iter().map(item).collect()
}

async fn results_beyond_the_limit_are_not_kept(queue: &Queue) {
    // Full calls fill the memory of results exactly. The first results to expire are small.
    const SMALL: usize = MAX_RESULT_BYTES / 8;
    const A_CALL: usize = 1 << (MAX_BATCH_BYTES / MAX_RESULT_BYTES).ilog2();
    const CALLS: usize = MAX_RESULTS_BYTES / MAX_RESULT_BYTES / A_CALL;
    for round in 1..=u8::try_from(CALLS).unwrap_or(u8::MAX) {
        let bytes = if round == 1 { SMALL } else { MAX_RESULT_BYTES };
        let count = A_CALL * MAX_RESULT_BYTES / bytes;
        let items = leased_with_results(queue, 0, round, count, bytes).await;
        let told = hand_off(queue, 1, items).await;
        assert!(told.iter().all(|told| told.result_kept), "round {round}");
    }
    let full = leased_with_results(queue, 2, 200, 3, MAX_RESULT_BYTES).await;
    let told = hand_off(queue, 2, full[..1].to_vec()).await;
    assert_eq!(told, [HandedOff::from(done(Status::Acked))]);
    assert_eq!(progress(queue, 2, &full[0].settlement.id.to_string()).await, acked());
    // Expired results make room, however small they are.
    let told = hand_off(queue, 1_002, full[1..].to_vec()).await;
    assert!(told.iter().all(|told| told.result_kept), "{told:?}");
}

async fn an_answer_has_so_many_bytes_at_most(queue: &Queue) {
    const A_CALL: usize = MAX_BATCH_BYTES / MAX_RESULT_BYTES;
    let mut ids = Vec::new();
    for round in 1..=2 {
        let items = leased_with_results(queue, 0, round, A_CALL, MAX_RESULT_BYTES).await;
        ids.extend(items.iter().map(|item| item.settlement.id.clone()));
        hand_off(queue, 1, items).await;
    }
    let told = progress_of_all(queue, 2, ids.clone()).await;
    assert_eq!(told.len(), A_CALL);
    assert!(told.iter().all(|told| told.result().is_some()));
    // Messages without a result before the first that does not fit are reported.
    ids.insert(0, id("absent"));
    ids.insert(A_CALL + 1, id("nothing"));
    let told = progress_of_all(queue, 2, ids).await;
    assert_eq!(told.len(), A_CALL + 2);
    assert_eq!((&told[0], &told[A_CALL + 1]), (&Completion::Unknown, &Completion::Unknown));
}

async fn what_cannot_be_a_result_is_refused(queue: &Queue) {
    let held = queue.leased(0, message("a"), 60_000).await;
    let too_long = vec![0; MAX_RESULT_BYTES + 1];
    let release = Settlement::new(id("a"), held, Outcome::Release);
    let result = NewResult::new("1", millis(1));
    let beyond = Millis::saturating(MAX_RESULT_RETENTION_MS + 1);
    let ack = Settlement::new(id("a"), held, Outcome::Ack);
    let kept_for = |retention| NewResult::new("1", retention);
    let bad = [
        Op::HandOff(vec![with_result("a", held, &too_long, 1)]),
        Op::HandOff(vec![HandOff::new(release, vec![message("b")]).with_result(result)]),
        Op::HandOff(vec![
            HandOff::new(ack.clone(), Vec::new()).with_result(kept_for(Millis::ZERO)),
        ]),
        Op::HandOff(vec![HandOff::new(ack, Vec::new()).with_result(kept_for(beyond))]),
        Op::Progress(Vec::new()),
        Op::Progress(vec![id("a"), id("a")]),
        Op::Progress((0..=1_000).map(|n| id(&n.to_string())).collect()),
        Op::HandOff(
            (0..=u64::try_from(MAX_BATCH_BYTES / MAX_RESULT_BYTES).unwrap_or(0))
                .map(|n| with_result(&n.to_string(), lease(1, 1), &too_long[1..], 1))
                .collect(),
        ),
    ];
    for op in bad {
        let error = queue.try_apply(1, &op).await.err();
        let is_invalid =
            matches!(error.as_ref().map(delayline_core::Error::kind), Some(ErrorKind::Invalid(_)));
        assert!(is_invalid, "{} was answered with {error:?}", op.name());
    }
    assert_eq!(progress(queue, 2, "a").await, Completion::Pending);
    // At the limits it is kept.
    let most = with_result("a", held, &too_long[1..], MAX_RESULT_RETENTION_MS);
    assert!(one(hand_off(queue, 2, vec![most]).await).result_kept);
}
