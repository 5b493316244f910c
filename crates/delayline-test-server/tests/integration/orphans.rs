//! A process that ends without destructors takes its servers along.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use delayline_test_server::Server;

static NEVER_DROPPED: LazyLock<Server> = LazyLock::new(Server::start);

/// Set in the process that this test starts: itself.
const CHILD: &str = "DELAYLINE_TEST_SERVER_ORPHAN";

#[test]
fn a_server_in_a_static_does_not_outlive_its_process() {
    if std::env::var_os(CHILD).is_some() {
        println!("SOCKET {}", NEVER_DROPPED.unix_path().display());
        return;
    }
    let output = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "orphans::a_server_in_a_static_does_not_outlive_its_process",
            "--nocapture",
        ])
        .env(CHILD, "1")
        .stderr(Stdio::inherit())
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let socket = text.lines().find_map(|line| line.split("SOCKET ").nth(1)).unwrap();
    // Another process removes it without a notification, so the test polls.
    let deadline = Instant::now() + Duration::from_secs(30);
    while Path::new(socket).exists() {
        assert!(Instant::now() < deadline, "{socket} is still there");
        std::thread::sleep(Duration::from_millis(5));
    }
}
