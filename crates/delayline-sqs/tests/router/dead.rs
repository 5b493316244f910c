//! Dead letters, as Amazon SQS shows them.

use crate::*;

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_letter_has_the_attributes_of_its_kind_of_queue() {
    let server = Server::builder().own_clock().start();
    let router = served_too(&delayline::connect(&server.url()).await.unwrap()).await;
    for (suffix, step_ms) in [("", 60_000), (".fifo", 120_000)] {
        let is_fifo = !suffix.is_empty();
        let of_kind = |mut value: Value, more: Value| {
            let more = more.as_object().filter(|_| is_fifo).cloned();
            value.as_object_mut().unwrap().extend(more.into_iter().flatten());
            value
        };
        let create = async |name: &str, policy: &str| {
            let attributes = json!({"RedrivePolicy": policy});
            let attributes = of_kind(attributes, json!({"FifoQueue": "true"}));
            let create = json!({"QueueName": name.to_owned() + suffix, "Attributes": attributes});
            action(&router, "CreateQueue", create).await.1
        };
        let dead = create("dead", "").await;
        let orders = create("orders", &redrive_to(&format!("dead{suffix}"))).await;
        let send = json!({"QueueUrl": orders["QueueUrl"], "MessageBody": "x"});
        let in_group = json!({"MessageGroupId": "g", "MessageDeduplicationId": "d"});
        let (status, answer) = action(&router, "SendMessage", of_kind(send, in_group)).await;
        assert_eq!(status, StatusCode::OK, "{answer}");
        let sent_ms = |message: &Value| {
            message["Attributes"]["SentTimestamp"].as_str().unwrap().parse::<u64>().unwrap()
        };
        let first = receive_and_release(&router, &orders).await;
        server.set_clock_step(step_ms);
        let (_, answer) = action(&router, "ReceiveMessage", orders.clone()).await;
        assert!(answer["Messages"].is_null(), "{answer}");
        let letter = receive_and_release(&router, &dead).await;
        let id = if is_fifo { first["MessageId"].clone() } else { Value::Null };
        assert_eq!(letter["Attributes"]["MessageDeduplicationId"], id);
        assert_eq!(sent_ms(&letter) > sent_ms(&first), is_fifo);
        let task = json!({"SourceArn": format!("arn:aws:sqs:us-east-1:000000000000:dead{suffix}")});
        let (status, answer) = action(&router, "StartMessageMoveTask", task).await;
        assert_eq!(status, StatusCode::OK, "{answer}");
        let returned = receive_and_release(&router, &orders).await;
        assert!(sent_ms(&returned) > sent_ms(&first));
        assert_ne!(returned["MessageId"], letter["MessageId"]);
    }
}
