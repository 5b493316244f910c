//! Audits and repairs of a queue's structures: a bounded number of messages for each click.

use axum::extract::Request;
use axum::response::Response;
use delayline::admin::{Finding, Position};
use delayline::backend::{Check, Checked, Op, Reply};
use delayline::codec::Raw;
use delayline::{Bytes, Queue, Timestamp, limits};
use delayline_json::{finding, harmless_line};
use maud::{Markup, html};

use super::layout::Frame;
use super::parts::number;
use crate::Role;
use crate::audited::{Audit, to_the_end};
use crate::context::{Context, form};
use crate::failure::Failure;
use crate::ids::encoded;

/// The findings of a check.
pub(super) async fn page(context: Context) -> Result<Response, Failure> {
    context.require(Role::Operator)?;
    let (name, queue) = context.queue()?;
    let stretch = examine(queue, after(&context)?, false).await?;
    Ok(report(&context, name, &stretch, false))
}

/// Repairs what a check finds.
pub(super) async fn repair(context: Context, request: Request) -> Result<Response, Failure> {
    context.require(Role::Admin)?;
    let (name, queue) = context.queue()?;
    let fields = form(&context, request, &["sure"]).await?;
    if fields.text("sure").is_none() {
        let content = html! {
            h1 { "Repair " (name) "?" }
            p { "A repair makes the stored data of each message consistent. Unreadable messages \
                 become dead letters. The queue can stay in use." }
            form method="post" {
                div.actions {
                    button name="sure" value="yes" { "Repair" }
                    a.button href=(format!("check?queue={}", encoded(name.as_bytes()))) { "Back" }
                }
            }
        };
        return Ok(frame(&context, "Repair", name, &content));
    }
    let (audit, after) = (Audit::new(&context, "repair", name), after(&context)?);
    let queue = queue.clone();
    let stretch = to_the_end(async move {
        let result = examine(&queue, after, true).await;
        audit.log(&match &result {
            Ok(Stretch { findings, stopped: None, .. }) => format!("repaired {}", findings.len()),
            Ok(Stretch { findings, stopped: Some(failure), .. }) => {
                format!("repaired {}, then: {}", findings.len(), failure.detail())
            }
            Err(failure) => failure.detail(),
        });
        result
    });
    Ok(report(&context, name, &stretch.await??, true))
}

/// A part of an audit.
struct Stretch {
    examined: u64,
    findings: Vec<Finding>,
    next: Option<Position>,
    /// Why it ends before it should. Messages before `next` were examined, and repaired if
    /// requested.
    stopped: Option<Failure>,
}

/// Examines, and repairs if asked, what one click covers. Fails only if the first call does.
async fn examine(
    queue: &Queue<Bytes, Raw>,
    after: Option<Position>,
    repair: bool,
) -> Result<Stretch, Failure> {
    let mut stretch = Stretch { examined: 0, findings: Vec::new(), next: after, stopped: None };
    for call in 0..MOST_CALLS {
        if stretch.findings.len() >= MOST_FINDINGS {
            break;
        }
        let page = match step(queue, stretch.next, repair).await {
            Ok(page) => page,
            Err(failure) if call == 0 => return Err(failure),
            Err(failure) => {
                stretch.stopped = Some(failure);
                break;
            }
        };
        stretch.examined = stretch.examined.saturating_add(page.examined);
        // A page that repairs something may continue where it began.
        let stays = page.next == stretch.next;
        let stuck = stays && (!repair || page.findings.is_empty());
        stretch.findings.extend(page.findings);
        stretch.next = page.next.filter(|_| !stuck);
        if stretch.next.is_none() {
            break;
        }
    }
    Ok(stretch)
}

async fn step(
    queue: &Queue<Bytes, Raw>,
    after: Option<Position>,
    repair: bool,
) -> Result<Checked, Failure> {
    let check = Check::new(limits::MAX_PAGE).after(after);
    let op = if repair { Op::Repair(check) } else { Op::Check(check) };
    match (repair, queue.apply(&op).await?.reply) {
        (false, Reply::Check(page)) | (true, Reply::Repair(page)) => Ok(page),
        _ => Err(Failure::Protocol),
    }
}

/// The page with the findings. Its status is that of the failure, if there was one.
fn report(context: &Context, queue: &str, stretch: &Stretch, repaired: bool) -> Response {
    let of = encoded(queue.as_bytes());
    let count = stretch.findings.len();
    let next = stretch.next.map(|Position { index, instant, sequence }| {
        format!("{index}:{}:{sequence}", instant.as_ms())
    });
    let verb = if repaired { "repair" } else { "check" };
    let content = html! {
        h1 { "Check" }
        p { "A check examines all stored data of the queue's messages, and changes nothing. Workers \
             can keep running." }
        section aria-live="polite" {
            p {
                (number(stretch.examined)) (if stretch.examined == 1 { " message" } else { " messages" }) " examined, "
                @match (count, repaired) {
                    (0, _) if stretch.next.is_some() => "nothing is wrong so far.",
                    (0, _) => "nothing is wrong.",
                    (1, false) => "1 fault.",
                    (_, false) => { (count) " faults." },
                    (1, true) => "1 fault repaired. Check again to be sure.",
                    (_, true) => { (count) " faults repaired. Check again to be sure." },
                }
            }
            @if let Some(failure) = &stretch.stopped {
                p.alert role="alert" {
                    "The " (verb) " stopped here: " (harmless_line(&failure.detail())) "."
                }
                p { "The check is incomplete. You can safely continue." }
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
                            button name="sure" value="yes" { "Continue" }
                        }
                    } @else {
                        a.button href=(format!("check?queue={of}&after={next}")) { "Continue" }
                    }
                }
                @if count > 0 && !repaired && context.may(Role::Admin) {
                    form method="post" action=(format!("repair?queue={of}")) {
                        button { "Repair..." }
                    }
                }
            }
        }
    };
    let mut response = frame(context, "Check", queue, &content);
    if let Some(failure) = &stretch.stopped {
        *response.status_mut() = failure.status();
    }
    response
}

fn frame(context: &Context, title: &str, queue: &str, content: &Markup) -> Response {
    Frame { context, title, queue: Some(queue), here: "", live: None }.page(content)
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

/// Calls of one click: they examine up to 10,000 messages, and data that belongs to none.
const MOST_CALLS: usize = 100;
const MOST_FINDINGS: usize = 200;
