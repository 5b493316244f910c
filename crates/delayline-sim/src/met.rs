//! What simulations have met: trouble of every kind, and something to judge every promise by.

use std::fmt;

use crate::story::{FaultKind, OutageKind};

/// Something that a long run must have met: without it the run proves less than it says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Met {
    Refused,
    Busy,
    LostRequest,
    LostReply,
    SlowReply,
    LateExecution,
    Repeated,
    Down,
    Silent,
    Deaf,
    Frozen,
    Full,
    LostWait,
    LostHint,
    Crash,
    Freeze,
    Stop,
    ClockForward,
    ClockBack,
    Cancel,
    Reschedule,
    Redrive,
    Purge,
    Update,
    Follow,
    Updated,
    Relay,
    Pause,
    Limited,
    InTurn,
    OfLimitedGroups,
    Delivery,
    Postponed,
    Redelivery,
    SameLease,
    HandOff,
    Result,
    LastSlot,
    Prompt,
    PromptAgain,
    Overtaken,
    Extension,
    Outlasting,
    Asked,
    Acked,
    Cancelled,
    Purged,
    Failed,
    Crashed,
    Rejected,
}

impl Met {
    /// Everything, in the order of the variants.
    const ALL: [(Self, &'static str); 50] = [
        (Self::Refused, "calls refused"),
        (Self::Busy, "calls for which the server had no time"),
        (Self::LostRequest, "requests lost"),
        (Self::LostReply, "replies lost"),
        (Self::SlowReply, "replies that came late"),
        (Self::LateExecution, "calls executed late"),
        (Self::Repeated, "calls executed twice"),
        (Self::Down, "calls while the server was down"),
        (Self::Silent, "calls while requests vanished"),
        (Self::Deaf, "calls while no reply arrived"),
        (Self::Frozen, "calls while the server was frozen"),
        (Self::Full, "calls that the server had no memory for"),
        (Self::LostWait, "waits whose connection was lost"),
        (Self::LostHint, "hints lost"),
        (Self::Crash, "crashes with handlers at work"),
        (Self::Freeze, "freezes with handlers at work"),
        (Self::Stop, "stops with handlers at work"),
        (Self::ClockForward, "steps of the clock forward"),
        (Self::ClockBack, "steps of the clock back"),
        (Self::Cancel, "cancellations of what was in the queue"),
        (Self::Reschedule, "messages moved"),
        (Self::Redrive, "dead letters given a new life"),
        (Self::Purge, "dead letters purged"),
        (Self::Update, "updates of messages that waited or were dead"),
        (Self::Follow, "updates of messages that a worker held"),
        (Self::Updated, "updates delivered or relayed, each with its content"),
        (Self::Relay, "messages relayed, each as one element"),
        (Self::Pause, "pauses"),
        (Self::Limited, "claims and relays under a limit of leases or a rate, none beyond it"),
        (Self::InTurn, "claims that left ready messages of groups, each group in its turn"),
        (Self::OfLimitedGroups, "claims from limited groups or in order, none beyond that"),
        (Self::Delivery, "deliveries, none early or after the end"),
        (Self::Postponed, "deliveries that a handler had put off, none before that"),
        (Self::Redelivery, "deliveries of messages that were delivered before"),
        (Self::SameLease, "deliveries repeated under the lease that they had"),
        (Self::HandOff, "messages sent by the call that settled others"),
        (Self::Result, "results kept by the call that acked their messages"),
        (Self::LastSlot, "handlers begun in the last free slot"),
        (Self::Prompt, "handlers begun beside a free slot, none late, in peaceful stories"),
        (Self::PromptAgain, "handlers begun beside a free slot, none late, after trouble"),
        (Self::Overtaken, "handlers that knew of their lost lease before another began"),
        (Self::Extension, "leases prolonged, none without its handler or hand-off"),
        (Self::Outlasting, "calls of workers during an outage, none too many"),
        (Self::Asked, "repetitions in peaceful stories, each asked for"),
        (Self::Acked, "messages acked at the end"),
        (Self::Cancelled, "messages cancelled at the end"),
        (Self::Purged, "messages purged at the end"),
        (Self::Failed, "messages dead of failures at the end"),
        (Self::Crashed, "messages dead of crashes at the end"),
        (Self::Rejected, "messages rejected at the end"),
    ];
}

/// How often everything was met.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counts([u64; Met::ALL.len()]);

impl Counts {
    pub(crate) fn note(&mut self, met: Met) {
        self.note_many(met, 1);
    }

    pub(crate) fn note_many(&mut self, met: Met, times: u64) {
        if let Some(count) = self.0.get_mut(met as usize) {
            *count += times;
        }
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.0.iter_mut().zip(other.0).for_each(|(sum, count)| *sum += count);
    }

    /// Returns the events that never occurred.
    pub(crate) fn missing(&self) -> impl Iterator<Item = &'static str> {
        Met::ALL.iter().zip(self.0).filter(|(_, count)| *count == 0).map(|((_, what), _)| *what)
    }
}

impl Default for Counts {
    fn default() -> Self {
        Self([0; Met::ALL.len()])
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Met::ALL
            .iter()
            .zip(self.0)
            .try_for_each(|((_, what), count)| writeln!(f, "{count:>10}  {what}"))
    }
}

impl From<FaultKind> for Met {
    fn from(kind: FaultKind) -> Self {
        match kind {
            FaultKind::Refused => Self::Refused,
            FaultKind::Busy => Self::Busy,
            FaultKind::Full => Self::Full,
            FaultKind::LostRequest => Self::LostRequest,
            FaultKind::LostReply => Self::LostReply,
            FaultKind::SlowReply(_) => Self::SlowReply,
            FaultKind::LateExecution(_) => Self::LateExecution,
            FaultKind::Repeated(_) => Self::Repeated,
        }
    }
}

impl From<OutageKind> for Met {
    fn from(kind: OutageKind) -> Self {
        match kind {
            OutageKind::Down => Self::Down,
            OutageKind::Silent => Self::Silent,
            OutageKind::Deaf => Self::Deaf,
            OutageKind::Frozen => Self::Frozen,
            OutageKind::Full => Self::Full,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Counts, Met};

    #[test]
    fn what_was_never_met_is_told() {
        let mut counts = Counts::default();
        assert_eq!(counts.missing().count(), Met::ALL.len());
        for (number, (met, what)) in Met::ALL.into_iter().enumerate() {
            assert_eq!(met as usize, number, "{what}");
            counts.note(met);
            assert_eq!(counts.missing().count(), Met::ALL.len() - 1 - number);
        }
    }
}
