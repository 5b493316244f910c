//! Do the tests of the scripts see anything? Changes the scripts in small ways, and runs the suite
//! and the cases of damage on each mutant until one fails.
//!
//! `cargo xtask prove lua-mutants` sets these variables. Without them a script that is plainly
//! broken must be caught, and no other.
//!
//! - `DELAYLINE_MUTANTS`: number of mutants, which `DELAYLINE_SEED` chooses.
//! - `DELAYLINE_MUTANTS_OF=claim.lua`: mutants of one script only.
//! - `DELAYLINE_MUTANTS_AGAIN`: a list, or earlier output; the survivors there run again.
//! - `DELAYLINE_TRIALS=bells::,repair::`: parts of the names of the trials to run.
//! - `DELAYLINE_MUTANTS_LIST`: prints all mutants and runs none.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test program")]

mod cases;
mod mutator;
mod plain;
mod transport;
mod trials;

use std::collections::{BTreeSet, HashSet};
use std::time::Instant;
use std::{env, fs};

use delayline_redis_protocol::{Script, all_scripts};
use mutator::{Mutant, mutants, unindented};
use transport::Substitute;
use trials::Trials;

#[test]
fn mutants_of_the_scripts_are_caught() {
    // Trials fail by panics, which would all be printed.
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let result = chosen();
    std::panic::set_hook(hook);
    if let Err(reason) = result {
        panic!("{reason}");
    }
}

/// Does what the variables say.
fn chosen() -> Result<(), String> {
    if env::var_os("DELAYLINE_MUTANTS_LIST").is_some() {
        return list();
    }
    match number("DELAYLINE_MUTANTS")? {
        Some(count) => hunt(count, number("DELAYLINE_SEED")?.unwrap_or(1)),
        None => self_check(),
    }
}

/// A script is replaced where it is sent, and its trials see that.
fn self_check() -> Result<(), String> {
    let mut trials = Trials::learn(1, |name| name.starts_with("cases::"))?;
    let (number, script) = all_scripts().into_iter().enumerate().next().ok_or("no scripts")?;
    for (text, meant) in [("", false), ("do return {2} end ", true)] {
        let source = format!("{text}{}", script.source);
        let sha1 = trials.load(&source).ok_or("it is no script")?;
        transport::substitute(vec![Substitute { script, source, sha1 }]);
        let caught = trials.first_failure(&BTreeSet::from([number]));
        transport::restore();
        if caught.is_some() != meant {
            return Err(format!("{text:?} is caught: {}", caught.is_some()));
        }
    }
    Ok(())
}

/// Prints every mutant once, those included that are no Lua.
fn list() -> Result<(), String> {
    let sources = sources();
    let mut seen = HashSet::new();
    let mutants = every_mutant(&sources)?;
    mutants
        .iter()
        .filter(|it| is_new(&mut seen, it, &sources))
        .for_each(|it| println!("{}", what(it)));
    Ok(())
}

/// Mutant by mutant.
fn hunt(count: usize, seed: u64) -> Result<(), String> {
    let again = match env::var("DELAYLINE_MUTANTS_AGAIN") {
        Ok(path) => Some(fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?),
        Err(_) => None,
    };
    let mut trials = Trials::learn(RANDOM_CASES, |name| {
        env::var("DELAYLINE_TRIALS")
            .map_or(true, |list| list.split(',').any(|it| name.contains(it)))
    })?;
    let parts = env::var("DELAYLINE_TRIALS").unwrap_or_default();
    if let Some(part) = parts.split(',').find(|part| trials.named(part) == 0) {
        return Err(format!("no trial has a name with {part:?}"));
    }
    let (scripts, sources) = (all_scripts(), sources());
    let mutants = match &again {
        Some(output) => survivors_in(output, &trials, &sources)?,
        None => sample(count, seed, &trials, &sources)?,
    };
    println!("seed {seed}: {} mutants", mutants.len());
    if mutants.is_empty() {
        return Err("there is nothing to run".to_owned());
    }
    let (begin, mut survivors) = (Instant::now(), Vec::new());
    for (number, mutant) in (1..).zip(&mutants) {
        let changed = mutant.changed(&sources);
        let numbers = changed.iter().map(|(script, _)| *script).collect();
        let since = Instant::now();
        let substitute = |(number, source): (usize, String)| {
            Some(Substitute { script: scripts[number], sha1: trials.load(&source)?, source })
        };
        transport::substitute(changed.into_iter().filter_map(substitute).collect());
        let caught = trials.first_failure(&numbers);
        transport::restore();
        let (what, time) = (what(mutant), since.elapsed());
        match caught {
            Some(by) => {
                println!("{number}/{}: caught in {time:.1?} by {by}: {what}", mutants.len());
            }
            None => {
                println!("{number}/{}: SURVIVED in {time:.1?}: {what}", mutants.len());
                survivors.push(what);
            }
        }
    }
    let (all, caught) = (mutants.len(), mutants.len() - survivors.len());
    println!("seed {seed}: {caught} of {all} mutants caught in {:.0?}", begin.elapsed());
    if survivors.is_empty() {
        return Ok(());
    }
    Err(format!("{} mutants survived:\n{}", survivors.len(), survivors.join("\n")))
}

