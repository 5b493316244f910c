//! Sums up the rounds.

use std::fmt;

use anyhow::{Result, bail};

use super::fault::{Fault, Struck};
use super::judge::Seen;
use crate::strikes::{ENOUGH_ROUNDS, Met, Strikes};

/// The observations of all rounds.
#[derive(Debug, Default)]
pub struct Tally {
    strikes: Strikes<Fault>,
    seen: Seen,
    most_asked: f64,
    unasked: usize,
}

impl Tally {
    /// Requires that each of these faults affects a call.
    pub fn expect(&mut self, faults: &[Fault]) {
        self.strikes.expect(faults);
    }

    /// Counts a fault.
    ///
    /// # Errors
    ///
    /// If a process has sent too many topology requests per second to one server.
    pub fn note_fault(&mut self, fault: Fault, struck: &Struck) -> Result<()> {
        self.strikes.note(fault, struck.is_felt, struck.recovery);
        self.unasked += usize::from(struck.is_unasked);
        self.most_asked = struck.asked_a_second.max(self.most_asked);
        if struck.asked_a_second > MOST_ASKED {
            bail!("a process asks one server {:.1} times per second", struck.asked_a_second);
        }
        Ok(())
    }

    /// Adds the observations of a round.
    pub fn note_seen(&mut self, seen: &Seen) {
        for (sum, more) in self.seen.fields().into_iter().zip(seen.copy().fields()) {
            *sum.0 += *more.0;
        }
    }
}

impl Met for Tally {
    fn faults(&self) -> String {
        format!("{} faults", self.strikes.sum(|_| true).0)
    }

    fn enough(&self) -> u64 {
        ENOUGH_ROUNDS
    }

    fn unseen(&self, rounds: u64) -> Vec<String> {
        if rounds < ENOUGH_ROUNDS {
            return Vec::new();
        }
        let mut seen = self.seen;
        let unseen = seen.fields().into_iter().filter(|(count, _, must)| *must && **count == 0);
        let unseen = unseen.map(|(_, what, _)| what.to_owned());
        self.strikes.unfelt().into_iter().chain(unseen).collect()
    }
}

impl Seen {
    const fn copy(&self) -> Self {
        *self
    }

    /// Each number, its meaning, and whether it must not be 0.
    const fn fields(&mut self) -> [(&mut usize, &'static str, bool); 20] {
        [
            (&mut self.acknowledged, "messages acknowledged to their senders", true),
            (&mut self.lost, "of them lost, all where a primary was replaced", false),
            (&mut self.not_executed, "sends \"not executed\", and so it was", true),
            (&mut self.unknown, "messages whose senders do not know their fate", true),
            (&mut self.punctual, "deliveries, none before its instant", true),
            (&mut self.again, "deliveries after another lease had ended", true),
            (&mut self.acked, "messages acked, none delivered afterwards", true),
            (&mut self.cancelled, "messages cancelled, none delivered afterwards", true),
            (&mut self.ordered, "answers, none older than an earlier one", true),
            (
                &mut self.handed_off,
                "messages handed off, each if and only if the settlement counts",
                true,
            ),
            (&mut self.results, "results kept, and there at the end", true),
            (&mut self.contents, "deliveries with the latest content of their id", true),
            (
                &mut self.relayed,
                "messages relayed, each to one entry, none before its instant",
                true,
            ),
            (&mut self.taken_back, "entries read, and lost where a primary was replaced", false),
            (&mut self.handled, "messages handed to a handler, none twice under one lease", true),
            (&mut self.capped, "deliveries close to a limit of leases, none beyond it", true),
            (&mut self.capped_groups, "of a group, close to its limit, none beyond it", true),
            (&mut self.held, "holds, none with a delivery before its end", true),
            (&mut self.unasked, "rounds with a failover after all faults", false),
            (&mut self.slowed, "deliveries at the limit of a rate, none beyond it", true),
        ]
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.strikes)?;
        for (count, what, _) in self.seen.copy().fields() {
            writeln!(f, "{count:>8}  {what}")?;
        }
        writeln!(f, "{:>8}  failovers without an injected fault", self.unasked)?;
        writeln!(
            f,
            "{:>8.1}  maximum number of topology requests per second, from one process to one server",
            self.most_asked
        )
    }
}

/// Maximum number of topology requests per second, from one process to one server.
const MOST_ASKED: f64 = 20.0;
