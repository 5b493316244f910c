//! What handlers save with their messages.

use bytes::Bytes;
use delayline_core::limits::{
    MAX_BATCH_BYTES, MAX_CHECKPOINT_BYTES, MAX_PAYLOAD_BYTES, MAX_PROGRESS_TEXT_BYTES,
    MAX_SAVE_NUMBER,
};
use delayline_core::{
    DeathReason, ErrorKind, Extend, Extended, HandOff, Known, Lease, Message, Op, Outcome,
    Progress, Save, Schedule, Settlement, Status, Update, UpdateContent, UpdateDue, UpdateToken,
};

use super::queue::{
    Queue, after, at, claim, death, done, id, lease, message, millis, one, reject, retry,
};

super::cases! { "saves",
    the_next_attempt_gets_the_checkpoint: "G40",
    a_checkpoint_outlives_every_end_but_the_last: "G40",
    a_checkpoint_is_fenced_by_its_lease: "G6, G40",
    a_save_that_is_not_newer_is_dropped: "G40",
    a_part_that_is_not_saved_stays: "G40",
    a_settlement_saves_in_the_same_step: "G40",
    a_message_that_ends_leaves_no_checkpoint: "G24, G40",
    another_message_of_the_id_inherits_nothing: "G30, G40",
    lists_show_the_progress_alone: "G22, G40",
    a_checkpoint_stands_beside_errors_and_attempts: "G11, G40",
    saves_beyond_a_limit_are_refused: "G23, G40",
    the_largest_saves_are_kept: "G23, G40",
    the_largest_hand_off_saves: "G23, G31, G40",
    a_claim_counts_what_it_returns_of_saves: "G23, G40",
}

fn state(number: u64, checkpoint: &'static str) -> Save {
    Save::new(number).checkpoint(Bytes::from_static(checkpoint.as_bytes()))
}

fn progress(permille: u16, text: &str) -> Progress {
    Progress::from_permille(permille, text)
}

fn saved(message: &Message) -> (Option<&Progress>, Option<&[u8]>) {
    (message.info.progress.as_ref(), message.checkpoint.as_deref())
}

/// Claims the only message by a claim with the n-th token.
async fn next(queue: &Queue, n: u8, ms: u64) -> (Message, Lease) {
    let taken = one(queue.claim(ms, claim(n, 1, 100)).await.deliveries);
    (taken.message, taken.lease)
}

fn extended(ms: u64) -> Extended {
    Extended::Done { deadline: at(ms + 100), cancel_requested: false }
}

async fn the_next_attempt_gets_the_checkpoint(queue: &Queue) {
    let held = queue.leased(0, message("a"), 100).await;
    assert_eq!(saved(&queue.live(0, "a").await), (None, None));
    let save = state(1, "page 12").progress(progress(400, "page 12 of 30"));
    assert_eq!(queue.save(10, "a", held, save).await, extended(10));
    // The lease expires: the worker has crashed.
    let (message, _) = next(queue, 2, 200).await;
    let expected = progress(400, "page 12 of 30");
    assert_eq!(saved(&message), (Some(&expected), Some(&b"page 12"[..])));
    assert_eq!((message.info.crashes, message.attempts.len()), (1, 0));
    // A repeated claim returns it, too.
    let (repeated, _) = next(queue, 2, 201).await;
    assert_eq!(saved(&repeated), saved(&message));
    assert_eq!(saved(&queue.live(202, "a").await), saved(&message));
}

async fn a_checkpoint_outlives_every_end_but_the_last(queue: &Queue) {
    queue.enqueue_one(0, message("a").max_crashes(2)).await;
    let ends = [
        retry(0, "boom"),
        Outcome::Snooze { schedule: Schedule::NOW },
        Outcome::Release,
        reject("no"),
    ];
    for (n, outcome) in (1..).zip(ends) {
        let ms = u64::from(n) * 10;
        let (message, held) = next(queue, n, ms).await;
        let before = if n == 1 { None } else { Some(vec![n - 1]) };
        assert_eq!(message.checkpoint.as_deref(), before.as_deref(), "after {n}");
        queue.save(ms, "a", held, Save::new(0).checkpoint(Bytes::from(vec![n]))).await;
        queue.end(ms + 1, "a", held, outcome).await;
    }
    assert_eq!(queue.live(42, "a").await.info.state.status(), Status::Dead);
    queue.redrive(43, "a", Schedule::NOW).await;
    queue.reschedule(44, "a", after(6)).await;
    let (message, _) = next(queue, 9, 50).await;
    assert_eq!(message.checkpoint.as_deref(), Some(&[4][..]));
    queue.claim(200, claim(10, 1, 100)).await;
    let claimed = queue.claim(400, claim(11, 1, 100)).await;
    assert_eq!(claimed.deaths, [death("a", DeathReason::MaxCrashes)]);
    assert_eq!(queue.live(401, "a").await.checkpoint.as_deref(), Some(&[4][..]));
}

