//! What can be done with dead letters, and how fast.

use std::time::Duration;

use delayline::admin::{Purged, Redriven};
use delayline::codec::Raw;
use delayline::{Bytes, MessageId, Queue};

use crate::failure::Failure;
use crate::report::Fate;

/// Something to be done with dead letters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// They are due again.
    Redrive {
        /// From now.
        delay: Duration,
    },
    /// They are deleted.
    Purge,
}

impl Action {
    pub(super) const fn verb(self) -> &'static str {
        match self {
            Self::Redrive { .. } => "redrive",
            Self::Purge => "purge",
        }
    }

    pub(super) const fn done(self) -> &'static str {
        match self {
            Self::Redrive { .. } => "redriven",
            Self::Purge => "purged",
        }
    }

    pub(super) const fn would(self) -> &'static str {
        match self {
            Self::Redrive { .. } => "would_be_redriven",
            Self::Purge => "would_be_purged",
        }
    }

    /// Does it. What may have been done by a call whose reply was lost is not asked for twice in
    /// vain: it is `not_dead` then, or purged.
    pub(super) async fn apply(
        self,
        queue: &Queue<Bytes, Raw>,
        ids: Vec<MessageId>,
    ) -> Result<Vec<Fate>, Failure> {
        Ok(match self {
            Self::Redrive { delay } => {
                queue.redrive_many_in(ids, delay).await?.into_iter().map(redriven).collect()
            }
            Self::Purge => queue.purge_many(ids).await?.into_iter().map(purged).collect(),
        })
    }
}

const fn redriven(outcome: Redriven) -> Fate {
    match outcome {
        Redriven::Done { due } => Fate::due("redriven", due),
        other => Fate::not_done(other.name()),
    }
}

const fn purged(outcome: Purged) -> Fate {
    match outcome {
        Purged::Purged => Fate::done("purged"),
        other => Fate::not_done(other.name()),
    }
}
