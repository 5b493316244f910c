//! `delayline reschedule`.

use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use delayline::Rescheduled;

use super::durations::delay_of;
use crate::args::{Reschedule, Target};
use crate::failure::Failure;
use crate::input;
use crate::reading::typed;
use crate::report::{Fate, Report};

/// When the messages are due instead.
enum When {
    In(Duration),
    At(SystemTime),
}

pub(crate) async fn run(target: &Target, args: Reschedule) -> Result<ExitCode, Failure> {
    let when = match (&args.delay, &args.at) {
        (Some(delay), _) => When::In(delay_of("--delay", delay)?),
        (None, Some(at)) => When::At(typed(at).map_err(|why| Failure::usage(why).about("--at"))?),
        (None, None) => return Err(Failure::usage("neither --delay nor --at was given")),
    };
    let ids = input::ids(args.ids)?;
    let queue = target.open_known().await?;
    let mut report = Report::new(args.json, &[]);
    for id in ids {
        let outcome = match when {
            When::In(delay) => queue.reschedule_in(id.clone(), delay).await?,
            When::At(due) => queue.reschedule_at(id.clone(), due).await?,
        };
        let fate = match outcome {
            Rescheduled::Done { due } => Fate::due("rescheduled", due),
            other => Fate::not_done(other.name()),
        };
        report.tell_all(&queue, &[id], [fate]).await?;
    }
    Ok(report.code())
}
