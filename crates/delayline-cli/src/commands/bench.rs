//! `delayline bench`.

mod lateness;
mod throughput;

use std::process::ExitCode;

use clap::Subcommand;
use delayline::{Bytes, Inspection, Queue, Raw};

use self::lateness::Lateness;
use self::throughput::Throughput;
use crate::args::{Driver, Target};
use crate::failure::Failure;

/// Measure lateness and throughput
///
/// Of a server, this machine and the network between them. Figures are meaningful only in release
/// builds. Uses its own queue, `delayline-bench`, and leaves it empty; --queue is ignored.
#[derive(clap::Args)]
pub(crate) struct Bench {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    Lateness(Lateness),
    Throughput(Throughput),
}

pub(crate) async fn run(target: &Target, args: Bench) -> Result<ExitCode, Failure> {
    match args.verb {
        Verb::Lateness(args) => lateness::run(target, args).await,
        Verb::Throughput(args) => throughput::run(target, args).await,
    }
}

/// Where it is measured, in words and as a connection to be.
struct Place {
    name: &'static str,
    url: String,
    driver: Driver,
}

impl Place {
    fn of(target: &Target) -> Self {
        let name = match (target.url.starts_with("memory:"), target.driver) {
            (true, _) => "memory",
            (false, Driver::Redis) => "redis-rs",
            (false, Driver::Fred) => "fred",
        };
        Self { name, url: target.url.clone(), driver: target.driver }
    }

    /// What the server says of itself.
    async fn inspect(&self, target: &Target) -> Result<Inspection, Failure> {
        let connection = target.connect_to(&self.url, self.driver)?.connect().await?;
        Ok(connection.inspect(QUEUE).await?)
    }

    /// The queue, which must be empty, because all that is in it will be handled.
    async fn open(&self, target: &Target) -> Result<Queue<Bytes, Raw>, Failure> {
        let queue = target.open_on(target.connect_to(&self.url, self.driver)?, QUEUE).await?;
        let stats = queue.stats().await?;
        if stats.scheduled + stats.ready + stats.leased + stats.dead > 0 {
            let sentence = format!("the queue {QUEUE} is in use or left over from an earlier run");
            return Err(Failure::usage(sentence)
                .hint("`delayline --queue delayline-bench work --until-empty` empties it"));
        }
        Ok(queue)
    }
}

/// What the figures depend on, besides the server.
fn circumstances() -> String {
    let build = if cfg!(debug_assertions) {
        "debug build: these figures mean little"
    } else {
        "release build"
    };
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    format!("{build}, {cores} cores, delayline {}", env!("CARGO_PKG_VERSION"))
}

/// What the server is.
async fn server(place: &Place, target: &Target) -> Result<String, Failure> {
    if place.url.starts_with("memory:") {
        return Ok("in this process".to_owned());
    }
    let inspection = place.inspect(target).await?;
    let field = |name: &str| inspection.info.get(name).map_or("?", String::as_str);
    Ok(format!("Redis {}, hz {}", field("redis_version"), field("configured_hz")))
}

const QUEUE: &str = "delayline-bench";
