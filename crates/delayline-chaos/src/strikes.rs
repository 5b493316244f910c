//! The faults of a run, and how often a call felt each.

use std::collections::BTreeMap;
use std::fmt::{self, Debug};
use std::time::Duration;

/// What the rounds of a run have met.
pub(crate) trait Met: fmt::Display {
    /// The faults so far, in a few words.
    fn faults(&self) -> String;

    /// Number of rounds after which all guarantees and faults are required.
    fn enough(&self) -> u64;

    /// The guarantees and faults that this number of rounds must have met, but has not.
    fn unseen(&self, rounds: u64) -> Vec<String>;
}

/// Number of rounds after which every guarantee must have been judged.
pub(crate) const ENOUGH_ROUNDS: u64 = 4;
/// Number of rounds after which every kind of fault must have affected a call.
pub(crate) const ENOUGH_STRIKES: u64 = 12;

/// What becomes of the calls that a fault meets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// Some get no answer.
    Failure,
    /// They are answered after its end, unless their callers give up.
    Delay,
    /// They must only have been under way.
    None,
}

/// The faults of all rounds.
#[derive(Debug)]
pub(crate) struct Strikes<F>(BTreeMap<F, Count>);

#[derive(Clone, Copy, Debug, Default)]
struct Count {
    struck: usize,
    felt: usize,
    /// The longest time from the end of the fault until all queues answered again.
    recovery: Duration,
}

impl<F: Copy + Debug + Ord> Strikes<F> {
    /// These kinds must be felt.
    pub(crate) fn expect(&mut self, faults: &[F]) {
        for fault in faults {
            self.0.entry(*fault).or_default();
        }
    }

    pub(crate) fn note(&mut self, fault: F, is_felt: bool, recovery: Duration) {
        let count = self.0.entry(fault).or_default();
        count.struck += 1;
        count.felt += usize::from(is_felt);
        count.recovery = count.recovery.max(recovery);
    }

    /// How many there were, and how many of them were felt.
    pub(crate) fn sum(&self, which: impl Fn(F) -> bool) -> (usize, usize) {
        let chosen = self.0.iter().filter(|(fault, _)| which(**fault));
        chosen.fold((0, 0), |sum, (_, count)| (sum.0 + count.struck, sum.1 + count.felt))
    }

    /// The expected kinds that no call has felt.
    pub(crate) fn unfelt(&self) -> Vec<String> {
        let unfelt = self.0.iter().filter(|(_, count)| count.felt == 0);
        unfelt.map(|(fault, _)| format!("{fault:?}, which no call has felt")).collect()
    }
}

impl<F> Default for Strikes<F> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<F: Copy + Debug + Ord> fmt::Display for Strikes<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (fault, Count { struck, felt, recovery }) in &self.0 {
            let (name, ms) = (format!("{fault:?}"), recovery.as_millis());
            writeln!(f, "{struck:>8}  {name:16} {felt} felt by a call, answers {ms} ms later")?;
        }
        let (struck, felt) = self.sum(|_| true);
        writeln!(f, "{struck:>8}  faults in all, {felt} of them felt by a call\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_that_no_call_has_felt_is_reported() {
        let mut strikes = Strikes::default();
        strikes.expect(&["kill", "freeze"]);
        strikes.note("kill", false, Duration::ZERO);
        assert_eq!(strikes.unfelt().len(), 2);
        strikes.note("kill", true, Duration::ZERO);
        assert_eq!(strikes.unfelt(), ["\"freeze\", which no call has felt"]);
        assert_eq!(strikes.sum(|fault| fault == "kill"), (2, 1));
    }
}
