//! All queues, beginning with the queues that need an operator.

use axum::extract::OriginalUri;
use axum::http::StatusCode;
use axum::http::header::LOCATION;
use axum::response::{IntoResponse, Response};
use delayline_chart::short;
use delayline_json::{Figures, Span, harmless_line};
use maud::{Markup, html};

use super::layout::Frame;
use super::parts::{self, badges, in_words, number, overdue};
use super::spark::{late, sparkline};
use crate::context::Context;
use crate::directory::{MOST_KEYS, MOST_QUEUES, Search};
use crate::failure::told;
use crate::ids::encoded;
use crate::served::{Recent, timeline};
use crate::survey::{Need, Row, Survey};
use crate::when::span;
use crate::{Rights, Role};

/// Leads from the mount point of the router, with or without a slash at the end, to the page of all
/// queues. All other pages are next to it.
pub(super) async fn root(OriginalUri(uri): OriginalUri) -> Response {
    let last = uri.path().rsplit('/').next().unwrap_or_default();
    let to = if last.is_empty() { "queues".to_owned() } else { format!("{last}/queues") };
    (StatusCode::TEMPORARY_REDIRECT, [(LOCATION, to)]).into_response()
}

pub(super) async fn page(context: Context) -> Response {
    let survey = Survey::of(&context).await;
    let name = encoded(survey.filter.as_bytes());
    let trouble = survey.needs.iter().filter(|(need, _)| **need < Need::Stopped);
    let trouble: usize = trouble.map(|(_, count)| *count).sum();
    let content = html! {
        div.head {
            h1 { "Queues" }
            @if !context.known.queues.is_empty() {
                form.line method="get" action="queues" role="search" aria-label="Filter queues" {
                    label { span.unseen { "Name contains" }
                        input.time name="name" value=(survey.filter) maxlength="128"
                            autocomplete="off" placeholder="part of a name"; }
                    button { "Filter" }
                }
            }
        }
        div data-part="all" { (all(&survey)) }
        div data-part="queues" data-rows {
            @if context.known.queues.is_empty() { (nothing(&context)) }
            @else if survey.rows.is_empty() {
                p { "No queue has this name. " a href="queues" { "All queues" } }
            } @else {
                table.stack.queues {
                    thead { tr {
                        th scope="col" { "Queue" }
                        th scope="col" { div.ends { span { "6 h ago" } " " span { "in 6 h" } } }
                        @for head in COLUMNS { th.number scope="col" { (head) } }
                        th scope="col" { "Oldest" }
                    } }
                    tbody { @for it in &survey.rows { (row(&context, it)) } }
                }
            }
        }
        @if survey.pages() > 1 {
            nav.pages aria-label="Pages" {
                @for page in 1..=survey.pages() {
                    a href=(format!("queues?name={name}&page={page}"))
                        aria-current=[(page == survey.page).then_some("page")] { (page) }
                }
            }
        }
        @if let Some(search) = &context.known.search { (searched(search, context.visitor.rights)) }
    };
    let page = survey.page;
    let live = format!("live?rows=1&name={name}&page={page}&since={}", survey.stamp());
    let title = if trouble > 0 { format!("({trouble}) Queues") } else { "Queues".to_owned() };
    let frame =
        Frame { context: &context, title: &title, queue: None, here: "overview", live: Some(live) };
    frame.page_of(trouble > 0, &content)
}

const COLUMNS: [&str; 8] =
    ["Ready", "Scheduled", "Sent/min", "Acked/min", "99 % late", "Failed 1 h", "Dead", "Workers"];

/// Whether all is well, in a line.
fn all(survey: &Survey<'_>) -> Markup {
    let of = |need: Need| survey.needs.get(&need).copied().unwrap_or_default();
    let told = [
        (Need::Unread, "cannot be read", "cannot be read"),
        (Need::Worker, "has no listed worker", "have no listed worker"),
        (Need::Behind, "falls behind", "fall behind"),
        (Need::Stopped, "is stopped with messages due", "are stopped with messages due"),
    ];
    let told = told.into_iter().filter(|(need, ..)| of(*need) > 0).enumerate();
    let told: Vec<String> = told
        .map(|(n, (need, one, many))| {
            let verb = if of(need) == 1 { one } else { many };
            match (n, survey.matching) {
                (0, 1) => format!("The queue {verb}"),
                (0, all) => format!("{} of {all} queues {verb}", of(need)),
                _ => format!("{} {verb}", of(need)),
            }
        })
        .collect();
    html! {
        @match (survey.matching, told.is_empty()) {
            (0, _) => {}
            (1, true) => p.well { "The queue keeps up." },
            (all, true) => p.well { "All " (all) " queues keep up." },
            (_, false) => p.well.bad { (told.join(", ")) "." },
        }
    }
}

