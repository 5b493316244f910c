//! Requests to the router: what boto3, which speaks only one of the protocols, does not show.

#![allow(clippy::unwrap_used, clippy::panic, reason = "test code")]

mod dead;
mod deletions;
mod refusals;
mod users;

use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::http::request::Builder;
use axum::http::{Request, StatusCode};
use axum::response::Response;
use delayline::admin::{Listed, SetLimits};
use delayline::codec::Raw;
use delayline::message::MessageState;
use delayline::{Bytes, Connection, Found, Queue};
use delayline_sqs::{Access, AccessKey, Router, Sqs};
use delayline_test_server::proxy::{Fault, Proxy};
use delayline_test_server::{Reply, Server};
use delayline_web::Role;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use serde_json::{Value, json};
use tower::ServiceExt as _;

async fn served() -> (Connection, Router) {
    let connection = delayline::connect("memory:").await.unwrap();
    let router = served_too(&connection).await;
    (connection, router)
}

/// A server of the same queues.
async fn served_too(connection: &Connection) -> Router {
    let access = Access::everyone(Role::Operator | Role::Worker);
    Sqs::new(connection.clone(), access).router().await.unwrap()
}

async fn answered(router: &Router, request: Builder, body: impl Into<Body>) -> Response {
    let request: Request<Body> = request.body(body.into()).unwrap();
    router.clone().oneshot(request).await.unwrap()
}

async fn text(response: Response) -> String {
    let bytes = to_bytes(response.into_body(), 1 << 20).await.unwrap();
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Sends a request in the JSON protocol.
async fn action(router: &Router, action: &str, input: Value) -> (StatusCode, Value) {
    let request = Request::post("/").header("x-amz-target", format!("AmazonSQS.{action}"));
    let response = answered(router, request, input.to_string()).await;
    (response.status(), serde_json::from_str(&text(response).await).unwrap())
}

/// Sends a request in the Query protocol.
async fn form(router: &Router, path: &str, body: &str) -> (StatusCode, String) {
    let request = Request::post(path).header("host", "sqs.example");
    let response = answered(router, request, body.to_owned()).await;
    (response.status(), text(response).await)
}

/// The text of the first element of this name.
fn element<'a>(xml: &'a str, name: &str) -> &'a str {
    let (_, rest) = xml.split_once(&format!("<{name}>")).unwrap_or_else(|| panic!("{xml}"));
    rest.split_once(&format!("</{name}>")).unwrap().0
}

#[tokio::test]
async fn the_query_protocol_sends_receives_and_deletes() {
    let (_, router) = served().await;
    let create = "Action=CreateQueue&QueueName=orders&Attribute.1.Name=VisibilityTimeout\
                  &Attribute.1.Value=50&Version=2012-11-05";
    let (status, xml) = form(&router, "/", create).await;
    assert_eq!(status, StatusCode::OK, "{xml}");
    assert_eq!(element(&xml, "QueueUrl"), "http://sqs.example/000000000000/orders");
    // To the URL of the queue, as older SDKs do.
    let path = "/000000000000/orders";
    let send = "Action=SendMessage&MessageBody=a%3Cb&MessageAttribute.1.Name=n\
                &MessageAttribute.1.Value.DataType=Number&MessageAttribute.1.Value.StringValue=7";
    let (_, xml) = form(&router, path, send).await;
    let id = element(&xml, "MessageId").to_owned();
    let receive = "Action=ReceiveMessage&AttributeName.1=All&MessageAttributeName.1=All";
    let (_, xml) = form(&router, path, receive).await;
    assert_eq!((element(&xml, "MessageId"), element(&xml, "Body")), (&*id, "a&lt;b"));
    assert_eq!(element(&xml, "StringValue"), "7");
    let receipt = element(&xml, "ReceiptHandle");
    let (status, xml) =
        form(&router, path, &format!("Action=DeleteMessage&ReceiptHandle={receipt}")).await;
    assert_eq!(status, StatusCode::OK, "{xml}");
    // The URL may have parameters, and all that an action needs.
    let (status, xml) =
        form(&router, &format!("{path}?Action=SendMessage&MessageBody=b"), "").await;
    assert_eq!(status, StatusCode::OK, "{xml}");
    let (status, xml) = form(&router, path, "Action=PurgeQueue").await;
    assert_eq!(status, StatusCode::OK, "{xml}");
    let (status, xml) = form(&router, "/", "Action=GetQueueUrl&QueueName=unknown").await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert_eq!(element(&xml, "Code"), "AWS.SimpleQueueService.NonExistentQueue");
    assert_eq!(element(&xml, "Type"), "Sender");
    let text = "The specified queue does not exist for this wsdl version.";
    assert_eq!(element(&xml, "Message"), text);
}

