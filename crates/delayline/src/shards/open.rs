//! How a sharded queue is opened: the number of its shards is a message of the plain queue.

use std::sync::Arc;

use delayline_core::limits::{MAX_PAGE, MAX_SHARDS, MIN_SHARDS};
use delayline_core::{
    At, Backend as _, Check, Enqueued, Error as Fault, ErrorKind, FinishedIds, Found, List,
    MessageId, MessageInfo, MessageState, NewMessage, Op, QueueBackend, QueueName, Reply, Schedule,
    Stats, Status, Timestamp, Violation,
};
use futures_util::future::try_join_all;

use super::{Ids, Shard, Shards, place_of, unexpected};
use crate::Error;
use crate::store::Store;

/// An open queue, and what generates its ids.
pub(crate) struct Opened {
    pub(crate) backend: Arc<dyn QueueBackend>,
    pub(crate) ids: Ids,
    /// The same queue, if it has shards.
    pub(crate) shards: Option<Arc<Shards>>,
}

impl Opened {
    /// A queue without shards.
    pub(crate) fn plain(backend: Arc<dyn QueueBackend>) -> Self {
        Self { backend, ids: Ids::plain(), shards: None }
    }

    pub(super) fn sharded(shards: Shards) -> Self {
        let (ids, shards) = (Ids::of(shards.shards.len()), Arc::new(shards));
        Self { backend: Arc::clone(&shards) as _, ids, shards: Some(shards) }
    }
}

/// Opens the queue `name`: its shards, if it has some.
///
/// `requested` is the number of shards that it must have. If it has none yet, it gets that number.
///
/// # Errors
///
/// [`ErrorKind::OtherShards`] if it has another number, or holds messages without shards, and what
/// opening a queue fails with.
pub(crate) async fn open(
    store: &dyn Store,
    name: QueueName,
    requested: Option<u32>,
) -> Result<Opened, Error> {
    if let Some(actual) = requested.filter(|it| !(MIN_SHARDS..=MAX_SHARDS).contains(it)) {
        let (actual, least, most) = (actual.into(), MIN_SHARDS.into(), MAX_SHARDS.into());
        let what = "the number of shards";
        return Err(Violation::OutOfRange { what, actual, least, most }.into());
    }
    let plain = store.open(name.clone()).await?;
    let number = match (number_of(&plain).await?, requested) {
        (None, None) => return Ok(Opened::plain(plain)),
        (Some(found), requested) => agreed(found, requested.unwrap_or(found))?,
        (None, Some(requested)) => match found(store, &name, &plain, requested).await {
            Ok(()) => requested,
            // Another process may have been first.
            Err(error) => match number_of(&plain).await? {
                Some(found) => agreed(found, requested)?,
                None => return Err(error),
            },
        },
    };
    let shards = shards(store, &name, 0..number).await?;
    Ok(Opened::sharded(Shards::new(name, shards)))
}

/// Returns the number of shards of the queue `name`; `None` if it has none.
///
/// # Errors
///
/// If the plain queue cannot be opened or read, or its record is damaged or of a newer version.
pub(crate) async fn number(store: &dyn Store, name: &QueueName) -> Result<Option<u32>, Error> {
    number_of(&store.open(name.clone()).await?).await
}

/// Returns the names of the shards of a queue: none if it has none.
///
/// # Errors
///
/// Like [`number`].
pub(crate) async fn names(store: &dyn Store, name: &QueueName) -> Result<Vec<QueueName>, Error> {
    let number = number(store, name).await?.unwrap_or_default();
    Ok((0..number).map(|it| name.shard(it)).collect::<Result<_, _>>()?)
}

