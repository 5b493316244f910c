//! `delayline queues`.

use std::process::ExitCode;

use delayline::Error;

use crate::args::{Queues, Target};
use crate::failure::{Failure, SOME_BAD};
use crate::print::write;

pub(crate) async fn run(target: &Target, args: &Queues) -> Result<ExitCode, Failure> {
    let connection = target.connection().await?;
    let found = connection.queues_within(u64::MAX).await?;
    let names: Vec<_> = found.names.iter().map(ToString::to_string).collect();
    write(&if args.json {
        serde_json::Value::from(names).to_string() + "\n"
    } else {
        names.into_iter().map(|name| name + "\n").collect()
    })?;
    Ok(found.failure.map_or(ExitCode::SUCCESS, |error| incomplete(&error).report()))
}

/// Some primaries could not be read: exit code 1.
fn incomplete(error: &Error) -> Failure {
    Failure::from(error.clone()).about("the list is incomplete").code(SOME_BAD)
}
