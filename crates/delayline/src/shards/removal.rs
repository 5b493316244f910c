//! How a sharded queue is removed: its shards, one after the other, and then their number.

use std::sync::Arc;

use delayline_core::{
    At, Backend as _, Change, Limits, Op, QueueBackend, QueueName, Schedule, SetLimits, Stats,
};
use delayline_redis_protocol::Removal;
use futures_util::future::{join, join_all};

use super::open::{live, number_of, record_id, stats, store_number, strays};
use crate::Error;
use crate::store::Store;

/// A shard that is removed, and its state just before.
struct Shard {
    backend: Arc<dyn QueueBackend>,
    before: Stats,
}

/// How far a removal has come.
#[derive(Default)]
struct Progress {
    shards: Vec<Shard>,
    /// Whether the record of their number may be gone.
    is_record_gone: bool,
}

/// Removes a sharded queue, if it is empty. `None` if it has no shards. If messages arrive in its
/// shards meanwhile, the queue stays, and its shards get their pause and limits again.
///
/// # Errors
///
/// Those of its shards. The queue stays then, too, as far as its servers can be reached.
pub(crate) async fn delete_if_empty(
    store: &dyn Store,
    name: &QueueName,
) -> Result<Option<Removal>, Error> {
    let plain = store.open(name.clone()).await?;
    let Some(number) = number_of(&plain).await? else { return Ok(None) };
    // An empty shard must keep its pause, limits and finished ids as long as others hold anything.
    let mut sum = held_beside_record(store, name).await?;
    for shard in 0..number {
        add(&mut sum, store.held(name.shard(shard)?).await?);
    }
    if holds_any(sum) {
        return Ok(Some(sum));
    }
    let mut progress = Progress::default();
    let result = remove(store, name, &plain, number, &mut progress).await;
    if let Ok(sum) = result
        && !holds_any(sum)
    {
        return Ok(Some(sum));
    }
    let restored = restore(store, name, &plain, number, &progress).await;
    let sum = result?;
    restored.map(|()| Some(sum))
}

/// Removes the shards until one holds anything, and then the record.
async fn remove(
    store: &dyn Store,
    name: &QueueName,
    plain: &Arc<dyn QueueBackend>,
    number: u32,
    progress: &mut Progress,
) -> Result<Removal, Error> {
    let mut sum = Removal::default();
    for shard in 0..number {
        let name = name.shard(shard)?;
        let backend = store.open(name.clone()).await?;
        let before = stats(&backend).await?;
        progress.shards.push(Shard { backend, before });
        add(&mut sum, store.delete_if_empty(name).await?);
        if holds_any(sum) {
            return Ok(sum);
        }
    }
    add(&mut sum, held_beside_record(store, name).await?);
    if holds_any(sum) {
        return Ok(sum);
    }
    progress.is_record_gone = true;
    plain.apply(At::Server, &Op::Cancel(vec![record_id()?])).await?;
    add(&mut sum, store.delete_if_empty(name.clone()).await?);
    // Programs that have opened the queue may have sent to a shard since it was removed.
    sum.messages += strays(store, name).await?;
    Ok(sum)
}

/// Stores the number of shards again, and their pause and limits. Returns the first failure, after
/// all was tried.
async fn restore(
    store: &dyn Store,
    name: &QueueName,
    plain: &Arc<dyn QueueBackend>,
    number: u32,
    progress: &Progress,
) -> Result<(), Error> {
    if let Ok(None) = number_of(plain).await {
        // Another program has removed the queue.
        if !progress.is_record_gone {
            return Ok(());
        }
        // This is a plain queue by now, whose messages the record would hide.
        let has_messages = stats(plain).await.is_ok_and(|stats| live(&stats) > 0);
        if has_messages && strays(store, name).await.is_ok_and(|count| count == 0) {
            return Ok(());
        }
    }
    let record = async {
        match progress.is_record_gone {
            // Programs without a number would not see the shards' messages otherwise.
            true => store_number(plain, number).await,
            false => Ok(()),
        }
    };
    let (record, shards) = join(record, set_up(&progress.shards)).await;
    record.and(shards)
}

/// Returns what the plain queue holds besides the record.
async fn held_beside_record(store: &dyn Store, name: &QueueName) -> Result<Removal, Error> {
    let mut held = store.held(name.clone()).await?;
    held.messages = held.messages.saturating_sub(1);
    Ok(held)
}

/// Pauses and limits shards as before. Returns the first failure, after all were tried.
async fn set_up(shards: &[Shard]) -> Result<(), Error> {
    let set_up = async |shard: &Shard| {
        let Stats { paused, limits, .. } = &shard.before;
        if *limits != Limits::default() {
            let set = SetLimits::new().leased(limits.leased).each_group(limits.each_group);
            let mut set = set.in_order(limits.in_order).rate(limits.rate);
            set.hold = limits.held_until.map_or(Change::Keep, |it| Change::Set(Schedule::At(it)));
            shard.backend.apply(At::Server, &Op::SetLimits(set)).await?;
        }
        if *paused {
            shard.backend.apply(At::Server, &Op::Pause).await?;
        }
        Ok(())
    };
    join_all(shards.iter().map(set_up)).await.into_iter().collect()
}

fn add(sum: &mut Removal, one: Removal) {
    sum.existed |= one.existed;
    sum.messages += one.messages;
    sum.results += one.results;
    sum.throttled += one.throttled;
}

const fn holds_any(sum: Removal) -> bool {
    sum.messages > 0 || sum.results > 0 || sum.throttled > 0
}
