//! How late recurring messages are handled, and what their schedules cost.

use std::time::{Duration, SystemTime};

use anyhow::{Context as _, Result, ensure};
use delayline::codec::Raw;
use delayline::schedules::{Schedules, Spec};
use delayline::{Bytes, Connect, Connection, Queue};
use delayline_benches::Requests;
use indicatif::ProgressBar;
use tokio::time::{Instant, sleep, timeout};

use crate::lateness::{Bench, Late, QUANTILES, quantiles};
use crate::table::{Columns, Table, spread};
use crate::transport::{DRIVERS, Transport};

/// How many schedules have their instants at the same time.
const AT_ONCE: usize = 20;
const INTERVAL: Duration = Duration::from_secs(1);
/// How many schedules an owner declares again.
const DECLARED: usize = 1_000;
const ROUNDS: usize = 20;
/// How many schedules wait while nothing is due.
const WAITING: usize = 10_000;
const SETTLING: Duration = Duration::from_secs(5);
const IDLE: Duration = Duration::from_secs(30);

pub(crate) async fn measure(messages: usize, progress: &ProgressBar) -> Result<Vec<Table>> {
    let (mut late, mut declared, mut idle) = (Vec::new(), Vec::new(), Vec::new());
    let ticks = (messages / 1_000).max(10);
    for transport in DRIVERS {
        let name = transport.driver_name();
        for (lead, row) in [(INTERVAL * 30, "created ahead"), (Duration::ZERO, "without a lead")] {
            progress.set_message(format!("schedules of {name}, {row}"));
            late.push((format!("{name}, {row}"), lateness(transport, lead, ticks).await?));
        }
        progress.set_message(format!("declaring schedules, {name}"));
        declared.push((name.to_owned(), declaring(transport).await?));
        progress.set_message(format!("an idle scheduler, {name}"));
        let none = commands(transport, 0).await?;
        idle.push((name.to_owned(), vec![none, commands(transport, WAITING).await?]));
    }
    Ok(vec![lateness_table(late), declare_table(declared), idle_table(idle)])
}

fn lateness_table(measured: Vec<(String, Late)>) -> Table {
    Table {
        name: "schedules-lateness",
        title: "Lateness of 20 schedules with one instant",
        unit: "ms",
        columns: QUANTILES.map(|(quantile, _)| quantile.to_owned()).to_vec(),
        columns_are: Columns::Percentiles(measured.iter().map(|(_, late)| late.len()).collect()),
        rows: measured.into_iter().map(|(row, late)| (row, quantiles(&late))).collect(),
        wide: false,
        note: "From the instant, by the server's clock, to the start of the handler. An idle \
               server, one scheduler and one worker in one process; an instant every second. \
               Without a lead, a message is created at its instant.",
    }
}

fn declare_table(rows: Vec<(String, Vec<f64>)>) -> Table {
    Table {
        name: "schedules-declare",
        title: "Declaring 1,000 schedules",
        unit: "ms",
        columns: ["new", "unchanged, median", "unchanged, max"].map(str::to_owned).to_vec(),
        rows,
        columns_are: Columns::Cases,
        wide: false,
        note: "One call of `Schedules::declare`: once with new schedules, then 20 times with the \
               same ones.",
    }
}

fn idle_table(rows: Vec<(String, Vec<f64>)>) -> Table {
    Table {
        name: "schedules-idle",
        title: "Commands per second of an idle scheduler",
        unit: "commands/s",
        columns: ["no schedules", "10,000 schedules"].map(str::to_owned).to_vec(),
        rows,
        columns_are: Columns::Cases,
        wide: false,
        note: "No schedule is due. What an idle worker sends: claims of the safety poll, and waits \
               for hints.",
    }
}

async fn open(transport: Transport, url: &str) -> Result<(Connection, Schedules)> {
    let connection = Connect::new(url)?.client(transport.driver).connect().await?;
    let schedules = Schedules::open(&connection).await?;
    Ok((connection, schedules))
}

/// How late the messages of all schedules were, of a number of instants.
async fn lateness(transport: Transport, lead: Duration, ticks: usize) -> Result<Late> {
    let server = transport.start()?;
    let (connection, schedules) = open(transport, &server.url()).await?;
    let queue: Queue<Bytes, Raw> = connection.queue("work").await?.codec(Raw);
    let mut bench = Bench::start(&queue)?;
    let scheduler = schedules.worker().build()?;
    tokio::spawn(scheduler.run(schedules.handler()));
    for number in 0..AT_ONCE {
        let spec = Spec::every(INTERVAL, "work")?.lead(lead)?;
        schedules.put(&format!("schedule-{number}"), &spec).await?;
    }
    let mut late = Late::new(3)?;
    // The messages of the first instants are created while schedules are still being put.
    let warm_up = AT_ONCE * 3;
    for number in 0..AT_ONCE * ticks + warm_up {
        if number == warm_up {
            late.reset();
        }
        let next = timeout(INTERVAL * 10, bench.next(&mut late)).await;
        next.context("a message is missing")??;
    }
    Ok(late)
}

async fn declaring(transport: Transport) -> Result<Vec<f64>> {
    let server = transport.start()?;
    let (_connection, schedules) = open(transport, &server.url()).await?;
    let mut times = Vec::new();
    for round in 0..=ROUNDS {
        let all = far(DECLARED)?;
        let start = Instant::now();
        let declared = schedules.declare("owner", all).await?;
        times.push(start.elapsed().as_secs_f64() * 1_000.0);
        let same = if round == 0 { declared.created } else { declared.unchanged };
        ensure!(same == DECLARED, "{declared:?}");
    }
    let new = times.remove(0);
    let [_, median, most] = spread(times);
    Ok(vec![new, median, most])
}

/// Commands per second of a scheduler with this many schedules, none of which is due.
async fn commands(transport: Transport, count: usize) -> Result<f64> {
    let server = transport.start()?;
    let (_connection, schedules) = open(transport, &server.url()).await?;
    schedules.declare("owner", far(count)?).await?;
    let scheduler = schedules.worker().build()?;
    let handle = scheduler.handle();
    let running = tokio::spawn(scheduler.run(schedules.handler()));
    sleep(SETTLING).await;
    let (start, before) = (Instant::now(), Requests::of(&server).sum());
    sleep(IDLE).await;
    let sent = Requests::of(&server).sum() - before;
    let rate = sent / start.elapsed().as_secs_f64();
    handle.stop(INTERVAL);
    ensure!(running.await?.snoozed == 0, "a schedule was due");
    Ok(rate)
}

/// Schedules whose next instant is days away.
fn far(count: usize) -> Result<Vec<(String, Spec)>> {
    let days = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?.as_secs() / 86_400;
    // Intervals are counted from 1970, so a fixed one would have an instant on some day.
    let interval =
        (200..366).find(|interval| days % interval > 1 && days % interval + 2 < *interval);
    let interval = Duration::from_secs(interval.context("no interval")? * 86_400);
    let spec = |number| Ok((format!("schedule-{number}"), Spec::every(interval, "work")?));
    (0..count).map(spec).collect()
}
