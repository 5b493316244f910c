//! Calls whose futures are dropped before they return.

use delayline_core::{At, Cancelled, Found, Op, Reply};

use super::queue::{Queue, at, id, message};
use crate::faults::polled;

super::cases! { "drops",
    a_dropped_batch_is_executed_whole_or_not_at_all: "G3",
    dropped_calls_hold_no_later_ones_up: "G3",
}

/// More than the calls that a backend has room for at once.
const MANY: u32 = 2_000;

async fn a_dropped_batch_is_executed_whole_or_not_at_all(queue: &Queue) {
    for polls in 1..=20 {
        let names: Vec<_> = (0..10).map(|n| format!("{polls} {n}")).collect();
        let ids = names.iter().map(|name| id(name)).collect();
        let enqueue = Op::Enqueue(names.iter().map(|name| message(name)).collect());
        if polled(queue.backend().apply(At::Fixed(at(0)), &enqueue), polls).await.is_some() {
            break;
        }
        let Reply::Get(found) = queue.apply(0, &Op::Get(ids)).await.reply else { unreachable!() };
        let live = found.iter().filter(|found| matches!(found, Found::Live(_))).count();
        assert!(live == 0 || live == 10, "{live} of 10 messages exist after {polls} polls");
    }
}

async fn dropped_calls_hold_no_later_ones_up(queue: &Queue) {
    let cancel = Op::Cancel(vec![id("unknown")]);
    for _ in 0..MANY {
        polled(queue.backend().apply(At::Fixed(at(0)), &cancel), 1).await;
        // Tokio's own locks and channels are not ready for a task that never pauses.
        tokio::task::yield_now().await;
    }
    assert_eq!(queue.cancel(0, "unknown").await, Cancelled::NotFound);
}
