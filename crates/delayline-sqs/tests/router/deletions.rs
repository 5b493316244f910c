//! Deletions of queues, and requests to a server that is full or away.

use delayline::{Bytes, Queue};

use crate::*;

#[tokio::test]
async fn a_change_does_not_bring_a_deleted_queue_back() {
    let (connection, router) = served().await;
    for changes_at in [&router, &served_too(&connection).await] {
        let (_, queue) = action(&router, "CreateQueue", json!({"QueueName": "orders"})).await;
        let input = json!({"QueueUrl": queue["QueueUrl"], "Tags": {"a": "x"}});
        let (deleted, changed) = tokio::join!(
            action(&router, "DeleteQueue", input.clone()),
            action(changes_at, "TagQueue", input),
        );
        assert_eq!(deleted.0, StatusCode::OK);
        let (_, answer) = action(&router, "ListQueues", json!({})).await;
        assert!(answer["QueueUrls"].is_null(), "{} {answer}", changed.1);
    }
}

#[tokio::test]
async fn a_waiting_receive_ends_with_its_queue() {
    let (connection, router) = served().await;
    let create = json!({"QueueName": "orders"});
    let (_, queue) = action(&router, "CreateQueue", create.clone()).await;
    // From here on, the settings are known, so that the receive begins before the deletion.
    action(&router, "ReceiveMessage", queue.clone()).await;
    let url = &queue["QueueUrl"];
    let receive = json!({"QueueUrl": url, "WaitTimeSeconds": 20});
    let next = async {
        assert_eq!(action(&router, "DeleteQueue", queue.clone()).await.0, StatusCode::OK);
        assert_eq!(action(&router, "CreateQueue", create).await.0, StatusCode::OK);
        let send = json!({"QueueUrl": url, "MessageBody": "x"});
        assert_eq!(action(&router, "SendMessage", send).await.0, StatusCode::OK);
    };
    let ((status, answer), ()) = tokio::join!(action(&router, "ReceiveMessage", receive), next);
    assert_eq!((status, answer), (StatusCode::OK, json!({})));
    let orders: Queue<Bytes> = connection.queue("orders").await.unwrap();
    assert_eq!(orders.stats().await.unwrap().ready, 1);
}

/// The settings of a deleted queue are due by the clock of the Redis server, which may be ahead.
#[tokio::test(flavor = "multi_thread")]
async fn the_second_removal_is_due_by_the_clock_of_the_server() {
    let server = Server::builder().own_clock().start();
    let connect = async || delayline::connect(&server.url()).await.unwrap();
    let connection = connect().await;
    let router = served_too(&connection).await;
    let create = json!({"QueueName": "orders"});
    let (_, queue) = action(&router, "CreateQueue", create.clone()).await;
    assert_eq!(action(&router, "DeleteQueue", queue).await.0, StatusCode::OK);
    server.set_clock_step(20_000);
    // Its worker claims at once.
    let router = served_too(&connect().await).await;
    let settings: Queue<Bytes> = connection.queue(delayline_sqs::SETTINGS_QUEUE).await.unwrap();
    until(async || settings.stats().await.unwrap().totals.snoozed >= 2).await;
    let (status, answer) = action(&router, "CreateQueue", create).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
}

