//! Where a figure stands, and which figures an axis names.

/// An axis: its ticks, whose first and last are its ends, and the places of figures.
#[derive(Clone, Debug, PartialEq)]
pub struct Scale {
    ticks: Vec<f64>,
    logarithmic: bool,
    from: f64,
    to: f64,
}

impl Scale {
    /// A linear scale of round numbers around the figures, with at most `gaps` even gaps between
    /// them and about half as many at least. It reaches from 0 to 1 until
    /// [`between`](Self::between).
    #[must_use]
    pub fn even(least: f64, most: f64, gaps: u32) -> Self {
        let gaps = f64::from(gaps.max(2));
        let width = (most - least).max(most * 1e-6).max(f64::MIN_POSITIVE * 1e9);
        let power = 10_f64.powf((width / (gaps - 1.0)).log10().floor());
        let gap = [1.0, 2.0, 5.0, 10.0].map(|step| step * power);
        let gap = gap.into_iter().find(|gap| width / gap <= gaps).unwrap_or(10.0 * power);
        let (mut tick, mut ticks) = ((least / gap + 1e-9).floor(), Vec::new());
        loop {
            ticks.push(tick * gap);
            if tick * gap >= most * 0.9999 {
                return Self::of(ticks, false);
            }
            tick += 1.0;
        }
    }

    /// A linear scale of whole numbers from 0 on, for counts.
    #[must_use]
    pub fn counts(most: u64, gaps: u32) -> Self {
        // Exact enough for a place on a screen.
        #[expect(clippy::cast_precision_loss, reason = "a place on a screen")]
        let most = most as f64;
        Self::even(0.0, most.max(f64::from(gaps)), gaps)
    }

    /// A logarithmic scale of 1, 3, 10, 30 and so on, around the figures. Figures below 0.001 stand
    /// at its beginning.
    #[must_use]
    pub fn threes(least: f64, most: f64) -> Self {
        let steps = (-6..=24).map(|n: i32| {
            let of_three = if n.rem_euclid(2) == 0 { 1.0 } else { 3.0 };
            of_three * 10_f64.powi(n.div_euclid(2))
        });
        Self::around(&steps.collect::<Vec<_>>(), least, most)
    }

    /// A logarithmic scale of powers of ten around the figures.
    #[must_use]
    pub fn tens(least: f64, most: f64) -> Self {
        Self::around(&(-3..=12).map(|n| 10_f64.powi(n)).collect::<Vec<_>>(), least, most)
    }

    fn around(steps: &[f64], least: f64, most: f64) -> Self {
        let end = steps.len().saturating_sub(1);
        let first = steps.iter().rposition(|step| *step <= least * 1.0001).unwrap_or(0);
        let last = steps.iter().position(|step| *step >= most * 0.9999).unwrap_or(end);
        Self::of(steps[first.min(end - 1)..=last.max(first + 1).min(end)].to_vec(), true)
    }

    const fn of(ticks: Vec<f64>, logarithmic: bool) -> Self {
        Self { ticks, logarithmic, from: 0.0, to: 1.0 }
    }

    /// The same scale from one place to another. Heights of a screen begin at the greater one.
    #[must_use]
    pub fn between(self, from: f64, to: f64) -> Self {
        Self { from, to, ..self }
    }

    /// The figures that the axis names, in ascending order.
    #[must_use]
    pub fn ticks(&self) -> &[f64] {
        &self.ticks
    }

    /// Returns `true` if equal gaps are equal ratios.
    #[must_use]
    pub const fn is_logarithmic(&self) -> bool {
        self.logarithmic
    }

    /// The place of a figure. It is outside of the ends if the figure is.
    #[must_use]
    pub fn place(&self, figure: f64) -> f64 {
        let scaled = |figure: f64| if self.logarithmic { figure.max(1e-3).log10() } else { figure };
        let (Some(first), Some(last)) = (self.ticks.first(), self.ticks.last()) else {
            return self.from;
        };
        let part = (scaled(figure) - scaled(*first)) / (scaled(*last) - scaled(*first));
        self.from + part * (self.to - self.from)
    }
}

/// The instants of a span that a time axis names: the multiples of `step` by the clocks of the
/// viewer. All are in ms since 1970; `offset` returns how far the clocks are ahead of UTC at an
/// instant. A step of several days begins on a Monday. Returns at most 100 instants.
pub fn instants(from: u64, until: u64, step: u64, offset: impl Fn(u64) -> i64) -> Vec<u64> {
    // 1970 began on a Thursday.
    let shift = if step > DAY { 3 * DAY } else { 0 };
    // Clocks are changed by half an hour at least.
    let stride = step.clamp(1, DAY / 48);
    let on_clock = |at: u64| at.saturating_add_signed(offset(at)).saturating_add(shift);
    let is_tick = |at: &u64| on_clock(*at).is_multiple_of(step.max(1));
    let grid = on_clock(from) % stride;
    let first = if grid == 0 { from } else { from.saturating_add(stride - grid) };
    let all = (0..).map(|n: u64| first.saturating_add(n.saturating_mul(stride)));
    all.take_while(|at| *at <= until && *at < u64::MAX).filter(is_tick).take(100).collect()
}

