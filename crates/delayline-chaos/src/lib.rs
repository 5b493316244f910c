//! Injects faults of every kind into real servers under load: kill, freeze, partition, fill, lose
//! data, jump in time. The server's append-only file is the witness: every history is replayed on
//! the model in the order in which the server executed it, including calls without a reply.

mod blocking;
mod evidence;
mod fault;
mod load;
mod log;
mod promises;
mod replay;
mod round;
pub mod schedules;
mod strikes;
pub mod topology;
mod verdict;
mod witness;

use std::fmt;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use clap::Parser;

use self::strikes::Met;
use self::topology::{Kind, Tally};
use self::verdict::Totals;

/// Plays rounds of faults on private servers, and reports the faults and which promises held
#[derive(Parser)]
struct Args {
    /// What the queues are on: single, sentinel or cluster
    #[arg(long, value_parser = topology_of, default_value = "single")]
    topology: Choice,

    /// How many rounds to play; twelve have more than 60 kills and 60 freezes
    #[arg(
        long,
        default_value_t = 12,
        conflicts_with = "minutes",
        value_parser = clap::value_parser!(u64).range(1..)
    )]
    rounds: u64,

    /// Play rounds for this time instead
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    minutes: Option<u64>,

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

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Single => f.write_str("single"),
            Self::Several(kind) => kind.fmt(f),
        }
    }
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

/// Plays what the command line asks for.
pub async fn run() -> ExitCode {
    let args = Args::parse();
    let seed = args.seed;
    let played = match args.topology {
        Choice::Several(kind) => {
            let play = async |n, tally: &mut _| topology::play(kind, seed, n, tally).await;
            rounds(&args, Tally::default(), play).await
        }
        Choice::Single => {
            let play = async |n, totals: &mut _| round::play(seed, n, totals).await;
            rounds(&args, Totals::new(), play).await
        }
    };
    match played {
        Ok(()) => {
            println!("chaos: seed {seed}: every promise held");
            ExitCode::SUCCESS
        }
        Err(error) => {
            println!("chaos: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn rounds<M: Met>(
    args: &Args,
    mut met: M,
    play: impl AsyncFn(u64, &mut M) -> Result<()>,
) -> Result<()> {
    let (begin, mut number, seed) = (Instant::now(), args.first, args.seed);
    while !args.is_over(begin, number) {
        if let Err(error) = play(number, &mut met).await {
            println!("{met}");
            let topology = args.topology;
            bail!(
                "round {number} of seed {seed}: {error:#}\nplay it again with --topology {topology} \
                 --seed {seed} --first {number} --rounds 1"
            );
        }
        number += 1;
        let (rounds, seconds) = (number - args.first, begin.elapsed().as_secs());
        println!("chaos: {rounds} rounds in {seconds} s: {}", met.faults());
    }
    println!("\n{met}");
    let rounds = number - args.first;
    if rounds < met.enough() {
        let enough = met.enough();
        println!("chaos: fewer than {enough} rounds: not every guarantee and fault was required");
    }
    let unseen = met.unseen(rounds);
    ensure!(unseen.is_empty(), "nothing to judge by for {}", unseen.join("; "));
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::Args;

    #[test]
    fn a_run_has_a_round() {
        for args in [["chaos", "--rounds", "0"], ["chaos", "--minutes", "0"]] {
            assert!(Args::try_parse_from(args).is_err(), "{args:?}");
        }
        assert!(Args::try_parse_from(["chaos", "--rounds", "1"]).is_ok());
    }
}
