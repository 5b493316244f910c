//! Users with access keys: signed requests to the router.

use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::http::{Request, StatusCode};
use delayline::Queue;
use delayline_sqs::{Access, AccessKey, Router, Sqs};
use delayline_web::Role;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use ring::digest::{SHA256, digest};
use ring::hmac;
use serde_json::{Value, json};
use tower::ServiceExt as _;

/// Sends a request in the JSON protocol, signed with the secret of an access key.
async fn action(router: &Router, key: [&str; 2], action: &str, input: Value) -> Value {
    let (body, now) = (input.to_string(), jiff::Timestamp::now());
    let [date, instant] = ["%Y%m%d", "%Y%m%dT%H%M%SZ"].map(|it| now.strftime(it).to_string());
    let hex = |bytes: &[u8]| bytes.iter().map(|it| format!("{it:02x}")).collect::<String>();
    let hash = |text: &str| hex(digest(&SHA256, text.as_bytes()).as_ref());
    let (target, names) = (format!("AmazonSQS.{action}"), "host;x-amz-date;x-amz-target");
    let headers = format!("host:x\nx-amz-date:{instant}\nx-amz-target:{target}\n");
    let canonical = format!("POST\n/\n\n{headers}\n{names}\n{}", hash(&body));
    let scope = format!("{date}/us-east-1/sqs/aws4_request");
    let text = format!("AWS4-HMAC-SHA256\n{instant}\n{scope}\n{}", hash(&canonical));
    let [id, secret] = key;
    let parts = scope.split('/').chain([&*text]);
    let signature = parts.fold(format!("AWS4{secret}").into_bytes(), |key, part| {
        hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &key), part.as_bytes()).as_ref().to_vec()
    });
    let signature = format!(
        "AWS4-HMAC-SHA256 Credential={id}/{scope}, SignedHeaders={names}, Signature={}",
        hex(&signature)
    );
    let request = Request::post("/").header("host", "x").header("x-amz-date", instant);
    let request = request.header("x-amz-target", target).header("authorization", signature);
    let response = router.clone().oneshot(request.body(Body::from(body)).unwrap()).await.unwrap();
    let status = response.status();
    let answer = to_bytes(response.into_body(), 1 << 20).await.unwrap();
    let answer: Value = serde_json::from_slice(&answer).unwrap();
    assert_eq!(status == StatusCode::OK, answer["__type"].is_null(), "{answer}");
    answer
}

