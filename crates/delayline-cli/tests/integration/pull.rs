//! Consumers over HTTP, hostile ones among them.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Child;
use std::time::Duration;

use crate::support::{Running, bare, count, listening, send, start, wait_until};
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

/// The head of a request for consumers, without its length.
fn head(address: &str, verb: &str) -> String {
    let kind = "content-type: application/json";
    format!("POST /api/v1/queues/orders/{verb} HTTP/1.1\r\nhost: {address}\r\n{kind}\r\n")
}

/// Sends a request, and returns its connection.
fn post(address: &str, verb: &str, body: &Value) -> std::io::Result<TcpStream> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(60)))?;
    let body = body.to_string();
    let request = format!("{}content-length: {}\r\n\r\n{body}", head(address, verb), body.len());
    stream.write_all(request.as_bytes())?;
    Ok(stream)
}

/// Reads an answer: its status and its body.
fn answer(stream: &mut TcpStream) -> std::io::Result<(u16, String)> {
    let ended = || std::io::Error::from(std::io::ErrorKind::UnexpectedEof);
    let mut reader = BufReader::new(stream);
    let (mut status, mut length) = (0, 0);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Err(ended());
        }
        if let Some(rest) = line.strip_prefix("HTTP/1.1 ") {
            status = rest.get(..3).and_then(|it| it.parse().ok()).ok_or_else(ended)?;
        } else if let Some(rest) = line.strip_prefix("content-length: ") {
            length = rest.trim().parse().map_err(|_| ended())?;
        } else if line == "\r\n" {
            break;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    Ok((status, String::from_utf8_lossy(&body).into_owned()))
}

/// Sends a request and reads its answer.
fn ask(address: &str, verb: &str, body: &Value) -> std::io::Result<(u16, Value)> {
    let (status, text) = answer(&mut post(address, verb, body)?)?;
    Ok((status, serde_json::from_str(&text).map_err(std::io::Error::other)?))
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

/// Waits until one connection waits for hints.
fn one_waits(server: &Server) {
    wait_until("one connection waits for hints", || {
        server.info("clients", "blocked_clients") == "1"
    });
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
            write!(stream, "{}{framing}\r\n\r\n", head(&address, verb)).unwrap();
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
            assert_eq!(answer(&mut stream).unwrap().0, 413, "{verb} with {framing}");
        }
    }
    let grown = resident(&child).saturating_sub(before) / 1_024 / 1_024;
    assert!(grown < 48, "{grown} MiB");
    assert_eq!(ask(&address, "claim", &json!({"wait": "0s"})).unwrap().0, 200);
}

#[test]
fn endless_polls_of_one_client_leave_room_for_others_and_for_health() {
    let server = Server::start();
    let (_child, address) = serving(&server.url(), "127.0.0.1:0", &["--connections", "40"]);
    let polls: Vec<TcpStream> =
        (0..100).filter_map(|_| post(&address, "claim", &json!({"wait": "50s"})).ok()).collect();
    one_waits(&server);
    let mut health = TcpStream::connect(&address).unwrap();
    write!(health, "GET /health HTTP/1.1\r\nhost: {address}\r\n\r\n").unwrap();
    assert_eq!(answer(&mut health).unwrap().0, 200);
    let mut refused = post(&address, "claim", &json!({"wait": "50s"})).unwrap();
    assert_eq!(answer(&mut refused).unwrap().0, 503);
    drop(polls);
    wait_until("a poll is served", || {
        ask(&address, "claim", &json!({"wait": "0s"})).is_ok_and(|(status, _)| status == 200)
    });
}

#[test]
fn guessed_leases_and_those_of_others_settle_nothing() {
    let server = Server::start();
    let place = tempfile::tempdir().unwrap();
    let users = users(place.path());
    let (_child, address) = serving(&server.url(), "127.0.0.1:0", &["--users", &users]);
    let by = |token: &str, verb: &str, body: &Value| -> Value {
        let mut stream = TcpStream::connect(&address).unwrap();
        let (head, body) = (head(&address, verb), body.to_string());
        let length = body.len();
        write!(
            stream,
            "{head}authorization: Bearer {token}\r\ncontent-length: {length}\r\n\r\n{body}"
        )
        .unwrap();
        let (status, text) = answer(&mut stream).unwrap();
        assert_eq!(status, 200, "{text}");
        serde_json::from_str(&text).unwrap()
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

#[test]
fn half_closed_connections_hold_neither_leases_nor_polls() {
    let server = Server::start();
    let (_child, address) = serving(&server.url(), "127.0.0.1:0", &[]);
    let poll = json!({"wait": "50s", "lease": "10m"});
    let mut closing: Vec<TcpStream> =
        (0..20).map(|_| post(&address, "claim", &poll).unwrap()).collect();
    one_waits(&server);
    for stream in &closing {
        stream.shutdown(Shutdown::Write).unwrap();
    }
    for stream in &mut closing {
        assert!(answer(stream).is_err(), "a half-closed connection is taken for a closed one");
    }
    wait_until("no poll waits", || server.info("clients", "blocked_clients") == "0");
    for number in 0..20 {
        send(&server, &["--id", &format!("m{number}"), "--payload", "7"]);
    }
    assert_eq!(count(&server, "leased"), 0);
    let claimed = ask(&address, "claim", &json!({"max": 100, "wait": "0s"})).unwrap().1;
    assert_eq!(deliveries(&claimed).len(), 20);
}
