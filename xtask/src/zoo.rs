//! `cargo xtask prove zoo`: seeded defects, each of which a test must catch.

mod defect;
mod suite;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use xshell::{Shell, cmd};

use self::defect::{Defect, defects};
use self::suite::{Outcome, Suite, Until, Workplace};
use crate::programs::bare;
use crate::redis_server;

/// Applies defects one by one in a clone of the last commit: all, or the ones whose names contain
/// one of `args`. Runs the tests that should catch them.
///
/// A defect counts as caught only if a test that passes without it fails with it, by name.
pub(crate) fn run(shell: &Shell, args: &[String]) -> Result<()> {
    let root = shell.current_dir();
    let all = defects(&root)?;
    let wanted = |defect: &&Defect| {
        args.is_empty() || args.iter().any(|part| defect.name.contains(part.as_str()))
    };
    let defects: Vec<_> = all.iter().filter(wanted).collect();
    ensure!(!defects.is_empty(), "no defect in zoo/ has a name that contains {args:?}");
    let place = Workplace::new(&root, redis_server::ensure(shell)?)?;
    let mut baselines = HashMap::new();
    let (count, mut survivors, mut unjudged) = (defects.len(), Vec::new(), Vec::new());
    for (number, defect) in (1..).zip(&defects) {
        let name = &defect.name;
        match hunt(&place, defect, &mut baselines) {
            Ok(Some((by, after))) => {
                println!("{number}/{count} {name}: caught in {after:.0?} by {by}");
            }
            Ok(None) => {
                println!("{number}/{count} {name}: SURVIVED: {}", defect.what);
                survivors.push(name.as_str());
            }
            // The others can be judged all the same.
            Err(error) => {
                println!("{number}/{count} {name}: NOT JUDGED: {error:#}");
                unjudged.push(name.as_str());
            }
        }
    }
    println!("zoo: {} of {count} defects caught", count - survivors.len() - unjudged.len());
    ensure!(survivors.is_empty(), "these survived: {}", survivors.join(", "));
    ensure!(unjudged.is_empty(), "these could not be judged: {}", unjudged.join(", "));
    Ok(())
}

/// The tests that patches name, each with its patch.
pub(crate) fn named_tests(root: &Path) -> Result<Vec<(String, String)>> {
    let named = defects(root)?.into_iter().filter_map(|it| Some((it.caught_by?, it.name)));
    Ok(named.map(|(test, name)| (test, format!("zoo/{name}.patch"))).collect())
}

/// Checks that every patch still fits, and that the programs which are to catch it exist.
pub(crate) fn check(shell: &Shell) -> Result<()> {
    let root = shell.current_dir();
    for defect in defects(&root)? {
        let patch = &defect.patch;
        cmd!(shell, "git apply --check --recount {patch}")
            .quiet()
            .run()
            .with_context(|| format!("zoo/{}.patch does not fit any more", defect.name))?;
        for suite in defect.suites() {
            let missing = suite.missing(&root);
            let name = &defect.name;
            ensure!(missing.is_empty(), "zoo/{name}.patch: {suite} has no program {missing:?}");
        }
    }
    Ok(())
}

/// How long a suite takes on sound code.
fn baseline(place: &Workplace, suite: &Suite) -> Result<Duration> {
    place.build(suite)?;
    match place.run(suite, LONGEST_BASELINE, Until::TheEnd)? {
        Outcome::Passed { after } => Ok(after),
        Outcome::Failed { tests, log } => {
            bail!("{suite} fails without any defect: {}\n{log}", tests.join(", "))
        }
        Outcome::Hung { log } => {
            bail!("{suite} is not over after {LONGEST_BASELINE:?}, without any defect\n{log}")
        }
    }
}

/// The test that catches a defect, and how long that took. The later suites are run only if the
/// earlier ones see nothing.
fn hunt(
    place: &Workplace,
    defect: &Defect,
    baselines: &mut HashMap<Suite, Duration>,
) -> Result<Option<(String, Duration)>> {
    for suite in defect.suites() {
        let baseline = match baselines.entry(suite.clone()) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(unknown) => {
                let time = baseline(place, &suite)?;
                println!("{suite}: passes without a defect in {time:.0?}");
                *unknown.insert(time)
            }
        };
        let patience = LEAST_PATIENCE.max(baseline * 4);
        let hunt = || hunt_with(place, defect, &suite, patience);
        if let Some(caught) = place.with_patch(&defect.patch, hunt)? {
            return Ok(Some(caught));
        }
    }
    Ok(None)
}

/// The same with one suite, while the defect is applied.
fn hunt_with(
    place: &Workplace,
    defect: &Defect,
    suite: &Suite,
    patience: Duration,
) -> Result<Option<(String, Duration)>> {
    place.build(suite).context("with it the tests do not compile")?;
    let start = Instant::now();
    let chosen = defect.caught_by.as_ref().map_or_else(|| suite.clone(), |test| suite.only(test));
    // The name of a test may be the beginning of another's.
    let until = if defect.caught_by.is_some() { Until::TheEnd } else { Until::TheFirstFailure };
    match place.run(&chosen, patience, until)? {
        Outcome::Passed { .. } => Ok(None),
        Outcome::Failed { tests, log } => {
            let wanted = defect.caught_by.as_ref();
            let by = wanted.map_or_else(
                || tests.first(),
                |wanted| tests.iter().find(|test| bare(test) == wanted),
            );
            let Some(by) = by else {
                let wanted = wanted.map_or("any test by name", String::as_str);
                bail!("{suite} fails, but not {wanted}: {tests:?}\n{log}")
            };
            Ok(Some((by.clone(), start.elapsed())))
        }
        Outcome::Hung { log } => {
            // The test programs name a test that runs for more than a minute.
            let Some(test) = suite::hanging_test(&log) else {
                bail!("{suite} is not over after {patience:.0?}, and names no test\n{log}")
            };
            if let Some(wanted) = defect.caught_by.as_ref().filter(|it| *it != bare(test)) {
                bail!("{suite} hangs in {test}, and not in {wanted}\n{log}");
            }
            Ok(Some((format!("{test}, which hangs"), start.elapsed())))
        }
    }
}

/// No suite takes as long on sound code.
const LONGEST_BASELINE: Duration = Duration::from_secs(900);
/// More than the minute after which a test program names a test that is still running.
const LEAST_PATIENCE: Duration = Duration::from_secs(150);
