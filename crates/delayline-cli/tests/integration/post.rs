//! `delayline work --post`.

use std::cell::RefCell;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use crate::support::{count, on, run, run_with_input, send, send_signal, start, wait_until};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use delayline_test_server::Server;
use ring::hmac;
use serde_json::Value;

/// A request as it arrived: its lines, and its body.
pub(crate) struct Request {
    pub(crate) lines: Vec<String>,
    body: Vec<u8>,
}

impl Request {
    fn header(&self, name: &str) -> &str {
        let start = format!("{name}: ");
        self.lines.iter().find_map(|line| line.strip_prefix(&start)).unwrap_or_default()
    }
}

/// Answers requests one after the other by `answer`, which gets their number from 0. Like strict
/// servers, it refuses a POST without a length.
fn receiver(
    answer: impl Fn(usize, &Request) -> String + Send + 'static,
) -> (String, Receiver<Request>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/hook?x=1", listener.local_addr().unwrap());
    let (sender, requests) = channel();
    // It ends with the test.
    std::thread::spawn(move || {
        let mut open = Vec::new();
        for (number, stream) in listener.incoming().enumerate() {
            let mut stream = stream.unwrap();
            let Some(request) = read(&stream) else { continue };
            let text = match request.header("content-length") {
                "" => status("411 Length Required", "", ""),
                _ => answer(number, &request),
            };
            let _ = stream.write_all(text.as_bytes());
            let _ = sender.send(request);
            // The client ends connections, not this.
            open.push(stream);
        }
    });
    (url, requests)
}

pub(crate) fn read(stream: &TcpStream) -> Option<Request> {
    let mut reader = BufReader::new(stream);
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        match line.trim_end() {
            "" => break,
            line => lines.push(line.to_owned()),
        }
    }
    let mut request = Request { lines, body: Vec::new() };
    let length = request.header("content-length").parse().unwrap_or(0);
    request.body.resize(length, 0);
    reader.read_exact(&mut request.body).ok()?;
    Some(request)
}

pub(crate) fn status(status: &str, more: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "HTTP/1.1 {status}\r\ncontent-length: {length}\r\nconnection: close\r\n{more}\r\n{body}"
    )
}

