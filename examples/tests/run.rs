//! Runs every example as a program: on a queue in its own process, and on a Redis server.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "test code")]

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use delayline_test_server::Server;

/// Defines a test for each program, and a constant with their names.
macro_rules! programs {
    ($(#[$doc:meta])* $all:ident: $runs:ident, $($name:ident)*) => {
        $(#[$doc])*
        const $all: &[&str] = &[$(stringify!($name)),*];

        $(#[test]
        fn $name() {
            $runs(stringify!($name));
        })*
    };
}

programs! {
    /// Programs that take the URL of a server.
    ON_A_SERVER: runs_anywhere,
    close_unpaid_orders
    text_after_failed_payment
    defer_on_a_lock_conflict
    remind_inactive_shops
    many_producers_and_consumers
    plain_fifo
    replace_a_poller
    recurring_jobs
    rolling_deploys
    job_types
    one_at_a_time
    web_service
}

programs! {
    /// Programs that need the URL of a server.
    WITH_A_CLIENT: runs_on_a_server,
    redis_client
    fred_client
}

/// The guide of the programs that need the URL of a server.
const YOUR_CLIENT: &str = "your-redis-client";

/// Programs that take no URL.
const ALONE: [&str; 1] = ["write_your_own_backend"];

/// Programs in a separate workspace; `cargo xtask prove` runs them.
const APART: [&str; 2] = ["opentelemetry", "outbox"];

/// Guides without a program. Their code, where they have any, runs as doctests.
const WITHOUT_PROGRAM: [&str; 20] = [
    "aws-sdk",
    "chains",
    "dashboard",
    "limits-over-all-workers",
    "webhooks",
    "middleware",
    "not-offered",
    "observe",
    "one-message-per-id",
    "other-languages",
    "relay",
    "results",
    "resume-a-long-job",
    "several-queues",
    "tenants",
    "testing",
    "traces",
    "wait-for-several-messages",
    "when-one-node-is-not-enough",
    "without-redis",
];

#[test]
fn write_your_own_backend() {
    let output = run("write_your_own_backend", &[]);
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{stdout}");
    assert!(stdout.contains("test result: ok"), "{stdout}");
}

#[test]
fn every_example_is_run_and_has_a_guide() {
    let ours: BTreeSet<_> = programs().map(str::to_owned).collect();
    assert_eq!(stems("examples", "rs"), ours);
    let mut guides: BTreeSet<_> = ours.iter().map(|name| guide_of(name)).collect();
    guides.extend(WITHOUT_PROGRAM.map(str::to_owned));
    guides.extend(APART.map(str::to_owned));
    assert_eq!(stems("../crates/delayline/docs/guides", "md"), guides);
}

#[test]
fn the_code_of_every_guide_is_compiled() {
    let mut compiled = fs::read_to_string(here("src/lib.rs")).unwrap();
    for name in APART {
        compiled += &fs::read_to_string(here(&format!("{name}/src/lib.rs"))).unwrap();
    }
    for stem in stems("../crates/delayline/docs/guides", "md") {
        let guide = fs::read_to_string(here(&format!("../crates/delayline/docs/guides/{stem}.md")))
            .unwrap();
        let has_code = guide.lines().any(|line| line.starts_with("```rust"));
        let is_compiled = compiled.contains(&format!("/guides/{stem}.md"));
        assert!(!has_code || is_compiled, "src/lib.rs leaves out {stem}.md");
    }
}

/// A guide whose code blocks are complete programs, which the documentation tests run.
const WITH_OWN_PROGRAMS: &str = "job-types";

/// A guide quotes its example; imports may be grouped in another way, and a part may be public.
/// Lines that the guide hides are no quotes.
#[test]
fn guides_quote_the_examples_as_they_are() {
    let mut code: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
    let paths = programs().map(|name| (name, format!("examples/{name}.rs")));
    for (name, path) in paths.chain(APART.map(|name| (name, format!("{name}/src/lib.rs")))) {
        let text = fs::read_to_string(here(&path)).unwrap();
        let lines = text.lines().map(|line| private(line.trim()).to_owned());
        code.entry(guide_of(name)).or_default().extend(lines);
    }
    code.retain(|name, _| name != WITH_OWN_PROGRAMS);
    for (name, code) in code {
        let guide = here(&format!("../crates/delayline/docs/guides/{name}.md"));
        let guide = fs::read_to_string(guide).unwrap();
        let (mut quoting, mut importing) = (false, false);
        let mut quoted = 0;
        for line in guide.lines().map(str::trim) {
            if let Some(language) = line.strip_prefix("```") {
                quoting = language.starts_with("rust");
            } else if quoting && (importing || line.starts_with("use ")) {
                importing = !line.ends_with(';');
            } else if quoting && !line.is_empty() && !line.starts_with("# ") {
                assert!(code.contains(private(line)), "the guide of {name} says: {line}");
                quoted += 1;
            }
        }
        assert!(quoted > 0, "the guide of {name} quotes nothing");
    }
}

fn private(line: &str) -> &str {
    line.strip_prefix("pub ").unwrap_or(line)
}

/// Twice on the server: an example leaves nothing behind that the next run stumbles over.
fn runs_anywhere(name: &str) {
    let server = Server::builder().tcp().start();
    let url = server.url();
    for args in [&[][..], &[url.as_str()], &[url.as_str()]] {
        succeeds(name, args);
    }
}

/// Twice as well.
fn runs_on_a_server(name: &str) {
    let server = Server::builder().tcp().start();
    for _ in 0..2 {
        succeeds(name, &[&server.url()]);
    }
}

fn succeeds(name: &str, args: &[&str]) {
    let output = run(name, args);
    let stdout = String::from_utf8_lossy(&output.stdout);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name} {args:?}\n{stdout}{stderr}");
    assert!(stdout.lines().any(|line| line.starts_with("done")), "{name} {args:?}\n{stdout}");
}

/// The names of all programs.
fn programs() -> impl Iterator<Item = &'static str> {
    ON_A_SERVER.iter().chain(WITH_A_CLIENT).copied().chain(ALONE)
}

