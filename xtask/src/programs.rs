//! The test programs of the workspace: building them, and running several at a time.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, File};
use std::mem;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use xshell::{Shell, cmd};

use crate::workspace;

/// What every build of tests selects. Cargo decides the features of all dependencies by it, so
/// another selection would compile most of them again.
const EVERYTHING: [&str; 3] = ["--workspace", "--all-features", "--locked"];

/// A test program that cargo has built.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Program {
    source: PathBuf,
    pub(crate) executable: PathBuf,
    /// The directory of its package, in which tests expect to run.
    directory: PathBuf,
    /// It is one of `tests/*.rs`. Libraries and commands may have no tests.
    pub(crate) must_have_tests: bool,
}

impl Program {
    /// Its source file, as seen from the workspace.
    pub(crate) fn name(&self) -> String {
        let root = workspace::root();
        self.source.strip_prefix(root).unwrap_or(&self.source).display().to_string()
    }

    /// A file name for its output.
    fn log_name(&self) -> String {
        format!("{}.log", self.name().replace('/', "-"))
    }

    /// How to run it.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(&self.executable);
        command.current_dir(&self.directory).stdin(Stdio::null());
        command
    }
}

/// The program of a source file.
pub(crate) fn find<'a>(programs: &'a [Program], name: &str) -> Result<&'a Program> {
    let found = programs.iter().find(|program| program.name() == name);
    found.with_context(|| format!("there is no test program {name}"))
}

/// Builds the test programs of the workspace, but those with `test = false` in their package.
pub(crate) fn build(shell: &Shell) -> Result<Vec<Program>> {
    build_chosen(shell, &["--tests".to_owned()])
}

/// Builds test programs with `test = false`, by the names of their targets.
pub(crate) fn build_named(shell: &Shell, names: &[&str]) -> Result<Vec<Program>> {
    let chosen = names.iter().flat_map(|name| ["--test".to_owned(), (*name).to_owned()]);
    build_chosen(shell, &chosen.collect::<Vec<_>>())
}

fn build_chosen(shell: &Shell, chosen: &[String]) -> Result<Vec<Program>> {
    let format = ["--no-run", "--message-format", "json-render-diagnostics"];
    let messages = cmd!(shell, "cargo test {EVERYTHING...} {chosen...} {format...}").read()?;
    let programs = messages.lines().map(|line| Ok(program(&serde_json::from_str(line)?)));
    Ok(programs.collect::<Result<Vec<_>>>()?.into_iter().flatten().collect())
}

/// Builds the examples, which a test runs as programs.
pub(crate) fn build_examples(shell: &Shell) -> Result<()> {
    Ok(cmd!(shell, "cargo build {EVERYTHING...} --examples").run()?)
}

/// Builds a command for the integration test `test` of its package, and returns it. `cargo build`
/// leaves out what only tests depend on: it would choose other features, and so compile most
/// dependencies again.
pub(crate) fn build_command(shell: &Shell, name: &str, test: &str) -> Result<PathBuf> {
    let test = ["--test", test, "--no-run", "--message-format", "json-render-diagnostics"];
    let messages = cmd!(shell, "cargo test {EVERYTHING...} {test...}").read()?;
    let executable = |line: &str| {
        let message: Value = serde_json::from_str(line).ok()?;
        (message["target"]["name"] == name)
            .then(|| message["executable"].as_str().map(PathBuf::from))?
    };
    messages.lines().find_map(executable).with_context(|| format!("cargo has not built {name}"))
}

/// Runs `programs` with the arguments `args`, in their order, and returns the number of tests that
/// passed, and the lines that name omissions. One more runs at a time than the machine has
/// cores, since most tests wait for servers and timers. All programs run, even if one fails.
///
/// Each writes to a file in `target/test-logs`, which is printed if the program fails: so the
/// output of two programs does not mix, and a process that a test leaves behind cannot delay the
/// run.
pub(crate) fn run(
    shell: &Shell,
    programs: &[Program],
    args: &[String],
) -> Result<(usize, BTreeSet<String>)> {
    let logs = shell.current_dir().join("target/test-logs");
    fs::create_dir_all(&logs)?;
    let at_a_time = thread::available_parallelism()?.get() + 1;
    let server = server(shell);
    let progress = Mutex::new(Progress::default());
    let locked = || progress.lock().unwrap_or_else(PoisonError::into_inner);
    let run_some = || -> Result<()> {
        loop {
            let Some(program) = locked().start(programs) else { return Ok(()) };
            let start = Instant::now();
            let log = logs.join(program.log_name());
            let output = File::create(&log)?;
            let mut command = program.command();
            command.args(args).envs(server.clone()).stdout(output.try_clone()?).stderr(output);
            let status = command.status()?;
            let text = fs::read(&log)?;
            let text = String::from_utf8_lossy(&text);
            locked().end(programs, program, status, &text, start.elapsed());
        }
    };
    thread::scope(|scope| -> Result<()> {
        let runners: Vec<_> = (0..at_a_time).map(|_| scope.spawn(run_some)).collect();
        let end = |runner: thread::ScopedJoinHandle<'_, _>| {
            runner.join().unwrap_or_else(|panic| resume_unwind(panic))
        };
        runners.into_iter().try_for_each(end)
    })?;
    let mut progress = locked();
    let (count, all, failed) = (progress.failed.len(), programs.len(), progress.failed.join(", "));
    ensure!(count == 0, "{count} of {all} test programs failed: {failed}");
    Ok((progress.passed, mem::take(&mut progress.left_out)))
}

