//! Pauses between the tries of a failing call.

use std::time::Duration;

use super::dice::Dice;

/// Pauses that double from 100 ms to 2 s, each spread over its upper half so that many workers do
/// not come back together, and none is near zero.
#[derive(Debug)]
pub(super) struct Pauses(Duration);

impl Pauses {
    pub(super) const fn new() -> Self {
        Self(FIRST)
    }

    pub(super) fn next(&mut self, dice: &mut Dice) -> Duration {
        let pause = self.0;
        self.0 = pause.saturating_mul(2);
        if self.0 > LONGEST {
            self.0 = LONGEST;
        }
        dice.between(pause / 2, pause)
    }

    /// The fault is gone: the next one is the first again.
    pub(super) const fn reset(&mut self) {
        self.0 = FIRST;
    }
}

const FIRST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest() {
        let ms = Duration::from_millis;
        let (mut dice, mut pauses) = (Dice::new([1; 16]), Pauses::new());
        for full in [100, 200, 400, 800, 1_600, 2_000, 2_000] {
            let pause = pauses.next(&mut dice);
            assert!(pause >= ms(full / 2) && pause <= ms(full), "{pause:?} of {full}");
        }
        pauses.reset();
        assert!(pauses.next(&mut dice) <= ms(100));
    }
}
