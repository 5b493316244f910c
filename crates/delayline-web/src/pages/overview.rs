//! All queues.

use axum::extract::OriginalUri;
use axum::http::StatusCode;
use axum::http::header::LOCATION;
use axum::response::{IntoResponse, Response};
use maud::html;

use super::layout::Frame;
use super::parts::{bar, number, overdue};
use crate::context::Context;
use crate::ids::encoded;
use crate::live::stamp;

/// Leads from where the router is mounted, with or without a slash at the end, to the page of all
/// queues, beside which all other pages stand.
pub(super) async fn root(OriginalUri(uri): OriginalUri) -> Response {
    let last = uri.path().rsplit('/').next().unwrap_or_default();
    let to = if last.is_empty() { "queues".to_owned() } else { format!("{last}/queues") };
    (StatusCode::TEMPORARY_REDIRECT, [(LOCATION, to)]).into_response()
}

pub(super) async fn page(context: Context) -> Response {
    let is_live = context.is_live();
    let all = context.shared.queues.iter();
    let all = all.map(|(name, served)| async move { (name, served.counts_for(is_live).await) });
    let counts = futures_util::future::join_all(all).await;
    let known: Vec<_> = counts.iter().map(|(_, it)| it.as_ref().ok().map(|it| it.0)).collect();
    let content = html! {
        h1 { "Queues" }
        @if counts.is_empty() { p { "There are no queues here." } } @else {
            table.stack data-part="queues" {
                thead { tr {
                    th scope="col" { "Queue" }
                    th scope="col" { "Messages" }
                    @for head in ["Scheduled", "Ready", "With workers", "Dead"] {
                        th.number scope="col" { (head) }
                    }
                    th scope="col" { "Oldest" }
                    th.number scope="col" { "Sent" }
                    th.number scope="col" { "Acked" }
                } }
                tbody {
                    @for (name, counts) in &counts {
                        @let of = encoded(name.as_bytes());
                        tr {
                            th scope="row" {
                                a href=(format!("queue?queue={of}")) { (name) }
                                @if counts.as_ref().is_ok_and(|(stats, _)| stats.paused) {
                                    " " span.badge.warn { "paused" }
                                }
                            }
                            @match counts {
                                Ok((stats, now)) => {
                                    td data-label="Messages" { (bar(stats)) }
                                    @for (label, link, count) in [
                                        ("Scheduled", "messages?state=scheduled", stats.scheduled),
                                        ("Ready", "messages?state=ready", stats.ready),
                                        ("With workers", "messages?state=leased", stats.leased),
                                        ("Dead", "dead?", stats.dead),
                                    ] {
                                        td.number data-label=(label) {
                                            a href=(format!("{link}&queue={of}")) { (number(count)) }
                                        }
                                    }
                                    td data-label="Oldest" { (overdue(stats, *now)) }
                                    td.number data-label="Sent" { (number(stats.totals.enqueued)) }
                                    td.number data-label="Acked" { (number(stats.totals.acked)) }
                                }
                                Err(failure) => {
                                    td.error colspan="8" { (failure.detail()) }
                                }
                            }
                        }
                    }
                }
            }
        }
    };
    let live = Some(format!("live?since={}", stamp(&known)));
    Frame { context: &context, title: "Queues", queue: None, here: "overview", live }.page(&content)
}
