//! Dead letters: how messages become dead letters, which parts are kept, and how they leave.

use delayline_core::limits::MAX_BURIALS;
use delayline_core::{
    Attempt, AttemptOutcome, DeathReason, Found, Headers, MessageInfo, MessageState, Op, Outcome,
    Priority, Purged, Redrive, Redriven, Reply, Rescheduled, Schedule, Status,
};

use super::queue::{
    Queue, after, at, claim, death, done, id, ids, lease, message, one, reject, retry,
};

super::cases! { "dead",
    a_dead_letter_keeps_everything: "G11",
    what_expires_is_buried_and_counted: "G1, G11",
    a_message_expires_at_its_instant_and_not_before: "G4, G11",
    a_claim_gets_past_many_that_have_expired: "G21, G23",
    an_expired_message_costs_no_attempt: "G9",
    a_message_cannot_expire_while_it_is_leased: "G7",
    a_retry_does_not_outlive_the_expiry: "G11",
    a_redrive_gives_a_new_life: "G11",
    a_redrive_can_be_delayed: "G4, G11",
    headers_of_any_length_have_a_new_life: "G2, G11",
    only_the_dead_are_redriven: "G11",
    old_leases_do_not_reach_into_a_new_life: "G6, G11",
    a_purge_ends_a_dead_letter: "G1, G11",
    the_dead_are_not_rescheduled: "G11",
}

/// Makes a dead letter by a claim with the n-th token.
async fn bury(queue: &Queue, n: u8, ms: u64, name: &str) {
    let held = queue.leased_as(n, ms, message(name), 100).await;
    queue.end(ms, name, held, reject("boom")).await;
}

async fn a_dead_letter_keeps_everything(queue: &Queue) {
    let mut headers = Headers::new();
    headers.set("trace", "1").unwrap_or_else(|violation| panic!("{violation}"));
    let doomed = message("a")
        .headers(headers.clone())
        .priority(Priority::Low)
        .schedule(after(5))
        .max_failures(2)
        .max_crashes(9);
    queue.enqueue_one(0, doomed).await;
    queue.claim(5, claim(1, 1, 10)).await;
    let held = one(queue.claim(15, claim(2, 1, 10)).await.deliveries).lease;
    queue.end(16, "a", held, retry(4, "first")).await;
    let held = one(queue.claim(20, claim(3, 1, 10)).await.deliveries).lease;
    assert_eq!(queue.end(21, "a", held, retry(4, "last")).await, done(Status::Dead));
    let dead = queue.live(9_000, "a").await;
    assert_eq!((dead.headers, dead.payload), (headers, "payload of a".into()));
    let state = MessageState::Dead { reason: DeathReason::MaxFailures, since: at(21) };
    let mut info = MessageInfo::new(id("a"), state, 1, at(0), at(20));
    info.priority = Priority::Low;
    info.epoch = 3;
    (info.failures, info.max_failures) = (2, 2);
    (info.crashes, info.max_crashes) = (1, 9);
    info.payload_bytes = 12;
    info.first_error = Some("first".to_owned());
    info.last_error = Some("last".to_owned());
    assert_eq!(dead.info, info);
    let ends = [
        Attempt::new(at(15), AttemptOutcome::Crashed, ""),
        Attempt::new(at(16), AttemptOutcome::Failed, "first"),
        Attempt::new(at(21), AttemptOutcome::Failed, "last"),
    ];
    assert_eq!(dead.attempts, ends);
}

async fn what_expires_is_buried_and_counted(queue: &Queue) {
    let stale = message("stale").expires(after(50));
    queue.enqueue(0, vec![stale, message("fresh")]).await;
    assert_eq!(
        queue.live(60, "stale").await.info.state,
        MessageState::Ready,
        "no call has noticed yet"
    );
    let claimed = queue.claim(60, claim(1, 10, 50)).await;
    assert_eq!(ids(&claimed.deliveries), ["fresh"]);
    assert_eq!(claimed.deaths, [death("stale", DeathReason::Expired)]);
    let repeated = queue.claim(60, claim(1, 10, 50)).await;
    assert_eq!(ids(&repeated.deliveries), ["fresh"]);
    assert_eq!(repeated.deaths, [], "reported once");
    let dead = MessageState::Dead { reason: DeathReason::Expired, since: at(60) };
    assert_eq!(queue.live(60, "stale").await.info.state, dead);
    let stats = queue.stats(60).await;
    assert_eq!((stats.dead, stats.totals.died_expired, stats.totals.enqueued), (1, 1, 2));
}

