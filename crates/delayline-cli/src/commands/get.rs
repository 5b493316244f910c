//! `delayline get`.

use std::io::Write as _;
use std::process::ExitCode;

use delayline::{Found, Message, MessageState};

use crate::args::Target;
use crate::failure::{Failure, SOME_BAD};
use crate::messages::{found_json, reason_name, status_name};
use crate::print::{harmless, json_line, one_line, write};
use crate::time::rfc3339;

/// Shows messages by their ids, content included.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  delayline get order-1234
  delayline get order-1234 --raw > payload.bin

The exit code is 1 if an id is unknown. An id is known until one hour at least after its message was
finished.")]
pub(crate) struct Get {
    /// The ids
    #[arg(required = true, value_name = "ID")]
    ids: Vec<String>,

    /// Print a JSON object a line
    #[arg(long)]
    json: bool,

    /// Write the payload of the one message, as it is
    #[arg(long, conflicts_with = "json")]
    raw: bool,
}

pub(crate) async fn run(target: &Target, args: Get) -> Result<ExitCode, Failure> {
    if args.raw && args.ids.len() != 1 {
        return Err(Failure::usage("--raw takes one id"));
    }
    let queue = target.open().await?;
    let found = queue.get_many(args.ids.iter().map(String::as_str)).await?;
    let mut missing = false;
    for (id, found) in args.ids.iter().zip(&found) {
        missing |= matches!(found, Found::Unknown);
        match found {
            Found::Live(message) if args.raw => payload(&message.payload)?,
            _ if args.raw => {
                let state = found_json(id, found)["state"].as_str().unwrap_or_default().to_owned();
                let sentence = format!("{} has no payload: it is {state}", one_line(id));
                return Err(Failure::input(sentence));
            }
            _ if args.json => write(&json_line(&found_json(id, found)))?,
            found => write(&describe(id, found))?,
        }
    }
    Ok(if missing { ExitCode::from(SOME_BAD) } else { ExitCode::SUCCESS })
}

fn payload(bytes: &[u8]) -> Result<(), Failure> {
    let mut stdout = std::io::stdout().lock();
    let written = stdout.write_all(bytes).and_then(|()| stdout.flush());
    written.map_err(|error| Failure::other("the output could not be written", &error))
}

fn describe(id: &str, found: &Found) -> String {
    let state = match found {
        Found::Live(message) => return describe_message(message),
        Found::Finished(status) => status_name(*status),
        Found::Unreadable => "unreadable: `delayline check` says more",
        Found::Unknown => "unknown",
    };
    format!("{:<14}{}\n{:<14}{state}\n\n", "id", one_line(id), "state")
}

fn describe_message(message: &Message) -> String {
    let info = &message.info;
    let mut text = String::new();
    let mut put = |name: &str, value: &str| text += &format!("{name:<14}{value}\n");
    put("id", &one_line(&info.id.to_string()));
    match info.state {
        MessageState::Leased { deadline, cancel_requested } => {
            put("state", &format!("leased until {}", rfc3339(deadline)));
            if cancel_requested {
                put("", "asked to be cancelled");
            }
        }
        MessageState::Dead { reason, since } => {
            put("state", &format!("dead since {}: {}", rfc3339(since), reason_name(reason)));
        }
        state => put("state", status_name(state.status())),
    }
    put("due", &rfc3339(info.due));
    put("enqueued", &rfc3339(info.enqueued_at));
    if let Some(expires_at) = info.expires_at {
        put("expires", &rfc3339(expires_at));
    }
    put("deliveries", &info.epoch.to_string());
    put("failures", &format!("{} of {}", info.failures, info.max_failures));
    put("crashes", &format!("{} of {}", info.crashes, info.max_crashes));
    if let Some(error) = &info.first_error {
        put("first error", &one_line(error));
    }
    if let Some(error) = &info.last_error {
        put("last error", &one_line(error));
    }
    for (name, value) in message.headers.iter() {
        let value = one_line(&String::from_utf8_lossy(value));
        put("header", &format!("{}={value}", one_line(name)));
    }
    match std::str::from_utf8(&message.payload) {
        Ok(payload) => put("payload", &harmless(payload)),
        Err(_) => put("payload", &format!("{} bytes that are no text", message.payload.len())),
    }
    text.push('\n');
    text
}
