//! `delayline stats`.

use std::process::ExitCode;

use delayline::Queue;
use serde_json::json;

use crate::args::{Stats, Target};
use crate::failure::Failure;
use crate::print::harmless;
use crate::time::rfc3339;

pub(crate) async fn run(target: &Target, args: Stats) -> Result<ExitCode, Failure> {
    let backend = target.connect()?.open().await.map_err(|error| Failure::opening(&error))?;
    let stats = Queue::raw(backend).stats().await?;
    let queue = target.queue()?;
    let earliest_due = stats.earliest_due.map(rfc3339);
    let counts = [
        ("scheduled", stats.scheduled),
        ("ready", stats.ready),
        ("leased", stats.leased),
        ("dead", stats.dead),
        ("enqueued_total", stats.enqueued_total),
        ("acked_total", stats.acked_total),
        ("cancelled_total", stats.cancelled_total),
        ("purged_total", stats.purged_total),
        ("expired_total", stats.expired_total),
    ];
    if args.json {
        let mut object = json!({
            "queue": queue,
            "paused": stats.paused,
            "earliest_due": earliest_due,
        });
        for (name, count) in counts {
            object[name] = json!(count);
        }
        write(&format!("{object}\n"))?;
    } else {
        let mut table = format!("{:<16}{}\n", "queue", harmless(queue));
        for (name, count) in counts {
            let name = name.replace('_', " ");
            table += &format!("{name:<16}{count:>12}\n");
        }
        let due = earliest_due.unwrap_or_else(|| "-".to_owned());
        table += &format!("{:<16}{due}\n", "earliest due");
        table += &format!("{:<16}{}\n", "paused", if stats.paused { "yes" } else { "no" });
        write(&table)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Writes to stdout. A reader who has gone away has seen enough.
pub(crate) fn write(text: &str) -> Result<(), Failure> {
    use std::io::{ErrorKind, Write as _};
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Failure::other("the output could not be written", &error))
        }
        _ => Ok(()),
    }
}
