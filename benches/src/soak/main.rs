//! Hours of mixed delays and idle spells on private servers, on both drivers, and a verdict: on
//! time, nothing lost, nothing twice, nothing that grows.

mod heartbeat;
mod ledger;
mod machine;
mod program;
mod schedule;
mod senders;
mod shape;
mod verdict;

use std::process::ExitCode;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use clap::Parser;
use delayline::RedisClient;
use delayline::admin::QueueName;
use delayline_benches::{Requests, settings};
use delayline_test_server::Server;
use tokio::sync::oneshot;

use self::heartbeat::Heartbeat;
use self::ledger::Bounds;
use self::machine::{Process, Usage, residue};
use self::program::{Program, Report, queue_name};
use self::schedule::Schedule;
use self::shape::Shape;
use self::verdict::{Evidence, LATENESS_HEAD, Measured, Spell, judge, lateness_row};

/// Runs quiet and busy programs for a long time, and judges lateness, losses, repetitions and
/// growth
///
/// Each of four kinds of program runs over each driver, on its own server: 16 queues with a worker
/// each, 10 queues that share one, many queues that share one, and one queue with constant traffic.
/// Traffic takes turns with idle spells. Lateness is from the due instant to the begin of the
/// handler, by the server's clock; while a thread that does nothing else was held up, as on an
/// overloaded machine, the bounds do not count.
#[derive(Parser)]
struct Args {
    /// How long it runs; from 20 on it judges whether memory grows
    #[arg(long, default_value_t = 10.0)]
    minutes: f64,

    /// What chance begins with
    #[arg(long)]
    seed: Option<u64>,

    /// How many queues share a worker in the programs with many
    #[arg(long, default_value_t = 300)]
    queues: usize,

    /// How many milliseconds a message may be late on an idle server
    #[arg(long, default_value_t = 100)]
    bound: u64,

    /// The same for a wave, which is one message for each queue at once, and for constant traffic
    #[arg(long, default_value_t = 500)]
    busy_bound: u64,
}

impl Args {
    const fn bounds(&self) -> Bounds {
        Bounds {
            lateness: Duration::from_millis(self.bound),
            busy_lateness: Duration::from_millis(self.busy_bound),
        }
    }
}

