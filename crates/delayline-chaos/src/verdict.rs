//! The observations, and the verdict on each guarantee.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use clap::ValueEnum as _;
use delayline_core::{
    Cancelled, Change, Enqueued, Extended, Op, Outcome, Redriven, Reply, Settled, Status,
};

use crate::fault::Fault;
use crate::promises::Kept;
use crate::replay::Replayed;
use crate::strikes::{ENOUGH_ROUNDS, ENOUGH_STRIKES, Met, Strikes};

/// All that was seen in all rounds.
#[derive(Debug, Default)]
pub(crate) struct Totals {
    strikes: Strikes<Fault>,
    /// Calls that took place, and the answers that their callers never got.
    calls: usize,
    executed_unheard: usize,
    never_executed: usize,
    refused: usize,
    taken_back: usize,
    outdated: usize,
    handled: usize,
    /// How often there was something to judge a guarantee by.
    seen: BTreeMap<&'static str, usize>,
}

/// The guarantees that a run like this can see broken.
const GUARANTEES: [(&str, &str); 25] = [
    ("G1", "messages taken in, each accounted for at the end"),
    ("G2", "deliveries, each of a message that was sent, byte for byte"),
    ("G3", "operations, in one order in which the model answers the same"),
    ("G4", "deliveries, none before its instant"),
    ("G5", "leases, none beside another of its message"),
    ("G6", "settlements and extensions with a lease that had ended, refused"),
    ("G8", "settlements repeated, without a second effect"),
    ("G9", "messages that died of their last failure or crash"),
    ("G10", "messages given back unstarted, and not charged for"),
    ("G11", "dead letters given a new life"),
    ("G13", "messages cancelled, none delivered afterwards"),
    ("G14", "ids taken, none twice"),
    ("G15", "messages sent again, and not taken in again"),
    ("G16", "claims sent again, and answered with the same leases"),
    ("G17", "pauses and resumptions"),
    ("G19", "steps of the clock"),
    ("G21", "queues that came to an end by themselves after the faults"),
    ("G22", "audits and counts, all in agreement with the history"),
    ("G28", "messages relayed, each as one element and in order"),
    ("G29", "updates, the latest of each id delivered with its content"),
    ("G30", "followers delivered, each after the lease that it waited for"),
    ("G31", "messages that follow from others, each with the end of its lease"),
    ("G32", "results kept, each with its ack"),
    ("G33", "sends of throttled ids, each refused until the window ended"),
    ("G34", "rates set, and kept to from then on"),
];

impl Totals {
    pub(crate) fn new() -> Self {
        let mut totals = Self::default();
        totals.strikes.expect(Fault::value_variants());
        totals
    }

    /// Notes a fault, whether a call felt it, and how long it took from its end until all queues
    /// were answering as before.
    pub(crate) fn note_fault(&mut self, fault: Fault, is_felt: bool, recovery: Duration) {
        self.strikes.note(fault, is_felt, recovery);
        if fault == Fault::StepClock {
            self.saw("G19", 1);
        }
    }

    pub(crate) fn note_handled(&mut self, deliveries: usize) {
        self.handled += deliveries;
        self.saw("G21", 1);
    }

    /// Notes how often a version was refused that does not know all that the queue uses.
    pub(crate) fn note_versions(&mut self, refused: usize) {
        self.outdated += refused;
    }

    pub(crate) fn note_history(&mut self, replayed: &Replayed, kept: Kept, refused: usize) {
        self.calls += replayed.order.len();
        self.executed_unheard += replayed.executed_unheard;
        self.never_executed += replayed.never_executed;
        self.taken_back += replayed.taken_back;
        self.refused += refused;
        self.saw("G3", replayed.order.len());
        self.saw("G28", replayed.relayed);
        self.saw("G29", kept.updates);
        self.saw("G30", kept.followers);
        self.saw("G33", kept.throttled);
        let mut revision = 0;
        for call in &replayed.order {
            let changed = call.applied.revision > revision;
            revision = call.applied.revision;
            self.note_answer(&call.op, &call.applied.reply, changed);
        }
    }

    fn saw(&mut self, guarantee: &'static str, times: usize) {
        if times > 0 {
            *self.seen.entry(guarantee).or_default() += times;
        }
    }

