//! The server stops, freezes, refuses and restarts.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use delayline_core::{ErrorClass, ErrorKind};
use delayline_redis_protocol::{Resp, Transport, classify};
use delayline_test_server::Server;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::{
    Connect, HEALING, PATIENCE, connected, error_line, eval, executions, failed, heals, impatient,
    increment, options, until,
};

pub async fn killed_server_heals_after_restart<C: Connect>() {
    let server = Server::start();
    for resp in [Resp::V2, Resp::V3] {
        let mut options = options(&server.url());
        options.resp = resp;
        let transport = C::connect(&options).await.unwrap();
        assert!(increment(&transport).await.is_ok());
        server.kill();
        let begin = Instant::now();
        // The first may still go to the old socket; the others find no server.
        failed(increment(&transport).await);
        for _ in 0..20 {
            let error = failed(increment(&transport).await);
            assert_eq!(error.kind(), &ErrorKind::Unreachable, "{error}");
        }
        assert!(begin.elapsed() < HEALING, "{:?}", begin.elapsed());
        server.restart();
        heals(&transport).await;
    }
}

pub async fn restarted_port_heals<C: Connect>() {
    for server in [Server::builder().tcp().start(), Server::builder().tls().start()] {
        let mut options = options(&server.url());
        if server.url().starts_with("rediss") {
            options.ca_pem = Some(server.ca_pem().into());
        }
        let transport = C::connect(&options).await.unwrap();
        server.restart();
        heals(&transport).await;
    }
}

pub async fn kill_in_a_script_is_ambiguous<C: Connect>() {
    let server = Server::builder().append_only("always").config("lua-time-limit", "1").start();
    let transport = Arc::new(connected::<C>(&server.url()).await);
    let caller = Arc::clone(&transport);
    let call = tokio::spawn(async move {
        eval(&*caller, "redis.call('INCR', KEYS[1]) while true do end", &[]).await
    });
    until("a running script", || {
        server.try_command(&["PING"]).is_err_and(|error| error.code() == Some("BUSY"))
    })
    .await;
    server.kill();
    let error = failed(tokio::time::timeout(PATIENCE, call).await.unwrap().unwrap());
    assert_eq!(error.kind(), &ErrorKind::ConnectionLost);
    server.restart();
    heals(&*transport).await;
    assert!(executions(&server) <= 1);
}

pub async fn frozen_server_times_out_and_heals<C: Connect>() {
    let server = Server::builder().tcp().start();
    let transport = C::connect(&impatient(&server.url())).await.unwrap();
    server.pause();
    let begin = Instant::now();
    assert_eq!(failed(increment(&transport).await).kind(), &ErrorKind::Timeout);
    let error = failed(increment(&transport).await);
    assert_eq!(error.class(), ErrorClass::NotExecuted);
    // The transport was connected, so the scheme of the address is right.
    assert!(!error.detail().contains("TLS"), "{error}");
    assert!(begin.elapsed() < HEALING, "{:?}", begin.elapsed());
    server.resume();
    heals(&transport).await;
    assert!(executions(&server) <= 1);
}

pub async fn killed_connection_is_replaced<C: Connect>() {
    let server = Server::start();
    let transport = connected::<C>(&server.url()).await;
    for _ in 0..5 {
        assert!(increment(&transport).await.is_ok());
        server.command(&["CLIENT", "KILL", "TYPE", "normal"]);
        heals(&transport).await;
    }
    assert_eq!(executions(&server), 5);
}

pub async fn rotated_password_heals<C: Connect>() {
    for resp in [Resp::V2, Resp::V3] {
        let server = Server::builder().password("first").start();
        let mut options = options(&server.url_with_login("", "first"));
        options.resp = resp;
        let transport = C::connect(&options).await.unwrap();
        server.command(&["CONFIG", "SET", "requirepass", "second"]);
        server.command(&["CLIENT", "KILL", "TYPE", "normal"]);
        let begin = Instant::now();
        loop {
            let error = failed(eval(&transport, "return {1}", &[]).await);
            assert!(!format!("{error:?}").contains("first"), "{error:?}");
            if error.kind() == &ErrorKind::Authentication {
                break;
            }
            assert!(begin.elapsed() < HEALING, "{error}");
        }
        server.command(&["CONFIG", "SET", "requirepass", "first"]);
        heals(&transport).await;
    }
}

