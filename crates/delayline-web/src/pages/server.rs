//! The servers of the queues, their roles, and their problems.

use std::time::Duration;

use axum::response::Response;
use delayline::Error;
use delayline::admin::{QueueName, Survey, TopologyKind};
use delayline_json::doctor::{Examination, Finding, Table, Verdict};
use delayline_json::{harmless_line, hint};
use maud::{Markup, html};

use super::layout::Frame;
use super::parts::capitalised;
use crate::Role;
use crate::context::Context;
use crate::failure::Failure;
use crate::ids::encoded;
use crate::when::span;

/// The servers, and of one queue what a program meets that uses it.
pub(super) async fn page(context: Context) -> Result<Response, Failure> {
    context.require(Role::Operator)?;
    let Some(examiner) = &context.shared.examiner else {
        let why = "this dashboard was not given the address of a server";
        return Err(Failure::Unknown(why.to_owned()));
    };
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

/// The findings, the worst first.
fn findings(found: &[Finding]) -> Markup {
    let mut found: Vec<&Finding> = found.iter().collect();
    found.sort_by_key(|finding| std::cmp::Reverse(finding.verdict));
    let count = |verdict| found.iter().filter(|finding| finding.verdict == verdict).count();
    let left_out = found.len().saturating_sub(MOST_ROWS);
    html! {
        p {
            @match (count(Verdict::Bad), count(Verdict::Beware)) {
                (0, 0) => "Nothing is wrong.",
                (bad, beware) => { (bad) " bad, " (beware) " to beware of." },
            }
        }
        table.stack {
            thead { tr {
                @for head in ["Check", "Verdict", "Detail", "Advice"] { th scope="col" { (head) } }
            } }
            tbody {
                @for finding in found.into_iter().take(MOST_ROWS) {
                    tr {
                        th scope="row" { (capitalised(finding.check)) }
                        td data-label="Verdict" {
                            span class=(class(finding.verdict)) { (finding.verdict.name()) }
                        }
                        td data-label="Detail" { (short(&finding.line())) }
                        td data-label=[(!finding.advice.is_empty()).then_some("Advice")] {
                            (finding.advice)
                        }
                    }
                }
            }
        }
        (cut(left_out))
    }
}

const fn class(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Good => "badge ready",
        Verdict::Beware => "badge warn",
        Verdict::Bad => "badge alarm",
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
                                th scope="row" { a href=(format!("queue?queue={of}")) { (name) } }
                                td data-label="Is on" {
                                    @match holder(name) {
                                        Some(address) => code { (short(&address)) },
                                        None => "-",
                                    }
                                }
                                td data-label="Look at" {
                                    a href=(format!("server?queue={of}")) { "Access to " (name) }
                                    " "
                                    a href=(format!("check?queue={of}")) { "Data of " (name) }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn cut(left_out: usize) -> Markup {
    html! {
        @if left_out > 0 {
            p.notice { (left_out) " more are not shown. " code { "delayline doctor" } " has all." }
        }
    }
}

/// The beginning of a text that a server may have written.
fn short(text: &str) -> String {
    crate::content::short(text, MOST_CHARS)
}

/// Rows of each table.
const MOST_ROWS: usize = 200;
const MOST_CHARS: usize = 1_000;
