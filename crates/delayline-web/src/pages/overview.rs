//! All queues.

use axum::extract::OriginalUri;
use axum::http::StatusCode;
use axum::http::header::LOCATION;
use axum::response::{IntoResponse, Response};
use delayline::admin::Stats;
use delayline_json::{Span, harmless_line};
use maud::{Markup, html};

use super::charts;
use super::layout::Frame;
use super::parts::{self, bar, number, overdue};
use crate::Rights;
use crate::context::Context;
use crate::directory::{MOST_KEYS, MOST_QUEUES, Search};
use crate::failure::told;
use crate::ids::encoded;
use crate::live::stamp;
use crate::when::span;

/// Leads from the mount point of the router, with or without a slash at the end, to the page of all
/// queues. All other pages are next to it.
pub(super) async fn root(OriginalUri(uri): OriginalUri) -> Response {
    let last = uri.path().rsplit('/').next().unwrap_or_default();
    let to = if last.is_empty() { "queues".to_owned() } else { format!("{last}/queues") };
    (StatusCode::TEMPORARY_REDIRECT, [(LOCATION, to)]).into_response()
}

pub(super) async fn page(context: Context) -> Response {
    let is_live = context.is_live();
    let all = context.known.queues.iter();
    let all = all.map(|(name, served)| async move {
        let counts = served.counts_for(is_live).await;
        let history = match counts {
            Ok(_) => served.recent_history(Span::SixHours).await,
            Err(_) => None,
        };
        (name, counts, history)
    });
    let counts = futures_util::future::join_all(all).await;
    let known: Vec<_> = counts.iter().map(|(_, it, _)| it.as_ref().ok().map(|it| it.0)).collect();
    let content = html! {
        h1 { "Queues" }
        div data-part="queues" {
        @if counts.is_empty() { p { "There are no queues here." } } @else {
            table.stack.queues {
                thead { tr {
                    th scope="col" { "Queue" }
                    th scope="col" { "Messages" }
                    @for head in ["Scheduled", "Ready", "With workers", "Dead"] {
                        th.number scope="col" { (head) }
                    }
                    th scope="col" { "Oldest" }
                    th scope="col" { "Sent in 6 h" }
                    th.number scope="col" { "Sent" }
                    th.number scope="col" { "Acked" }
                } }
                tbody {
                    @for (name, counts, history) in &counts {
                        @let of = encoded(name.as_bytes());
                        tr {
                            th scope="row" {
                                a href=(format!("queue?queue={of}")) { (parts::name(name)) }
                                @if let Ok((stats, _)) = counts { (badges(&of, stats)) }
                            }
                            @match counts {
                                Ok((stats, now)) => {
                                    td data-label="Messages" { (bar(stats)) }
                                    @for (label, link, count) in [
                                        ("Scheduled", "messages?state=scheduled&", stats.scheduled),
                                        ("Ready", "messages?state=ready&", stats.ready),
                                        ("With workers", "messages?state=leased&", stats.leased),
                                        ("Dead", "dead?", stats.dead),
                                    ] {
                                        td.number data-label=(label) {
                                            a href=(format!("{link}queue={of}")) { (number(count)) }
                                        }
                                    }
                                    td data-label="Oldest" { (overdue(stats, *now)) }
                                    td.spark data-label="Sent in 6 h" {
                                        @if let Some(history) = history {
                                            (charts::sparkline(history))
                                        }
                                    }
                                    td.number data-label="Sent" { (number(stats.totals.enqueued)) }
                                    td.number data-label="Acked" { (number(stats.totals.acked)) }
                                }
                                Err(failure) => {
                                    td.error colspan="9" {
                                        (harmless_line(&failure.detail_for(context.visitor.rights)))
                                    }
                                }
                            }
                        }
                    }
                }
            }
        }
            @if let Some(search) = &context.known.search { (searched(search, context.visitor.rights)) }
        }
    };
    let live = Some(format!("live?since={}", stamp(&known)));
    Frame { context: &context, title: "Queues", queue: None, here: "overview", live }.page(&content)
}

/// What limits the deliveries of a queue.
fn badges(of: &str, stats: &Stats) -> Markup {
    let limits = &stats.limits;
    html! {
        @if stats.paused { " " span.badge.warn { "paused" } }
        @if limits.held_until.is_some() { " " span.badge.warn { "held" } }
        @if limits.leased.is_some() || limits.each_group.is_some() || limits.in_order
            || limits.rate.is_some()
        {
            " " a.badge href=(format!("queue?queue={of}#limits")) { "limited" }
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
