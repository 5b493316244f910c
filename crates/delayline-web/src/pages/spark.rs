//! Past and future of a queue as small as a cell.

use delayline::admin::Totals;
use delayline_chart::{Svg, outline};
use delayline_json::{Step, lateness_bucket};
use maud::{Markup, PreEscaped, html};

use super::picture::{as_f64, latency, ratio};

/// What happened and what falls due as small as a cell, in 30 steps each.
pub(super) fn sparkline(steps: &[Step], label: &str) -> Markup {
    let middle = steps.len() / 2;
    // The step that is now begins a pair.
    let pairs = |from: usize, until: usize, of: fn(&Step) -> u64| {
        let steps = steps.get(from..until).unwrap_or_default().chunks(2);
        steps
            .map(move |pair| pair.iter().fold(0_u64, |sum, step| sum.saturating_add(of(step))))
            .collect::<Vec<_>>()
    };
    let past =
        pairs(0, middle + 1, |step| step.past.as_ref().map_or(0, |it| it.delivered.max(it.acked)));
    let ahead = pairs(middle, steps.len(), |step| step.due.unwrap_or_default());
    let most = past.iter().chain(&ahead).copied().max().unwrap_or_default().max(1);
    let columns = |counts: &[u64], from: f64| {
        let columns: Vec<_> = counts
            .iter()
            .enumerate()
            .map(|(n, count)| {
                let height = if *count == 0 { 0.0 } else { (ratio(*count, most) * 26.0).max(1.5) };
                (from + as_f64(n) * 2.0, from + as_f64(n) * 2.0 + 2.0, 28.0 - height)
            })
            .collect();
        outline(28.0, columns)
    };
    let end = as_f64(past.len()) * 2.0;
    let view = format!("0 0 {} 29", end + as_f64(ahead.len()) * 2.0 + 1.0);
    let mut svg = Svg::default();
    svg.open(
        "svg",
        &[
            ("class", &"spark"),
            ("viewBox", &view),
            ("preserveAspectRatio", &"none"),
            ("role", &"img"),
            ("aria-label", &label),
        ],
    );
    svg.leaf("path", &[("class", &"base"), ("d", &format!("M0 28.5H{}", end * 3.0))]);
    svg.leaf("path", &[("class", &"acked"), ("d", &columns(&past, 0.0))]);
    svg.leaf("path", &[("class", &"due"), ("d", &columns(&ahead, end + 1.0))]);
    svg.leaf("path", &[("class", &"now"), ("d", &format!("M{} 0V29", end + 0.5))]);
    html! { (PreEscaped(svg.finish())) }
}

/// The 99th percentile of the lateness of deliveries, as short as a cell.
pub(super) fn late(counts: &[u64]) -> Option<String> {
    let bucket = lateness_bucket(counts, 99)?;
    Some(match Totals::lateness_bound(bucket) {
        Some(bound) => latency(bound.as_secs_f64() * 1_000.0),
        None => "> 32 s".to_owned(),
    })
}
