//! Instructions of the server for each operation, which hardly depend on the load of a machine.

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use delayline_benches::{Measured, apply};
use delayline_test_server::Server;
use indicatif::ProgressBar;

use crate::table::{Columns, Table, number};
use crate::transport::DRIVERS;

const BATCHES: [usize; 2] = [1, 100];

/// Measures each operation: a server under cachegrind prepares and applies it many times, and
/// another one only prepares it.
pub(crate) async fn measure(messages: usize, progress: &ProgressBar) -> Result<Table> {
    let mut rows = Vec::new();
    for measured in Measured::ALL {
        let mut row = Vec::new();
        for batch in BATCHES {
            let batch = batch.min(measured.largest_batch());
            progress.set_message(format!("{measured:?}, batches of {batch}"));
            let rounds = messages.div_ceil(batch).max(2);
            let prepared = spent(measured, batch, rounds, false).await?;
            let applied = spent(measured, batch, rounds, true).await?;
            row.push((applied - prepared) / number(rounds * batch) / 1e3);
        }
        rows.push((format!("{measured:?}"), row));
    }
    Ok(Table {
        name: "instructions",
        title: "Server instructions per message",
        unit: "1,000 instructions",
        columns: BATCHES.map(|batch| format!("batch {batch}")).to_vec(),
        rows,
        columns_are: Columns::Cases,
        wide: true,
        note: "Counted by cachegrind, messages of 100 bytes, over redis-rs. `Stats` and `Forecast` \
               are one call in both columns.",
    })
}

/// The instructions of a server that prepares the operation many times, and perhaps applies it.
async fn spent(measured: Measured, batch: usize, rounds: usize, applies: bool) -> Result<f64> {
    of_server(async |server| {
        let queue = Arc::clone(DRIVERS[0].open(server).await?.backend());
        // The first call loads the script, which must not be measured.
        let first = measured.prepare(&*queue, batch).await;
        apply(&*queue, &first).await;
        let mut ops = Vec::with_capacity(rounds);
        for _ in 0..rounds {
            ops.push(measured.prepare(&*queue, batch).await);
        }
        if applies {
            for op in &ops {
                apply(&*queue, op).await;
            }
        }
        Ok(())
    })
    .await
}

/// The instructions of a server's whole life, in which a program works with it.
pub(crate) async fn of_server(work: impl AsyncFnOnce(&Server) -> Result<()>) -> Result<f64> {
    let home = tempfile::tempdir()?;
    let file = home.path().join("cachegrind");
    let mut out = OsString::from("--cachegrind-out-file=");
    out.push(&file);
    let valgrind = ["valgrind", "--quiet", "--tool=cachegrind", "--cache-sim=no"];
    let mut runner: Vec<OsString> = valgrind.into_iter().map(OsString::from).collect();
    runner.push(out);
    let server = Server::builder().runner(&runner).config("hz", "1").config("dynamic-hz", "no");
    let server =
        server.try_start().context("running a server under valgrind, which has to be installed")?;
    work(&server).await?;
    server.stop_gracefully();
    instructions(&file)
}

/// The sum at the end of what cachegrind has written.
fn instructions(file: &Path) -> Result<f64> {
    let text = fs::read_to_string(file).context("cachegrind has written nothing")?;
    let sum = text.lines().find_map(|line| line.strip_prefix("summary:"));
    let sum: f64 = sum.context("cachegrind has written no sum")?.trim().parse()?;
    ensure!(sum > 0.0, "cachegrind has counted nothing");
    Ok(sum)
}
