//! Lists of queues, while some primaries do not reply.

use std::time::Duration;

use delayline_core::ErrorKind;
use delayline_redis_protocol::{DriverTransport, QueueList, Transport as _, Value};
use tokio::time::Instant;

use crate::fake::{Answer, Fake, World};
use crate::{done, info, range, text};

const URL: &str = "redis-cluster://a:1,b:1,c:1";

/// A cluster of three primaries with one queue each; `scan` answers some of them in its own way.
async fn cluster(
    scan: impl Fn(&str) -> Option<Answer> + Send + Sync + 'static,
) -> DriverTransport<Fake> {
    let world = World::new(move |server, command| match command {
        "CLUSTER INFO" => Answer::Value(info(1)),
        "CLUSTER SLOTS" => Answer::Value(Value::Array(vec![
            range(0, 5_000, "a"),
            range(5_001, 10_000, "b"),
            range(10_001, 16_383, "c"),
        ])),
        _ if command.starts_with("SCAN") => scan(server).unwrap_or_else(|| {
            let key = format!("delayline:{{at-{}}}:control", &server[..1]);
            Answer::Value(Value::Array(vec![text("0"), Value::Array(vec![text(key)])]))
        }),
        _ => done(),
    });
    world.connect(URL).await.unwrap()
}

fn names(found: &QueueList) -> Vec<&str> {
    found.names.iter().map(delayline_core::QueueName::as_str).collect()
}

#[tokio::test(start_paused = true)]
async fn primaries_that_cannot_be_read_hide_their_own_queues_only() {
    let transport = cluster(|server| match server {
        "a:1" => Some(Answer::Lost),
        "c:1" => Some(Answer::Line("NOPERM no permission to run 'scan'".to_owned())),
        _ => None,
    });
    let found = transport.await.queues(u64::MAX).await.unwrap();
    assert_eq!(names(&found), ["at-b"]);
    assert!(!found.complete);
    let failure = found.failure.unwrap();
    assert_eq!(failure.kind(), &ErrorKind::PermissionDenied, "the one that lasts: {failure}");
    assert!(failure.detail().contains("a:1") && failure.detail().contains("c:1"), "{failure}");
    assert!(!failure.detail().contains("b:1"), "{failure}");
}

#[tokio::test(start_paused = true)]
async fn silent_primaries_cost_one_timeout_together() {
    let transport = cluster(|server| (server != "b:1").then_some(Answer::Never)).await;
    let begin = Instant::now();
    let found = transport.queues(u64::MAX).await.unwrap();
    assert_eq!(names(&found), ["at-b"]);
    let took = begin.elapsed();
    // The response timeout.
    let limit = Duration::from_secs(5);
    assert!(took >= limit && took < limit * 3 / 2, "{took:?}");
    assert_eq!(found.failure.unwrap().kind(), &ErrorKind::Unreachable);
}

#[tokio::test(start_paused = true)]
async fn a_list_that_no_primary_gives_is_an_error() {
    let transport = cluster(|_| Some(Answer::Lost)).await;
    let error = transport.queues(u64::MAX).await.unwrap_err();
    for server in ["a:1", "b:1", "c:1"] {
        assert!(error.detail().contains(server), "{error}");
    }
}
