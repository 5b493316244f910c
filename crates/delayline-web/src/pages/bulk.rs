//! Bulk actions on all dead letters that match: start, progress, stop.

use axum::extract::Request;
use axum::response::Response;
use delayline::backend::Schedule;
use delayline::message::DeathReason;
use delayline_admin::GroupOrder;
use delayline_json::harmless_line;
use maud::{Markup, html};

use super::buttons::{see, when};
use super::dead_views::{newest_first, order_query};
use super::groups;
use super::layout::Frame;
use super::parts::{capitalised, number};
use crate::asked::Asked;
use crate::bulk::run::{self, Seen};
use crate::bulk::{BulkAction, Job, MOST_LIMIT, MOST_RATE, Order, Progress};
use crate::context::{Context, form};
use crate::failure::Failure;
use crate::ids::encoded;
use crate::when::{span, time};
use crate::{Rights, Role};

/// The job that runs, and what there is to find letters and to deal with all that match.
pub(super) fn tools(context: &Context, queue: &str, asked: &Asked, newest: bool) -> Markup {
    let running = context.served(queue).ok().and_then(|(_, served)| served.job.running());
    let offers = running.is_none() && context.may(Role::Operator);
    let order = order_query(newest);
    html! {
        @if let Some(job) = running {
            p.notice {
                "A job is running on these letters: "
                a href=(format!("job?queue={}{order}", encoded(queue.as_bytes()))) {
                    (job.order.action.name()) ", started by " (harmless_line(&job.by))
                }
            }
        }
        details open[!asked.is_everything()] {
            summary { (if offers { "Filter, or act on all that match" } else { "Filter" }) }
            (filters(queue, asked, newest, offers.then(|| context.may(Role::Admin))))
        }
    }
}

/// The fields to filter a list of dead letters with, and what can be done to all that match, if
/// `deletes` says whether that includes deleting them. It is one form, so that every button acts on
/// what the fields say when it is pressed.
fn filters(queue: &str, asked: &Asked, newest: bool, deletes: Option<bool>) -> Markup {
    let of = encoded(queue.as_bytes());
    let to = format!("bulk?queue={of}");
    let act = |action: &str, danger: bool, text: &str| {
        html! {
            button.danger[danger] formmethod="post" formaction=(to) name="action" value=(action) {
                (text)
            }
        }
    };
    html! {
        form method="get" action="dead" role="search" aria-label="Filter dead letters" {
            input type="hidden" name="queue" value=(queue);
            (hidden_order(newest))
            @if let Some(error) = asked.error_like() {
                input type="hidden" name="error_like" value=(error);
                p { "Error like " strong { (if error.is_empty() { "none" } else { error }) } ". "
                    a href=(format!("dead?queue={of}{}", order_query(newest))) { "All letters" }
                }
            }
            div.actions {
                label {
                    "Reason "
                    select name="reason" {
                        option value="" { "any" }
                        @for reason in DeathReason::ALL {
                            option value=(reason.name()) selected[asked.has_reason(*reason)] {
                                (reason.name().replace('_', " "))
                            }
                        }
                    }
                }
                @for (name, label) in [
                    ("error", "Error contains "),
                    ("group", "Group "),
                    ("died_after", "Died after "),
                    ("died_before", "Died before "),
                ] {
                    label {
                        (label)
                        input name=(name) value=(asked.text(name)) maxlength="1024" autocomplete="off"
                            placeholder=[name.starts_with("died").then_some("2h, 14:00, yesterday 09:00")];
                    }
                }
                // The first button is what the Enter key presses.
                button { "Filter" }
            }
            @if let Some(deletes) = deletes {
                div.actions {
                    (act("count", false, "Count all that match"))
                    (act("redrive", false, "Redrive all that match..."))
                    @if deletes { (act("purge", true, "Delete all that match...")) }
                }
            }
        }
    }
}

/// How fast and how many, and when it is due.
fn bounds(order: &Order, when: Option<&str>) -> Markup {
    let rate = order.rate.unwrap_or(USUAL_RATE);
    html! {
        label {
            "At most "
            input.short type="number" name="rate" value=(rate) min="1" max=(MOST_RATE);
            " a second, "
        }
        label {
            "in all "
            input.short type="number" name="limit" value=[order.limit] min="1" max=(MOST_LIMIT)
                placeholder="any";
        }
        @if matches!(order.action, BulkAction::Redrive(_)) {
            label {
                "due in, or at "
                input name="when" value=[when] placeholder="now; 30m, tomorrow 09:00" maxlength="64"
                    autocomplete="off";
            }
        }
    }
}

