//! `delayline serve`.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use crate::support::{
    Running, ask, bare, count, ended, get, listening, on, post, run, send, send_signal, served,
    start, wait_until,
};
use delayline_test_server::{Cluster, Server};

/// Starts `serve` on a free port, waits until it listens, and returns its address.
fn serving(server: &Server, args: &[&str]) -> (Running, String) {
    serving_at(server, "127.0.0.1:0", args)
}

fn serving_at(server: &Server, address: &str, args: &[&str]) -> (Running, String) {
    let args = [&["serve", "--listen", address], args].concat();
    let (child, [address]) = listening(start(&mut on(server, &args)));
    (child, address)
}

#[test]
fn pages_api_metrics_and_health_are_served_until_a_signal() {
    let server = Server::start();
    send(&server, &["--id", "order-1", "--payload", "7"]);
    let (mut child, address) = serving(&server, &["texts"]);
    let get = |path: &str| get(&address, path);
    let (status, page) = get("/queues");
    assert!(status == 200 && page.contains("queue?queue=orders"), "{page}");
    assert!(page.contains("queue?queue=texts"), "{page}");
    for path in ["/queue?queue=orders", "/message?queue=orders&id=order-1", "/health"] {
        assert_eq!(get(path).0, 200, "{path}");
    }
    let (status, page) = get("/server?queue=orders");
    assert!(status == 200 && page.contains("One server") && page.contains("As worker"), "{page}");
    assert!(get("/metrics").1.contains("delayline_messages{queue=\"orders\",state=\"ready\"} 1"));
    let send = post(&address, "messages");
    assert_eq!(ask(&address, &send, r#"{"id": "order-2", "payload": 7}"#).0, 201);
    assert_eq!(count(&server, "ready"), 2);
    // A page of another site whose name leads here is not served.
    let (status, answer) = ask(&address, "GET /queues HTTP/1.1\r\nhost: evil.example", "");
    assert!(status == 403 && !answer.contains("orders"), "{answer}");
    let head = format!(
        "POST /pause?queue=orders HTTP/1.1\r\nhost: {address}\r\nsec-fetch-site: cross-site"
    );
    assert_eq!(ask(&address, &head, "").0, 403);

    send_signal(&child, "-TERM");
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert!(TcpStream::connect(&address).is_err());
}

#[test]
fn schedules_are_served_where_all_queues_are_or_if_they_are_asked_for() {
    let server = Server::start();
    for (args, status) in [
        (&["orders"][..], 404),
        (&["--all"], 200),
        (&["orders", "--schedules", "schedules"], 200),
        (&["orders", "--scheduler"], 200),
    ] {
        let (mut child, address) = serving(&server, args);
        let head = format!("GET /api/v1/schedules HTTP/1.1\r\nhost: {address}");
        assert_eq!(ask(&address, &head, "").0, status, "{args:?}");
        send_signal(&child, "-TERM");
        assert_eq!(child.wait().unwrap().code(), Some(0));
    }
}

#[test]
fn all_queues_are_served_while_a_primary_is_away() {
    let cluster = Cluster::start();
    let [first, second, third] = cluster.nodes() else { panic!("three nodes") };
    for node in cluster.nodes() {
        node.command(&["CONFIG", "SET", "cluster-require-full-coverage", "no"]);
    }
    let named = |node: &Server| {
        let is_there = |name: &String| std::ptr::eq(cluster.owner(first, cluster.slot(name)), node);
        (0..).map(|number| format!("queue-{number}")).find(is_there).unwrap()
    };
    let names = [first, second, third].map(named);
    let url = cluster.url_of(&[first, third]);
    for name in &names {
        let mut send = bare(&["--queue", name, "send", "--payload", "7"]);
        send.env("DELAYLINE_URL", &url);
        run(send).code(0);
    }
    second.kill();
    let mut serve = bare(&["serve", "--all", "--listen", "127.0.0.1:0"]);
    serve.env("DELAYLINE_URL", &url);
    let (mut child, [address]) = listening(start(&mut serve));
    let get = |path: &str| get(&address, path);
    let away = format!("127.0.0.1:{}", second.port());
    let (status, page) = get("/queues");
    assert_eq!(status, 200);
    for (name, is_shown) in names.iter().zip([true, false, true]) {
        assert_eq!(page.contains(&format!("queue?queue={name}\"")), is_shown, "{name}: {page}");
    }
    assert!(page.contains("some servers cannot be listed") && page.contains(&away), "{page}");
    let (_, list) = get("/api/v1/queues");
    assert!(list.contains(r#""complete":false"#) && list.contains(&away), "{list}");
    assert_eq!(get(&format!("/queue?queue={}", names[0])).0, 200);
    send_signal(&child, "-TERM");
    let code = child.wait().unwrap().code();
    let ended = ended(child);
    assert_eq!(code, Some(0), "{}", ended.stderr);
    assert!(ended.stderr.contains(&away), "{}", ended.stderr);
}

#[test]
fn without_names_all_queues_of_the_server_are_served() {
    let server = Server::start();
    send(&server, &["--id", "order-1", "--payload", "7"]);
    run(on(&server, &["--queue", "texts", "send", "--payload", "7"])).code(0);
    let (child, address) = serving(&server, &["--all"]);
    let (status, page) = get(&address, "/queues");
    assert!(status == 200 && page.contains("queue?queue=texts"), "{page}");
    drop(child);
    let mut command = bare(&["serve", "--listen", "127.0.0.1:0"]);
    command.env("DELAYLINE_URL", server.url());
    let (child, [address]) = listening(start(&mut command));
    let get = |path: &str| get(&address, path);
    let (status, page) = get("/queues");
    assert!(status == 200 && page.contains("queue?queue=orders"), "{page}");
    assert!(page.contains("The list of queues was read"), "{page}");
    assert!(get("/metrics").1.contains("delayline_messages{queue=\"orders\",state=\"ready\"} 1"));
    send_signal(&child, "-TERM");
    ended(child).code(0);
}

#[test]
fn users_of_a_file_come_in_and_others_do_not() {
    let server = Server::start();
    let directory = tempfile::tempdir().unwrap();
    let users = directory.path().join("users");
    let path = users.to_str().unwrap();
    std::fs::write(&users, "admin basic anna secret\nviewer bearer robot t0ken\n").unwrap();
    let mode = |mode| std::fs::set_permissions(&users, PermissionsExt::from_mode(mode)).unwrap();
    mode(0o644);
    let refused = run(on(&server, &["serve", "--listen", "127.0.0.1:0", "--users", path])).code(2);
    assert!(refused.stderr.contains("can be read by every user"), "{}", refused.stderr);
    mode(0o660);
    let refused = run(on(&server, &["serve", "--listen", "127.0.0.1:0", "--users", path])).code(2);
    assert!(refused.stderr.contains("can be changed by every user of its group"));
    mode(0o600);
    let (mut child, address) = serving(&server, &["--users", path, "--trusted-proxy", "127.0.0.1"]);
    let pause = "POST /pause?queue=orders HTTP/1.1\r\nhost: queues.example";
    for (authorization, status) in [
        ("", 401),
        ("authorization: Bearer t0ken2", 401),
        ("authorization: Bearer t0ken", 403),
        // anna:secret
        ("authorization: Basic YW5uYTpzZWNyZXQ=", 303),
    ] {
        let head = format!("{pause}\r\nx-forwarded-for: 192.0.2.1\r\n{authorization}");
        assert_eq!(ask(&address, head.trim_end(), "").0, status, "{authorization}");
    }
    send_signal(&child, "-INT");
    let mut log = String::new();
    child.stderr.as_mut().unwrap().read_to_string(&mut log).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert!(log.contains("visitor=anna action=\"pause\""), "{log}");
    assert!(log.contains("visitor=robot action=\"refused\" request=\"POST /pause"), "{log}");
    let failed = "visitor=unknown action=\"login\" address=\"192.0.2.1\"";
    assert!(log.contains(failed), "{log}");
    assert!(!log.contains("secret") && !log.contains("t0ken"), "{log}");
}

#[test]
fn any_address_of_this_machine_is_answered_under_its_name() {
    let server = Server::start();
    let (child, address) = serving_at(&server, "127.0.0.2:0", &[]);
    let get = |host: &str| ask(&address, &format!("GET /queues HTTP/1.1\r\nhost: {host}"), "");
    let port = address.rsplit_once(':').unwrap().1;
    for host in [&address, &format!("localhost:{port}"), "127.0.0.2"] {
        assert_eq!(get(host).0, 200, "{host}");
    }
    let (status, answer) = get("127.0.0.3");
    assert!(status == 403 && answer.contains("127.0.0.2"), "{answer}");
    send_signal(&child, "-TERM");
    ended(child).code(0);
}

#[test]
fn other_machines_need_a_login() {
    let server = Server::start();
    for address in ["0.0.0.0:0", "[::]:0"] {
        let refused = run(on(&server, &["serve", "--listen", address])).code(2);
        assert!(refused.stderr.contains("--users FILE"), "{}", refused.stderr);
    }
}

#[test]
fn errors_are_reported_before_the_first_request_is_served() {
    let server = Server::start();
    server.command(&["ACL", "SETUSER", "u", "on", ">pw", "+@all", "-scan", "~*"]);
    let mut nameless = bare(&["serve", "--listen", "127.0.0.1:0"]);
    nameless.env("DELAYLINE_URL", server.url_with_login("u", "pw"));
    assert!(run(nameless).code(3).stderr.contains("permission"));
    let mut nameless = bare(&["serve", "--listen", "127.0.0.1:0"]);
    nameless.env("DELAYLINE_URL", "redis://127.0.0.1:1");
    run(nameless).code(3);
    run(on(&server, &["serve", "--listen", "127.0.0.1:0", "a b"])).code(2);
    run(on(&server, &["serve", "--listen", "here"])).code(2);
    let absent = ["--url", "redis://127.0.0.1:1", "serve", "--listen", "127.0.0.1:0"];
    run(on(&server, &absent)).code(3);
}

/// Sends a claim that waits, and returns its connection.
pub(crate) fn poll(address: &str) -> std::io::Result<TcpStream> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(60)))?;
    let (head, body) = (post(address, "claim"), r#"{"wait": "50s", "lease": "10m"}"#);
    write!(stream, "{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len())?;
    Ok(stream)
}

#[test]
fn polls_that_wait_are_answered_at_the_end() {
    let server = Server::start();
    let (mut child, address) = serving(&server, &["orders"]);
    let polls: Vec<TcpStream> = (0..20).map(|_| poll(&address).unwrap()).collect();
    // A connection whose request was not read is closed at the end.
    wait_until("all polls wait", || served(&address) == 20);
    send_signal(&child, "-TERM");
    for mut poll in polls {
        let mut answer = String::new();
        poll.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        assert!(answer.contains(r#""deliveries":[]"#), "{answer}");
    }
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn connections_that_close_leave_no_lease() {
    let server = Server::start();
    let (_child, address) = serving(&server, &["orders"]);
    let waits = || server.info("clients", "blocked_clients").parse::<u64>().unwrap();
    let polls = || (0..5).map(|_| poll(&address).unwrap()).collect::<Vec<_>>();
    let (closed, half_closed) = (polls(), polls());
    wait_until("a poll waits", || waits() == 1);
    drop(closed);
    // The server takes a half-closed connection for a closed one.
    for stream in &half_closed {
        stream.shutdown(Shutdown::Write).unwrap();
    }
    for mut stream in half_closed {
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        assert!(answer.is_empty());
    }
    wait_until("no claim waits", || waits() == 0);
    send(&server, &["--id", "order-1", "--payload", "7"]);
    let mut live = poll(&address).unwrap();
    let mut answer = [0; 4_096];
    let read = live.read(&mut answer).unwrap();
    assert!(String::from_utf8_lossy(&answer[..read]).starts_with("HTTP/1.1 200"));
    assert_eq!((count(&server, "leased"), count(&server, "crashed_total")), (1, 0));
}

#[test]
fn the_same_process_delivers() {
    let server = Server::start();
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("payloads");
    let command = format!("cat >> {}", file.display());
    let (mut child, address) = serving(&server, &["--exec", &command, "orders"]);
    let send = post(&address, "messages");
    assert_eq!(ask(&address, &send, r#"{"id": "order-1", "payload": "seven"}"#).0, 201);
    wait_until("it is handled", || count(&server, "acked_total") == 1);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "seven");
    send_signal(&child, "-TERM");
    assert_eq!(child.wait().unwrap().code(), Some(0));
    let refused = run(bare(&["serve", "--listen", "127.0.0.1:0", "--exec", "true"])).code(2);
    assert!(refused.stderr.contains("no queue was named"), "{}", refused.stderr);
}