async fn a_message_expires_at_its_instant_and_not_before(queue: &Queue) {
    for name in ["a", "b"] {
        let expires = Some(Schedule::At(at(50)));
        queue.enqueue_one(0, message(name).expires(expires)).await;
    }
    assert_eq!(queue.claim_ids(49, claim(1, 1, 9_000)).await, ["a"]);
    assert_eq!(queue.claim_ids(50, claim(2, 1, 9_000)).await, [""; 0]);
    assert_eq!(queue.live(50, "b").await.info.state.status(), Status::Dead);
}

async fn a_claim_gets_past_many_that_have_expired(queue: &Queue) {
    let stale = |names: std::ops::Range<usize>| {
        let stale = |n: usize| {
            message(&n.to_string()).expires(Schedule::NOW).priority(if n.is_multiple_of(3) {
                Priority::Urgent
            } else {
                Priority::Normal
            })
        };
        names.map(stale).collect::<Vec<_>>()
    };
    queue.enqueue(0, stale(0..MAX_BURIALS - 1)).await;
    queue.enqueue(0, vec![message("live"), message("next")]).await;
    let claimed = queue.claim(1, claim(1, 1, 10)).await;
    assert_eq!(ids(&claimed.deliveries), ["live"]);
    assert_eq!((claimed.deaths.len(), claimed.more), (MAX_BURIALS - 1, true));
    assert_eq!(queue.claim_ids(1, claim(2, 2, 10)).await, ["next"]);

    queue.enqueue(2, stale(1_000..1_001 + MAX_BURIALS)).await;
    queue.enqueue_one(2, message("last")).await;
    let claimed = queue.claim(3, claim(3, 1, 10)).await;
    assert_eq!(ids(&claimed.deliveries), [""; 0], "one claim buries a bounded number");
    assert_eq!((claimed.deaths.len(), claimed.more), (MAX_BURIALS, true));
    assert_eq!(queue.claim_ids(3, claim(4, 1, 10)).await, ["last"]);
}

async fn an_expired_message_costs_no_attempt(queue: &Queue) {
    queue.enqueue_one(0, message("a").expires(Schedule::NOW)).await;
    let claimed = queue.claim(0, claim(1, 1, 50)).await;
    assert_eq!((claimed.deliveries.len(), claimed.more, claimed.next), (0, false, None));
    let info = queue.live(0, "a").await.info;
    assert_eq!((info.epoch, info.failures, info.crashes), (0, 0, 0));
}

async fn a_message_cannot_expire_while_it_is_leased(queue: &Queue) {
    let brief = message("a").expires(after(50));
    let held = queue.leased(0, brief, 100).await;
    assert_eq!(queue.claim_ids(60, claim(2, 1, 50)).await, [""; 0]);
    assert_eq!(queue.end(99, "a", held, Outcome::Ack).await, done(Status::Acked));
    assert_eq!(queue.stats(99).await.totals.died_expired, 0);
}

async fn a_retry_does_not_outlive_the_expiry(queue: &Queue) {
    let brief = message("a").expires(after(50));
    let held = queue.leased(0, brief, 100).await;
    assert_eq!(queue.end(10, "a", held, retry(40, "boom")).await, done(Status::Scheduled));
    assert_eq!(queue.claim_ids(50, claim(2, 1, 50)).await, [""; 0]);
    let info = queue.live(50, "a").await.info;
    let dead = MessageState::Dead { reason: DeathReason::Expired, since: at(50) };
    assert_eq!((info.state, info.failures), (dead, 1));
}

async fn a_redrive_gives_a_new_life(queue: &Queue) {
    let doomed = message("a").max_failures(1).expires(after(90));
    let held = queue.leased(0, doomed, 100).await;
    queue.end(1, "a", held, retry(0, "boom")).await;
    assert_eq!(queue.redrive(200, "a", Schedule::NOW).await, Redriven::Done { due: at(200) });
    let taken = one(queue.claim(200, claim(2, 1, 50)).await.deliveries);
    assert_eq!(taken.lease, lease(2, 2), "the epoch goes on");
    let info = &taken.message.info;
    assert_eq!((info.failures, info.crashes, info.expires_at), (0, 0, None));
    assert_eq!((info.sequence, info.enqueued_at, info.due), (1, at(0), at(200)));
    assert_eq!(info.first_error.as_deref(), Some("boom"), "errors of the former life stay");
    assert_eq!(queue.end(201, "a", taken.lease, retry(0, "again")).await, done(Status::Dead));
}

