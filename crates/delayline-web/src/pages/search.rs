//! Messages that are searched by group, kind, header and content.

use axum::extract::Request;
use axum::http::header::{HeaderValue, REFRESH};
use axum::response::Response;
use delayline::Timestamp;
use delayline::admin::Listed;
use delayline_json::harmless_line;
use maud::{Markup, html};

use super::buttons::see;
use super::layout::Frame;
use super::parts::{COLUMNS, number, row};
use crate::context::{Context, ForReaders, form};
use crate::failure::Failure;
use crate::ids::encoded;
use crate::searches::{End, Match, Progress, Search, Terms, run};

/// The form, and the search of the query.
pub(super) async fn page(context: Context) -> Result<Response, Failure> {
    context.require(context.shared.contents_for)?;
    let (name, served) = context.served(context.params.text("queue").unwrap_or_default())?;
    let searches = &context.shared.searches;
    let search = context.params.text("search");
    let search = search.map(|id| searches.find(&context.visitor.name, name, id)).transpose()?;
    let (_, now) = served.counts_for(true).await?;
    let progress = search.as_ref().map(|search| search.progress());
    let content = html! {
        h1 { "Search" }
        (fields(name, search.as_deref()))
        @if let (Some(search), Some(progress)) = (&search, &progress) {
            (how_far(&context, search, progress))
            (found(name, now, progress))
        }
    };
    let frame =
        Frame { context: &context, title: "Search", queue: Some(name), here: "search", live: None };
    let mut response = frame.page(&content);
    if progress.is_some_and(|progress| progress.end.is_none()) {
        // Works without scripts, and shows the search that its viewer is still there.
        response.headers_mut().insert(REFRESH, HeaderValue::from_static("2"));
    }
    Ok(response)
}

/// Starts a search, or stops one.
pub(super) async fn start(
    ForReaders(context): ForReaders,
    request: Request,
) -> Result<Response, Failure> {
    let fields =
        form(&context, request, &[&["stop", "replaces"], &Terms::NAMES[..]].concat()).await?;
    let (name, _) = context.served(context.params.text("queue").unwrap_or_default())?;
    let id = match fields.text("stop") {
        Some(id) => {
            context.shared.searches.find(&context.visitor.name, name, id)?.stop();
            id.to_owned()
        }
        None => {
            let terms = Terms::in_params(&fields)?;
            run::start(&context, name, terms, fields.text("replaces")).await?.id.clone()
        }
    };
    Ok(see(&address(name, &id)))
}

fn address(queue: &str, id: &str) -> String {
    format!("search?queue={}&search={}", encoded(queue.as_bytes()), encoded(id.as_bytes()))
}

fn fields(queue: &str, search: Option<&Search>) -> Markup {
    let terms = search.map(|search| &search.terms);
    let state = terms.map_or("", Terms::state_name);
    let text = |of: fn(&Terms) -> &str| terms.map_or("", of);
    let texts = [
        ("group", "Group", text(|it| &it.group), ""),
        ("kind", "Kind", text(|it| &it.kind), ""),
        ("header", "Header", text(|it| &it.header), "region=eu"),
        ("content", "Content contains", text(|it| &it.content), ""),
    ];
    html! {
        form method="post" role="search" aria-label="Search messages"
            action=(format!("search?queue={}", encoded(queue.as_bytes()))) {
            @if let Some(search) = search { input type="hidden" name="replaces" value=(search.id); }
            div.actions {
                label { "State "
                    select name="state" {
                        option value="" { "any" }
                        @for listed in Listed::ALL {
                            option value=(listed.name()) selected[state == listed.name()] {
                                (listed.name())
                            }
                        }
                    }
                }
                @for (name, label, value, example) in texts {
                    label { (label) " "
                        input name=(name) value=(value) maxlength="1024" autocomplete="off"
                            placeholder=[(!example.is_empty()).then_some(example)];
                    }
                }
                button { "Search messages" }
            }
        }
        p.far {
            "All that is given must match. A header is a name, or a name and a part of its value. The \
             search reads the messages one after the other, in the background."
        }
    }
}

/// How far a search has come, or how it has ended.
fn how_far(context: &Context, search: &Search, progress: &Progress) -> Markup {
    let address = address(&search.queue, &search.id);
    let failure = progress.failure(context.visitor.rights);
    html! {
        p role="status" {
            @match &progress.end {
                None => "Searching: ",
                Some(End::Finished) => "Finished: ",
                Some(End::Full) => "Stopped, because there are many. Search for less. ",
                Some(End::Limited) => "Stopped, because a search ends there. Search fewer states. ",
                Some(End::Stopped) => "Stopped: ",
                Some(End::Abandoned) => "Stopped, because this page was not open. Search again. ",
                Some(End::Failed(_)) => "Failed: ",
            }
            (number(progress.examined)) " of " (number(search.total.max(progress.examined)))
            " examined, " strong { (number(progress.found.len() as u64)) } " found."
        }
        @if let Some(failure) = failure { p.alert role="alert" { (harmless_line(&failure)) "." } }
        @if progress.end.is_none() {
            form.line method="post"
                action=(format!("search?queue={}", encoded(search.queue.as_bytes()))) {
                button name="stop" value=(search.id) { "Stop" }
                a.button href=(address) { "Reload" }
            }
        }
    }
}

fn found(queue: &str, now: Timestamp, progress: &Progress) -> Markup {
    html! {
        @if !progress.found.is_empty() {
            table.stack {
                thead { tr {
                    th scope="col" { "Kind" }
                    @for (head, number) in COLUMNS { th.number[number] scope="col" { (head) } }
                } }
                tbody {
                    @for Match { info, kind } in &progress.found {
                        @let kind = html! {
                            td data-label="Kind" { (kind.as_deref().unwrap_or("-")) }
                        };
                        (row(queue, now, info, &kind))
                    }
                }
            }
        }
    }
}
