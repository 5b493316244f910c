//! Consumers over HTTP, hostile ones among them.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Child;
use std::time::Duration;

use crate::serve::poll;
use crate::support::{Running, ask, bare, get, listening, post, send, start, wait_until};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use delayline_test_server::Server;
use serde_json::{Value, json};

/// Starts `delayline serve orders`, and waits until it listens. Returns where.
fn serving(url: &str, listen: &str, args: &[&str]) -> (Running, String) {
    let args = [&["serve", "--listen", listen], args, &["orders"]].concat();
    let mut command = bare(&args);
    command.env("DELAYLINE_URL", url).env("DELAYLINE_CLAIM_SECRET", "a secret for tests");
    let (child, [address]) = listening(start(&mut command));
    (child, address)
}

/// The deliveries of an answer.
fn deliveries(answer: &Value) -> Vec<Value> {
    answer["deliveries"].as_array().cloned().unwrap_or_default()
}

fn ack(delivery: &Value) -> Value {
    json!({"id": delivery["id"], "token": delivery["token"], "outcome": "ack"})
}

/// The memory of a process that is not on disk, in bytes.
fn resident(child: &Child) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1_024
}

#[test]
fn large_bodies_are_refused_within_little_memory() {
    let server = Server::start();
    let (child, address) = serving(&server.url(), "127.0.0.1:0", &[]);
    let before = resident(&child);
    for verb in ["claim", "settle", "extend"] {
        for framing in ["content-length: 268435456", "transfer-encoding: chunked"] {
            let mut stream = TcpStream::connect(&address).unwrap();
            stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
            write!(stream, "{}\r\n{framing}\r\n\r\n", post(&address, verb)).unwrap();
            let chunk = vec![b' '; 1_024 * 1_024];
            for _ in 0..256 {
                if framing.starts_with("transfer") {
                    write!(stream, "100000\r\n").unwrap();
                }
                stream.write_all(&chunk).unwrap();
                if framing.starts_with("transfer") {
                    write!(stream, "\r\n").unwrap();
                }
            }
            // The client reads only after it has written everything.
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            assert!(answer.starts_with("HTTP/1.1 413 "), "{verb} with {framing}: {answer}");
        }
    }
    let grown = resident(&child).saturating_sub(before) / 1_024 / 1_024;
    assert!(grown < 48, "{grown} MiB");
    assert_eq!(ask(&address, &post(&address, "claim"), r#"{"wait": "0s"}"#).0, 200);
}

#[test]
fn endless_polls_of_one_client_leave_room_for_others_and_for_health() {
    let server = Server::start();
    let (_child, address) = serving(&server.url(), "127.0.0.1:0", &["--connections", "40"]);
    let polls: Vec<TcpStream> = (0..100).filter_map(|_| poll(&address).ok()).collect();
    wait_until("one connection waits for hints", || {
        server.info("clients", "blocked_clients") == "1"
    });
    assert_eq!(get(&address, "/health").0, 200);
    let claim = || ask(&address, &post(&address, "claim"), r#"{"wait": "0s"}"#).0;
    assert_eq!(claim(), 503);
    drop(polls);
    wait_until("a poll is served", || claim() == 200);
}

#[test]
fn guessed_leases_and_those_of_others_settle_nothing() {
    let server = Server::start();
    let place = tempfile::tempdir().unwrap();
    let users = users(place.path());
    let (_child, address) = serving(&server.url(), "127.0.0.1:0", &["--users", &users]);
    let by = |token: &str, verb: &str, body: &Value| -> Value {
        let head = format!("{}\r\nauthorization: Bearer {token}", post(&address, verb));
        let (status, answer) = ask(&address, &head, &body.to_string());
        assert_eq!(status, 200, "{answer}");
        serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap()
    };
    send(&server, &["--id", "order-1", "--payload", "7"]);
    let claim = json!({"wait": "0s", "consumer": "c", "claim_id": "1", "lease": "10m"});
    let own = deliveries(&by("t0ken-one", "claim", &claim)).remove(0);
    // The same claim by another user is another claim.
    assert!(deliveries(&by("t0ken-two", "claim", &claim)).is_empty());
    let real = URL_SAFE_NO_PAD.decode(own["token"].as_str().unwrap()).unwrap();
    let mut guesses = vec![vec![0; real.len()], vec![0xff; real.len()]];
    for place in 0..real.len() - 4 {
        // Each byte but the four of the failures, which are no part of the lease.
        let mut guess = real.clone();
        guess[place] ^= 1;
        guesses.push(guess);
    }
    for guess in guesses {
        let token = URL_SAFE_NO_PAD.encode(&guess);
        let lease = json!({"id": "order-1", "token": token});
        let settle = json!({"settlements": [{"id": "order-1", "token": token, "outcome": "ack"}]});
        assert_eq!(by("t0ken-two", "settle", &settle)["results"][0]["outcome"], "stale");
        let extend = json!({"leases": [lease], "lease": "1s"});
        assert_eq!(by("t0ken-two", "extend", &extend)["results"][0]["outcome"], "stale");
    }
    let settle = json!({"settlements": [ack(&own)]});
    assert_eq!(by("t0ken-one", "settle", &settle)["results"][0]["state"], "acked");
}

/// A file of two workers.
fn users(place: &Path) -> String {
    let path = place.join("users");
    std::fs::write(&path, "worker bearer one t0ken-one\nworker bearer two t0ken-two\n").unwrap();
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
    path.to_str().unwrap().to_owned()
}