async fn a_redrive_can_be_delayed(queue: &Queue) {
    bury(queue, 1, 0, "a").await;
    assert_eq!(queue.redrive(10, "a", after(90)).await, Redriven::Done { due: at(100) });
    assert_eq!(queue.claim_ids(99, claim(2, 1, 50)).await, [""; 0]);
    assert_eq!(queue.claim_ids(100, claim(3, 1, 50)).await, ["a"]);
}

async fn headers_of_any_length_have_a_new_life(queue: &Queue) {
    // Near the lengths that fit into one byte and, at the end, into a record.
    for (n, length) in [0, 1, 127, 128, 255, 256, 257, 512, 3_900, 5_000].into_iter().enumerate() {
        let mut headers = Headers::new();
        let long = "n".repeat(255);
        for (name, length) in [("n", length), (long.as_str(), length / 2), ("last", 0)] {
            let set = headers.set(name, vec![b'v'; length]);
            set.unwrap_or_else(|violation| panic!("{violation}"));
        }
        let (name, token) = (length.to_string(), u8::try_from(n).unwrap_or(u8::MAX));
        let held = queue.leased_as(token, 0, message(&name).headers(headers.clone()), 50);
        let held = held.await;
        assert_eq!(queue.end(1, &name, held, reject("boom")).await, done(Status::Dead), "{name}");
        let redriven = queue.redrive(2, &name, Schedule::NOW).await;
        assert_eq!(redriven, Redriven::Done { due: at(2) }, "{name}");
        let again = one(queue.claim(3, claim(100 + token, 1, 50)).await.deliveries);
        assert_eq!((again.message.info.id, again.message.headers), (id(&name), headers));
    }
    assert_eq!(queue.check(4, 100).await, 10);
}

async fn only_the_dead_are_redriven(queue: &Queue) {
    bury(queue, 8, 0, "dead").await;
    bury(queue, 9, 0, "purged").await;
    queue.purge(1, "purged").await;
    queue.leased(2, message("leased"), 100).await;
    queue.enqueue_one(3, message("ready")).await;
    let ids = ["ready", "dead", "purged", "leased", "absent"].map(id).to_vec();
    let op = Op::Redrive(Redrive::new(ids, Schedule::NOW));
    use Redriven::{Done, NotDead, NotFound};
    let answers = vec![NotDead, Done { due: at(4) }, NotFound, NotDead, NotFound];
    assert_eq!(queue.apply(4, &op).await.reply, Reply::Redrive(answers));
    assert_eq!(queue.redrive(5, "dead", Schedule::NOW).await, NotDead, "repeated");
}

async fn old_leases_do_not_reach_into_a_new_life(queue: &Queue) {
    use delayline_core::{Extended, Settled};
    let held = queue.leased(0, message("a"), 100).await;
    queue.end(1, "a", held, reject("boom")).await;
    queue.redrive(2, "a", Schedule::NOW).await;
    assert_eq!(queue.end(3, "a", held, Outcome::Ack).await, Settled::Stale);
    assert_eq!(queue.end(3, "a", held, reject("boom")).await, Settled::Stale);
    assert_eq!(queue.extend(3, "a", held, 50).await, Extended::Stale);
    assert_eq!(queue.live(3, "a").await.info.state, MessageState::Ready);
}

async fn a_purge_ends_a_dead_letter(queue: &Queue) {
    bury(queue, 8, 0, "dead").await;
    queue.leased(1, message("leased"), 100).await;
    let acked = queue.leased_as(3, 1, message("acked"), 100).await;
    queue.end(1, "acked", acked, Outcome::Ack).await;
    queue.enqueue_one(2, message("ready")).await;
    for (name, expected) in [
        ("dead", Purged::Purged),
        ("dead", Purged::Purged),
        ("leased", Purged::NotDead),
        ("ready", Purged::NotDead),
        ("acked", Purged::NotFound),
        ("absent", Purged::NotFound),
    ] {
        assert_eq!(queue.purge(3, name).await, expected, "{name}");
    }
    assert_eq!(queue.get(4, "dead").await, Found::Finished(Status::Purged));
    let stats = queue.stats(4).await;
    assert_eq!((stats.dead, stats.totals.purged, stats.totals.cancelled), (0, 1, 0));
}

async fn the_dead_are_not_rescheduled(queue: &Queue) {
    bury(queue, 1, 0, "a").await;
    assert_eq!(queue.reschedule(1, "a", Schedule::NOW).await, Rescheduled::Dead);
    assert_eq!(queue.claim_ids(2, claim(2, 1, 50)).await, [""; 0]);
}
