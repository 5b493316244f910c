//! The settings of a queue: deliveries on or off, and its limits, each on its own.

use axum::extract::Request;
use axum::response::Response;
use delayline::admin::Stats;
use delayline::backend::{Op, Rate, Schedule, SetLimits};
use delayline::limits::{MAX_LEASED, MAX_RATE_COUNT};
use delayline_json::duration;
use maud::{Markup, html};

use super::buttons::{no_time, see, when, when_fields};
use crate::Role;
use crate::audited;
use crate::context::{Context, form};
use crate::failure::Failure;
use crate::ids::encoded;
use crate::params::Params;
use crate::when::{span, zone};

/// The settings of a queue with their current values, behind a disclosure. It is outside the
/// parts of the page that update themselves, so that no typed text is lost.
pub(super) fn settings(context: &Context, queue: &str, stats: &Stats) -> Markup {
    let of = encoded(queue.as_bytes());
    let to = format!("limits?queue={of}");
    let limits = &stats.limits;
    let one = |limit: &str, name: &str, now: String, verb: &str, is_set: bool, fields: Markup| {
        html! {
            tr {
                th scope="row" { (name) }
                td data-label="Now" { @if is_set { (now) } @else { span.none { (now) } } }
                td {
                    form.line method="post" action=(to) {
                        input type="hidden" name="limit" value=(limit);
                        (fields)
                        // The first button is what the Enter key presses. Order can only be set or
                        // cleared.
                        @if !(is_set && limit == "in_order") {
                            button name="change" value="set" { (verb) }
                        }
                        @if is_set {
                            @let label = format!("Clear the limit: {}", limit.replace('_', " "));
                            button name="change" value="clear" formnovalidate aria-label=(label) { "Clear" }
                        }
                    }
                }
            }
        }
    };
    let number = |name: &str, value: Option<u32>, label: &str| {
        html! {
            label {
                (label)
                input.short type="number" name=(name) value=[value] min="1" max=(MOST) required;
            }
        }
    };
    let count =
        |value: Option<u32>| value.map_or_else(|| "no limit".to_owned(), |it| it.to_string());
    let rate = limits.rate;
    let rated = rate.map_or_else(
        || "no limit".to_owned(),
        |it| format!("{} in {}, {} at once", it.count, span(it.per()), it.burst),
    );
    let held = limits.held_until.map_or_else(
        || "no hold".to_owned(),
        |it| format!("until {} {}", zone().day(it), zone().clock(it)),
    );
    let was_changed = matches!(context.params.text("note"), Some("limited" | "paused" | "resumed"));
    let switch = if stats.paused { "resume" } else { "pause" };
    html! {
        details.settings open[was_changed] {
            summary { "Settings" }
            table.stack id="limits" {
                thead { tr { @for head in ["Over all workers", "Now", "Change"] { th scope="col" { (head) } } } }
                tbody {
                    tr {
                        th scope="row" { "Deliveries" }
                        td data-label="Now" { (if stats.paused { "paused" } else { "on" }) }
                        td {
                            form.line method="post" action=(format!("{switch}?queue={of}")) {
                                button { (if stats.paused { "Resume deliveries" } else { "Pause deliveries" }) }
                            }
                        }
                    }
                    (one("hold", "Hold", held, "Hold", limits.held_until.is_some(), {
                        when_fields("Deliver nothing for, or until")
                    }))
                    (one("leased", "Leased at once", count(limits.leased), "Limit leases", limits.leased.is_some(), {
                        number("leased", limits.leased, "Maximum leased at once ")
                    }))
                    (one("each_group", "Leased of one group", count(limits.each_group), "Limit each group", limits.each_group.is_some(), {
                        number("each_group", limits.each_group, "Maximum leased of one group ")
                    }))
                    (one("in_order", "Messages of a group", {
                        (if limits.in_order { "in order" } else { "in any order" }).to_owned()
                    }, "Handle in order", limits.in_order, html! {}))
                    (one("rate", "Rate", rated, "Limit rate", rate.is_some(), html! {
                        (number("count", rate.map(|rate| rate.count), "Maximum deliveries "))
                        label {
                            "in "
                            input.short name="per" value=[rate.map(|rate| format!("{} ms", rate.per().as_millis()))] required
                                placeholder="1s" maxlength="64" autocomplete="off";
                        }
                        (number("burst", rate.map(|rate| rate.burst), "at once "))
                    }))
                }
            }
        }
    }
}

/// Sets or clears the limit that a form names.
pub(super) async fn change(context: Context, request: Request) -> Result<Response, Failure> {
    context.require(Role::Operator)?;
    let names = ["limit", "change", "leased", "each_group", "count", "per", "burst", "when*"];
    let fields = form(&context, request, &names).await?;
    let (name, queue) = context.queue()?;
    let set = changed(&context, &fields).await?;
    Op::SetLimits(set).validate()?;
    audited::set_limits(&context, name, queue, set).await?;
    Ok(see(&format!("queue?queue={}&note=limited", encoded(name.as_bytes()))))
}

async fn changed(context: &Context, fields: &Params) -> Result<SetLimits, Failure> {
    let set = match fields.text("change") {
        Some("set") => true,
        Some("clear") => false,
        _ => return Err(Failure::Wrong("`change` is `set` or `clear`".to_owned())),
    };
    let limits = SetLimits::new();
    Ok(match fields.text("limit") {
        Some("leased") if set => limits.leased(number(fields, "leased", MAX_LEASED)?),
        Some("leased") => limits.leased(None),
        Some("each_group") if set => limits.each_group(number(fields, "each_group", MAX_LEASED)?),
        Some("each_group") => limits.each_group(None),
        Some("in_order") => limits.in_order(set),
        Some("rate") if set => {
            let per = duration(fields.text("per").unwrap_or_default()).map_err(Failure::Wrong)?;
            let count = |name| number(fields, name, MAX_RATE_COUNT);
            limits.rate(Rate::new(count("count")?, per, count("burst")?))
        }
        Some("rate") => limits.rate(None),
        Some("hold") if set => match when(context, fields).await?.ok_or_else(no_time)? {
            Schedule::In(delay) => limits.hold_for(delay.into()),
            Schedule::At(until) => limits.hold_until(until.into()),
        },
        Some("hold") => limits.end_hold(),
        _ => {
            return Err(Failure::Wrong(
                "`limit` is leased, each_group, in_order, rate or hold".to_owned(),
            ));
        }
    })
}

fn number(fields: &Params, name: &str, most: u32) -> Result<u32, Failure> {
    let number = fields.text(name).and_then(|text| text.parse().ok());
    let wrong = || Failure::Wrong(format!("`{name}` must be a whole number from 1 to {most}"));
    number.ok_or_else(wrong)
}

/// The highest number of leases or deliveries.
const MOST: u32 = 1_000_000;
