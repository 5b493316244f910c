//! What groups cost the server, and how evenly they take turns.

use std::collections::HashMap;
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, Result, bail, ensure};
use delayline::admin::SetLimits;
use delayline::backend::QueueBackend;
use delayline::codec::Raw;
use delayline::{Bytes, Job, Queue, Worker};
use delayline_benches::{ack, claim, cpu_time, deliveries, enqueue, payload};
use delayline_core::{At, Delivery, Group, Op, Reply};
use delayline_test_server::Server;
use indicatif::ProgressBar;
use tokio::sync::mpsc::unbounded_channel;
use tokio::time::{MissedTickBehavior, interval, timeout_at};

use crate::instructions::CountedServer;
use crate::lateness::{Late, QUANTILES, quantiles};
use crate::table::{Columns, Table, number, spread};
use crate::transport::DRIVERS;

const BATCHES: [usize; 3] = [1, 10, 100];
const SEND_BATCH: usize = 1_000;
const ROUNDS: usize = 5;
/// Deliveries over which Jain's index is computed.
const WINDOW: usize = 500;
const QUIET: usize = 49;
/// The messages that a worker handles in a second.
const HANDLED: u64 = 100;
/// Until the flood is in its lane.
const SETTLED: Duration = Duration::from_secs(10);

/// The groups of messages, and whether all are sent before the first claim.
#[derive(Clone, Copy)]
struct Case {
    name: &'static str,
    /// 0: no message has a group.
    groups: usize,
    each_group: Option<u32>,
    has_backlog: bool,
}

impl Case {
    const fn without_groups(self) -> Self {
        Self { groups: 0, each_group: None, ..self }
    }
}

const CASES: [Case; 4] = [
    Case { name: "50 groups, no backlog", groups: 50, each_group: None, has_backlog: false },
    Case { name: "50 groups, backlog", groups: 50, each_group: None, has_backlog: true },
    Case { name: "1,000 groups, backlog", groups: 1_000, each_group: None, has_backlog: true },
    Case {
        name: "50 groups, 10 each, backlog",
        groups: 50,
        each_group: Some(10),
        has_backlog: true,
    },
];

pub(crate) async fn measure(
    messages: usize,
    flood: usize,
    progress: &ProgressBar,
) -> Result<Vec<Table>> {
    let tables = [
        instructions(messages, progress).await?,
        cost(messages, progress).await?,
        memory(messages, progress).await?,
        turns(messages, progress).await?,
        quiet(flood, progress).await?,
    ];
    Ok(tables.into())
}

/// The server's instructions for the whole life of a message.
async fn instructions(messages: usize, progress: &ProgressBar) -> Result<Table> {
    let mut rows: Vec<_> = CASES.iter().map(|case| (case.name.to_owned(), Vec::new())).collect();
    for batch in BATCHES {
        let messages = (messages / 4).min(batch * 2_000).next_multiple_of(SEND_BATCH);
        let each = async |case: Case| {
            progress.set_message(format!("instructions of {}, batches of {batch}", case.name));
            let counted = CountedServer::start()?;
            // The first batch loads the scripts.
            lives(counted.server(), case, batch, 0).await?;
            counted.count()?;
            lives(counted.server(), case, batch, messages).await?;
            anyhow::Ok(counted.count()? / number(messages))
        };
        for (case, (_, figures)) in CASES.into_iter().zip(&mut rows) {
            figures.push(each(case).await? / each(case.without_groups()).await?);
        }
    }
    Ok(Table {
        name: "groups-instructions",
        title: "Server instructions for a message with a group",
        unit: "ratio to one without",
        columns: BATCHES.map(|batch| format!("batch {batch}")).to_vec(),
        rows,
        columns_are: Columns::Cases,
        wide: false,
        note: "Enqueue, claim and ack together, counted by callgrind. With a backlog, all messages \
               are sent before the first claim.",
    })
}

