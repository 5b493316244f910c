//! Senders of a few ids: some update their messages, also while workers hold them, and some
//! throttle them.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use delayline::{Draft, Job, Outcome};
use tokio::sync::watch;

use super::Bare;
use super::handling::{Ending, Handled, LEASE, hash, payload};

/// Sends updates of a few ids until it is stopped.
pub(super) async fn update(queue: Bare, mut chance: fastrand::Rng, stop: watch::Receiver<bool>) {
    while !*stop.borrow() {
        let id = format!("u{}", chance.u8(..UPDATED_IDS));
        let draft = queue.message(&content(&mut chance)).id(&*id);
        let draft = draft.due_in(Duration::from_millis(chance.u64(..40)));
        let draft = draft.max_failures(3).max_crashes(4);
        let draft = match chance.u8(..4) {
            0 => draft.debounce(Duration::from_millis(100)),
            1 => draft.coalesce(),
            _ => draft.or_replace(),
        };
        send(draft, &stop).await;
        if chance.u8(..20) == 0 {
            // The log has the outcome.
            drop(queue.cancel(&*id).await);
        }
        tokio::time::sleep(Duration::from_millis(chance.u64(..10))).await;
    }
}

/// Sends throttled messages of a few ids until it is stopped.
pub(super) async fn throttle(queue: Bare, mut chance: fastrand::Rng, stop: watch::Receiver<bool>) {
    let mut sent = 0;
    while !*stop.borrow() {
        // The ids change, because a window that began while the clock was ahead may outlast the
        // round.
        let id = format!("t{}.{}", sent / SENDS_OF_AN_ID, chance.u8(..THROTTLED_IDS));
        let window = Duration::from_millis(chance.u64(20..200));
        let draft = queue.message(&content(&mut chance)).id(&*id).throttle(window);
        send(draft.max_failures(3).max_crashes(4), &stop).await;
        sent += 1;
        tokio::time::sleep(Duration::from_millis(chance.u64(..20))).await;
    }
}

/// Sends a draft until it succeeds. Its token or its window makes repetitions harmless.
async fn send(draft: Draft, stop: &watch::Receiver<bool>) {
    while draft.clone().send().await.is_err() && !*stop.borrow() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Returns a payload that no other message has.
fn content(chance: &mut fastrand::Rng) -> Bytes {
    let n = chance.u64(..);
    [&n.to_be_bytes()[..], &payload(n)].concat().into()
}

/// Holds a message for a while, so that updates meet it, and ends it with an outcome that depends
/// on the delivery.
pub(super) fn handle(job: Job<Bytes>, handled: Arc<Handled>, _: Bare) -> Ending {
    Box::pin(async move {
        let n = job.payload().first_chunk().map(|n| u64::from_be_bytes(*n));
        handled.note(&job, n.is_some_and(|n| job.payload()[8..] == payload(n)));
        let chance = hash(&(job.id().as_bytes(), job.epoch(), n));
        tokio::time::sleep(Duration::from_millis(chance / 100 % 40)).await;
        match chance % 100 {
            0..70 => Outcome::Ack,
            70..80 => Outcome::retry("no luck"),
            80..86 => Outcome::Snooze(Duration::from_millis(chance / 100 % 100)),
            86..91 => Outcome::Release,
            91..96 => Outcome::reject("hopeless"),
            // Without the message that a panic prints.
            96..98 => std::panic::resume_unwind(Box::new("a panic that is part of the load")),
            _ => {
                // Several heartbeats long.
                tokio::time::sleep(LEASE * 2).await;
                Outcome::Ack
            }
        }
    })
}

const UPDATED_IDS: u8 = 4;
const THROTTLED_IDS: u8 = 2;
const SENDS_OF_AN_ID: u64 = 100;
