//! Instants and durations for people.

use std::time::Duration;

use delayline::Timestamp;
use maud::{Markup, html};

/// An instant in UTC, and how far away it is. The script adds the viewer's own zone.
pub(crate) fn time(now: Timestamp, instant: Timestamp) -> Markup {
    let utc = instant.to_string();
    let shown = utc.replace('T', " ").replace('Z', " UTC");
    html! {
        time datetime=(utc) { (shown) }
        " " span.far { "(" (relative(now, instant)) ")" }
    }
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
