//! The test programs of the workspace: building them, and running several at a time.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use xshell::{Shell, cmd};

use crate::workspace;

/// What a full test run builds.
const EVERYTHING: [&str; 4] = ["--workspace", "--all-targets", "--all-features", "--locked"];

/// A test program that cargo has built.
#[derive(Debug, PartialEq, Eq)]
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

/// Builds all test programs of the workspace, and the examples, which a test runs as programs: with
/// other features than these, that test would build the workspace anew.
pub(crate) fn build(shell: &Shell) -> Result<Vec<Program>> {
    cmd!(shell, "cargo build --workspace --examples --all-features --locked").run()?;
    let messages =
        cmd!(shell, "cargo test {EVERYTHING...} --no-run --message-format json-render-diagnostics")
            .read()?;
    let programs = messages.lines().map(|line| Ok(program(&serde_json::from_str(line)?)));
    Ok(programs.collect::<Result<Vec<_>>>()?.into_iter().flatten().collect())
}

/// Runs `programs` with the arguments `args`: one more at a time than the machine has cores, since
/// most tests wait for servers and timers. All of them run, even if one fails.
///
/// Each writes into a file, which is printed when the program has ended: so their lines don't mix,
/// and a process that a test leaves behind cannot hold the run up.
pub(crate) fn run(shell: &Shell, programs: &[Program], args: &[String]) -> Result<()> {
    let logs = shell.current_dir().join("target/test-logs");
    fs::create_dir_all(&logs)?;
    let at_a_time = thread::available_parallelism()?.get() + 1;
    let next = AtomicUsize::new(0);
    let run_some = || -> Result<Vec<String>> {
        let mut failed = Vec::new();
        while let Some(program) = programs.get(next.fetch_add(1, Ordering::Relaxed)) {
            if !run_one(program, args, &logs)? {
                failed.push(program.name());
            }
        }
        Ok(failed)
    };
    let mut failed = Vec::new();
    thread::scope(|scope| -> Result<()> {
        let runners: Vec<_> = (0..at_a_time).map(|_| scope.spawn(run_some)).collect();
        for runner in runners {
            failed.extend(runner.join().unwrap_or_else(|panic| resume_unwind(panic))?);
        }
        Ok(())
    })?;
    let (count, all) = (failed.len(), programs.len());
    ensure!(failed.is_empty(), "{count} of {all} test programs failed: {}", failed.join(", "));
    Ok(())
}

/// Runs a program and prints its output. Returns whether it passed.
fn run_one(program: &Program, args: &[String], logs: &Path) -> Result<bool> {
    let name = program.executable.file_name().context("a program has a name")?;
    let log = logs.join(name).with_extension("log");
    let output = File::create(&log)?;
    let start = Instant::now();
    let status =
        program.command().args(args).stdout(output.try_clone()?).stderr(output).status()?;
    let mut out = io::stdout().lock();
    let source = program.name();
    writeln!(out, "xtask: {source}: {status} after {:.1} s", start.elapsed().as_secs_f64())?;
    out.write_all(&fs::read(&log)?)?;
    Ok(status.success())
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
    use std::path::PathBuf;

    use serde_json::json;
    use xshell::Shell;

    use super::{Program, program, run};

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
    fn a_failure_is_named_and_stops_no_other_program() {
        let directory = tempfile::tempdir().unwrap();
        let there = directory.path();
        // `touch NAME` passes in a directory that exists, and shows that it ran there.
        let touch = |source: &str, directory: PathBuf| Program {
            source: source.into(),
            executable: "/usr/bin/touch".into(),
            directory,
            must_have_tests: true,
        };
        let shell = Shell::new().unwrap();
        shell.change_dir(there);
        let all = |sources: &[&str]| {
            sources.iter().map(|source| touch(source, there.to_owned())).collect::<Vec<_>>()
        };
        run(&shell, &all(&["a", "b"]), &["made".to_owned()]).unwrap();
        assert!(there.join("made").exists());

        let mut programs = all(&["a", "b", "c"]);
        programs[1].executable = "/usr/bin/false".into();
        let error = run(&shell, &programs, &["again".to_owned()]).unwrap_err().to_string();
        assert_eq!(error, "1 of 3 test programs failed: b");
        assert!(there.join("again").exists());
    }
}
