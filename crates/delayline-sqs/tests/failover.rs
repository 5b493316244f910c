//! A primary that is killed behind sentinels while clients send, receive and delete: a ledger shows
//! that nothing is lost, and that no receipt is live twice.

#![allow(clippy::unwrap_used, clippy::panic, reason = "test code")]

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::body::{Body, to_bytes};
use axum::http::{Request, StatusCode};
use delayline::{Connect, Durability};
use delayline_sqs::{Access, Router, Sqs};
use delayline_test_server::{Sentinels, until};
use delayline_web::Role;
use serde_json::{Value, json};
use tower::ServiceExt as _;

/// What consumers have received.
#[derive(Default)]
struct Ledger {
    receipts: BTreeSet<String>,
    bodies: BTreeSet<String>,
    /// Requests that were answered with 503.
    interrupted: u64,
}

type Shared = Arc<Mutex<Ledger>>;

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_lost_when_a_primary_is_killed() {
    let sentinels = Sentinels::builder().replicas(2).start();
    let connection = Connect::new(&sentinels.url()).unwrap().connect().await.unwrap();
    let access = Access::everyone(Role::Operator | Role::Worker);
    let sqs = Sqs::new(connection, access).durability(Durability::Replicas(1));
    let router = sqs.router().await.unwrap();
    let ledger = Shared::default();
    let mut urls = Vec::new();
    for (name, attributes) in [("q", json!({})), ("q.fifo", json!({"FifoQueue": "true"}))] {
        let create = json!({"QueueName": name, "Attributes": attributes});
        let created = patiently(&router, "CreateQueue", &create, &ledger).await;
        urls.push(created["QueueUrl"].as_str().unwrap().to_owned());
    }
    let consumers: Vec<_> = (0..CONSUMERS)
        .map(|number| {
            let url = urls[number % urls.len()].clone();
            tokio::spawn(consume(router.clone(), url, Arc::clone(&ledger)))
        })
        .collect();
    send(&router, &urls, 0..BEFORE, &ledger).await;
    let primary = sentinels.primary();
    let servers = sentinels.servers().iter();
    let replicas: Vec<_> = servers.filter(|it| !std::ptr::eq(*it, primary)).collect();
    // What the primary gets from here on, no replica has. It is due after the failover.
    replicas.iter().for_each(|replica| replica.pause());
    primary.command(&["CLIENT", "KILL", "TYPE", "replica"]);
    let last = tokio::spawn({
        let (router, url, ledger) = (router.clone(), urls[0].clone(), Arc::clone(&ledger));
        let send = json!({"QueueUrl": url, "MessageBody": "last", "DelaySeconds": 8});
        async move { patiently(&router, "SendMessage", &send, &ledger).await }
    });
    until("it is refused", || last.is_finished() || ledger.lock().unwrap().interrupted > 0).await;
    primary.kill();
    replicas.iter().for_each(|replica| replica.resume());
    // These wait for the failover.
    send(&router, &urls, BEFORE..MESSAGES, &ledger).await;
    last.await.unwrap();
    until("all are received", || ledger.lock().unwrap().bodies.len() == MESSAGES + 1).await;
    // They end with a receive that finds nothing.
    for consumer in consumers {
        consumer.await.unwrap();
    }
    for url in &urls {
        let counted = json!({"QueueUrl": url, "AttributeNames": ["All"]});
        let counted = patiently(&router, "GetQueueAttributes", &counted, &ledger).await;
        for count in ["", "NotVisible"] {
            let name = format!("ApproximateNumberOfMessages{count}");
            assert_eq!(counted["Attributes"][name], "0", "{counted}");
        }
    }
}

async fn send(router: &Router, urls: &[String], numbers: std::ops::Range<usize>, ledger: &Shared) {
    for number in numbers {
        let url = &urls[number % urls.len()];
        let mut message = json!({"QueueUrl": url, "MessageBody": number.to_string()});
        if url.ends_with(".fifo") {
            message["MessageGroupId"] = format!("g{}", number % 8).into();
            message["MessageDeduplicationId"] = number.to_string().into();
        }
        patiently(router, "SendMessage", &message, ledger).await;
    }
}

/// Receives and deletes messages until all have been received and its queue is empty: a receive
/// waits for longer than the visibility timeout.
async fn consume(router: Router, url: String, ledger: Shared) {
    let receive = json!({
        "QueueUrl": url, "WaitTimeSeconds": 3, "MaxNumberOfMessages": 3, "VisibilityTimeout": 2,
    });
    loop {
        let answer = patiently(&router, "ReceiveMessage", &receive, &ledger).await;
        let messages = answer["Messages"].as_array().cloned().unwrap_or_default();
        for message in &messages {
            let [receipt, body] = ["ReceiptHandle", "Body"].map(|it| message[it].as_str().unwrap());
            let mut ledger = ledger.lock().unwrap();
            assert!(
                ledger.receipts.insert(receipt.to_owned()),
                "a receipt of {body} is twice live"
            );
            ledger.bodies.insert(body.to_owned());
        }
        for message in &messages {
            let delete = json!({"QueueUrl": url, "ReceiptHandle": message["ReceiptHandle"]});
            patiently(&router, "DeleteMessage", &delete, &ledger).await;
        }
        if messages.is_empty() && ledger.lock().unwrap().bodies.len() > MESSAGES {
            return;
        }
    }
}

/// Repeats a request, as an SDK does after 503. Returns the answer; a receipt that has expired in
/// the meantime is one, too.
async fn patiently(router: &Router, action: &str, input: &Value, ledger: &Shared) -> Value {
    let begin = Instant::now();
    loop {
        let request = Request::post("/").header("x-amz-target", format!("AmazonSQS.{action}"));
        let request = request.body(Body::from(input.to_string())).unwrap();
        let response = router.clone().oneshot(request).await.unwrap();
        let status = response.status();
        let answer = to_bytes(response.into_body(), 1 << 20).await.unwrap();
        let answer: Value = serde_json::from_slice(&answer).unwrap();
        if status != StatusCode::SERVICE_UNAVAILABLE {
            let is_expired = answer["message"].as_str().is_some_and(|it| it.contains("expired"));
            assert!(status.is_success() || is_expired, "{action}: {answer}");
            return answer;
        }
        assert!(begin.elapsed() < PATIENCE, "{action}: {answer}");
        ledger.lock().unwrap().interrupted += 1;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

const CONSUMERS: usize = 8;
/// Messages that are sent before the primary is killed.
const BEFORE: usize = 100;
const MESSAGES: usize = 250;
/// More than any failover takes on a machine that is busy with other things.
const PATIENCE: Duration = Duration::from_secs(90);
