//! What all pages have.

use axum::response::{Html, IntoResponse, Response};
use maud::{DOCTYPE, Markup, html};

use crate::Role;
use crate::assets::{ICON, SCRIPT, STYLE, TROUBLE};
use crate::context::Context;
use crate::ids::encoded;
use crate::when::zone;

/// A page of a queue, or without one.
pub(crate) struct Frame<'a> {
    pub(crate) context: &'a Context,
    pub(crate) title: &'a str,
    pub(crate) queue: Option<&'a str>,
    /// Which of the links is this page.
    pub(crate) here: &'a str,
    /// The address of the stream that reports changes of the queue, if the page listens to one.
    pub(crate) live: Option<String>,
}

impl Frame<'_> {
    pub(crate) fn page(&self, content: &Markup) -> Response {
        self.page_of(false, content)
    }

    /// A page whose icon may show trouble.
    pub(crate) fn page_of(&self, trouble: bool, content: &Markup) -> Response {
        let Self { context, title, queue, here, live } = self;
        let link = |href: &str, name: &str, text: &str| {
            html! { a href=(href) aria-current=[(name == *here).then_some("page")] { (text) } }
        };
        let tabs = queue.map(|queue| {
            let of = encoded(queue.as_bytes());
            html! {
                nav.tabs aria-label="Queue" {
                    (link(&format!("queue?queue={of}"), "queue", "Queue"))
                    @for (state, text) in STATES {
                        (link(&format!("messages?queue={of}&state={state}"), state, text))
                    }
                    (link(&format!("dead?queue={of}"), "dead", "Dead letters"))
                    @if context.sees_contents() {
                        (link(&format!("search?queue={of}"), "search", "Search"))
                    }
                }
            }
        });
        let header = html! {
            header.top {
                nav aria-label="Main" {
                    a.brand href="queues" { "Delayline" }
                    (link("queues", "overview", "Queues"))
                    @if context.schedules().is_ok() {
                        (link("schedules", "schedules", "Schedules"))
                    }
                    (link("workers", "workers", "Workers"))
                    @if context.shared.examiner.is_some() && context.may(Role::Operator) {
                        (link("server", "server", "Server"))
                    } @else if context.storage().is_some() && context.may(Role::Operator) {
                        (link("server", "server", "Directory"))
                    }
                    a href="api/v1/openapi.json" { "API" }
                }
                form.line method="get" action="find" role="search" aria-label="Find an id" {
                    label { span.unseen { "Find an id" }
                        input.time name="id" required maxlength="384" autocomplete="off"
                            placeholder="id, any queue"; }
                    button { "Find" }
                }
                span.who { (delayline_json::harmless_line(&context.visitor.name)) ", "
                    (context.visitor.rights) }
            }
        };
        let main = html! {
            @if let Some(queue) = queue {
                p.crumb { a href="queues" { "Queues" } " / " (queue) }
            }
            @if let Some(tabs) = tabs { (tabs) }
            (notice(context))
            @if let Some(live) = live {
                p.notice role="status" data-live=(live) hidden {
                    "This page is not up to date: the queue or this dashboard cannot be reached."
                }
            }
            (content)
        };
        let icon = if trouble { &TROUBLE.name } else { &ICON.name };
        Html(document(title, icon, &header, &main, "").into_string()).into_response()
    }
}

/// A page for visitors who may not be logged in, at any address: `root` leads to the other pages.
pub(crate) fn bare(title: &str, content: &Markup, root: &str) -> Html<String> {
    let header = html! { header.top { span.brand { "Delayline" } } };
    Html(document(title, &ICON.name, &header, content, root).into_string())
}

fn document(title: &str, icon: &str, header: &Markup, main: &Markup, root: &str) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                title { (title) " - Delayline" }
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                link rel="icon" type="image/svg+xml" href={ (root) (icon) };
                link rel="stylesheet" href={ (root) (STYLE.name) };
                script src={ (root) (SCRIPT.name) } defer {}
            }
            body {
                a.skip href="#main" { "Skip to the content" }
                (header)
                main id="main" tabindex="-1" { (main) }
                footer {
                    "Times are by the clock of the queue's server, in " (zone().name()) ". "
                    a href={ (root) "zone" } { "Time zone" }
                }
            }
        }
    }
}

/// The last action, by a word from a fixed list: a link cannot put other words here.
fn notice(context: &Context) -> Markup {
    let number = |name: &str| context.params.text(name)?.parse::<u32>().ok();
    let Some(word) = context.params.text("note") else { return html! {} };
    let Some((_, good, text)) = NOTICES.into_iter().find(|(known, ..)| *known == word) else {
        return html! {};
    };
    html! {
        p.notice.good[good] role="status" {
            (text)
            @if let Some(done) = number("done") { " Messages: " (done) "." }
            @if let Some(rest) = number("rest").filter(|rest| *rest > 0) {
                " Not done, because they had changed meanwhile: " (rest) "."
            }
        }
    }
}

pub(crate) const STATES: [(&str, &str); 3] =
    [("scheduled", "Scheduled"), ("ready", "Ready"), ("leased", "With workers")];

const NOTICES: [(&str, bool, &str); 25] = [
    ("created", true, "Sent."),
    ("edited", true, "Redriven with the new content."),
    ("duplicate", false, "Nothing was changed: the queue knows this message already."),
    (
        "conflict",
        false,
        "Nothing was changed: the queue knows this id with different content. Choose another id.",
    ),
    ("following", false, "A worker holds the message. The new content takes its place afterwards."),
    ("too_many_throttled", false, "Nothing was changed: the queue throttles too many ids."),
    ("zone", true, "Times are shown and read in this time zone from now on."),
    ("paused", true, "Paused: nothing is delivered until the queue is resumed."),
    ("resumed", true, "Resumed."),
    ("limited", true, "The limits have been changed."),
    ("schedule_paused", true, "The schedule is paused: it sends nothing until it is resumed."),
    ("schedule_resumed", true, "The schedule is resumed. Its next instant is the first from now."),
    ("schedule_removed", true, "The schedule is removed."),
    ("schedule_sent", true, "The message of the schedule has been sent."),
    (
        "schedule_not_sent",
        false,
        "Nothing was sent: the message of an earlier instant is not finished.",
    ),
    ("schedule_not_found", false, "Nothing was changed: the schedule no longer exists."),
    ("cancelled", true, "Cancelled."),
    ("rescheduled", true, "Rescheduled."),
    ("redriven", true, "Redriven."),
    ("purged", true, "Deleted."),
    (
        "in_flight",
        false,
        "A worker holds the message. If you cancelled it, the worker has been asked to stop, and \
         the message ends unless the worker acks it first.",
    ),
    ("dead", false, "Nothing was changed: it is a dead letter. Redrive it instead."),
    ("not_dead", false, "Nothing was changed: it is not a dead letter."),
    ("unreadable", false, "Nothing was changed: its record cannot be read."),
    ("not_found", false, "Nothing was changed: the message no longer exists."),
];