/// A process, which ends with this value.
pub(crate) struct Running(pub(crate) Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The chosen server, which commands that `shell` does not start have to be given.
pub(crate) fn server(shell: &Shell) -> Option<(&'static str, OsString)> {
    shell.var_os(SERVER).map(|server| (SERVER, server))
}

/// Where tests find the server's program.
pub(crate) const SERVER: &str = "REDIS_SERVER_BIN";

/// How far a run has come.
#[derive(Default)]
struct Progress {
    started: usize,
    ended: usize,
    running: BTreeSet<String>,
    failed: Vec<String>,
    /// The number of tests that passed.
    passed: usize,
    /// What tests say that this machine or server lacks.
    left_out: BTreeSet<String>,
}

impl Progress {
    /// The next program.
    fn start<'a>(&mut self, programs: &'a [Program]) -> Option<&'a Program> {
        let program = programs.get(self.started)?;
        self.started += 1;
        self.running.insert(program.name());
        if self.ended == 0 {
            println!("xtask: [0/{}] running: {}", programs.len(), program.name());
        }
        Some(program)
    }

    /// Prints how a program ended, which ones run, and how many are left.
    fn end(
        &mut self,
        programs: &[Program],
        program: &Program,
        status: ExitStatus,
        log: &str,
        after: Duration,
    ) {
        let name = program.name();
        self.ended += 1;
        self.running.remove(&name);
        self.passed += passed(log);
        self.left_out.extend(left_out(log).map(str::to_owned));
        let ignored = count(log, " ignored");
        if ignored > 0 {
            self.left_out.insert(format!("{ignored} ignored in {name}"));
        }
        let has_passed = status.success() && is_whole(log);
        if !has_passed {
            println!("{log}");
            self.failed.push(name.clone());
        }
        if status.success() && !has_passed {
            println!(
                "xtask: {name} has ended with {status}, but without a result of all its tests"
            );
        }
        let outcome = if has_passed { "passed" } else { "FAILED" };
        let running = self.running.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
        println!(
            "xtask: [{}/{}] {name}: {outcome} in {:.1} s; running: {running}",
            self.ended,
            programs.len(),
            after.as_secs_f64()
        );
    }
}

/// The number of passed tests that the output of a test program reports.
pub(crate) fn passed(log: &str) -> usize {
    count(log, " passed")
}

/// A number in the results that the output of a test program reports.
fn count(log: &str, of: &str) -> usize {
    let results =
        log.lines().filter_map(|line| line.strip_prefix("test result: ")?.split_once(". "));
    let counts = results.flat_map(|(_, counts)| counts.split("; "));
    counts.filter_map(|part| part.strip_suffix(of)?.parse::<usize>().ok()).sum()
}

/// Returns whether an output has a result of every test that began: a program that a test ends
/// early may report success.
pub(crate) fn is_whole(log: &str) -> bool {
    let begun = log.lines().filter_map(|line| {
        let (count, tests) = line.strip_prefix("running ")?.split_once(' ')?;
        matches!(tests, "test" | "tests").then(|| count.parse::<usize>().ok())?
    });
    let ended = [" passed", " failed", " ignored", " measured"].map(|of| count(log, of));
    log.contains("test result: ") && begun.sum::<usize>() == ended.iter().sum::<usize>()
}

/// What tests write past the capture of their output if they check less than they could.
fn left_out(log: &str) -> impl Iterator<Item = &str> {
    log.lines().filter(|line| line.contains("skipped: ") || line.contains(": in part only: "))
}

/// The test program that one of cargo's messages is about, if it is about one. Benchmarks are
/// none: they take `--list` for something else.
fn program(message: &Value) -> Option<Program> {
    let kind = message["target"]["kind"][0].as_str()?;
    let is_test = message["profile"]["test"].as_bool()? && kind != "bench" && kind != "example";
    let executable = message["executable"].as_str().filter(|_| is_test)?;
    Some(Program {
        source: message["target"]["src_path"].as_str()?.into(),
        executable: executable.into(),
        directory: Path::new(message["manifest_path"].as_str()?).parent()?.to_owned(),
        must_have_tests: kind == "test",
    })
}

