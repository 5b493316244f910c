//! `cargo xtask zoo`: seeded defects, each of which a test must catch.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use xshell::{Shell, cmd};

use crate::redis_server;

/// A defect: a patch in `zoo/`, whose first line says what it is.
struct Defect {
    name: String,
    what: String,
    patch: PathBuf,
    /// The files that it changes.
    touches: Vec<String>,
}

/// How a defect was found.
enum Verdict {
    Caught { by: String, after: Duration },
    Survived,
}

/// Applies the defects one by one, or those whose names contain one of `args`, in a clone of the
/// last commit, and runs the tests that should catch them.
pub(crate) fn run(shell: &Shell, args: &[String]) -> Result<()> {
    let root = shell.current_dir();
    let defects = defects(&root)?;
    let wanted = |defect: &&Defect| {
        args.is_empty() || args.iter().any(|part| defect.name.contains(part.as_str()))
    };
    let defects: Vec<_> = defects.iter().filter(wanted).collect();
    if defects.is_empty() {
        bail!("no defect is called like that");
    }
    let server = redis_server::ensure(shell)?;
    let tree = root.join("target/zoo/tree");
    let build = root.join("target/zoo/build");
    if tree.exists() {
        fs::remove_dir_all(&tree)?;
    }
    cmd!(shell, "git clone --quiet --shared . {tree}").run()?;
    let mut survivors = Vec::new();
    for (number, defect) in (1..).zip(&defects) {
        let shell = Shell::new()?;
        shell.change_dir(&tree);
        let patch = &defect.patch;
        cmd!(shell, "git apply --recount {patch}").quiet().run()?;
        let verdict = hunt(defect, &tree, &build, &server)?;
        cmd!(shell, "git checkout --quiet .").quiet().run()?;
        let count = defects.len();
        match verdict {
            Verdict::Caught { by, after } => {
                println!("{number}/{count} {}: caught in {after:.0?} by {by}", defect.name);
            }
            Verdict::Survived => {
                println!("{number}/{count} {}: SURVIVED: {}", defect.name, defect.what);
                survivors.push(defect.name.as_str());
            }
        }
    }
    println!("zoo: {} of {} defects caught", defects.len() - survivors.len(), defects.len());
    if !survivors.is_empty() {
        bail!("these survived: {}", survivors.join(", "));
    }
    Ok(())
}

/// Checks that every patch still fits.
pub(crate) fn check(shell: &Shell) -> Result<()> {
    for defect in defects(&shell.current_dir())? {
        let patch = &defect.patch;
        cmd!(shell, "git apply --check --recount {patch}")
            .quiet()
            .run()
            .with_context(|| format!("zoo/{}.patch does not fit any more", defect.name))?;
    }
    Ok(())
}

fn defects(root: &Path) -> Result<Vec<Defect>> {
    let mut defects = Vec::new();
    for entry in fs::read_dir(root.join("zoo"))? {
        let patch = entry?.path();
        let Some(name) = patch.file_name().and_then(|name| name.to_str()) else { continue };
        let Some(name) = name.strip_suffix(".patch") else { continue };
        let text = fs::read_to_string(&patch)?;
        let what = text.lines().next().unwrap_or_default().to_owned();
        let touches = text.lines().filter_map(|line| line.strip_prefix("+++ b/"));
        let touches = touches.map(str::to_owned).collect();
        defects.push(Defect { name: name.to_owned(), what, patch, touches });
    }
    defects.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(defects)
}

/// The commands whose tests are to catch a defect, the likeliest first.
fn suites(defect: &Defect) -> &'static [&'static str] {
    const SUITES: [(&str, &[&str]); 6] = [
        (
            "crates/delayline-redis-protocol/lua",
            &[
                "test -p delayline-redis --test conformance --test queue",
                "test -p delayline --test servers",
            ],
        ),
        (
            "crates/delayline-core/src/worker",
            &["test -p delayline-core", "run --release -p delayline-sim"],
        ),
        (
            "crates/delayline-core",
            &["test -p delayline-core -p delayline-memory", "run --release -p delayline-sim"],
        ),
        (
            "crates/delayline-memory",
            &["test -p delayline-memory", "test -p delayline --lib --tests"],
        ),
        (
            "crates/delayline-redis-protocol/src",
            &["test -p delayline-redis --test transport --test wire"],
        ),
        ("crates/delayline", &["test -p delayline --lib --tests"]),
    ];
    let touches = |path: &str| defect.touches.iter().any(|file| file.starts_with(path));
    SUITES.iter().find(|(path, _)| touches(path)).map_or(&[], |(_, suites)| suites)
}

fn hunt(defect: &Defect, tree: &Path, build: &Path, server: &Path) -> Result<Verdict> {
    let start = Instant::now();
    for suite in suites(defect) {
        let log = build.with_extension("log");
        let (output, errors) = (File::create(&log)?, File::options().append(true).open(&log)?);
        let mut test = Command::new("cargo")
            .args(suite.split(' '))
            .arg("--locked")
            .current_dir(tree)
            .env("CARGO_TARGET_DIR", build)
            .env("REDIS_SERVER_BIN", server)
            // Defects leave unused variables behind.
            .env("RUSTFLAGS", "-Awarnings")
            .stdout(Stdio::from(output))
            .stderr(Stdio::from(errors))
            .spawn()?;
        let status = loop {
            match test.try_wait()? {
                Some(status) => break Some(status),
                None if start.elapsed() > PATIENCE => {
                    test.kill()?;
                    test.wait()?;
                    break None;
                }
                None => sleep(Duration::from_millis(50)),
            }
        };
        let after = start.elapsed();
        let text = fs::read_to_string(&log).unwrap_or_default();
        match status {
            Some(status) if status.success() => {}
            Some(_) if text.contains("could not compile") => bail!("{}: {text}", defect.name),
            Some(_) => return Ok(Verdict::Caught { by: failed_test(&text), after }),
            None => return Ok(Verdict::Caught { by: "a test that hangs".to_owned(), after }),
        }
    }
    Ok(Verdict::Survived)
}

/// The first test that failed.
fn failed_test(output: &str) -> String {
    let test = |line: &str| {
        let name = line.strip_prefix("test ")?.split_once(" ...")?;
        name.1.contains("FAILED").then(|| name.0.trim().to_owned())
    };
    let simulation =
        |line: &str| line.strip_prefix("sim: seed ").map(|rest| format!("seed {rest}"));
    let found = output.lines().find_map(|line| test(line).or_else(|| simulation(line)));
    found.unwrap_or_else(|| "a run that failed".to_owned())
}

/// Longer than any suite takes.
const PATIENCE: Duration = Duration::from_secs(400);
