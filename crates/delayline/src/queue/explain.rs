//! Why a message is not delivered.

use std::fmt;
use std::time::Duration;

use delayline_core::{
    Completion, DeathReason, Group, Limits, MessageId, MessageInfo, MessageState, Millis, Progress,
    Stats, Status, Timestamp,
};

use super::{Found, Message};
use crate::after::{Ended, Waiting};

/// The reason why a message is not delivered now, or how it ended: the result of
/// [`Queue::explain`](crate::Queue::explain). `Display` explains it in words.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Explanation {
    /// It is not due.
    NotDue {
        /// The time until it is due, by the server's clock.
        wait: Duration,
        /// Its failures since it was enqueued or redriven, if it waits for another attempt.
        failures: u32,
        /// Failures after which it becomes a dead letter.
        max_failures: u32,
        /// Whether it expires before it is due. Then it will not be delivered.
        expires_first: bool,
    },
    /// It waits for other messages: see [`Draft::after`](crate::Draft::after).
    Waiting {
        /// The number of messages that it waits for.
        members: usize,
        /// The number of members that have not ended, or `None` if they were not queried, or
        /// could not be.
        left: Option<usize>,
        /// The time until the next check of its members, unless one ends earlier; zero if a worker
        /// checks them as soon as it has a free slot.
        next_check: Duration,
        /// The time until it is delivered in any case, or until it expires if that is earlier.
        limit: Duration,
        /// Whether it expires before it is delivered in any case. Then it becomes a dead letter.
        expires_first: bool,
    },
    /// It is due, but has expired. It becomes a dead letter at its turn: a claim that could deliver
    /// it makes it one. While the queue is paused or held, its limits are reached, or the group of
    /// the message has no turn, no claim does.
    Expired,
    /// It is due, but the queue is paused.
    Paused {
        /// How long it has been due.
        overdue: Duration,
    },
    /// It is due, but the queue is held.
    Held {
        /// How long it has been due.
        overdue: Duration,
        /// The time until the hold ends, by the server's clock.
        remaining: Duration,
    },
    /// It is due, but the queue's rate limit, or the share of its shard, allows no delivery now.
    RateLimited {
        /// How long it has been due.
        overdue: Duration,
        /// The time until the rate limit allows the next delivery, by the server's clock.
        remaining: Duration,
    },
    /// It is due, but the queue's limit of leased messages is reached. If the queue has
    /// [shards](crate::Opening::shards), both numbers are those of the shard of the message.
    AllLeased {
        /// How long it has been due.
        overdue: Duration,
        /// The number of leased messages.
        leased: u64,
        /// The maximum number of leased messages.
        most: u32,
    },
    /// It is due, but a handler holds its group ([G38](crate::guarantees#g38)).
    GroupHeld {
        /// How long it has been due.
        overdue: Duration,
        /// The group of the message.
        group: Group,
        /// The time until the hold ends.
        remaining: Duration,
    },
    /// It is due, and waits for a worker with a free slot and, if it has a group, for the turn of
    /// its group ([G35](crate::guarantees#g35)). If the queue limits each group or is in order, it
    /// may also wait for other messages of its group.
    Ready {
        /// How long it has been due.
        overdue: Duration,
        /// The group of the message, or `None` if it has none.
        group: Option<Group>,
        /// Maximum number of messages of its group leased at once, or `None` if it has no group or
        /// the queue has no such limit ([G36](crate::guarantees#g36)).
        each_group: Option<u32>,
        /// Whether it is handled after the earlier messages of its group
        /// ([G37](crate::guarantees#g37)).
        in_order: bool,
        /// The message of its group that must end before, if one is known.
        behind: Option<MessageId>,
    },
    /// A worker holds it.
    Leased {
        /// The time until the lease expires unless the worker extends it; zero if it has expired,
        /// and the next claim will reclaim the message.
        remaining: Duration,
        /// The number of claims, including this one.
        epoch: u64,
        /// Whether a cancel was requested.
        cancel_requested: bool,
        /// The progress that the handler has saved, or `None` if it has saved none.
        progress: Option<Progress>,
    },
    /// It is a dead letter.
    Dead {
        /// Why.
        reason: DeathReason,
        /// How long ago it died.
        ago: Duration,
        /// The error text of the latest failure.
        last_error: Option<String>,
    },
    /// It is finished: [`Status::Acked`], [`Status::Cancelled`], [`Status::Purged`] or
    /// [`Status::Relayed`].
    Finished(Status),
    /// Its record is damaged: the next claim makes it a dead letter.
    Unreadable,
    /// The queue does not know the id: the message was never accepted, it is finished and
    /// forgotten, or the server has lost it.
    Unknown,
}

