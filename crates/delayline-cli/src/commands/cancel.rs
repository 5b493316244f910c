//! `delayline cancel`.

use std::path::Path;
use std::process::ExitCode;

use delayline::{Cancelled, limits};

use crate::args::{Cancel, Target};
use crate::confirm::{confirm, number};
use crate::failure::{Failure, SOME_BAD};
use crate::input;
use crate::report::{Fate, Report};

pub(crate) async fn run(target: &Target, args: Cancel) -> Result<ExitCode, Failure> {
    let from_stdin = args.file.as_deref() == Some(Path::new("-"));
    let (ids, bad) = match &args.file {
        Some(path) => input::ids_of_file(path)?,
        None => (input::ids(args.ids)?, 0),
    };
    if ids.len() > 1 && !args.yes {
        let count = number(ids.len() as u64, "message");
        // If the ids came from stdin, the answer cannot be read from there.
        confirm(&format!("cancel {count} of the queue {}", target.queue()?), !from_stdin)?;
    }
    let queue = target.open_known().await?;
    let mut report = Report::new(args.json, &[]);
    for batch in ids.chunks(limits::MAX_BATCH) {
        let outcomes = queue.cancel_many(batch.iter().cloned()).await?;
        let fates = outcomes.into_iter().map(|outcome| match outcome {
            Cancelled::Cancelled => Fate::done("cancelled"),
            other => Fate::not_done(other.name()),
        });
        report.tell_all(&queue, batch, fates).await?;
    }
    Ok(if bad > 0 { ExitCode::from(SOME_BAD) } else { report.code() })
}
