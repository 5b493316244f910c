//! Hints. Some may be lost, late or wrong, so these cases require little of them: of several that
//! are due, one has to arrive in time.

use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use delayline_core::{At, NewMessage, Op, QueueBackend};
use tokio::time::timeout;

use super::queue::{Queue, after, claim, message};
use crate::faults::polled;

super::cases! { @hints true, "wakeup",
    a_new_message_rings: "G21",
    a_new_message_of_another_client_rings: "G21",
    a_ring_is_kept_for_a_later_waiter: "G21",
    a_claim_without_room_leaves_the_next_message_to_another: "G21",
    a_hint_can_be_handed_on: "G21",
    a_dropped_wait_loses_one_hint_at_most: "G21",
    hints_do_not_pile_up: "G24",
    waiting_ends_by_itself: "G21",
    a_long_wait_holds_up_no_short_one: "G21",
}

/// How many hints may be lost before the backend counts as giving none.
pub(super) const TRIES: usize = 5;

const DROPPED_WAITS: usize = 3;

const PATIENCE: Duration = Duration::from_secs(4);

/// A hint that comes later counts as lost. Much shorter than [`PATIENCE`]: a wait that ends by
/// itself and only then looks for a hint wakes no sleeper early.
const IN_TIME: Duration = Duration::from_secs(2);

async fn a_new_message_rings(queue: &Queue) {
    wakes(queue, queue.backend()).await;
}

/// It is the only client if the backend has no other.
async fn a_new_message_of_another_client_rings(queue: &Queue) {
    wakes(queue, queue.clients().of(1)).await;
}

/// A message that one client sends wakes a waiter of the first.
async fn wakes(queue: &Queue, sender: &Arc<dyn QueueBackend>) {
    for n in 0..TRIES {
        silence(queue).await;
        let backend = Arc::clone(queue.backend());
        let waiting = tokio::spawn(async move { hears(&*backend).await });
        apply_on(&**sender, Op::Enqueue(vec![earlier(n)])).await;
        if waiting.await.unwrap_or_else(|error| panic!("{error}")) {
            return;
        }
    }
    panic!("{TRIES} new messages, and no hint of any");
}

async fn a_ring_is_kept_for_a_later_waiter(queue: &Queue) {
    for n in 0..TRIES {
        silence(queue).await;
        apply(queue, Op::Enqueue(vec![earlier(n)])).await;
        if hears(&**queue.backend()).await {
            return;
        }
    }
    panic!("{TRIES} new messages, and no hint of any was kept");
}

async fn a_claim_without_room_leaves_the_next_message_to_another(queue: &Queue) {
    for n in 0..TRIES {
        let (now, soon) = (format!("{n} now"), format!("{n} soon"));
        // It is due after all tries.
        let soon = message(&soon).schedule(after(30_000));
        apply(queue, Op::Enqueue(vec![message(&now), soon])).await;
        silence(queue).await;
        // It has no room for the second message, so another claim has to take that.
        let token = u8::try_from(n).unwrap_or_default() + 1;
        apply(queue, Op::Claim(claim(token, 1, 60_000))).await;
        if hears(&**queue.backend()).await {
            return;
        }
    }
    panic!("{TRIES} claims that left something for later, and no hint of any");
}

async fn hints_do_not_pile_up(queue: &Queue) {
    silence(queue).await;
    for n in 0..50 {
        // Each is due before the previous one.
        let schedule = after(50_000 - 500 * n);
        apply(queue, Op::Enqueue(vec![message(&n.to_string()).schedule(schedule)])).await;
    }
    let mut hints = 0;
    while hints < 50 && wait(&**queue.backend(), Duration::from_millis(20)).await {
        hints += 1;
    }
    assert!(hints <= 5, "{hints} hints were kept for the next waiter");
}