fn what(mutant: &Mutant) -> String {
    let Mutant { line, .. } = mutant;
    let (name, change) = name_and_change(mutant);
    format!("{name}, line {line} {change}")
}

/// The printed form of a mutant, without its line number, which may have changed.
fn name_and_change(mutant: &Mutant) -> (&'static str, String) {
    let Mutant { script, before, after, .. } = mutant;
    let name = all_scripts().get(*script).map_or("", |script| script.name);
    (name, format!("as assembled: `{before}` -> `{after}`").replace('\n', " "))
}

/// The mutants that survived in an earlier run, or stand in a list. Each must still exist, unless
/// it is of a script that is not wanted.
fn survivors_in(output: &str, trials: &Trials, sources: &[String]) -> Result<Vec<Mutant>, String> {
    let lines = output.lines().filter(|line| !line.contains(": caught in "));
    let survivors = lines.filter_map(|line| {
        let (name, change) = line.split_once(", line ")?;
        let name = name.rsplit(' ').next()?;
        Some((name, change.split_once(' ')?.1.to_owned()))
    });
    let survivors = survivors.filter(|(name, _)| is_wanted(name)).collect::<HashSet<_>>();
    let mut all = every_mutant(sources)?;
    all.retain(|it| survivors.contains(&name_and_change(it)) && is_lua(it, trials, sources));
    let known: HashSet<_> = all.iter().map(name_and_change).collect();
    let gone: Vec<_> = survivors.difference(&known).collect();
    if !gone.is_empty() {
        return Err(format!("these mutants do not exist any more, or are no Lua: {gone:#?}"));
    }
    all.retain(|mutant| trials.of(mutant.script) > 0);
    Ok(all)
}

/// A random sample of mutants that are valid Lua.
fn sample(
    count: usize,
    seed: u64,
    trials: &Trials,
    sources: &[String],
) -> Result<Vec<Mutant>, String> {
    let mut all = every_mutant(sources)?;
    all.retain(|mutant| trials.of(mutant.script) > 0);
    fastrand::Rng::with_seed(seed).shuffle(&mut all);
    let (mut seen, mut chosen) = (HashSet::new(), Vec::new());
    for mutant in all {
        if chosen.len() == count {
            break;
        }
        if is_new(&mut seen, &mutant, sources) && is_lua(&mutant, trials, sources) {
            chosen.push(mutant);
        }
    }
    Ok(chosen)
}

fn is_lua(mutant: &Mutant, trials: &Trials, sources: &[String]) -> bool {
    mutant.changed(sources).iter().all(|(_, source)| trials.load(source).is_some())
}

/// Whether it is the first with this change: the same part may stand in several scripts, and is
/// changed in all of them.
fn is_new(seen: &mut HashSet<(String, String)>, mutant: &Mutant, sources: &[String]) -> bool {
    seen.insert((mutant.context(sources).to_owned(), mutant.after.clone()))
}

fn sources() -> Vec<String> {
    all_scripts().iter().map(|script| unindented(&script.source)).collect()
}

/// Every mutant of the scripts that are wanted.
fn every_mutant(sources: &[String]) -> Result<Vec<Mutant>, String> {
    let mut all = all_scripts().into_iter().enumerate().collect::<Vec<_>>();
    all.retain(|(_, script)| is_wanted(script.name));
    if all.is_empty() {
        return Err("there is no such script; `cargo xtask lua` names all".to_owned());
    }
    let of = |(number, script): (usize, &'static Script)| {
        mutants(number, &sources[number], script.keys.len())
    };
    Ok(all.into_iter().flat_map(of).collect())
}

fn is_wanted(script: &str) -> bool {
    env::var("DELAYLINE_MUTANTS_OF").map_or(true, |wanted| wanted == script)
}

fn number<N: std::str::FromStr>(name: &str) -> Result<Option<N>, String> {
    let Ok(value) = env::var(name) else { return Ok(None) };
    value.parse().map(Some).map_err(|_| format!("{name} is no number: {value:?}"))
}

/// Random sequences for each mutant that nothing else catches.
const RANDOM_CASES: u32 = 60;
