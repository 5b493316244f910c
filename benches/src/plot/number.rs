//! How numbers are written.

/// A figure as people read it, with up to three digits: `1.02`, `39.6k`, `1M`.
pub(super) fn short(figure: f64) -> String {
    let (scaled, suffix) = match figure.abs() {
        999_500.0.. => (figure / 1e6, "M"),
        // Four digits are shorter than a fraction of a thousand.
        9_999.5.. => (figure / 1e3, "k"),
        _ => (figure, ""),
    };
    let digits = match scaled.abs() {
        99.95.. => 0,
        9.995.. => 1,
        _ => 2,
    };
    let text = format!("{scaled:.digits$}");
    let text = match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.'),
        false => &text,
    };
    format!("{text}{suffix}")
}

#[cfg(test)]
mod tests {
    use super::short;

    #[test]
    fn figures_are_short() {
        let cases = [
            (0.3, "0.3"),
            (1.02, "1.02"),
            (6.0, "6"),
            (11.8, "11.8"),
            (233.0, "233"),
            (1_621.0, "1621"),
            (10_000.0, "10k"),
            (39_640.0, "39.6k"),
            (373_134.0, "373k"),
            (999_700.0, "1M"),
            (1_365_680.0, "1.37M"),
            (0.0, "0"),
        ];
        for (figure, text) in cases {
            assert_eq!(short(figure), text);
        }
    }
}
