//! What a message shows of its attempts.

use delayline_core::limits::{MAX_ATTEMPT_ERROR_BYTES, MAX_ATTEMPTS};
use delayline_core::{
    Attempt, AttemptOutcome, HandOff, Known, Op, Outcome, Schedule, Settlement, Status, Update,
    UpdateContent, UpdateDue, UpdateToken,
};

use super::queue::{Queue, after, at, claim, done, id, message, one, reject, retry, undecodable};

super::cases! { "attempts",
    every_attempt_that_did_not_succeed_is_kept: "G11",
    what_counts_nothing_is_no_attempt: "G10, G11",
    the_latest_attempts_are_kept: "G11, G23",
    errors_of_attempts_are_cut_between_characters: "G11, G23",
    a_repeated_settlement_is_one_attempt: "G6, G11",
    a_redrive_keeps_attempts: "G11",
    an_update_keeps_the_attempts_of_its_message: "G11, G30",
    only_look_ups_show_attempts: "G11",
}

/// Attempts in short: when each ended, how, and its error.
fn in_short(attempts: &[Attempt]) -> Vec<(u64, AttemptOutcome, Option<&str>)> {
    let since = |attempt: &Attempt| attempt.at.as_ms() - at(0).as_ms();
    attempts
        .iter()
        .map(|attempt| (since(attempt), attempt.outcome, attempt.error.as_deref()))
        .collect()
}

/// Claims the only message by a claim with the n-th token, and ends the lease.
async fn attempt(queue: &Queue, n: u8, ms: u64, outcome: Outcome) {
    let taken = one(queue.claim(ms, claim(n, 1, 1_000)).await.deliveries);
    let settlement = Settlement::new(taken.message.info.id, taken.lease, outcome);
    queue.settle(ms, vec![settlement]).await;
}

async fn every_attempt_that_did_not_succeed_is_kept(queue: &Queue) {
    queue.enqueue_one(0, message("a").max_crashes(3)).await;
    assert_eq!(queue.live(0, "a").await.attempts, []);
    attempt(queue, 1, 10, retry(0, "boom")).await;
    attempt(queue, 2, 20, undecodable(0, "unknown variant")).await;
    queue.claim(30, claim(3, 1, 5)).await;
    assert_eq!(queue.live(40, "a").await.attempts.len(), 2, "no claim has noticed yet");
    let taken = one(queue.claim(50, claim(4, 1, 1_000)).await.deliveries);
    let settlement = Settlement::new(id("a"), taken.lease, retry(0, ""));
    let next = message("next").schedule(after(9_000));
    queue.apply(60, &Op::HandOff(vec![HandOff::new(settlement, vec![next])])).await;
    attempt(queue, 5, 70, reject("not for me")).await;
    let expected = [
        (10, AttemptOutcome::Failed, Some("boom")),
        (20, AttemptOutcome::Undecodable, Some("unknown variant")),
        (50, AttemptOutcome::Crashed, None),
        (60, AttemptOutcome::Failed, None),
        (70, AttemptOutcome::Rejected, Some("not for me")),
    ];
    let dead = queue.live(80, "a").await;
    assert_eq!(in_short(&dead.attempts), expected);
    assert_eq!(dead.info.state.status(), Status::Dead);
}

async fn what_counts_nothing_is_no_attempt(queue: &Queue) {
    queue.enqueue_one(0, message("a").expires(after(500))).await;
    attempt(queue, 1, 1, Outcome::Release).await;
    attempt(queue, 2, 2, Outcome::Snooze { schedule: Schedule::NOW }).await;
    queue.reschedule(3, "a", Schedule::NOW).await;
    queue.claim(500, claim(3, 1, 50)).await;
    let expired = queue.live(501, "a").await;
    assert_eq!((expired.info.state.status(), expired.attempts), (Status::Dead, Vec::new()));
}

async fn the_latest_attempts_are_kept(queue: &Queue) {
    queue.enqueue_one(0, message("a").max_crashes(20)).await;
    // Two texts alike, then others, of all lengths, and some crashes.
    let mut all = Vec::new();
    for n in 1..=20_u8 {
        let (ms, text) = (u64::from(n) * 100, "e".repeat(usize::from(n / 2 % 4) * 50));
        if n % 5 == 0 {
            queue.claim(ms - 50, claim(n, 1, 10)).await;
            queue.claim(ms, claim(100 + n, 1, 10)).await;
            let held = queue.live(ms, "a").await.info.epoch;
            let lease = super::queue::lease(100 + n, held);
            queue.end(ms, "a", lease, Outcome::Release).await;
            all.push((ms, AttemptOutcome::Crashed, String::new()));
        } else {
            attempt(queue, n, ms, retry(0, &text)).await;
            let end = text.len().min(MAX_ATTEMPT_ERROR_BYTES);
            all.push((ms, AttemptOutcome::Failed, text[..end].to_owned()));
        }
        let kept = queue.live(ms, "a").await.attempts;
        let latest = &all[all.len().saturating_sub(MAX_ATTEMPTS)..];
        let expected: Vec<_> = latest
            .iter()
            .map(|(ms, outcome, text)| (*ms, *outcome, Some(&**text).filter(|it| !it.is_empty())))
            .collect();
        assert_eq!(in_short(&kept), expected, "after {n}");
    }
}

