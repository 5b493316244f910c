//! When messages are sent, when nothing is, and how long messages are delayed.

use std::time::{Duration, Instant};

use crate::shape::{DelayClass, Shape};

/// Alternating spells of traffic and of nothing at all. Every message is due within its own cycle.
#[derive(Clone, Debug)]
pub(crate) struct Schedule {
    start: Instant,
    pub(crate) cycles: u32,
    cycle: Duration,
    traffic: Duration,
    idle: Duration,
    /// The longest delay that fits.
    pub(crate) longest: Duration,
}

/// One cycle's instants, in their order.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cycle {
    pub(crate) begin: Instant,
    /// Nothing is sent any more.
    pub(crate) traffic_end: Instant,
    /// All messages have been due for a while, and the idle spell begins.
    pub(crate) idle_begin: Instant,
    /// End of the idle period, which is judged from its start to this instant.
    pub(crate) sample: Instant,
    pub(crate) end: Instant,
}

impl Schedule {
    /// Fills so much time.
    pub(crate) fn new(start: Instant, total: Duration) -> Self {
        let cycles = (total.as_secs() / CYCLE.as_secs()).max(1);
        let cycles = u32::try_from(cycles).unwrap_or(u32::MAX);
        let cycle = total / cycles;
        let longest = LONGEST_DELAY.min(cycle.mul_f64(0.3));
        let idle = LONGEST_IDLE.min(cycle.mul_f64(0.25));
        let traffic = cycle.saturating_sub(longest + MARGIN + idle);
        Self { start, cycles, cycle, traffic, idle, longest }
    }

    pub(crate) fn cycle(&self, number: u32) -> Cycle {
        let begin = self.start + self.cycle * number;
        let end = begin + self.cycle;
        let traffic_end = begin + self.traffic;
        Cycle { begin, traffic_end, idle_begin: end - self.idle, sample: end - self.idle / 8, end }
    }

    /// A delay by which a message is due before the idle spell.
    pub(crate) fn delay(
        &self,
        shape: Shape,
        cycle: &Cycle,
        chance: &mut fastrand::Rng,
    ) -> Option<(DelayClass, Duration)> {
        let left = cycle.idle_begin.saturating_duration_since(Instant::now() + MARGIN);
        let longest = self.longest.min(left);
        let fits = |class: &DelayClass| class.range(shape).0 < longest;
        let classes: Vec<_> = DelayClass::ALL.into_iter().filter(fits).collect();
        let mut pick = chance.u32(..classes.iter().map(|class| class.weight()).sum::<u32>().max(1));
        let class = classes.into_iter().find(|class| {
            let hit = pick < class.weight();
            pick = pick.saturating_sub(class.weight());
            hit
        })?;
        let (from, to) = class.range(shape);
        Some((class, from + (to.min(longest) - from).mul_f64(chance.f64())))
    }
}

/// About as long as the longest delay, an idle spell, and as much traffic again take.
const CYCLE: Duration = Duration::from_secs(210);
/// Longer than what producers ring for.
const LONGEST_DELAY: Duration = Duration::from_secs(62);
const LONGEST_IDLE: Duration = Duration::from_secs(30);
/// From the last due instant to the idle spell.
const MARGIN: Duration = Duration::from_millis(1_500);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_message_is_due_before_the_idle_spell_and_every_class_that_fits_comes() {
        for minutes in [1.0, 5.0, 60.0] {
            let now = Instant::now();
            let schedule = Schedule::new(now, Duration::from_secs_f64(60.0 * minutes));
            let cycle = schedule.cycle(0);
            assert!(cycle.begin < cycle.traffic_end && cycle.traffic_end < cycle.idle_begin);
            let end = schedule.cycle(schedule.cycles - 1).end;
            assert!(((end - now).as_secs_f64() - 60.0 * minutes).abs() < 0.1);
            let mut chance = fastrand::Rng::with_seed(1);
            let mut seen = Vec::new();
            for _ in 0..1_000 {
                let drawn = schedule.delay(Shape::Single, &cycle, &mut chance);
                let Some((class, delay)) = drawn else { panic!("{minutes}: no delay fits") };
                assert!(now + delay < cycle.idle_begin, "{minutes}: {delay:?}");
                let (from, to) = class.range(Shape::Single);
                assert!(from <= delay && delay <= to, "{minutes}: {delay:?} as {class:?}");
                seen.push(class);
            }
            assert!(DelayClass::ALL.iter().all(|class| seen.contains(class)), "{minutes}");
        }
    }
}
