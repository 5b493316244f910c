//! `delayline workers`.

use std::process::ExitCode;

use delayline::admin::FoundWorkers;
use delayline::codec::Raw;
use delayline::{Bytes, Connection, Error, Queue};
use delayline_admin::{Holder, leased};
use delayline_json::harmless_line;
use serde_json::{Value, json};

use crate::args::{Target, Workers};
use crate::failure::{Failure, SOME_BAD};
use crate::print::{columns, json_line, write};

pub(crate) async fn run(target: &Target, args: Workers) -> Result<ExitCode, Failure> {
    if target.queue.is_some() {
        target.queue()?;
    }
    let connect = target.connect()?;
    target.refuse_new(&connect)?;
    let opened = connect.connect().await;
    let connection = opened.map_err(|error| target.not_opened(&error))?;
    let mut failures = Vec::new();
    let mut held = Vec::new();
    let names = names(target, &connection, &mut failures).await?;
    for name in &names {
        let queue: Result<Queue<Bytes>, Error> = connection.queue(name).await;
        let read = async { leased(&queue?.codec(Raw), args.leases.into()).await };
        match read.await {
            Ok((messages, more)) => {
                held.extend(messages.into_iter().map(|info| (name.clone(), info)));
                if more {
                    let what = format!("only {} leases of {name} were read", args.leases);
                    failures.push(Failure::input(what).hint("--leases reads more"));
                }
            }
            Err(error) => failures.push(Failure::from(error).about(name)),
        }
    }
    let mut processes = match connection.workers().await {
        Ok(FoundWorkers { processes, complete, failure, .. }) => {
            if !complete && failure.is_none() {
                let what = format!("only {} processes were read; there are more", processes.len());
                failures.push(Failure::input(what));
            }
            failures.extend(failure.map(|error| unlisted(&error)));
            processes
        }
        Err(error) => {
            failures.push(unlisted(&error));
            Vec::new()
        }
    };
    if target.queue.is_some() {
        let is_named = |name: &str| names.iter().any(|named| named == name);
        processes.retain(|it| it.queues.keys().any(|queue| is_named(queue.as_str())));
    }
    let holders = Holder::all(processes, held);
    write(&if args.json {
        let all: Vec<Value> = holders.iter().map(|holder| holder.json(true)).collect();
        json_line(&json!({ "processes": all, "complete": failures.is_empty() }))
    } else {
        table(&holders)
    })?;
    if holders.is_empty() && failures.is_empty() && !args.json {
        eprintln!("no workers");
    }
    let incomplete = !failures.is_empty();
    for failure in failures {
        failure.report();
    }
    Ok(if incomplete { ExitCode::from(SOME_BAD) } else { ExitCode::SUCCESS })
}

/// The queue that is named, or all.
async fn names(
    target: &Target,
    connection: &Connection,
    failures: &mut Vec<Failure>,
) -> Result<Vec<String>, Failure> {
    if target.queue.is_some() {
        return Ok(vec![target.queue()?.to_owned()]);
    }
    let found = connection.queues_within(u64::MAX).await?;
    failures
        .extend(found.failure.map(|error| Failure::from(error).about("some queues are missing")));
    Ok(found.names.iter().map(ToString::to_string).collect())
}

/// Why processes are missing.
fn unlisted(error: &Error) -> Failure {
    Failure::from(error.clone()).about("processes that have introduced themselves are missing")
}

fn table(holders: &[Holder]) -> String {
    if holders.is_empty() {
        return String::new();
    }
    let row = |holder: &Holder| {
        let id = holder.id.map_or_else(|| "unknown".to_owned(), |id| id.to_string());
        let unknown = || "-".to_owned();
        let process = holder.process.as_ref();
        let queues = process.map(|it| {
            let of = |(queue, handlers)| format!("{queue}={handlers}");
            let mut queues: Vec<String> = it.queues.iter().map(of).collect();
            queues.extend((it.more_queues > 0).then(|| format!("+{}", it.more_queues)));
            queues.join(",")
        });
        vec![
            id,
            process.map_or_else(unknown, |it| harmless_line(&it.host)),
            process.map_or_else(unknown, |it| it.pid.to_string()),
            process.map_or_else(unknown, |it| harmless_line(&it.version)),
            process.map_or_else(unknown, |it| it.handlers.to_string()),
            process.map_or_else(unknown, |it| it.since.to_string()),
            queues.unwrap_or_else(unknown),
            holder.held.len().to_string(),
        ]
    };
    columns(&HEADS, holders.iter().map(row))
}

const HEADS: [&str; 8] =
    ["PROCESS", "HOST", "PID", "VERSION", "HANDLERS", "SINCE", "QUEUES", "HOLDS"];
