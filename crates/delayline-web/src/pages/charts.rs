//! What happened in the last hours or days, as bars.

use delayline::admin::{History, Resolution};
use delayline_json::{self as json, Series, Span};
use maud::{Markup, html};

use super::parts::number;
use crate::failure::Failure;

/// The span that a query asks for.
pub(super) fn span(text: Option<&str>) -> Result<Span, Failure> {
    let Some(text) = text else { return Ok(Span::SixHours) };
    let span = Span::ALL.into_iter().find(|span| span.name() == text);
    span.ok_or_else(|| Failure::Wrong("`span` is 6h, 24h or 31d".to_owned()))
}

/// Links to the charts of each span.
pub(super) fn spans(of: &str, here: Span) -> Markup {
    html! {
        nav.tabs aria-label="Time of the charts" {
            @for span in Span::ALL {
                a href=(format!("queue?queue={of}&span={}", span.name()))
                    aria-current=[(span == here).then_some("true")] { (words(span)) }
            }
        }
    }
}

/// A span in words.
pub(super) const fn words(span: Span) -> &'static str {
    match span {
        Span::SixHours => "six hours",
        Span::Day => "24 hours",
        Span::Month => "31 days",
    }
}

/// A part of a span in words.
pub(super) const fn part(span: Span) -> &'static str {
    match span {
        Span::SixHours => "six minutes",
        Span::Day => "an hour",
        Span::Month => "twelve hours",
    }
}

/// What happened, with a bar for every part.
pub(super) fn flow(span: Span, history: &History) -> Markup {
    let series = json::series(span, history);
    let flows = series.iter().filter(|series| !series.is_level);
    let head = format!("Most in {}", part(span));
    html! { (table(&head, span, flows, "scheduled")) }
}

/// Number of messages, with a bar for the end of every part.
pub(super) fn depth(span: Span, history: &History) -> Markup {
    let series = json::series(span, history);
    html! { (table("Most", span, series.iter().filter(|series| series.is_level), "leased")) }
}

fn table<'a>(
    head: &str,
    span: Span,
    series: impl Iterator<Item = &'a Series>,
    class: &str,
) -> Markup {
    html! {
        table.forecast {
            thead { tr {
                th scope="col" { "What" }
                th.number scope="col" { (head) }
                td aria-hidden="true" { (ends(span)) }
            } }
            tbody {
                @for series in series {
                    @let most = series.parts.iter().copied().max().unwrap_or_default();
                    tr {
                        th scope="row" { (super::parts::capitalised(series.name)) }
                        td.number { (number(most)) }
                        td { (columns(&series.parts, most, class, None)) }
                    }
                }
            }
        }
    }
}

/// The ends of the axis of time.
pub(super) fn ends(span: Span) -> Markup {
    let ago = match span {
        Span::SixHours => "6 h ago",
        Span::Day => "24 h ago",
        Span::Month => "31 d ago",
    };
    html! { div.ends { span { (ago) } span { "now" } } }
}

/// The messages sent in the last six hours, as small as a cell.
pub(super) fn sparkline(history: &History) -> Markup {
    let series = json::series(Resolution::Minutes, history);
    let Some(sent) = series.iter().find(|series| series.name == "sent") else { return html! {} };
    let most = sent.parts.iter().copied().max().unwrap_or_default();
    let all = sent.parts.iter().fold(0_u64, |sum, count| sum.saturating_add(*count));
    let label = format!("{} in six hours, at most {} in six minutes", number(all), number(most));
    columns(&sent.parts, most, "scheduled", Some(&label))
}

fn columns(parts: &[u64], most: u64, class: &str, label: Option<&str>) -> Markup {
    // What there is can be seen, however little it is.
    let height = |count: u64| (u128::from(count) * 20).div_ceil(u128::from(most.max(1)));
    let view = format!("0 0 {} 20", parts.len() * 10);
    html! {
        svg.bar viewBox=(view) preserveAspectRatio="none" role=[label.map(|_| "img")]
            aria-label=[label] aria-hidden=[label.is_none().then_some("true")] {
            @for (n, count) in parts.iter().enumerate().filter(|(_, count)| **count > 0) {
                @let height = height(*count);
                rect class=(class) x=(n * 10) y=(20 - height) width="9" height=(height) {}
            }
        }
    }
}
