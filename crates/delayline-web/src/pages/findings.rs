//! The findings of an examination.

use delayline_admin::doctor::{Finding, Verdict};
use maud::{Markup, html};

use super::parts::capitalised;

/// The findings, the worst first.
pub(super) fn findings(found: &[Finding]) -> Markup {
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

/// How many rows of a table are not shown.
pub(super) fn cut(left_out: usize) -> Markup {
    html! {
        @if left_out > 0 {
            p.notice { (left_out) " more are not shown. " code { "delayline doctor" } " has all." }
        }
    }
}

/// The beginning of a text that a server may have written.
pub(super) fn short(text: &str) -> String {
    crate::content::short(text, MOST_CHARS)
}

/// Rows of each table.
pub(super) const MOST_ROWS: usize = 200;
const MOST_CHARS: usize = 1_000;
