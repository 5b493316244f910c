//! `cargo xtask prove mutants`: a sample of all small changes to a crate, each of which a test
//! should catch. cargo-mutants makes and runs them; this adds a sample that a seed decides, two
//! stages of tests, and the continuation of a stopped run.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use sha1_smol::Sha1;
use xshell::{Shell, cmd};

use crate::redis_server;

/// Runs a sample of a crate's mutants in a clone of the last commit, and shows which survive.
pub(crate) fn run(shell: &Shell, args: &[String]) -> Result<()> {
    let options = Options::parse(args)?;
    let there = cmd!(shell, "cargo mutants --version").quiet().ignore_stdout().ignore_stderr();
    ensure!(there.run().is_ok(), "this needs cargo-mutants: cargo install --locked cargo-mutants");
    let server = redis_server::ensure(shell)?;
    let _server = shell.push_env("REDIS_SERVER_BIN", &server);
    let place = Place::new(shell, &options.package)?;

    let mut results = place.results()?;
    let sample = sample(place.names(shell, &options.package)?, &options.seed, options.sample);
    let (stage, left): (_, Vec<_>) = if options.wide {
        let missed = |name: &&String| results.get(*name).is_some_and(|it| it == MISSED);
        (wide(&options.package), sample.iter().filter(missed).cloned().collect())
    } else {
        let unknown = |name: &&String| !results.contains_key(*name);
        (narrow(&options.package), sample.iter().filter(unknown).cloned().collect())
    };
    ensure!(!sample.is_empty(), "{} has no mutants", options.package);
    println!("xtask: {} mutants in the sample, {} to be run", sample.len(), left.len());
    if !left.is_empty() {
        place.run(shell, &options, &left, &stage)?;
        results = place.results()?;
    }
    report(&sample, &results);
    let is_done = sample.iter().all(|name| results.contains_key(name));
    ensure!(is_done, "cargo-mutants has not run all mutants of the sample");
    Ok(())
}

/// One crate's sample, by the result of each mutant.
fn report(sample: &[String], results: &BTreeMap<String, String>) {
    let mut counts = BTreeMap::<&str, usize>::new();
    for name in sample {
        *counts.entry(results.get(name).map_or("not run", String::as_str)).or_default() += 1;
    }
    let survives = |name: &&String| results.get(*name).is_some_and(|result| result == MISSED);
    sample.iter().filter(survives).for_each(|name| println!("survives: {name}"));
    println!("xtask: {counts:?}");
}

#[derive(Debug, PartialEq, Eq)]
struct Options {
    package: String,
    seed: String,
    sample: usize,
    wide: bool,
}

impl Options {
    fn parse(args: &[String]) -> Result<Self> {
        let (mut package, mut seed, mut sample, mut wide) = (None, "0".to_owned(), 300, false);
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            let mut value = || args.next().with_context(|| format!("{arg} takes a value"));
            match arg.as_str() {
                "-p" => package = Some(value()?.clone()),
                "--seed" => seed.clone_from(value()?),
                "--sample" => sample = value()?.parse().context("--sample takes a number")?,
                "--wide" => wide = true,
                other => bail!("`mutants` does not know {other:?}"),
            }
        }
        let package = package.context("`mutants` needs -p CRATE")?;
        Ok(Self { package, seed, sample, wide })
    }
}

/// Chosen by a hash, so that a sample does not depend on what else there is: a larger one has all
/// of a smaller one, and a change elsewhere changes few members.
fn sample(mut names: Vec<String>, seed: &str, size: usize) -> Vec<String> {
    names.sort_by_cached_key(|name| Sha1::from(format!("{seed} {name}")).hexdigest());
    names.dedup();
    names.truncate(size);
    names
}

/// The quick tests of the crate itself, as cargo-mutants takes them.
fn narrow(package: &str) -> Vec<&'static str> {
    let (programs, skipped) = match package {
        // All that goes without a server and without blocked threads.
        "delayline" => (
            "integration secrets",
            "blocking:: clock:: durability:: file:: ready_client:: servers:: shutdown:: \
             worker_list::",
        ),
        "delayline-cli" => (
            "integration",
            "dead:: demo:: doctor:: doctor_alerts:: import:: import_live:: killed_workers:: \
             on_a_terminal:: post:: pull:: send:: serve:: top:: topology:: unknown_queues:: \
             upgrade:: work:: workers::",
        ),
        "delayline-sqs" => ("router", ""),
        // All that goes without a server.
        "delayline-web" => ("web", "directory:: jobs:: pull_failover:: redis:: server::"),
        _ => ("", ""),
    };
    let programs = programs.split_whitespace().flat_map(|program| ["--test", program]);
    let skipped = skipped.split_whitespace().flat_map(|tests| ["--skip", tests]);
    ["--", "--lib"].into_iter().chain(programs).chain(["--"]).chain(skipped).collect()
}

/// All tests that are about the crate.
fn wide(package: &str) -> Vec<&'static str> {
    let other: &[_] = match package {
        "delayline-redis-protocol" => &["--test-package", "delayline-redis"],
        _ => &[],
    };
    [other, &["--", "--lib", "--tests"]].concat()
}

/// Where the mutants live.
struct Place {
    tree: PathBuf,
    build: PathBuf,
    /// The output of cargo-mutants, in its own folders.
    output: PathBuf,
    /// The result of each mutant of this commit.
    results: PathBuf,
}

