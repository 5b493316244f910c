//! Values at the limits, and one beyond.

use bytes::Bytes;
use delayline_core::limits::{
    MAX_BATCH, MAX_BATCH_BYTES, MAX_ERROR_BYTES, MAX_HEADERS, MAX_HEADERS_BYTES, MAX_ID_BYTES,
    MAX_LEASE_MS, MAX_LOOK_UP, MAX_PAGE, MAX_PAYLOAD_BYTES, MAX_REPLICAS,
};
use delayline_core::{
    At, Check, Completion, Durability, ErrorClass, ErrorKind, Extend, Extended, Headers, List,
    MessageId, NewMessage, Op, Outcome, Purged, Redrive, Redriven, Reply, Reschedule, Rescheduled,
    Schedule, Settled, Settlement, Status, Violation,
};

use super::queue::{Queue, at, claim, done, id, ids, lease, message, millis, one, reject, retry};

super::cases! { "limits",
    batches_beyond_a_limit_are_refused: "G18, G23",
    claims_beyond_a_limit_are_refused: "G23",
    messages_beyond_a_limit_are_refused: "G20",
    pages_beyond_a_limit_are_refused: "G23",
    what_is_refused_changes_nothing: "G3",
    what_is_refused_durably_changes_nothing: "G3",
    the_largest_batches_are_carried_out: "G18, G23",
    the_largest_message_is_kept: "G2, G20",
    the_longest_texts_are_kept: "G20",
    the_shortest_and_the_longest_lease_are_kept: "G5",
    a_claim_counts_every_byte_of_headers_and_payloads: "G23",
    a_claim_stops_at_its_bytes: "G23",
}

async fn refused(queue: &Queue, op: Op) -> Violation {
    let error = match queue.try_apply(0, &op).await {
        Ok(applied) => panic!("{} was carried out: {applied:?}", op.name()),
        Err(error) => error,
    };
    assert_eq!(error.class(), ErrorClass::Rejected);
    match error.kind() {
        ErrorKind::Invalid(violation) => violation.clone(),
        other => panic!("{} was refused as {other:?}", op.name()),
    }
}

/// One large batch operation of each kind, on the given ids.
fn batches(ids: &[MessageId]) -> Vec<Op> {
    let each = ids.iter().cloned();
    let settle = |id| Settlement::new(id, lease(1, 1), Outcome::Ack);
    let extend = each.clone().map(|id| (id, lease(1, 1))).collect();
    let reschedule = |id| Reschedule::new(id, Schedule::NOW);
    vec![
        Op::Enqueue(each.clone().map(|id| NewMessage::new(id, "")).collect()),
        Op::Settle(each.clone().map(settle).collect()),
        Op::Extend(Extend::new(extend, millis(50))),
        Op::Cancel(ids.to_vec()),
        Op::Reschedule(each.map(reschedule).collect()),
        Op::Redrive(Redrive::new(ids.to_vec(), Schedule::NOW)),
        Op::Purge(ids.to_vec()),
        Op::Get(ids.to_vec()),
        Op::Progress(ids.to_vec()),
    ]
}

fn many(count: usize) -> Vec<MessageId> {
    (0..count).map(|n| id(&n.to_string())).collect()
}

async fn batches_beyond_a_limit_are_refused(queue: &Queue) {
    for op in batches(&[]) {
        assert!(matches!(refused(queue, op).await, Violation::Empty { .. }));
    }
    for op in batches(&[id("a"), id("b"), id("a")]) {
        assert_eq!(refused(queue, op).await, Violation::RepeatedId { id: "a".to_owned() });
    }
    for op in batches(&many(MAX_BATCH + 1)) {
        let violation = refused(queue, op).await;
        assert!(matches!(violation, Violation::TooLong { unit: "items", .. }), "{violation}");
    }
}

async fn claims_beyond_a_limit_are_refused(queue: &Queue) {
    // A claim for no messages looks ahead (G35).
    for (max, lease_ms) in [(MAX_BATCH + 1, 50), (1, 0), (1, MAX_LEASE_MS + 1)] {
        let violation = refused(queue, Op::Claim(claim(1, max, lease_ms))).await;
        assert!(matches!(violation, Violation::OutOfRange { .. }), "{violation}");
    }
    for lease_ms in [0, MAX_LEASE_MS + 1] {
        let leases = vec![(id("a"), lease(1, 1))];
        refused(queue, Op::Extend(Extend::new(leases, millis(lease_ms)))).await;
    }
}

