//! What the commands of `delayline work` save with their messages.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use crate::support::{ended, on, run, send, start};
use delayline_test_server::Server;
use serde_json::json;

const GUIDE: &str = include_str!("../../../delayline/docs/guides/resume-a-long-job.md");

/// The script of the guide and the commands that use it, as they are printed there.
#[test]
fn the_crawl_of_the_guide_continues_at_the_saved_page() {
    let mut blocks = GUIDE.split("```sh\n").skip(1).map(|it| it.split("```").next().unwrap());
    let (crawl, commands) = (blocks.next().unwrap(), blocks.next().unwrap());
    let home = tempfile::tempdir().unwrap();
    script(&home.path().join("crawl.sh"), crawl);
    let fetch = r#"#!/bin/sh
        echo "$*" >> pages
        [ "$2" != 12 ] || [ "$DELAYLINE_ATTEMPT" != 1 ]"#;
    script(&home.path().join("fetch"), fetch);
    let server = Server::start();
    for words in commands.lines().map(|line| line.split(' ').collect::<Vec<_>>()) {
        assert_eq!(words[0], "delayline");
        let mut command = on(&server, &words[1..]);
        command.current_dir(home.path());
        run(command).code(0);
    }
    let pages = fs::read_to_string(home.path().join("pages")).unwrap();
    let line = |page| format!("acme.example {page}\n");
    assert_eq!(pages, (0..=12).chain(12..30).map(line).collect::<String>());
}

/// Creates a program.
fn script(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o700)).unwrap();
}

#[test]
fn a_wait_and_a_list_show_the_progress_of_a_command() {
    let server = Server::start();
    send(&server, &["--id", "a", "--payload", "x"]);
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("go").to_str().unwrap().to_owned();
    let fifo = Command::new("mkfifo").arg(&path).status().unwrap();
    assert!(fifo.success());
    let script = r#"echo '{"progress": 0.5, "progress_text": "half\u001b"}' >&3; read _ < "$0""#;
    let args = ["work", "--until-empty", "--exec", "sh", "-c", script, &path];
    let worker = start(&mut on(&server, &args));
    let mut wait = start(&mut on(&server, &["wait", "a", "--progress"]));
    let mut stderr = BufReader::new(wait.stderr.take().unwrap()).lines();
    assert_eq!(stderr.next().unwrap().unwrap(), r"50 %, half\u{1b}");
    let list = run(on(&server, &["list"])).code(0).stdout;
    assert!(list.contains(r"; 50 %, half\u{1b}"), "{list}");
    fs::write(&path, "go\n").unwrap();
    assert_eq!(stderr.next().unwrap().unwrap(), "acked");
    ended(wait).code(0);
    ended(worker).code(0);
}

#[test]
fn a_dead_letter_keeps_the_last_save_of_its_command_whatever_else_that_wrote() {
    let server = Server::start();
    send(&server, &["--id", "a", "--payload", "x", "--max-failures", "1"]);
    // A line without its end is the last one.
    let failing = r#"
        { echo '{"progress": 2}'; head -c 40000 /dev/zero; echo; echo '{"checkpoint": "old"}'
          printf '{"progress": 0.5, "progress_text": "half", "checkpoint_base64": "/wA="}'
        } >&"$DELAYLINE_SAVE_FD"; exit 1"#;
    let work =
        |script: &str| run(on(&server, &["work", "--until-empty", "--exec", "sh", "-c", script]));
    let ended = work(failing).code(0);
    let refused = "the command's save is ignored: progress is a number from 0 to 1";
    assert_eq!(ended.stderr.matches("save is ignored").count(), 1, "{}", ended.stderr);
    assert!(ended.stderr.contains(refused), "{}", ended.stderr);
    let dead = &run(on(&server, &["get", "a", "--json"])).code(0).lines()[0];
    assert_eq!(
        (&dead["state"], &dead["progress"], &dead["checkpoint_base64"]),
        (&json!("dead"), &json!({"done": 0.5, "text": "half"}), &json!("/wA="))
    );
    run(on(&server, &["dead", "redrive", "a"])).code(0);
    let next = r#"[ "$DELAYLINE_CHECKPOINT_BASE64" = /wA= ] && [ -z "$DELAYLINE_CHECKPOINT" ]"#;
    work(next).code(0);
    assert_eq!(crate::support::count(&server, "acked_total"), 1);
}
