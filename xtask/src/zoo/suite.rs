//! Runs tests in a clone of the last commit.

use std::fmt;
use std::fs::{self, File};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use rustix::process::{Pid, Signal, kill_process_group};
use xshell::{Shell, cmd};

/// A cargo command that runs tests, without `cargo`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Suite(String);

/// How a suite went.
pub(super) enum Outcome {
    Passed {
        after: Duration,
    },
    /// With the names of the tests, or seeds, that failed.
    Failed {
        tests: Vec<String>,
        log: String,
    },
    /// It was not over in time, and was ended.
    Hung {
        log: String,
    },
}

/// How far a suite is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Until {
    TheEnd,
    /// The rest cannot change the verdict.
    TheFirstFailure,
}

impl Until {
    fn is_over(self, log: &str) -> bool {
        self == Self::TheFirstFailure && !failed_tests(log).is_empty()
    }
}

/// A clone of the last commit, where defects are applied and tests run.
pub(super) struct Workplace {
    tree: PathBuf,
    build: PathBuf,
    server: PathBuf,
    shell: Shell,
}

impl Suite {
    pub(super) fn new(command: &str) -> Self {
        Self(command.to_owned())
    }

    /// Its tests of that name.
    pub(super) fn only(&self, test: &str) -> Self {
        Self(format!("{} {test}", self.0))
    }

    /// The test programs that it names and that its crate does not have.
    pub(super) fn missing(&self, root: &Path) -> Vec<String> {
        let words: Vec<_> = self.0.split(' ').collect();
        let (mut tests, mut missing) = (root.join("tests"), Vec::new());
        for pair in words.windows(2) {
            match *pair {
                ["-p", package] => tests = root.join("crates").join(package).join("tests"),
                ["--test", name] => {
                    let places = [format!("{name}.rs"), format!("{name}/main.rs")];
                    if !places.iter().any(|place| tests.join(place).is_file()) {
                        missing.push(name.to_owned());
                    }
                }
                _ => {}
            }
        }
        missing
    }

    /// The arguments that only build it.
    fn building(&self) -> Vec<&str> {
        let mut args: Vec<_> = self.0.split(' ').collect();
        if let Some(run) = args.first_mut().filter(|first| **first == "run") {
            *run = "build";
        } else {
            args.push("--no-run");
        }
        args
    }
}

impl fmt::Display for Suite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cargo {}", self.0)
    }
}

impl Workplace {
    /// Clones the last commit of the repository at `root` into its target directory.
    pub(super) fn new(root: &Path, server: PathBuf) -> Result<Self> {
        let (tree, build) = (root.join("target/zoo/tree"), root.join("target/zoo/build"));
        if tree.exists() {
            fs::remove_dir_all(&tree)?;
        }
        fs::create_dir_all(&build)?;
        let shell = Shell::new()?;
        shell.change_dir(root);
        cmd!(shell, "git clone --quiet --shared . {tree}").run()?;
        shell.change_dir(&tree);
        Ok(Self { tree, build, server, shell })
    }

    /// Does something while a patch is applied.
    pub(super) fn with_patch<T>(&self, patch: &Path, act: impl FnOnce() -> Result<T>) -> Result<T> {
        let shell = &self.shell;
        cmd!(shell, "git apply --recount {patch}").quiet().run()?;
        let result = act();
        cmd!(shell, "git checkout --quiet .").quiet().run()?;
        result
    }

    /// Builds a suite, so that its time is that of its tests.
    pub(super) fn build(&self, suite: &Suite) -> Result<()> {
        let log = self.build.join("build.log");
        let status = self.cargo(&suite.building(), &log)?.0.wait()?;
        ensure!(status.success(), "{suite} cannot be built\n{}", fs::read_to_string(&log)?);
        Ok(())
    }

    /// Runs a suite that has been built: all of it, or until the first of its tests has failed.
    pub(super) fn run(&self, suite: &Suite, patience: Duration, until: Until) -> Result<Outcome> {
        let (start, log) = (Instant::now(), self.build.join("run.log"));
        let args: Vec<_> = suite.0.split(' ').collect();
        let mut cargo = self.cargo(&args, &log)?;
        let status = loop {
            match cargo.0.try_wait()? {
                Some(status) => break Some(status),
                None if start.elapsed() > patience || until.is_over(&read(&log)?) => break None,
                None => sleep(POLL),
            }
        };
        drop(cargo);
        let log = read(&log)?;
        let tests = failed_tests(&log);
        Ok(match status {
            Some(status) if status.success() => Outcome::Passed { after: start.elapsed() },
            None if tests.is_empty() => Outcome::Hung { log },
            _ => Outcome::Failed { tests, log },
        })
    }

