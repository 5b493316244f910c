//! The line of time of a queue: what happened and what falls due, on one axis with now in it.

use delayline_chart::short;
use delayline_json::{Past, Span, Step, lateness_within, part_of};
use maud::{Markup, html};

use super::parts::number;
use super::picture::{Line, NO_WORKER, ratio, time, words};
use crate::failure::Failure;

/// The span that a query asks for.
pub(super) fn span(text: Option<&str>) -> Result<Span, Failure> {
    let Some(text) = text else { return Ok(Span::SixHours) };
    let span = Span::ALL.into_iter().find(|span| span.name() == text);
    span.ok_or_else(|| Failure::Wrong("`span` is 1h, 6h, 24h or 31d".to_owned()))
}

impl Line<'_> {
    /// The picture, its legend, and its figures as a table.
    pub(super) fn shown(&self) -> Markup {
        let (span, step, _) = words(self.span);
        html! {
            figure.line {
                figcaption.head {
                    span { (self.summary(span)) }
                    nav.tabs.spans aria-label="Time of the picture" {
                        @for span in Span::ALL {
                            a href=(format!("queue?queue={}&span={}", self.of(), span.name()))
                                aria-current=[(span == self.span).then_some("true")] { (span.name()) }
                        }
                    }
                }
                div.plot aria-hidden="true" { (self.draw()) }
                (self.legend(step))
            }
            details {
                summary { "These figures as a table" }
                (self.table())
            }
        }
    }

    fn summary(&self, span: &str) -> Markup {
        let sum =
            |of: fn(&Past) -> u64| self.pasts().fold(0_u64, |sum, it| sum.saturating_add(of(it.1)));
        let due = self.dues().fold(0_u64, |sum, it| sum.saturating_add(it.1));
        html! {
            "Last " (span) ": " strong { (number(sum(|it| it.delivered))) } " delivered, "
            (number(sum(|it| it.acked))) " acked, " (number(sum(|it| it.failed))) " failed. "
            "Next " (span) ": "
            @match self.later {
                Some(later) => { strong { (number(due)) } " fall due, " (number(later)) " later." }
                None => "what falls due cannot be read."
            }
        }
    }

    fn legend(&self, step: &str) -> Markup {
        let stalled = self.pasts().any(|(_, past)| past.is_stalled);
        html! {
            ul.legend {
                @for (class, text) in [
                    ("acked", "acked"),
                    ("failed", "failed"),
                    ("other", "in progress, snoozed or released"),
                    ("due", "falls due"),
                    ("p50", "50 % late below"),
                    ("p99", "99 % late below"),
                    ("depth", "waiting"),
                ] { li { span class=(format!("key {class}")) {} (text) } }
                @if stalled { li { span.key.stall {} "messages were due, none was delivered" } }
                @if let Some((_, why)) = self.stopped() {
                    li {
                        span.key.stall {} (why)
                        // Others may take messages, which no list of workers has.
                        @if why != NO_WORKER { ": nothing is delivered" }
                    }
                }
                @if !self.marks.is_empty() { li { span.key.mark {} "a schedule sends a message" } }
                @if let Some(rate) = self.stats.limits.rate {
                    li { span.key.limit {} "at most " (short(f64::from(rate.count)
                        / rate.per().as_secs_f64() * ratio(part_of(self.span).as_ms(), 1_000))) " per " (step) }
                }
            }
        }
    }

    fn table(&self) -> Markup {
        let empty = Past::default();
        let says = |step: &&Step| {
            let past = step.past.as_ref().unwrap_or(&empty);
            past.delivered > 0
                || past.sent > 0
                || past.failed > 0
                || past.died > 0
                || step.due.is_some_and(|due| due > 0)
        };
        let steps: Vec<&Step> = self.steps.iter().filter(says).collect();
        let shown = |count: Option<u64>| count.map_or_else(|| "-".to_owned(), number);
        html! {
            @if steps.is_empty() { p { "Nothing happened, and nothing falls due." } } @else {
                div.scroll tabindex="0" role="region" aria-label="Figures of the picture" {
                    table.figures {
                        thead { tr {
                            th scope="col" { "Time" }
                            @for head in ["Sent", "Delivered", "Acked", "Failed", "Died", "50 % late", "99 % late", "Waiting", "Falls due"] {
                                th.number scope="col" { (head) }
                            }
                        } }
                        tbody {
                            @for step in &steps {
                                @let past = step.past.as_ref();
                                tr {
                                    th scope="row" {
                                        @match self.link(step) {
                                            Some(link) => a href=(link) { (time(step)) },
                                            None => (time(step)),
                                        }
                                    }
                                    @for count in [
                                        past.map(|it| it.sent),
                                        past.map(|it| it.delivered),
                                        past.map(|it| it.acked),
                                        past.map(|it| it.failed),
                                        past.map(|it| it.died),
                                    ] { td.number { (shown(count)) } }
                                    @for late in [past.and_then(|it| it.p50), past.and_then(|it| it.p99)] {
                                        td.number { (late.map_or_else(|| "-".to_owned(), lateness_within)) }
                                    }
                                    td.number { (shown(past.map(|it| it.waiting))) }
                                    td.number { (shown(step.due)) }
                                }
                            }
                        }
                    }
                }
                p.far { "Steps in which nothing happened are left out." }
            }
        }
    }
}
