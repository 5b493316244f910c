//! Drafts belong to a queue, and other queues refuse them.

use std::time::SystemTime;

use delayline::backend::NewMessage;
use delayline::testing::{TestConnection, TestQueue};
use delayline::{Error, ErrorKind, Found, Job, MessageId, Outcome, Queue, Violation, Worker};

/// The names of the queue of a draft and of the queue that has refused it.
fn names(error: &Error) -> (&str, &str) {
    match error.kind() {
        ErrorKind::Invalid(Violation::OtherQueue { made_for, queue }) => (made_for, queue),
        _ => panic!("another error: {error:?}"),
    }
}

#[tokio::test]
async fn send_many_refuses_drafts_of_another_queue_and_sends_the_rest() {
    let connection = delayline::connect("memory:").await.unwrap();
    let orders: Queue<u64> = connection.queue("orders").await.unwrap();
    let texts: Queue<String> = connection.queue("texts").await.unwrap();

    let drafts = [orders.message(&1), texts.message(&"one".to_owned()), orders.message(&2)];
    let sent = orders.send_many(drafts).await;
    assert!(sent[0].is_ok() && sent[2].is_ok());
    let error = sent[1].as_ref().unwrap_err();
    assert_eq!(names(error), ("texts", "orders"));
    assert_eq!(
        error.to_string(),
        "a message of the queue texts cannot be sent to the queue orders"
    );
    assert_eq!((orders.stats().await.unwrap().ready, texts.stats().await.unwrap().ready), (2, 0));
}

#[tokio::test]
async fn the_same_queue_opened_again_and_plain_messages_are_accepted() {
    let connection = delayline::connect("memory:").await.unwrap();
    let orders: Queue<u64> = connection.queue("orders").await.unwrap();
    let again: Queue<u64> = connection.queue("orders").await.unwrap();
    assert!(orders.send_many([again.message(&1)]).await.remove(0).is_ok());

    // On purpose: as a message, it belongs to no queue.
    let other: Queue<u64> = connection.queue("other").await.unwrap();
    let message = NewMessage::try_from(other.message(&1)).unwrap();
    assert!(orders.send_many([message]).await.remove(0).is_ok());
    assert_eq!(orders.stats().await.unwrap().ready, 2);
}

#[tokio::test]
async fn drafts_of_two_queues_cannot_follow_one_message() {
    let connection = TestConnection::starting_at(SystemTime::now());
    let orders: TestQueue<u64> = connection.queue("orders");
    let texts: TestQueue<u64> = connection.queue("texts");
    let drafts = [orders.queue().message(&1), texts.queue().message(&2)];
    let error = Outcome::Ack.then(drafts).unwrap_err();
    assert_eq!(names(&error), ("texts", "orders"));

    let first = Outcome::Ack.then([orders.queue().message(&1)]).unwrap();
    let error = first.then([texts.queue().message(&2)]).unwrap_err();
    assert_eq!(names(&error), ("texts", "orders"));
}

#[tokio::test(start_paused = true)]
async fn a_draft_of_another_queue_that_follows_is_a_failure() {
    let connection = delayline::connect("memory:").await.unwrap();
    let orders: Queue<u64> = connection.queue("orders").await.unwrap();
    let texts: Queue<u64> = connection.queue("texts").await.unwrap();
    let _ = orders.message(&1).id("a").max_failures(1).send().await.unwrap();

    let worker = Worker::builder(orders.clone()).until_empty(true).build().unwrap();
    let wrong = texts.clone();
    let summary = worker
        .run(move |_: Job<u64>| {
            let draft = wrong.message(&2);
            async move { Outcome::Ack.then([draft]) }
        })
        .await;
    assert_eq!((summary.acked, summary.failed), (0, 1));
    let Found::Live(dead) = orders.get("a").await.unwrap() else { panic!("it is gone") };
    assert_eq!(
        dead.info.last_error.unwrap(),
        "the handler's outcome cannot be sent: \
         a message of the queue texts cannot be sent to the queue orders"
    );
    assert_eq!((orders.stats().await.unwrap().ready, texts.stats().await.unwrap().ready), (0, 0));
}

#[tokio::test]
async fn drains_refuse_what_workers_refuse() {
    let connection = TestConnection::starting_at(SystemTime::now());
    let orders: TestQueue<u64> = connection.queue("orders");
    let texts: TestQueue<u64> = connection.queue("texts");
    let _ = orders.queue().message(&1).id("a").max_failures(1).send().await.unwrap();
    let wrong = texts.queue().clone();
    orders
        .drain(move |_: Job<u64>| {
            let draft = wrong.message(&2);
            async move { Outcome::Ack.then([draft]) }
        })
        .await;
    texts.assert_nothing_sent();
    let found = orders.queue().get(MessageId::try_from("a").unwrap()).await.unwrap();
    let Found::Live(dead) = found else { panic!("it is gone") };
    assert!(dead.info.last_error.unwrap().contains("the queue texts"));
}
