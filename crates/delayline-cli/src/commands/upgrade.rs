//! `delayline upgrade`.

use std::process::ExitCode;

use delayline::admin::Upgrade as Progress;
use delayline_json::harmless_line;
use serde_json::json;

use crate::args::{Target, Upgrade};
use crate::confirm::confirm;
use crate::failure::Failure;
use crate::print::{json_line, write};
use crate::progress;

pub(crate) async fn run(target: &Target, args: &Upgrade) -> Result<ExitCode, Failure> {
    let queue = target.queue()?;
    let connection = target.connection().await?;
    let found = connection.upgrade_status(queue).await?;
    if !found.exists {
        return Err(target.unknown());
    }
    if args.dry_run || !found.is_needed() {
        write(&report(queue, &found, &found, args))?;
        return Ok(ExitCode::SUCCESS);
    }
    if !args.yes {
        let Progress { version, target, total, .. } = found;
        let deed = format!("convert {total} entries from schema version {version} to {target}");
        confirm(&format!("{deed}, so that older versions refuse the queue"), true)?;
    }
    let bar = progress::messages(found.total);
    let progress = |page: &Progress| {
        bar.set_length(page.total);
        bar.set_position(page.seen);
    };
    let done = connection.upgrade_queue(queue, progress).await;
    bar.finish_and_clear();
    write(&report(queue, &found, &done?, args))?;
    Ok(ExitCode::SUCCESS)
}

/// The line about a queue that was found in one state, and left in another.
fn report(queue: &str, found: &Progress, left: &Progress, args: &Upgrade) -> String {
    let Progress { version, target, begun, seen, total, .. } = *found;
    if args.json {
        return json_line(&json!({
            "queue": queue,
            "from": version,
            "to": target,
            "upgraded": !left.is_needed(),
            "begun": left.begun,
            "entries": total,
            "seen": if left.is_needed() { seen } else { total },
        }));
    }
    let name = harmless_line(queue);
    if !found.is_needed() {
        return format!("{name}: up to date, schema version {version}\n");
    }
    let change = format!("from schema version {version} to {target}");
    match (left.is_needed(), begun) {
        (false, _) => format!("{name}: upgraded {change}, {total} entries\n"),
        (true, false) => format!("{name}: to be upgraded {change}, {total} entries\n"),
        (true, true) => format!("{name}: being upgraded {change}, {seen} of {total} entries\n"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_says_how_far_the_upgrade_is() {
        let state = |version, begun, seen| {
            let mut state = Progress::default();
            (state.exists, state.version, state.target) = (true, version, 3);
            (state.begun, state.seen, state.total) = (begun, seen, 9);
            state
        };
        let args = |json| Upgrade { dry_run: true, yes: false, json };
        let said = |found, left| report("a", &found, &left, &args(false));
        let (old, half, new) = (state(2, false, 0), state(2, true, 5), state(3, false, 9));
        assert_eq!(said(old, old), "a: to be upgraded from schema version 2 to 3, 9 entries\n");
        let said_half = "a: being upgraded from schema version 2 to 3, 5 of 9 entries\n";
        assert_eq!(said(half, half), said_half);
        assert_eq!(said(half, new), "a: upgraded from schema version 2 to 3, 9 entries\n");
        assert_eq!(said(new, new), "a: up to date, schema version 3\n");
        for (left, upgraded, begun, seen) in [(half, false, true, 5), (new, true, false, 9)] {
            let json: serde_json::Value =
                serde_json::from_str(&report("a", &half, &left, &args(true))).unwrap();
            let expected = json!({
                "queue": "a", "from": 2, "to": 3, "upgraded": upgraded, "begun": begun,
                "entries": 9, "seen": seen,
            });
            assert_eq!(json, expected);
        }
    }
}
