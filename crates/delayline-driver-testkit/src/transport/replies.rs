//! Replies arrive as the server sent them.

use std::sync::Arc;

use bytes::Bytes;
use delayline_core::ErrorKind;
use delayline_redis_protocol::{
    Resp, ScriptCall, ScriptName, Transport, Value, classify, is_no_script,
};
use delayline_test_server::{Reply, Server};

use super::{Connect, connected, error_line, eval, options};

fn awkward_payloads() -> Vec<Bytes> {
    let words = [
        "",
        "message",
        "pmessage",
        "smessage",
        "subscribe",
        "unsubscribe",
        "invalidate",
        "pubsub",
        "MOVED 1 h:1",
        "ASK 1 h:1",
        "-ERR no",
        "CLUSTERDOWN",
        "QUEUED",
        "OK",
        "$-1\r\n",
        "a\r\nb",
        "nil",
        "1",
        "-1",
        "1e3",
        "true",
    ];
    let mut payloads: Vec<Bytes> = words.into_iter().map(Bytes::from).collect();
    payloads.push((0..=255).collect());
    payloads.push(Bytes::from_static(b"\xff\xfe\xc3\x28"));
    payloads.push((0..1 << 20).map(|at: u32| at.to_le_bytes()[0]).collect());
    payloads
}

pub async fn any_bytes_are_echoed<C: Connect>() {
    let server = Server::start();
    for resp in [Resp::V2, Resp::V3] {
        let mut options = options(&server.url());
        options.resp = resp;
        let transport = C::connect(&options).await.unwrap();
        for payload in awkward_payloads() {
            let script = "return {7, ARGV[1], {ARGV[1], ARGV[1], ARGV[1]}, ARGV[1]}";
            let reply = eval(&transport, script, std::slice::from_ref(&payload)).await.unwrap();
            let bytes = Value::Bytes(payload);
            let inner = Value::Array(vec![bytes.clone(), bytes.clone(), bytes.clone()]);
            assert_eq!(reply, Value::Array(vec![Value::Int(7), bytes.clone(), inner, bytes]));
        }
    }
}

pub async fn types_and_nesting_are_kept<C: Connect>() {
    let server = Server::start();
    let transport = connected::<C>(&server.url()).await;
    let script = "return {1, -9007199254740991, false, {}, {2, {3}}, 'x'}";
    let reply = eval(&transport, script, &[]).await.unwrap();
    let expected = Value::Array(vec![
        Value::Int(1),
        Value::Int(-9_007_199_254_740_991),
        Value::Nil,
        Value::Array(Vec::new()),
        Value::Array(vec![Value::Int(2), Value::Array(vec![Value::Int(3)])]),
        Value::Bytes("x".into()),
    ]);
    assert_eq!(reply, expected);
    assert_eq!(eval(&transport, "return false", &[]).await.unwrap(), Value::Nil);
    assert_eq!(eval(&transport, "return 5", &[]).await.unwrap(), Value::Int(5));
    let status = eval(&transport, "return redis.status_reply('OK')", &[]).await.unwrap();
    assert_eq!(status, Value::Bytes("OK".into()));
}

pub async fn error_lines_keep_their_code<C: Connect>() {
    let server = Server::start();
    let transport = connected::<C>(&server.url()).await;
    for line in ["MYCODE some words: and more", "ERR plain", "WRONGTYPE no", "MOVED 1 h:1"] {
        let script = "return redis.error_reply(ARGV[1])";
        let result = eval(&transport, script, &[Bytes::from(line)]).await;
        assert_eq!(error_line(result), line);
    }
    // The connection still works.
    assert!(eval(&transport, "return {1}", &[]).await.is_ok());
}

pub async fn unknown_digest_is_told<C: Connect>() {
    let server = Server::start();
    let transport = connected::<C>(&server.url()).await;
    let script = ScriptName::Sha1("0123456789012345678901234567890123456789");
    let call = ScriptCall::new(script, &[], &[]);
    let line = error_line(transport.call(call).await);
    assert!(is_no_script(&line), "{line}");
}

