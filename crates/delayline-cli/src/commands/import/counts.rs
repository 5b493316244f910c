//! What an import has done, for its report.

use std::collections::BTreeMap;
use std::process::ExitCode;

use bytes::Bytes;
use delayline::Timestamp;
use delayline_json::harmless_line;
use indicatif::ProgressBar;
use serde_json::json;

use crate::args::How;
use crate::confirm::number;
use crate::failure::{Failure, SOME_BAD};
use crate::print::write;

/// Names an entry of a sorted set whose member is its payload, which is not printed.
pub(super) fn unnamed(member: &Bytes, score: f64) -> Bytes {
    let length = number(member.len() as u64, "byte");
    format!("the entry with the score {score:?} and {length}").into()
}

/// How many messages came to which end.
#[derive(Clone, Default)]
pub(super) struct Counts {
    /// Accepted for the first time; in a dry run, messages that would be sent.
    pub(super) created: u64,
    /// Accepted before, by an import that was interrupted, and delivered or still to be.
    pub(super) duplicate: u64,
    /// Changed a message of the queue, or follow one that is being handled.
    pub(super) updated: u64,
    /// Cancelled, since others have removed them from the old queue in the moment of their move.
    pub(super) withdrawn: u64,
    /// Not imported, and still in the old queue.
    pub(super) left: u64,
    /// Why they were left.
    pub(super) reasons: BTreeMap<&'static str, u64>,
    /// How many of them were named.
    pub(super) named: BTreeMap<&'static str, u64>,
    /// The earliest and the latest due time.
    pub(super) due: Option<(Timestamp, Timestamp)>,
    /// Whether producers still use the old queue, so that there are updates.
    pub(super) live: bool,
}

impl Counts {
    pub(super) fn leave(&mut self, name: &[u8], reason: &'static str, bar: &ProgressBar) {
        self.left += 1;
        *self.reasons.entry(reason).or_default() += 1;
        self.name(name, reason, bar);
    }

    /// Says that one is left, unless many were named for the same reason.
    pub(super) fn name(&mut self, name: &[u8], reason: &'static str, bar: &ProgressBar) {
        /// Of each reason that many are named.
        const NAMED: u64 = 10;
        let count = self.named.entry(reason).or_default();
        *count += 1;
        if *count <= NAMED {
            let start: String = String::from_utf8_lossy(name).chars().take(64).collect();
            bar.suspend(|| eprintln!("left {}: {reason}", harmless_line(&start)));
        }
    }

    /// Notes when a message is due.
    pub(super) fn due_at(&mut self, due: Timestamp) {
        let (first, last) = self.due.unwrap_or((due, due));
        self.due = Some((first.min(due), last.max(due)));
    }

    /// Messages that the queue has, now or before.
    pub(super) const fn accepted(&self) -> u64 {
        self.created + self.updated + self.duplicate
    }

    pub(super) fn code(&self) -> ExitCode {
        if self.left == 0 { ExitCode::SUCCESS } else { SOME_BAD.into() }
    }

    pub(super) fn tell(&self, how: &How) -> Result<(), Failure> {
        let Self { created, duplicate, updated, withdrawn, left, .. } = self;
        if how.json {
            let instants = self.due.map(|(first, last)| [first.to_string(), last.to_string()]);
            let mut counts = json!({
                "created": created, "duplicate": duplicate, "left": left,
                "left_because": self.reasons, "due": instants, "dry_run": how.dry_run,
            });
            if self.live {
                counts["updated"] = json!(updated);
                counts["withdrawn"] = json!(withdrawn);
            }
            return write(&format!("{counts}\n"));
        }
        if how.dry_run {
            eprintln!("would import {created}, leave {left}");
        } else if self.live {
            eprint!("created {created}, updated {updated}, duplicate {duplicate}, ");
            eprintln!("withdrawn {withdrawn}, left {left}");
        } else {
            eprintln!("created {created}, duplicate {duplicate}, left {left}");
        }
        for (reason, count) in &self.reasons {
            eprintln!("left {count}: {reason}");
        }
        if let Some((first, last)) = self.due {
            eprintln!("due from {first} to {last}");
        }
        Ok(())
    }
}
