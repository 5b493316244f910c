//! One queue.

use std::sync::Arc;

use axum::response::Response;
use delayline::Timestamp;
use delayline::admin::{Limits, Stats};
use delayline_admin::GroupCount;
use delayline_json::{Step, is_consumed};
use maud::{Markup, html};

use super::layout::Frame;
use super::parts::{badges, in_words, number};
use super::picture::Line;
use super::{limits, line};
use crate::Role;
use crate::content::short;
use crate::context::Context;
use crate::failure::Failure;
use crate::ids::encoded;
use crate::latest::stamp;
use crate::served::{FORECAST_AGE, Served, timeline};
use crate::when::{span as duration, time};

pub(super) async fn page(context: Context) -> Result<Response, Failure> {
    let (name, served) = context.served(context.params.text("queue").unwrap_or_default())?;
    let is_live = context.is_live();
    let span = line::span(context.params.text("span"))?;
    let (stats, now) = served.counts_for(is_live).await?;
    let ahead = served.ahead(span, now, is_live.then_some(FORECAST_AGE)).await?;
    let history = served.history_for(span, is_live).await?;
    let handlers = handlers(&context, name).await;
    let is_consumed = history.as_ref().is_some_and(|it| is_consumed(span, &stats, now, it));
    let steps = history.map(|history| timeline(span, &history, ahead.as_ref()));
    let until = steps.as_deref().and_then(<[Step]>::last).map_or(now, |step| step.until);
    let marks = marks(&context, name, until).await;
    let of = encoded(name.as_bytes());
    let content = html! {
        div data-part="counts" {
            div.head { h1 { (name) (badges(&of, &stats)) } ul.tiles { (tiles(&of, &stats)) } }
            (state(&stats, now, handlers))
        }
        section data-part="line" {
            @match &steps {
                Some(steps) => {
                    (Line {
                        queue: name,
                        span,
                        now,
                        stats: &stats,
                        steps,
                        later: ahead.as_ref().map(|ahead| ahead.later),
                        marks: &marks,
                        has_no_worker: handlers == Some(0) && stats.leased == 0 && !is_consumed,
                    }.shown())
                }
                None => p.alert { "The history of the queue cannot be read." },
            }
        }
        // An open page can only replace a part that it has.
        div data-part="turns" {
            @if stats.waiting_groups > 0 { (groups(&context, name, served, now, &stats).await) }
        }
        @if context.may(Role::Operator) { (limits::settings(&context, name, &stats)) }
        div.actions {
            form.line method="get" action="message" {
                input type="hidden" name="queue" value=(name);
                label { "Id " input.time name="id" required maxlength="384" autocomplete="off"; }
                button { "Show" }
            }
            @if context.may(Role::Operator) {
                a.button href=(format!("send?queue={of}")) { "Send a message" }
                a.button href=(format!("check?queue={of}")) { "Check the stored data" }
            }
        }
        details {
            summary { "Since the queue was created" }
            div data-part="totals" { (totals(&stats)) }
        }
    };
    let live = Some(format!("live?queue={of}&since={}", stamp(&[Some(stats)])));
    let frame = Frame { context: &context, title: name, queue: Some(name), here: "queue", live };
    Ok(frame.page(&content))
}

/// Handlers of all processes that are listed, or `None` if not all are.
async fn handlers(context: &Context, queue: &str) -> Option<u32> {
    crate::survey::handlers(context).await.map(|all| all.get(queue).copied().unwrap_or_default())
}

fn tiles(of: &str, stats: &Stats) -> Markup {
    html! {
        @for (class, label, link, count) in [
            ("scheduled", "Scheduled", "messages?state=scheduled&", stats.scheduled),
            ("ready", "Ready", "messages?state=ready&", stats.ready),
            ("leased", "With workers", "messages?state=leased&", stats.leased),
            ("dead", "Dead letters", "dead?", stats.dead),
        ] {
            li class=(class) {
                a href=(format!("{link}queue={of}")) { strong { (number(count)) } " " span { (label) } }
            }
        }
    }
}

