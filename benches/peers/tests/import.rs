//! `delayline import` reads data that the libraries themselves have written.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "test code")]

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use apalis::prelude::{Task, TaskSink};
use apalis_redis::{Config, RedisStorage};
use delayline_test_server::Server;
use rsmq_async::{Rsmq, RsmqConnection, RsmqOptions};
use serde_json::{Value, json};

/// Runs the command on a server's queue `orders`.
fn delayline(server: &Server, args: &[&str]) -> Value {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut command = Command::new(env!("CARGO"));
    command.current_dir(workspace);
    command.args(["run", "--quiet", "--locked", "-p", "delayline-cli", "--"]).args(args);
    command.env("DELAYLINE_URL", server.url()).env("DELAYLINE_QUEUE", "orders");
    let output = command.output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Returns the payloads of the messages that are not due yet, sorted.
fn scheduled(server: &Server) -> Vec<String> {
    let page = delayline(server, &["list", "--state", "scheduled", "--json"]);
    let ids = page["messages"].as_array().unwrap().iter().map(|it| it["id"].as_str().unwrap());
    let mut payloads: Vec<_> = ids
        .map(|id| match &delayline(server, &["get", id, "--json"])["payload"] {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        })
        .collect();
    payloads.sort();
    payloads
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_of_rsmq_async() {
    let server = Server::builder().tcp().start();
    let host = "127.0.0.1".to_owned();
    let options = RsmqOptions { host, port: server.port(), ..RsmqOptions::default() };
    let mut queue = Rsmq::new(options).await.unwrap();
    queue.create_queue("old", None, None, None).await.unwrap();
    let hour = Some(Duration::from_secs(3600));
    queue.send_message("old", "one", hour).await.unwrap();
    queue.send_message_batch("old", vec!["two", "three"], hour).await.unwrap();
    queue.send_message("old", "held", None).await.unwrap();
    // A consumer receives it and disappears.
    assert!(queue.receive_message::<String>("old", hour).await.unwrap().is_some());

    let counts = delayline(&server, &["import", "rsmq", "old", "--yes", "--json"]);
    assert_eq!((&counts["created"], &counts["left"]), (&json!(4), &json!(0)));
    assert_eq!(scheduled(&server), ["held", "one", "three", "two"]);
    assert_eq!(queue.get_queue_attributes("old").await.unwrap().msgs, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn tasks_of_apalis_redis() {
    let server = Server::builder().tcp().start();
    let connection = apalis_redis::connect(server.url()).await.unwrap();
    let config = Config::default().queue("old");
    let mut storage: RedisStorage<String> = RedisStorage::new(connection).with_config(config);
    let hour = Duration::from_secs(3600);
    for text in ["one", "two"] {
        let task = Task::new(text.to_owned()).into_builder().run_after(hour).build();
        storage.push_task(task).await.unwrap();
    }
    let counts = delayline(&server, &["import", "apalis", "old", "--yes", "--json"]);
    assert_eq!((&counts["created"], &counts["left"]), (&json!(2), &json!(0)));
    // The codec is JSON, like the default codec of Delayline.
    assert_eq!(scheduled(&server), [r#""one""#, r#""two""#]);
}
