//! `delayline backup`.

use std::process::ExitCode;

use delayline_json::harmless_line;
use serde_json::json;

use crate::args::{Backup, Target};
use crate::confirm::number;
use crate::failure::Failure;
use crate::print::{json_line, write};

pub(crate) async fn run(target: &Target, args: Backup) -> Result<ExitCode, Failure> {
    let connect = target.connect()?;
    target.refuse_new(&connect)?;
    if args.to.symlink_metadata().is_ok() {
        let to = harmless_line(&args.to.to_string_lossy());
        return Err(Failure::usage(format!("{to} exists: a backup needs a new directory")));
    }
    let made = connect.backup(&args.to).await?;
    let to = args.to.to_string_lossy();
    write(&if args.json {
        let (queues, messages, bytes) = (made.queues, made.messages, made.bytes);
        json_line(&json!({ "to": to, "queues": queues, "messages": messages, "bytes": bytes }))
    } else {
        let [queues, messages, bytes] =
            [(made.queues, "queue"), (made.messages, "message"), (made.bytes, "byte")]
                .map(|(count, one)| number(count, one));
        format!("{}: {queues} with {messages}, {bytes}\n", harmless_line(&to))
    })?;
    Ok(ExitCode::SUCCESS)
}
