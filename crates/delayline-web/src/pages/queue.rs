//! One queue.

use axum::response::Response;
use delayline::Timestamp;
use delayline::admin::{Forecast, Limits, Stats};
use delayline_json::{self as json, FORECAST_DELAYS};
use maud::{Markup, html};

use super::layout::Frame;
use super::parts::{bar, number};
use super::{charts, lateness, limits, window};
use crate::Role;
use crate::context::Context;
use crate::failure::Failure;
use crate::ids::encoded;
use crate::live::stamp;
use crate::when::{span as duration, time};

pub(super) async fn page(context: Context) -> Result<Response, Failure> {
    let (name, served) = context.served(context.params.text("queue").unwrap_or_default())?;
    let is_live = context.is_live();
    let span = charts::span(context.params.text("span"))?;
    let (stats, now) = served.counts_for(is_live).await?;
    let forecast = served.forecast_for(is_live).await?;
    let history = served.history_for(span, is_live).await?;
    let of = encoded(name.as_bytes());
    let content = html! {
        div data-part="counts" {
            h1 {
                (name)
                @if stats.paused { " " span.badge.warn { "paused" } }
                @if stats.limits.held_until.is_some() { " " span.badge.warn { "held" } }
            }
            (bar(&stats))
            ul.tiles {
                @for (class, label, link, count) in [
                    ("scheduled", "Scheduled", "messages?state=scheduled&", stats.scheduled),
                    ("ready", "Ready", "messages?state=ready&", stats.ready),
                    ("leased", "With workers", "messages?state=leased&", stats.leased),
                    ("dead", "Dead letters", "dead?", stats.dead),
                ] {
                    li class=(class) {
                        a href=(format!("{link}queue={of}")) {
                            span { (label) } strong { (number(count)) }
                        }
                    }
                }
            }
        }
        section data-part="deliveries" {
            h2 { "Deliveries" }
            @match stats.earliest_due {
                Some(due) if due <= now => p {
                    "The oldest waiting message has been due since " (time(now, due)) "."
                },
                Some(due) => p { "The next message is due at " (time(now, due)) "." },
                None => p { "No messages are waiting." },
            }
            @if stats.paused {
                p { "Paused: nothing is delivered until the queue is resumed." }
            }
            (limited(&stats, now))
            @if context.may(Role::Operator) {
                @let action = if stats.paused { "resume" } else { "pause" };
                form method="post" action=(format!("{action}?queue={of}")) {
                    button { (if stats.paused { "Resume deliveries" } else { "Pause deliveries" }) }
                }
            }
        }
        @if context.may(Role::Operator) { (limits::forms(name, &stats.limits)) }
        @if let Some(forecast) = &forecast {
            section data-part="forecast" {
                h2 { "What falls due" }
                (coming(forecast))
            }
        }
        section {
            h2 { "What falls due in a window of time" }
            (window::jump(name, "scheduled", None))
        }
        (charts::spans(&of, span))
        @if let Some(history) = &history {
            section data-part="history" {
                h2 { "In the last " (charts::words(span)) }
                (charts::flow(span, history))
            }
            section data-part="depth" {
                h2 { "Number of messages" }
                (charts::depth(span, history))
            }
            section data-part="lateness" {
                h2 { "Lateness of deliveries" }
                (lateness::plot(span, history))
            }
        }
        section {
            h2 { "Find or send a message" }
            form.line method="get" action="message" {
                input type="hidden" name="queue" value=(name);
                label { "Id " input name="id" required maxlength="384" autocomplete="off"; }
                button { "Show" }
            }
            @if context.may(Role::Operator) {
                p { a href=(format!("send?queue={of}")) { "Send a message" } }
            }
        }
        section data-part="totals" {
            h2 { "Since the queue was created" }
            dl.facts {
                @for (label, count) in [
                    ("Sent", stats.totals.enqueued),
                    ("Delivered", stats.totals.delivered()),
                    ("Acked", stats.totals.acked),
                    ("Failed", stats.totals.failed),
                    ("Leases expired", stats.totals.crashed),
                    ("Died", stats.totals.died()),
                    ("Redriven", stats.totals.redriven),
                    ("Cancelled", stats.totals.cancelled),
                    ("Purged", stats.totals.purged),
                    ("Relayed", stats.totals.relayed),
                    ("Replaced", stats.totals.replaced),
                    ("Expired", stats.totals.died_expired),
                ] {
                    div { dt { (label) } dd { (number(count)) } }
                }
            }
        }
    };
    let live = Some(format!("live?queue={of}&since={}", stamp(&[Some(stats)])));
    let frame = Frame { context: &context, title: name, queue: Some(name), here: "queue", live };
    Ok(frame.page(&content))
}

/// The limits of a queue in words, and how much of them is used.
fn limited(stats: &Stats, now: Timestamp) -> Markup {
    let Limits { leased, each_group, in_order, rate, held_until, .. } = stats.limits;
    html! {
        @if let Some(until) = held_until {
            p { "Held: nothing is delivered until " (time(now, until)) "." }
        }
        @if let Some(most) = leased {
            p { (number(stats.leased)) " of " (number(most.into())) " leased: no more at once." }
        }
        @if let Some(most) = each_group {
            p { "At most " (number(most.into())) " of each group leased at once." }
        }
        @if in_order {
            p { "In order: the messages of a group are handled one after the other." }
        }
        @if let Some(rate) = rate {
            p {
                "At most " (number(rate.count.into())) " deliveries in "
                (duration(rate.per())) ", and " (number(rate.burst.into())) " at once."
            }
        }
    }
}

/// The waiting messages by when they are due, with a bar for each count.
fn coming(forecast: &Forecast) -> Markup {
    let delays = FORECAST_DELAYS.split(',').map(|delay| format!("Within {delay}"));
    let mut rows = vec![("Now".to_owned(), forecast.ready)];
    rows.extend(delays.zip(json::falling_due(forecast)));
    rows.push(("Later".to_owned(), forecast.later));
    let most = rows.iter().map(|(_, count)| *count).max().unwrap_or_default().max(1);
    html! {
        table.forecast {
            thead { tr { th scope="col" { "Due" } th.number scope="col" { "Messages" } td {} } }
            tbody {
                @for (label, count) in &rows {
                    tr {
                        th scope="row" { (label) }
                        td.number { (number(*count)) }
                        td {
                            svg.bar viewBox="0 0 1000 20" preserveAspectRatio="none" aria-hidden="true" {
                                rect.scheduled x="0" y="0" height="20"
                                    width=(u128::from(*count) * 1_000 / u128::from(most)) {}
                            }
                        }
                    }
                }
            }
        }
        p.far { "Each delay from now includes the shorter ones, but not messages that are due now." }
    }
}