async fn a_hint_can_be_handed_on(queue: &Queue) {
    for _ in 0..TRIES {
        silence(queue).await;
        queue.backend().ring().await.unwrap_or_else(|error| panic!("no ring: {error}"));
        if hears(&**queue.backend()).await {
            return;
        }
    }
    panic!("{TRIES} rings, and no hint of any");
}

async fn a_dropped_wait_loses_one_hint_at_most(queue: &Queue) {
    silence(queue).await;
    let waits = (0..DROPPED_WAITS).map(|_| polled(queue.backend().wait(PATIENCE), 1));
    for wait in waits {
        wait.await;
    }
    for _ in 0..DROPPED_WAITS + TRIES {
        queue.backend().ring().await.unwrap_or_else(|error| panic!("no ring: {error}"));
        if hears(&**queue.backend()).await {
            return;
        }
    }
    panic!("{DROPPED_WAITS} dropped waits, and no hint after them");
}

async fn waiting_ends_by_itself(queue: &Queue) {
    silence(queue).await;
    let begin = Instant::now();
    let mut waits = 0;
    while begin.elapsed() < Duration::from_millis(300) {
        let this_one = Instant::now();
        wait(&**queue.backend(), Duration::from_millis(30)).await;
        assert!(this_one.elapsed() < Duration::from_secs(20), "it took {:?}", this_one.elapsed());
        waits += 1;
    }
    // A wait that shares its connection may end with another wait, so some are shorter.
    assert!(waits <= 100, "it returned {waits} times in {:?}", begin.elapsed());
}

async fn a_long_wait_holds_up_no_short_one(queue: &Queue) {
    for _ in 0..2 {
        silence(queue).await;
        let long = wait(&**queue.backend(), 2 * PATIENCE);
        let short = wait(&**queue.backend(), Duration::from_millis(20));
        // A wait that shares its connection may end with the next command, some seconds later.
        let mut short = pin!(timeout(PATIENCE, short));
        // The long one begins first, and is dropped with the end of the short one.
        let ended = tokio::select! {
            biased;
            _ = long => short.await,
            ended = &mut short => ended,
        };
        if ended.is_ok() {
            return;
        }
    }
    panic!("two waits of 20 ms took longer than {PATIENCE:?} beside one of twice that");
}

/// The message of the n-th try. Each is due before the previous one, however long that try took,
/// so sleepers do not expect it. It is due soon: a backend need not send hints for messages that
/// sleepers find in time by polling.
fn earlier(n: usize) -> NewMessage {
    let tries = u64::try_from(n).unwrap_or_default();
    message(&n.to_string()).schedule(after(50_000 - 5_000 * tries))
}

/// Applies an operation by the backend's own clock, on which hints depend.
pub(super) async fn apply(queue: &Queue, op: Op) {
    apply_on(&**queue.backend(), op).await;
}

pub(super) async fn apply_on(backend: &dyn QueueBackend, op: Op) {
    let answer = backend.apply(At::Server, &op).await;
    answer.unwrap_or_else(|error| panic!("{error}"));
}

/// Consumes the hints so far. This also sets up the backend's listener.
pub(super) async fn silence(queue: &Queue) {
    for _ in 0..10 {
        if !wait(&**queue.backend(), Duration::from_millis(20)).await {
            return;
        }
    }
}

/// Whether a hint arrives in time. A wait may end early without one, so this waits again.
pub(super) async fn hears(backend: &dyn QueueBackend) -> bool {
    let begin = Instant::now();
    while begin.elapsed() < IN_TIME {
        if wait(backend, PATIENCE).await {
            return begin.elapsed() < IN_TIME;
        }
    }
    false
}

async fn wait(backend: &dyn QueueBackend, timeout: Duration) -> bool {
    let begin = Instant::now();
    let Ok(hint) = backend.wait(timeout).await else {
        // Hints may be unavailable for a moment: callers then rely on their own timers.
        tokio::time::sleep(timeout.saturating_sub(begin.elapsed())).await;
        return false;
    };
    hint
}
