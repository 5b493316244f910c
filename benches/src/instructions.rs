//! Instructions of the server for each operation, which hardly depend on the load of a machine.

use std::cell::Cell;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use clap::ValueEnum as _;
use delayline_benches::{Measured, apply};
use delayline_test_server::Server;
use indicatif::ProgressBar;
use serde_json::Value;
use tempfile::TempDir;

use crate::table::{Columns, Table, number};
use crate::transport::DRIVERS;

/// Batches, and how often each is applied.
const BATCHES: [(usize, usize); 2] = [(1, 200), (100, 10)];

/// A server under callgrind. It is counted what the server does from reading a request to sending
/// its reply.
pub(crate) struct CountedServer {
    server: Server,
    home: TempDir,
    counts: Cell<usize>,
}

impl CountedServer {
    pub(crate) fn start() -> Result<Self> {
        let home = tempfile::tempdir()?;
        let out = format!("--callgrind-out-file={}", home.path().join(OUT).display());
        let runner = [
            "valgrind",
            "--quiet",
            "--tool=callgrind",
            "--toggle-collect=readQueryFromClient",
            "--toggle-collect=handleClientsWithPendingWrites",
            "--dump-before=lolwutCommand",
            &out,
        ];
        let server = Server::builder().runner(&runner).config("hz", "1").config("dynamic-hz", "no");
        let server = server
            .try_start()
            .context("running a server under valgrind, which has to be installed")?;
        Ok(Self { server, home, counts: Cell::new(0) })
    }

    pub(crate) const fn server(&self) -> &Server {
        &self.server
    }

    /// The instructions since the latest call.
    pub(crate) fn count(&self) -> Result<f64> {
        // An unknown version of its art is answered with that of the server alone.
        self.server.command(&["LOLWUT", "VERSION", "1"]);
        self.counts.set(self.counts.get() + 1);
        let dump = self.home.path().join(format!("{OUT}.{}", self.counts.get()));
        let text = fs::read_to_string(dump).context("callgrind has written nothing")?;
        let sum = text.lines().find_map(|line| line.strip_prefix("totals:"));
        Ok(sum.context("callgrind has written no sum")?.trim().parse()?)
    }
}

const OUT: &str = "callgrind";

/// Counts every operation.
pub(crate) async fn measure(progress: &ProgressBar) -> Result<Table> {
    let counted = CountedServer::start()?;
    let mut rows = vec![(FIXED_WORK.to_owned(), fixed_work(&counted)?)];
    for &measured in Measured::value_variants() {
        let mut row = Vec::new();
        for (batch, rounds) in BATCHES {
            let batch = batch.min(measured.largest_batch());
            progress.set_message(format!("{measured:?}, batches of {batch}"));
            let spent = spent(&counted, measured, batch, rounds).await?;
            row.push(spent / number(rounds * batch) / 1e3);
        }
        rows.push((format!("{measured:?}"), row));
    }
    Ok(Table {
        name: "instructions",
        title: "Server instructions per message",
        unit: "1,000 instructions",
        columns: BATCHES.map(|(batch, _)| format!("batch {batch}")).to_vec(),
        rows,
        columns_are: Columns::Cases,
        wide: true,
        note: "Counted by callgrind, messages of 100 bytes, over redis-rs. `Stats` and `Forecast` \
               are one call in both columns. The first row is a script that has nothing to do with \
               Delayline: figures of two machines can be compared if it costs the same on both.",
    })
}

/// The instructions of the server for an operation that is applied many times.
async fn spent(
    counted: &CountedServer,
    measured: Measured,
    batch: usize,
    rounds: usize,
) -> Result<f64> {
    counted.server().command(&["FLUSHALL"]);
    let queue = Arc::clone(DRIVERS[0].open(counted.server()).await?.backend());
    // The first call loads the script, which must not be measured.
    let first = measured.prepare(&*queue, batch).await;
    apply(&*queue, &first).await;
    let mut ops = Vec::with_capacity(rounds);
    for _ in 0..rounds {
        ops.push(measured.prepare(&*queue, batch).await);
    }
    counted.count()?;
    for op in &ops {
        apply(&*queue, op).await;
    }
    counted.count()
}