impl Explanation {
    /// Explains the result of a lookup, given the server's time then and the counters of the queue
    /// [near](crate::Queue::stats_near) the message. [`Queue::explain`](crate::Queue::explain)
    /// reads all three and explains them.
    #[must_use]
    pub fn new<T>(found: &Found<T>, now: Timestamp, stats: &Stats) -> Self {
        match found {
            Found::Live(message) => match &message.waiting {
                Some(waiting) => Self::of_waiting(waiting, message, now, stats),
                None => Self::of_live(&message.info, now, stats).with_group(now, message),
            },
            Found::Undecodable { message, .. } => {
                Self::of_live(&message.info, now, stats).with_group(now, message)
            }
            Found::Finished(status) => Self::Finished(*status),
            Found::Unreadable => Self::Unreadable,
            Found::Unknown => Self::Unknown,
        }
    }

    /// A message that waits for others, unless it was delivered already.
    fn of_waiting<T>(
        waiting: &Waiting,
        message: &Message<T>,
        now: Timestamp,
        stats: &Stats,
    ) -> Self {
        let info = &message.info;
        let explanation = Self::of_live(info, now, stats).with_group(now, message);
        let next_check = match explanation {
            _ if waiting.has_failed(info) => return explanation,
            // Its own group, so that wake-ups cause few checks.
            Self::GroupHeld { remaining, .. } => remaining,
            Self::NotDue { .. } | Self::Ready { .. } => between(now, info.due),
            explanation => return explanation,
        };
        let at_most = Millis::try_from(waiting.at_most).unwrap_or(Millis::MAX);
        let end = waiting.since(info).after(at_most);
        let expiry = info.expires_at.filter(|expires_at| *expires_at <= end);
        Self::Waiting {
            members: waiting.members.len(),
            left: None,
            next_check,
            limit: between(now, expiry.unwrap_or(end)),
            expires_first: expiry.is_some(),
        }
    }

    /// Adds the number of members that are left, if the message waits for others.
    #[must_use]
    pub fn with_ends(self, ends: &[Ended]) -> Self {
        let is_left =
            |it: &&Ended| matches!(it.completion, Completion::Pending | Completion::Unknown);
        match self {
            Self::Waiting { members, next_check, limit, expires_first, .. } => {
                let left = Some(ends.iter().filter(is_left).count());
                Self::Waiting { members, left, next_check, limit, expires_first }
            }
            explanation => explanation,
        }
    }

    /// Adds what a ready message waits for in its group: the end of a hold, or in a queue in order
    /// another message.
    fn with_group<T>(self, now: Timestamp, message: &Message<T>) -> Self {
        match (self, message.group_held_until) {
            (Self::Ready { overdue, group: Some(group), .. }, Some(until)) => {
                Self::GroupHeld { overdue, group, remaining: between(now, until) }
            }
            (Self::Ready { overdue, group, each_group, in_order: true, .. }, None) => {
                let behind = message.behind.clone();
                Self::Ready { overdue, group, each_group, in_order: true, behind }
            }
            (explanation, _) => explanation,
        }
    }

    /// Returns the message of its group that must end before this one, if one is known.
    #[must_use]
    pub const fn behind(&self) -> Option<&MessageId> {
        match self {
            Self::Ready { behind, .. } => behind.as_ref(),
            _ => None,
        }
    }

    fn of_live(info: &MessageInfo, now: Timestamp, stats: &Stats) -> Self {
        match info.state {
            MessageState::Scheduled => Self::NotDue {
                wait: between(now, info.due),
                failures: info.failures,
                max_failures: info.max_failures,
                expires_first: info.expires_at.is_some_and(|expires_at| expires_at <= info.due),
            },
            MessageState::Ready if info.expires_at.is_some_and(|expires_at| expires_at <= now) => {
                Self::Expired
            }
            MessageState::Ready => Self::of_ready(info, now, stats),
            MessageState::Leased { deadline, cancel_requested } => Self::Leased {
                remaining: between(now, deadline),
                epoch: info.epoch,
                cancel_requested,
                progress: info.progress.clone(),
            },
            MessageState::Dead { reason, since } => {
                Self::Dead { reason, ago: between(since, now), last_error: info.last_error.clone() }
            }
            // A state of a later version.
            _ => Self::Unreadable,
        }
    }

