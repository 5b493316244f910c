//! Pauses between the attempts of an operation.

use std::time::Duration;

/// Pauses that double from the first to the longest. Each is drawn from the upper half of its
/// range, so that many clients do not return at once and no pause is near zero.
#[derive(Clone, Debug)]
pub(crate) struct Pauses {
    longest: Duration,
    next: Duration,
}

impl Pauses {
    pub(crate) const fn new(first: Duration, longest: Duration) -> Self {
        Self { longest, next: first }
    }

    pub(crate) fn next(&mut self) -> Duration {
        let pause = self.next;
        self.next = pause.saturating_mul(2).min(self.longest);
        pause.mul_f64(0.5 + fastrand::f64() / 2.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest() {
        let ms = Duration::from_millis;
        let mut pauses = Pauses::new(ms(100), ms(250));
        for full in [100, 200, 250, 250] {
            let pause = pauses.next();
            assert!(pause >= ms(full / 2) && pause <= ms(full), "{pause:?} of {full}");
        }
    }
}