fn row(context: &Context, row: &Row<'_>) -> Markup {
    let of = encoded(row.name.as_bytes());
    html! {
        tr.needy[row.need < Need::Nothing] data-part=(format!("row {}", row.name)) {
            th scope="row" {
                a href=(format!("queue?queue={of}")) { (parts::name(row.name)) }
                @if let Ok(recent) = &row.recent { (badges(&of, &recent.stats)) }
                @if row.need == Need::Worker { " " span.badge.alarm { "no listed worker" } }
            }
            @match &row.recent {
                Ok(recent) => (cells(&of, recent, row.handlers)),
                Err(failure) => td.error colspan="10" {
                    (harmless_line(&failure.detail_for(context.visitor.rights)))
                },
            }
        }
    }
}

fn cells(of: &str, recent: &Recent, handlers: Option<u32>) -> Markup {
    let Recent { stats, now, history, ahead } = recent;
    let figures = history.as_ref().map(|history| Figures::of(stats, *now, history));
    let steps = history.as_ref().map(|it| timeline(Span::SixHours, it, ahead.as_ref()));
    let figure = |of: fn(&Figures) -> String| figures.as_ref().map_or_else(|| "-".to_owned(), of);
    // Nothing is a link that has nothing behind it.
    let count = |label: &str, link: &str, count: u64, class: &str| {
        html! {
            td.number data-label=(label) {
                @if count > 0 { a class=(class) href=(format!("{link}queue={of}")) { (number(count)) } }
                @else { span.none { "0" } }
            }
        }
    };
    let plain = |label: &str, text: String| {
        let is_none = matches!(&*text, "0" | "-");
        html! { td.number data-label=(label) { span.none[is_none] { (text) } } }
    };
    html! {
        td.chart {
            @if let Some(steps) = &steps { (sparkline(steps, &in_words(stats))) }
            @else { span.unseen { (in_words(stats)) } }
        }
        (count("Ready", "messages?state=ready&", stats.ready, ""))
        (count("Scheduled", "messages?state=scheduled&", stats.scheduled, ""))
        (plain("Sent/min", figure(|it| short(it.sent_a_minute))))
        (plain("Acked/min", figure(|it| short(it.done_a_minute))))
        (plain("99 % late", figure(|it| late(&it.lateness).unwrap_or_else(|| "-".to_owned()))))
        (plain("Failed 1 h", figure(|it| number(it.failed))))
        (count("Dead", "dead?", stats.dead, "dead"))
        td.number data-label="Workers" {
            @match (handlers, stats.leased) {
                (Some(handlers), _) if handlers > 0 => a href="workers" { (number(handlers.into())) },
                (None, leased) if leased > 0 => a href="workers" { "active" },
                (Some(_), _) => span.none { "0" },
                (None, _) => span.none { "-" },
            }
        }
        td data-label="Oldest" { (overdue(stats, *now)) }
    }
}

/// What to do on a server without queues.
fn nothing(context: &Context) -> Markup {
    html! {
        section.first {
            h2 { "There are no queues here." }
            @if context.known.search.is_some() {
                p { "The first message creates its queue, which appears here within about a minute:" }
                pre tabindex="0" { "delayline send --queue orders --payload '{\"order\":1234}' --delay 10m" }
                @if context.may(Role::Operator) {
                    p { "Or over HTTP, to the address of this page:" }
                    pre tabindex="0" { "curl -d '{\"payload\":{\"order\":1234},\"delay\":\"10m\"}' \\\n  -H 'content-type: application/json' .../api/v1/queues/orders/messages" }
                }
            } @else {
                p { "Name the queues when the dashboard starts, or let it search for them: "
                    code { "delayline serve --all" } }
            }
        }
    }
}

/// When the list of queues was read, and which queues it lacks.
fn searched(search: &Search, rights: Rights) -> Markup {
    html! {
        @match search.read {
            Some(read) => p.far {
                "The list of queues was read " (span(read.elapsed())) " ago. A new queue appears \
                 in it within about a minute after its first message."
            },
            None if search.failure.is_none() => p { "The list of queues is being read. Reload the page." },
            None => {}
        }
        @if let Some(why) = &search.failure {
            p.alert role="alert" { "The queues of the server cannot be listed: " (harmless_line(&told(why, rights))) "." }
        }
        @if let Some(why) = &search.unread {
            p.alert role="alert" {
                "The queues of some servers cannot be listed: " (harmless_line(&told(why, rights)))
                ". Previously listed queues are still shown."
            }
        }
        @if search.cut {
            p.notice {
                "There may be more queues: the server has more than " (number(MOST_KEYS)) " keys, and \
                 the search stops there. Queues that were added by name are always listed."
            }
        }
        @if search.left_out > 0 {
            p.notice {
                "At most " (MOST_QUEUES) " queues are looked for, and " (search.left_out)
                " more were found. Queues that were added by name are always listed."
            }
        }
        @if !search.refused.is_empty() {
            p.notice { "Some queues cannot be opened:" }
            ul.plain {
                @for (name, why) in &search.refused { li { (name) ": " (harmless_line(&told(why, rights))) } }
            }
        }
    }
}
