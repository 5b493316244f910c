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
