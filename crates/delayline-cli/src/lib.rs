//! The `delayline` command: sends, handles and manages the messages of a delay queue.
//!
//! A library for its own program and for the fuzzers only; programs use the crate `delayline`.

/// Shadows the standard macro, which panics if stderr is closed: a panic would end the task that
/// handles signals, or the command halfway.
macro_rules! eprint {
    ($($text:tt)*) => {{
        use std::io::Write as _;
        let _ = write!(std::io::stderr(), $($text)*);
    }};
}
/// Like [`eprint`], with a line break.
macro_rules! eprintln {
    ($($text:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stderr(), $($text)*);
    }};
}

mod args;
mod clock;
mod commands;
mod confirm;
mod failure;
mod http;
mod input;
mod print;
mod progress;
#[doc(hidden)]
pub mod reading;
mod report;
mod screen;
mod signals;

use std::process::ExitCode;

use tracing::Level;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, filter, fmt};

use self::args::{Args, Verb};
use self::failure::Failure;

/// The program: reads its arguments, runs the subcommand, and returns the exit code.
#[must_use]
pub fn main() -> ExitCode {
    let args = Args::of(std::env::args_os().collect()).unwrap_or_else(|error| error.exit());
    let quietest = match args.verb {
        // The demonstration shows its dead letter itself.
        Verb::Demo => Level::ERROR,
        // The audit log is written at this level.
        Verb::Serve(_) => Level::INFO,
        _ => Level::WARN,
    };
    log(args.verbose, quietest);
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return Failure::other("the program could not start", &error).report(),
    };
    let result = runtime.block_on(run(args));
    // A thread that is stuck on a full pipe must not keep the program from ending.
    runtime.shutdown_background();
    match result {
        Ok(code) => code,
        Err(failure) => failure.report(),
    }
}

async fn run(args: Args) -> Result<ExitCode, Failure> {
    match args.verb {
        Verb::Demo => commands::demo::run().await,
        Verb::Send(send) => commands::send::run(&args.target, send).await,
        Verb::Work(work) => commands::work::run(&args.target, work).await,
        Verb::Relay(relay) => commands::relay::run(&args.target, relay).await,
        Verb::Queues(queues) => commands::queues::run(&args.target, &queues).await,
        Verb::Stats(stats) => commands::stats::run(&args.target, stats).await,
        Verb::Top(top) => commands::top::run(&args.target, top).await,
        Verb::Forecast(forecast) => commands::forecast::run(&args.target, forecast).await,
        Verb::History(history) => commands::history::run(&args.target, history).await,
        Verb::List(list) => commands::list::run(&args.target, list).await,
        Verb::Get(get) => commands::get::run(&args.target, get).await,
        Verb::Explain(explain) => commands::explain::run(&args.target, explain).await,
        Verb::Wait(wait) => commands::wait::run(&args.target, wait).await,
        Verb::Cancel(cancel) => commands::cancel::run(&args.target, cancel).await,
        Verb::Reschedule(reschedule) => commands::reschedule::run(&args.target, reschedule).await,
        Verb::Dead(dead) => commands::dead::run(&args.target, dead.verb).await,
        Verb::Schedule(schedule) => commands::schedule::run(&args.target, schedule).await,
        Verb::Pause(pause) => commands::switch::pause(&args.target, pause).await,
        Verb::Resume(resume) => commands::switch::resume(&args.target, resume).await,
        Verb::Limits(limits) => commands::limits::run(&args.target, limits).await,
        Verb::Workers(workers) => commands::workers::run(&args.target, workers).await,
        Verb::Groups(groups) => commands::groups::run(&args.target, groups).await,
        Verb::DeleteQueue(delete) => commands::delete_queue::run(&args.target, delete).await,
        Verb::Backup(backup) => commands::backup::run(&args.target, backup).await,
        Verb::Upgrade(upgrade) => commands::upgrade::run(&args.target, &upgrade).await,
        Verb::Check(check) => commands::check::run(&args.target, check).await,
        Verb::Doctor(doctor) => commands::doctor::run(&args.target, doctor).await,
        Verb::Acl(acl) => commands::acl::run(&args.target, &acl),
        Verb::Serve(serve) => commands::serve::run(&args.target, serve).await,
        Verb::Import(import) => commands::import::run(&args.target, import).await,
        Verb::Completions(completions) => commands::completions::run(&completions),
        Verb::Man(man) => commands::man::run(&man),
    }
}

/// Logs go to stderr: from `quietest` on, and more with `-v`. Only our own: what a client library
/// would say about a connection is not known to be free of passwords.
fn log(verbose: u8, quietest: Level) {
    let level = match verbose {
        0 => quietest,
        1 => Level::INFO,
        _ => Level::DEBUG,
    };
    let ours = filter::filter_fn(|metadata| metadata.target().starts_with("delayline"));
    let lines = fmt::layer().with_writer(std::io::stderr).with_target(false);
    // Where they help: on a terminal, unless NO_COLOR is set.
    let lines = lines.with_ansi(console::colors_enabled_stderr()).with_filter(ours);
    // A second initialisation is the only way to fail.
    let _ =
        tracing_subscriber::registry().with(LevelFilter::from_level(level)).with(lines).try_init();
}