async fn messages_beyond_a_limit_are_refused(queue: &Queue) {
    let large = message("a").payload(zeros(MAX_PAYLOAD_BYTES + 1));
    let violation = refused(queue, Op::Enqueue(vec![message("b"), large])).await;
    assert_eq!(
        violation.to_string(),
        "the payload is 1048577 bytes long; at most 1048576 are allowed"
    );
    for limit in [0, 65_536, u32::MAX] {
        for message in [message("a").max_failures(limit), message("a").max_crashes(limit)] {
            let violation = refused(queue, Op::Enqueue(vec![message])).await;
            assert!(matches!(violation, Violation::OutOfRange { .. }), "{violation}");
        }
    }
    let messages = many(MAX_BATCH_BYTES / MAX_PAYLOAD_BYTES + 1)
        .into_iter()
        .map(|id| NewMessage::new(id, zeros(MAX_PAYLOAD_BYTES)));
    let violation = refused(queue, Op::Enqueue(messages.collect())).await;
    assert!(matches!(violation, Violation::TooLong { unit: "bytes", .. }), "{violation}");
    let error = "e".repeat(MAX_ERROR_BYTES + 1);
    for outcome in [retry(0, &error), reject(&error)] {
        let settlement = Settlement::new(id("a"), lease(1, 1), outcome);
        let violation = refused(queue, Op::Settle(vec![settlement])).await;
        assert!(matches!(violation, Violation::TooLong { unit: "bytes", .. }), "{violation}");
    }
}

async fn pages_beyond_a_limit_are_refused(queue: &Queue) {
    for limit in [0, MAX_PAGE + 1] {
        refused(queue, Op::List(List::new(Status::Ready, limit))).await;
        refused(queue, Op::Check(Check::new(limit))).await;
    }
    for status in [Status::Acked, Status::Cancelled, Status::Purged] {
        refused(queue, Op::List(List::new(status, 10))).await;
    }
    refused(queue, Op::Get(many(MAX_LOOK_UP + 1))).await;
    queue.apply(0, &Op::Get(many(MAX_LOOK_UP))).await;
}

async fn what_is_refused_changes_nothing(queue: &Queue) {
    queue.leased(0, message("a"), 50).await;
    let before = queue.apply(0, &Op::Get(vec![id("a")])).await;
    let mut repeated = batches(&[id("a"), id("b"), id("b")]);
    repeated.push(Op::Claim(claim(2, 1, 0)));
    for op in repeated {
        refused(queue, op).await;
    }
    assert_eq!(queue.apply(0, &Op::Get(vec![id("a")])).await, before);
    assert_eq!(queue.stats(0).await.totals.enqueued, 1);
}

async fn what_is_refused_durably_changes_nothing(queue: &Queue) {
    let before = queue.apply(0, &Op::Stats).await;
    for (op, durability) in [
        (Op::Enqueue(Vec::new()), Durability::None),
        (Op::Enqueue(vec![message("a")]), Durability::Replicas(MAX_REPLICAS + 1)),
    ] {
        let refused = queue.backend().apply_durably(At::Fixed(at(0)), &op, durability).await;
        let class = refused.map_err(|error| error.class());
        assert_eq!(class, Err(ErrorClass::Rejected), "{op:?}, {durability}");
    }
    assert_eq!(queue.apply(0, &Op::Stats).await, before);
}

async fn the_largest_batches_are_carried_out(queue: &Queue) {
    let all = many(MAX_BATCH);
    let reply = |n: usize| {
        let [enqueue, settle, extend, _, reschedule, redrive, purge, _, progress] =
            <[Op; 9]>::try_from(batches(&many(MAX_BATCH))).unwrap_or_else(|_| panic!("nine"));
        [enqueue, reschedule, extend, settle, redrive, purge, progress].into_iter().nth(n)
    };
    let apply = async |n: usize| {
        let op = reply(n).unwrap_or_else(|| panic!("there are seven"));
        queue.apply(10, &op).await.reply
    };
    let created = delayline_core::Enqueued::Created { due: at(10) };
    assert_eq!(apply(0).await, Reply::Enqueue(vec![created; MAX_BATCH]));
    let moved = Rescheduled::Done { due: at(10) };
    assert_eq!(apply(1).await, Reply::Reschedule(vec![moved; MAX_BATCH]));
    let claimed = queue.claim(10, claim(1, MAX_BATCH, 50)).await;
    let expected: Vec<_> = all.iter().map(ToString::to_string).collect();
    assert_eq!(ids(&claimed.deliveries), expected);
    let extended = Extended::Done { deadline: at(60), cancel_requested: false };
    assert_eq!(apply(2).await, Reply::Extend(vec![extended; MAX_BATCH]));
    let reject = |id: &MessageId| Settlement::new(id.clone(), lease(1, 1), reject("boom"));
    let settled = queue.settle(10, all.iter().map(reject).collect()).await;
    assert_eq!(settled, vec![done(Status::Dead); MAX_BATCH]);
    assert_eq!(apply(3).await, Reply::Settle(vec![Settled::Stale; MAX_BATCH]));
    let redriven = Redriven::Done { due: at(10) };
    assert_eq!(apply(4).await, Reply::Redrive(vec![redriven; MAX_BATCH]));
    assert_eq!(apply(5).await, Reply::Purge(vec![Purged::NotDead; MAX_BATCH]));
    assert_eq!(apply(6).await, Reply::Progress(vec![Completion::Pending; MAX_BATCH]));
}

