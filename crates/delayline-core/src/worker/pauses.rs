//! Pauses between attempts that get nowhere.

use std::time::Duration;

use super::rng::Rng;

/// Pauses that double up to the longest. Each is spread over its upper half, so that many workers
/// do not return together and none is near zero.
#[derive(Debug)]
pub(super) struct Pauses {
    next: Duration,
    first: Duration,
    longest: Duration,
}

impl Pauses {
    /// Between attempts of a failing call.
    pub(super) const fn of_failures() -> Self {
        Self::new(Duration::from_millis(100), Duration::from_secs(2))
    }

    /// Between claims while handlers only give messages back at once.
    pub(super) const fn of_give_backs() -> Self {
        Self::new(Duration::from_millis(1), Duration::from_millis(100))
    }

    const fn new(first: Duration, longest: Duration) -> Self {
        Self { next: first, first, longest }
    }

    pub(super) fn next(&mut self, rng: &mut Rng) -> Duration {
        let pause = self.next;
        self.next = pause.saturating_mul(2).min(self.longest);
        rng.between(pause / 2, pause)
    }

    /// The cause is gone: starts again with the first pause.
    pub(super) const fn reset(&mut self) {
        self.next = self.first;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest() {
        let ms = Duration::from_millis;
        let (mut rng, mut pauses) = (Rng::new([1; 16]), Pauses::of_failures());
        for full in [100, 200, 400, 800, 1_600, 2_000, 2_000] {
            let pause = pauses.next(&mut rng);
            assert!(pause >= ms(full / 2) && pause <= ms(full), "{pause:?} of {full}");
        }
        pauses.reset();
        assert!(pauses.next(&mut rng) <= ms(100));
    }
}