async fn a_checkpoint_is_fenced_by_its_lease(queue: &Queue) {
    let old = queue.leased(0, message("a"), 50).await;
    queue.save(1, "a", old, state(7, "old")).await;
    let (_, new) = next(queue, 2, 200).await;
    queue.save(201, "a", new, state(1, "new")).await;
    // A worker that froze wakes up: whatever it saves and however often, it changes nothing.
    assert_eq!(queue.save(202, "a", old, state(8, "late")).await, Extended::Stale);
    let late = Settlement::new(id("a"), old, retry(0, "")).save(state(9, "later"));
    queue.settle(203, vec![late]).await;
    let half = Lease { claim_id: old.claim_id, ..new };
    assert_eq!(queue.save(204, "a", half, state(9, "half")).await, Extended::Stale);
    assert_eq!(queue.live(205, "a").await.checkpoint.as_deref(), Some(&b"new"[..]));
    assert_eq!(queue.save(206, "b", old, state(9, "")).await, Extended::Missing);
}

async fn a_save_that_is_not_newer_is_dropped(queue: &Queue) {
    let held = queue.leased(0, message("a"), 100).await;
    for (number, text, expected) in [
        (3, "three", "three"),
        (2, "two", "three"),
        (3, "other", "three"),
        (300, "four", "four"),
        (299, "late", "four"),
        (MAX_SAVE_NUMBER, "last", "last"),
        (MAX_SAVE_NUMBER - 1, "last but one", "last"),
    ] {
        let checkpoint = Bytes::from_static(text.as_bytes());
        let save = Save::new(number).checkpoint(checkpoint).progress(progress(1, text));
        assert_eq!(queue.save(number % 10, "a", held, save).await, extended(number % 10));
        let live = queue.live(10, "a").await;
        let progress = progress(1, expected);
        assert_eq!(saved(&live), (Some(&progress), Some(expected.as_bytes())), "{number}");
    }
    queue.end(20, "a", held, Outcome::Release).await;
    // Under the next lease, numbers begin again.
    let (_, held) = next(queue, 2, 30).await;
    queue.save(31, "a", held, state(0, "zero")).await;
    assert_eq!(queue.live(32, "a").await.checkpoint.as_deref(), Some(&b"zero"[..]));
}

async fn a_part_that_is_not_saved_stays(queue: &Queue) {
    let held = queue.leased(0, message("a"), 100).await;
    queue.save(1, "a", held, Save::new(1)).await;
    assert_eq!(saved(&queue.live(1, "a").await), (None, None));
    queue.save(2, "a", held, Save::new(2).progress(progress(100, "begun"))).await;
    let begun = progress(100, "begun");
    assert_eq!(saved(&queue.live(2, "a").await), (Some(&begun), None));
    queue.save(3, "a", held, state(3, "half-way")).await;
    assert_eq!(saved(&queue.live(3, "a").await), (Some(&begun), Some(&b"half-way"[..])));
    queue.save(4, "a", held, Save::new(4).progress(progress(1_000, ""))).await;
    let all = progress(1_000, "");
    assert_eq!(saved(&queue.live(4, "a").await), (Some(&all), Some(&b"half-way"[..])));
    queue.save(5, "a", held, Save::new(5)).await;
    // An empty checkpoint is one.
    queue.save(6, "a", held, state(6, "")).await;
    assert_eq!(saved(&queue.live(6, "a").await), (Some(&all), Some(&b""[..])));
    // A part that was saved under an earlier lease stays, too.
    queue.end(7, "a", held, Outcome::Release).await;
    let (_, held) = next(queue, 2, 8).await;
    queue.save(9, "a", held, state(1, "other")).await;
    assert_eq!(saved(&queue.live(9, "a").await), (Some(&all), Some(&b"other"[..])));
}