/// Whether deliveries are late, and what stops or limits them.
fn state(stats: &Stats, now: Timestamp, handlers: Option<u32>) -> Markup {
    let Limits { leased, each_group, in_order, rate, held_until, .. } = stats.limits;
    html! {
        p.state {
            span.unseen { (in_words(stats)) ". " }
            @match stats.earliest_due {
                Some(due) if due <= now => {
                    "The oldest waiting message has been due since " (time(now, due)) ". "
                }
                Some(due) => { "The next message is due at " (time(now, due)) ". " }
                None => { "No messages are waiting. " }
            }
            @match handlers {
                Some(0) => strong { "No listed process has workers for this queue. " },
                Some(handlers) => { a href="workers" { (number(handlers.into())) " handlers" } ". " }
                None => {}
            }
            @if stats.paused { "Paused: nothing is delivered until the queue is resumed. " }
            @if let Some(until) = held_until {
                "Held: nothing is delivered until " (time(now, until)) ". "
            }
            @if let Some(most) = leased {
                (number(stats.leased)) " of " (number(most.into())) " leased: no more at once. "
            }
            @if let Some(most) = each_group {
                "At most " (number(most.into())) " of each group leased at once. "
            }
            @if in_order { "In order: the messages of a group are handled one after the other. " }
            @if let Some(rate) = rate {
                "At most " (number(rate.count.into())) " deliveries in " (duration(rate.per()))
                ", and " (number(rate.burst.into())) " at once. "
            }
        }
    }
}

/// The next instants of the schedules that send to the queue.
async fn marks(context: &Context, queue: &str, until: Timestamp) -> Vec<(Timestamp, String)> {
    let Ok((_, schedules)) = context.schedules() else { return Vec::new() };
    let read = async { schedules.list_within(MOST_SCHEDULES).await.map(Arc::new) };
    let entries = context.shared.entries.within(FORECAST_AGE, read).await.unwrap_or_default();
    let of_queue =
        entries.iter().filter(|it| it.spec.as_ref().is_some_and(|spec| spec.queue() == queue));
    let marks = of_queue.flat_map(|entry| {
        let instants = entry.next.iter().filter_map(|next| Timestamp::try_from(*next).ok());
        instants.map(|at| (at, delayline_json::harmless_line(&entry.name)))
    });
    marks.filter(|(at, _)| *at < until).take(MOST_MARKS).collect()
}

/// The groups with the most waiting messages.
async fn groups(
    context: &Context,
    queue: &str,
    served: &Served,
    now: Timestamp,
    stats: &Stats,
) -> Markup {
    let Some(read) = served.groups().await else { return html! {} };
    let (groups, are_all) = read.as_ref();
    let mut groups: Vec<&GroupCount> = groups.iter().collect();
    groups.sort_by_key(|it| (std::cmp::Reverse(it.ready), it.oldest_due, it.group.clone()));
    let to = format!("search?queue={}", encoded(queue.as_bytes()));
    html! {
        section {
            h2 { "Groups" span.far { " " (number(stats.waiting_groups)) " wait for a turn" } }
            table.stack {
                thead { tr {
                    th scope="col" { "Group" }
                    @for head in ["Waiting", "With workers"] { th.number scope="col" { (head) } }
                    th scope="col" { "Oldest due" }
                    @if context.sees_contents() { th scope="col" { "Messages" } }
                } }
                tbody {
                    @for group in groups.iter().take(MOST_GROUPS) {
                        @let name = short(group.group.as_str(), 60);
                        tr {
                            th scope="row" { (name) }
                            td.number data-label="Waiting" { (number(group.ready)) }
                            td.number data-label="With workers" { (number(group.leased)) }
                            td data-label="Oldest due" {
                                @match group.oldest_due { Some(due) => (time(now, due)), None => "-" }
                            }
                            @if context.sees_contents() {
                                td {
                                    form.line method="post" action=(to) {
                                        input type="hidden" name="group" value=(group.group.as_str());
                                        button { "Show" span.unseen { " messages of " (name) } }
                                    }
                                }
                            }
                        }
                    }
                }
            }
            @if !are_all { p.far { "Of the first 1,000 messages. " code { "delayline groups" } " counts all." } }
        }
    }
}

fn totals(stats: &Stats) -> Markup {
    html! {
        dl.facts {
            @for (label, count) in [
                ("Sent", stats.totals.enqueued),
                ("Delivered", stats.totals.delivered()),
                ("Acked", stats.totals.acked),
                ("Failed", stats.totals.failed),
                ("Leases expired", stats.totals.crashed),
                ("Died", stats.totals.died()),
                ("Redriven", stats.totals.redriven),
                ("Cancelled", stats.totals.cancelled),
                ("Purged", stats.totals.purged),
                ("Relayed", stats.totals.relayed),
                ("Replaced", stats.totals.replaced),
                ("Expired", stats.totals.died_expired),
            ] {
                div { dt { (label) } dd { (number(count)) } }
            }
        }
    }
}

const MOST_GROUPS: usize = 10;
/// Schedules that are read for the marks of a picture, and marks of a picture.
const MOST_SCHEDULES: usize = 1_000;
const MOST_MARKS: usize = 60;