/// The server's processor time for the same.
async fn cost(messages: usize, progress: &ProgressBar) -> Result<Table> {
    let mut rows: Vec<_> = CASES.iter().map(|case| (case.name.to_owned(), Vec::new())).collect();
    for batch in BATCHES {
        // Small batches take long.
        let messages = (messages / 2).min(batch * 5_000).next_multiple_of(SEND_BATCH);
        for (case, (_, figures)) in CASES.iter().zip(&mut rows) {
            progress.set_message(format!("{}, batches of {batch}", case.name));
            let mut ratios = Vec::new();
            for _ in 0..ROUNDS {
                let without = life(case.without_groups(), batch, messages).await?;
                ratios.push(life(*case, batch, messages).await? / without);
            }
            figures.extend(spread(ratios));
        }
    }
    let columns = BATCHES
        .map(|batch| ["least", "median", "most"].map(|which| format!("batch {batch}, {which}")));
    Ok(Table {
        name: "groups-cost",
        title: "Server processor time of a message with a group",
        unit: "ratio to one without",
        columns: columns.concat(),
        rows,
        columns_are: Columns::Spreads,
        wide: false,
        note: "The same in five rounds, each next to one without groups.",
    })
}

/// Microseconds per message.
async fn life(case: Case, batch: usize, messages: usize) -> Result<f64> {
    let server = DRIVERS[0].start()?;
    lives(&server, case, batch, 0).await?;
    let before = cpu_time(&server);
    lives(&server, case, batch, messages).await?;
    let spent = cpu_time(&server).saturating_sub(before).as_secs_f64();
    Ok(spent * 1e6 / number(messages))
}

/// The lives of one batch, and of these messages.
async fn lives(server: &Server, case: Case, batch: usize, messages: usize) -> Result<()> {
    let queue = DRIVERS[0].open(server).await?;
    if let Some(most) = case.each_group {
        queue.set_limits(SetLimits::new().each_group(most)).await?;
    }
    let group = |n: usize| n.checked_rem(case.groups);
    live(&**queue.backend(), group, false, batch, batch).await?;
    live(&**queue.backend(), group, case.has_backlog, batch, messages).await
}

/// Sends, claims and acks messages in batches; with a backlog, claims begin when all are sent.
async fn live(
    queue: &dyn QueueBackend,
    group: impl Fn(usize) -> Option<usize>,
    has_backlog: bool,
    batch: usize,
    messages: usize,
) -> Result<()> {
    let step = if has_backlog { messages.max(1) } else { batch };
    for first in (0..messages).step_by(step) {
        for first in (first..first + step).step_by(batch) {
            send(queue, (first..first + batch).map(&group)).await?;
        }
        let mut handled = 0;
        while handled < step {
            handled += settle(queue, batch).await?;
        }
    }
    Ok(())
}

/// Bytes of a message in the server.
async fn memory(messages: usize, progress: &ProgressBar) -> Result<Table> {
    progress.set_message("memory of messages with groups");
    let used = |server: &Server| anyhow::Ok(server.info("memory", "used_memory").parse::<f64>()?);
    let mut rows = Vec::new();
    for (name, groups) in [("no group", 0), ("50 groups, each limited", 50)] {
        let server = DRIVERS[0].start()?;
        let queue = DRIVERS[0].open(&server).await?;
        if groups > 0 {
            queue.set_limits(SetLimits::new().each_group(u32::try_from(messages)?)).await?;
        }
        let messages = messages.next_multiple_of(SEND_BATCH);
        let empty = used(&server)?;
        for first in (0..messages).step_by(SEND_BATCH) {
            let group = |n: usize| n.checked_rem(groups);
            send(&**queue.backend(), (first..first + SEND_BATCH).map(group)).await?;
        }
        let waiting = (used(&server)? - empty) / number(messages);
        for _ in (0..messages).step_by(100) {
            queue.backend().apply(At::Server, &claim(100)).await?;
        }
        let leased = (used(&server)? - empty) / number(messages);
        rows.push((name.to_owned(), vec![waiting, leased]));
    }
    Ok(Table {
        name: "groups-memory",
        title: "Server memory of a message with a group",
        unit: "bytes",
        columns: ["waiting", "leased"].map(str::to_owned).to_vec(),
        rows,
        columns_are: Columns::Cases,
        wide: false,
        note: "With a payload of 100 bytes, due when it is sent.",
    })
}

