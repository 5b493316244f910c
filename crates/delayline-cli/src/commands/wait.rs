//! `delayline wait`.

use std::os::unix::ffi::OsStringExt as _;
use std::process::ExitCode;

use delayline::message::Status;
use delayline::{Completion, MessageId};
use delayline_json as json;

use super::durations::duration_of;
use crate::args::{Target, Wait};
use crate::failure::{Failure, SOME_BAD};
use crate::print::{write, write_bytes};

pub(crate) async fn run(target: &Target, args: Wait) -> Result<ExitCode, Failure> {
    let id = MessageId::new(args.id.into_vec());
    let id = id.map_err(|violation| Failure::usage(violation.to_string()))?;
    let limit = duration_of("--timeout", &args.timeout)?;
    let queue = target.open_known().await?;
    let progress = queue.wait_for(id.clone(), limit).await?;
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
