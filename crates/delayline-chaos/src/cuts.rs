//! A queue after the end of the append-only file is lost: whole operations, and no part of another.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use delayline_core::{
    At, Backend, Check, List, Millis, Op, QueueName, Reply, Resolution, State, Status, limits,
};
use delayline_redis::RedisTransport;
use delayline_redis_protocol::{ConnectOptions, ScriptBackend};
use delayline_test_server::Server;
use delayline_testkit::Call;
use tokio::task::spawn_blocking;

use crate::load::{self, Improvised, Queue};
use crate::log::Setting;
use crate::replay::{Account, replay};
use crate::witness::{AppendOnlyFile, Transaction, transactions};

/// What the cuts met.
#[derive(Debug, Default)]
pub(crate) struct Cuts {
    pub(crate) all: usize,
    /// How many were in the middle of an operation.
    pub(crate) within: usize,
}

/// Writes a history, and reads it back repeatedly, each time cut off at another byte: at every byte
/// of the last operations, and one time in four anywhere.
///
/// # Errors
///
/// A server restarted with something else than a prefix of the history.
pub(crate) async fn play(seed: u64, count: usize) -> Result<Cuts> {
    let mut chance = fastrand::Rng::with_seed(seed);
    let setting = Setting::new(false);
    let writer = server().await?;
    let options = || load::options(&writer.url(), PATIENCE);
    let (options, names) = ([options()?, options()?], ["improvised".to_owned()]);
    let queues = load::open(options, &setting, &names, &mut chance).await?;
    let improvisers = Improvised::start(&queues[0], &mut chance);
    while queues[0].log.answered() < OPERATIONS {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    improvisers.stop().await;
    let written = AppendOnlyFile::in_directory(writer.data_dir())?;
    writer.stop_gracefully();
    let history = History::read(&queues[0], &written)?;

    let reader = server().await?;
    let read = AppendOnlyFile::in_directory(reader.data_dir())?;
    let mut cuts = Cuts::default();
    for n in 0..count {
        let whole = history.file.len();
        let length =
            if n % 4 == 3 { chance.usize(..whole) } else { whole.saturating_sub(n - n / 4) };
        let kill = Arc::clone(&reader);
        spawn_blocking(move || kill.kill()).await?;
        std::fs::write(&read.path, &history.file[..length])?;
        let start = Arc::clone(&reader);
        spawn_blocking(move || start.restart()).await?;
        history.compare(&reader, length).await.with_context(|| format!("cut to {length} bytes"))?;
        cuts.all += 1;
        cuts.within += usize::from(history.is_within(length));
    }
    Ok(cuts)
}

async fn server() -> Result<Arc<Server>> {
    let start = || Server::builder().append_only("always").try_start();
    Ok(Arc::new(spawn_blocking(start).await??))
}

/// A queue's history as the server wrote it down.
struct History {
    name: QueueName,
    file: Vec<u8>,
    transactions: Vec<Transaction>,
    order: Vec<Call>,
}

impl History {
    fn read(queue: &Queue, file: &AppendOnlyFile) -> Result<Self> {
        let file = file.read()?;
        let transactions = transactions(&file, &queue.control_key())?;
        let account = Account { file, transactions, era_ends: Vec::new() };
        let order = replay(&queue.log.entries(), &account).map_err(anyhow::Error::msg)?.order;
        let Account { file, transactions, .. } = account;
        Ok(Self { name: queue.name.clone(), file, transactions, order })
    }

    /// Whether a file of that length ends in the middle of an operation.
    fn is_within(&self, length: usize) -> bool {
        self.transactions.iter().any(|one| one.place.start < length && length < one.place.end)
    }

    /// Compares the server's queue with the model after the operations that the file has wholly.
    async fn compare(&self, server: &Server, length: usize) -> Result<()> {
        let whole = self.transactions.iter().take_while(|one| one.place.end <= length);
        let revision = whole.last().map_or(0, |one| one.control.revision);
        let mut model = State::new();
        for call in self.order.iter().take_while(|call| call.applied.revision <= revision) {
            model.apply(call.applied.at, &call.op);
        }
        let now = self.order.last().context("the history is empty")?.applied.at;
        let options: ConnectOptions = server.url().parse()?;
        let transport = Arc::new(RedisTransport::connect(&options).await?);
        let queue = ScriptBackend::open(transport, self.name.clone(), false).await?;
        let limit = limits::MAX_PAGE;
        let list = |status| Op::List(List::new(status, limit));
        let looks = [
            Op::Stats,
            Op::Forecast([1, 60_000].map(Millis::saturating).to_vec()),
            Op::History(Resolution::Minutes),
            list(Status::Scheduled),
            list(Status::Ready),
            list(Status::Leased),
            list(Status::Dead),
            Op::Check(Check::new(limit)),
        ];
        for look in looks {
            let found = queue.apply(At::Fixed(now), &look).await?;
            let expected = model.apply(now, &look);
            ensure!(found == expected, "G3: {look:?} finds {found:?} instead of {expected:?}");
            // The audit sees what stands nowhere else.
            if let Reply::Check(checked) = found.reply {
                ensure!(checked.findings.is_empty(), "G3: the audit finds {:?}", checked.findings);
            }
        }
        Ok(())
    }
}

const PATIENCE: Duration = Duration::from_secs(10);
/// How many operations the history has at the least.
const OPERATIONS: usize = 600;