/// How evenly groups are delivered of which one has as many messages as all others.
async fn turns(messages: usize, progress: &ProgressBar) -> Result<Table> {
    progress.set_message("turns of groups");
    let (groups, mut rows) = (50, Vec::new());
    for batch in BATCHES {
        let server = DRIVERS[0].start()?;
        let queue = DRIVERS[0].open(&server).await?;
        let each = (messages / 100).max(WINDOW);
        let flood = vec![0; each * groups];
        let others = (1..groups).flat_map(|group| vec![group; each]);
        let all: Vec<_> = flood.into_iter().chain(others).collect();
        for groups in all.chunks(SEND_BATCH) {
            send(&**queue.backend(), groups.iter().copied().map(Some)).await?;
        }
        // A worker sorts between its claims what is due.
        while let Reply::Claim(sorted) = queue.backend().apply(At::Server, &claim(0)).await?.reply
            && sorted.unsorted
        {}
        // Until the quiet groups have few left.
        let mut delivered = Vec::new();
        while delivered.len() < each * groups / 2 {
            let claimed = queue.backend().apply(At::Server, &claim(batch)).await?.reply;
            let group = |it: &Delivery| it.message.info.group.clone();
            delivered.extend(deliveries(&claimed, batch).iter().filter_map(group));
        }
        let least = delivered.windows(WINDOW).step_by(WINDOW / 10).map(|it| jain(it, groups));
        let least = least.min_by(f64::total_cmp).context("nothing was delivered")?;
        rows.push((format!("batches of {batch}"), vec![least]));
    }
    Ok(Table {
        name: "groups-turns",
        title: "Fairness of turns",
        unit: "Jain's index",
        columns: vec!["least".to_owned()],
        rows,
        columns_are: Columns::Cases,
        wide: false,
        note: "Of 50 groups with a backlog, one has sent half of all messages, and before the \
               others. The least index over any 500 deliveries one after the other, once all \
               messages wait for their turns; 1 means that every group has as many.",
    })
}

/// Jain's index of the deliveries of `groups` groups.
fn jain(delivered: &[Group], groups: usize) -> f64 {
    let mut counts = HashMap::<_, usize>::new();
    for group in delivered {
        *counts.entry(group).or_default() += 1;
    }
    let sum: f64 = counts.values().map(|count| number(*count)).sum();
    let squares: f64 = counts.values().map(|count| number(*count).powi(2)).sum();
    sum * sum / (number(groups) * squares)
}

/// How late tenants with a message a second are, while one has very many due at once.
async fn quiet(flood: usize, progress: &ProgressBar) -> Result<Table> {
    let (mut rows, mut samples) = (Vec::new(), Vec::new());
    for in_advance in [true, false] {
        let name = if in_advance { "scheduled for one instant" } else { "sent when due" };
        progress.set_message(format!("a flood of {flood}, {name}"));
        let server = DRIVERS[0].start()?;
        let queue = DRIVERS[0].open(&server).await?;
        let late = beside_flood(&queue, flood, in_advance).await?;
        samples.push(late.len());
        rows.push((name.to_owned(), quantiles(&late)));
    }
    Ok(Table {
        name: "groups-quiet",
        title: "Lateness of quiet tenants during a flood",
        unit: "ms",
        columns: QUANTILES.map(|(quantile, _)| quantile.to_owned()).to_vec(),
        rows,
        columns_are: Columns::Percentiles(samples),
        wide: false,
        note: "One tenant has a million messages due; 49 others send a message a second. One \
               worker handles 100 messages a second, one after the other. From the due time to the \
               start of the handler, from 10 s after the flood on, for 20 s.",
    })
}