impl Place {
    fn new(shell: &Shell, package: &str) -> Result<Self> {
        let home = shell.current_dir().join("target/mutants");
        let commit = cmd!(shell, "git rev-parse --short=12 HEAD").quiet().read()?;
        let tree = home.join("tree");
        if tree.exists() {
            fs::remove_dir_all(&tree)?;
        }
        let output = home.join(format!("{package}-{commit}"));
        fs::create_dir_all(&output)?;
        cmd!(shell, "git clone --quiet --shared . {tree}").run()?;
        let results = output.join("results.txt");
        Ok(Self { tree, build: home.join("build"), output, results })
    }

    /// The names of all mutants, which say where and what.
    fn names(&self, shell: &Shell, package: &str) -> Result<Vec<String>> {
        let _tree = shell.push_dir(&self.tree);
        let list = cmd!(shell, "cargo mutants --list --json -p {package}").quiet().read()?;
        let list: Vec<Value> = serde_json::from_str(&list)?;
        let name = |mutant: &Value| mutant["name"].as_str().map(str::to_owned);
        list.iter().map(|mutant| name(mutant).context("a mutant without a name")).collect()
    }

    fn run(
        &self,
        shell: &Shell,
        options: &Options,
        names: &[String],
        stage: &[&str],
    ) -> Result<()> {
        let Options { package, wide, .. } = options;
        let config = self.output.join("sample.toml");
        let patterns = names.iter().map(|name| format!("  '''^{}$''',\n", escaped(name)));
        let patterns: String = patterns.collect();
        fs::write(&config, format!("examine_re = [\n{patterns}]\n"))?;
        let _tree = shell.push_dir(&self.tree);
        let _build = shell.push_env("CARGO_TARGET_DIR", &self.build);
        // Each mutant is a small change of the last one.
        let _incremental = shell.push_env("CARGO_INCREMENTAL", "1");
        let _debug = shell.push_env("CARGO_PROFILE_DEV_DEBUG", "0");
        let _debug_tests = shell.push_env("CARGO_PROFILE_TEST_DEBUG", "0");
        let output = &self.output;
        // Many times what the tests of the stage take.
        let timeout_s = if *wide { "300" } else { "60" };
        let how = ["--in-place", "--all-features", "--timeout", timeout_s];
        let command = cmd!(
            shell,
            "cargo mutants {how...} -p {package} --config {config} --output {output} {stage...}"
        );
        let status = Command::from(command).status()?;
        let judged = status.code().is_some_and(|code| JUDGED.contains(&code));
        ensure!(judged, "cargo-mutants has judged nothing ({status})");
        Ok(())
    }

    /// The known results of each mutant of this commit, including the run that was stopped last.
    fn results(&self) -> Result<BTreeMap<String, String>> {
        let known = fs::read_to_string(&self.results).unwrap_or_default();
        let line = |line: &str| line.split_once(' ').map(|it| (it.1.to_owned(), it.0.to_owned()));
        let mut results: BTreeMap<_, _> = known.lines().filter_map(line).collect();
        for outcome in ["caught", MISSED, "timeout", "unviable"] {
            results.extend(latest(&self.output, outcome)?.map(|name| (name, outcome.to_owned())));
        }
        let lines = results.iter().map(|(name, outcome)| format!("{outcome} {name}\n"));
        fs::write(&self.results, lines.collect::<String>())?;
        Ok(results)
    }
}

/// The mutants of the latest run that ended like this.
fn latest(output: &Path, outcome: &str) -> Result<impl Iterator<Item = String>> {
    let path = output.join("mutants.out").join(format!("{outcome}.txt"));
    let text = if path.exists() { fs::read_to_string(&path)? } else { String::new() };
    Ok(text.lines().map(str::to_owned).collect::<Vec<_>>().into_iter())
}

/// A regular expression that matches this text alone.
fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for c in text.chars() {
        // Not all punctuation: `\<` and `\>` are the ends of a word.
        if r"\.+*?()|[]{}^$#&-~".contains(c) {
            escaped.push('\\');
        }
        escaped.push(c);
    }
    escaped
}

const MISSED: &str = "missed";
/// How cargo-mutants ends if all mutants are caught, if some survive, and if some run out of time.
/// With tests that fail or are missing without any mutant it ends otherwise.
const JUDGED: [i32; 3] = [0, 2, 3];

#[cfg(test)]
mod tests {
    use super::{Options, escaped, sample};

    #[test]
    fn a_sample_is_decided_by_its_seed_and_grows_at_its_end() {
        let names: Vec<_> = (0..100).map(|n| n.to_string()).collect();
        let ten = sample(names.clone(), "1", 10);
        assert_eq!(ten, sample(names.iter().rev().cloned().collect(), "1", 10));
        assert_eq!(ten, sample(names.clone(), "1", 50)[..10]);
        assert_ne!(ten, sample(names, "2", 10));
    }

    #[test]
    fn names_are_matched_as_they_are() {
        assert_eq!(escaped("a.rs:1:2: replace + with *"), r"a\.rs:1:2: replace \+ with \*");
        assert_eq!(
            escaped("replace < with <= in f -> Vec<u8>"),
            r"replace < with <= in f \-> Vec<u8>"
        );
    }

    #[test]
    fn options_are_read() {
        let parse = |text: &str| {
            Options::parse(&text.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
        };
        let options = parse("-p core --seed 7 --sample 3 --wide").unwrap();
        let expected =
            Options { package: "core".to_owned(), seed: "7".to_owned(), sample: 3, wide: true };
        assert_eq!(options, expected);
        assert!(parse("--seed 7").is_err(), "of which crate?");
    }
}
