//! Generates ids, so that messages that are created together are in one shard.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use delayline_core::{MessageId, Violation};
use tokio::time::Instant;
use uuid::Uuid;

use super::shard_of;

/// Generates the ids of a queue: UUIDs of version 7, so that ids sort by creation.
///
/// A message without a group is in the shard of its id, and a batch is a call for each shard. So
/// ids that are generated in quick succession, as for a batch, are of one shard: a *run*. The next
/// run is of the next shard.
#[derive(Debug)]
pub(crate) struct Ids {
    /// 1 for a queue without shards.
    shards: usize,
    run: Mutex<Run>,
}

/// Ids of one shard that were generated in quick succession.
#[derive(Debug)]
struct Run {
    shard: usize,
    /// Number of ids so far.
    length: usize,
    /// When the latest id was generated.
    latest: Instant,
}

impl Ids {
    /// Generates ids of a queue without shards.
    pub(crate) fn plain() -> Self {
        Self::of(1)
    }

    pub(super) fn of(shards: usize) -> Self {
        // Programs that start at the same time do not begin at the same shard.
        let run = Run { shard: fastrand::usize(..shards), length: 0, latest: Instant::now() };
        Self { shards, run: Mutex::new(run) }
    }

    /// The number of shards, or 1 for a queue without.
    pub(crate) const fn shards(&self) -> usize {
        self.shards
    }

    pub(crate) fn generate(&self) -> Result<MessageId, Violation> {
        let id = Uuid::now_v7();
        let id = if self.shards > 1 { self.placed(id, self.next_shard()) } else { id };
        MessageId::new(id.to_string())
    }

    fn next_shard(&self) -> usize {
        let now = Instant::now();
        // Nothing panics while it is locked.
        let mut run = self.run.lock().unwrap_or_else(PoisonError::into_inner);
        if run.length == LONGEST_RUN || now - run.latest > PAUSE {
            (run.shard, run.length) = ((run.shard + 1) % self.shards, 0);
        }
        (run.length, run.latest) = (run.length + 1, now);
        run.shard
    }

    /// Increments the last 32 bits, which are random, until the id is of the shard.
    fn placed(&self, id: Uuid, shard: usize) -> Uuid {
        let bits = id.as_u128();
        let mut tried = (0..=RANDOM)
            .map(|n| Uuid::from_u128((bits & !RANDOM) | (bits.wrapping_add(n) & RANDOM)));
        let is_there = |id: &Uuid| {
            let mut text = Uuid::encode_buffer();
            shard_of(id.hyphenated().encode_lower(&mut text).as_bytes(), self.shards) == shard
        };
        tried.find(is_there).unwrap_or(id)
    }
}

/// The last 32 bits of an id, which are random.
const RANDOM: u128 = 0xffff_ffff;
/// Maximum length of a run. A batch of up to as many ids is one call or two. The shards share
/// larger batches.
const LONGEST_RUN: usize = 128;
/// The pause that ends a run: shorter than a call, and longer than the creation of a message.
const PAUSE: Duration = Duration::from_micros(250);