#[tokio::test]
async fn urls_of_queues_may_begin_with_a_path() {
    let connection = delayline::connect("memory:").await.unwrap();
    let sqs = Sqs::new(connection, Access::everyone(Role::Operator));
    let router = sqs.public_url("https://sqs.example/a/").router().await.unwrap();
    let (_, xml) = form(&router, "/a/", "Action=CreateQueue&QueueName=orders").await;
    let url = element(&xml, "QueueUrl").to_owned();
    assert_eq!(url, "https://sqs.example/a/000000000000/orders");
    let send = json!({"QueueUrl": url, "MessageBody": "x"});
    let (status, answer) = action(&router, "SendMessage", send).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
    // A proxy may have removed the path.
    for path in ["/a/000000000000/orders", "/000000000000/orders"] {
        let (status, xml) = form(&router, path, "Action=SendMessage&MessageBody=x").await;
        assert_eq!(status, StatusCode::OK, "{xml}");
    }
}

#[tokio::test]
async fn changes_of_a_queue_at_the_same_time_all_stay() {
    let (connection, router) = served().await;
    let routers = [router, served_too(&connection).await];
    let (_, queue) = action(&routers[0], "CreateQueue", json!({"QueueName": "orders"})).await;
    let url = &queue["QueueUrl"];
    let tag = |n: usize| {
        let input = json!({"QueueUrl": url, "Tags": {n.to_string(): "x"}});
        let router = routers[n % 2].clone();
        async move { action(&router, "TagQueue", input).await }
    };
    let mut tags: FuturesUnordered<_> = (0..20).map(tag).collect();
    while let Some((status, answer)) = tags.next().await {
        assert_eq!(status, StatusCode::OK, "{answer}");
    }
    let (_, answer) = action(&routers[0], "ListQueueTags", json!({"QueueUrl": url})).await;
    assert_eq!(answer["Tags"].as_object().unwrap().len(), 20, "{answer}");
}

