//! Lateness of deliveries.

use delayline::admin::History;
use delayline_json::{Span, lateness_from, lateness_series, lateness_shares};
use maud::{Markup, html};

use super::charts;
use super::parts::number;

/// A strip for each lateness, the latest first, in which each part of the span has a field; and for
/// six hours, the same in words for each hour.
pub(super) fn plot(span: Span, history: &History) -> Markup {
    let rows = lateness_series(span, history);
    let all: Vec<u64> = rows.iter().map(|row| sum(row)).collect();
    let Some(words) = lateness_shares(&all) else {
        return html! { p { "Nothing was delivered." } };
    };
    // From the latest that occurred to the earliest that is possible, without a gap.
    let shown = rows.iter().rposition(|row| row.iter().any(|count| *count > 0)).unwrap_or(0);
    let most = rows.iter().flatten().copied().max().unwrap_or_default();
    html! {
        p { "In the last " (charts::words(span)) ": " (words) "." }
        table.forecast.heat {
            thead { tr {
                th scope="col" { "Late from" }
                th.number scope="col" { "Deliveries" }
                td aria-hidden="true" { (charts::ends(span)) }
            } }
            tbody {
                @for (bucket, row) in rows.iter().enumerate().take(shown + 1).rev() {
                    tr {
                        th scope="row" { (lateness_from(bucket)) }
                        td.number { (number(sum(row))) }
                        td { (strip(row, most)) }
                    }
                }
            }
        }
        p.far {
            "A stronger colour means more deliveries: at most " (number(most))
            " in a cell of " (charts::part(span)) "."
        }
        @if span == Span::SixHours { (by_hour(&rows)) }
    }
}

fn strip(parts: &[u64], most: u64) -> Markup {
    let width = parts.len() * 10;
    html! {
        svg.bar viewBox=(format!("0 0 {width} 20")) preserveAspectRatio="none" aria-hidden="true" {
            rect.none x="0" y="0" width=(width) height="20" {}
            @for (n, count) in parts.iter().enumerate().filter(|(_, count)| **count > 0) {
                rect.heat x=(n * 10) y="0" width="10" height="20"
                    fill-opacity=(strength(*count, most)) {}
            }
        }
    }
}

/// How opaque a field is: by the number of digits, since a few late deliveries among thousands are
/// what matters. A single one can be seen.
fn strength(count: u64, most: u64) -> String {
    let digits = |count: u64| u64::from(u64::BITS - count.leading_zeros());
    let percent = 30 + 70 * digits(count) / digits(most).max(1);
    format!("{}.{:02}", percent / 100, percent % 100)
}

fn by_hour(rows: &[Vec<u64>]) -> Markup {
    let parts = rows.first().map_or(0, Vec::len);
    let hours = parts.div_ceil(PARTS_IN_AN_HOUR);
    let hour = |hour: usize| -> Vec<u64> {
        let of_hour =
            |row: &Vec<u64>| sum(row.chunks(PARTS_IN_AN_HOUR).nth(hour).unwrap_or_default());
        rows.iter().map(of_hour).collect()
    };
    html! {
        table.forecast {
            thead { tr {
                th scope="col" { "Hour" }
                th.number scope="col" { "Deliveries" }
                th scope="col" { "Late by" }
            } }
            tbody {
                @for (n, counts) in (0..hours).map(|n| (n, hour(n))) {
                    tr {
                        th scope="row" { (span_of(hours - n)) }
                        td.number { (number(sum(&counts))) }
                        td { (lateness_shares(&counts).as_deref().unwrap_or("-")) }
                    }
                }
            }
        }
    }
}

fn span_of(hours: usize) -> String {
    match hours {
        1 => "last hour".to_owned(),
        hours => format!("{hours} to {} h ago", hours - 1),
    }
}

fn sum(counts: &[u64]) -> u64 {
    counts.iter().fold(0, |sum, count| sum.saturating_add(*count))
}

/// Of six minutes each.
const PARTS_IN_AN_HOUR: usize = 10;

#[cfg(test)]
mod tests {
    use delayline::Timestamp;
    use delayline::admin::HistoryPoint;

    use super::*;

    fn point(minute: u64, lateness: &[(usize, u64)]) -> HistoryPoint {
        let mut point = HistoryPoint::default();
        point.at = Timestamp::from_ms(minute * 60_000).unwrap();
        for (bucket, count) in lateness {
            point.totals.lateness[*bucket] = *count;
        }
        point
    }

    fn drawn(points: Vec<HistoryPoint>) -> String {
        plot(Span::SixHours, &History::new(points)).into_string()
    }

    #[test]
    fn each_lateness_that_occurred_has_a_strip() {
        let page = drawn(vec![
            point(1_000, &[(0, 5)]),
            point(1_001, &[(0, 1_005)]),
            point(1_300, &[(0, 1_006), (3, 1)]),
            point(1_337, &[(0, 1_006), (3, 1)]),
        ]);
        assert_eq!(page.matches("<svg").count(), 4, "{page}");
        assert!(page.contains(">8 ms<") && !page.contains(">16 ms<"), "{page}");
        // The part of minute 1,000 is the fourth of 60; from 1,001 to 1,006 is the same one.
        let many = r#"<rect class="heat" x="30" y="0" width="10" height="20" fill-opacity="1.00">"#;
        let one = r#"<rect class="heat" x="30" y="0" width="10" height="20" fill-opacity="0.37">"#;
        assert!(page.contains(many) && page.contains(one), "{page}");
        assert_eq!(page.matches(r#"class="heat""#).count(), 2, "{page}");
        let hour = "<th scope=\"row\">6 to 5 h ago</th><td class=\"number\">1,002</td>\
                    <td>50 % below 2 ms, 99 % below 2 ms, all below 16 ms</td>";
        assert!(page.contains(hour), "{page}");
        assert!(page.contains("last hour</th><td class=\"number\">0</td><td>-</td>"), "{page}");
    }

    #[test]
    fn odd_histories_are_drawn_too() {
        assert!(drawn(Vec::new()).contains("Nothing was delivered."));
        assert!(drawn(vec![point(1, &[(0, 9)])]).contains("Nothing was delivered."));
        // Counters that are damaged.
        let all: Vec<_> = (0..16).map(|bucket| (bucket, u64::MAX)).collect();
        let page = drawn(vec![point(0, &[]), point(1, &all)]);
        assert!(page.contains(">32.8 s<") && page.contains("fill-opacity=\"1.00\""), "{page}");
        let busy = (0..=360).map(|minute| {
            let counts: Vec<_> = (0..16).map(|bucket| (bucket, minute * minute)).collect();
            point(minute, &counts)
        });
        let page = drawn(busy.collect());
        assert!(page.len() < 100_000, "{}", page.len());
    }
}