/// The order of the list, to which links lead back.
fn hidden_order(newest: bool) -> Markup {
    html! { @if newest { input type="hidden" name="order" value="newest"; } }
}

fn hidden(asked: &Asked) -> Markup {
    html! {
        @for (name, value) in asked.fields() { input type="hidden" name=(name) value=(value); }
    }
}

/// Starts what a form says, and shows it.
pub(super) async fn start(context: Context, request: Request) -> Result<Response, Failure> {
    context.require(Role::Operator)?;
    let fields = form(&context, request, &FIELDS).await?;
    let (name, served) = context.served(context.params.text("queue").unwrap_or_default())?;
    if fields.text("queue").is_some_and(|other| other != name) {
        return Err(Failure::Wrong("the form and the URL name different queues".to_owned()));
    }
    let schedule = when(&context, &fields).await?.unwrap_or(Schedule::NOW);
    let action = BulkAction::named(fields.text("action").unwrap_or_default(), schedule)?;
    context.require(action.needs())?;
    if fields.text("when").is_some() && !matches!(action, BulkAction::Redrive(_)) {
        return Err(Failure::Wrong("`when` is for a redrive only; nothing was done".to_owned()));
    }
    let (_, now) = served.counts_for(true).await?;
    let asked = Asked::in_params(&fields, now)?;
    let newest = newest_first(&fields)?;
    // A count is of all, as its button says.
    let number = |name: &str| fields.text(name).filter(|_| !matches!(action, BulkAction::Count));
    let rate = number("rate").map(Order::rate).transpose()?;
    let limit = number("limit").map(Order::limit).transpose()?;
    let order = Order { action, asked, rate, limit };
    if !matches!(action, BulkAction::Count) && fields.text("sure").is_none() {
        let seen = run::survey(&context, name, &order.asked).await?;
        return Ok(ask(&context, name, &order, newest, &seen, fields.text("when")));
    }
    run::start(&context, name, order).await?;
    Ok(see(&format!("job?queue={}{}", encoded(name.as_bytes()), order_query(newest))))
}

/// Asks whether to act on all that match, with the filter and how many there are.
fn ask(
    context: &Context,
    queue: &str,
    order: &Order,
    newest: bool,
    seen: &Seen,
    when: Option<&str>,
) -> Response {
    let asked = &order.asked;
    let of = encoded(queue.as_bytes());
    let back = format!("dead?queue={of}{}{}", asked.query(), order_query(newest));
    let deletes = matches!(order.action, BulkAction::Purge);
    let verb = if deletes { "Delete" } else { "Redrive" };
    let which = if asked.is_everything() { "" } else { " that match" };
    let title = format!("{verb} all dead letters{which}?");
    let content = html! {
        h1 { (title) }
        p { strong { (how_many(asked, seen)) } @if deletes { " This cannot be undone." } }
        (told(asked))
        form method="post" {
            (hidden(asked))
            (hidden_order(newest))
            input type="hidden" name="action" value=(order.action.name());
            div.actions { (bounds(order, when)) }
            div.actions {
                button.danger[deletes] name="sure" value="yes" { (verb) }
                a.button href=(back) { "Back" }
            }
        }
    };
    Frame { context, title: &title, queue: Some(queue), here: "dead", live: None }.page(&content)
}

fn how_many(asked: &Asked, seen: &Seen) -> String {
    let letters = |count: u64| match count {
        1 => "1 dead letter".to_owned(),
        many => format!("{} dead letters", number(many)),
    };
    let Seen { dead, examined, matched, complete } = *seen;
    if asked.is_everything() {
        return format!("The queue has {}.", letters(dead));
    }
    if complete {
        let match_ = if matched == 1 { "matches" } else { "match" };
        return format!("{} {match_}.", letters(matched));
    }
    format!(
        "Of the {} that died first, {} match. The queue has {}; to see how many of them match, \
         run a count.",
        number(examined),
        number(matched),
        letters(dead),
    )
}

fn at_most(limit: u64) -> String {
    format!("Limit: {}, oldest first.", number(limit))
}

/// The filters, in words.
fn told(asked: &Asked) -> Markup {
    html! {
        @if !asked.is_everything() {
            dl.facts {
                @for (name, value) in asked.fields() {
                    div { dt { (capitalised(&name.replace('_', " "))) }
                        dd { (harmless_line(value)) } }
                }
            }
        }
    }
}

