//! `delayline send`.

use std::path::Path;
use std::process::ExitCode;

use delayline::after::Member;
use delayline::backend::{NewMessage, QueueName};
use delayline::codec::Raw;
use delayline::limits::MAX_THROTTLED_IDS;
use delayline::message::{Sent, Status};
use delayline::{Bytes, Enqueued, Error, ErrorClass, MessageId, Queue, Timestamp};
use delayline_json::{self as json, Fields, harmless};
use serde_json::json;

use crate::args::{Send, Target};
use crate::failure::{Failure, SOME_BAD};
use crate::input::{Complaints, Item, new_id, read};
use crate::print::{json_line, write};
use crate::progress;
use crate::reading::typed;
use crate::signals::Signals;

pub(crate) async fn run(target: &Target, args: Box<Send>) -> Result<ExitCode, Failure> {
    target.confirms("--durability", args.durability)?;
    match args.file.clone() {
        Some(path) => file(target, &path, &args).await,
        None => one(target, *args).await,
    }
}

/// Sends the message of the flags; prints its id.
async fn one(target: &Target, args: Send) -> Result<ExitCode, Failure> {
    let (as_json, durability) = (args.json, args.durability);
    let has_new_id = args.id.is_none();
    let message = message(target.queue()?, args).map_err(Failure::usage)?;
    let id = message.id.clone();
    let queue = target.open().await?.durability(durability);
    let sent = match only(queue.send_many([message]).await) {
        Err(failure) if failure.is_unknown() => {
            if as_json {
                let mut object = json::id(&id);
                object.insert("outcome".to_owned(), "unknown".into());
                write(&json_line(&object.into()))?;
            }
            // Without its id, a repeated command would send another message.
            let failure = failure.about(&format!("the message {id}"));
            return Err(if has_new_id { failure.hint(REPEAT_WITH_ID) } else { failure });
        }
        sent => sent?,
    };
    if as_json {
        // Also of a message that is not accepted.
        write(&json_line(&json::sent(&sent).into()))?;
    }
    let id = harmless(&sent.id.to_string());
    match sent.outcome {
        Enqueued::Created { due } => eprintln!("created, due {due}"),
        Enqueued::Updated { due } => eprintln!("updated, due {due}"),
        Enqueued::Following { .. } => {
            eprintln!("following: a worker holds the message, and this one will take its place");
        }
        Enqueued::Duplicate { status } if !sent.is_accepted() => {
            let sentence = not_delivered(&id, status);
            let hint = match status {
                Status::Dead => "`delayline dead redrive` makes it due again",
                _ => "--reuse-finished-id sends it again",
            };
            return Err(Failure::input(sentence).hint(hint));
        }
        Enqueued::Duplicate { status } => {
            let state = status.name();
            eprintln!("duplicate: the queue knows this id with the same content, as {state}");
        }
        Enqueued::Conflict { .. } => {
            let sentence = format!("the queue knows the id {id} with different content");
            return Err(Failure::input(sentence).hint("nothing was changed; choose another id"));
        }
        Enqueued::Throttled { until } => eprintln!("throttled until {until}"),
        Enqueued::TooManyThrottled => return Err(Failure::input(too_many_throttled())),
        other => eprintln!("{}", other.name()),
    }
    if !as_json {
        write(&(id + "\n"))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn not_delivered(id: &str, status: Status) -> String {
    format!("the message {id} is known as {} and will not be delivered", status.name())
}

fn too_many_throttled() -> String {
    let most = MAX_THROTTLED_IDS;
    format!(
        "the queue throttles {most} ids already; send without throttle, or when some are free again"
    )
}

/// How many lines met which end.
#[derive(Default)]
struct Counts {
    created: u64,
    updated: u64,
    duplicate: u64,
    /// Known, but cancelled, purged or a dead letter.
    not_delivered: u64,
    conflict: u64,
    throttled: u64,
    /// Not valid, or refused.
    bad: u64,
}

/// Sends the lines of a file, chunk by chunk.
async fn file(target: &Target, path: &Path, args: &Send) -> Result<ExitCode, Failure> {
    let bar = progress::bytes(
        std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file).map(|it| it.len()),
    );
    let mut items = read(path, target.queue()?, args.make_ids, &bar)?;
    let queue = target.open().await?.durability(args.durability);
    let mut signals = Signals::listen()?;
    let (mut counts, mut complaints) = (Counts::default(), Complaints::beside(bar.clone()));
    let result = loop {
        // A chunk under way is finished first, so that the counts are right.
        let chunk = tokio::select! {
            biased;
            () = signals.next() => break Err(interrupted(args.make_ids)),
            chunk = items.recv() => chunk,
        };
        match chunk {
            None => break Ok(()),
            Some(Err(error)) => {
                let what = format!("{} could not be read", path.display());
                break Err(Failure::other(&what, &error));
            }
            Some(Ok(chunk)) => {
                if let Err(failure) = send_chunk(&queue, chunk, &mut counts, &mut complaints).await
                {
                    break Err(failure.hint(if args.make_ids {
                        SENT_TWICE
                    } else {
                        "the counted lines were sent; send the file again to send the rest"
                    }));
                }
                bar.set_message(format!("created {}", counts.created));
            }
        }
    };
    bar.finish_and_clear();
    let Counts { created, updated, duplicate, not_delivered, conflict, throttled, bad } = counts;
    complaints.finish();
    if args.json {
        let counts = json!({
            "created": created, "updated": updated, "duplicate": duplicate,
            "not_delivered": not_delivered, "conflict": conflict, "throttled": throttled,
            "bad": bad
        });
        write(&format!("{counts}\n"))?;
    } else {
        eprintln!(
            "created {created}, updated {updated}, duplicate {duplicate}, \
             not delivered {not_delivered}, conflict {conflict}, throttled {throttled}, bad {bad}"
        );
    }
    result?;
    let all_good = not_delivered == 0 && conflict == 0 && bad == 0;
    Ok(if all_good { ExitCode::SUCCESS } else { ExitCode::from(SOME_BAD) })
}

fn interrupted(make_ids: bool) -> Failure {
    let hint = if make_ids { SENT_TWICE } else { "send the file again to send the rest" };
    Failure::input("interrupted").hint(hint)
}

async fn send_chunk(
    queue: &Queue<Bytes, Raw>,
    chunk: Vec<Item>,
    counts: &mut Counts,
    complaints: &mut Complaints,
) -> Result<(), Failure> {
    let (mut numbers, mut messages) = (Vec::new(), Vec::new());
    for Item { number, message } in chunk {
        match message {
            Ok(message) => {
                numbers.push(number);
                messages.push(message);
            }
            Err(why) => {
                counts.bad += 1;
                complaints.add(number, &why);
            }
        }
    }
    let mut failure = None::<Error>;
    for (number, sent) in numbers.into_iter().zip(queue.send_many(messages).await) {
        let sent = match sent {
            Ok(sent) => sent,
            // The first one, unless only a later one says that its line may have been sent.
            Err(error) => {
                let is_ambiguous = |it: &Error| it.class() == ErrorClass::Ambiguous;
                let is_worse = |it: &Error| is_ambiguous(&error) && !is_ambiguous(it);
                if failure.as_ref().is_none_or(is_worse) {
                    failure = Some(error);
                }
                continue;
            }
        };
        match sent.outcome {
            Enqueued::Created { .. } => counts.created += 1,
            Enqueued::Updated { .. } | Enqueued::Following { .. } => counts.updated += 1,
            Enqueued::Duplicate { status } if !sent.is_accepted() => {
                counts.not_delivered += 1;
                let why = not_delivered(&sent.id.to_string(), status);
                complaints.add_of(number, status.name(), &why);
            }
            // Also if a reply was lost and this call itself has created it before.
            Enqueued::Duplicate { .. } => counts.duplicate += 1,
            Enqueued::Conflict { .. } => {
                counts.conflict += 1;
                let why = format!("the queue knows the id {} with different content", sent.id);
                complaints.add_of(number, "conflict", &why);
            }
            Enqueued::Throttled { .. } => counts.throttled += 1,
            Enqueued::TooManyThrottled => {
                counts.bad += 1;
                complaints.add(number, &too_many_throttled());
            }
            other => complaints.add(number, other.name()),
        }
    }
    failure.map_or(Ok(()), |error| Err(error.into()))
}

fn message(own: &str, args: Send) -> Result<NewMessage, String> {
    let mut headers = Vec::new();
    for header in args.headers {
        let (name, value) = header.split_once('=').ok_or("write a header as NAME=VALUE")?;
        headers.push((name.to_owned(), value.to_owned()));
    }
    let at = args.at.as_deref().map(typed).transpose().map_err(|why| format!("--at: {why}"))?;
    let at = at.map(Timestamp::try_from).transpose().map_err(|error| format!("--at: {error}"))?;
    let member = |queue: Option<&String>, id: &str| {
        let queue = queue.map(QueueName::try_from).transpose().map_err(|why| why.to_string())?;
        let id = MessageId::try_from(id).map_err(|why| why.to_string())?;
        Ok::<_, String>(Member::new(queue, id))
    };
    let after = args.after.iter().map(|id| member(args.after_in.as_ref(), id));
    let after = after.collect::<Result<Vec<_>, _>>()?;
    let wakes = args.wakes.map(|id| member(args.wakes_in.as_ref(), &id)).transpose()?;
    let fields = Fields {
        id: args.id,
        payload: args.payload.map(Bytes::from),
        delay: args.delay,
        at: at.map(|at| at.to_string()),
        group: args.group,
        priority: args.priority.map(Into::into),
        kind: args.kind,
        headers,
        max_failures: args.max_failures,
        max_crashes: args.max_crashes,
        expires_in: args.expires_in,
        keep_result: args.keep_result,
        after: Some(after).filter(|after| !after.is_empty()),
        on_failure: args.on_failure,
        wait_at_most: args.wait_at_most,
        wakes,
        reuse_finished_id: args.reuse_finished_id,
        throttle: args.throttle,
        update: args.update,
        at_most: args.at_most,
        update_token: None,
    };
    fields.message(own, || Ok(new_id())).map_err(|why| match why.split_once(": ") {
        // Errors of durations and instants begin with the field.
        Some((field, why)) if FLAGS.contains(&field) => {
            format!("--{}: {why}", field.replace('_', "-"))
        }
        _ => why,
    })
}

fn only(sent: Vec<Result<Sent, Error>>) -> Result<Sent, Failure> {
    match sent.into_iter().next() {
        Some(sent) => Ok(sent?),
        None => Err(Failure::usage("there was nothing to send")),
    }
}

const REPEAT_WITH_ID: &str = "it may have been sent; to repeat the command, give this id with --id";
const SENT_TWICE: &str =
    "the counted lines were sent; in the same file, lines without an id would be sent again";

/// Fields whose errors begin with their name.
const FLAGS: [&str; 6] =
    ["delay", "expires_in", "keep_result", "wait_at_most", "throttle", "at_most"];
