//! Pauses between the attempts of something that fails.

use std::time::Duration;

/// Pauses that double from the first to the longest.
///
/// Each pause is drawn from the upper half of its range. This spreads the clients out, and no pause
/// is near zero.
#[derive(Clone, Debug)]
pub struct Backoff {
    first: Duration,
    longest: Duration,
    next: Duration,
}

impl Backoff {
    /// Starts with the first pause.
    #[must_use]
    pub const fn new(first: Duration, longest: Duration) -> Self {
        Self { first, longest, next: first }
    }

    /// Returns the next pause. `chance` is any random number: with `u32::MAX` the whole pause is
    /// returned, with 0 half of it.
    pub fn next(&mut self, chance: u32) -> Duration {
        let (longest, shortest) = (self.next, self.next / 2);
        self.next = longest.saturating_mul(2).min(self.longest);
        shortest + (longest - shortest).saturating_mul(chance) / u32::MAX
    }

    /// Starts again with the first pause, since an attempt has succeeded.
    pub const fn reset(&mut self) {
        self.next = self.first;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn pauses_double_up_to_the_longest() {
        let mut backoff = Backoff::new(ms(100), ms(2_000));
        for full in [100, 200, 400, 800, 1_600, 2_000, 2_000] {
            assert_eq!(backoff.next(u32::MAX), ms(full));
        }
        backoff.reset();
        assert_eq!(backoff.next(u32::MAX), ms(100));
    }

    #[test]
    fn each_pause_is_drawn_from_its_upper_half() {
        let mut backoff = Backoff::new(ms(200), ms(200));
        assert_eq!(backoff.next(0), ms(100));
        assert_eq!(backoff.next(u32::MAX / 5), ms(120));
        assert_eq!(backoff.next(u32::MAX), ms(200));
    }

    #[test]
    fn the_longest_pause_of_all_does_not_overflow() {
        let mut backoff = Backoff::new(Duration::MAX / 4, Duration::MAX);
        for _ in 0..5 {
            backoff.next(u32::MAX);
        }
    }
}
