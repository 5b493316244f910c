//! The processes with workers, and the messages that they hold.

use axum::response::Response;
use delayline::Timestamp;
use delayline::admin::{ProcessId, WorkerProcess};
use delayline::message::{MessageInfo, MessageState};
use delayline_admin::Holder;
use delayline_json::harmless_line;
use maud::{Markup, html};

use super::layout::Frame;
use super::parts::{self, bar, message_link, queue_link};
use crate::Role;
use crate::context::Context;
use crate::failure::told;
use crate::ids::encoded;
use crate::latest::stamp;
use crate::served::MOST_LEASES;
use crate::when::{relative, time};
use crate::worker_report::WorkerReport;
use crate::workers::MOST_AGE;

pub(super) async fn page(context: Context) -> Response {
    let report = WorkerReport::of(&context, context.is_live()).await;
    // Without a queue there is no server to ask for the time.
    let now = report.now.unwrap_or_else(|| {
        Timestamp::try_from(std::time::SystemTime::now()).unwrap_or(Timestamp::MIN)
    });
    let shown = report.holders.len().min(MOST_ROWS);
    let content = html! {
        h1 { "Workers" }
        div data-part="workers" {
            (notices(&context, &report))
            @if report.holders.is_empty() { p { "No process has workers, and none holds a message." } }
            @else {
                table.stack {
                    thead { tr {
                        @for head in ["Process", "Handlers", "Queues", "Since", "Holds now"] {
                            th scope="col" { (head) }
                        }
                    } }
                    tbody {
                        @for holder in &report.holders[..shown] { (row(&context, now, holder)) }
                    }
                }
            }
            @if report.holders.len() > shown {
                p.notice { (report.holders.len() - shown) " more are not shown. "
                    code { "delayline workers" } " has all." }
            }
            (explanation(&report))
        }
    };
    let live = Some(format!("live?since={}", stamp(&report.counts)));
    Frame { context: &context, title: "Workers", queue: None, here: "workers", live }.page(&content)
}

/// Warnings about missing processes and leases.
fn notices(context: &Context, report: &WorkerReport) -> Markup {
    let rights = context.visitor.rights;
    html! {
        @if let Some(error) = &report.unlisted {
            p.alert role="alert" {
                "Not all processes can be listed: " (harmless_line(&told(error, rights)))
                ". Leases are grouped by process all the same."
            }
        }
        @if report.has_more {
            p.notice { "There are more processes than are listed." }
        }
        @for (queue, failure) in &report.unread {
            p.alert role="alert" {
                "The leases of " (queue) " cannot be read: "
                (harmless_line(&failure.detail_for(rights))) "."
            }
        }
        @for queue in &report.cut {
            p.notice {
                "Only the " (MOST_LEASES) " leases of "
                a href=(format!("messages?state=leased&queue={}", encoded(queue.as_bytes()))) { (queue) }
                " that end first are here."
            }
        }
    }
}

/// How processes come here.
fn explanation(report: &WorkerReport) -> Markup {
    let has_strangers = report.holders.iter().any(|holder| holder.process.is_none());
    html! {
        @if !report.is_listed {
            p.far { "This dashboard groups leases only: it does not list processes." }
        }
        @if has_strangers {
            p.far {
                "A process without a name has not introduced itself: it is a consumer over HTTP, or \
                 the server refuses it " code { "CLIENT SETNAME" } ", or it has ended and its \
                 leases have not."
            }
        }
    }
}

fn row(context: &Context, now: Timestamp, holder: &Holder) -> Markup {
    let process = holder.process.as_ref();
    html! {
        tr {
            th scope="row" { (name(context, process, holder.id)) }
            td.number data-label="Handlers" { @match process {
                Some(process) => (process.handlers),
                None => "-",
            } }
            td data-label="Queues" { @match process {
                Some(process) => (queues(context, process)),
                None => "-",
            } }
            td data-label="Since" { @match process {
                Some(process) => (time(now, process.since)),
                None => "-",
            } }
            td data-label="Holds now" { (held(now, &holder.held)) }
        }
    }
}

/// The process that holds a message, as it is listed.
pub(super) async fn holder(context: &Context, id: Option<ProcessId>) -> Option<Markup> {
    let id = id?;
    let list = match &context.shared.workers {
        Some(workers) => workers.list(MOST_AGE).await,
        None => None,
    };
    let listed = list.as_deref().and_then(|it| it.as_ref().ok());
    let process = listed.and_then(|it| it.processes.iter().find(|process| process.id == id));
    Some(name(context, process, Some(id)))
}

/// Where a process runs, for operators, and its id.
fn name(context: &Context, process: Option<&WorkerProcess>, id: Option<ProcessId>) -> Markup {
    let place = process.filter(|_| context.may(Role::Operator));
    html! {
        @if let Some(WorkerProcess { host, pid, address, .. }) = place {
            (host) ", process " (pid) " "
            @if let Some(address) = address { span.far { (address) } " " }
        }
        @if let Some(process) = process { span.far { "version " (process.version) } " " }
        @match id {
            Some(id) => code { (id) },
            None => "unknown",
        }
    }
}

fn queues(context: &Context, process: &WorkerProcess) -> Markup {
    html! {
        @for (number, (queue, handlers)) in process.queues.iter().enumerate() {
            @if number > 0 { ", " }
            (queue_link(context, queue.as_str())) " (" (handlers) ")"
        }
        @if process.more_queues > 0 { " and " (process.more_queues) " more" }
    }
}

/// The messages that a process holds. The first ones are shown, the others on request.
fn held(now: Timestamp, held: &[(String, MessageInfo)]) -> Markup {
    let item = |(queue, info): &(String, MessageInfo)| {
        html! {
            li.id {
                a href=(message_link(queue, &info.id)) { (info.id) }
                " " span.far { (parts::name(queue))
                    @if let MessageState::Leased { deadline, .. } = info.state {
                        ", lease ends " (relative(now, deadline))
                    }
                }
                @if let Some(progress) = &info.progress { (bar(progress, true)) }
            }
        }
    };
    let (first, rest) = held.split_at(held.len().min(MOST_FIRST));
    html! {
        @if held.is_empty() { span.far { "nothing" } } @else {
            ul.ids { @for it in first { (item(it)) } }
            @if !rest.is_empty() {
                details { summary { (rest.len()) " more" } ul.ids { @for it in rest { (item(it)) } } }
            }
        }
    }
}

const MOST_ROWS: usize = 200;
const MOST_FIRST: usize = 3;