async fn a_settlement_saves_in_the_same_step(queue: &Queue) {
    let held = queue.leased(0, message("a"), 100).await;
    queue.save(1, "a", held, state(2, "two")).await;
    let late = Settlement::new(id("a"), held, retry(0, "boom")).save(state(1, "one"));
    assert_eq!(queue.settle(2, vec![late]).await, [done(Status::Ready)]);
    let (message, held) = next(queue, 2, 3).await;
    assert_eq!(message.checkpoint.as_deref(), Some(&b"two"[..]));
    assert_eq!(message.info.last_error.as_deref(), Some("boom"));
    let snooze = Outcome::Snooze { schedule: after(5) };
    let settlement = Settlement::new(id("a"), held, snooze).save(state(1, "three"));
    let next_one = super::queue::message("b").schedule(after(9_000));
    let hand_off = HandOff::new(settlement.clone(), vec![next_one]);
    queue.apply(4, &Op::HandOff(vec![hand_off])).await;
    assert_eq!(queue.live(5, "a").await.checkpoint.as_deref(), Some(&b"three"[..]));
    // A repeated settlement saves nothing.
    let mut repeated = settlement;
    repeated.save = Some(Box::new(state(9, "nine")));
    queue.settle(6, vec![repeated]).await;
    assert_eq!(queue.live(7, "a").await.checkpoint.as_deref(), Some(&b"three"[..]));
    let (_, held) = next(queue, 3, 20).await;
    let rejected = Settlement::new(id("a"), held, reject("no")).save(state(1, "four"));
    queue.settle(21, vec![rejected]).await;
    let dead = queue.live(22, "a").await;
    assert_eq!(
        (dead.info.state.status(), &dead.checkpoint.as_deref()),
        (Status::Dead, &Some(&b"four"[..]))
    );
}

async fn a_message_that_ends_leaves_no_checkpoint(queue: &Queue) {
    let reused = |name| message(name).finished_ids(delayline_core::FinishedIds::Reuse);
    let held = queue.leased(0, reused("a"), 100).await;
    queue.save(1, "a", held, state(1, "one")).await;
    let ack = Settlement::new(id("a"), held, Outcome::Ack).save(state(2, "two"));
    assert_eq!(queue.settle(2, vec![ack]).await, [done(Status::Acked)]);
    assert_eq!(queue.stats(2).await.leased, 0);
    // A late save or settlement revives nothing.
    assert_eq!(queue.save(3, "a", held, state(3, "three")).await, Extended::Missing);
    let late = Settlement::new(id("a"), held, retry(0, "")).save(state(4, "four"));
    queue.settle(4, vec![late]).await;
    queue.enqueue_one(5, reused("a").payload("new")).await;
    let (message, held) = next(queue, 2, 6).await;
    assert_eq!((message.info.epoch, saved(&message)), (1, (None, None)));
    queue.save(7, "a", held, state(1, "one")).await;
    queue.cancel(8, "a").await;
    let given_back = Settlement::new(id("a"), held, Outcome::Release).save(state(2, "two"));
    assert_eq!(queue.settle(9, vec![given_back]).await, [done(Status::Cancelled)]);
    queue.enqueue_one(10, reused("a")).await;
    assert_eq!(saved(&queue.live(11, "a").await), (None, None));
}

async fn another_message_of_the_id_inherits_nothing(queue: &Queue) {
    let update = |n: u8, content| {
        let token = UpdateToken::from_bytes([n; UpdateToken::BYTES]);
        Known::Update(Update::new(content, UpdateDue::Set, token))
    };
    let held = queue.leased(0, message("a"), 100).await;
    queue.save(1, "a", held, state(1, "one")).await;
    let follower = message("a").payload("new").known(update(1, UpdateContent::Replace));
    queue.enqueue_one(2, follower).await;
    queue.save(3, "a", held, state(2, "two")).await;
    assert_eq!(queue.live(3, "a").await.checkpoint.as_deref(), Some(&b"two"[..]));
    let settlement = Settlement::new(id("a"), held, retry(0, "boom")).save(state(3, "three"));
    assert_eq!(queue.settle(4, vec![settlement]).await, [done(Status::Replaced)]);
    assert_eq!(saved(&queue.live(5, "a").await), (None, None));
    // An update of the due instant is the same message, one of the content is another.
    let (_, held) = next(queue, 2, 6).await;
    queue.save(7, "a", held, state(1, "kept")).await;
    queue.end(8, "a", held, Outcome::Release).await;
    let moved = message("a").schedule(after(5)).known(update(2, UpdateContent::Keep));
    queue.enqueue_one(9, moved).await;
    assert_eq!(queue.live(10, "a").await.checkpoint.as_deref(), Some(&b"kept"[..]));
    let replaced = message("a").payload("newer").known(update(3, UpdateContent::Replace));
    queue.enqueue_one(11, replaced).await;
    assert_eq!(saved(&queue.live(12, "a").await), (None, None));
}

