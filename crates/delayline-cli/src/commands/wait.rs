//! `delayline wait`.

use std::convert::Infallible;
use std::os::unix::ffi::OsStringExt as _;
use std::process::ExitCode;
use std::time::Duration;

use delayline::codec::Raw;
use delayline::message::Status;
use delayline::{Bytes, Completion, MessageId, Queue};
use delayline_json::{self as json, harmless_line};
use tokio::time::{MissedTickBehavior, interval};

use super::durations::duration_of;
use crate::args::{Target, Wait};
use crate::failure::{Failure, SOME_BAD};
use crate::print::{write, write_bytes};

pub(crate) async fn run(target: &Target, args: Wait) -> Result<ExitCode, Failure> {
    let id = MessageId::new(args.id.into_vec());
    let id = id.map_err(|violation| Failure::usage(violation.to_string()))?;
    let limit = duration_of("--timeout", &args.timeout)?;
    let queue = target.open_known().await?;
    let progress = tokio::select! {
        ended = queue.wait_for(id.clone(), limit) => ended?,
        never = show_progress(&queue, &id), if args.progress => match never {},
    };
    if args.json {
        let line = json::line(&json::progress(&id, &progress));
        write(&line.map_err(|error| Failure::other("no JSON", &error))?)?;
    } else {
        match &progress {
            Completion::Dead(reason) => eprintln!("dead: {}", reason.name()),
            _ => eprintln!("{}", json::progress_name(&progress)),
        }
        if let Some(result) = progress.result() {
            write_bytes(result).map(drop)?;
        }
    }
    let is_acked = matches!(progress, Completion::Finished { status: Status::Acked, .. });
    Ok(if is_acked { ExitCode::SUCCESS } else { ExitCode::from(SOME_BAD) })
}

/// Prints each new progress of a message.
async fn show_progress(queue: &Queue<Bytes, Raw>, id: &MessageId) -> Infallible {
    let mut shown = None;
    let mut looks = interval(BETWEEN_LOOKS);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        looks.tick().await;
        // The wait reports an unreachable server.
        let Ok(found) = queue.get(id.clone()).await else { continue };
        let progress = found.info().and_then(|info| info.progress.clone());
        if let Some(progress) = progress.filter(|progress| Some(progress) != shown.as_ref()) {
            eprintln!("{}", harmless_line(&progress.to_string()));
            shown = Some(progress);
        }
    }
}

/// Workers save once a second.
const BETWEEN_LOOKS: Duration = Duration::from_secs(1);
