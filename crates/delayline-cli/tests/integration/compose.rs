//! The Compose files: the command accepts what their services run.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{ask, bare, ended, listening, on, run, send, send_signal, start};
use delayline_cli::reading;
use delayline_test_server::Server;

/// A service that runs the command.
#[derive(Debug, Default)]
struct Service {
    command: Vec<String>,
    entrypoint: Vec<String>,
    environment: BTreeMap<String, String>,
}

impl Service {
    /// It runs as in the file, but for these arguments and this server.
    fn here(&self, server: &Server, replaced: &[(&str, &str)]) -> Command {
        let mut args: Vec<&str> = self.command.iter().map(String::as_str).collect();
        for (from, to) in replaced {
            *args.iter_mut().find(|it| *it == from).unwrap_or_else(|| panic!("{from}")) = to;
        }
        let mut command = bare(&args);
        for (name, value) in &self.environment {
            command.env(name, value);
        }
        let url = &self.environment["DELAYLINE_URL"];
        assert!(["redis://redis:6379", "redis://valkey:6379"].contains(&url.as_str()), "{url}");
        command.env("DELAYLINE_URL", server.url());
        command
    }
}

const FILE: &str = include_str!("../../../../examples/compose/compose.yaml");
/// To try it, without a worker and Prometheus.
const SMALL: &str = include_str!("../../../../compose.yaml");

/// The services with Delayline's image. Reads what the file has of YAML, and no more.
fn services(file: &'static str) -> BTreeMap<String, Service> {
    let (_, text) = file.split_once("\nservices:\n").unwrap();
    let (text, _) = text.split_once("\nnetworks:\n").unwrap();
    let mut found = BTreeMap::new();
    let mut name = "";
    let mut in_environment = false;
    for line in text.lines().filter(|line| !line.trim_start().starts_with('#')) {
        let indent = line.len() - line.trim_start().len();
        let Some((key, value)) = line.trim().split_once(':') else { continue };
        in_environment = indent > 4 && in_environment || key == "environment";
        match (indent, key) {
            (2, _) => name = key,
            (4, "<<") => _ = found.insert(name.to_owned(), Service::default()),
            _ => {}
        }
        let Some(service) = found.get_mut(name) else { continue };
        let words =
            || serde_json::from_str(value).unwrap_or_else(|error| panic!("{line}: {error}"));
        match (indent, key) {
            (4, "command") => service.command = words(),
            (4, "entrypoint") => service.entrypoint = words(),
            (6, _) if in_environment => {
                service.environment.insert(key.to_owned(), value.trim().to_owned());
            }
            _ => {}
        }
    }
    found
}

#[test]
fn the_worker_handles_messages() {
    let services = services(FILE);
    assert_eq!(services.keys().collect::<Vec<_>>(), ["access", "serve", "worker"]);
    let server = Server::start();
    // What its variable names as the queue, is the one of `send` here.
    send(&server, &["--id", "order-1", "--payload", "7"]);
    let mut worker = services["worker"].here(&server, &[]);
    worker.arg("--until-empty");
    let lines = run(worker).code(0).lines();
    assert_eq!(lines[0]["id"], "order-1");
}

#[test]
fn the_dashboard_lets_in_whom_the_script_has_made_up() {
    lets_in(FILE, "/scrape", &[]);
    lets_in(SMALL, "/access", &[("0.0.0.0:9324", "127.0.0.1:0")]);
}

/// Makes up users with the directory of the token, and visits the dashboard.
fn lets_in(file: &'static str, token: &str, more: &[(&str, &str)]) {
    let services = services(file);
    let access = &services["access"];
    assert_eq!(access.entrypoint, ["/bin/sh", "/access.sh"]);
    assert_eq!(access.command, ["/access", token]);
    let place = tempfile::tempdir().unwrap();
    let make_up = || {
        let script = folder().join("access.sh");
        let done = Command::new("sh").arg(script).args([place.path(); 2]).status().unwrap();
        assert!(done.success());
        let read = |name| std::fs::read_to_string(place.path().join(name)).unwrap();
        (read("users"), read("token"))
    };
    let (users, token) = make_up();
    assert_eq!(make_up(), (users.clone(), token.clone()), "each start makes up others");
    assert_eq!(users.matches(&token).count(), 1);
    assert!(users.split_whitespace().filter(|word| word.len() == 48).count() == 2, "{users}");

    let server = Server::start();
    let file = place.path().join("users");
    let replaced = [("0.0.0.0:7380", "127.0.0.1:0"), ("/access/users", file.to_str().unwrap())];
    let replaced = [&replaced[..], more].concat();
    let (child, [address]) = listening(start(&mut services["serve"].here(&server, &replaced)));
    let scrape = |token: &str| {
        // The name that Prometheus has for it.
        let head = "GET /metrics HTTP/1.1\r\nhost: serve:7380";
        ask(&address, &format!("{head}\r\nauthorization: Bearer {token}"), "")
    };
    let (status, answer) = scrape(&token);
    assert_eq!(status, 200, "{answer}");
    assert!(answer.contains("delayline_discovery_complete 1"), "{answer}");
    let (status, answer) = scrape("guessed");
    assert_eq!(status, 401, "{answer}");
    send_signal(&child, "-TERM");
    ended(child).code(0);
}

#[test]
fn commands_of_the_guide_and_of_the_services_are_accepted() {
    let guide = include_str!("../../../delayline/docs/guides/observe.md");
    let in_service = guide.lines().filter_map(|line| {
        let (_, rest) = line.strip_prefix("docker compose ")?.split_once(" worker delayline ")?;
        Some(rest.split(' ').map(|it| it.trim_matches('\'').to_owned()).collect::<Vec<_>>())
    });
    let mut commands: Vec<Vec<String>> = in_service.collect();
    assert!(!commands.is_empty(), "the guide runs nothing in the worker's container");
    let services: Vec<_> = [FILE, SMALL].into_iter().flat_map(services).collect();
    let services = || services.iter().map(|(_, service)| service);
    let own = services().filter(|it| it.entrypoint.is_empty());
    commands.extend(own.map(|it| it.command.clone()));
    for command in commands {
        let words = ["delayline"].into_iter().chain(command.iter().map(String::as_str));
        let read = reading::arguments(words.map(OsString::from));
        assert_eq!(read, Ok(()), "{command:?}");
    }
    let help = run(on(&Server::start(), &["work", "--help"])).code(0).stdout;
    for name in services().flat_map(|it| it.environment.keys()) {
        assert!(help.contains(&format!("[env: {name}")), "{name}");
    }
}

#[test]
fn what_is_mounted_exists_and_ports_are_open_to_this_machine_only() {
    for (file, folder, mounts, ports) in
        [(FILE, folder(), 5, 3), (SMALL, folder().join("../.."), 1, 2)]
    {
        let (mut mounted, mut open) = (0, 0);
        for item in file.lines().filter_map(|line| line.strip_prefix("      - ")) {
            if item.starts_with('.') {
                let path = folder.join(item.split(':').next().unwrap());
                assert!(path.exists(), "{item}");
                mounted += 1;
            } else if item.starts_with('"') {
                assert!(item.starts_with("\"127.0.0.1:"), "{item}");
                open += 1;
            }
        }
        assert_eq!((mounted, open), (mounts, ports));
        let published = file.matches("    ports:\n      - \"").count();
        assert_eq!(file.matches("ports:").count(), published);
    }
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/compose")
}
