//! A directory of queues: its files, its room and its syncs.

use std::time::{Duration, SystemTime};

use delayline::admin::DirectoryStatus;
use delayline::backend;
use delayline::{Connection, Error, ErrorKind};
use jiff::SignedDuration;
use serde_json::{Value, json};

use super::findings::{Finding, Findings, Verdict, good_if, good_unless};
use super::{queue, shards};

/// Examines the directory of a connection, and the named queue in it. Changes nothing.
///
/// # Cancel safety
///
/// This call changes nothing; its future can be dropped.
///
/// # Errors
///
/// [`ErrorKind::Unsupported`] if the queues are not in a directory. Otherwise the error of a call
/// on the queue.
pub async fn examine_directory(
    connection: &Connection,
    name: Option<&str>,
) -> Result<Vec<Finding>, Error> {
    let Some(status) = connection.directory_status().await? else {
        let kind = ErrorKind::Unsupported("an examination of queues that are in no directory");
        return Err(backend::Error::new(kind).into());
    };
    let mut findings = Findings::default();
    check(&status, &mut findings);
    if let Some(name) = name {
        queue(connection, name, &*connection.backend(name).await?, &mut findings).await?;
        shards(connection, name, &mut findings).await;
    }
    Ok(findings.0)
}

fn check(status: &DirectoryStatus, findings: &mut Findings) {
    let failure = status.failure.as_deref();
    let advice = "examine the disk, then restart the process: it opens the directory again";
    let works = failure.unwrap_or("it takes writes");
    findings.add("disk", good_if(failure.is_none()), works, advice);
    findings.add("files", Verdict::Good, files(status), "");
    findings.add("last checkpoint", Verdict::Good, checkpoint(status), "");
    let advice = "every send waits for a sync: use a faster disk, or send in batches";
    findings.add("syncs", good_unless(status.syncs.p99 > SLOW), syncs(status), advice);
    let advice = "messages are refused: free up space on the disk, or let workers drain the queues";
    findings.add("room", good_if(!status.full), room(status), advice);
    // A checkpoint writes a snapshot of everything beside the old one.
    let next = status.snapshot_bytes.saturating_add(status.log_bytes);
    let advice = "the next snapshot may not fit: free up space on the disk";
    let detail = format!("{} free on the disk", bytes(status.free_bytes));
    findings.add("free", good_unless(status.free_bytes < 2 * next), detail, advice);
}

/// Returns the state of the directory in one line.
#[must_use]
pub fn directory_line(status: &DirectoryStatus) -> String {
    let failure = status.failure.iter().map(|it| format!("; the disk has failed: {it}"));
    let failure: String = failure.collect();
    format!("{}; syncs: {}; room: {}{failure}", files(status), syncs(status), room(status))
}

/// Returns the state of the directory as a JSON object: sizes in bytes, durations in seconds, and
/// the last checkpoint in milliseconds since 1970.
#[must_use]
pub fn directory(status: &DirectoryStatus) -> Value {
    let since = |at: SystemTime| at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    json!({
        "queues": status.queues,
        "segments": status.segments,
        "log_bytes": status.log_bytes,
        "snapshot_bytes": status.snapshot_bytes,
        "last_checkpoint_ms": status.last_checkpoint.map(|at| {
            u64::try_from(since(at).as_millis()).unwrap_or(u64::MAX)
        }),
        "checkpoint_running": status.checkpoint_running,
        "free_bytes": status.free_bytes,
        "room_bytes": status.room_bytes,
        "reserve_bytes": status.reserve_bytes,
        "full": status.full,
        "failure": status.failure,
        "syncs": {
            "count": status.syncs.count,
            "p50_seconds": status.syncs.p50.as_secs_f64(),
            "p99_seconds": status.syncs.p99.as_secs_f64(),
            "max_seconds": status.syncs.max.as_secs_f64(),
        },
    })
}

fn files(status: &DirectoryStatus) -> String {
    let count = |count: u64, one: &str| {
        if count == 1 { format!("1 {one}") } else { format!("{count} {one}s") }
    };
    format!(
        "{}; a log of {} in {}; a snapshot of {}",
        count(status.queues, "queue"),
        bytes(status.log_bytes),
        count(status.segments, "segment"),
        bytes(status.snapshot_bytes)
    )
}

fn checkpoint(status: &DirectoryStatus) -> String {
    let running = if status.checkpoint_running { "; the next one is being made" } else { "" };
    let last = status.last_checkpoint.map_or_else(
        || "none since the directory was opened".to_owned(),
        |at| format!("{:#} ago", whole_seconds(SystemTime::now().duration_since(at))),
    );
    last + running
}

fn syncs(status: &DirectoryStatus) -> String {
    let syncs = &status.syncs;
    if syncs.count == 0 {
        return "none yet".to_owned();
    }
    format!(
        "{}, p50 up to {:.1?}, p99 up to {:.1?}, max {:.1?}",
        syncs.count, syncs.p50, syncs.p99, syncs.max
    )
}

fn room(status: &DirectoryStatus) -> String {
    let full = if status.full { "full: " } else { "" };
    let (room, reserve) = (bytes(status.room_bytes), bytes(status.reserve_bytes));
    format!("{full}{room} in the log, {reserve} of them in reserve")
}

/// Drops fractions of a second. A duration that is an error, because its start is in the future, is
/// 0.
fn whole_seconds<E>(duration: Result<Duration, E>) -> SignedDuration {
    SignedDuration::from_secs(i64::try_from(duration.unwrap_or_default().as_secs()).unwrap_or(0))
}

fn bytes(count: u64) -> String {
    #[expect(clippy::cast_precision_loss, reason = "it is rounded anyway")]
    let kib = count as f64 / 1_024.0;
    let mib = kib / 1_024.0;
    if count < 10_240 {
        format!("{count} bytes")
    } else if mib < 1.0 {
        format!("{kib:.1} KiB")
    } else if mib < 10_240.0 {
        format!("{mib:.1} MiB")
    } else {
        format!("{:.1} GiB", mib / 1_024.0)
    }
}

/// The p99 of syncs above which users notice them.
const SLOW: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn queues_in_memory_are_in_no_directory() {
        let connection = delayline::connect("memory:").await.unwrap();
        let refused = examine_directory(&connection, None).await.unwrap_err();
        assert!(matches!(refused.kind(), ErrorKind::Unsupported(_)), "{refused}");
    }

    #[test]
    fn sizes_and_ages_are_in_units_that_people_read() {
        assert_eq!(bytes(10_239), "10239 bytes");
        assert_eq!(bytes(20_000), "19.5 KiB");
        assert_eq!(bytes(3 << 20), "3.0 MiB");
        assert_eq!(bytes(60_657 << 20), "59.2 GiB");
        let ago = whole_seconds(Ok::<_, ()>(Duration::from_millis(7_300_900)));
        assert_eq!(format!("{ago:#}"), "2h 1m 40s");
        assert_eq!(format!("{:#}", whole_seconds(Err(()))), "0s");
    }
}
