//! Instants and durations for people.

use std::time::Duration;

use axum::http::HeaderMap;
use axum::http::header::COOKIE;
use delayline::Timestamp;
use delayline_json::Zone;
use maud::{Markup, html};

use crate::failure::Failure;
use crate::ids;

/// An instant in the viewer's zone, in UTC, and relative to now.
pub(crate) fn time(now: Timestamp, instant: Timestamp) -> Markup {
    let zone = zone();
    let utc = instant.to_string();
    let shown = utc.replace('T', " ").replace('Z', " UTC");
    html! {
        @if zone.is_utc() { time datetime=(utc) { (shown) } } @else {
            time datetime=(utc) { (zone.shown(instant)) }
            " " span.utc { (shown) }
        }
        " " span.far { "(" (relative(now, instant)) ")" }
    }
}

tokio::task_local! {
    /// The zone of the visitor whose request this task answers.
    static ZONE: Zone;
}

/// Answers a request with times in the zone of its cookie.
pub(crate) async fn in_zone_of<T>(headers: &HeaderMap, answer: impl Future<Output = T>) -> T {
    ZONE.scope(chosen(headers).unwrap_or_default(), answer).await
}

/// The zone of the visitor; UTC if the browser has named none.
pub(crate) fn zone() -> Zone {
    ZONE.try_with(Clone::clone).unwrap_or_default()
}

/// The zone in the cookie. A name that is unknown here is ignored.
fn chosen(headers: &HeaderMap) -> Option<Zone> {
    let cookies = headers.get_all(COOKIE).iter().filter_map(|it| it.to_str().ok());
    let mut pairs = cookies.flat_map(|it| it.split(';')).filter_map(|it| it.split_once('='));
    let (_, name) = pairs.find(|(name, _)| name.trim() == ZONE_COOKIE)?;
    Zone::named(std::str::from_utf8(&ids::decoded(name.trim().as_bytes())).ok()?).ok()
}

/// The cookie that has the name of the visitor's zone. The script sets it, and so does the form at
/// the end of each page.
pub(crate) const ZONE_COOKIE: &str = "delayline_zone";

/// Reads a point in time in the visitor's zone.
pub(crate) fn moment(now: Timestamp, text: &str) -> Result<Timestamp, Failure> {
    let at = delayline_json::moment(text, now.into(), &zone()).map_err(Failure::Wrong)?;
    Ok(Timestamp::try_from(at)?)
}

/// How far away an instant is: `in 5 min`, `2 h 10 min ago`.
pub(crate) fn relative(now: Timestamp, instant: Timestamp) -> String {
    if instant > now {
        return format!("in {}", span(instant.since(now)));
    }
    match now.since(instant) {
        short if short < Duration::from_secs(1) => "now".to_owned(),
        long => format!("{} ago", span(long)),
    }
}

/// A duration by its two largest units.
pub(crate) fn span(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let two = |large: u64, unit: &str, small: u64, small_unit: &str| match small {
        0 => format!("{large} {unit}"),
        small => format!("{large} {unit} {small} {small_unit}"),
    };
    match seconds {
        0 => format!("{} ms", duration.subsec_millis()),
        1..60 => format!("{seconds} s"),
        60..3_600 => two(seconds / 60, "min", seconds % 60, "s"),
        3_600..86_400 => two(seconds / 3_600, "h", seconds / 60 % 60, "min"),
        _ => two(seconds / 86_400, "d", seconds / 3_600 % 24, "h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_are_told_by_their_two_largest_units() {
        let at = |ms| Timestamp::from_ms(ms).unwrap();
        let now = at(1_000_000_000);
        for (instant, told) in [
            (1_000_000_000, "now"),
            (999_999_500, "now"),
            (1_000_000_500, "in 500 ms"),
            (1_000_059_000, "in 59 s"),
            (1_000_061_000, "in 1 min 1 s"),
            (996_400_000, "1 h ago"),
            (992_200_000, "2 h 10 min ago"),
            (0, "11 d 13 h ago"),
        ] {
            assert_eq!(relative(now, at(instant)), told);
        }
    }
}