/// The name of a test, without its modules and the guarantees that it is about.
pub(crate) fn bare(test: &str) -> &str {
    let test = test.split_once(" (").map_or(test, |it| it.0);
    test.rsplit("::").next().unwrap_or(test)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

    use serde_json::json;
    use xshell::Shell;

    use super::{Program, count, is_whole, left_out, passed, program, run};

    #[test]
    fn test_programs_are_told_from_all_else_that_cargo_builds() {
        let artifact = |kind: &str, test: bool| {
            json!({
                "reason": "compiler-artifact",
                "manifest_path": "/a/Cargo.toml",
                "target": { "kind": [kind], "src_path": "/a/tests/a.rs" },
                "profile": { "test": test },
                "executable": "/target/a-1",
            })
        };
        let a = |must_have_tests| {
            Some(Program {
                source: "/a/tests/a.rs".into(),
                executable: "/target/a-1".into(),
                directory: "/a".into(),
                must_have_tests,
            })
        };
        assert_eq!(program(&artifact("test", true)), a(true));
        assert_eq!(program(&artifact("lib", true)), a(false));
        assert_eq!(program(&artifact("bin", false)), None);
        assert_eq!(program(&artifact("bench", true)), None);
        assert_eq!(program(&json!({ "reason": "build-finished", "success": true })), None);
    }

    #[test]
    fn passed_tests_are_counted_over_all_summaries() {
        let summary =
            |passed| format!("test a ... ok\n\ntest result: ok. {passed} passed; 0 failed\n");
        assert_eq!(passed(&(summary(3) + &summary(4))), 7);
        assert_eq!(passed("test result: FAILED. 2 passed; 1 failed\n"), 2);
        assert_eq!(passed("no tests\n"), 0);
    }

    #[test]
    fn a_program_that_ends_early_is_told_from_one_with_ignored_tests() {
        let begun = "\nrunning 3 tests\ntest a ... ok\ntest b ... ignored\n";
        let result = "\ntest result: ok. 2 passed; 0 failed; 1 ignored; 0 measured; \
                      4 filtered out; finished in 0.10s\n";
        assert!(!is_whole(begun) && !is_whole(&format!("{begun}\nrunning 1 test\n{result}")));
        assert!(is_whole(&format!("{begun}{result}")));
        assert_eq!(count(result, " ignored"), 1);
    }

    #[test]
    fn what_tests_leave_out_is_found() {
        let log = "skipped: no network\ntest a ... ok\nb: in part only: Redis 6 lacks C\n";
        assert_eq!(
            left_out(log).collect::<Vec<_>>(),
            ["skipped: no network", "b: in part only: Redis 6 lacks C"]
        );
    }

    #[test]
    fn programs_know_the_server_and_a_failure_stops_no_other() {
        let directory = tempfile::tempdir().unwrap();
        let there = directory.path();
        let sh = |source: &str, directory: PathBuf| Program {
            source: source.into(),
            executable: "/bin/sh".into(),
            directory,
            must_have_tests: true,
        };
        // Shows that it ran there, and with which variables.
        let passing = |name: &str| {
            let result = "test result: ok. 1 passed; 0 failed";
            let script = format!("touch {name}; env; echo 'running 1 test'; echo '{result}'");
            ["-c".to_owned(), script]
        };
        let shell = Shell::new().unwrap();
        shell.change_dir(there);
        let all = |sources: &[&str]| {
            sources.iter().map(|source| sh(source, there.to_owned())).collect::<Vec<_>>()
        };
        run(&shell, &all(&["a", "b"]), &passing("made")).unwrap();
        assert!(there.join("made").exists());

        let _server = shell.push_env("REDIS_SERVER_BIN", "/usr/bin/a-server");
        run(&shell, &all(&["env"]), &passing("made")).unwrap();
        let printed = fs::read_to_string(there.join("target/test-logs/env.log")).unwrap();
        assert!(printed.contains("REDIS_SERVER_BIN=/usr/bin/a-server\n"), "{printed}");

        let mut programs = all(&["a", "b", "c"]);
        programs[1].executable = "/usr/bin/false".into();
        let error = run(&shell, &programs, &passing("again")).unwrap_err().to_string();
        assert_eq!(error, "1 of 3 test programs failed: b");
        assert!(there.join("again").exists());
        let early = ["-c", "exit 0"].map(str::to_owned);
        let error = run(&shell, &all(&["a"]), &early).unwrap_err().to_string();
        assert_eq!(error, "1 of 1 test programs failed: a");
    }
}