/// Counts the live messages that users of the queue do not see: those of the plain queue if it has
/// shards, and otherwise those of shards whose number is lost.
///
/// # Errors
///
/// Like [`number`], and those of the shards.
pub(crate) async fn strays(store: &dyn Store, name: &QueueName) -> Result<u64, Error> {
    let plain = store.open(name.clone()).await?;
    if number_of(&plain).await?.is_some() {
        // One is the record.
        return Ok(live(&stats(&plain).await?).saturating_sub(1));
    }
    // Names of sharded queues are shorter than others may be.
    if name.shard(MAX_SHARDS - 1).is_err() {
        return Ok(0);
    }
    let names = (0..MAX_SHARDS).map(|it| name.shard(it)).collect::<Result<Vec<_>, _>>()?;
    Ok(try_join_all(names.into_iter().map(|it| messages_in(store, it))).await?.into_iter().sum())
}

/// Counts the messages of a queue. A directory, which has a limited number of queues, does not get
/// the queue by this.
async fn messages_in(store: &dyn Store, name: QueueName) -> Result<u64, Error> {
    match store.held(name.clone()).await {
        // In memory.
        Err(error) if matches!(error.kind(), ErrorKind::Unsupported(_)) => {
            Ok(live(&stats(&store.open(name).await?).await?))
        }
        held => Ok(held?.messages),
    }
}

/// Returns the number of shards that the queue is stored with. A record that cannot be read, or
/// that a repair has replaced by a dead letter, is lost like one that is missing.
pub(super) async fn number_of(plain: &Arc<dyn QueueBackend>) -> Result<Option<u32>, Error> {
    let reply = plain.apply(At::Server, &Op::Get(vec![record_id()?])).await?.reply;
    let Reply::Get(found) = reply else { return Err(unexpected().into()) };
    match found.into_iter().next() {
        Some(Found::Live(record)) if is_record(&record.info) => match read(&record.payload) {
            Err(error)
                if *error.kind() == ErrorKind::Damaged
                    && matches!(record.info.state, MessageState::Dead { .. }) =>
            {
                Ok(None)
            }
            number => Ok(Some(number?)),
        },
        _ => Ok(None),
    }
}

/// Stores the number of shards of a queue that has none.
async fn found(
    store: &dyn Store,
    name: &QueueName,
    plain: &Arc<dyn QueueBackend>,
    requested: u32,
) -> Result<(), Error> {
    let mut count = live(&stats(plain).await?);
    let is_torn = count == 1 && number_of(plain).await?.is_none();
    if is_torn && listed(plain).await?.iter().all(is_record) {
        remove_torn_record(plain).await?;
        count = live(&stats(plain).await?);
    }
    if count > 0 {
        return Err(Fault::new(ErrorKind::OtherShards { found: 1, requested }).into());
    }
    // If the record was lost, the messages show whether this is the number.
    let all = (0..MAX_SHARDS).map(async |number| {
        let shard = name.shard(number)?;
        match messages_in(store, shard.clone()).await? {
            0 => Ok(()),
            _ => fits(&store.open(shard.clone()).await?, &shard, number, requested).await,
        }
    });
    try_join_all(all).await?;
    store_number(plain, requested).await
}

/// Stores the number of shards, unless another program has done so.
pub(super) async fn store_number(
    plain: &Arc<dyn QueueBackend>,
    requested: u32,
) -> Result<(), Error> {
    let record = NewMessage::new(record_id()?, format!("{VERSION}:{requested}"));
    // An earlier record may have been cancelled.
    let record = record.finished_ids(FinishedIds::Reuse).schedule(Schedule::At(Timestamp::MAX));
    let op = Op::Enqueue(vec![record]);
    let reply = plain.apply(At::Server, &op).await?.reply;
    let Reply::Enqueue(results) = reply else { return Err(unexpected().into()) };
    match results.first() {
        Some(Enqueued::Created { .. } | Enqueued::Duplicate { .. }) => Ok(()),
        _ => Err(unexpected().into()),
    }
}

fn agreed(found: u32, requested: u32) -> Result<u32, Fault> {
    if found == requested {
        Ok(found)
    } else {
        Err(Fault::new(ErrorKind::OtherShards { found, requested }))
    }
}

