//! `delayline serve --sqs`.

use std::os::unix::fs::PermissionsExt;

use crate::support::{
    Running, ask, count, get, listening, on, run, run_with_input, send, send_signal, start,
    wait_until,
};
use delayline_test_server::Server;
use serde_json::{Value, json};

/// Starts it on free ports, and returns the addresses that it prints.
fn serving<const N: usize>(server: &Server, sqs: &str, args: &[&str]) -> (Running, [String; N]) {
    let all = [&["serve", "--listen", "127.0.0.1:0", "--sqs", sqs], args].concat();
    listening(start(&mut on(server, &all)))
}

/// Requests an action as an SDK does, without a signature.
fn act(address: &str, action: &str, input: &Value) -> (u16, Value) {
    let head = format!(
        "POST / HTTP/1.1\r\nhost: {address}\r\nx-amz-target: AmazonSQS.{action}\r\ncontent-type: \
         application/x-amz-json-1.0"
    );
    let (status, answer) = ask(address, &head, &input.to_string());
    (status, serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap())
}

#[test]
fn the_command_and_an_sdk_use_one_queue() {
    let server = Server::start();
    let (_child, [dashboard, sqs]) = serving(&server, "127.0.0.1:0", &[]);
    assert_eq!([dashboard.as_str(), &sqs].map(|it| get(it, "/queues").0), [200, 404]);
    // A page of another site whose name leads here is not served.
    for address in [&dashboard, &sqs] {
        assert_eq!(ask(address, "POST / HTTP/1.1\r\nhost: evil.example", "").0, 403, "{address}");
    }
    let url = format!("http://{sqs}/000000000000/orders");
    assert_eq!(act(&sqs, "ListQueues", &json!({})), (200, json!({"QueueUrls": [url]})));

    send(&server, &["--id", "order-1", "--payload", "7"]);
    let (status, answer) = act(&sqs, "ReceiveMessage", &json!({"QueueUrl": url}));
    let message = &answer["Messages"][0];
    assert_eq!(
        (status, &message["MessageId"], &message["Body"]),
        (200, &json!("order-1"), &json!("7"))
    );
    let receipt = json!({"QueueUrl": url, "ReceiptHandle": message["ReceiptHandle"]});
    assert_eq!(act(&sqs, "DeleteMessage", &receipt).0, 200);

    let message = json!({"QueueUrl": url, "MessageBody": "eight"});
    assert_eq!(act(&sqs, "SendMessage", &message).0, 200);
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("payload");
    let command = format!("cat > {}", file.display());
    run(on(&server, &["work", "--until-empty", "--exec", "sh", "-c", &command])).code(0);
    assert_eq!(std::fs::read_to_string(file).unwrap(), "eight");
    assert_eq!(count(&server, "acked_total"), 2);
}

#[test]
fn there_may_be_no_pages_and_the_limits_and_urls_of_sqs() {
    let server = Server::start();
    let args = ["--sqs-only", "--sqs-strict", "--sqs-url", "https://sqs.example/"];
    let (_child, [sqs]) = serving(&server, "127.0.0.1:0", &args);
    assert_eq!(get(&sqs, "/queues").0, 404);
    wait_until("the checks pass", || ["/health", "/ready"].map(|it| get(&sqs, it).0) == [200; 2]);
    let url = "https://sqs.example/000000000000/orders";
    assert_eq!(act(&sqs, "ListQueues", &json!({})), (200, json!({"QueueUrls": [url]})));
    // The proxy may keep the host of the client.
    let list = "POST / HTTP/1.1\r\nhost: sqs.example\r\nx-amz-target: AmazonSQS.ListQueues";
    assert_eq!(ask(&sqs, list, "{}").0, 200);
    for (seconds, expected) in [(900, 200), (901, 400)] {
        let message = json!({"QueueUrl": url, "MessageBody": "x", "DelaySeconds": seconds});
        let (status, answer) = act(&sqs, "SendMessage", &message);
        assert_eq!(status, expected, "{answer}");
    }
    assert_eq!(count(&server, "scheduled"), 1);
    for flag in ["--sqs-only", "--sqs-strict", "--sqs-url=https://sqs.example"] {
        let refused = run(on(&server, &["serve", "--listen", "127.0.0.1:0", flag])).code(2);
        assert!(refused.stderr.contains("--sqs"), "{}", refused.stderr);
    }
}

#[test]
fn other_machines_need_a_signature() {
    let server = Server::start();
    let open = ["serve", "--listen", "127.0.0.1:0", "--sqs", "0.0.0.0:0"];
    for args in [&open[..], &[&open[..], &["--sqs-only"]].concat()] {
        let refused = run(on(&server, args)).code(2);
        assert!(refused.stderr.contains("--users FILE"), "{}", refused.stderr);
    }
    let directory = tempfile::tempdir().unwrap();
    let users = directory.path().join("users");
    std::fs::write(&users, "operator basic shop secret\n").unwrap();
    std::fs::set_permissions(&users, PermissionsExt::from_mode(0o600)).unwrap();
    let args = ["--sqs-only", "--users", users.to_str().unwrap()];
    let (_child, [sqs]) = serving(&server, "0.0.0.0:0", &args);
    let sqs = sqs.replace("0.0.0.0", "127.0.0.1");
    let (status, answer) = act(&sqs, "ListQueues", &json!({}));
    assert_eq!(status, 403, "{answer}");
    assert_eq!(answer["QueueUrls"], Value::Null);
}

#[test]
fn a_signal_gives_back_the_tasks_that_move_messages() {
    let server = Server::start();
    let messages = "{\"payload\": 7}\n".repeat(100);
    let send = on(&server, &["send", "--file", "-", "--make-ids"]);
    run_with_input(send, messages.as_bytes()).code(0);
    let (mut child, [sqs]) = serving(&server, "127.0.0.1:0", &["--sqs-only", "--all"]);
    let arn = |name| format!("arn:aws:sqs:us-east-1:000000000000:{name}");
    let redrive = json!({"deadLetterTargetArn": arn("orders"), "maxReceiveCount": 1}).to_string();
    let attributes = json!({"RedrivePolicy": redrive});
    let source = json!({"QueueName": "source", "Attributes": attributes});
    let (status, answer) = act(&sqs, "CreateQueue", &source);
    assert_eq!(status, 200, "{answer}");
    let slowly = json!({"SourceArn": arn("orders"), "DestinationArn": arn("source"),
        "MaxNumberOfMessagesPerSecond": 1});
    let (status, answer) = act(&sqs, "StartMessageMoveTask", &slowly);
    assert_eq!(status, 200, "{answer}");
    let tasks = || {
        let args = ["--queue", "sqs-settings-moves", "get", "orders", "--json"];
        run(on(&server, &args)).code(0).lines().remove(0)
    };
    wait_until("the task runs", || tasks()["state"] == "leased");
    send_signal(&child, "-TERM");
    assert_eq!(child.wait().unwrap().code(), Some(0));
    let task = tasks();
    assert_eq!((&task["state"], &task["crashes"]), (&json!("ready"), &json!(0)), "{task}");
}
