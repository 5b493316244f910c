//! Dead letters, the oldest death or the newest first.

use axum::response::Response;
use delayline::Timestamp;
use delayline::admin::{DeadLetterFilter, Listed, Position};
use delayline::message::MessageInfo;
use delayline_admin::GroupOrder;
use delayline_json::Cursor;
use maud::{Markup, html};

use super::bulk::tools;
use super::dead_views::{newest_first, order_query, views};
use super::layout::Frame;
use super::letters::{Source, source};
use super::parts::{COLUMNS, PAGE, row};
use crate::Role;
use crate::asked::Asked;
use crate::context::Context;
use crate::failure::Failure;
use crate::ids::encoded;
use crate::latest::stamp;

pub(super) async fn page(context: Context) -> Result<Response, Failure> {
    let (name, served) = context.served(context.params.text("queue").unwrap_or_default())?;
    let (stats, now) = served.counts_for(context.is_live()).await?;
    let asked = Asked::in_params(&context.params, now)?;
    let newest = newest_first(&context.params)?;
    let cursor = context.cursor()?;
    if cursor.is_some_and(|cursor| cursor.status != Listed::Dead) {
        return Err(Failure::Wrong("`after` belongs to another state".to_owned()));
    }
    let wanted = asked.filter()?.at(now);
    let position = cursor.and_then(|it| it.position);
    let source = source(&served.queue, now, PAGE, &wanted, newest, position);
    let found = find(&context, name, &wanted, source).await?;
    let next = found.next.map(|at| Cursor { status: Listed::Dead, position: Some(at) });
    let of = encoded(name.as_bytes());
    let order = if newest { GroupOrder::Newest } else { GroupOrder::Oldest };
    let rest = asked.query() + order_query(newest);
    let letters = &found.letters;
    let content = html! {
        h1 { "Dead letters" }
        (views(&of, Some(order), None, &asked.query()))
        (tools(&context, name, &asked, newest))
        div data-part="letters" {
            @if letters.is_empty() {
                @if asked.is_everything() { p { "There are none." } }
                @else { p { "None of the " (found.examined) " that were examined match." } }
            }
            @else if context.may(Role::Operator) {
                (form(&context, name, now, letters, cursor, &rest))
            }
            @else { (table(name, now, letters, false)) }
            nav.pages aria-label="Pages" {
                @if cursor.is_some() { a href=(format!("dead?queue={of}{rest}")) { "First page" } }
                @if let Some(next) = next {
                    a rel="next" href=(format!("dead?queue={of}&after={next}{rest}")) { "Next page" }
                }
            }
        }
    };
    let title = "Dead letters";
    let live = Some(format!("live?queue={of}&since={}", stamp(&[Some(stats)])));
    Ok(Frame { context: &context, title, queue: Some(name), here: "dead", live }.page(&content))
}

/// Letters that match, as the visitor may see them.
struct Found {
    letters: Vec<MessageInfo>,
    examined: usize,
    next: Option<Position>,
}

/// A page of matching dead letters, from a bounded number of letters that were examined.
async fn find(
    context: &Context,
    queue: &str,
    wanted: &DeadLetterFilter,
    mut source: Source,
) -> Result<Found, Failure> {
    let (mut letters, mut examined) = (Vec::new(), 0);
    while letters.len() < PAGE && examined < MOST_EXAMINED {
        let Some(page) = source.next_page().await? else { break };
        examined += page.len();
        let page = context.redacted(queue, page);
        let over = page.last().is_some_and(|letter| source.is_over(wanted, letter));
        letters.extend(page.into_iter().filter(|letter| wanted.matches(letter)));
        if over {
            return Ok(Found { letters, examined, next: None });
        }
    }
    Ok(Found { letters, examined, next: source.position() })
}

/// The letters with a box each, and the actions for the selected ones or for all of them.
fn form(
    context: &Context,
    queue: &str,
    now: Timestamp,
    letters: &[MessageInfo],
    cursor: Option<Cursor>,
    rest: &str,
) -> Markup {
    let of = encoded(queue.as_bytes());
    let after = cursor.map(|cursor| format!("&after={cursor}")).unwrap_or_default();
    let to = |action: &str| format!("{action}?queue={of}{after}{rest}");
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

/// Letters that one page looks at. What must look at more is a job.
const MOST_EXAMINED: usize = 1_000;