async fn lists_show_the_progress_alone(queue: &Queue) {
    for (n, name) in (1..).zip(["a", "b", "c"]) {
        let held = queue.leased_as(n, 0, message(name), 1_000).await;
        let text = "t".repeat(usize::from(n - 1) * (MAX_PROGRESS_TEXT_BYTES / 2));
        let save = Save::new(1).progress(progress(u16::from(n), &text));
        let checkpoint = Bytes::from(vec![b's'; MAX_CHECKPOINT_BYTES]);
        queue.save(1, name, held, save.checkpoint((n > 1).then_some(checkpoint))).await;
    }
    let listed = queue.list(2, Status::Leased, 10).await.messages;
    assert_eq!(listed.len(), 3);
    for info in listed {
        let live = queue.live(2, &info.id.to_string()).await;
        assert!(live.info.progress.is_some() && info == live.info, "{info:?}");
    }
}

async fn a_checkpoint_stands_beside_errors_and_attempts(queue: &Queue) {
    queue.enqueue_one(0, message("a").max_failures(30)).await;
    for n in 1..=20_u8 {
        let (message, held) = next(queue, n, u64::from(n) * 10).await;
        if n > 1 {
            let bytes = vec![n - 1; usize::from(n - 1) * 10];
            assert_eq!(message.checkpoint, Some(bytes.into()), "{n}");
        }
        let save = Save::new(1).checkpoint(Bytes::from(vec![n; usize::from(n) * 10]));
        let now = u64::from(n) * 10 + 1;
        queue.save(now, "a", held, save).await;
        let error = "e".repeat(usize::from(n % 3) * 100);
        queue.end(now, "a", held, retry(0, &error)).await;
        let live = queue.live(now, "a").await;
        assert_eq!(live.attempts.len(), usize::from(n.min(8)));
        let latest = live.attempts.last().and_then(|it| it.error.as_deref()).unwrap_or_default();
        assert!(error.starts_with(latest) && latest.len() == error.len().min(120), "{n}");
    }
}

async fn saves_beyond_a_limit_are_refused(queue: &Queue) {
    let held = queue.leased(0, message("a"), 100).await;
    let large = || Save::new(1).checkpoint(Bytes::from(vec![0; MAX_CHECKPOINT_BYTES + 1]));
    let extend = |saves| Op::Extend(Extend::new(vec![(id("a"), held)], millis(100)).saves(saves));
    let settle = |save| Op::Settle(vec![Settlement::new(id("a"), held, retry(0, "")).save(save)]);
    let text = "t".repeat(MAX_PROGRESS_TEXT_BYTES + 1);
    let mut permille = progress(0, "");
    permille.permille = 1_001;
    let many: Vec<_> = (0..MAX_BATCH_BYTES / MAX_CHECKPOINT_BYTES + 1)
        .map(|n| {
            let save = Save::new(1).checkpoint(Bytes::from(vec![0; MAX_CHECKPOINT_BYTES]));
            Settlement::new(id(&n.to_string()), lease(1, 1), retry(0, "")).save(save)
        })
        .collect();
    for (op, expected) in [
        (
            extend(vec![(id("a"), large())]),
            "the checkpoint is 4097 bytes long; at most 4096 are allowed",
        ),
        (settle(large()), "the checkpoint is 4097 bytes long; at most 4096 are allowed"),
        (
            settle(Save::new(1).progress(progress(0, &text))),
            "the text of the progress is 257 bytes long; at most 256 are allowed",
        ),
        (settle(Save::new(1).progress(permille)), "the progress in thousandths is 1001"),
        (extend(vec![(id("a"), Save::new(MAX_SAVE_NUMBER + 1))]), "the number of the save"),
        (extend(vec![(id("b"), Save::new(1))]), "the extension does not extend its lease"),
        (extend(vec![(id("a"), Save::new(1)), (id("a"), Save::new(2))]), "a"),
        (Op::Settle(many), "bytes long; at most 3145728 are allowed"),
    ] {
        let refused = match queue.try_apply(1, &op).await {
            Ok(applied) => panic!("{} was carried out: {applied:?}", op.name()),
            Err(error) => error,
        };
        let ErrorKind::Invalid(violation) = refused.kind() else { panic!("{refused:?}") };
        assert!(violation.to_string().contains(expected), "{violation}");
    }
    assert_eq!(saved(&queue.live(2, "a").await), (None, None));
}