pub async fn transport_outlives_its_runtime<C: Connect>() {
    let server = Server::start();
    let url = server.url();
    let connecting = std::thread::spawn(move || {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_all().build().unwrap().block_on(async {
            let transport = connected::<C>(&url).await;
            assert!(!transport.wait(&"bell".into(), Duration::from_millis(10)).await.unwrap());
            transport
        })
    });
    let transport = tokio::task::block_in_place(|| connecting.join().unwrap());
    heals(&transport).await;
    assert!(!transport.wait(&"bell".into(), Duration::from_millis(10)).await.unwrap());
}

/// Starts a peer that replies to `PING`, and disconnects upon `EVAL`. Returns its URL and the
/// number of its connections.
async fn moody_peer() -> (String, Arc<AtomicU32>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let url = format!("redis://{}", listener.local_addr().unwrap());
    let connections = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&connections);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            count.fetch_add(1, Ordering::Relaxed);
            tokio::spawn(async move {
                let mut buffer = [0; 1024];
                // One reply per read: a driver sends its next command after the reply.
                while let Ok(length @ 1..) = stream.read(&mut buffer).await {
                    let text = String::from_utf8_lossy(&buffer[..length]).into_owned();
                    if text.contains("EVAL") {
                        return;
                    }
                    let answer = if text.contains("PING") { "+PONG\r\n" } else { "-ERR no\r\n" };
                    let _ = stream.write_all(answer.as_bytes()).await;
                }
            });
        }
    });
    (url, connections)
}

pub async fn connecting_is_spaced_out<C: Connect>() {
    let (url, connections) = moody_peer().await;
    let transport = connected::<C>(&url).await;
    let begin = Instant::now();
    let mut calls = 0;
    // On a machine that is busy meanwhile, it continues until there are enough calls.
    while begin.elapsed() < Duration::from_secs(2) || calls <= 100 && begin.elapsed() < PATIENCE {
        failed(increment(&transport).await);
        calls += 1;
        tokio::task::yield_now().await;
    }
    // Attempts are spaced by 0, 0, 50, 100, 200, 400, 800 ms and so on.
    let (connections, time) = (connections.load(Ordering::Relaxed), begin.elapsed());
    assert!(calls > 100, "calls between attempts must fail at once, but only {calls} did");
    let most = 8 + u32::try_from(time.as_secs()).unwrap();
    assert!((3..=most).contains(&connections), "{connections} for {calls} calls in {time:?}");
}

pub async fn replica_is_refused_without_a_storm<C: Connect>() {
    let server = Server::start();
    let transport = connected::<C>(&server.url()).await;
    server.command(&["REPLICAOF", "127.0.0.1", "1"]);
    let connections = || server.info("stats", "total_connections_received").parse::<u64>().unwrap();
    let (begin, before) = (Instant::now(), connections());
    for _ in 0..200 {
        let line = error_line(increment(&transport).await);
        assert_eq!(classify(&line).kind(), &ErrorKind::ReadOnly, "{line}");
    }
    let seconds = begin.elapsed().as_secs() + 1;
    // One per second, and the connection of the query.
    assert!(connections() - before <= seconds + 1);
    server.command(&["REPLICAOF", "NO", "ONE"]);
    assert!(increment(&transport).await.is_ok());
}

pub async fn replaced_connection_serves_after_failover<C: Connect>() {
    let (old, new) = (Server::start(), Server::start());
    // A link to a socket stands for a name that leads to the new primary after a failover.
    let home = old.unix_path().with_file_name("primary");
    std::os::unix::fs::symlink(old.unix_path(), &home).unwrap();
    let transport = connected::<C>(&format!("unix:{}", home.display())).await;
    assert!(increment(&transport).await.is_ok());
    old.command(&["REPLICAOF", "127.0.0.1", "1"]);
    std::fs::remove_file(&home).unwrap();
    std::os::unix::fs::symlink(new.unix_path(), &home).unwrap();
    let line = error_line(increment(&transport).await);
    assert_eq!(classify(&line).kind(), &ErrorKind::ReadOnly, "{line}");
    assert!(increment(&transport).await.is_ok());
    assert_eq!(executions(&new), 1);
}

pub async fn concurrent_calls_share_one_attempt<C: Connect>() {
    let server = Server::start();
    let transport = Arc::new(connected::<C>(&server.url()).await);
    server.kill();
    failed(increment(&*transport).await);
    server.restart();
    let callers: Vec<_> = (0..64)
        .map(|_| {
            let transport = Arc::clone(&transport);
            tokio::spawn(async move { heals(&*transport).await })
        })
        .collect();
    for caller in callers {
        caller.await.unwrap();
    }
    let connections: u32 = server.info("stats", "total_connections_received").parse().unwrap();
    // The start of the server and this query need some; 64 attempts would exceed the bound.
    assert!(connections < 12, "{connections} connections");
}
