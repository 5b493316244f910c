//! Dead letters grouped by reason and error.

use axum::response::Response;
use delayline::Timestamp;
use delayline::admin::DeadLetterFilter;
use delayline::limits::MAX_PAGE;
use delayline_admin::{Group, GroupOrder, Groups};
use maud::{Markup, html};

use super::dead_views::views;
use super::layout::Frame;
use super::letters::source;
use super::parts::number;
use crate::asked::Asked;
use crate::content::short;
use crate::context::Context;
use crate::failure::Failure;
use crate::ids::encoded;
use crate::latest::stamp;
use crate::when::time;
use crate::{Rights, Role};

pub(super) async fn page(context: Context) -> Result<Response, Failure> {
    let (name, served) = context.served(context.params.text("queue").unwrap_or_default())?;
    let order = order(context.params.text("order"))?;
    let is_live = context.is_live();
    let (stats, now) = served.counts_for(is_live).await?;
    let groups = grouped(&context, name, now, order == GroupOrder::Newest).await?;
    let of = encoded(name.as_bytes());
    let content = html! {
        h1 { "Dead letters" }
        (views(&of, None, Some(order), ""))
        div data-part="groups" {
            (extent(&of, &groups, stats.dead, order, context.may(Role::Operator)))
            (table(context.visitor.rights, &of, now, &Asked::default(), &groups, order))
        }
    };
    let live = Some(format!("live?queue={of}&since={}", stamp(&[Some(stats)])));
    let title = "Dead letters by error";
    Ok(Frame { context: &context, title, queue: Some(name), here: "dead", live }.page(&content))
}

fn order(text: Option<&str>) -> Result<GroupOrder, Failure> {
    let Some(text) = text else { return Ok(GroupOrder::default()) };
    let order = GroupOrder::ALL.into_iter().find(|order| order.name() == text);
    order.ok_or_else(|| Failure::Wrong("`order` is newest, oldest or largest".to_owned()))
}

/// Groups the letters that died last, or first.
async fn grouped(
    context: &Context,
    queue: &str,
    now: Timestamp,
    newest: bool,
) -> Result<Groups, Failure> {
    let of = context.named(queue)?.1;
    let mut letters = source(of, now, MAX_PAGE, &DeadLetterFilter::new(), newest, None);
    let mut groups = Groups::new(MOST_GROUPS);
    while groups.letters() < MOST_GROUPED {
        let Some(page) = letters.next_page().await? else { break };
        context.redacted(queue, page).iter().for_each(|letter| groups.add(letter));
    }
    Ok(groups)
}

/// Which letters are grouped, and how to group all of them.
fn extent(of: &str, groups: &Groups, dead: u64, order: GroupOrder, counts: bool) -> Markup {
    let examined = groups.letters();
    if examined < MOST_GROUPED {
        return html! {};
    }
    let which = if order == GroupOrder::Newest { "last" } else { "first" };
    html! {
        p.notice {
            "The " (number(examined)) " letters that died " (which) " are grouped here; the queue has "
            (number(dead)) ". An action on a group is for all of its letters."
        }
        @if counts {
            form method="post" action=(format!("bulk?queue={of}")) {
                button name="action" value="count" { "Group all " (number(dead)) }
            }
        }
    }
}

/// The groups of the letters that were asked for, and what can be done to each.
pub(super) fn table(
    rights: Rights,
    of: &str,
    now: Timestamp,
    asked: &Asked,
    groups: &Groups,
    order: GroupOrder,
) -> Markup {
    let list = groups.sorted(order);
    html! {
        @if list.is_empty() { p { "There are none." } } @else {
            table.stack {
                thead { tr {
                    th scope="col" { "Reason" }
                    th scope="col" { "Error" }
                    th.number scope="col" { "Letters" }
                    th scope="col" { "Latest death" }
                    th scope="col" { "Earliest death" }
                    @if rights.include(Role::Operator) { th scope="col" { "Action" } }
                } }
                tbody { @for group in &list { (row(rights, of, now, asked, group)) } }
            }
        }
        @if groups.ungrouped() > 0 {
            p.notice {
                "Letters in further groups: " (number(groups.ungrouped())) ". At most "
                (list.len()) " groups are kept."
            }
        }
    }
}

fn row(rights: Rights, of: &str, now: Timestamp, asked: &Asked, group: &Group) -> Markup {
    let asked = asked.of_group(group);
    let error = if group.error.is_empty() { "(no error)" } else { &group.error };
    let which = format!("of {}: {}", group.reason.name().replace('_', " "), short(error, 80));
    html! {
        tr {
            td data-label="Reason" { span.badge.dead { (group.reason.name().replace('_', " ")) } }
            td.note data-label="Error" {
                a href=(format!("dead?queue={of}{}", asked.query())) { (short(error, 200)) }
            }
            td.number data-label="Letters" { (number(group.letters)) }
            td data-label="Latest death" {
                (time(now, group.last)) " "
                a.id href=(format!("message?queue={of}&id={}", encoded(group.latest.as_bytes()))) {
                    (group.latest)
                }
            }
            td data-label="Earliest death" { (time(now, group.first)) }
            @if rights.include(Role::Operator) {
                td data-label="Action" {
                    form.line method="post" action=(format!("bulk?queue={of}")) {
                        @for (name, value) in asked.fields() {
                            input type="hidden" name=(name) value=(value);
                        }
                        button name="action" value="redrive" {
                            "Redrive..." span.unseen { " " (which) }
                        }
                        @if rights.include(Role::Admin) {
                            button.danger name="action" value="purge" {
                                "Delete..." span.unseen { " " (which) }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Letters that one page groups. A job groups more.
const MOST_GROUPED: u64 = 2_000;

/// Groups on a page.
const MOST_GROUPS: usize = 100;