    fn note_answer(&mut self, op: &Op, reply: &Reply, changed: bool) {
        match (op, reply) {
            (_, Reply::Enqueue(items)) => {
                let created = count(items, |item| matches!(item, Enqueued::Created { .. }));
                self.saw("G1", created);
                self.saw("G14", created);
                let known = |item: &Enqueued| {
                    matches!(item, Enqueued::Duplicate { .. } | Enqueued::Conflict { .. })
                };
                self.saw("G15", count(items, known));
            }
            (Op::HandOff(items), Reply::HandOff(results)) => {
                for (item, result) in items.iter().zip(results) {
                    let settle = Op::Settle(vec![item.settlement.clone()]);
                    self.note_answer(&settle, &Reply::Settle(vec![result.settled]), changed);
                    let sent = Reply::Enqueue(result.messages.clone());
                    self.note_answer(&Op::Enqueue(item.messages.clone()), &sent, changed);
                    self.saw("G31", result.messages.len());
                    self.saw("G32", usize::from(result.result_kept));
                }
            }
            (_, Reply::Claim(claimed)) => {
                let deliveries = claimed.deliveries.len();
                if changed {
                    for guarantee in ["G2", "G4", "G5"] {
                        self.saw(guarantee, deliveries);
                    }
                } else {
                    self.saw("G16", usize::from(deliveries > 0));
                }
            }
            (Op::Settle(settlements), Reply::Settle(items)) => {
                for (settlement, item) in settlements.iter().zip(items) {
                    match (item, &settlement.outcome) {
                        (Settled::Stale | Settled::Missing, _) => self.saw("G6", 1),
                        (Settled::AlreadyDone { .. }, _) => self.saw("G8", 1),
                        (Settled::Done { .. }, Outcome::Release) => self.saw("G10", 1),
                        (
                            Settled::Done { status: Status::Dead },
                            Outcome::Retry { .. } | Outcome::Undecodable { .. },
                        ) => {
                            self.saw("G9", 1);
                        }
                        _ => {}
                    }
                }
            }
            (_, Reply::Extend(items)) => {
                self.saw("G6", count(items, |item| !matches!(item, Extended::Done { .. })));
            }
            (_, Reply::Cancel(items)) => {
                self.saw("G13", count(items, |item| matches!(item, Cancelled::Cancelled)));
            }
            (_, Reply::Redrive(items)) => {
                self.saw("G11", count(items, |item| matches!(item, Redriven::Done { .. })));
            }
            (_, Reply::Pause { changed } | Reply::Resume { changed }) => {
                self.saw("G17", usize::from(*changed));
            }
            (Op::SetLimits(set), Reply::SetLimits { changed: true }) => {
                self.saw("G34", usize::from(matches!(set.rate, Change::Set(_))));
            }
            (_, Reply::Stats(_) | Reply::Check(_) | Reply::Repair(_)) => self.saw("G22", 1),
            _ => {}
        }
    }
}

fn count<T>(items: &[T], which: impl Fn(&T) -> bool) -> usize {
    items.iter().filter(|item| which(item)).count()
}

impl Met for Totals {
    fn faults(&self) -> String {
        let kill = |fault| matches!(fault, Fault::Kill | Fault::KillAndLoseTail);
        let ((struck, felt), (kills, _)) = (self.strikes.sum(|_| true), self.strikes.sum(kill));
        format!("{struck} faults, {felt} of them felt by a call, {kills} kills")
    }

    fn enough(&self) -> u64 {
        ENOUGH_STRIKES
    }

    fn unseen(&self, rounds: u64) -> Vec<String> {
        let mut unseen = Vec::new();
        if rounds >= ENOUGH_ROUNDS {
            let missing = GUARANTEES.iter().filter(|(it, _)| !self.seen.contains_key(it));
            unseen.extend(missing.map(|(guarantee, what)| format!("{guarantee}: {what}")));
            unseen.extend((self.outdated == 0).then(|| "calls of an outdated version".to_owned()));
        }
        if rounds >= ENOUGH_STRIKES {
            unseen.extend(self.strikes.unfelt());
            let unknown = self.unknown().into_iter().filter(|(count, _)| *count == 0);
            unseen.extend(unknown.map(|(_, what)| what.to_owned()));
        }
        unseen
    }
}

impl Totals {
    /// Counts of calls whose answers were lost, by their fate.
    const fn unknown(&self) -> [(usize, &'static str); 3] {
        [
            (self.executed_unheard, "calls that took place, unheard of by their callers"),
            (self.never_executed, "calls of unknown outcome that never took place"),
            (self.taken_back, "calls whose answers were lost with the end of a file"),
        ]
    }
}

impl fmt::Display for Totals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.strikes)?;
        for (count, what) in [
            (self.calls, "calls that took place"),
            (self.refused, "calls refused, without effect"),
            (self.outdated, "of them because their version does not know what the queue uses"),
            (self.handled, "messages handed to a handler, none twice under one lease"),
        ]
        .into_iter()
        .chain(self.unknown())
        {
            writeln!(f, "{count:>8}  {what}")?;
        }
        writeln!(f)?;
        for (guarantee, what) in GUARANTEES {
            let times = self.seen.get(guarantee).copied().unwrap_or_default();
            writeln!(f, "{guarantee:>4} held {times:>8}  {what}")?;
        }
        Ok(())
    }
}