async fn beside_flood(queue: &Queue<Bytes, Raw>, flood: usize, in_advance: bool) -> Result<Late> {
    // Sending takes some 10 us a message.
    let lead = Duration::from_secs(5 + u64::try_from(flood / 50_000)?);
    let due = SystemTime::now() + lead;
    for first in (0..flood).step_by(SEND_BATCH) {
        let payload = payload();
        let draft = |n: usize| queue.message(&payload).id(format!("flood-{n}")).group("flood");
        let drafts = (first..(first + SEND_BATCH).min(flood)).map(draft);
        let drafts = drafts.map(|it| if in_advance { it.due_at(due) } else { it });
        queue.send_many(drafts).await.into_iter().collect::<Result<Vec<_>, _>>()?;
    }
    let (report, mut handled) = unbounded_channel();
    let worker = Worker::builder(queue.clone()).concurrency(1).build()?;
    let handle = worker.handle();
    let running = tokio::spawn(worker.run(move |job: Job<Bytes>| {
        let is_quiet = job.group().is_some_and(|group| group.as_str() != "flood");
        // The receiver is dropped at the end.
        let _ = report.send((is_quiet, SystemTime::now().duration_since(job.due().into()).ok()));
        async {
            tokio::time::sleep(Duration::from_secs(1) / u32::try_from(HANDLED).unwrap_or(1)).await;
            Ok::<(), &str>(())
        }
    }));
    let begin = SystemTime::now().max(if in_advance { due } else { SystemTime::UNIX_EPOCH });
    let begin = begin.duration_since(SystemTime::now()).unwrap_or_default();
    let begin = tokio::time::Instant::now() + begin + SETTLED;
    let end = begin + 2 * SETTLED;
    let sending = tokio::spawn(send_quiet(queue.clone(), end));
    let mut late = Late::new(3)?;
    while let Ok(Some((is_quiet, lateness))) = timeout_at(end, handled.recv()).await {
        let Some(lateness) = lateness else { bail!("a handler began early") };
        if is_quiet && tokio::time::Instant::now() >= begin {
            late.record(u64::try_from(lateness.as_micros())?)?;
        }
    }
    handle.stop(Duration::from_secs(1));
    running.await?;
    sending.await??;
    Ok(late)
}

/// Each quiet tenant sends a message a second, one tenant after the other.
async fn send_quiet(queue: Queue<Bytes, Raw>, end: tokio::time::Instant) -> Result<()> {
    let mut ticks = interval(Duration::from_secs(1) / u32::try_from(QUIET)?);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    for tenant in (0..QUIET).cycle() {
        ticks.tick().await;
        if tokio::time::Instant::now() >= end {
            break;
        }
        let sent = queue.message(&payload()).group(format!("quiet-{tenant}")).send().await?;
        ensure!(sent.is_accepted(), "{sent:?}");
    }
    Ok(())
}

/// Sends a batch whose messages have these groups.
async fn send(
    queue: &dyn QueueBackend,
    groups: impl ExactSizeIterator<Item = Option<usize>>,
) -> Result<()> {
    let Op::Enqueue(messages) = enqueue(groups.len()) else { bail!("it does not enqueue") };
    let grouped = messages.into_iter().zip(groups).map(|(message, group)| {
        let group = group.map(|group| Group::new(format!("tenant-{group}"))).transpose()?;
        anyhow::Ok(message.group(group))
    });
    queue.apply(At::Server, &Op::Enqueue(grouped.collect::<Result<_>>()?)).await?;
    Ok(())
}

/// Claims and acks a batch. Returns the number of its messages.
pub(crate) async fn settle(queue: &dyn QueueBackend, batch: usize) -> Result<usize> {
    let Reply::Claim(claimed) = queue.apply(At::Server, &claim(batch)).await?.reply else {
        bail!("a claim has another reply")
    };
    queue.apply(At::Server, &ack(&claimed.deliveries)).await?;
    Ok(claimed.deliveries.len())
}
