//! packaging: the command accepts the arguments of manifests and units, and returns the numbers
//! that KEDA reads.

use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use delayline_cli::reading;
use delayline_core::worker::{AFTER_TOKENS, LAST_SETTLEMENTS};
use delayline_test_server::Server;
use serde_json::Value;

use crate::support::{ask, bare, ended, listening, send, send_signal, start};

fn read(file: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging").join(file);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The arguments of a container.
fn args(manifest: &str) -> Vec<String> {
    let manifest = read(manifest);
    let line = manifest.lines().find_map(|line| line.trim().strip_prefix("args: ")).unwrap();
    serde_json::from_str(line).unwrap()
}

#[test]
fn manifests_and_units_run_what_the_command_accepts() {
    let mut commands: Vec<Vec<String>> = ["serve", "worker", "scheduler"]
        .map(|it| args(&format!("kubernetes/base/{it}.yaml")))
        .into();
    for unit in ["delayline-serve", "delayline-work@", "delayline-scheduler"] {
        let unit = read(&format!("{unit}.service"));
        // Also those of the drop-ins that its comments show.
        let lines = unit.lines().filter_map(|line| {
            let (_, line) = line.split_once("ExecStart=/usr/local/bin/delayline ")?;
            Some(line.replace("%i", "orders-eu"))
        });
        let before = commands.len();
        commands.extend(lines.map(|line| {
            assert!(!line.contains('%'), "{line}");
            line.split(' ').map(str::to_owned).collect()
        }));
        assert!(commands.len() > before, "{unit}");
    }
    for command in commands {
        let words = ["delayline"].into_iter().chain(command.iter().map(String::as_str));
        assert_eq!(reading::arguments(words.map(OsString::from)), Ok(()), "{command:?}");
    }
}

#[test]
fn a_process_is_killed_only_after_the_longest_stop_of_its_worker() {
    let grace = Duration::from_secs(20);
    let longest = (grace + AFTER_TOKENS + LAST_SETTLEMENTS).as_secs();
    for (file, field) in [
        ("delayline-work@.service", "TimeoutStopSec="),
        ("delayline-serve.service", "TimeoutStopSec="),
        ("kubernetes/base/serve.yaml", "terminationGracePeriodSeconds: "),
        ("kubernetes/base/worker.yaml", "terminationGracePeriodSeconds: "),
        ("kubernetes/base/scheduler.yaml", "terminationGracePeriodSeconds: "),
        ("../examples/compose/compose.yaml", "stop_grace_period: "),
    ] {
        let text = read(file);
        let seconds = text.lines().find_map(|line| line.trim().strip_prefix(field)).unwrap();
        let seconds: u64 = seconds.trim_end_matches('s').parse().unwrap();
        assert!(seconds > longest + 5, "{file}: {seconds} s");
    }
}

#[test]
fn a_pod_is_ready_and_keda_reads_the_numbers_of_the_queue() {
    let server = Server::start();
    for (id, delay) in
        [("a", "0s"), ("b", "0s"), ("c", "2m"), ("d", "3m"), ("e", "4m"), ("f", "1h")]
    {
        send(&server, &["--id", id, "--payload", "7", "--delay", delay]);
    }
    let place = tempfile::tempdir().unwrap();
    let users: PathBuf = place.path().join("users");
    std::fs::write(&users, "viewer@orders bearer keda a-long-token\n").unwrap();
    // As the volume of the secret has it.
    std::fs::set_permissions(&users, std::fs::Permissions::from_mode(0o440)).unwrap();
    let args = args("kubernetes/base/serve.yaml");
    let args: Vec<&str> = args
        .iter()
        .map(|arg| match arg.as_str() {
            "0.0.0.0:7380" => "127.0.0.1:0",
            "/etc/delayline/users" => users.to_str().unwrap(),
            other => other,
        })
        .collect();
    let (child, [address]) = listening(start(bare(&args).env("DELAYLINE_URL", server.url())));
    let get = |path: &str, login: &str| {
        // A probe names the address of the pod, and KEDA the service.
        let head = format!("GET {path} HTTP/1.1\r\nhost: delayline-serve:7380{login}");
        ask(&address, &head, "")
    };
    let probe = read("kubernetes/base/serve.yaml");
    let probe = probe.split_once("httpGet: { path: ").and_then(|(_, it)| it.split_once(','));
    for path in [probe.unwrap().0, "/health"] {
        assert_eq!(get(path, "").0, 200, "{path}");
    }
    let object = read("kubernetes/keda/scaled-object.yaml");
    let field = |name: &'static str| {
        let lines = object.lines().filter_map(move |line| line.trim().strip_prefix(name));
        lines.map(|value| value.trim_matches([':', ' ']).to_owned()).collect::<Vec<_>>()
    };
    let (urls, places) = (field("url"), field("valueLocation"));
    let numbers = urls.iter().zip(&places).map(|(url, place)| {
        let path = url.strip_prefix("http://delayline-serve.delayline.svc:7380").unwrap();
        let (status, answer) = get(path, "\r\nauthorization: Bearer a-long-token");
        assert_eq!(status, 200, "{answer}");
        let (_, body) = answer.split_once("\r\n\r\n").unwrap();
        let body: Value = serde_json::from_str(body).unwrap();
        let found = place.split('.').fold(&body, |value, part| match part.parse::<usize>() {
            Ok(index) => &value[index],
            Err(_) => &value[part],
        });
        (place.clone(), found.as_u64())
    });
    let expected = [("ready", 2), ("leased", 0), ("due.0.count", 3)];
    let expected = expected.map(|(place, count)| (place.to_owned(), Some(count)));
    assert_eq!(numbers.collect::<Vec<_>>(), expected);
    send_signal(&child, "-TERM");
    ended(child).code(0);
}
