//! One id, one message.

use delayline_core::limits::FINISHED_RETENTION_MS;
use delayline_core::{
    At, Enqueued, FinishedIds, Headers, Op, Outcome, Priority, Reply, Schedule, Status,
};

use super::queue::{Queue, after, at, claim, message, one, reject};

super::cases! { "dedup",
    a_repeated_enqueue_makes_no_second_message: "G15",
    a_repeated_enqueue_tells_where_the_message_stands: "G15",
    another_content_is_a_conflict: "G15",
    another_schedule_is_no_other_content: "G15",
    another_trace_is_no_other_content: "G15",
    finished_ids_are_remembered_for_the_retention: "G15",
    finished_ids_can_be_reused: "G14",
    a_live_id_is_never_reused: "G14",
    of_many_at_once_one_creates: "G14",
    items_of_a_batch_are_independent: "G15, G18",
}

async fn a_repeated_enqueue_makes_no_second_message(queue: &Queue) {
    let delayed = message("a").schedule(after(50));
    assert_eq!(queue.enqueue_one(0, delayed.clone()).await, Enqueued::Created { due: at(50) });
    for ms in [0, 10, 40] {
        let again = queue.enqueue_one(ms, delayed.clone()).await;
        assert_eq!(again, Enqueued::Duplicate { status: Status::Scheduled });
    }
    assert_eq!(queue.stats(40).await.totals.enqueued, 1);
    assert_eq!(queue.claim_ids(50, claim(1, 10, 9_000)).await, ["a"], "the due instant stays");
    assert_eq!(queue.claim_ids(100, claim(2, 10, 9_000)).await, [""; 0]);
}

async fn a_repeated_enqueue_tells_where_the_message_stands(queue: &Queue) {
    let duplicate = |status| Enqueued::Duplicate { status };
    queue.enqueue_one(0, message("a").schedule(after(10))).await;
    assert_eq!(queue.enqueue_one(9, message("a")).await, duplicate(Status::Scheduled));
    assert_eq!(queue.enqueue_one(10, message("a")).await, duplicate(Status::Ready));
    let held = one(queue.claim(10, claim(1, 1, 50)).await.deliveries).lease;
    assert_eq!(queue.enqueue_one(11, message("a")).await, duplicate(Status::Leased));
    queue.end(12, "a", held, reject("boom")).await;
    assert_eq!(queue.enqueue_one(13, message("a")).await, duplicate(Status::Dead));
    queue.purge(14, "a").await;
    assert_eq!(queue.enqueue_one(15, message("a")).await, duplicate(Status::Purged));
    let held = queue.leased_as(2, 16, message("b"), 50).await;
    queue.end(17, "b", held, Outcome::Ack).await;
    assert_eq!(queue.enqueue_one(18, message("b")).await, duplicate(Status::Acked));
    queue.enqueue_one(19, message("c")).await;
    queue.cancel(20, "c").await;
    assert_eq!(queue.enqueue_one(21, message("c")).await, duplicate(Status::Cancelled));
}

async fn another_content_is_a_conflict(queue: &Queue) {
    let mut headers = Headers::new();
    headers.set("x", "").unwrap_or_else(|violation| panic!("{violation}"));
    queue.enqueue_one(0, message("a")).await;
    let others = [
        message("a").payload("payload of A"),
        message("a").payload(""),
        message("a").headers(headers),
        message("a").priority(Priority::High),
        message("a").max_failures(1),
        message("a").max_crashes(1),
    ];
    for other in others {
        let conflict = queue.enqueue_one(1, other.clone()).await;
        assert_eq!(conflict, Enqueued::Conflict { status: Status::Ready }, "{other:?}");
    }
    let taken = one(queue.claim(2, claim(1, 1, 50)).await.deliveries);
    assert_eq!(taken.message.payload, "payload of a", "nothing was changed");
    queue.end(3, "a", taken.lease, Outcome::Ack).await;
    let other = message("a").payload("other");
    let conflict = queue.enqueue_one(4, other).await;
    assert_eq!(conflict, Enqueued::Conflict { status: Status::Acked }, "it is remembered");
}

async fn another_schedule_is_no_other_content(queue: &Queue) {
    queue.enqueue_one(0, message("a").schedule(Schedule::At(at(50)))).await;
    let schedule = after(9_000);
    let other = message("a").schedule(schedule).finished_ids(FinishedIds::Reuse);
    let again = queue.enqueue_one(1, other).await;
    assert_eq!(again, Enqueued::Duplicate { status: Status::Scheduled });
    assert_eq!(queue.live(1, "a").await.info.due, at(50));
}

