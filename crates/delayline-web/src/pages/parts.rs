//! Pieces of pages.

use delayline::Timestamp;
use delayline::admin::Stats;
use delayline::message::{MessageInfo, MessageState, Progress};
use delayline_json::harmless_line;
use maud::{Markup, html};

use crate::content::short;
use crate::context::Context;
use crate::ids::encoded;
use crate::survey::LATE_SECONDS;
use crate::when::{relative, time};

/// The relative address of a message's page.
pub(super) fn message_link(queue: &str, id: &delayline::MessageId) -> String {
    format!("message?queue={}&id={}", encoded(queue.as_bytes()), encoded(id.as_bytes()))
}

/// The name of a queue, which leads to its page if the visitor has one here.
pub(super) fn queue_link(context: &Context, queue: &str) -> Markup {
    html! {
        @if context.served(queue).is_ok() {
            a href=(format!("queue?queue={}", encoded(queue.as_bytes()))) { (name(queue)) }
        } @else { (name(queue)) }
    }
}

/// A number with its digits in groups of three.
pub(super) fn number(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// A name with a capital at its beginning.
pub(super) fn capitalised(name: &str) -> String {
    let (first, rest) = name.split_at(name.len().min(1));
    first.to_ascii_uppercase() + rest
}

/// The name of a queue or a schedule. In a narrow column it breaks after a separator, or after
/// many characters without one, rather than in the middle of a word.
pub(super) fn name(text: &str) -> Markup {
    let mut parts = vec![String::new()];
    for character in text.chars() {
        if let Some(part) = parts.last_mut() {
            part.push(character);
            if "-_./:".contains(character) || part.chars().count() >= MOST_UNBROKEN {
                parts.push(String::new());
            }
        }
    }
    html! {
        span.name {
            @for (number, part) in parts.iter().filter(|part| !part.is_empty()).enumerate() {
                @if number > 0 { wbr; }
                (part)
            }
        }
    }
}

/// Characters of a name that stay on one line.
const MOST_UNBROKEN: usize = 20;

/// The messages by state in words.
pub(super) fn in_words(stats: &Stats) -> String {
    let Stats { scheduled, ready, leased, dead, .. } = stats;
    let [scheduled, ready, leased, dead] = [scheduled, ready, leased, dead].map(|it| number(*it));
    format!("{scheduled} scheduled, {ready} ready, {leased} leased, {dead} dead")
}

/// What limits the deliveries of a queue.
pub(super) fn badges(of: &str, stats: &Stats) -> Markup {
    let limits = &stats.limits;
    let is_limited =
        limits.leased.is_some() || limits.each_group.is_some() || limits.rate.is_some();
    let settings = format!("queue?queue={of}#limits");
    html! {
        @if stats.paused { " " span.badge.warn { "paused" } }
        @if limits.held_until.is_some() { " " span.badge.warn { "held" } }
        @if is_limited { " " a.badge href=(settings) { "limited" } }
        @if limits.in_order { " " a.badge href=(settings) { "in order" } }
    }
}

/// How late the queue is, and since when.
pub(super) fn overdue(stats: &Stats, now: Timestamp) -> Markup {
    match stats.earliest_due {
        Some(due) if due <= now && stats.ready > 0 => html! {
            span.late[now.since(due).as_secs() >= LATE_SECONDS] { "due " (relative(now, due)) }
        },
        Some(due) => html! { span.next { "next " (relative(now, due)) } },
        None => html! { span.far { "nothing to do" } },
    }
}

/// Columns of a list of messages: their names, and whether they are numbers.
pub(super) const COLUMNS: [(&str, bool); 5] =
    [("Id", false), ("Due", false), ("Tries", true), ("Bytes", true), ("Note", false)];

/// Messages on a page.
pub(super) const PAGE: usize = 50;

/// A row of a list; `first` stands before the id.
pub(super) fn row(queue: &str, now: Timestamp, info: &MessageInfo, first: &Markup) -> Markup {
    html! {
        tr {
            (first)
            td.id data-label="Id" { a href=(message_link(queue, &info.id)) { (info.id) } }
            td data-label="Due" { (time(now, info.due)) }
            td.number data-label="Tries" { (tries(info)) }
            td.number data-label="Bytes" {
                (number(u64::try_from(info.payload_bytes).unwrap_or(u64::MAX)))
            }
            td.note data-label="Note" { (note(now, info)) }
        }
    }
}

/// Failures and crashes, each of how many.
pub(super) fn tries(info: &MessageInfo) -> String {
    let MessageInfo { failures, max_failures, crashes, max_crashes, .. } = info;
    match crashes {
        0 => format!("{failures}/{max_failures}"),
        _ => format!("{failures}/{max_failures}, crashes {crashes}/{max_crashes}"),
    }
}

/// A bar for the progress of a handler. `has_text` puts its text behind it.
pub(super) fn bar(progress: &Progress, has_text: bool) -> Markup {
    html! {
        p.progress {
            progress aria-label="Progress" max="1000" value=(progress.permille) {}
            @if has_text { " " (harmless_line(&progress.to_string())) }
        }
    }
}

fn note(now: Timestamp, info: &MessageInfo) -> Markup {
    html! {
        @match info.state {
            MessageState::Dead { reason, since } => {
                span.badge.dead { (reason.name().replace('_', " ")) } " "
                span.far { (relative(now, since)) } " "
            }
            MessageState::Leased { deadline, cancel_requested } => {
                span.far { "lease ends " (relative(now, deadline)) } " "
                @if cancel_requested { span.badge { "cancel requested" } " " }
            }
            _ => {}
        }
        @if let Some(progress) = &info.progress {
            span.far { (short(&progress.to_string(), 60)) } " "
        }
        @if let Some(group) = &info.group {
            span.badge { "group " (short(&group.to_string(), 40)) } " "
        }
        @if info.priority != delayline::message::Priority::Normal {
            span.badge { (info.priority.name()) } " "
        }
        @if let Some(error) = &info.last_error { span.error { (short(error, 120)) } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_stand_in_groups() {
        for (value, shown) in
            [(0, "0"), (999, "999"), (1_000, "1,000"), (u64::MAX, "18,446,744,073,709,551,615")]
        {
            assert_eq!(number(value), shown);
        }
    }

    #[test]
    fn names_break_between_words() {
        for (text, parts) in [
            ("orders", "orders"),
            ("payment-retries", "payment-|retries"),
            ("a/b:7_x.", "a/|b:|7_|x."),
            ("<b>-", "&lt;b&gt;-"),
            (&"x".repeat(45), &format!("{0}|{0}|xxxxx", "x".repeat(20))),
        ] {
            let expected = format!("<span class=\"name\">{}</span>", parts.replace('|', "<wbr>"));
            assert_eq!(name(text).into_string(), expected);
        }
    }
}