    fn of_ready(info: &MessageInfo, now: Timestamp, stats: &Stats) -> Self {
        let overdue = between(info.due, now);
        let Limits { leased, each_group, in_order, rate_open_at, held_until, .. } = stats.limits;
        let most = leased.filter(|most| stats.leased >= u64::from(*most));
        match (held_until, most, rate_open_at) {
            _ if stats.paused => Self::Paused { overdue },
            (Some(until), ..) => Self::Held { overdue, remaining: between(now, until) },
            (None, Some(most), _) => Self::AllLeased { overdue, leased: stats.leased, most },
            (None, None, Some(open_at)) => {
                Self::RateLimited { overdue, remaining: between(now, open_at) }
            }
            (None, None, None) => Self::Ready {
                overdue,
                group: info.group.clone(),
                each_group: each_group.filter(|_| info.group.is_some()),
                in_order: in_order && info.group.is_some(),
                behind: None,
            },
        }
    }

    /// Returns a short name for JSON: `not_due`, `waiting`, `expired`, `paused`, `held`,
    /// `rate_limited`, `all_leased`, `group_held`, `ready`, `leased`, `dead`, `acked`, `cancelled`,
    /// `purged`, `relayed`, `replaced`, `unreadable` or `unknown`.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Waiting { .. } => "waiting",
            Self::NotDue { .. } => "not_due",
            Self::Expired => "expired",
            Self::Paused { .. } => "paused",
            Self::Held { .. } => "held",
            Self::RateLimited { .. } => "rate_limited",
            Self::AllLeased { .. } => "all_leased",
            Self::GroupHeld { .. } => "group_held",
            Self::Ready { .. } => "ready",
            Self::Leased { .. } => "leased",
            Self::Dead { .. } => "dead",
            Self::Finished(status) => status.name(),
            Self::Unreadable => "unreadable",
            Self::Unknown => "unknown",
        }
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotDue { wait, failures, max_failures, expires_first } => {
                write!(f, "It is due in {}", Span(*wait))?;
                if *failures > 0 {
                    write!(f, ", after failure {failures} of {max_failures}")?;
                }
                if *expires_first {
                    f.write_str(", but expires before that, and becomes a dead letter then")?;
                }
                f.write_str(".")
            }
            Self::Waiting { members, left, next_check, limit, expires_first } => {
                f.write_str("It waits for ")?;
                if let Some(left) = left {
                    write!(f, "{left} of ")?;
                }
                let plural = if *members == 1 { "message" } else { "messages" };
                write!(f, "{members} {plural}. The next check is ")?;
                if next_check.is_zero() {
                    f.write_str("due now")?;
                } else {
                    write!(f, "in {}, or when one ends", Span(*next_check))?;
                }
                if *expires_first {
                    write!(f, "; it expires in {}, and is a dead letter then.", Span(*limit))
                } else {
                    write!(f, "; the wait ends in {} at the latest.", Span(*limit))
                }
            }
            Self::Expired => f.write_str(
                "It has expired. The next claim that could deliver it makes it a dead letter.",
            ),
            Self::Paused { overdue } => {
                write!(f, "It has been due for {}, but the queue is paused.", Span(*overdue))
            }
            Self::Held { overdue, remaining } => {
                let (overdue, remaining) = (Span(*overdue), Span(*remaining));
                write!(f, "It has been due for {overdue}, but the queue is held for {remaining}.")
            }
            Self::RateLimited { overdue, remaining } => {
                let (overdue, remaining) = (Span(*overdue), Span(*remaining));
                write!(f, "It has been due for {overdue}, and the queue's rate lets the next message ")?;
                write!(f, "through in {remaining}.")
            }
            Self::AllLeased { overdue, leased, most } => {
                write!(f, "It has been due for {}, but {leased} of {most} ", Span(*overdue))?;
                f.write_str("are leased: it waits for the end of a lease.")
            }
            Self::GroupHeld { overdue, group, remaining } => {
                let (overdue, remaining) = (Span(*overdue), Span(*remaining));
                write!(f, "It has been due for {overdue}, but its group, {group}, is held for ")?;
                write!(f, "{remaining}.")
            }
            Self::Ready { overdue, group, each_group, in_order, behind } => {
                write!(f, "It has been due for {}, and waits for a free worker", Span(*overdue))?;
                match group {
                    Some(group) => write!(f, " and the turn of its group, {group}.")?,
                    None => f.write_str(".")?,
                }
                match (behind, each_group) {
                    (Some(behind), _) => {
                        write!(f, " The message {behind} of its group must end before.")
                    }
                    // In order, a group has one message at a time, whatever its limit.
                    _ if *in_order => {
                        f.write_str(" It may wait for an earlier message of its group.")
                    }
                    (None, Some(most)) => {
                        write!(f, " It may wait for a slot of its group (limit: {most}).")
                    }
                    (None, None) => Ok(()),
                }
            }
            Self::Leased { remaining, epoch, cancel_requested, progress } => {
                write!(f, "A worker holds it (delivery {epoch}), ")?;
                if remaining.is_zero() {
                    f.write_str("but its lease has expired. The next claim reclaims it")?;
                } else {
                    write!(f, "and its lease expires in {} unless extended", Span(*remaining))?;
                }
                f.write_str(if *cancel_requested {
                    ". A cancel was requested: it ends with this lease."
                } else {
                    "."
                })?;
                progress.as_ref().map_or(Ok(()), |progress| write!(f, " Progress: {progress}."))
            }
            Self::Dead { reason, ago, last_error } => {
                let why = match reason {
                    DeathReason::MaxFailures => "it failed too often",
                    DeathReason::MaxCrashes => "its lease expired too often",
                    DeathReason::Rejected => "a handler rejected it",
                    DeathReason::Undecodable => "its payload could not be decoded",
                    DeathReason::Expired => "it expired",
                    _ => "its record cannot be read",
                };
                write!(f, "It has been a dead letter for {}: {why}.", Span(*ago))?;
                match last_error {
                    Some(error) => write!(f, " The last error was: {error}"),
                    None => Ok(()),
                }
            }
            Self::Finished(Status::Acked) => f.write_str("A worker has handled and acked it."),
            Self::Finished(Status::Cancelled) => f.write_str("It was cancelled."),
            Self::Finished(Status::Replaced) => f.write_str("An update has replaced it."),
            Self::Finished(Status::Relayed) => f.write_str("It was moved to a list or stream."),
            Self::Finished(_) => f.write_str("It was a dead letter, and was purged."),
            Self::Unreadable => f.write_str(
                "Its record is damaged. The next claim or a repair makes it a dead letter.",
            ),
            Self::Unknown => f.write_str(
                "The queue does not know it: it was never accepted, or it finished and is forgotten.",
            ),
        }
    }
}

