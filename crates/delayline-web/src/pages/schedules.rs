//! All schedules, and what can be done with them.

use std::time::{Duration, SystemTime};

use axum::extract::Request;
use axum::response::Response;
use delayline::message::Status;
use delayline::schedules::{Entry, LastTick, Spec};
use delayline::{Enqueued, MessageId, Timestamp};
use delayline_admin::doctor::SCHEDULE_OVERDUE;
use delayline_json::{harmless_line, schedule_times};
use maud::{Markup, html};

use super::buttons::see;
use super::layout::Frame;
use super::parts::{message_link, name, queue_link};
use crate::Role;
use crate::context::{Context, form};
use crate::failure::Failure;
use crate::ids::encoded;
use crate::schedules::{Act, Acted, act, failure};
use crate::when::{span, time};

pub(super) async fn page(context: Context) -> Result<Response, Failure> {
    let (queue, schedules) = context.schedules()?;
    let now = schedules.queue().server_time().await?;
    // One more shows that there are more.
    let mut entries = schedules.list_within(MOST_READ + 1).await.map_err(failure)?;
    let is_cut = entries.len() > MOST_READ;
    entries.truncate(MOST_READ);
    let overdue =
        entries.iter().map(|it| it.overdue).max().filter(|&longest| longest >= SCHEDULE_OVERDUE);
    // Names may begin and end with spaces.
    let after = context.params.texts("after").next().unwrap_or_default();
    entries.retain(|entry| entry.name.as_str() > after);
    let more = entries.len() > MOST_SHOWN;
    entries.truncate(MOST_SHOWN);
    let next_page = entries.last().filter(|_| more).map(|last| encoded(last.name.as_bytes()));
    let last = schedules.last_ticks(&entries).await.map_err(failure)?;
    let content = html! {
        h1 { "Schedules" }
        @if let Some(overdue) = overdue {
            p.alert role="alert" {
                "A message has been overdue for " (span(overdue))
                ". Run a scheduler. If one runs, see whether the queue of schedules is paused, and \
                 the scheduler's log."
            }
        }
        @if entries.is_empty() { p { "There are no schedules here." } } @else {
            table.stack {
                thead { tr {
                    @for head in ["Schedule", "When", "Queue", "Next", "Last"] {
                        th scope="col" { (head) }
                    }
                    @if context.may(Role::Operator) { th scope="col" { "Actions" } }
                } }
                tbody {
                    @for (entry, last) in entries.iter().zip(&last) {
                        (row(&context, now, entry, last.as_ref()))
                    }
                }
            }
        }
        @if let Some(after) = next_page {
            p { a.button href=(format!("schedules?after={after}")) { "More" } }
        }
        @if is_cut {
            p.notice {
                "There are more schedules. Only the " (MOST_READ)
                " whose next instants are the nearest are listed."
            }
        }
        p.far {
            "A scheduler sends the messages. It is a program, or "
            code { "delayline schedule run" } ". The schedules are messages of the queue "
            (queue_link(&context, queue)) "."
        }
    };
    let frame =
        Frame { context: &context, title: "Schedules", queue: None, here: "schedules", live: None };
    Ok(frame.page(&content))
}

fn row(context: &Context, now: Timestamp, entry: &Entry, last: Option<&LastTick>) -> Markup {
    let target = entry.spec.as_ref().map(Spec::queue);
    html! {
        tr {
            th scope="row" {
                (name(&harmless_line(&entry.name)))
                @if entry.is_paused { " " span.badge.warn { "paused" } }
                @if entry.is_dead { " " span.badge.dead { "dead letter" } }
            }
            td data-label="When" { (harmless_line(&schedule_times(entry))) }
            td data-label="Queue" {
                @if let Some(target) = target { (queue_link(context, target)) }
            }
            td data-label="Next" { (upcoming(now, entry)) }
            td data-label="Last" {
                @match (target, last) {
                    (Some(target), Some(last)) => (outcome(context, now, target, last)),
                    (Some(_), None) => span.far { (none(now, entry)) },
                    (None, _) => span.far { "unknown" },
                }
            }
            @if context.may(Role::Operator) {
                td data-label="Actions" { (buttons(entry)) }
            }
        }
    }
}

fn none(now: Timestamp, entry: &Entry) -> &'static str {
    let age = SystemTime::from(now).duration_since(entry.created).unwrap_or_default();
    if age < SEARCHED { "none yet" } else { "none in 31 days" }
}

