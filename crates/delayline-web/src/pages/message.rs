//! One message.

use axum::http::header::{CONTENT_DISPOSITION, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use delayline::admin::Explanation;
use delayline::after::{self, Ended, Member, OnFailure};
use delayline::limits::MAX_ATTEMPTS;
use delayline::message::{Message, MessageState};
use delayline::{Bytes, Completion, Found, MessageId, Timestamp};
use maud::{Markup, html};

use super::buttons::when_fields;
use super::layout::Frame;
use super::parts::{bar, message_link, number, tries};
use super::workers;
use crate::Role;
use crate::content::{Form, short, shown};
use crate::context::Context;
use crate::failure::Failure;
use crate::ids::encoded;
use crate::origin;
use crate::served::explained;
use crate::when::time;

pub(super) async fn page(context: Context) -> Result<Response, Failure> {
    let (name, queue) = context.queue()?;
    let id = context.id()?;
    let found = context.get(name, &id).await?;
    let (explanation, now, ends) = explained(queue, &found).await?;
    let ends = ends.as_deref();
    let holder = match &found {
        Found::Live(message) => workers::holder(&context, message.info.holder).await,
        _ => None,
    };
    let content = html! {
        h1.id { (id) }
        @match &found {
            Found::Live(message) => {
                (live(&context, name, now, message, &explanation, ends, holder.as_ref()))
            },
            Found::Finished(_) => {
                p { (explanation) }
                p { "The queue remembers that for an hour or more, and nothing else about it." }
            }
            Found::Unreadable => p.alert {
                "The record of this message is damaged. The next claim that reads it makes it a \
                 dead letter; "
                @if context.may(Role::Operator) {
                    a href=(format!("check?queue={}", encoded(name.as_bytes()))) { "a repair" }
                } @else { "a repair" }
                " does so now."
            },
            _ => p { (explanation) },
        }
    };
    let here = match &found {
        Found::Live(message) => message.info.state.status().name(),
        _ => "",
    };
    let title = id.to_string();
    let frame = Frame { context: &context, title: &title, queue: Some(name), here, live: None };
    Ok(frame.page(&content))
}

/// The payload as it is, to be kept in a file.
pub(super) async fn content(context: Context) -> Result<Response, Failure> {
    context.require(context.shared.contents_for)?;
    let (name, _) = context.queue()?;
    match context.get(name, &context.id()?).await? {
        Found::Live(message) => {
            let file = "attachment; filename=\"payload.bin\"";
            let headers = [(CONTENT_TYPE, "application/octet-stream"), (CONTENT_DISPOSITION, file)];
            Ok((headers, message.payload).into_response())
        }
        _ => Err(Failure::Unknown("no such message, or it has no payload".to_owned())),
    }
}

fn live(
    context: &Context,
    queue: &str,
    now: Timestamp,
    message: &Message<Bytes>,
    explanation: &Explanation,
    ends: Option<&[Ended]>,
    holder: Option<&Markup>,
) -> Markup {
    let info = &message.info;
    html! {
        p.states {
            span class=(format!("badge {}", info.state.status().name())) {
                (info.state.status().name())
            }
            " " (delayline_json::harmless_line(&explanation.to_string()))
        }
        (actions(context, queue, &info.id, info.state))
        @if let Some(progress) = &info.progress {
            // The explanation of a leased message has the text.
            (bar(progress, !matches!(explanation, Explanation::Leased { .. })))
        }
        (life(now, message))
        dl.facts.inline {
            @if let Some(holder) = holder {
                div { dt { "Held by" } dd { a href="workers" { (holder) } } }
            }
            @if let Some(expires) = info.expires_at {
                div { dt { "Expires" } dd { (time(now, expires)) } }
            }
            @if let Some(group) = &info.group { div { dt { "Group" } dd { (group) } } }
            @if let Some(front) = &message.behind {
                div { dt { "Behind" } dd { a href=(message_link(queue, front)) { (front) } } }
            }
            div { dt { "Priority" } dd { (info.priority.name()) } }
            div { dt { "Failures" } dd { (tries(info)) } }
            div { dt { "Expired leases" } dd { (info.crashes) "/" (info.max_crashes) } }
            div { dt { "Claims" } dd { (number(info.epoch)) } }
            div { dt { "Sequence number" } dd { (number(info.sequence)) } }
            div { dt { "Bytes" } dd { (number(bytes(info.payload_bytes))) } }
            // It is a header.
            @if let Some(kind) = message.headers.kind().filter(|_| context.sees_contents()) {
                div { dt { "Kind" } dd { (kind) } }
            }
        }
        @if info.first_error.is_some() || info.last_error.is_some() {
            section {
                h2 { "Errors" }
                dl.errors {
                    @for (label, error) in
                        [("Latest", &info.last_error), ("First", &info.first_error)]
                    {
                        @if let Some(error) = error {
                            dt { (label) } dd { pre { (delayline_json::harmless(error)) } }
                        }
                    }
                }
            }
        }
        (waits(context, queue, message, ends))
        @if context.sees_contents() { (contents(context, queue, message)) } @else {
            section { h2 { "Content" } p { "Your role cannot see headers and payloads." } }
        }
    }
}

/// The messages that this one waits for, and the message that waits for this one.
fn waits(
    context: &Context,
    queue: &str,
    message: &Message<Bytes>,
    ends: Option<&[Ended]>,
) -> Markup {
    let is_left = |it: &&Ended| matches!(it.completion, Completion::Pending | Completion::Unknown);
    let all = ends.unwrap_or_default();
    let left = all.iter().filter(is_left).count();
    // It may be in a queue that is not shown here, or that the visitor does not know.
    let shown = |member: &Member| {
        let of = member.queue().map_or(queue, |name| name.as_str());
        let name = html! { @if of != queue { (of) ": " } (member.id()) };
        html! {
            @if context.served(of).is_ok() {
                a href=(message_link(of, member.id())) { (name) }
            } @else if context.visitor.knows(of) { (name) } @else { "a message of another queue" }
        }
    };
    html! {
        @if let Some(waiting) = &message.waiting {
            section id="members" {
                h2 { "Waits for" }
                p {
                    @if ends.is_some() {
                        (number(bytes(all.len() - left))) " of " (number(bytes(all.len())))
                        " messages have ended."
                    } @else {
                        (number(bytes(waiting.members.len())))
                        " messages. A queue of theirs cannot be read now."
                    }
                    @match waiting.on_failure {
                        OnFailure::Deliver => " A failure delivers this message at once.",
                        OnFailure::Cancel => " A failure cancels this message.",
                        _ => "",
                    }
                }
                @if left > 0 {
                    ul {
                        @for ended in all.iter().filter(is_left).take(MOST_MEMBERS) {
                            li {
                                (shown(&ended.member)) " "
                                @if ended.completion == Completion::Unknown {
                                    "(unknown: not sent yet, or forgotten)"
                                }
                            }
                        }
                    }
                    @if left > MOST_MEMBERS {
                        p { "And " (number(bytes(left - MOST_MEMBERS))) " more." }
                    }
                }
            }
        }
        @if let Some(waiting) = after::wakes(&message.headers) {
            section id="wakes" {
                h2 { "Is waited for" }
                p { "When it has ended, it wakes " (shown(&waiting)) "." }
            }
        }
    }
}

/// The life of a message from its sending to its next instant, as points of a line.
fn life(now: Timestamp, message: &Message<Bytes>) -> Markup {
    let (info, attempts) = (&message.info, &message.attempts);
    let point = |class: &str, name: &str, at: Timestamp, error: Option<&String>| {
        html! {
            li class=(class) {
                strong { (name) } " " (time(now, at))
                @if let Some(error) = error { div.error { (delayline_json::harmless_line(error)) } }
            }
        }
    };
    html! {
        ol.life aria-label="Life of the message" {
            (point("past", "Sent", info.enqueued_at, None))
            @if attempts.len() >= MAX_ATTEMPTS {
                li.past.far { "The latest " (attempts.len()) " attempts that did not succeed:" }
            }
            @for attempt in attempts {
                (point("past failed", attempt.outcome.name(), attempt.at, attempt.error.as_ref()))
            }
            @match info.state {
                MessageState::Leased { deadline, .. } => {
                    (point("past", "Due", info.due, None))
                    (point("coming", "With a worker, lease until", deadline, None))
                }
                MessageState::Dead { since, .. } => (point("end", "Dead since", since, None)),
                _ if info.due <= now => (point("coming", "Due, waits for a worker since", info.due, None)),
                _ => (point("coming", "Due", info.due, None)),
            }
        }
    }
}

fn contents(context: &Context, queue: &str, message: &Message<Bytes>) -> Markup {
    let form = Form::choose(context.params.text("as"), &message.payload);
    let (text, count) = shown(&message.payload, form);
    let link = message_link(queue, &message.info.id);
    let headers = origin::shown(&context.visitor, &message.headers);
    html! {
        section {
            h2 { "Headers" }
            @if headers.is_empty() { p { "None." } } @else {
                table.headers {
                    thead { tr { th scope="col" { "Name" } th scope="col" { "Value" } } }
                    tbody {
                        @for (name, value) in headers.iter() {
                            tr {
                                th scope="row" { (short(name, 255)) }
                                td { code { (header(value)) } }
                            }
                        }
                    }
                }
            }
        }
        section id="payload" {
            h2 { "Payload" }
            nav.tabs aria-label="Form of the payload" {
                @for other in Form::ALL {
                    a href=(format!("{link}&as={}#payload", other.name()))
                        aria-current=[(other == form).then_some("true")] { (other.name()) }
                }
                a href=(link.replacen("message", "content", 1)) { "Download" }
            }
            @if count < message.payload.len() {
                p { "The first " (number(bytes(count))) " of "
                    (number(bytes(message.payload.len()))) " bytes." }
            }
            pre tabindex="0" role="region" aria-label="Payload" { (text) }
        }
        @if let Some(checkpoint) = &message.checkpoint {
            section id="checkpoint" {
                h2 { "Checkpoint" }
                pre tabindex="0" role="region" aria-label="Checkpoint" {
                    (shown(checkpoint, Form::choose(None, checkpoint)).0)
                }
            }
        }
    }
}

fn actions(context: &Context, queue: &str, id: &MessageId, state: MessageState) -> Markup {
    let to = |action: &str| message_link(queue, id).replacen("message", action, 1);
    let waits = matches!(state, MessageState::Scheduled | MessageState::Ready);
    let dead = matches!(state, MessageState::Dead { .. });
    html! {
        @if context.may(Role::Operator) {
            div.actions {
                @if matches!(state, MessageState::Scheduled) {
                    form method="post" action=(to("reschedule")) {
                        input type="hidden" name="when" value="0s";
                        button { "Run now" }
                    }
                }
                @if waits {
                    form.line method="post" action=(to("reschedule")) {
                        (when_fields("Due in, or at"))
                        button { "Reschedule" }
                    }
                }
                @if dead {
                    form method="post" action=(to("redrive")) { button { "Redrive" } }
                    @if context.sees_contents() && !context.shared.redacts() {
                        a.button href=(to("edit")) { "Edit and redrive..." }
                    }
                }
                @if !dead {
                    form method="post" action=(to("cancel")) {
                        button.danger { "Cancel..." }
                    }
                }
                @if dead && context.may(Role::Admin) {
                    form method="post" action=(to("purge")) { button.danger { "Delete..." } }
                }
            }
        }
    }
}

/// A header's value in one line; in hex if it is no text.
fn header(value: &[u8]) -> String {
    match std::str::from_utf8(value) {
        Ok(text) => short(text, 1_024),
        Err(_) => {
            let part: String = value.iter().take(256).map(|byte| format!("{byte:02x}")).collect();
            let dots = if value.len() > 256 { "..." } else { "" };
            format!("0x{part}{dots}")
        }
    }
}

fn bytes(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

/// Maximum number of members on a page.
const MOST_MEMBERS: usize = 100;