/// How far the last job of a queue has come.
pub(super) async fn page(context: Context) -> Result<Response, Failure> {
    let (name, served) = context.served(context.params.text("queue").unwrap_or_default())?;
    let of = encoded(name.as_bytes());
    let order = order_query(newest_first(&context.params)?);
    let job = served.job.job();
    let progress = job.as_ref().map(|job| job.progress());
    let running = progress.as_ref().is_some_and(|progress| progress.end.is_none());
    let live = running.then(|| progress.as_ref().map(Progress::stamp)).flatten();
    let live = live.map(|stamp| format!("live?job=1&queue={of}&since={stamp}"));
    let content = html! {
        h1 { "Job" }
        div data-part="job" {
            @match (&job, &progress) {
                (Some(job), Some(progress)) => {
                    (state(context.visitor.rights, &of, order, job, progress))
                },
                _ => p { "No job has run on this queue since the dashboard started." },
            }
        }
    };
    let frame = Frame { context: &context, title: "Job", queue: Some(name), here: "job", live };
    Ok(frame.page(&content))
}

fn state(rights: Rights, of: &str, order: &str, job: &Job, progress: &Progress) -> Markup {
    let asked = &job.order.asked;
    let counts = matches!(job.order.action, BulkAction::Count);
    html! {
        p role="status" {
            strong { (capitalised(job.order.action.name())) ": " (progress.state()) "." }
            " Started by " (harmless_line(&job.by)) " at " (time(job.now(), job.started)) "."
            @if let Some(rate) = job.order.rate { " At most " (number(u64::from(rate))) " a second." }
            @if let Some(limit) = job.order.limit { " " (at_most(limit)) }
            @match job.order.action {
                BulkAction::Redrive(Schedule::At(at)) => { " Due " (time(job.now(), at)) "." },
                BulkAction::Redrive(Schedule::In(delay)) if delay.as_ms() > 0 => {
                    " Due " (span(delay.into())) " after the redrive of each."
                },
                _ => {}
            }
        }
        @if let Some(why) = progress.failure(rights) {
            p.alert role="alert" { "It has stopped: " (harmless_line(&why)) "." }
            p { "Its effects so far remain. You can safely start it again." }
        }
        (told(asked))
        progress max=(job.dead.max(1)) value=(progress.examined.min(job.dead))
            aria-label="Letters examined" {}
        dl.facts {
            @for (label, count, shown) in [
                ("Dead letters when it started", job.dead, true),
                ("Examined", progress.examined, true),
                ("Match", progress.matched, true),
                ("Done", progress.done, !counts),
                ("Not done, because they had changed or cannot be read", progress.not_done, !counts),
            ] {
                @if shown { div { dt { (label) } dd { (number(count)) } } }
            }
        }
        @if counts {
            (groups::table(rights, of, job.now(), asked, &job.groups(), GroupOrder::Largest))
        }
        div.actions {
            @if progress.end.is_none() {
                @if rights.include(Role::Operator) {
                    form method="post" action=(format!("stop?queue={of}&id={}{order}", job.id)) {
                        button { "Stop" }
                    }
                }
                a.button href=(format!("job?queue={of}{order}")) { "Reload" }
            }
            a.button href=(format!("dead?queue={of}{}{order}", asked.query())) {
                "Show these letters"
            }
        }
        @if progress.end.is_none() {
            p.far { "It runs in the process of this dashboard, and stops if that ends. Its effects so far remain." }
        }
    }
}

/// Stops the job of the query, if it is the last one.
pub(super) async fn stop(context: Context) -> Result<Response, Failure> {
    let text = |name: &str| context.params.text(name).unwrap_or_default();
    let order = order_query(newest_first(&context.params)?);
    run::stop(&context, text("queue"), text("id"))?;
    Ok(see(&format!("job?queue={}{order}", encoded(text("queue").as_bytes()))))
}

/// What a redrive or a purge is offered with.
const USUAL_RATE: u32 = 50;

/// Of the form that filters letters, and of the question that follows.
const FIELDS: [&str; 13] = [
    "queue",
    "order",
    "action",
    "reason*",
    "error",
    "error_like",
    "group",
    "died_after",
    "died_before",
    "rate",
    "limit",
    "when",
    "sure",
];