/// Removes the record, or the entry of a missing one, if it cannot be read. Repairs other entries,
/// and removes none of them.
async fn remove_torn_record(plain: &Arc<dyn QueueBackend>) -> Result<(), Error> {
    let mut after = None;
    // Such a record becomes a dead letter. The queue has one entry, so few pages are enough.
    for _ in 0..MAX_PAGE {
        let op = Op::Repair(Check::new(MAX_PAGE).after(after));
        let reply = plain.apply(At::Server, &op).await?.reply;
        let Reply::Repair(page) = reply else { return Err(unexpected().into()) };
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    if number_of(plain).await?.is_none() {
        plain.apply(At::Server, &Op::Purge(vec![record_id()?])).await?;
    }
    Ok(())
}

/// Checks that a shard has messages of this number of shards only.
async fn fits(
    shard: &Arc<dyn QueueBackend>,
    name: &QueueName,
    number: u32,
    requested: u32,
) -> Result<(), Error> {
    let [number, count] = [number, requested].map(|it| usize::try_from(it).unwrap_or(usize::MAX));
    let is_at_home = |info: &MessageInfo| place_of(info.group.as_ref(), &info.id, count) == number;
    if listed(shard).await?.iter().all(is_at_home) {
        return Ok(());
    }
    let lost = "the record of the number of shards is lost, and the messages of";
    Err(damaged(&format!("{lost} {name} need another number")).into())
}

/// Returns the first messages of each status.
async fn listed(backend: &Arc<dyn QueueBackend>) -> Result<Vec<MessageInfo>, Error> {
    let mut infos = Vec::new();
    for status in [Status::Scheduled, Status::Ready, Status::Leased, Status::Dead] {
        let op = Op::List(List::new(status, MAX_PAGE));
        let Reply::List(page) = backend.apply(At::Server, &op).await?.reply else {
            return Err(unexpected().into());
        };
        infos.extend(page.messages);
    }
    Ok(infos)
}

async fn shards(
    store: &dyn Store,
    name: &QueueName,
    numbers: std::ops::Range<u32>,
) -> Result<Vec<Shard>, Error> {
    let open = async |number| {
        let name = name.shard(number)?;
        let backend = store.open(name.clone()).await?;
        stats(&backend).await?;
        Ok::<_, Error>(Shard { backend, name })
    };
    try_join_all(numbers.map(open)).await
}

pub(super) async fn stats(backend: &Arc<dyn QueueBackend>) -> Result<Stats, Error> {
    match backend.apply(At::Server, &Op::Stats).await?.reply {
        Reply::Stats(stats) => Ok(*stats),
        _ => Err(unexpected().into()),
    }
}

pub(super) fn live(stats: &Stats) -> u64 {
    stats.scheduled + stats.ready + stats.leased + stats.dead
}

/// The content of the record: its version, and the number.
fn read(payload: &[u8]) -> Result<u32, Fault> {
    let text = std::str::from_utf8(payload).unwrap_or_default();
    let (version, number) = text.split_once(':').unwrap_or_default();
    match (version.parse(), number.parse()) {
        (Ok(VERSION), Ok(number)) if (MIN_SHARDS..=MAX_SHARDS).contains(&number) => Ok(number),
        (Ok(found), _) if found > VERSION => {
            Err(Fault::new(ErrorKind::NewerVersion { found, supported: VERSION }))
        }
        _ => Err(damaged("the record of the number of shards")),
    }
}

fn damaged(what: &str) -> Fault {
    Fault::with_detail(ErrorKind::Damaged, what)
}

/// Whether the message says how many shards there are. Earlier versions let producers send others
/// with this id.
pub(crate) fn is_record(info: &MessageInfo) -> bool {
    info.id.as_bytes() == MessageId::SHARDS.as_bytes()
        && info.due == Timestamp::MAX
        && info.group.is_none()
}

pub(super) fn record_id() -> Result<MessageId, Violation> {
    MessageId::try_from(MessageId::SHARDS)
}

/// The version of the record.
const VERSION: u64 = 1;