/// The name of the guide of a program.
fn guide_of(program: &str) -> String {
    if WITH_A_CLIENT.contains(&program) {
        YOUR_CLIENT.to_owned()
    } else {
        program.replace('_', "-")
    }
}

fn run(name: &str, args: &[&str]) -> Output {
    let mut command = Command::new(program(name));
    // The suite's own settings are for another test.
    command.args(args).env_remove("DELAYLINE_CASES").env_remove("DELAYLINE_SEED");
    command.output().unwrap()
}

/// Where cargo puts the programs: `examples` next to `deps`, where this test is.
///
/// `cargo test` builds them together with this test, and `cargo xtask test` before it. `cargo test
/// --all-targets` and `--test run` don't; then they are built here, once.
fn program(name: &str) -> PathBuf {
    static PROFILE: OnceLock<PathBuf> = OnceLock::new();
    let profile = PROFILE.get_or_init(|| {
        let test = env::current_exe().unwrap();
        let profile = test.parent().and_then(Path::parent).unwrap().to_owned();
        if !programs().all(|name| is_fresh(&profile.join("examples").join(name))) {
            build(&profile);
        }
        profile
    });
    profile.join("examples").join(name).with_extension(env::consts::EXE_EXTENSION)
}

/// Whether a program is newer than all its sources, which cargo lists next to it.
fn is_fresh(program: &Path) -> bool {
    let modified = |path: &Path| fs::metadata(path).and_then(|it| it.modified()).ok();
    let Some(built) = modified(&program.with_extension(env::consts::EXE_EXTENSION)) else {
        return false;
    };
    let Ok(list) = fs::read_to_string(program.with_extension("d")) else { return false };
    // `PROGRAM: SOURCE SOURCE ...`; a path with a space in it is not found, and so not fresh.
    let Some((_, sources)) = list.split_once(": ") else { return false };
    sources
        .split_whitespace()
        .all(|source| modified(Path::new(source)).is_some_and(|modified| modified <= built))
}

/// With the features that the whole workspace has, because `--all-targets` is how all of it is
/// tested: then only the programs themselves are left to be built.
fn build(profile: &Path) {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["build", "--workspace", "--examples", "--quiet", "--locked"]);
    match profile.file_name().and_then(|name| name.to_str()).unwrap() {
        "debug" => {}
        other => {
            command.args(["--profile", other]);
        }
    }
    command.env("CARGO_TARGET_DIR", profile.parent().unwrap()).current_dir(here(".."));
    assert!(command.status().unwrap().success(), "the examples cannot be built");
}

/// The names of the files of a directory that end so.
fn stems(directory: &str, extension: &str) -> BTreeSet<String> {
    let entries = fs::read_dir(here(directory)).unwrap().map(|entry| entry.unwrap().path());
    let files = entries.filter(|path| path.extension().is_some_and(|it| it == extension));
    files.map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned()).collect()
}

fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}