async fn errors_of_attempts_are_cut_between_characters(queue: &Queue) {
    queue.enqueue_one(0, message("a")).await;
    let most = MAX_ATTEMPT_ERROR_BYTES;
    let mut texts = Vec::new();
    for character in ["x", "\u{e9}", "\u{20ac}", "\u{1f980}"] {
        for before in most - 5..=most + 1 {
            let text = "e".repeat(before) + character + "rest";
            texts.push(text.clone());
            let n = u8::try_from(texts.len()).unwrap_or(u8::MAX);
            attempt(queue, n, 0, reject(&text)).await;
            let live = queue.live(0, "a").await;
            assert_eq!(live.info.last_error, Some(text), "the whole error is kept, too");
            for (text, attempt) in texts.iter().rev().zip(live.attempts.iter().rev()) {
                let kept = attempt.error.clone().unwrap_or_default();
                assert!(text.starts_with(&kept), "{text} became {kept}");
                let next = text[kept.len()..].chars().next().map_or(0, char::len_utf8);
                let is_all = kept == *text || kept.len() + next > most;
                assert!(kept.len() <= most && is_all, "{text} was cut to {}", kept.len());
            }
            queue.redrive(0, "a", Schedule::NOW).await;
        }
    }
}

async fn a_repeated_settlement_is_one_attempt(queue: &Queue) {
    let held = queue.leased(0, message("a"), 100).await;
    assert_eq!(queue.end(1, "a", held, retry(0, "boom")).await, done(Status::Ready));
    queue.end(2, "a", held, retry(0, "boom")).await;
    let expected = [(1, AttemptOutcome::Failed, Some("boom"))];
    assert_eq!(in_short(&queue.live(3, "a").await.attempts), expected);
}

async fn a_redrive_keeps_attempts(queue: &Queue) {
    queue.enqueue_one(0, message("a")).await;
    attempt(queue, 1, 1, reject("boom")).await;
    queue.redrive(2, "a", Schedule::NOW).await;
    attempt(queue, 2, 3, retry(0, "again")).await;
    let kept = queue.live(4, "a").await;
    assert_eq!(kept.info.failures, 1, "failures count from 0 again");
    let expected =
        [(1, AttemptOutcome::Rejected, Some("boom")), (3, AttemptOutcome::Failed, Some("again"))];
    assert_eq!(in_short(&kept.attempts), expected);
}

async fn an_update_keeps_the_attempts_of_its_message(queue: &Queue) {
    let update = |n: u8, content| {
        let token = UpdateToken::from_bytes([n; UpdateToken::BYTES]);
        Known::Update(Update::new(content, UpdateDue::Set, token))
    };
    queue.enqueue_one(0, message("a")).await;
    attempt(queue, 1, 1, retry(0, "boom")).await;
    let moved = message("a").schedule(after(5)).known(update(1, UpdateContent::Keep));
    queue.enqueue_one(2, moved).await;
    let expected = [(1, AttemptOutcome::Failed, Some("boom"))];
    assert_eq!(in_short(&queue.live(3, "a").await.attempts), expected);
    // Another content is another message, which no worker has tried yet.
    let replaced = message("a").payload("new").known(update(2, UpdateContent::Replace));
    queue.enqueue_one(4, replaced).await;
    let live = queue.live(5, "a").await;
    assert_eq!((live.info.last_error, live.attempts), (None, Vec::new()));
    // Neither has a follower been tried when the message before it fails.
    let taken = one(queue.claim(6, claim(2, 1, 100)).await.deliveries);
    let follower = message("a").payload("newer").known(update(3, UpdateContent::Replace));
    queue.enqueue_one(7, follower).await;
    queue.end(8, "a", taken.lease, retry(0, "boom")).await;
    assert_eq!(queue.live(9, "a").await.attempts, []);
}

async fn only_look_ups_show_attempts(queue: &Queue) {
    queue.enqueue_one(0, message("a")).await;
    for n in 1..=10 {
        attempt(queue, n, n.into(), retry(0, &"e".repeat(1_000))).await;
    }
    let listed = one(queue.list(20, Status::Ready, 10).await.messages);
    assert_eq!(listed, queue.live(20, "a").await.info);
    for _ in 0..2 {
        let taken = one(queue.claim(20, claim(20, 1, 100)).await.deliveries).message;
        assert_eq!((taken.info.failures, taken.attempts), (10, Vec::new()));
        assert_eq!(taken.info.last_error.map(|error| error.len()), Some(1_000));
    }
}
