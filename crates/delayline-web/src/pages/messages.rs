//! The messages of one state.

use axum::response::Response;
use delayline::Timestamp;
use delayline::admin::Listed;
use delayline::message::{MessageInfo, MessageState};
use delayline_json::Cursor;
use maud::{Markup, html};

use super::layout::{Frame, STATES};
use super::parts::{COLUMNS, PAGE, number, row};
use super::window::{self, Window};
use crate::context::Context;
use crate::failure::Failure;
use crate::ids::encoded;
use crate::when::time;

pub(super) async fn page(context: Context) -> Result<Response, Failure> {
    let (name, served) = context.served(context.params.text("queue").unwrap_or_default())?;
    let asked = context.params.text("state").unwrap_or("scheduled");
    let (status, title) = match asked {
        "scheduled" => (Listed::Scheduled, STATES[0].1),
        "ready" => (Listed::Ready, STATES[1].1),
        "leased" => (Listed::Leased, STATES[2].1),
        _ => return Err(Failure::Wrong("`state` is scheduled, ready or leased".to_owned())),
    };
    let cursor = context.cursor()?;
    if cursor.is_some_and(|cursor| cursor.status != status) {
        return Err(Failure::Wrong("`after` belongs to another state".to_owned()));
    }
    // The counts have the server's time.
    let (stats, now) = served.counts_for(false).await?;
    let window = Window::asked(&context.params, now, status)?;
    let position = cursor.and_then(|cursor| cursor.position);
    let (messages, next) = match &window {
        Some(window) => window.page(&served.queue, status, position).await?,
        None => {
            let mut listing = served.queue.list(status).page_size(PAGE);
            if let Some(position) = position {
                listing = listing.after(position);
            }
            (listing.next_page().await?.unwrap_or_default(), listing.position())
        }
    };
    let messages = context.redacted(name, messages);
    let next = next.map(|at| Cursor { status, position: Some(at) });
    let of = encoded(name.as_bytes());
    let rest = window.as_ref().map(Window::query).unwrap_or_default();
    let coming = match &window {
        Some(_) if status == Listed::Scheduled && position.is_none() && next.is_none() => {
            Some((u64::try_from(messages.len()).unwrap_or(u64::MAX), true))
        }
        Some(window) if status == Listed::Scheduled => Some(window.coming(&served.queue).await?),
        _ => None,
    };
    let content = html! {
        h1 { (title) }
        @if status == Listed::Leased && stats.leased > 0 {
            // The list is in the order of the ends.
            @let first = messages.first().filter(|_| position.is_none() && window.is_none());
            (leases(stats.leased, now, first))
        }
        @if status != Listed::Ready { (window::jump(name, asked, window.as_ref())) }
        @if let Some(window) = &window { (window.told(now, coming, stats.ready)) }
        @if messages.is_empty() { p { "There are none." } } @else {
            table.stack {
                thead { tr {
                    @for (head, number) in COLUMNS { th.number[number] scope="col" { (head) } }
                } }
                tbody { @for info in &messages { (row(name, now, info, &html! {})) } }
            }
        }
        nav.pages aria-label="Pages" {
            @if position.is_some() {
                a href=(format!("messages?queue={of}&state={asked}{rest}")) { "First page" }
            }
            @if let Some(next) = next {
                a rel="next" href=(format!("messages?queue={of}&state={asked}&after={next}{rest}")) {
                    "Next page"
                }
            }
        }
    };
    let frame =
        Frame { context: &context, title, queue: Some(name), here: status.name(), live: None };
    Ok(frame.page(&content))
}

/// How many leases there are, and when the first of them ends.
fn leases(count: u64, now: Timestamp, first: Option<&MessageInfo>) -> Markup {
    html! {
        p {
            "Leases: " (number(count)) ", in the order in which they end."
            @if let Some(MessageState::Leased { deadline, .. }) = first.map(|info| info.state) {
                " The first one ends at " (time(now, deadline)) "."
            }
        }
        p {
            "If a worker neither finishes nor extends its lease, the message is delivered again. "
            a href="workers" { "Workers" } " shows which process holds which message."
        }
    }
}
