//! Dead letters, as Amazon SQS shows them.

use crate::*;

#[tokio::test]
async fn a_dead_letter_of_a_fifo_queue_has_its_id_as_deduplication_id() {
    let (_, router) = served().await;
    let fifo = json!({"FifoQueue": "true"});
    let create = json!({"QueueName": "dead.fifo", "Attributes": fifo});
    let (_, dead) = action(&router, "CreateQueue", create).await;
    let attributes = json!({"FifoQueue": "true", "RedrivePolicy": redrive_to("dead.fifo")});
    let create = json!({"QueueName": "orders.fifo", "Attributes": attributes});
    let (_, orders) = action(&router, "CreateQueue", create).await;
    let send = json!({
        "QueueUrl": orders["QueueUrl"], "MessageBody": "x", "MessageGroupId": "g",
        "MessageDeduplicationId": "d",
    });
    assert_eq!(action(&router, "SendMessage", send).await.0, StatusCode::OK);
    let first = receive_and_release(&router, &orders).await;
    assert_eq!(first["Attributes"]["MessageDeduplicationId"], "d");
    let (_, answer) = action(&router, "ReceiveMessage", orders).await;
    assert!(answer["Messages"].is_null(), "{answer}");
    let dead = receive_and_release(&router, &dead).await;
    assert_eq!(dead["Attributes"]["MessageDeduplicationId"], first["MessageId"]);
}
