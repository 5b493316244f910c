//! Servers that wait for their disk, and servers that do not.

use delayline_core::{Durability, ErrorKind};
use delayline_redis_protocol::ConnectOptions;
use delayline_test_server::{Reply, Server};

use super::{Connect, calls, enqueue, open, options};

/// What the server calls itself.
fn version(server: &Server) -> (String, String) {
    let info = String::from_utf8_lossy(&match server.command(&["INFO", "server"]) {
        Reply::BulkString(info) => info,
        other => panic!("{other:?}"),
    })
    .into_owned();
    let field = |name: &str| {
        let value = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        value.map(|value| value.trim().to_owned())
    };
    let other = |name: &str| Some((name.to_owned(), field(&format!("{name}_version"))?));
    other("valkey").or_else(|| other("redict")).or_else(|| other("redis")).unwrap()
}

/// Whether a positive answer of the server to `WAITAOF` means that its disk has the write.
fn waits_for_its_disk(server: &Server) -> bool {
    let (name, version) = version(server);
    name == "redis" && ["7.2.", "8."].iter().any(|release| version.starts_with(release))
}

async fn refused<C: Connect>(options: &ConnectOptions, server: &Server, advice: &str) {
    let queue = open::<C>(options).await;
    let scripts = calls(server, "evalsha");
    let error = enqueue(&queue, "a", Durability::Disk).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Unsupported(_)), "{error}");
    let told = error.to_string();
    assert!(told.contains(advice) && told.contains(&version(server).1), "{told}");
    assert_eq!(calls(server, "evalsha"), scripts, "nothing is sent");
    enqueue(&queue, "a", Durability::None).await.unwrap();
}

pub async fn the_disk_confirms_or_is_refused<C: Connect>() {
    let server = Server::builder().append_only("everysec").start();
    let options = options(&server.url());
    if !waits_for_its_disk(&server) {
        return refused::<C>(&options, &server, "appendfsync to always").await;
    }
    let queue = open::<C>(&options).await;
    // The sync of a second is shared.
    let (a, b, plain) = tokio::join!(
        enqueue(&queue, "a", Durability::Disk),
        enqueue(&queue, "b", Durability::Disk),
        enqueue(&queue, "plain", Durability::None),
    );
    assert!(a.is_ok() && b.is_ok() && plain.is_ok(), "{a:?} {b:?} {plain:?}");
    // One that asks for the permission, and the waits.
    assert!((2..=3).contains(&calls(&server, "waitaof")));
}

pub async fn a_server_that_never_syncs_is_refused<C: Connect>() {
    let server = Server::builder().append_only("no").start();
    let options = options(&server.url());
    let advice =
        if waits_for_its_disk(&server) { "appendfsync no" } else { "appendfsync to always" };
    refused::<C>(&options, &server, advice).await;
}

pub async fn a_reply_is_enough_where_each_write_is_synced<C: Connect>() {
    let server = Server::builder().append_only("always").start();
    let queue = open::<C>(&options(&server.url())).await;
    for text in ["a", "b"] {
        enqueue(&queue, text, Durability::Disk).await.unwrap();
    }
    let waits = calls(&server, "waitaof");
    assert_eq!(waits, if waits_for_its_disk(&server) { 3 } else { 0 });
}

pub async fn a_server_without_a_file_is_refused<C: Connect>() {
    let server = Server::start();
    let options = options(&server.url());
    refused::<C>(&options, &server, "appendonly to yes").await;
}