const DAY: u64 = 86_400_000;

/// A figure as people read it, with up to three digits: `1.02`, `39.6k`, `1M`.
#[must_use]
pub fn short(figure: f64) -> String {
    let (scaled, suffix) = match figure.abs() {
        999_500_000_000.0.. => (figure / 1e12, "T"),
        999_500_000.0.. => (figure / 1e9, "G"),
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
    use super::*;

    fn named(scale: &Scale) -> String {
        scale.ticks().iter().map(|tick| short(*tick)).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn logarithmic_axes_name_ones_and_threes_or_tens() {
        assert_eq!(named(&Scale::threes(12_000.0, 250_000.0)), "10k 30k 100k 300k");
        assert_eq!(named(&Scale::threes(0.64, 55.0)), "0.3 1 3 10 30 100");
        assert_eq!(named(&Scale::threes(1.0, 10.0)), "1 3 10", "figures on a tick");
        assert_eq!(named(&Scale::threes(5.0, 5.0)), "3 10");
        assert_eq!(named(&Scale::threes(3.0, 3.0)), "3 10", "an axis has two ends");
        assert_eq!(named(&Scale::tens(2.0, 65_536.0)), "1 10 100 1000 10k 100k");
        assert_eq!(named(&Scale::tens(1e99, 1e99)), "100G 1T", "beyond the last one");
        assert_eq!(named(&Scale::tens(0.0, 0.0)), "0 0.01");
    }

    #[test]
    fn linear_axes_have_round_gaps() {
        assert_eq!(named(&Scale::even(0.0, 5.57, 6)), "0 1 2 3 4 5 6");
        assert_eq!(named(&Scale::even(0.0, 0.4, 6)), "0 0.1 0.2 0.3 0.4");
        assert_eq!(named(&Scale::even(0.0, 348_090.0, 6)), "0 100k 200k 300k 400k");
        assert_eq!(named(&Scale::even(0.79, 1.32, 6)), "0.7 0.8 0.9 1 1.1 1.2 1.3 1.4");
        assert_eq!(named(&Scale::even(0.0, 0.0, 6)), "0", "nothing was measured");
        for (most, ticks) in [
            (0, "0 1 2 3"),
            (1, "0 1 2 3"),
            (4, "0 2 4"),
            (17, "0 10 20"),
            (35, "0 20 40"),
            (1_234, "0 500 1000 1500"),
            (u64::MAX, "0 10000000T 20000000T"),
        ] {
            assert_eq!(named(&Scale::counts(most, 3)), ticks, "{most}");
        }
    }

    #[test]
    fn figures_stand_between_the_ends() {
        let even = Scale::even(0.0, 40.0, 4).between(100.0, 0.0);
        assert_eq!([0.0, 10.0, 40.0, 80.0].map(|it| even.place(it)), [100.0, 75.0, 0.0, -100.0]);
        let even = Scale::even(20.0, 60.0, 4).between(0.0, 100.0);
        assert_eq!([20.0, 40.0, 60.0].map(|it| even.place(it)), [0.0, 50.0, 100.0]);
        let tens = Scale::tens(10.0, 1_000.0).between(0.0, 10.0);
        assert_eq!([10.0, 100.0, 1_000.0].map(|it| tens.place(it)), [0.0, 5.0, 10.0]);
        assert!(tens.is_logarithmic() && tens.place(0.0) < 0.0);
    }

    #[test]
    fn a_time_axis_names_round_times_of_the_clock() {
        const HOUR: u64 = 3_600_000;
        let in_hours = |from: u64, until: u64, step: u64, ahead: i64| {
            let ahead = ahead * i64::try_from(HOUR / 2).unwrap();
            let all = instants(from * HOUR, until * HOUR, step * HOUR, |_| ahead);
            all.into_iter().map(|at| at / (HOUR / 2)).collect::<Vec<_>>()
        };
        assert_eq!(in_hours(5, 20, 6, 0), [12, 24, 36]);
        assert_eq!(in_hours(6, 18, 6, 0), [12, 24, 36], "both ends count");
        // Clocks that are 5:30 hours ahead show 12:00 at 06:30.
        assert_eq!(in_hours(5, 20, 6, 11), [13, 25, 37]);
        // The first Monday of 1970 was the fifth of January.
        assert_eq!(in_hours(0, 24 * 14, 24 * 7, 0), [24 * 4 * 2, 24 * 11 * 2]);
        let minutes = instants(61_000, 200_000, 60_000, |_| 0);
        assert_eq!(minutes, [120_000, 180_000]);
        // Clocks that step forward in the night: each midnight is named all the same.
        let summer = |at: u64| if at < 26 * HOUR { 0 } else { 3_600_000 };
        assert_eq!(instants(0, 60 * HOUR, 24 * HOUR, summer), [0, 24 * HOUR, 47 * HOUR]);
        assert_eq!(instants(0, u64::MAX, 1, |_| 0).len(), 100, "a list is bounded");
        assert!(instants(9, 1, 0, |_| i64::MIN).is_empty());
    }

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
            (4_300_000_000.0, "4.3G"),
            (0.0, "0"),
        ];
        for (figure, text) in cases {
            assert_eq!(short(figure), text);
        }
    }
}