/// Of two queues, one has a message in flight at another server.
#[tokio::test(flavor = "multi_thread")]
async fn the_settings_of_deleted_queues_end_when_nothing_is_left() {
    let server = Server::builder().own_clock().start();
    let connect = async || delayline::connect(&server.url()).await.unwrap();
    let connection = connect().await;
    let routers = [served_too(&connection).await, served_too(&connection).await];
    for name in ["idle", "busy"] {
        let (_, queue) = action(&routers[0], "CreateQueue", json!({"QueueName": name})).await;
        if name == "busy" {
            let send = json!({"QueueUrl": queue["QueueUrl"], "MessageBody": "x"});
            assert_eq!(action(&routers[0], "SendMessage", send).await.0, StatusCode::OK);
            let receive = json!({"QueueUrl": queue["QueueUrl"], "VisibilityTimeout": 90});
            let (_, answer) = action(&routers[1], "ReceiveMessage", receive).await;
            assert_eq!(answer["Messages"][0]["Body"], "x", "{answer}");
        }
        assert_eq!(action(&routers[0], "DeleteQueue", queue).await.0, StatusCode::OK);
    }
    drop(routers);
    let settings: Queue<Bytes> = connection.queue(delayline_sqs::SETTINGS_QUEUE).await.unwrap();
    for (step_ms, ended) in [(70_000, 1), (150_000, 2)] {
        server.set_clock_step(step_ms);
        // Its worker claims at once.
        let _router = served_too(&connect().await).await;
        until(async || settings.stats().await.unwrap().totals.acked == ended).await;
    }
    let keys = server.command(&["KEYS", "delayline:{busy}:*"]);
    assert_eq!(keys, Reply::Array(Vec::new()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deletion_after_a_step_back_of_the_clock_removes_the_messages() {
    let server = Server::builder().own_clock().start();
    let connection = delayline::connect(&server.url()).await.unwrap();
    let router = served_too(&connection).await;
    let (_, queue) = action(&router, "CreateQueue", json!({"QueueName": "orders"})).await;
    let send = json!({"QueueUrl": queue["QueueUrl"], "MessageBody": "x"});
    assert_eq!(action(&router, "SendMessage", send).await.0, StatusCode::OK);
    server.set_clock_step(-60_000);
    assert_eq!(action(&router, "DeleteQueue", queue).await.0, StatusCode::OK);
    let orders: Queue<Bytes> = connection.queue("orders").await.unwrap();
    let stats = orders.stats().await.unwrap();
    assert_eq!((stats.scheduled, stats.ready), (0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_of_a_fifo_queue_are_received_and_deleted_at_a_full_server() {
    let server = Server::start();
    let connection = delayline::connect(&server.url()).await.unwrap();
    let router = served_too(&connection).await;
    let create = json!({"QueueName": "q.fifo", "Attributes": {"FifoQueue": "true"}});
    let (_, queue) = action(&router, "CreateQueue", create).await;
    let url = &queue["QueueUrl"];
    let send = json!({
        "QueueUrl": url, "MessageBody": "x", "MessageGroupId": "g", "MessageDeduplicationId": "1",
    });
    assert_eq!(action(&router, "SendMessage", send).await.0, StatusCode::OK);
    server.command(&["CONFIG", "SET", "maxmemory", "1"]);
    let (_, answer) = action(&router, "ReceiveMessage", json!({"QueueUrl": url})).await;
    let receipt = &answer["Messages"][0]["ReceiptHandle"];
    let delete = json!({"QueueUrl": url, "ReceiptHandle": receipt});
    let (status, answer) = action(&router, "DeleteMessage", delete).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
    let queue: Queue<Bytes> = connection.queue("q.fifo").await.unwrap();
    assert_eq!(queue.stats().await.unwrap().totals.acked, 1);
}

/// The second time, the known settings are older than they should be.
#[tokio::test(flavor = "multi_thread")]
async fn a_receive_waits_for_its_time_while_the_server_is_away() {
    let server = Server::start();
    let connection = delayline::connect(&server.url()).await.unwrap();
    let router = served_too(&connection).await;
    let (_, queue) = action(&router, "CreateQueue", json!({"QueueName": "orders"})).await;
    let receive = json!({"QueueUrl": queue["QueueUrl"], "WaitTimeSeconds": 4});
    assert_eq!(action(&router, "ReceiveMessage", queue).await.0, StatusCode::OK);
    server.kill();
    for _ in 0..2 {
        let begin = std::time::Instant::now();
        action(&router, "ReceiveMessage", receive.clone()).await;
        assert!(begin.elapsed() >= Duration::from_secs(4), "{:?}", begin.elapsed());
    }
}

#[tokio::test]
async fn a_send_at_another_server_does_not_bring_a_deleted_queue_back() {
    let (connection, router) = served().await;
    let other = served_too(&connection).await;
    let (_, queue) = action(&router, "CreateQueue", json!({"QueueName": "orders"})).await;
    let send = json!({"QueueUrl": queue["QueueUrl"], "MessageBody": "x"});
    assert_eq!(action(&other, "SendMessage", send.clone()).await.0, StatusCode::OK);
    assert_eq!(action(&router, "DeleteQueue", queue).await.0, StatusCode::OK);
    // This server still knows the settings of the queue.
    assert_eq!(action(&other, "SendMessage", send).await.0, StatusCode::OK);
    let orders: Queue<Bytes> = connection.queue("orders").await.unwrap();
    until(async || orders.stats().await.unwrap().ready == 0).await;
    let (_, answer) = action(&other, "GetQueueUrl", json!({"QueueName": "orders"})).await;
    assert_eq!(answer["__type"], "com.amazonaws.sqs#QueueDoesNotExist");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_purge_that_is_cut_off_is_repeated_at_another_server() {
    let server = Server::start();
    let proxies =
        [Proxy::start_unix(&server).await.unwrap(), Proxy::start_unix(&server).await.unwrap()];
    let mut routers = Vec::new();
    for proxy in &proxies {
        let connection = delayline::connect(proxy.url()).await.unwrap();
        let strict = Sqs::new(connection, Access::everyone(Role::Operator)).strict(true);
        routers.push(strict.router().await.unwrap());
    }
    let (_, queue) = action(&routers[0], "CreateQueue", json!({"QueueName": "orders"})).await;
    let send = json!({"QueueUrl": queue["QueueUrl"], "MessageBody": "x"});
    let (_, sent) = action(&routers[0], "SendMessage", send).await;
    // The first server is cut off when it begins to remove messages.
    proxies[0].once(Fault::Blackhole, sent["MessageId"].as_str().unwrap());
    let (router, purge) = (routers[0].clone(), queue.clone());
    let purges = tokio::spawn(async move { action(&router, "PurgeQueue", purge).await });
    until(async || proxies[0].faults() == 1).await;
    proxies[0].set(Fault::Blackhole);
    // The second one loses the reply when it stores that it has purged the queue.
    let tag = json!({"QueueUrl": queue["QueueUrl"], "Tags": {"a": "b"}});
    assert_eq!(action(&routers[1], "TagQueue", tag).await.0, StatusCode::OK);
    proxies[1].once(Fault::CutAfterExecution, &br#""purged_ms":"#[..]);
    let (status, answer) = action(&routers[1], "PurgeQueue", queue).await;
    // It tries to store the purge for two seconds, in which a busy machine may do nothing.
    assert!(status == StatusCode::OK || status.is_server_error(), "{status} {answer}");
    assert_eq!(proxies[1].faults(), 1);
    let connection = delayline::connect(&server.url()).await.unwrap();
    let orders: Queue<Bytes> = connection.queue("orders").await.unwrap();
    assert_eq!(orders.stats().await.unwrap().ready, 0);
    purges.abort();
}
