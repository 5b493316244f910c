//! How a sharded queue is removed: its shards, one after the other, and then their number.

use std::sync::Arc;

use delayline_core::{
    At, Backend as _, Change, Limits, Op, QueueBackend, QueueName, Schedule, SetLimits, Stats,
};
use delayline_redis_protocol::Removal;
use futures_util::future::join_all;

use super::open::{number_of, record_id, stats, store_number, strays};
use crate::Error;
use crate::store::Store;

/// A shard and its state before the removal.
struct Shard {
    name: QueueName,
    backend: Arc<dyn QueueBackend>,
    before: Stats,
}

/// Removes a sharded queue, if it is empty. `None` if it has no shards. If messages arrive
/// meanwhile, the queue stays, and its shards get their pause and limits again.
///
/// # Errors
///
/// Those of its shards. The queue stays then, too, as far as its server can be reached.
pub(crate) async fn delete_if_empty(
    store: &dyn Store,
    name: &QueueName,
) -> Result<Option<Removal>, Error> {
    let plain = store.open(name.clone()).await?;
    let Some(number) = number_of(&plain).await? else { return Ok(None) };
    let mut shards = Vec::new();
    // An empty shard must keep its pause, limits and finished ids as long as others hold anything.
    let mut sum = held_beside_record(store, name).await?;
    for shard in 0..number {
        let name = name.shard(shard)?;
        let backend = store.open(name.clone()).await?;
        let before = stats(&backend).await?;
        add(&mut sum, store.held(name.clone()).await?);
        shards.push(Shard { name, backend, before });
    }
    if holds_any(sum) {
        return Ok(Some(sum));
    }
    let mut removed = 0;
    let result = remove(store, name, &plain, &shards, &mut removed).await;
    if let Ok(sum) = result
        && !holds_any(sum)
    {
        return Ok(Some(sum));
    }
    let restored = async {
        // Programs without a number would not see its messages otherwise.
        store_number(&plain, number).await?;
        set_up(shards.get(..removed).unwrap_or_default()).await
    };
    let restored = restored.await;
    let sum = result?;
    restored.map(|()| Some(sum))
}

/// Removes the shards until one holds anything, and then the record. Counts the shards.
async fn remove(
    store: &dyn Store,
    name: &QueueName,
    plain: &Arc<dyn QueueBackend>,
    shards: &[Shard],
    removed: &mut usize,
) -> Result<Removal, Error> {
    let mut sum = Removal::default();
    for shard in shards {
        *removed += 1;
        add(&mut sum, store.delete_if_empty(shard.name.clone()).await?);
        if holds_any(sum) {
            return Ok(sum);
        }
    }
    add(&mut sum, held_beside_record(store, name).await?);
    if holds_any(sum) {
        return Ok(sum);
    }
    plain.apply(At::Server, &Op::Cancel(vec![record_id()?])).await?;
    add(&mut sum, store.delete_if_empty(name.clone()).await?);
    // Programs that have opened the queue may have sent to a shard since it was removed.
    sum.messages += strays(store, name).await?;
    Ok(sum)
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
