//! Audits of a queue's structures, and repairs: so many messages for each click.

use axum::extract::Request;
use axum::response::Response;
use delayline::{Bytes, Check, Finding, Op, Position, Queue, Raw, Reply, Timestamp, limits};
use delayline_json::{finding, harmless_line};
use maud::{Markup, html};

use super::layout::Frame;
use super::parts::number;
use crate::Role;
use crate::act::audit;
use crate::context::{Context, form};
use crate::failure::Failure;
use crate::ids::encoded;

/// The queues, and of one of them what a check has found.
pub(super) async fn page(context: Context) -> Result<Response, Failure> {
    let result = match context.params.text("queue") {
        None => html! {},
        Some(_) => {
            context.require(Role::Operator)?;
            let (name, queue) = context.queue()?;
            let stretch = examine(queue, after(&context)?, false).await?;
            report(&context, name, &stretch, false)
        }
    };
    Ok(frame(&context, &result))
}

/// Mends what a check finds.
pub(super) async fn repair(context: Context, request: Request) -> Result<Response, Failure> {
    context.require(Role::Admin)?;
    let (name, queue) = context.queue()?;
    let fields = form(request).await?;
    if fields.text("sure").is_none() {
        let content = html! {
            h1 { "Repair " (name) "?" }
            p { "Each message gets into the one place that it belongs to. What cannot be read \
                 becomes a dead letter. The queue may be in use meanwhile." }
            form method="post" {
                div.actions {
                    button name="sure" value="yes" { "Repair" }
                    a.button href="check" { "Back" }
                }
            }
        };
        let frame = Frame { context: &context, title: "Repair", queue: None, here: "check" };
        return Ok(frame.page(&content));
    }
    let result = examine(queue, after(&context)?, true).await;
    let said = match &result {
        Ok(stretch) => format!("mended {}", stretch.findings.len()),
        Err(failure) => failure.detail(),
    };
    audit(&context, "repair", name, 0, None, &said);
    let result = report(&context, name, &result?, true);
    Ok(frame(&context, &result))
}

fn frame(context: &Context, result: &Markup) -> Response {
    let content = html! {
        h1 { "Check" }
        p { "A check looks through all that is stored about a queue's messages, and changes nothing. \
             Workers may go on meanwhile." }
        (result)
        ul.plain {
            @for name in context.shared.queues.keys() {
                li {
                    (name) " "
                    @if context.may(Role::Operator) {
                        a.button href=(format!("check?queue={}", encoded(name.as_bytes()))) {
                            "Check " (name)
                        }
                    }
                }
            }
        }
    };
    Frame { context, title: "Check", queue: None, here: "check" }.page(&content)
}

/// A part of an audit.
struct Stretch {
    examined: u64,
    findings: Vec<Finding>,
    next: Option<Position>,
}

async fn examine(
    queue: &Queue<Bytes, Raw>,
    after: Option<Position>,
    repair: bool,
) -> Result<Stretch, Failure> {
    let mut stretch = Stretch { examined: 0, findings: Vec::new(), next: after };
    while stretch.examined < MOST_MESSAGES && stretch.findings.len() < MOST_FINDINGS {
        let check = Check { after: stretch.next, limit: limits::MAX_PAGE };
        let op = if repair { Op::Repair(check) } else { Op::Check(check) };
        let (Reply::Check(page) | Reply::Repair(page)) = queue.apply(&op).await?.reply else {
            return Err(Failure::Protocol);
        };
        stretch.examined = stretch.examined.saturating_add(page.examined);
        stretch.findings.extend(page.findings);
        let stuck = page.next == stretch.next;
        stretch.next = page.next.filter(|_| !stuck);
        if stretch.next.is_none() {
            break;
        }
    }
    Ok(stretch)
}

fn report(context: &Context, queue: &str, stretch: &Stretch, repaired: bool) -> Markup {
    let of = encoded(queue.as_bytes());
    let count = stretch.findings.len();
    let next = stretch.next.map(|Position { index, instant, sequence }| {
        format!("{index}:{}:{sequence}", instant.as_ms())
    });
    html! {
        section aria-live="polite" {
            h2 { (queue) }
            p {
                (number(stretch.examined)) " messages examined, "
                @match (count, repaired) {
                    (0, _) => "nothing is wrong.",
                    (_, false) => { (count) " faults." },
                    (_, true) => { (count) " faults repaired. Check again to be sure." },
                }
            }
            @if count > 0 {
                table {
                    thead { tr { th scope="col" { "Fault" } th scope="col" { "Of" } } }
                    tbody {
                        @for (what, detail) in stretch.findings.iter().map(finding) {
                            @let detail = detail.as_str().map_or_else(|| detail.to_string(), str::to_owned);
                            tr { td { (what.replace('_', " ")) } td.id { (harmless_line(&detail)) } }
                        }
                    }
                }
            }
            div.actions {
                @if let Some(next) = next {
                    @if repaired {
                        form method="post" action=(format!("repair?queue={of}&after={next}")) {
                            button name="sure" value="yes" { "Go on" }
                        }
                    } @else {
                        a.button href=(format!("check?queue={of}&after={next}")) { "Go on" }
                    }
                }
                @if count > 0 && !repaired && context.may(Role::Admin) {
                    form method="post" action=(format!("repair?queue={of}")) {
                        button { "Repair..." }
                    }
                }
            }
        }
    }
}

/// Where a check has stopped, also beyond the places that a list knows.
fn after(context: &Context) -> Result<Option<Position>, Failure> {
    let Some(text) = context.params.text("after") else { return Ok(None) };
    let position = read_place(text);
    position
        .map(Some)
        .ok_or_else(|| Failure::Wrong("`after` is not a position of a check".to_owned()))
}

fn read_place(text: &str) -> Option<Position> {
    let mut parts = text.split(':');
    let index = parts.next()?.parse().ok()?;
    let instant = Timestamp::from_ms(parts.next()?.parse().ok()?).ok()?;
    let sequence = parts.next()?.parse().ok()?;
    parts.next().is_none().then_some(Position { index, instant, sequence })
}

/// Messages that one click looks at: about a hundred calls.
const MOST_MESSAGES: u64 = 10_000;
const MOST_FINDINGS: usize = 200;
