//! `delayline wait`.

use std::process::ExitCode;

use delayline::{Progress, Status};
use delayline_json::{self as json, duration};

use crate::args::{Target, Wait};
use crate::failure::{Failure, SOME_BAD};
use crate::input;
use crate::print::{write, write_bytes};

pub(crate) async fn run(target: &Target, args: Wait) -> Result<ExitCode, Failure> {
    let ids = input::ids(vec![args.id])?;
    let limit = duration(&args.timeout);
    let limit = limit.map_err(|why| Failure::usage(format!("--timeout: {why}")))?;
    let queue = target.open().await?;
    let mut acked = false;
    for id in ids {
        let progress = queue.wait_for(id.clone(), limit).await?;
        acked = matches!(progress, Progress::Finished { status: Status::Acked, .. });
        if args.json {
            let line = json::line(&json::progress(&id, &progress));
            write(&line.map_err(|error| Failure::other("no JSON", &error))?)?;
            continue;
        }
        match &progress {
            Progress::Dead(reason) => eprintln!("dead: {}", reason.name()),
            _ => eprintln!("{}", json::progress_name(&progress)),
        }
        if let Some(result) = progress.result() {
            write_bytes(result).map(drop)?;
        }
    }
    Ok(if acked { ExitCode::SUCCESS } else { ExitCode::from(SOME_BAD) })
}
