//! Where a figure stands, and which figures the axis names.

use super::figures::{Figures, Mark};

pub(super) struct Axis {
    pub(super) logarithmic: bool,
    /// In ascending order; the first and the last are its ends.
    pub(super) ticks: Vec<f64>,
    left: f64,
    right: f64,
}

impl Axis {
    /// An axis from `left` to `right` that has room for all figures.
    pub(super) fn of(figures: &Figures, left: f64, right: f64) -> Self {
        let marks = || figures.categories.iter().flat_map(|(_, marks)| marks);
        let ends = |mark: &Mark| mark.spread.unwrap_or((mark.value, mark.value));
        let least = marks().map(|mark| ends(mark).0).fold(f64::MAX, f64::min);
        let most = marks().map(|mark| ends(mark).1).fold(f64::MIN_POSITIVE, f64::max);
        let ticks = match figures.logarithmic {
            true => threes(least.max(1e-3), most),
            // Dots need no zero to stand on, but only ratios are read without it.
            false => even(if figures.has_spread { least } else { 0.0 }, most),
        };
        Self { logarithmic: figures.logarithmic, ticks, left, right }
    }

    pub(super) fn place(&self, figure: f64) -> f64 {
        let scaled = |figure: f64| if self.logarithmic { figure.max(1e-3).log10() } else { figure };
        let (Some(first), Some(last)) = (self.ticks.first(), self.ticks.last()) else {
            return self.left;
        };
        let part = (scaled(figure) - scaled(*first)) / (scaled(*last) - scaled(*first));
        self.left + part * (self.right - self.left)
    }
}

/// 1, 3, 10, 30 and so on, around these figures.
fn threes(least: f64, most: f64) -> Vec<f64> {
    let steps = (-6..=24).map(|n: i32| {
        let of_three = if n.rem_euclid(2) == 0 { 1.0 } else { 3.0 };
        of_three * 10_f64.powi(n.div_euclid(2))
    });
    let steps: Vec<_> = steps.collect();
    let first = steps.iter().rposition(|step| *step <= least * 1.0001).unwrap_or(0);
    let last = steps.iter().position(|step| *step >= most * 0.9999).unwrap_or(steps.len() - 1);
    steps[first..=last.max(first + 1).min(steps.len() - 1)].to_vec()
}

/// Four to eight round numbers with even gaps, around these figures.
fn even(least: f64, most: f64) -> Vec<f64> {
    let width = (most - least).max(most * 1e-6);
    let power = 10_f64.powf((width / 5.0).log10().floor());
    let gap = [1.0, 2.0, 5.0, 10.0].map(|step| step * power);
    let gap = gap.into_iter().find(|gap| width / gap <= 6.0).unwrap_or(10.0 * power);
    let (mut tick, mut ticks) = ((least / gap + 1e-9).floor(), Vec::new());
    loop {
        ticks.push(tick * gap);
        if tick * gap >= most * 0.9999 {
            return ticks;
        }
        tick += 1.0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plot::number::short;

    fn named(ticks: &[f64]) -> String {
        ticks.iter().map(|tick| short(*tick)).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn logarithmic_axes_name_ones_and_threes() {
        assert_eq!(named(&threes(12_000.0, 250_000.0)), "10k 30k 100k 300k");
        assert_eq!(named(&threes(0.64, 55.0)), "0.3 1 3 10 30 100");
        assert_eq!(named(&threes(1.0, 10.0)), "1 3 10", "figures on a tick");
        assert_eq!(named(&threes(5.0, 5.0)), "3 10");
        assert_eq!(named(&threes(3.0, 3.0)), "3 10", "an axis has two ends");
    }

    #[test]
    fn linear_axes_have_round_gaps() {
        assert_eq!(named(&even(0.0, 5.57)), "0 1 2 3 4 5 6");
        assert_eq!(named(&even(0.0, 0.4)), "0 0.1 0.2 0.3 0.4");
        assert_eq!(named(&even(0.0, 348_090.0)), "0 100k 200k 300k 400k");
        assert_eq!(named(&even(0.79, 1.32)), "0.7 0.8 0.9 1 1.1 1.2 1.3 1.4");
    }
}
