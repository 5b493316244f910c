//! How a sharded queue is removed: its shards, one after the other, and then their number.

use std::sync::Arc;

use delayline_core::{
    At, Backend as _, Change, Limits, Op, QueueBackend, QueueName, Schedule, SetLimits, Stats,
};
use delayline_redis_protocol::Removal;

use super::open::{found, number_of, record_id, stats, strays};
use crate::Error;
use crate::store::Store;

/// Removes a sharded queue, if it is empty. `None` if it has no shards. If messages arrive meanwhile,
/// removed shards get their pause and limits again.
///
/// # Errors
///
/// Those of its shards. Some may be removed then, and get their pause and limits again if they can
/// be reached.
pub(crate) async fn delete_if_empty(
    store: &dyn Store,
    name: &QueueName,
) -> Result<Option<Removal>, Error> {
    let plain = store.open(name.clone()).await?;
    let Some(number) = number_of(&plain).await? else { return Ok(None) };
    let names = (0..number).map(|it| name.shard(it)).collect::<Result<Vec<_>, _>>()?;
    // An empty shard must keep its pause, limits and finished ids as long as others hold anything.
    let mut sum = store.held(name.clone()).await?;
    // The record.
    sum.messages = sum.messages.saturating_sub(1);
    for shard in &names {
        add(&mut sum, store.held(shard.clone()).await?);
    }
    let mut removed = Vec::new();
    for shard in names {
        if holds_any(sum) {
            break;
        }
        let backend = store.open(shard.clone()).await?;
        removed.push((stats(&backend).await?, backend));
        match store.delete_if_empty(shard).await {
            Ok(one) => add(&mut sum, one),
            Err(error) => {
                // The failed shard comes last, and the others do not depend on it.
                let _ = set_up(removed).await;
                return Err(error);
            }
        }
    }
    if holds_any(sum) {
        set_up(removed).await?;
        return Ok(Some(sum));
    }
    plain.apply(At::Server, &Op::Cancel(vec![record_id()?])).await?;
    add(&mut sum, store.delete_if_empty(name.clone()).await?);
    // Programs that have opened the queue may have sent to a shard since it was removed.
    let late = strays(store, name).await?;
    if late > 0 {
        found(store, name, &plain, number).await?;
        set_up(removed).await?;
        sum.messages += late;
    }
    Ok(Some(sum))
}

/// Pauses and limits shards as these states of them say.
async fn set_up(shards: Vec<(Stats, Arc<dyn QueueBackend>)>) -> Result<(), Error> {
    for (Stats { paused, limits, .. }, shard) in shards {
        if limits != Limits::default() {
            let set = SetLimits::new().leased(limits.leased).each_group(limits.each_group);
            let mut set = set.in_order(limits.in_order).rate(limits.rate);
            set.hold = limits.held_until.map_or(Change::Keep, |it| Change::Set(Schedule::At(it)));
            shard.apply(At::Server, &Op::SetLimits(set)).await?;
        }
        if paused {
            shard.apply(At::Server, &Op::Pause).await?;
        }
    }
    Ok(())
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