/// The next instant, and those after it when the reader asks for them.
fn upcoming(now: Timestamp, entry: &Entry) -> Markup {
    let mut next = entry.next.iter().filter_map(|&next| Timestamp::try_from(next).ok());
    html! {
        @match next.next() {
            None if entry.is_paused => span.far { "paused" },
            None if entry.is_dead => span.far { "none until it is resumed" },
            None if entry.spec.is_none() => span.far { "unknown" },
            None => span.far { "no more instants" },
            Some(first) => details {
                summary { (time(now, first)) }
                ol { @for instant in next { li { (time(now, instant)) } } }
            },
        }
    }
}

/// The outcome of the message of the last instant.
fn outcome(context: &Context, now: Timestamp, queue: &str, last: &LastTick) -> Markup {
    let word = match last.status {
        Some(Status::Leased) => "with a worker",
        Some(Status::Dead) => "dead letter",
        Some(status) => status.name(),
        None => "unknown",
    };
    let has_page = last.status.is_some() && context.served(queue).is_ok();
    let link = MessageId::new(last.id.clone()).ok().filter(|_| has_page);
    html! {
        @match link {
            Some(id) => a href=(message_link(queue, &id)) {
                span.badge.dead[last.status == Some(Status::Dead)] { (word) }
            },
            None => span.far { (word) },
        }
        " "
        @if let Ok(instant) = Timestamp::try_from(last.instant) { (time(now, instant)) }
    }
}

fn buttons(entry: &Entry) -> Markup {
    let button = |act: &str, danger: bool, text: &str| {
        html! {
            button.danger[danger] name="act" value=(act)
                aria-label=(format!("{text} {}", harmless_line(&entry.name))) { (text) }
        }
    };
    let to = format!("schedule?name={}", encoded(entry.name.as_bytes()));
    html! {
        form.line method="post" action=(to) {
            @if entry.is_paused || entry.is_dead { (button("resume", false, "Resume")) }
            @else { (button("pause", false, "Pause")) }
            (button("run", false, "Run now"))
            (button("remove", true, "Remove..."))
        }
    }
}

/// Does what a button says with the schedule of the query.
pub(super) async fn change(context: Context, request: Request) -> Result<Response, Failure> {
    context.require(Role::Operator)?;
    let fields = form(&context, request, &["act", "sure"]).await?;
    let missing = || Failure::Wrong("the query names no schedule".to_owned());
    let name = context.params.texts("name").next().filter(|name| !name.is_empty());
    let name = name.ok_or_else(missing)?;
    let (what, note) = match fields.text("act") {
        Some("pause") => (Act::Pause, "schedule_paused"),
        Some("resume") => (Act::Resume, "schedule_resumed"),
        Some("run") => (Act::RunNow, "schedule_sent"),
        Some("remove") => (Act::Remove, "schedule_removed"),
        _ => return Err(Failure::Wrong("`act` is pause, resume, run or remove".to_owned())),
    };
    if what == Act::Remove && fields.text("sure").is_none() {
        context.schedules()?;
        return Ok(ask(&context, name));
    }
    let note = match act(&context, name, what).await? {
        Acted::Unknown => "schedule_not_found",
        Acted::Sent(sent) if !matches!(sent.outcome, Enqueued::Created { .. }) => {
            "schedule_not_sent"
        }
        _ => note,
    };
    Ok(see(&format!("schedules?note={note}")))
}

/// Asks whether to remove a schedule.
fn ask(context: &Context, name: &str) -> Response {
    let title = format!("Remove {}?", harmless_line(name));
    let content = html! {
        h1 { (title) }
        p { "The messages that it has created ahead are cancelled. This cannot be undone." }
        // Without an action it goes to the address of this page.
        form method="post" {
            input type="hidden" name="act" value="remove";
            div.actions {
                button.danger name="sure" value="yes" { "Remove" }
                a.button href="schedules" { "Back" }
            }
        }
    };
    Frame { context, title: &title, queue: None, here: "schedules", live: None }.page(&content)
}

/// How far back the last instant is searched.
const SEARCHED: Duration = Duration::from_secs(31 * 86_400);
/// Maximum number of schedules that are read for a page.
const MOST_READ: usize = 1_000;
/// Maximum number of schedules on a page.
const MOST_SHOWN: usize = 100;
