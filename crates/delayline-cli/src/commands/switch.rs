//! `delayline pause` and `delayline resume`.

use std::process::ExitCode;

use delayline_json::harmless_line;
use serde_json::json;

use crate::args::{Pause, Resume, Target};
use crate::failure::Failure;
use crate::print::write;

pub(crate) async fn pause(target: &Target, args: Pause) -> Result<ExitCode, Failure> {
    let queue = if args.create { target.open().await? } else { target.open_known().await? };
    queue.pause().await?;
    say(target, true, args.json)
}

pub(crate) async fn resume(target: &Target, args: Resume) -> Result<ExitCode, Failure> {
    target.open_known().await?.resume().await?;
    say(target, false, args.json)
}

fn say(target: &Target, paused: bool, as_json: bool) -> Result<ExitCode, Failure> {
    let queue = target.queue()?;
    write(&match (as_json, paused) {
        (true, _) => format!("{}\n", json!({"queue": queue, "paused": paused})),
        (false, true) => {
            format!("{}: paused; nothing is delivered until it is resumed\n", harmless_line(queue))
        }
        (false, false) => format!("{}: resumed\n", harmless_line(queue)),
    })?;
    Ok(ExitCode::SUCCESS)
}