fn post<'a>(url: &'a str, flags: &[&'a str]) -> Vec<&'a str> {
    let args = ["work", "--until-empty", "--concurrency", "1", "--post", url];
    args.iter().chain(flags).copied().collect()
}

/// The state of a message and its errors.
fn known(server: &Server, id: &str) -> Value {
    run(on(server, &["get", id, "--json"])).code(0).lines()[0].clone()
}

#[test]
fn a_message_becomes_a_signed_request() {
    let server = Server::start();
    let line = r#"{"id": "order-1.2", "payload": {"total": 9}, "group": "\u00e9 9", "headers": {"tenant": "\u00e9",
        "Content-Type": "application/json", "TraceParent": "00-1-2-01"}}"#;
    run_with_input(on(&server, &["send", "--file", "-"]), line.replace('\n', "").as_bytes())
        .code(0);
    let (url, requests) = receiver(|_, _| status("204 No Content", "", ""));
    let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    let mut work = on(&server, &post(&url, &[]));
    work.env("DELAYLINE_POST_SECRET", secret).env("http_proxy", "http://127.0.0.1:1");
    run(work).code(0);
    let request = requests.recv().unwrap();
    assert_eq!(request.lines[0], "POST /hook?x=1 HTTP/1.1");
    assert_eq!(request.body, br#"{"total":9}"#);
    for (name, value) in [
        ("webhook-id", "order-1%2E2"),
        ("content-type", "application/json"),
        ("traceparent", "00-1-2-01"),
        ("delayline-queue", "orders"),
        ("delayline-epoch", "1"),
        ("delayline-attempt", "1"),
        ("delayline-group", "%C3%A9%209"),
    ] {
        assert_eq!(request.header(name), value, "{name}: {:?}", request.lines);
    }
    let headers: Value = serde_json::from_str(request.header("delayline-headers")).unwrap();
    assert_eq!(headers["tenant"], "\u{e9}");
    let seconds = request.header("webhook-timestamp");
    assert!(seconds.parse::<u64>().is_ok(), "{seconds}");
    let signed = format!(r#"order-1%2E2.{seconds}.{{"total":9}}"#);
    let key = STANDARD.decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
    let key = hmac::Key::new(hmac::HMAC_SHA256, &key);
    let signature = STANDARD.encode(hmac::sign(&key, signed.as_bytes()));
    assert_eq!(request.header("webhook-signature"), format!("v1,{signature}"));
    assert_eq!(known(&server, "order-1.2")["state"], "acked");
}

/// Servers accept header lines of 8 KiB. In ASCII, one of a message can have six times its size.
#[test]
fn headers_that_many_receivers_would_refuse_are_left_out() {
    let server = Server::start();
    let text = "\u{e9}".repeat(2_000);
    let line = format!(r#"{{"id": "order-1", "payload": "x", "headers": {{"note": "{text}"}}}}"#);
    run_with_input(on(&server, &["send", "--file", "-"]), line.as_bytes()).code(0);
    let (url, requests) = receiver(|_, _| status("204 No Content", "", ""));
    run(on(&server, &post(&url, &[]))).code(0);
    let request = requests.recv().unwrap();
    assert!(request.header("delayline-headers").is_empty());
    assert_eq!(request.header("delayline-headers-omitted"), "12011");
}

#[test]
fn a_connection_is_closed_before_its_receiver_would() {
    let server = Server::start();
    send(&server, &["--id", "order-1", "--payload", "x"]);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let work = start(&mut on(&server, &["work", "--post", &url]));
    let (mut stream, _) = listener.accept().unwrap();
    assert!(read(&stream).is_some());
    stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").unwrap();
    // The client keeps it for 1 s. This limit is longer, for a machine that is busy.
    stream.set_read_timeout(Some(Duration::from_secs(40))).unwrap();
    assert_eq!(stream.read(&mut [0]).expect("it stays open"), 0);
    send_signal(&work, "-TERM");
    crate::support::ended(work).code(0);
}

#[test]
fn each_answer_has_its_consequence() {
    let server = Server::start();
    for (id, max_failures) in [("gone", "3"), ("moved", "1"), ("broken", "1"), ("timid", "1")] {
        send(&server, &["--id", id, "--payload", "x", "--max-failures", max_failures]);
    }
    let (url, _requests) = receiver(|_, request| match request.header("webhook-id") {
        "gone" => status("410 Gone", "", "no such \u{1b}[2J order"),
        "moved" => status("302 Found", "location: http://127.0.0.1:1/\r\n", ""),
        "broken" => status("500 Internal Server Error", "", &"x".repeat(100_000)),
        _ => "HTTP/1.1 what\r\n\r\n".to_owned(),
    });
    run(on(&server, &post(&url, &[]))).code(0);
    for (id, reason, error) in [
        ("gone", "rejected", "HTTP status 410: no such \u{1b}[2J order"),
        ("moved", "max_failures", "HTTP status 302 (redirects are not followed)"),
        ("broken", "max_failures", "HTTP status 500: xxx"),
        ("timid", "max_failures", "the request failed"),
    ] {
        let message = known(&server, id);
        assert_eq!(message["reason"], reason, "{message}");
        let last = message["last_error"].as_str().unwrap();
        assert!(last.starts_with(error) && last.len() < 1_000, "{message}");
    }
}

#[test]
fn an_empty_payload_is_posted_with_its_length() {
    let server = Server::start();
    send(&server, &["--id", "order-1", "--payload", ""]);
    let (url, requests) = receiver(|_, _| status("204 No Content", "", ""));
    run(on(&server, &post(&url, &[]))).code(0);
    assert_eq!(requests.recv().unwrap().header("content-length"), "0");
    assert_eq!(known(&server, "order-1")["state"], "acked");
}

#[test]
fn an_answer_of_4xx_is_retried_if_asked() {
    let server = Server::start();
    send(&server, &["--id", "order-1", "--payload", "x", "--max-failures", "1"]);
    let (url, _requests) = receiver(|_, _| status("404 Not Found", "", ""));
    run(on(&server, &post(&url, &["--retry-4xx"]))).code(0);
    assert_eq!(known(&server, "order-1")["reason"], "max_failures");
}

#[test]
fn a_busy_receiver_is_asked_later_and_not_for_ever() {
    let server = Server::start();
    send(&server, &["--id", "order-1", "--payload", "x", "--max-failures", "1"]);
    let (url, requests) = receiver(|number, _| {
        let later = "retry-after: 0\r\n";
        let line = if number == 0 { "429 Too Many Requests" } else { "503 Service Unavailable" };
        status(line, later, "")
    });
    run(on(&server, &post(&url, &["--max-snoozes", "2"]))).code(0);
    let message = known(&server, "order-1");
    assert_eq!((&message["failures"], &message["epoch"]), (&1.into(), &3.into()), "{message}");
    assert_eq!(message["last_error"], "HTTP status 503 (claimed 2 times without a failure)");
    assert_eq!(requests.try_iter().count(), 3);
}

#[test]
fn a_receiver_that_says_nothing_is_given_up() {
    let server = Server::start();
    send(&server, &["--id", "order-1", "--payload", "x", "--max-failures", "1"]);
    // The kernel accepts the connection, but the receiver does not reply.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    run(on(&server, &post(&url, &["--timeout", "200ms"]))).code(0);
    assert_eq!(known(&server, "order-1")["last_error"], "no answer within 200ms");
}

#[test]
fn the_status_decides_although_the_body_does_not_end() {
    let server = Server::start();
    for id in ["taken", "gone"] {
        send(&server, &["--id", id, "--payload", "x", "--max-failures", "1"]);
    }
    let (url, _requests) = receiver(|_, request| {
        let head = if request.header("webhook-id") == "taken" { "200 OK" } else { "410 Gone" };
        format!("HTTP/1.1 {head}\r\ncontent-length: 1000\r\n\r\nno such order")
    });
    run(on(&server, &post(&url, &[]))).code(0);
    assert_eq!(known(&server, "taken")["state"], "acked");
    let gone = known(&server, "gone");
    assert_eq!(gone["last_error"], "HTTP status 410: no such order", "{gone}");
}

#[test]
fn the_body_of_an_answer_is_the_result_if_somebody_wants_it() {
    let server = Server::start();
    for id in ["small", "large", "endless"] {
        send(&server, &["--id", id, "--payload", "x", "--keep-result", "1h"]);
    }
    send(&server, &["--id", "unasked", "--payload", "x"]);
    let (url, _requests) = receiver(|_, request| match request.header("webhook-id") {
        "large" => status("200 OK", "", &"x".repeat(65_537)),
        "endless" => "HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\nso far".to_owned(),
        _ => status("201 Created", "", "shipped"),
    });
    let ended = run(on(&server, &post(&url, &["--timeout", "3s"]))).code(0);
    assert!(ended.stderr.contains("id=large limit=65536"), "{}", ended.stderr);
    assert!(ended.stderr.contains("broke off"), "{}", ended.stderr);
    for (id, result) in [("small", "shipped"), ("large", ""), ("endless", ""), ("unasked", "")] {
        assert_eq!(known(&server, id)["state"], "acked", "{id}");
        assert_eq!(run(on(&server, &["wait", id])).code(0).stdout, result, "{id}");
    }
}

#[test]
fn a_request_under_way_at_the_end_is_given_back() {
    let server = Server::start();
    send(&server, &["--id", "order-1", "--payload", "x"]);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let work = start(&mut on(&server, &["work", "--grace", "0s", "--post", &url]));
    listener.set_nonblocking(true).unwrap();
    let stream = RefCell::new(None);
    wait_until("a request comes", || {
        *stream.borrow_mut() = listener.accept().ok();
        stream.borrow().is_some()
    });
    let (stream, _) = stream.into_inner().unwrap();
    stream.set_nonblocking(false).unwrap();
    assert!(read(&stream).is_some());
    send_signal(&work, "-TERM");
    crate::support::ended(work).code(0);
    wait_until("the message is ready", || count(&server, "ready") == 1);
    assert_eq!(known(&server, "order-1")["failures"], 0);
}

/// The receiver has taken the message: it must not be posted again for the sake of a result.
#[test]
fn an_end_of_the_work_does_not_undo_a_status() {
    let server = Server::start();
    send(&server, &["--id", "order-1", "--payload", "x", "--keep-result", "1h"]);
    let (url, requests) =
        receiver(|_, _| "HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\nso far".to_owned());
    let work = start(&mut on(&server, &["work", "--grace", "5s", "--post", &url]));
    requests.recv().unwrap();
    send_signal(&work, "-TERM");
    crate::support::ended(work).code(0);
    assert_eq!((count(&server, "acked_total"), count(&server, "ready")), (1, 0));
}

#[test]
fn what_is_wrong_is_told_before_anything_is_posted() {
    let server = Server::start();
    for (args, why) in [
        (&["--post", "ftp://hooks.example/"][..], "http://"),
        (&["--post", "http://anna:hunter2@hooks.example/"], "no user and password"),
        (&["--post", "http://hooks.example/", "--post-secret", "hunter2"], "at least 16 bytes"),
        (&["--post", "http://hooks.example/", "--exec", "true"], "cannot be used with"),
        (&["--retry-4xx"], "--post"),
        (&["--max-snoozes", "3"], "--post"),
        (&["--post-secret", "hunter2hunter2hunter2"], "--post-secret needs --post"),
    ] {
        let refused = run(on(&server, &[&["work"], args].concat())).code(2);
        assert!(refused.stderr.contains(why), "{args:?}: {}", refused.stderr);
        assert!(!refused.stderr.contains("hunter2"), "{}", refused.stderr);
    }
}