fn main() -> ExitCode {
    let args = Args::parse();
    match run(&args) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("soak: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// A program that runs, and its server.
struct Running {
    name: String,
    driver: &'static str,
    shape: Shape,
    server: Server,
    queues: Vec<QueueName>,
    many: usize,
    thread: JoinHandle<Result<Report>>,
    spells: Vec<Spell>,
}

fn run(args: &Args) -> Result<bool> {
    let seed = args.seed.unwrap_or_else(|| fastrand::u64(..1_000_000));
    let total = Duration::try_from_secs_f64(60.0 * args.minutes).context("--minutes")?;
    let heartbeat = Heartbeat::start()?;
    let (mut programs, schedules) = start_programs(args, seed)?;
    let server = programs.first().map(|program| settings(&program.server)).unwrap_or_default();
    println!("soak: seed {seed}, {} minutes, {server}", args.minutes);
    let schedule = Schedule::new(Instant::now(), total);
    let (cycles, longest_delay) = (schedule.cycles, schedule.longest);
    println!("soak: {cycles} cycles, delays up to {:.0} s", longest_delay.as_secs_f64());
    for tell in schedules {
        tell.send(schedule.clone()).map_err(|_| anyhow!("a program ended before it began"))?;
    }
    let (processes, descriptors) = watch(&schedule, &mut programs)?;
    let programs = programs.into_iter().map(Running::finish).collect::<Result<Vec<_>>>()?;
    let evidence = Evidence {
        programs,
        stalls: heartbeat.stop()?,
        processes,
        descriptors,
        total,
        longest_delay,
        bounds: args.bounds(),
    };
    print(&evidence);
    let checks = judge(&evidence);
    checks.iter().for_each(|check| println!("{check}"));
    let failed = checks.iter().filter(|check| !check.held).count();
    let verdict = if failed == 0 { "passed".to_owned() } else { format!("FAILED: {failed}") };
    println!("\nsoak: seed {seed}, {} minutes: {verdict} of {} checks", args.minutes, checks.len());
    Ok(failed == 0)
}

/// Starts all of them, and answers when all are ready; each waits for its schedule.
fn start_programs(
    args: &Args,
    seed: u64,
) -> Result<(Vec<Running>, Vec<oneshot::Sender<Schedule>>)> {
    let mut chance = fastrand::Rng::with_seed(seed);
    let (ready, started) = mpsc::channel();
    let (mut programs, mut schedules) = (Vec::new(), Vec::new());
    for (driver, driver_name) in [(RedisClient::Redis, "redis-rs"), (RedisClient::Fred, "fred")] {
        for shape in Shape::ALL {
            let server = Server::builder().own_clock().try_start()?;
            let count = shape.queues(args.queues);
            let queues = (0..count).map(|n| queue_name(shape, n)).collect::<Result<_>>()?;
            let (url, seed, ready) = (server.url(), chance.u64(..), ready.clone());
            let program =
                Program { driver, shape, url, queues: count, seed, bounds: args.bounds() };
            let (tell, schedule) = oneshot::channel();
            schedules.push(tell);
            let thread = thread::spawn(move || program.run(&ready, schedule));
            let (name, spells) = (format!("{driver_name}, {}", shape.name()), Vec::new());
            let driver = driver_name;
            let many = args.queues;
            programs.push(Running { name, driver, shape, server, queues, many, thread, spells });
        }
    }
    for _ in &programs {
        started.recv()??;
    }
    Ok((programs, schedules))
}

/// This process second by second, and how many descriptors it had in each idle spell.
type Watched = (Vec<(Duration, Process)>, Vec<usize>);

/// Looks at this process all the time, and at the servers in idle spells.
fn watch(schedule: &Schedule, programs: &mut [Running]) -> Result<Watched> {
    let (start, mut processes, mut descriptors) = (Instant::now(), Vec::new(), Vec::new());
    let mut until = |end: Instant| {
        while Instant::now() < end {
            thread::sleep(SECOND.min(end.saturating_duration_since(Instant::now())));
            processes.push((start.elapsed(), Process::now()?));
        }
        anyhow::Ok(())
    };
    for number in 0..schedule.cycles {
        let cycle = schedule.cycle(number);
        until(cycle.idle_begin + SETTLING)?;
        let count = |program: &Running| (Instant::now(), Requests::of(&program.server));
        let begins: Vec<_> = programs.iter().map(count).collect();
        until(cycle.sample)?;
        descriptors.push(Process::now()?.descriptors);
        let ends: Vec<_> = programs.iter().map(count).collect();
        for ((program, begin), end) in programs.iter_mut().zip(begins).zip(ends) {
            let (time, requests) = (end.0 - begin.0, end.1.since(begin.1));
            let usage = Usage::of(&program.server, &program.queues)?;
            program.spells.push(Spell { time, requests, usage });
        }
        println!("soak: cycle {} of {} is over", number + 1, schedule.cycles);
    }
    Ok((processes, descriptors))
}

impl Running {
    fn finish(self) -> Result<Measured> {
        let Self { name, driver, shape, server, queues, many, thread, spells } = self;
        let joined = thread.join().map_err(|_| anyhow!("{name} ended with a panic"))?;
        let report = joined.with_context(|| name.clone())?;
        let requests = Requests::of(&server).sum();
        let residue = residue(&server, &queues)?;
        let queues = many;
        Ok(Measured { name, driver, shape, report, spells, requests, queues, residue })
    }
}

fn print(evidence: &Evidence) {
    println!("\n{:<24}{LATENESS_HEAD}", "lateness");
    for program in &evidence.programs {
        for (class, histogram) in &program.report.account.lateness {
            let name = format!("{}, {}", program.name, class.name());
            println!("{name:<24}{}", lateness_row(histogram));
        }
    }
    let stalls = &evidence.stalls;
    println!(
        "\nthe machine: {} heartbeats, {} of them held up, for at most {:.0?}\n",
        stalls.beats,
        stalls.count(),
        stalls.longest()
    );
    println!(
        "{:<20}{:>10}{:>14}{:>16}{:>14}",
        "", "messages", "commands/each", "idle commands/s", "idle CPU"
    );
    for program in &evidence.programs {
        println!("{:<20}{}", program.name, program.costs());
    }
    println!();
}

/// After traffic, until the last settlements are through.
const SETTLING: Duration = Duration::from_secs(1);
const SECOND: Duration = Duration::from_secs(1);
