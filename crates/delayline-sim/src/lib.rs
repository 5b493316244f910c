//! Simulates whole systems: real worker machines, producers and operators on the model of
//! a queue, in one thread and in simulated time, with every kind of fault. What happens depends on
//! a seed alone, so that a failure can be played again; and it shrinks.

mod calls;
mod grouped;
mod ledger;
mod limited;
mod met;
mod process;
mod rng;
mod story;
mod world;

use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use proptest::strategy::{Strategy, ValueTree};

use self::ledger::{Totals, Violation};
use self::story::{Story, runner, stories, story_from_bytes};
use self::world::World;

/// Plays one story after the other, and shows the smallest one that breaks a promise
#[derive(Parser)]
struct Args {
    /// How many seeds to play
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u64).range(1..))]
    seeds: u64,

    /// The first of them
    #[arg(long, default_value_t = 0)]
    first: u64,
}

/// A story that broke a promise, as small as it could be made.
struct Failure {
    seed: u64,
    violation: Violation,
    story: Story,
}

/// The program: plays seeds and returns the exit code.
#[must_use]
pub fn main() -> ExitCode {
    let Args { seeds, first } = Args::parse();
    match play_all(first, seeds) {
        Ok(totals) => {
            println!("{}", totals.met);
            let missing: Vec<_> = totals.met.missing().collect();
            if seeds < ENOUGH_SEEDS {
                println!("sim: fewer than {ENOUGH_SEEDS} seeds: nothing of this had to occur");
                return ExitCode::SUCCESS;
            }
            if missing.is_empty() {
                return ExitCode::SUCCESS;
            }
            println!("sim: {seeds} seeds, and there were no {}", missing.join("; no "));
            ExitCode::FAILURE
        }
        Err(failure) => {
            let Failure { seed, violation, story } = *failure;
            for line in World::tell(&story) {
                println!("{line}");
            }
            println!("{story:#?}");
            println!("sim: seed {seed}: {violation}; play it again with --first {seed} --seeds 1");
            ExitCode::FAILURE
        }
    }
}

/// Plays a story that is a function of the bytes, for coverage-guided fuzzers: four bytes decide
/// one thing that happens in it, so that a small change of the bytes is a small change of the
/// story.
///
/// # Errors
///
/// The promise that was broken, and the story.
pub fn play_bytes(bytes: &[u8]) -> Result<(), String> {
    let story = story_from_bytes(bytes);
    World::play(&story).map(drop).map_err(|violation| format!("{violation}\n{story:#?}"))
}

fn play_all(first: u64, seeds: u64) -> Result<Totals, Box<Failure>> {
    let (start, mut totals) = (Instant::now(), Totals::default());
    let mut shown = start;
    for seed in first..first.saturating_add(seeds) {
        totals.add(&play(seed)?);
        if shown.elapsed().as_secs() >= 10 {
            shown = Instant::now();
            report(seed - first + 1, &totals, start);
        }
    }
    report(seeds, &totals, start);
    Ok(totals)
}

fn report(seeds: u64, totals: &Totals, start: Instant) {
    let seconds = start.elapsed().as_secs_f64();
    let rate = f64::from(u32::try_from(seeds).unwrap_or(u32::MAX)) / seconds.max(0.001);
    let hours = totals.simulated_ms / 3_600_000;
    let Totals { messages, calls, starts, .. } = totals;
    println!(
        "sim: {seeds} seeds, {rate:.0} a second, {hours} simulated hours, {messages} messages, \
         {calls} calls, {starts} handlers begun"
    );
}

/// Plays the story of a seed.
fn play(seed: u64) -> Result<Totals, Box<Failure>> {
    let mut tree = tree(seed);
    World::play(&tree.current()).map_err(|violation| Box::new(shrink(seed, violation, &mut *tree)))
}

fn tree(seed: u64) -> Box<dyn ValueTree<Value = Story>> {
    match stories().new_tree(&mut runner(seed)) {
        Ok(tree) => Box::new(tree),
        // Only a strategy with a filter can fail.
        Err(reason) => unreachable!("{reason}"),
    }
}

/// Makes a story smaller for as long as it breaks a promise.
fn shrink(seed: u64, violation: Violation, tree: &mut dyn ValueTree<Value = Story>) -> Failure {
    let mut smallest = Failure { seed, violation, story: tree.current() };
    let mut steps = 0;
    let mut more = tree.simplify();
    while more && steps < MAX_SHRINKS {
        steps += 1;
        let story = tree.current();
        more = match World::play(&story) {
            Err(violation) => {
                smallest = Failure { seed, violation, story };
                tree.simplify()
            }
            Ok(_) => tree.complicate(),
        };
    }
    smallest
}

/// Number of seeds after which every kind of event must have occurred.
const ENOUGH_SEEDS: u64 = 10_000;
const MAX_SHRINKS: u32 = 20_000;