/// The time from one instant to a later one; zero if it is not later.
fn between(from: Timestamp, to: Timestamp) -> Duration {
    Duration::from_millis(to.as_ms().saturating_sub(from.as_ms()))
}

/// A duration in its two largest units.
struct Span(Duration);

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (ms, seconds) = (self.0.as_millis(), self.0.as_secs());
        match seconds {
            0 => write!(f, "{ms} ms"),
            1..60 => write!(f, "{}.{} s", seconds, ms % 1000 / 100),
            60..3600 => write!(f, "{} min {} s", seconds / 60, seconds % 60),
            3600..86_400 => write!(f, "{} h {} min", seconds / 3600, seconds % 3600 / 60),
            _ => write!(f, "{} d {} h", seconds / 86_400, seconds % 86_400 / 3600),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_have_two_units() {
        for (ms, text) in [
            (0, "0 ms"),
            (999, "999 ms"),
            (1_049, "1.0 s"),
            (59_999, "59.9 s"),
            (60_000, "1 min 0 s"),
            (3_599_999, "59 min 59 s"),
            (3_600_000, "1 h 0 min"),
            (86_400_000, "1 d 0 h"),
            (3_155_760_000_000, "36525 d 0 h"),
        ] {
            assert_eq!(Span(Duration::from_millis(ms)).to_string(), text);
        }
    }
}
