//! The observations, and the verdict on each guarantee.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use delayline_core::{
    Cancelled, Enqueued, Extended, Op, Outcome, Redriven, Reply, Settled, Status,
};

use crate::fault::{Effect, Fault};
use crate::promises::Kept;
use crate::replay::Replayed;

/// All that was seen in all rounds.
#[derive(Debug, Default)]
pub(crate) struct Totals {
    /// For each fault, the number of injections and of affected calls.
    faults: BTreeMap<Fault, (usize, usize)>,
    /// Calls that took place, and the answers that their callers never got.
    calls: usize,
    executed_unheard: usize,
    never_executed: usize,
    refused: usize,
    taken_back: usize,
    handled: usize,
    longest_recovery: Duration,
    /// How often there was something to judge a guarantee by.
    seen: BTreeMap<Guarantee, usize>,
}

/// A guarantee that a run like this can see broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Guarantee {
    G1,
    G2,
    G3,
    G4,
    G5,
    G6,
    G8,
    G9,
    G10,
    G11,
    G13,
    G14,
    G15,
    G16,
    G17,
    G19,
    G21,
    G22,
    G28,
    G29,
    G30,
    G31,
    G32,
    G33,
}

impl Guarantee {
    const ALL: [(Self, &'static str); 24] = [
        (Self::G1, "messages taken in, each accounted for at the end"),
        (Self::G2, "deliveries, each of a message that was sent, byte for byte"),
        (Self::G3, "operations, in one order in which the model answers the same"),
        (Self::G4, "deliveries, none before its instant"),
        (Self::G5, "leases, none beside another of its message"),
        (Self::G6, "settlements and extensions with a lease that had ended, refused"),
        (Self::G8, "settlements repeated, without a second effect"),
        (Self::G9, "messages that died of their last failure or crash"),
        (Self::G10, "messages given back unstarted, and not charged for"),
        (Self::G11, "dead letters given a new life"),
        (Self::G13, "messages cancelled, none delivered afterwards"),
        (Self::G14, "ids taken, none twice"),
        (Self::G15, "messages sent again, and not taken in again"),
        (Self::G16, "claims sent again, and answered with the same leases"),
        (Self::G17, "pauses and resumptions"),
        (Self::G19, "steps of the clock"),
        (Self::G21, "queues that came to an end by themselves after the faults"),
        (Self::G22, "audits and counts, all in agreement with the history"),
        (Self::G28, "messages relayed, each as one element and in order"),
        (Self::G29, "updates, the latest of each id delivered with its content"),
        (Self::G30, "followers delivered, each after the lease that it waited for"),
        (Self::G31, "messages that follow from others, each with the end of its lease"),
        (Self::G32, "results kept, each with its ack"),
        (Self::G33, "sends of throttled ids, each refused until the window ended"),
    ];
}

impl Totals {
    pub(crate) fn note_fault(&mut self, fault: Fault, hit: bool) {
        let (struck, hits) = self.faults.entry(fault).or_default();
        *struck += 1;
        *hits += usize::from(hit);
        if fault == Fault::StepClock {
            self.saw(Guarantee::G19, 1);
        }
    }

    /// Notes how long it took from the end of a fault until all queues were answering as before.
    pub(crate) fn note_recovery(&mut self, time: Duration) {
        self.longest_recovery = self.longest_recovery.max(time);
    }

    pub(crate) fn note_handled(&mut self, deliveries: usize) {
        self.handled += deliveries;
        self.saw(Guarantee::G21, 1);
    }

    pub(crate) fn note_history(&mut self, replayed: &Replayed, kept: Kept, refused: usize) {
        self.calls += replayed.order.len();
        self.executed_unheard += replayed.executed_unheard;
        self.never_executed += replayed.never_executed;
        self.taken_back += replayed.taken_back;
        self.refused += refused;
        self.saw(Guarantee::G3, replayed.order.len());
        self.saw(Guarantee::G28, replayed.moved.iter().map(|one| one.elements.len()).sum());
        self.saw(Guarantee::G29, kept.updates);
        self.saw(Guarantee::G30, kept.followers);
        self.saw(Guarantee::G33, kept.throttled);
        let mut revision = 0;
        for call in &replayed.order {
            let changed = call.applied.revision > revision;
            revision = call.applied.revision;
            self.note_answer(&call.op, &call.applied.reply, changed);
        }
    }

    /// The kinds of fault that no call has felt.
    pub(crate) fn unmet(&self) -> Vec<Fault> {
        let unmet = |fault: &Fault| self.faults.get(fault).is_none_or(|(_, hits)| *hits == 0);
        Fault::ALL.into_iter().filter(unmet).collect()
    }

    /// The number of injections and of affected calls.
    pub(crate) fn faults(&self, which: impl Fn(Fault) -> bool) -> (usize, usize) {
        let chosen = self.faults.iter().filter(|(fault, _)| which(**fault));
        chosen.fold((0, 0), |sum, (_, counts)| (sum.0 + counts.0, sum.1 + counts.1))
    }

    /// The guarantees for which there was nothing to judge by.
    pub(crate) fn unseen(&self) -> Vec<String> {
        let unseen =
            Guarantee::ALL.iter().filter(|(guarantee, _)| !self.seen.contains_key(guarantee));
        unseen.map(|(guarantee, what)| format!("{guarantee:?}: {what}")).collect()
    }

