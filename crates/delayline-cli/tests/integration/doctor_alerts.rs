//! `delayline doctor --prometheus`.

use std::io::Write as _;
use std::net::TcpListener;

use crate::post::{read, status};
use crate::support::{Ended, bare, run};
use serde_json::{Value, json};

const ALERTS: &str = include_str!("../../../../monitoring/alerts.yml");

/// Names in the file, in order.
fn names() -> Vec<&'static str> {
    ALERTS.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect()
}

/// Replies to each request with `reply`, given its lines, and closes the connection. Returns its
/// address.
fn server(reply: impl Fn(&[String]) -> String + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    // It ends with the test.
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let Some(request) = read(&stream) else { continue };
            // The client may close the connection first.
            let _ = stream.write_all(reply(&request.lines).as_bytes());
        }
    });
    address
}

fn rules(rules: &[Value]) -> String {
    let groups = json!([{"name": "delayline", "file": "/alerts.yml", "rules": rules}]);
    status("200 OK", "", &json!({"status": "success", "data": {"groups": groups}}).to_string())
}

fn rule(name: &str, state: &str) -> Value {
    json!({"name": name, "state": state, "health": "ok", "type": "alerting", "alerts": []})
}

/// Runs the command on a directory with a queue.
fn doctor(prometheus: &str, flags: &[&str]) -> Ended {
    let directory = tempfile::tempdir().unwrap();
    let url = format!("file:{}", directory.path().join("new").display());
    run(bare(&["--url", &url, "--queue", "orders", "pause", "--create"])).code(0);
    let mut command = bare(&[&["--url", &url, "doctor"], flags].concat());
    command.env("DELAYLINE_PROMETHEUS", prometheus);
    run(command)
}

fn findings(prometheus: &str, code: i32) -> Vec<(String, String, String)> {
    let ended = doctor(prometheus, &["--json"]).code(code);
    assert!(!ended.stdout.contains("hunter2") && !ended.stderr.contains("hunter2"));
    let lines = ended.lines().into_iter();
    let alerts = lines.filter(|line| line["check"].as_str().unwrap().contains("alerts"));
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    alerts.map(|it| (text(&it["check"]), text(&it["verdict"]), text(&it["detail"]))).collect()
}

fn finding(check: &str, verdict: &str, detail: &str) -> (String, String, String) {
    (check.to_owned(), verdict.to_owned(), detail.to_owned())
}

#[test]
fn loaded_missing_and_firing_alerts_are_reported() {
    let inactive = |names: &[&str]| names.iter().map(|it| rule(it, "inactive")).collect::<Vec<_>>();
    let address = server(move |lines| {
        let all = inactive(&names());
        match lines[0].split(' ').nth(1).unwrap().strip_suffix(RULES) {
            Some("") => rules(&all),
            Some("/none") => rules(&[rule("Other", "firing")]),
            Some("/user")
                if lines.contains(&"authorization: Basic YTpodW50ZXIyQA==".to_owned()) =>
            {
                rules(&all)
            }
            Some("/user") => status("401 Unauthorized", "", "hunter2"),
            Some("/page") => status("200 OK", "", "<html>hunter2</html>"),
            Some("/moved") => status("302 Found", "location: /hunter2\r\n", ""),
            _ => status("404 Not Found", "", "hunter2"),
        }
    });
    let of = |path: &str| format!("http://{address}{path}");
    let all = format!("all {} alerts are loaded", names().len());
    let good =
        [finding("alerts", "good", &all), finding("firing alerts", "good", "no alert is firing")];
    assert_eq!(findings(&of(""), 0), good);
    assert_eq!(findings(&of("/"), 0), good);
    assert_eq!(findings(&format!("http://a:hunter2%40@{address}/user"), 0), good);
    let none = format!("none of the {} alerts is loaded", names().len());
    for (url, why) in [
        (of("/none"), none.as_str()),
        (of("/user"), "the reply has HTTP status 401"),
        (format!("http://a:hunter2@{address}/user"), "the reply has HTTP status 401"),
        (of("/moved"), "the reply has HTTP status 302"),
        (of("/page"), "the reply does not list rules as Prometheus does"),
        (of("/other/path"), "the reply has HTTP status 404"),
    ] {
        assert_eq!(findings(&url, 1), [finding("alerts", "bad", why)], "{url}");
    }
    // The flag does the same as the variable, and the table names the server.
    let table = doctor("http://a:hunter2@127.0.0.1:1", &["--prometheus", &of("/none")]).code(1);
    let line = table.stdout.lines().find(|line| line.starts_with("alerts")).unwrap().to_owned();
    assert!(line.contains(&format!("(http://{address}/none)")), "{line}");
    assert!(line.contains("add monitoring/alerts.yml to rule_files"), "{line}");
}

#[test]
fn a_server_that_does_not_answer_properly_is_a_finding() {
    let closed = {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap()
    };
    let broken = server(|_| "HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{".to_owned());
    let garbage = server(|_| "hunter2\r\n\r\n".to_owned());
    let endless = server(|_| status("200 OK", "", &"[".repeat(17 << 20)));
    // The kernel accepts connections that nothing reads.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    for (address, why) in [
        (closed.to_string(), "the request failed: "),
        (broken, "the reply broke off"),
        (garbage, "the request failed: "),
        (endless, "the reply is longer than 16 MiB"),
        (silent.local_addr().unwrap().to_string(), "no reply within 10s"),
    ] {
        let found = findings(&format!("http://u:hunter2@{address}"), 1);
        assert_eq!((found.len(), found[0].1.as_str()), (1, "bad"), "{found:?}");
        assert!(found[0].2.starts_with(why), "{found:?}");
    }
    for bad in ["", "a.example", "ftp://a.example", "http://u:hunter2@", "http://a/?hunter2"] {
        let refused = doctor(bad, &["--prometheus", bad]).code(2);
        assert!(refused.stderr.contains("--prometheus"), "{}", refused.stderr);
        assert!(!refused.stderr.contains("hunter2"), "{}", refused.stderr);
    }
}

#[test]
fn a_server_of_queues_is_examined_with_its_alerts() {
    let redis = delayline_test_server::Server::start();
    let address = server(|_| rules(&[]));
    let url = format!("http://{address}");
    let args = ["doctor", "--json", "--prometheus", &url];
    let found = run(crate::support::on(&redis, &args)).code(1).lines();
    let last = found.last().unwrap();
    assert_eq!((&last["check"], &last["servers"]), (&"alerts".into(), &json!([url])));
    assert!(found.iter().any(|it| it["check"] == "queue" && it["verdict"] == "good"));
}

const RULES: &str = "/api/v1/rules?type=alert&exclude_alerts=true";
