//! Dead letters, the oldest death first.

use axum::response::Response;
use delayline::{MessageInfo, Status, Timestamp};
use delayline_json::Cursor;
use maud::{Markup, html};

use super::layout::Frame;
use super::messages::PAGE;
use super::parts::{COLUMNS, row};
use crate::Role;
use crate::context::Context;
use crate::failure::Failure;
use crate::ids::encoded;

pub(super) async fn page(context: Context) -> Result<Response, Failure> {
    let (name, queue) = context.queue()?;
    let mut listing = queue.list(Status::Dead).page_size(PAGE);
    let cursor = context.cursor()?;
    if let Some(cursor) = cursor {
        if cursor.status != Status::Dead {
            return Err(Failure::Wrong("`after` belongs to another state".to_owned()));
        }
        listing = cursor.position.map_or_else(|| listing.clone(), |at| listing.clone().after(at));
    }
    let letters = listing.next_page().await?.unwrap_or_default();
    let now = queue.server_time().await?;
    let letters = context.redacted(name, letters);
    let next = listing.position().map(|at| Cursor { status: Status::Dead, position: Some(at) });
    let of = encoded(name.as_bytes());
    let content = html! {
        h1 { "Dead letters" }
        @if letters.is_empty() { p { "There are none." } }
        @else if context.may(Role::Operator) { (form(&context, name, now, &letters, cursor)) }
        @else { (table(name, now, &letters, false)) }
        nav.pages aria-label="Pages" {
            @if cursor.is_some() { a href=(format!("dead?queue={of}")) { "First page" } }
            @if let Some(next) = next {
                a rel="next" href=(format!("dead?queue={of}&after={next}")) { "Next page" }
            }
        }
    };
    let title = "Dead letters";
    Ok(Frame { context: &context, title, queue: Some(name), here: "dead", live: None }
        .page(&content))
}

/// The letters with a box each, and what can be done to those that are selected or to all of them.
fn form(
    context: &Context,
    queue: &str,
    now: Timestamp,
    letters: &[MessageInfo],
    cursor: Option<Cursor>,
) -> Markup {
    let of = encoded(queue.as_bytes());
    let after = cursor.map(|cursor| format!("&after={cursor}")).unwrap_or_default();
    let to = |action: &str| format!("{action}?queue={of}{after}");
    html! {
        form method="post" action=(to("redrive")) {
            div.actions {
                button name="scope" value="selected" { "Redrive selected" }
                button name="scope" value="page" { "Redrive these " (letters.len()) }
                @if context.may(Role::Admin) {
                    button.danger name="scope" value="selected" formaction=(to("purge")) {
                        "Delete selected..."
                    }
                    button.danger name="scope" value="page" formaction=(to("purge")) {
                        "Delete these " (letters.len()) "..."
                    }
                }
                label hidden { input type="checkbox" data-all; " Select all" }
            }
            @for letter in letters {
                input type="hidden" name="page" value=(encoded(letter.id.as_bytes()));
            }
            (table(queue, now, letters, true))
        }
    }
}

fn table(queue: &str, now: Timestamp, letters: &[MessageInfo], boxes: bool) -> Markup {
    html! {
        table.stack {
            thead { tr {
                @if boxes { th scope="col" { span.unseen { "Tick" } } }
                @for (head, number) in COLUMNS { th.number[number] scope="col" { (head) } }
            } }
            tbody {
                @for letter in letters {
                    @let tick = html! { td.tick {
                        input type="checkbox" name="id" value=(encoded(letter.id.as_bytes()))
                            aria-label=(format!("Tick {}", letter.id));
                    } };
                    @let none = html! {};
                    (row(queue, now, letter, if boxes { &tick } else { &none }))
                }
            }
        }
    }
}