    fn saw(&mut self, guarantee: Guarantee, times: usize) {
        if times > 0 {
            *self.seen.entry(guarantee).or_default() += times;
        }
    }

    fn note_answer(&mut self, op: &Op, reply: &Reply, changed: bool) {
        use Guarantee as G;
        match (op, reply) {
            (_, Reply::Enqueue(items)) => {
                let created = count(items, |item| matches!(item, Enqueued::Created { .. }));
                self.saw(G::G1, created);
                self.saw(G::G14, created);
                let known = |item: &Enqueued| {
                    matches!(item, Enqueued::Duplicate { .. } | Enqueued::Conflict { .. })
                };
                self.saw(G::G15, count(items, known));
            }
            (Op::HandOff(items), Reply::HandOff(results)) => {
                for (item, result) in items.iter().zip(results) {
                    let settle = Op::Settle(vec![item.settlement.clone()]);
                    self.note_answer(&settle, &Reply::Settle(vec![result.settled]), changed);
                    let sent = Reply::Enqueue(result.messages.clone());
                    self.note_answer(&Op::Enqueue(item.messages.clone()), &sent, changed);
                    self.saw(G::G31, result.messages.len());
                    self.saw(G::G32, usize::from(result.result_kept));
                }
            }
            (_, Reply::Claim(claimed)) => {
                let deliveries = claimed.deliveries.len();
                if changed {
                    for guarantee in [G::G2, G::G4, G::G5] {
                        self.saw(guarantee, deliveries);
                    }
                } else {
                    self.saw(G::G16, usize::from(deliveries > 0));
                }
            }
            (Op::Settle(settlements), Reply::Settle(items)) => {
                for (settlement, item) in settlements.iter().zip(items) {
                    match (item, &settlement.outcome) {
                        (Settled::Stale | Settled::Missing, _) => self.saw(G::G6, 1),
                        (Settled::AlreadyDone { .. }, _) => self.saw(G::G8, 1),
                        (Settled::Done { .. }, Outcome::Release) => self.saw(G::G10, 1),
                        (
                            Settled::Done { status: Status::Dead },
                            Outcome::Retry { .. } | Outcome::Undecodable { .. },
                        ) => {
                            self.saw(G::G9, 1);
                        }
                        _ => {}
                    }
                }
            }
            (_, Reply::Extend(items)) => {
                self.saw(G::G6, count(items, |item| !matches!(item, Extended::Done { .. })));
            }
            (_, Reply::Cancel(items)) => {
                self.saw(G::G13, count(items, |item| matches!(item, Cancelled::Cancelled)));
            }
            (_, Reply::Redrive(items)) => {
                self.saw(G::G11, count(items, |item| matches!(item, Redriven::Done { .. })));
            }
            (_, Reply::Pause { changed } | Reply::Resume { changed }) => {
                self.saw(G::G17, usize::from(*changed));
            }
            (_, Reply::Stats(_) | Reply::Check(_) | Reply::Repair(_)) => self.saw(G::G22, 1),
            _ => {}
        }
    }
}

fn count<T>(items: &[T], which: impl Fn(&T) -> bool) -> usize {
    items.iter().filter(|item| which(item)).count()
}

impl fmt::Display for Totals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (fault, (struck, hits)) in &self.faults {
            let how = match fault.effect() {
                Effect::Failure => "and a call failed",
                Effect::Delay => "and a call was held up",
                Effect::None => "while a call was under way",
            };
            writeln!(f, "{struck:>8}  {fault:?}, {hits} times {how}")?;
        }
        let (struck, hits) = self.faults(|_| true);
        writeln!(f, "{struck:>8}  faults in all, {hits} times with an effect on a call")?;
        writeln!(f)?;
        let Self { calls, executed_unheard, never_executed, refused, taken_back, handled, .. } =
            self;
        writeln!(f, "{calls:>8}  calls that took place")?;
        writeln!(f, "{executed_unheard:>8}  of them unheard of by their callers")?;
        writeln!(f, "{never_executed:>8}  calls of unknown outcome that never took place")?;
        writeln!(f, "{refused:>8}  calls refused, without effect")?;
        writeln!(f, "{taken_back:>8}  calls whose answers were lost with the end of a file")?;
        writeln!(f, "{handled:>8}  messages handed to a handler, none twice under one lease")?;
        let ms = self.longest_recovery.as_millis();
        writeln!(f, "{ms:>8}  ms at most from the end of a fault to the twentieth new answer")?;
        writeln!(f)?;
        for (guarantee, what) in Guarantee::ALL {
            let times = self.seen.get(&guarantee).copied().unwrap_or_default();
            writeln!(f, "{:>4} held {times:>8}  {what}", format!("{guarantee:?}"))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::Totals;
    use crate::fault::Fault;

    #[test]
    fn a_fault_that_no_call_has_felt_is_told() {
        let mut totals = Totals::default();
        assert_eq!(totals.unmet(), Fault::ALL);
        for fault in Fault::ALL {
            totals.note_fault(fault, true);
        }
        totals.note_fault(Fault::Kill, false);
        assert_eq!(totals.unmet(), []);
        let mut totals = Totals::default();
        totals.note_fault(Fault::Kill, false);
        assert!(totals.unmet().contains(&Fault::Kill));
    }
}
