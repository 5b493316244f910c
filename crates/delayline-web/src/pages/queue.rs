//! One queue.

use axum::response::Response;
use maud::html;

use super::layout::Frame;
use super::parts::{bar, number};
use crate::Role;
use crate::context::{Context, counted};
use crate::failure::Failure;
use crate::ids::encoded;
use crate::when::time;

pub(super) async fn page(context: Context) -> Result<Response, Failure> {
    let (name, queue) = context.queue()?;
    let (stats, now) = counted(queue).await?;
    let of = encoded(name.as_bytes());
    let content = html! {
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
        section {
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
        section {
            h2 { "Find a message" }
            form.line method="get" action="message" {
                input type="hidden" name="queue" value=(name);
                label { "Id " input name="id" required maxlength="384" autocomplete="off"; }
                button { "Show" }
            }
        }
        section {
            h2 { "Since the queue was created" }
            dl.facts {
                @for (label, count) in [
                    ("Sent", stats.enqueued_total),
                    ("Acked", stats.acked_total),
                    ("Cancelled", stats.cancelled_total),
                    ("Purged", stats.purged_total),
                    ("Expired", stats.expired_total),
                ] {
                    div { dt { (label) } dd { (number(count)) } }
                }
            }
        }
    };
    Ok(Frame { context: &context, title: name, queue: Some(name), here: "queue" }.page(&content))
}
