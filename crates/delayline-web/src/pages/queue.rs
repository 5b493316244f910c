//! One queue.

use axum::response::Response;
use delayline::Forecast;
use delayline_json::FORECAST_DELAYS;
use maud::{Markup, html};

use super::layout::Frame;
use super::parts::{bar, number};
use crate::Role;
use crate::context::{Context, counted};
use crate::failure::Failure;
use crate::ids::encoded;
use crate::live::stamp;
use crate::when::time;

pub(super) async fn page(context: Context) -> Result<Response, Failure> {
    let (name, queue) = context.queue()?;
    let latest = context.shared.queues.get(name).filter(|_| context.is_live());
    let counts = match latest {
        Some(latest) => latest.counts().await,
        None => None,
    };
    let (stats, now) = match counts {
        Some(counts) => counts,
        None => counted(queue).await?,
    };
    let delays = delayline_json::forecast_delays(FORECAST_DELAYS).map_err(Failure::Wrong)?;
    let forecast = queue.forecast(delays);
    let forecast = match latest {
        Some(latest) => latest.forecast(forecast).await,
        None => Some(forecast.await?),
    };
    let of = encoded(name.as_bytes());
    let content = html! {
        div data-part="counts" {
            h1 { (name) @if stats.paused { " " span.badge.warn { "paused" } } }
            (bar(&stats))
            ul.tiles {
                @for (class, label, link, count) in [
                    ("scheduled", "Scheduled", "messages?state=scheduled", stats.scheduled),
                    ("ready", "Ready", "messages?state=ready", stats.ready),
                    ("leased", "With workers", "messages?state=leased", stats.leased),
                    ("dead", "Dead letters", "dead?", stats.dead),
                ] {
                    li class=(class) {
                        a href=(format!("{link}&queue={of}")) {
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
            @if context.may(Role::Operator) {
                @let action = if stats.paused { "resume" } else { "pause" };
                form method="post" action=(format!("{action}?queue={of}")) {
                    button { (if stats.paused { "Resume deliveries" } else { "Pause deliveries" }) }
                }
            }
        }
        @if let Some(forecast) = &forecast {
            section data-part="forecast" {
                h2 { "What falls due" }
                (coming(forecast))
            }
        }
        section {
            h2 { "Find a message" }
            form.line method="get" action="message" {
                input type="hidden" name="queue" value=(name);
                label { "Id " input name="id" required maxlength="384" autocomplete="off"; }
                button { "Show" }
            }
        }
        section data-part="totals" {
            h2 { "Since the queue was created" }
            dl.facts {
                @for (label, count) in [
                    ("Sent", stats.totals.enqueued),
                    ("Acked", stats.totals.acked),
                    ("Cancelled", stats.totals.cancelled),
                    ("Purged", stats.totals.purged),
                    ("Relayed", stats.totals.relayed),
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

/// The waiting messages by when they are due, with a bar for each count.
fn coming(forecast: &Forecast) -> Markup {
    let delays = FORECAST_DELAYS.split(',').map(|delay| format!("Within {delay}"));
    let mut rows = vec![("Now".to_owned(), forecast.ready)];
    rows.extend(delays.zip(forecast.due.iter().copied()));
    rows.push(("Later".to_owned(), forecast.later));
    let most = rows.iter().map(|(_, count)| *count).max().unwrap_or_default().max(1);
    html! {
        table.forecast {
            thead { tr { th scope="col" { "Due" } th.number scope="col" { "Messages" } th {} } }
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
    }
}