async fn the_largest_message_is_kept(queue: &Queue) {
    let mut headers = Headers::new();
    let value = MAX_HEADERS_BYTES / MAX_HEADERS - 3 - 2;
    for n in 0..MAX_HEADERS {
        let set = headers.set(format!("{n:02}"), vec![0xff; value]);
        set.unwrap_or_else(|violation| panic!("{violation}"));
    }
    assert_eq!(headers.encoded_len(), MAX_HEADERS_BYTES);
    let large = message("a").headers(headers.clone()).payload(zeros(MAX_PAYLOAD_BYTES));
    queue.enqueue_one(0, large).await;
    let taken = one(queue.claim(0, claim(1, 1, 50)).await.deliveries).message;
    assert!(taken.payload == zeros(MAX_PAYLOAD_BYTES), "another payload");
    assert!(taken.headers == headers, "other headers");
    assert_eq!(taken.info.payload_bytes, MAX_PAYLOAD_BYTES);
}

async fn the_longest_texts_are_kept(queue: &Queue) {
    let name = "i".repeat(MAX_ID_BYTES);
    let held = queue.leased(0, message(&name), 50).await;
    let error = "\u{e9}".repeat(MAX_ERROR_BYTES / 2);
    assert_eq!(queue.end(1, &name, held, retry(0, &error)).await, done(Status::Ready));
    assert_eq!(queue.live(1, &name).await.info.last_error, Some(error));
}

async fn the_shortest_and_the_longest_lease_are_kept(queue: &Queue) {
    queue.enqueue(0, vec![message("short"), message("long")]).await;
    queue.claim(0, claim(1, 1, 1)).await;
    queue.claim(0, claim(2, 1, MAX_LEASE_MS)).await;
    assert_eq!(queue.claim_ids(0, claim(3, 9, 50)).await, [""; 0]);
    assert_eq!(queue.claim_ids(1, claim(4, 9, MAX_LEASE_MS)).await, ["short"]);
    assert_eq!(queue.claim_ids(MAX_LEASE_MS - 1, claim(5, 9, 50)).await, [""; 0]);
    assert_eq!(queue.claim_ids(MAX_LEASE_MS, claim(6, 9, 50)).await, ["long"]);
}

async fn a_claim_stops_at_its_bytes(queue: &Queue) {
    // This many reach the limit of one claim, which leaves one for the next.
    let fitting = MAX_BATCH_BYTES / MAX_PAYLOAD_BYTES;
    for half in many(fitting + 1).chunks(fitting) {
        let messages = half.iter().map(|id| NewMessage::new(id.clone(), zeros(MAX_PAYLOAD_BYTES)));
        queue.enqueue(0, messages.collect()).await;
    }
    let first = queue.claim(0, claim(1, 100, 50)).await;
    assert_eq!((first.deliveries.len(), first.more, first.next), (fitting, true, Some(at(0))));
    assert_eq!(queue.claim_ids(0, claim(2, 100, 50)).await, [fitting.to_string()]);
}

async fn a_claim_counts_every_byte_of_headers_and_payloads(queue: &Queue) {
    // They leave room for one more of their size.
    let count = MAX_BATCH_BYTES / MAX_PAYLOAD_BYTES - 1;
    let large = many(count).into_iter().map(|id| NewMessage::new(id, zeros(MAX_PAYLOAD_BYTES)));
    queue.enqueue(0, large.collect()).await;
    // The same number of bytes as one large message, half of the messages with headers.
    let small = (0..256_usize).map(|n| {
        let mut small = message(&format!("small {n}"));
        if n.is_multiple_of(2) {
            let set = small.headers.set("name", vec![0; 300]);
            set.unwrap_or_else(|violation| panic!("{violation}"));
        }
        let payload = zeros(MAX_PAYLOAD_BYTES / 256 - small.headers.encoded_len());
        small.payload(payload)
    });
    queue.enqueue(0, small.collect()).await;
    queue.enqueue_one(0, message("one byte more").payload(zeros(1))).await;
    let first = queue.claim(0, claim(1, MAX_BATCH, 50)).await;
    assert_eq!((first.deliveries.len(), first.more), (count + 256, true));
    assert_eq!(queue.claim_ids(0, claim(2, MAX_BATCH, 50)).await, ["one byte more"]);
}

fn zeros(len: usize) -> Bytes {
    vec![0; len].into()
}
