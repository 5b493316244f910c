//! The metrics of a directory of queues.

use std::fmt::Write as _;
use std::time::SystemTime;

use delayline::admin::{DirectoryStatus, SyncTimes};

use super::text::head;

/// Appends the metrics of a directory.
pub(super) fn exposition(out: &mut String, status: &DirectoryStatus) {
    for (metric, help, value) in GAUGES {
        head(out, metric, "gauge", help);
        // Writing to a string cannot fail.
        let _ = writeln!(out, "{metric} {}", value(status));
    }
    head(out, LAST, "gauge", "When the latest checkpoint was finished");
    if let Some(at) = status.last_checkpoint {
        let since = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let _ = writeln!(out, "{LAST} {}", since.as_secs_f64());
    }
    head(out, SYNCS, "histogram", "How long syncs of the log took");
    syncs(out, &status.syncs);
}

fn syncs(out: &mut String, syncs: &SyncTimes) {
    for (bound, count) in &syncs.buckets {
        let bound = bound.map_or_else(|| "+Inf".to_owned(), |it| it.as_secs_f64().to_string());
        let _ = writeln!(out, "{SYNCS}_bucket{{le=\"{bound}\"}} {count}");
    }
    let _ = writeln!(out, "{SYNCS}_sum {}\n{SYNCS}_count {}", syncs.sum.as_secs_f64(), syncs.count);
}

type Gauge = (&'static str, &'static str, fn(&DirectoryStatus) -> u64);

const GAUGES: [Gauge; 9] = [
    ("delayline_directory_queues", "Stored queues", |status| status.queues),
    ("delayline_directory_segments", "Segments of the log", |status| status.segments),
    ("delayline_directory_log_bytes", "Size of the operations in the log", |it| it.log_bytes),
    ("delayline_directory_snapshot_bytes", "Size of the snapshot", |it| it.snapshot_bytes),
    ("delayline_directory_free_bytes", "Free space on the disk", |it| it.free_bytes),
    ("delayline_directory_room_bytes", "Space in the log, including the reserve", |it| {
        it.room_bytes
    }),
    ("delayline_directory_reserve_bytes", "Space for operations that drain queues", |it| {
        it.reserve_bytes
    }),
    ("delayline_directory_full", "1 while the disk has no space for messages", |it| {
        u64::from(it.full)
    }),
    ("delayline_directory_failed", "1 once the disk has failed, until a restart", |it| {
        u64::from(it.failure.is_some())
    }),
];

const LAST: &str = "delayline_directory_last_checkpoint_timestamp_seconds";
const SYNCS: &str = "delayline_directory_sync_seconds";