    fn cargo(&self, args: &[&str], log: &Path) -> Result<Running> {
        let output = File::create(log).with_context(|| format!("{}", log.display()))?;
        let cargo = Command::new("cargo")
            .args(args)
            .arg("--locked")
            .current_dir(&self.tree)
            .env("CARGO_TARGET_DIR", &self.build)
            .env("REDIS_SERVER_BIN", &self.server)
            // Defects leave unused variables behind.
            .env("RUSTFLAGS", "-Awarnings")
            // One place in one file for both.
            .stdout(Stdio::from(output.try_clone()?))
            .stderr(Stdio::from(output))
            // A separate group, to be ended as a whole: cargo would leave the tests behind.
            .process_group(0)
            .spawn()
            .context("cargo cannot be run")?;
        Running::watched(cargo)
    }
}

/// A process in a separate group, which ends with this value, and with this process.
struct Running(Child, Child);

impl Running {
    /// Adds a shell that waits for the end of this process and then ends the group. Ctrl-C reaches
    /// the group of this process alone, and runs no destructor.
    fn watched(leader: Child) -> Result<Self> {
        let watch = ["-c", r#"read -r _; kill -s KILL -- "-$0""#];
        let watchdog = Command::new("sh")
            .args(watch)
            .arg(leader.id().to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()?;
        Ok(Self(leader, watchdog))
    }
}

impl Drop for Running {
    /// Ends the process with all that it has started, unless it has ended: its number may then be
    /// that of another.
    fn drop(&mut self) {
        let Self(leader, watchdog) = self;
        if let Ok(None) = leader.try_wait()
            && let Some(group) = i32::try_from(leader.id()).ok().and_then(Pid::from_raw)
        {
            let _ = kill_process_group(group, Signal::KILL);
        }
        let _ = watchdog.kill();
        let _ = [leader.wait(), watchdog.wait()];
    }
}

/// A log, which may be growing.
fn read(log: &Path) -> Result<String> {
    Ok(String::from_utf8_lossy(&fs::read(log)?).into_owned())
}

/// The tests of a log, and the seeds of the simulation, that failed.
fn failed_tests(log: &str) -> Vec<String> {
    let test = |line: &str| {
        let (name, result) = line.strip_prefix("test ")?.split_once(" ...")?;
        result.contains("FAILED").then(|| name.trim().to_owned())
    };
    let seed = |line: &str| {
        let rest = line.strip_prefix("sim: seed ")?;
        Some(format!("seed {rest}"))
    };
    log.lines().filter_map(|line| test(line).or_else(|| seed(line))).collect()
}

/// The first test that a log says is taking long, and that does not end in it.
pub(super) fn hanging_test(log: &str) -> Option<&str> {
    let ended = |name: &str| log.lines().any(|line| line.starts_with(&format!("test {name} ...")));
    log.lines().filter_map(slow_test).find(|name| !ended(name))
}

fn slow_test(line: &str) -> Option<&str> {
    Some(line.strip_prefix("test ")?.split_once(" has been running for over ")?.0)
}

const POLL: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::os::unix::process::ExitStatusExt as _;

    use super::*;

    #[test]
    fn a_group_ends_with_the_process_that_started_it() {
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 60 & wait"]).stdout(Stdio::piped()).process_group(0);
        let mut running = Running::watched(command.spawn().unwrap()).unwrap();
        // As at the end of this process.
        drop(running.1.stdin.take());
        // Until the last process of the group has ended.
        running.0.stdout.take().unwrap().read_to_end(&mut Vec::new()).unwrap();
        assert_eq!(running.0.wait().unwrap().signal(), Some(Signal::KILL.as_raw()));
    }

    #[test]
    fn a_program_that_its_crate_does_not_have_is_missing() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let suite = Suite::new("test -p delayline-web --lib --test web --test webs");
        assert_eq!(suite.missing(root), ["webs"]);
    }

    #[test]
    fn a_suite_is_built_by_the_same_arguments() {
        let args = Suite::new("test -p a --test b");
        assert_eq!(args.building(), ["test", "-p", "a", "--test", "b", "--no-run"]);
        assert_eq!(
            Suite::new("run --release -p sim").building(),
            ["build", "--release", "-p", "sim"]
        );
    }

    #[test]
    fn only_named_tests_and_seeds_have_failed() {
        let log =
            "test a::b ... ok\ntest c ... FAILED\nsim: seed 7: late\nerror: could not compile\n";
        assert_eq!(failed_tests(log), ["c", "seed 7: late"]);
        assert!(failed_tests("error: linking failed\nerror: test failed\n").is_empty());
    }

    #[test]
    fn the_first_failure_may_end_a_suite() {
        let (passed, failed) = ("test a ... ok\n", "test a ... ok\ntest b ... FAILED\ntest c ... ");
        assert!(!Until::TheFirstFailure.is_over(passed));
        assert!(Until::TheFirstFailure.is_over(failed));
        assert!(!Until::TheEnd.is_over(failed));
    }

    #[test]
    fn a_test_that_hangs_is_one_that_takes_long_and_does_not_end() {
        let slow = "test a has been running for over 60 seconds\n";
        assert_eq!(hanging_test(slow), Some("a"));
        assert_eq!(hanging_test(&format!("{slow}test a ... ok\n")), None);
        assert_eq!(hanging_test("test a ... ok\n"), None);
    }
}
