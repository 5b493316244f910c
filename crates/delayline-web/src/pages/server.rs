//! The servers of the queues, their roles, and their problems.

use std::time::Duration;

use axum::response::Response;
use delayline::Error;
use delayline::admin::{QueueName, Survey, TopologyKind};
use delayline_admin::doctor::{Examination, Table};
use delayline_json::{harmless_line, hint};
use maud::{Markup, html};

use super::directory;
use super::findings::{MOST_ROWS, cut, findings, short};
use super::layout::Frame;
use super::parts::{self, capitalised};
use crate::Role;
use crate::context::Context;
use crate::failure::Failure;
use crate::ids::encoded;
use crate::when::span;

/// The servers, and of one queue what a program meets that uses it.
pub(super) async fn page(context: Context) -> Result<Response, Failure> {
    context.require(Role::Operator)?;
    let Some(examiner) = &context.shared.examiner else { return directory::page(&context).await };
    let name = match context.params.text("queue") {
        Some(name) => Some(context.named(name)?.0),
        None => None,
    };
    let examined = examiner.servers().await.ok_or(Failure::Aborted)?;
    let of_queue = match name {
        // It would fail in the same way, and take its time.
        Some(name) if examined.result.is_ok() => Some((name, examiner.queue(name).await)),
        _ => None,
    };
    let found = examined.result.as_ref();
    let content = html! {
        h1 { "Server" }
        p.far {
            @match examined.at.elapsed() {
                short if short < Duration::from_secs(1) => "Asked just now.",
                long => { "Asked " (span(long)) " ago." },
            }
        }
        @match found {
            Ok(found) => {
                section {
                    h2 { "Is it suitable?" }
                    (findings(&found.findings))
                }
                @match &of_queue {
                    Some((name, Ok(found))) => section {
                        h2 { "For programs that use " (name) }
                        (findings(found))
                    },
                    Some((name, Err(error))) => section {
                        h2 { "For programs that use " (name) }
                        (failed(error))
                    },
                    None => {}
                }
                section {
                    h2 { (kind(&found.survey)) }
                    @for it in found.tables() { (table(it)) }
                }
            }
            Err(error) => (failed(error)),
        }
        (queues(&context, found.ok()))
    };
    let title = "Server";
    let mut response =
        Frame { context: &context, title, queue: None, here: "server", live: None }.page(&content);
    let failures = [found.err(), of_queue.as_ref().and_then(|(_, found)| found.as_ref().err())];
    if let Some(error) = failures.into_iter().flatten().next() {
        *response.status_mut() = Failure::Queue(error.clone()).status();
    }
    Ok(response)
}

fn failed(error: &Error) -> Markup {
    html! {
        p.alert role="alert" {
            "This cannot be examined: " (harmless_line(&error.to_string())) "."
        }
        @if let Some(hint) = hint(error.kind()) { p { (capitalised(hint)) "." } }
    }
}

/// What kind of topology it is, in words.
fn kind(survey: &Survey) -> String {
    match survey.kind {
        TopologyKind::Single => "One server".to_owned(),
        TopologyKind::Cluster => {
            let primaries = survey.servers.iter().filter(|server| !server.slots.is_empty()).count();
            format!("A cluster with {primaries} primaries, on {} nodes", survey.servers.len())
        }
        TopologyKind::Sentinel => {
            format!("{} servers behind {} sentinels", survey.servers.len(), survey.sentinels.len())
        }
        _ => "Servers".to_owned(),
    }
}

fn table(table: Table) -> Markup {
    let heads = table.heads.iter().map(|head| capitalised(&head.to_ascii_lowercase()));
    let heads: Vec<_> = heads.collect();
    let left_out = table.rows.len().saturating_sub(MOST_ROWS);
    html! {
        table.stack {
            thead { tr { @for head in &heads { th scope="col" { (head) } } } }
            tbody {
                @for row in table.rows.iter().take(MOST_ROWS) {
                    tr {
                        @for (n, (head, cell)) in heads.iter().zip(row).enumerate() {
                            @if n == 0 { th.id scope="row" { (short(cell)) } }
                            @else { td data-label=(head) { (short(cell)) } }
                        }
                    }
                }
            }
        }
        (cut(left_out))
    }
}

/// The queues, and where each of them is.
fn queues(context: &Context, found: Option<&Examination>) -> Markup {
    let holder = |name: &str| {
        let name = QueueName::new(name).ok()?;
        Some(found?.survey.holder(&name)?.address.clone())
    };
    html! {
        section {
            h2 { "Queues" }
            @if context.known.queues.is_empty() { p { "There are no queues here." } } @else {
                table.stack {
                    thead { tr {
                        th scope="col" { "Queue" }
                        th scope="col" { "Is on" }
                        th scope="col" { "Look at" }
                    } }
                    tbody {
                        @for name in context.known.queues.keys() {
                            @let of = encoded(name.as_bytes());
                            tr {
                                th scope="row" {
                                    a href=(format!("queue?queue={of}")) { (parts::name(name)) }
                                }
                                td data-label="Is on" {
                                    @match holder(name) {
                                        Some(address) => code { (short(&address)) },
                                        None => "-",
                                    }
                                }
                                td data-label="Look at" {
                                    a href=(format!("server?queue={of}")) { "Access to " (parts::name(name)) }
                                    " "
                                    a href=(format!("check?queue={of}")) { "Data of " (parts::name(name)) }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}