#[tokio::test]
async fn messages_return_only_to_queues_of_the_user_who_moves_them() {
    let connection = delayline::connect("memory:").await.unwrap();
    let key = |name| AccessKey::new(name, "a secret", Role::Operator);
    let access = Access::keys([key("all"), key("few").only_queues(["dead", "orders"])]);
    let sqs = Sqs::new(connection.clone(), access);
    // Each server executes the tasks of the other one, too.
    let of_few = sqs.clone().only_queues(["dead", "orders"]).router().await.unwrap();
    let of_all = sqs.router().await.unwrap();
    let source = "arn:aws:sqs:us-east-1:000000000000:dead";
    let policy = json!({"deadLetterTargetArn": source, "maxReceiveCount": 1}).to_string();
    let key = ["all", "a secret"];
    for (name, attributes) in [("dead", json!({})), ("orders", json!({"RedrivePolicy": policy}))] {
        let create = json!({"QueueName": name, "Attributes": attributes});
        action(&of_all, key, "CreateQueue", create).await;
    }
    action(&of_all, key, "CreateQueue", json!({"QueueName": "billing"})).await;
    let dead: Queue<String> = connection.queue("dead").await.unwrap();
    for (router, user, origin, status) in [
        (&of_all, "few", "billing", "FAILED"),
        (&of_few, "all", "billing", "FAILED"),
        (&of_all, "few", "orders", "COMPLETED"),
        (&of_few, "all", "orders", "COMPLETED"),
        (&of_all, "all", "billing", "COMPLETED"),
    ] {
        let id = uuid::Uuid::new_v4().to_string();
        let extras = json!({"q": origin}).to_string();
        let sent =
            dead.message(&"x".to_owned()).id(&*id).header("delayline-sqs", extras).send().await;
        assert!(sent.unwrap().is_accepted());
        let target: Queue<String> = connection.queue(origin).await.unwrap();
        let before = target.stats().await.unwrap().ready;
        let (key, task) = ([user, "a secret"], json!({"SourceArn": source}));
        action(router, key, "StartMessageMoveTask", task.clone()).await;
        let ended = async {
            loop {
                let tasks = action(router, key, "ListMessageMoveTasks", task.clone()).await;
                let latest = &tasks["Results"][0];
                if latest["Status"] != "RUNNING" {
                    break latest.clone();
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let ended = tokio::time::timeout(Duration::from_secs(60), ended).await.unwrap();
        assert_eq!(ended["Status"], status, "{user} {origin} {ended}");
        let has_moved = target.stats().await.unwrap().ready > before;
        assert_eq!(has_moved, status == "COMPLETED", "{user} {origin}");
        dead.cancel(&*id).await.unwrap();
    }
}

#[tokio::test]
async fn queues_that_a_user_does_not_know_are_not_named() {
    let connection = delayline::connect("memory:").await.unwrap();
    let key = |name| AccessKey::new(name, "a secret", Role::Operator | Role::Worker);
    let access = Access::keys([key("all"), key("few").only_queues(["dead"])]);
    let router = Sqs::new(connection.clone(), access).router().await.unwrap();
    let arn = |queue| format!("arn:aws:sqs:us-east-1:000000000000:{queue}");
    let redrive =
        |queue| json!({"deadLetterTargetArn": arn(queue), "maxReceiveCount": 9}).to_string();
    let allow = json!({"redrivePermission": "byQueue", "sourceQueueArns": [arn("hidden")]});
    let of_dead = json!({
        "RedriveAllowPolicy": allow.to_string(), "RedrivePolicy": redrive("hidden-2"),
    });
    let of_hidden = json!({"RedrivePolicy": redrive("dead")});
    for (name, attributes) in [("hidden-2", json!({})), ("dead", of_dead), ("hidden", of_hidden)] {
        let create = json!({"QueueName": name, "Attributes": attributes});
        action(&router, ["all", "a secret"], "CreateQueue", create).await;
    }
    let dead: Queue<String> = connection.queue("dead").await.unwrap();
    let queue = json!({
        "QueueUrl": "/000000000000/dead", "AttributeNames": ["All"],
        "MessageAttributeNames": ["All"],
    });
    let hidden: Queue<String> = connection.queue("hidden").await.unwrap();
    let to = hidden.member("x").unwrap();
    for (user, is_named) in [("all", true), ("few", false)] {
        let sent = dead.message(&"x".to_owned()).header("delayline-sqs", r#"{"q":"hidden"}"#);
        assert!(sent.wakes(to.clone()).send().await.unwrap().is_accepted());
        for name in ["ReceiveMessage", "GetQueueAttributes"] {
            let answer = action(&router, [user, "a secret"], name, queue.clone()).await;
            assert!(answer["Attributes"].is_object() || answer["Messages"].is_array(), "{answer}");
            let count = answer.to_string().matches("hidden").count();
            assert_eq!(count, if is_named { 2 } else { 0 }, "{answer}");
        }
    }
    let task = json!({"SourceArn": arn("dead"), "DestinationArn": arn("hidden")});
    action(&router, ["all", "a secret"], "StartMessageMoveTask", task.clone()).await;
    for (user, is_named) in [("all", true), ("few", false)] {
        let tasks = action(&router, [user, "a secret"], "ListMessageMoveTasks", task.clone()).await;
        assert_eq!(tasks["Results"][0]["DestinationArn"].is_string(), is_named, "{tasks}");
    }
}

#[tokio::test]
async fn wrong_signatures_do_not_lock_out_a_key_with_a_long_secret_in_use() {
    let connection = delayline::connect("memory:").await.unwrap();
    let keys = [["long", "0123456789abcdef"], ["short", "0123456789abcde"]];
    let access = keys.map(|[id, secret]| AccessKey::new(id, secret, Role::Viewer));
    let router = Sqs::new(connection, Access::keys(access)).router().await.unwrap();
    let list = async |key| action(&router, key, "ListQueues", json!({})).await["__type"].clone();
    let throttled = json!("com.amazonaws.sqs#RequestThrottled");
    for key in keys {
        assert_eq!(list(key).await, Value::Null);
        let wrong = || list([key[0], "another secret"]);
        let mut answers: FuturesUnordered<_> = (0..20).map(|_| wrong()).collect();
        // Some of them are checked, and the others have to wait for that.
        let wrong = "com.amazon.coral.service#InvalidSignatureException";
        assert_eq!(answers.next().await.unwrap(), wrong);
        while answers.next().await.unwrap() != throttled {}
    }
    let [long, short] = keys;
    assert_eq!(list(long).await, Value::Null);
    // One that may be guessed has to wait, used or not.
    assert_ne!(tokio::time::timeout(Duration::from_secs(1), list(short)).await, Ok(Value::Null));
}