#[tokio::test]
async fn a_creation_is_repeated_with_attributes_that_are_not_shown_or_empty() {
    let (_, router) = served().await;
    let create = |name: &str, value: &str| {
        let input = json!({"QueueName": "orders", "Attributes": {name: value}});
        let router = router.clone();
        async move { action(&router, "CreateQueue", input).await.0 }
    };
    let period = "KmsDataKeyReusePeriodSeconds";
    for (name, value) in
        [(period, "300"), (period, "300"), ("SqsManagedSseEnabled", ""), ("Policy", "")]
    {
        assert_eq!(create(name, value).await, StatusCode::OK, "{name}");
    }
    assert_eq!(create(period, "400").await, StatusCode::BAD_REQUEST);
    assert_eq!(create("SqsManagedSseEnabled", "false").await, StatusCode::BAD_REQUEST);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_minute_after_a_deletion_passes_by_the_clock_of_the_server_if_that_is_strict() {
    let server = Server::builder().own_clock().start();
    server.set_clock_step(-3_600_000);
    let connection = delayline::connect(&server.url()).await.unwrap();
    let lax = served_too(&connection).await;
    let strict = Sqs::new(connection, Access::everyone(Role::Operator)).strict(true);
    let router = strict.router().await.unwrap();
    let create = json!({"QueueName": "orders"});
    let (_, queue) = action(&router, "CreateQueue", create.clone()).await;
    assert_eq!(action(&router, "DeleteQueue", queue).await.0, StatusCode::OK);
    let (_, answer) = action(&router, "CreateQueue", create.clone()).await;
    assert_eq!(answer["__type"], "com.amazonaws.sqs#QueueDeletedRecently");
    assert_eq!(action(&lax, "CreateQueue", create).await.0, StatusCode::OK);
}

#[tokio::test]
async fn programs_and_sdks_use_one_queue() {
    let (connection, router) = served().await;
    let queue: Queue<Bytes, Raw> = connection.queue("shop/orders").await.unwrap().codec(Raw);
    let draft = queue.message(&Bytes::from_static(b"from a program")).id("order-1");
    let sent = draft.header("tenant", "a").header("blob", vec![255]).group("g").send().await;
    assert!(sent.unwrap().is_accepted());
    let url = "http://localhost/000000000000/shop/orders";
    let receive = json!({
        "QueueUrl": url, "AttributeNames": ["All"], "MessageAttributeNames": ["All"],
    });
    let (_, answer) = action(&router, "ReceiveMessage", receive).await;
    let message = &answer["Messages"][0];
    assert_eq!(
        (&message["MessageId"], &message["Body"]),
        (&json!("order-1"), &json!("from a program"))
    );
    assert_eq!(
        message["MessageAttributes"],
        json!({
            "blob": {"DataType": "Binary", "BinaryValue": "/w=="},
            "tenant": {"DataType": "String", "StringValue": "a"},
        })
    );
    assert_eq!(message["Attributes"]["MessageGroupId"], "g");
    let send = json!({
        "QueueUrl": url,
        "MessageBody": "from an SDK",
        "DelaySeconds": 86_400,
        "MessageAttributes": {"n": {"DataType": "Number", "StringValue": "7"}},
    });
    let (_, answer) = action(&router, "SendMessage", send).await;
    let id = answer["MessageId"].as_str().unwrap();
    let Found::Live(message) = queue.get(id).await.unwrap() else { panic!("it was sent") };
    assert_eq!(message.payload, "from an SDK");
    assert_eq!(message.headers.get("n"), Some(&Bytes::from_static(b"7")));
    let due = message.info.due.since(message.info.enqueued_at);
    assert_eq!(due.as_secs(), 86_400);
}

/// Settings may be damaged, and programs may store any.
#[tokio::test]
async fn stored_numbers_beyond_their_limits_have_their_defaults() {
    let (connection, router) = served().await;
    let settings: Queue<Value> = connection.queue("sqs-settings").await.unwrap();
    let [most, none] = [u64::MAX.to_string(), String::new()];
    let attributes = json!({
        "VisibilityTimeout": most, "ReceiveMessageWaitTimeSeconds": most, "DelaySeconds": none,
        "MessageRetentionPeriod": most, "MaximumMessageSize": "65536",
    });
    let draft = settings.message(&json!({ "attributes": attributes })).id("orders");
    let sent = draft.due_in(Duration::from_secs(3_600)).send().await.unwrap();
    assert!(sent.is_accepted());
    let queue = json!({"QueueUrl": "http://sqs.example/000000000000/orders"});
    let asked = |more: Value| {
        let mut input = queue.clone();
        input.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        input
    };
    let body = asked(json!({"MessageBody": "x"}));
    assert_eq!(action(&router, "SendMessage", body).await.0, StatusCode::OK);
    let (status, answer) = action(&router, "ReceiveMessage", asked(json!({}))).await;
    assert_eq!((status, &answer["Messages"][0]["Body"]), (StatusCode::OK, &json!("x")), "{answer}");
    let all = asked(json!({"AttributeNames": ["All"]}));
    let shown = action(&router, "GetQueueAttributes", all).await.1["Attributes"].clone();
    assert_eq!(
        (&shown["VisibilityTimeout"], &shown["MaximumMessageSize"]),
        (&json!("30"), &json!("65536"))
    );
}

#[tokio::test]
async fn a_fifo_queue_that_programs_have_used_is_in_order() {
    let (connection, router) = served().await;
    let queue: Queue<str> = connection.queue("orders.fifo").await.unwrap();
    queue.set_limits(SetLimits::new().leased(7)).await.unwrap();
    for payload in ["a", "b"] {
        assert!(queue.message(payload).group("g").send().await.unwrap().is_accepted());
    }
    let receive = json!({"QueueUrl": "/000000000000/orders.fifo"});
    for expected in [json!("\"a\""), json!(null)] {
        let (_, answer) = action(&router, "ReceiveMessage", receive.clone()).await;
        assert_eq!(answer["Messages"][0]["Body"], expected);
    }
    let limits = queue.stats().await.unwrap().limits;
    assert_eq!((limits.in_order, limits.leased), (true, Some(7)));
}

#[tokio::test]
async fn a_fifo_queue_is_in_order_again_after_its_limits_were_lost() {
    let (connection, router) = served().await;
    let create = json!({"QueueName": "orders.fifo", "Attributes": {"FifoQueue": "true"}});
    let (_, created) = action(&router, "CreateQueue", create).await;
    let orders: Queue<Bytes> = connection.queue("orders.fifo").await.unwrap();
    action(&router, "ReceiveMessage", created.clone()).await;
    assert!(orders.set_limits(SetLimits::new().in_order(false)).await.unwrap());
    until(async || {
        action(&router, "ReceiveMessage", created.clone()).await;
        orders.limits().await.unwrap().in_order
    })
    .await;
}

/// A policy that moves messages to this queue at their second receive.
fn redrive_to(dead: &str) -> String {
    let arn = format!("arn:aws:sqs:us-east-1:000000000000:{dead}");
    json!({"deadLetterTargetArn": arn, "maxReceiveCount": 1}).to_string()
}

/// Creates a queue whose messages are moved to the queue `dead` at their second receive. Returns
/// the answer, which has its URL.
async fn orders_with_a_redrive_policy(router: &Router) -> Value {
    let attributes = json!({"RedrivePolicy": redrive_to("dead")});
    let create = json!({"QueueName": "orders", "Attributes": attributes});
    action(router, "CreateQueue", create).await.1
}

#[tokio::test]
async fn a_dead_letter_queue_may_refuse_sources() {
    let (_, router) = served().await;
    let allow = json!({"RedriveAllowPolicy": r#"{"redrivePermission":"denyAll"}"#});
    action(&router, "CreateQueue", json!({"QueueName": "dead", "Attributes": allow})).await;
    let answer = orders_with_a_redrive_policy(&router).await;
    assert!(answer["message"].as_str().unwrap().contains("does not permit"), "{answer}");
}

/// Returns the message.
async fn receive_and_release(router: &Router, created: &Value) -> Value {
    let url = &created["QueueUrl"];
    let receive = json!({"QueueUrl": url, "AttributeNames": ["All"], "WaitTimeSeconds": 20});
    let (_, answer) = action(router, "ReceiveMessage", receive).await;
    let message = &answer["Messages"][0];
    let handle = &message["ReceiptHandle"];
    let release = json!({"QueueUrl": url, "ReceiptHandle": handle, "VisibilityTimeout": 0});
    assert_eq!(action(router, "ChangeMessageVisibility", release).await.0, StatusCode::OK);
    message.clone()
}

#[tokio::test]
async fn a_dead_letter_expires_and_may_have_no_room_for_its_origin() {
    let (connection, router) = served().await;
    let dead = json!({"QueueName": "dead", "Attributes": {"MessageRetentionPeriod": "60"}});
    action(&router, "CreateQueue", dead).await;
    let created = orders_with_a_redrive_policy(&router).await;
    let queue: Queue<str> = connection.queue("orders").await.unwrap();
    let draft = queue.message("x").id("order-1").header("h", vec![b'7'; 8_180]);
    assert!(draft.send().await.unwrap().is_accepted());
    receive_and_release(&router, &created).await;
    let (status, answer) = action(&router, "ReceiveMessage", created).await;
    assert_eq!((status, &answer["Messages"]), (StatusCode::OK, &json!(null)), "{answer}");
    let dead: Queue<str> = connection.queue("dead").await.unwrap();
    let page = dead.list(Listed::Ready).next_page().await.unwrap().unwrap();
    let expires = page[0].expires_at.unwrap().since(page[0].enqueued_at);
    assert_eq!((page.len(), expires.as_secs()), (1, 60));
}

#[tokio::test]
async fn a_dead_letter_that_cannot_move_holds_up_no_other_message() {
    let (connection, router) = served().await;
    action(&router, "CreateQueue", json!({"QueueName": "dead"})).await;
    let created = orders_with_a_redrive_policy(&router).await;
    let [queue, dead] = ["orders", "dead"].map(|name| connection.queue::<str>(name));
    let (queue, dead): (Queue<str>, Queue<str>) = (queue.await.unwrap(), dead.await.unwrap());
    assert!(queue.message("a").id("a").send().await.unwrap().is_accepted());
    let page = queue.list(Listed::Ready).next_page().await.unwrap().unwrap();
    // Other messages have its id, and the id that it would get instead.
    let numbers = [page[0].sequence, page[0].enqueued_at.as_ms()];
    let parts = [&numbers.map(u64::to_be_bytes).concat()[..], b"orders", b"\0", b"a"].concat();
    let hash = ring::digest::digest(&ring::digest::SHA256, &parts);
    let other = uuid::Builder::from_random_bytes(*hash.as_ref().first_chunk().unwrap());
    for id in ["a", &other.into_uuid().to_string()] {
        assert!(dead.message("other").id(id).send().await.unwrap().is_accepted());
    }
    receive_and_release(&router, &created).await;
    assert!(queue.message("b").id("b").send().await.unwrap().is_accepted());
    let receive = json!({"QueueUrl": created["QueueUrl"], "MaxNumberOfMessages": 10});
    let (status, answer) = action(&router, "ReceiveMessage", receive).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
    assert_eq!(answer["Messages"].as_array().unwrap().len(), 1);
    assert_eq!(answer["Messages"][0]["Body"], "\"b\"");
    assert_eq!(queue.stats().await.unwrap().leased, 2);
}

#[tokio::test]
async fn an_attempt_whose_messages_were_deleted_receives_others() {
    let (_, router) = served().await;
    let create = json!({"QueueName": "q.fifo", "Attributes": {"FifoQueue": "true"}});
    let (_, created) = action(&router, "CreateQueue", create).await;
    let url = &created["QueueUrl"];
    for body in ["a", "b"] {
        let send = json!({
            "QueueUrl": url, "MessageBody": body, "MessageGroupId": "g",
            "MessageDeduplicationId": body,
        });
        assert_eq!(action(&router, "SendMessage", send).await.0, StatusCode::OK);
    }
    let receive = json!({"QueueUrl": url, "ReceiveRequestAttemptId": "1"});
    for body in ["a", "b"] {
        let (_, answer) = action(&router, "ReceiveMessage", receive.clone()).await;
        assert_eq!(answer["Messages"][0]["Body"], body, "{answer}");
        let handle = &answer["Messages"][0]["ReceiptHandle"];
        let delete = json!({"QueueUrl": url, "ReceiptHandle": handle});
        assert_eq!(action(&router, "DeleteMessage", delete).await.0, StatusCode::OK);
    }
}

#[tokio::test]
async fn a_repeated_attempt_begins_the_visibility_timeout_again() {
    let (connection, router) = served().await;
    let queue: Queue<str> = connection.queue("q.fifo").await.unwrap();
    assert!(queue.message("x").group("g").send().await.unwrap().is_accepted());
    let mut handles = Vec::new();
    for timeout_s in [60, 600, 60] {
        let receive = json!({
            "QueueUrl": "/000000000000/q.fifo", "ReceiveRequestAttemptId": "1",
            "VisibilityTimeout": timeout_s,
        });
        let (_, answer) = action(&router, "ReceiveMessage", receive).await;
        handles.push(answer["Messages"][0]["ReceiptHandle"].clone());
    }
    assert!(handles[0].is_string() && handles.iter().all(|it| *it == handles[0]), "{handles:?}");
    let page = queue.list(Listed::Leased).next_page().await.unwrap().unwrap();
    let MessageState::Leased { deadline, .. } = page[0].state else { panic!("{:?}", page[0]) };
    assert!(deadline.since(page[0].enqueued_at) >= Duration::from_secs(600));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_visibility_timeout_is_changed_only_before_its_end() {
    let server = Server::builder().own_clock().start();
    let connection = delayline::connect(&server.url()).await.unwrap();
    let strict = Sqs::new(connection.clone(), Access::everyone(Role::Worker)).strict(true);
    let router = strict.router().await.unwrap();
    let mut receipts = Vec::new();
    for name in ["q", "q.fifo"] {
        let queue: Queue<str> = connection.queue(name).await.unwrap();
        assert!(queue.message("x").group("g").send().await.unwrap().is_accepted());
        let url = format!("/000000000000/{name}");
        let receive = json!({"QueueUrl": url, "VisibilityTimeout": 60});
        let (_, answer) = action(&router, "ReceiveMessage", receive).await;
        receipts.push((url, answer["Messages"][0]["ReceiptHandle"].clone()));
    }
    let change = async |(url, handle): &(String, Value), timeout_s: u64| {
        let change = json!({
            "QueueUrl": url, "ReceiptHandle": handle, "VisibilityTimeout": timeout_s,
        });
        action(&router, "ChangeMessageVisibility", change).await.1.to_string()
    };
    for (clock_ms, timeout_s, standard, fifo) in [
        (0, 60, "{}", "{}"),
        (2_000, 43_200, "beyond the limit", "beyond the limit"),
        (62_000, 30, "MessageNotInflight", "handle has expired"),
    ] {
        server.set_clock_step(clock_ms);
        for (receipt, expected) in receipts.iter().zip([standard, fifo]) {
            let answer = change(receipt, timeout_s).await;
            assert!(answer.contains(expected), "{clock_ms} {answer}");
        }
    }
}

#[tokio::test]
async fn the_first_receive_is_remembered() {
    let (connection, router) = served().await;
    let queue: Queue<str> = connection.queue("orders").await.unwrap();
    let due = std::time::SystemTime::now() - Duration::from_secs(3_600);
    assert!(queue.message("x").due_at(due).send().await.unwrap().is_accepted());
    let url = "/000000000000/orders";
    let mut receives = Vec::new();
    for _ in 0..2 {
        let receive = json!({"QueueUrl": url, "AttributeNames": ["All"]});
        let (_, answer) = action(&router, "ReceiveMessage", receive).await;
        let message = &answer["Messages"][0];
        receives.push(message["Attributes"]["ApproximateFirstReceiveTimestamp"].clone());
        let handle = &message["ReceiptHandle"];
        let release = json!({"QueueUrl": url, "ReceiptHandle": handle, "VisibilityTimeout": 0});
        action(&router, "ChangeMessageVisibility", release).await;
    }
    assert_eq!(receives[1], receives[0]);
}

#[tokio::test]
async fn an_answer_that_no_client_takes_leaves_no_lease() {
    let (connection, router) = served().await;
    let queue: Queue<str> = connection.queue("orders").await.unwrap();
    queue.send("x").await.unwrap();
    let receive = json!({"QueueUrl": "/000000000000/orders"}).to_string();
    let request = || Request::post("/").header("x-amz-target", "AmazonSQS.ReceiveMessage");
    let response = answered(&router, request(), receive.clone()).await;
    assert_eq!(queue.stats().await.unwrap().leased, 1);
    drop(response);
    // The release runs in a separate task, and wakes a receive that waits.
    let waits = json!({"QueueUrl": "/000000000000/orders", "WaitTimeSeconds": 20});
    let (_, answer) = action(&router, "ReceiveMessage", waits).await;
    assert_eq!(answer["Messages"][0]["Body"], "\"x\"");
    assert_eq!(queue.list(Listed::Leased).next_page().await.unwrap().unwrap().len(), 1);
}

#[tokio::test]
async fn errors_have_the_names_of_both_protocols() {
    let (_, router) = served().await;
    let request = Request::post("/").header("x-amz-target", "AmazonSQS.GetQueueUrl");
    let response = answered(&router, request, r#"{"QueueName":"unknown"}"#).await;
    assert_eq!(response.status(), StatusCode::BAD_REQUEST);
    assert_eq!(
        response.headers()["x-amzn-query-error"],
        "AWS.SimpleQueueService.NonExistentQueue;Sender"
    );
    let value: Value = serde_json::from_str(&text(response).await).unwrap();
    assert_eq!(value["__type"], "com.amazonaws.sqs#QueueDoesNotExist");
    assert_eq!(value["message"], "The specified queue does not exist.");
    for (target, body) in [
        ("AmazonSQS.Unknown", "{}"),
        ("AmazonSNS.Publish", "{}"),
        ("", "{}"),
        ("AmazonSQS.SendMessage", "["),
        ("AmazonSQS.SendMessage", "[]"),
        ("AmazonSQS.SendMessage", "{}"),
        ("AmazonSQS.SendMessage", &"[".repeat(100_000)),
        ("AmazonSQS.SendMessageBatch", r#"{"QueueUrl":"/000000000000/q","Entries":7}"#),
    ] {
        let request = Request::post("/").header("x-amz-target", target);
        let response = answered(&router, request, body.to_owned()).await;
        assert_eq!(response.status(), StatusCode::BAD_REQUEST, "{target} {body:.20}");
    }
}

#[tokio::test]
async fn requests_of_other_sites_and_without_a_signature_are_refused() {
    let (connection, router) = served().await;
    let body = "Action=CreateQueue&QueueName=orders";
    for request in [
        Request::post("/").header("sec-fetch-site", "cross-site"),
        Request::get("/?Action=ListQueues").header("sec-fetch-site", "cross-site"),
        Request::get(format!("/?{body}")),
        Request::put("/"),
    ] {
        assert_eq!(answered(&router, request, body).await.status(), StatusCode::FORBIDDEN);
    }
    for request in [
        Request::get("/?Action=ListQueues"),
        Request::get(format!("/?{body}")).header("x-amz-date", "20260101T000000Z"),
    ] {
        assert_eq!(answered(&router, request, "").await.status(), StatusCode::OK);
    }
    let key = AccessKey::new("shop", "a secret", Role::Operator);
    assert!(!format!("{key:?}").contains("a secret"));
    let router = Sqs::new(connection, Access::keys([key])).router().await.unwrap();
    let (status, xml) = form(&router, "/", body).await;
    assert_eq!(status, StatusCode::FORBIDDEN);
    assert_eq!(element(&xml, "Code"), "MissingAuthenticationToken");
    // Of many wrong signatures at once, some are checked, and some have to wait for that.
    let wrong = || async {
        let credential = "Credential=shop/20260101/us-east-1/sqs/aws4_request";
        let signed = format!("AWS4-HMAC-SHA256 {credential}, SignedHeaders=host, Signature=0");
        let request = Request::post("/").header("host", "x").header("authorization", signed);
        let request = request.header("x-amz-date", "20260101T000000Z");
        text(answered(&router, request, body).await).await
    };
    let mut answers: FuturesUnordered<_> = (0..20).map(|_| wrong()).collect();
    let first = answers.next().await.unwrap();
    assert_eq!(element(&first, "Code"), "SignatureDoesNotMatch");
    while element(&answers.next().await.unwrap(), "Code") != "RequestThrottled" {}
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deletion_whose_reply_is_lost_removes_the_messages() {
    let server = Server::start();
    let proxy = Proxy::start_unix(&server).await.unwrap();
    let connection = delayline::connect(proxy.url()).await.unwrap();
    let router = served_too(&connection).await;
    let (_, created) = action(&router, "CreateQueue", json!({"QueueName": "orders"})).await;
    let queue = json!({"QueueUrl": created["QueueUrl"]});
    let send = json!({"QueueUrl": created["QueueUrl"], "MessageBody": "x"});
    assert_eq!(action(&router, "SendMessage", send).await.0, StatusCode::OK);
    // From here on, the server knows the script and executes the call whose reply is lost.
    let tag = json!({"QueueUrl": created["QueueUrl"], "Tags": {"a": "b"}});
    assert_eq!(action(&router, "TagQueue", tag).await.0, StatusCode::OK);
    proxy.once(Fault::CutAfterExecution, &br#""is_deleted":true"#[..]);
    let (status, answer) = action(&router, "DeleteQueue", queue).await;
    assert_eq!((status, proxy.faults()), (StatusCode::OK, 1), "{answer}");
    let orders: Queue<Bytes> = connection.queue("orders").await.unwrap();
    assert_eq!(orders.stats().await.unwrap().ready, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn another_server_ends_a_deletion() {
    let server = Server::start();
    let proxy = Proxy::start_unix(&server).await.unwrap();
    let fails = served_too(&delayline::connect(proxy.url()).await.unwrap()).await;
    let create = json!({"QueueName": "orders"});
    let (_, created) = action(&fails, "CreateQueue", create.clone()).await;
    let queue = json!({"QueueUrl": created["QueueUrl"]});
    let send = json!({"QueueUrl": created["QueueUrl"], "MessageBody": "x"});
    let (_, sent) = action(&fails, "SendMessage", send.clone()).await;
    // The first server is cut off when it begins to remove messages.
    proxy.once(Fault::Blackhole, sent["MessageId"].as_str().unwrap());
    let deletes = tokio::spawn(async move { action(&fails, "DeleteQueue", queue).await });
    until(async || proxy.faults() == 1).await;
    proxy.set(Fault::Blackhole);
    let connection = delayline::connect(&server.url()).await.unwrap();
    let router = served_too(&connection).await;
    let name_of = |(_, answer): (StatusCode, Value)| answer["__type"].to_string();
    assert!(name_of(action(&router, "SendMessage", send).await).contains("QueueDoesNotExist"));
    let refused = name_of(action(&router, "CreateQueue", create.clone()).await);
    assert!(refused.contains("QueueDeletedRecently"), "{refused}");
    until(async || action(&router, "CreateQueue", create.clone()).await.0 == StatusCode::OK).await;
    let orders: Queue<Bytes> = connection.queue("orders").await.unwrap();
    assert_eq!(orders.stats().await.unwrap().ready, 0);
    deletes.abort();
}

/// Waits up to a minute for a condition.
async fn until(mut is_met: impl AsyncFnMut() -> bool) {
    let met = async {
        while !is_met().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), met).await.unwrap();
}
