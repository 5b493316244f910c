//! Requests that Amazon SQS refuses.

use crate::*;

#[tokio::test]
async fn a_creation_repeats_the_tags_of_the_queue() {
    let (_, router) = served().await;
    for (tags, expected) in [
        (json!({"a": "1"}), json!(null)),
        (json!({"a": "1"}), json!(null)),
        (json!({}), json!(null)),
        (json!({"a": "2"}), json!("com.amazonaws.sqs#QueueNameExists")),
        (json!({"a": "1", "b": "1"}), json!("com.amazonaws.sqs#QueueNameExists")),
    ] {
        let create = json!({"QueueName": "orders", "tags": tags});
        let (_, answer) = action(&router, "CreateQueue", create).await;
        assert_eq!(answer["__type"], expected, "{answer}");
    }
}

#[tokio::test]
async fn a_standard_queue_has_no_attributes_of_fifo_queues() {
    let (_, router) = served().await;
    for (name, attributes, refused) in
        [("q", json!({}), true), ("q.fifo", json!({"FifoQueue": "true"}), false)]
    {
        let create = json!({"QueueName": name, "Attributes": attributes});
        let url = action(&router, "CreateQueue", create).await.1["QueueUrl"].clone();
        for asked in ["FifoQueue", "DeduplicationScope"] {
            let get = json!({"QueueUrl": url, "AttributeNames": [asked]});
            let answer = action(&router, "GetQueueAttributes", get).await.1.to_string();
            assert_eq!(answer.contains("#InvalidAttributeName"), refused, "{answer}");
        }
    }
}

#[tokio::test]
async fn an_expired_receipt_has_another_error_in_a_batch() {
    let (connection, router) = served().await;
    let queue: Queue<str> = connection.queue("q.fifo").await.unwrap();
    assert!(queue.message("x").group("g").send().await.unwrap().is_accepted());
    let url = json!({"QueueUrl": "/000000000000/q.fifo"});
    let handle = receive_and_release(&router, &url).await["ReceiptHandle"].clone();
    let delete = json!({"QueueUrl": url["QueueUrl"], "ReceiptHandle": handle});
    let (_, answer) = action(&router, "DeleteMessage", delete).await;
    assert!(answer["__type"].as_str().unwrap().ends_with("InvalidParameterValueException"));
    let entries = json!([{"Id": "a", "ReceiptHandle": handle}]);
    let delete = json!({"QueueUrl": url["QueueUrl"], "Entries": entries});
    let (_, answer) = action(&router, "DeleteMessageBatch", delete).await;
    let failed = &answer["Failed"][0];
    assert_eq!(failed["Code"], "ReceiptHandleIsInvalid", "{answer}");
    assert_eq!(failed["Message"], "The receipt handle has expired");
}
