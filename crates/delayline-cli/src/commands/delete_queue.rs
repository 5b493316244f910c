//! `delayline delete-queue`.

use std::process::ExitCode;

use delayline::admin::Removal;
use delayline_json::harmless_line;
use serde_json::json;

use crate::args::{DeleteQueue, Target};
use crate::confirm::number;
use crate::failure::Failure;
use crate::print::{json_line, write};

pub(crate) async fn run(target: &Target, args: DeleteQueue) -> Result<ExitCode, Failure> {
    let queue = target.queue()?;
    let connection = target.connection().await?;
    let removal = connection.delete_queue(queue).await?;
    if !removal.existed {
        return Err(target.unknown());
    }
    if !removal.is_removed() {
        if args.json {
            let Removal { messages, results, throttled, .. } = removal;
            let held = json!({"messages": messages, "results": results, "throttled": throttled});
            write(&json_line(&json!({"queue": queue, "deleted": false, "held": held})))?;
        }
        let sentence =
            format!("{} holds {}; it was not removed", harmless_line(queue), held(removal));
        return Err(Failure::input(sentence).hint("only an empty queue can be removed"));
    }
    write(&if args.json {
        json_line(&json!({"queue": queue, "deleted": true}))
    } else {
        format!("{}: deleted\n", harmless_line(queue))
    })?;
    Ok(ExitCode::SUCCESS)
}

/// What keeps a queue from being removed.
fn held(removal: Removal) -> String {
    let counts = [
        (removal.messages, "message"),
        (removal.results, "result"),
        (removal.throttled, "throttled id"),
    ];
    let held = counts.into_iter().filter(|(count, _)| *count > 0);
    held.map(|(count, one)| number(count, one)).collect::<Vec<_>>().join(", ")
}