const FIXED_WORK: &str = "Fixed work";

/// What a script costs that does about as much as an operation.
fn fixed_work(counted: &CountedServer) -> Result<Vec<f64>> {
    const SCRIPT: &str = "for i = 1, ARGV[1] do
        local n = redis.call('INCR', 'n')
        redis.call('HSET', 'h', 'field-' .. n, struct.pack('>I8', n) .. string.rep('x', 100))
        redis.call('ZADD', 'z', n * 1000, 'member-' .. n)
    end";
    counted.server().command(&["EVAL", SCRIPT, "0", "1"]);
    let figure = |(batch, rounds): (usize, usize)| {
        counted.count()?;
        for _ in 0..rounds {
            counted.server().command(&["EVAL", SCRIPT, "0", &batch.to_string()]);
        }
        Ok(counted.count()? / number(rounds * batch) / 1e3)
    };
    BATCHES.into_iter().map(figure).collect()
}

/// Compares every operation with the figures in a directory. Fails if one costs more. Figures of
/// another processor or server are not compared: the same program takes other paths there.
pub(crate) async fn compare(
    directory: &Path,
    circumstances: &str,
    progress: &ProgressBar,
) -> Result<()> {
    let figures = fs::read_to_string(directory.join(crate::FIGURES))
        .with_context(|| format!("reading the figures in {}", directory.display()))?;
    let figures: Value = serde_json::from_str(&figures)?;
    let before = figures["circumstances"].as_str().context("there are no circumstances")?;
    for (here, there) in circumstances.lines().zip(before.lines()).take(2) {
        // The number of cores does not change what one of them runs.
        let [here, there] =
            [here, there].map(|it| it.split_once(" cores of ").unwrap_or(("", it)).1);
        if here != there {
            println!("not compared: the figures are of {there}, and this is {here}");
            return Ok(());
        }
    }
    let rows = figures["tables"][0]["rows"].as_array().context("there are no rows")?;
    let table = measure(progress).await?;
    let mut changes = Vec::new();
    for (name, now) in &table.rows {
        let row = rows.iter().find(|row| row["name"] == name.as_str());
        let row = row.with_context(|| format!("there is no row {name}"))?;
        for (n, now) in now.iter().enumerate() {
            let before = row["figures"][n].as_f64().with_context(|| format!("a row {name}"))?;
            changes.push((format!("{name}, {}", table.columns[n]), now / before - 1.0));
        }
    }
    progress.suspend(|| println!("{table}"));
    let (fixed, changes) = changes.split_at(BATCHES.len());
    if let Some((_, change)) = fixed.iter().find(|(_, change)| change.abs() > SAME_MACHINE) {
        println!(
            "not compared: fixed work costs {:+.1} % here, so the server or the processor is \
             another one",
            change * 100.0
        );
        return Ok(());
    }
    let dearer: Vec<_> = changes.iter().filter(|(_, change)| *change > ALLOWED).collect();
    for (name, change) in &dearer {
        println!("{name}: {:+.1} %", change * 100.0);
    }
    if !dearer.is_empty() {
        bail!(
            "{} of {} figures have grown by more than {:.0} %; if that is worth it, `cargo xtask \
             bench instructions --save {}` accepts them",
            dearer.len(),
            changes.len(),
            ALLOWED * 100.0,
            directory.display()
        );
    }
    let (count, percent) = (changes.len(), ALLOWED * 100.0);
    println!("{count} figures compared, none has grown by more than {percent:.0} %");
    Ok(())
}

/// The growth of a figure that is no regression: more than two runs differ by.
const ALLOWED: f64 = 0.02;
/// How much two runs of fixed work differ at most on machines of a kind.
const SAME_MACHINE: f64 = 0.01;