async fn the_largest_saves_are_kept(queue: &Queue) {
    let most = MAX_BATCH_BYTES / (MAX_CHECKPOINT_BYTES + MAX_PROGRESS_TEXT_BYTES);
    let ids: Vec<_> = (0..most).map(|n| id(&n.to_string())).collect();
    queue
        .enqueue(0, ids.iter().map(|id| delayline_core::NewMessage::new(id.clone(), "")).collect())
        .await;
    let taken = queue.claim(0, claim(1, most, 100)).await.deliveries;
    assert_eq!(taken.len(), most);
    let save = || {
        let text = "t".repeat(MAX_PROGRESS_TEXT_BYTES);
        let checkpoint = Bytes::from(vec![b's'; MAX_CHECKPOINT_BYTES]);
        Save::new(1).progress(progress(1_000, &text)).checkpoint(checkpoint)
    };
    let leases = taken.iter().map(|it| (it.message.info.id.clone(), it.lease)).collect();
    let saves = ids.iter().map(|id| (id.clone(), save())).collect();
    queue.apply(1, &Op::Extend(Extend::new(leases, millis(100)).saves(saves))).await;
    for name in ["0", &(most - 1).to_string()] {
        let live = queue.live(2, name).await;
        assert_eq!(live.checkpoint.map(|bytes| bytes.len()), Some(MAX_CHECKPOINT_BYTES));
    }
}

async fn the_largest_hand_off_saves(queue: &Queue) {
    let held = queue.leased(0, message("a"), 100).await;
    let save = Save::new(1).checkpoint(Bytes::from(vec![b's'; MAX_CHECKPOINT_BYTES]));
    let snooze = Settlement::new(id("a"), held, Outcome::Snooze { schedule: after(5) }).save(save);
    let names: Vec<_> = (0..MAX_BATCH_BYTES / MAX_PAYLOAD_BYTES).map(|n| n.to_string()).collect();
    let large = |name: &String| message(name).payload(vec![0; MAX_PAYLOAD_BYTES]);
    let hand_off = HandOff::new(snooze, names.iter().map(large).collect());
    queue.apply(1, &Op::HandOff(vec![hand_off])).await;
    let (snoozed, last) = (queue.live(2, "a").await, queue.live(2, &names[names.len() - 1]).await);
    assert_eq!(snoozed.info.state.status(), Status::Scheduled);
    assert_eq!(snoozed.checkpoint.map(|bytes| bytes.len()), Some(MAX_CHECKPOINT_BYTES));
    assert_eq!(last.payload.len(), MAX_PAYLOAD_BYTES);
}

async fn a_claim_counts_what_it_returns_of_saves(queue: &Queue) {
    let held = queue.leased(0, message("a"), 100).await;
    let save = state(1, "four").progress(progress(500, "half"));
    queue.save(0, "a", held, save).await;
    assert_eq!(queue.end(0, "a", held, Outcome::Release).await, done(Status::Ready));
    let used = message("a").payload.len() + "four".len() + "half".len();
    let large =
        (1..MAX_BATCH_BYTES / MAX_PAYLOAD_BYTES).map(|n| (n.to_string(), MAX_PAYLOAD_BYTES));
    let rest = [("fits".to_owned(), MAX_PAYLOAD_BYTES - used), ("one byte more".to_owned(), 1)];
    for (name, bytes) in large.chain(rest) {
        queue.enqueue_one(0, message(&name).payload(vec![0; bytes])).await;
    }
    let first = queue.claim(0, claim(2, 100, 50)).await;
    assert_eq!(
        (first.deliveries.len(), first.more),
        (MAX_BATCH_BYTES / MAX_PAYLOAD_BYTES + 1, true)
    );
}