async fn another_trace_is_no_other_content(queue: &Queue) {
    let traced = |headers: &[(&str, &'static str)]| {
        let mut all = Headers::new();
        for (name, value) in headers {
            all.set(*name, *value).unwrap_or_else(|violation| panic!("{violation}"));
        }
        message("a").headers(all)
    };
    let (parent, state) = (Headers::TRACEPARENT, Headers::TRACESTATE);
    queue.enqueue_one(0, traced(&[("tenant", "7"), (parent, "first")])).await;
    for again in
        [traced(&[("tenant", "7")]), traced(&[(parent, "second"), (state, "x=1"), ("tenant", "7")])]
    {
        let told = queue.enqueue_one(1, again).await;
        assert_eq!(told, Enqueued::Duplicate { status: Status::Ready });
    }
    let other = queue.enqueue_one(1, traced(&[("tenant", "8"), (parent, "first")])).await;
    assert_eq!(other, Enqueued::Conflict { status: Status::Ready });
    let headers = queue.live(1, "a").await.headers;
    assert_eq!(headers, traced(&[("tenant", "7"), (parent, "first")]).headers, "the first stays");
}

async fn finished_ids_are_remembered_for_the_retention(queue: &Queue) {
    let held = queue.leased(0, message("a"), 50).await;
    queue.end(10, "a", held, Outcome::Ack).await;
    for ms in [11, FINISHED_RETENTION_MS, FINISHED_RETENTION_MS + 9] {
        let again = queue.enqueue_one(ms, message("a")).await;
        assert_eq!(again, Enqueued::Duplicate { status: Status::Acked }, "at {ms}");
    }
    let late = 2 * FINISHED_RETENTION_MS + 10;
    assert_eq!(queue.enqueue_one(late, message("a")).await, Enqueued::Created { due: at(late) });
}

async fn finished_ids_can_be_reused(queue: &Queue) {
    let reused = message("a").finished_ids(FinishedIds::Reuse);
    for n in 0..3 {
        let created = queue.enqueue_one(0, reused.clone()).await;
        assert_eq!(created, Enqueued::Created { due: at(0) });
        let taken = one(queue.claim(0, claim(n, 1, 50)).await.deliveries);
        assert_eq!(taken.message.info.sequence, u64::from(n) + 1);
        queue.end(0, "a", taken.lease, Outcome::Ack).await;
    }
    let stats = queue.stats(1).await;
    assert_eq!((stats.totals.enqueued, stats.totals.acked), (3, 3));
}

async fn a_live_id_is_never_reused(queue: &Queue) {
    let reused = message("a").finished_ids(FinishedIds::Reuse);
    let held = queue.leased(0, reused.clone(), 50).await;
    let again = queue.enqueue_one(1, reused.clone()).await;
    assert_eq!(again, Enqueued::Duplicate { status: Status::Leased });
    queue.end(2, "a", held, reject("boom")).await;
    let other = reused.payload("other");
    let conflict = queue.enqueue_one(3, other).await;
    assert_eq!(conflict, Enqueued::Conflict { status: Status::Dead });
}

async fn of_many_at_once_one_creates(queue: &Queue) {
    let calls: Vec<_> = (0..32)
        .map(|n| {
            let backend = queue.clients().of(n).clone();
            tokio::spawn(async move {
                backend.apply(At::Fixed(at(0)), &Op::Enqueue(vec![message("a")])).await
            })
        })
        .collect();
    let mut created = 0;
    for call in calls {
        let answer = call.await.unwrap_or_else(|error| panic!("{error}"));
        let reply = answer.unwrap_or_else(|error| panic!("{error}")).reply;
        let Reply::Enqueue(items) = reply else { panic!("answered {reply:?}") };
        match one(items) {
            Enqueued::Created { .. } => created += 1,
            other => assert_eq!(other, Enqueued::Duplicate { status: Status::Ready }),
        }
    }
    assert_eq!(created, 1);
    assert_eq!(queue.stats(0).await.totals.enqueued, 1);
}

async fn items_of_a_batch_are_independent(queue: &Queue) {
    queue.enqueue(0, vec![message("known"), message("other")]).await;
    let other = message("other").payload("");
    let answers = queue.enqueue(1, vec![message("new"), other, message("known"), message("newer")]);
    let status = Status::Ready;
    let expected = [
        Enqueued::Created { due: at(1) },
        Enqueued::Conflict { status },
        Enqueued::Duplicate { status },
        Enqueued::Created { due: at(1) },
    ];
    assert_eq!(answers.await, expected);
    let order = queue.claim_ids(2, claim(1, 10, 50)).await;
    assert_eq!(order, ["known", "other", "new", "newer"]);
}
