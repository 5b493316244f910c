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