pub async fn scripts_run_by_their_digest<C: Connect>() {
    let server = Server::start();
    let transport = connected::<C>(&server.url()).await;
    let script = "return {#KEYS, KEYS[1], KEYS[2], #ARGV, ARGV[1]}";
    let Reply::BulkString(digest) = server.command(&["SCRIPT", "LOAD", script]) else {
        panic!("SCRIPT LOAD answers with a digest");
    };
    let digest = String::from_utf8(digest).unwrap();
    let keys = [Bytes::from("a"), Bytes::from("b")];
    let args = [Bytes::from("c")];
    let script = ScriptName::Sha1(&digest);
    let call = ScriptCall::new(script, &keys, &args);
    let expected = Value::Array(vec![
        Value::Int(2),
        Value::Bytes("a".into()),
        Value::Bytes("b".into()),
        Value::Int(1),
        Value::Bytes("c".into()),
    ]);
    assert_eq!(transport.call(call).await.unwrap(), expected);
}

pub async fn concurrent_calls_get_their_own_replies<C: Connect>() {
    let server = Server::start();
    let transport = Arc::new(connected::<C>(&server.url()).await);
    let callers: Vec<_> = (0..64)
        .map(|caller| {
            let transport = Arc::clone(&transport);
            tokio::spawn(async move {
                for round in 0..20 {
                    let own = Bytes::from(format!("{caller}/{round}"));
                    let script = "return {1, ARGV[1]}";
                    let reply = eval(&*transport, script, std::slice::from_ref(&own)).await;
                    let expected = Value::Array(vec![Value::Int(1), Value::Bytes(own)]);
                    assert_eq!(reply.unwrap(), expected);
                }
            })
        })
        .collect();
    for caller in callers {
        caller.await.unwrap();
    }
}

pub async fn refusals_inside_scripts_are_told<C: Connect>() {
    let rules = "worker on >pw ~k +@scripting";
    let server = Server::builder().acl_user(rules).start();
    let admin = connected::<C>(&server.url()).await;
    let worker = connected::<C>(&server.url_with_login("worker", "pw")).await;

    let write = "return {redis.call('SET', KEYS[1], 1) and 1}";
    let line = error_line(eval(&worker, write, &[]).await);
    assert_eq!(classify(&line).kind(), &ErrorKind::PermissionDenied, "{line}");

    server.command(&["LPUSH", "k", "x"]);
    let line = error_line(eval(&admin, "return {redis.call('GET', KEYS[1])}", &[]).await);
    assert_eq!(classify(&line).kind(), &ErrorKind::WrongType, "{line}");

    server.command(&["CONFIG", "SET", "maxmemory", "1"]);
    let line = error_line(eval(&admin, write, &[]).await);
    assert_eq!(classify(&line).kind(), &ErrorKind::OutOfMemory, "{line}");
    server.command(&["CONFIG", "SET", "maxmemory", "0"]);

    server.command(&["CONFIG", "SET", "min-replicas-to-write", "1"]);
    let line = error_line(eval(&admin, write, &[]).await);
    assert_eq!(classify(&line).kind(), &ErrorKind::Busy, "{line}");
}

pub async fn info_is_text<C: Connect>() {
    let server = Server::start();
    for resp in [Resp::V2, Resp::V3] {
        let mut options = options(&server.url());
        options.resp = resp;
        let transport = C::connect(&options).await.unwrap();
        let info = transport.info(&Bytes::from_static(b"k")).await.unwrap();
        assert!(info.contains("redis_version:") && info.contains("maxmemory_policy:"), "{info}");
    }
}

pub async fn both_versions_of_the_protocol_agree<C: Connect>() {
    let server = Server::builder().password("pw").start();
    let mut replies = Vec::new();
    for resp in [Resp::V2, Resp::V3] {
        let mut options = options(&server.url_with_login("", "pw"));
        options.resp = resp;
        let transport = C::connect(&options).await.unwrap();
        let script = "return {1, false, 'x', {true, false}, redis.call('HGETALL', KEYS[1]), '1.5'}";
        server.command(&["HSET", "k", "field", "value"]);
        replies.push(eval(&transport, script, &[]).await.unwrap());
        assert!(!transport.wait(&"b".into(), std::time::Duration::from_millis(10)).await.unwrap());
        let Reply::BulkString(clients) = server.command(&["CLIENT", "LIST"]) else { panic!() };
        let clients = String::from_utf8_lossy(&clients);
        // Redis 6.2 does not list the versions.
        let expected = resp == Resp::V3 && clients.contains(" resp=");
        assert_eq!(clients.contains(" resp=3"), expected, "{clients}");
    }
    assert_eq!(replies[0], replies[1]);
}
