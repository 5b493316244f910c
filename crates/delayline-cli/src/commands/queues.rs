//! `delayline queues`.

use std::process::ExitCode;

use crate::args::{Queues, Target};
use crate::failure::Failure;
use crate::print::write;

pub(crate) async fn run(target: &Target, args: &Queues) -> Result<ExitCode, Failure> {
    let opened = target.connect()?.connect().await;
    let names = opened.map_err(|error| target.not_opened(&error))?.queues().await?;
    let names: Vec<_> = names.iter().map(ToString::to_string).collect();
    write(&if args.json {
        serde_json::Value::from(names).to_string() + "\n"
    } else {
        names.into_iter().map(|name| name + "\n").collect()
    })?;
    Ok(ExitCode::SUCCESS)
}
