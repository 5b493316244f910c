//! Injects faults of every kind into real servers under load: kill, freeze, partition, fill, lose
//! data, jump in time. The server's append-only file is the witness: every history is replayed on
//! the model in the order in which the server executed it, including calls without a reply.

mod cuts;
mod evidence;
mod fault;
mod load;
mod log;
mod promises;
mod relayed;
mod replay;
mod round;
pub mod schedules;
pub mod topology;
mod verdict;
mod witness;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;

use self::fault::Fault;
use self::topology::{Kind, Tally};
use self::verdict::Totals;

/// Plays rounds of faults on private servers, and reports the faults and which promises held
#[derive(Parser)]
struct Args {
    /// What the queues are on: single, sentinel or cluster
    #[arg(long, value_parser = topology_of, default_value = "single")]
    topology: Choice,

    /// How many rounds to play; twelve have more than 60 kills and 60 freezes
    #[arg(long, default_value_t = 12, conflicts_with = "minutes")]
    rounds: u64,

    /// Play rounds for this time instead
    #[arg(long)]
    minutes: Option<u64>,

    /// How often the end of an append-only file is cut off after that
    #[arg(long, default_value_t = 2_000)]
    cuts: usize,

    /// What chance begins with; what strikes, and in which order, follows from it
    #[arg(long, default_value_t = 0)]
    seed: u64,

    /// The first round to play
    #[arg(long, default_value_t = 0)]
    first: u64,
}

/// What the queues are on.
#[derive(Clone, Copy)]
enum Choice {
    Single,
    Several(Kind),
}

fn topology_of(text: &str) -> Result<Choice, String> {
    match text {
        "single" => Ok(Choice::Single),
        "cluster" => Ok(Choice::Several(Kind::Cluster)),
        "sentinel" => Ok(Choice::Several(Kind::Sentinel)),
        _ => Err("the topologies are single, sentinel and cluster".to_owned()),
    }
}

impl Args {
    fn is_over(&self, begin: Instant, number: u64) -> bool {
        match self.minutes {
            Some(minutes) => begin.elapsed() >= Duration::from_secs(60 * minutes),
            None => number - self.first >= self.rounds,
        }
    }
}

/// Plays rounds on clusters, or on servers behind sentinels.
async fn topologies(kind: Kind, args: &Args) -> ExitCode {
    let (begin, mut tally, mut number) = (Instant::now(), Tally::default(), args.first);
    let seed = args.seed;
    while !args.is_over(begin, number) {
        if let Err(error) = topology::play(kind, seed, number, &mut tally).await {
            println!(
                "{tally}\nchaos: round {number} of seed {seed}: {error:#}\n\
                 play it again with --topology {kind} --seed {seed} --first {number} --rounds 1"
            );
            return ExitCode::FAILURE;
        }
        number += 1;
        let (seconds, faults) = (begin.elapsed().as_secs(), tally.faults());
        println!("chaos: {} rounds in {seconds} s: {faults} faults", number - args.first);
    }
    println!("\n{tally}");
    let unseen = tally.unseen();
    if !unseen.is_empty() && number - args.first >= ENOUGH_ROUNDS {
        println!("chaos: nothing to judge by for {}", unseen.join("; "));
        return ExitCode::FAILURE;
    }
    println!("chaos: {kind}, seed {seed}, {} rounds, every promise held", number - args.first);
    ExitCode::SUCCESS
}

/// Number of rounds after which every guarantee must have been judged.
const ENOUGH_ROUNDS: u64 = 4;
/// Number of rounds after which every kind of fault must have affected a call.
const ENOUGH_STRIKES: u64 = 12;

/// Minimum number of cuts within an operation.
const ENOUGH_CUTS: usize = 100;

/// Plays what the command line asks for.
pub async fn run() -> ExitCode {
    let args = Args::parse();
    if let Choice::Several(kind) = args.topology {
        return topologies(kind, &args).await;
    }
    let (begin, mut totals, mut number) = (Instant::now(), Totals::default(), args.first);
    let Args { cuts, seed, first, .. } = args;
    while !args.is_over(begin, number) {
        if let Err(error) = round::play(seed, number, &mut totals).await {
            println!("{totals}");
            println!(
                "chaos: round {number} of seed {seed}: {error:#}\n\
                 play it again with --seed {seed} --first {number} --rounds 1"
            );
            return ExitCode::FAILURE;
        }
        number += 1;
        let (kills, _) =
            totals.faults(|fault| matches!(fault, Fault::Kill | Fault::KillAndLoseTail));
        let (struck, hits) = totals.faults(|_| true);
        let seconds = begin.elapsed().as_secs();
        println!(
            "chaos: {} rounds in {seconds} s: {struck} faults, {hits} of them felt by a call, \
             {kills} kills",
            number - first
        );
    }
    println!("\n{totals}");
    let unseen = totals.unseen();
    if !unseen.is_empty() && number - first >= ENOUGH_ROUNDS {
        println!("chaos: nothing to judge by for {}", unseen.join("; "));
        return ExitCode::FAILURE;
    }
    let unmet = totals.unmet();
    if !unmet.is_empty() && number - first >= ENOUGH_STRIKES {
        println!("chaos: no call has felt these faults: {unmet:?}");
        return ExitCode::FAILURE;
    }
    match cuts::play(seed, cuts).await {
        Ok(cuts::Cuts { all, within }) => {
            println!(
                "chaos: {all} ends of an append-only file cut off, {within} of them within an \
                 operation; what was left was whole"
            );
            if within == 0 && all >= ENOUGH_CUTS {
                println!("chaos: no cut was within an operation, so they prove nothing");
                return ExitCode::FAILURE;
            }
        }
        Err(error) => {
            println!("chaos: {error:#}\nplay it again with --seed {seed} --rounds 0");
            return ExitCode::FAILURE;
        }
    }
    println!("chaos: seed {seed}, {} rounds, every promise held", number - first);
    ExitCode::SUCCESS
}
