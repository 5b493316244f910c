//! What a message costs while one worker has very many queues.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use cpu_time::ProcessTime;
use delayline::codec::Raw;
use delayline::{Bytes, Connect, Job, Queue, Worker, Workers};
use delayline_benches::{cpu_time, payload};
use indicatif::ProgressBar;
use tokio::sync::Semaphore;

use crate::table::{Columns, Table, number};
use crate::transport::{DRIVERS, Transport};

/// How many queues one worker has.
const QUEUES: [usize; 3] = [10, 100, 1_000];
const HANDLERS: usize = 16;

pub(crate) async fn measure(messages: usize, progress: &ProgressBar) -> Result<Table> {
    let mut rows = Vec::new();
    for transport in DRIVERS {
        let name = transport.driver_name();
        let (mut backlog, mut lone) = (Vec::new(), Vec::new());
        for queues in QUEUES {
            progress.set_message(format!("{queues} queues, {name}"));
            let [of_backlog, of_lone] = rates_over(transport, queues, messages).await?;
            backlog.push(of_backlog);
            lone.push(of_lone);
        }
        rows.push((format!("{name}, backlog"), backlog));
        rows.push((format!("{name}, lone"), lone));
    }
    Ok(Table {
        name: "many-queues",
        title: "Processor time per message with many queues",
        unit: "us/message",
        columns: QUEUES.map(|queues| format!("{queues} queues")).to_vec(),
        rows,
        columns_are: Columns::Cases,
        wide: false,
        note: "One `Workers` with 16 handlers; client and server together, including sending. A \
               backlog spread evenly over all queues; and lone messages, each sent to the next \
               queue once the previous one was handled.",
    })
}

async fn rates_over(transport: Transport, count: usize, messages: usize) -> Result<[f64; 2]> {
    let server = transport.start()?;
    let connection = Connect::new(&server.url())?.client(transport.driver).connect().await?;
    let mut queues: Vec<Queue<Bytes, Raw>> = Vec::new();
    for n in 0..count {
        let name = format!("bench-{n}");
        queues.push(connection.queue(&name).await?.codec(Raw));
    }
    let handled = Arc::new(Semaphore::new(0));
    let mut workers = Workers::sharing(HANDLERS)?;
    for queue in &queues {
        let handled = Arc::clone(&handled);
        workers = workers.add(1, Worker::builder(queue.clone()), move |_: Job<Bytes>| {
            handled.add_permits(1);
            async { Ok::<(), &str>(()) }
        })?;
    }
    let spent = || ProcessTime::now().as_duration() + cpu_time(&server);
    let each = messages.div_ceil(count);
    let before = spent();
    for queue in &queues {
        let drafts = (0..each).map(|_| queue.message(&payload()));
        for sent in queue.send_many(drafts).await {
            let _created = sent?;
        }
    }
    let handle = workers.handle();
    let working = tokio::spawn(workers.run());
    let all = u32::try_from(each * count).context("too many messages")?;
    handled.acquire_many(all).await?.forget();
    let backlog = us(spent().saturating_sub(before), each * count);

    let lone = (messages / 20).max(count);
    let before = spent();
    for queue in queues.iter().cycle().take(lone) {
        queue.send(&payload()).await?;
        handled.acquire().await?.forget();
    }
    let lone = us(spent().saturating_sub(before), lone);
    handle.stop(Duration::from_secs(1));
    let summary = working.await?;
    ensure!(summary.unsettled == 0, "{summary:?}");
    Ok([backlog, lone])
}

fn us(spent: Duration, messages: usize) -> f64 {
    spent.as_secs_f64() * 1e6 / number(messages)
}
