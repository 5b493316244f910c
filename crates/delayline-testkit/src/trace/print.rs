//! The text form of a trace.

use std::fmt::{self, Formatter};

use delayline_core::{
    Claim, Destination, FinishedIds, Known, Lease, List, MessageId, NewMessage, Op, Outcome,
    Position, Priority, Schedule, Settlement, Update, UpdateContent, UpdateDue,
};

use super::bytes::Word;
use super::{Step, Trace};

impl fmt::Display for Trace {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.steps.iter().try_for_each(|step| writeln!(f, "{step}"))
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.at.as_ms(), self.op.name())?;
        match &self.op {
            Op::Enqueue(messages) => items(f, messages, message),
            Op::Claim(its) => claim(f, its),
            Op::Relay(relay) => {
                write!(f, " max={}", relay.max)?;
                destination(f, &relay.to)
            }
            Op::Settle(settlements) => items(f, settlements, settlement),
            Op::HandOff(hand_offs) => items(f, hand_offs, |f, item| {
                settlement(f, &item.settlement)?;
                if let Some(result) = &item.result {
                    let retention_ms = result.retention.as_ms();
                    write!(f, " result={} retention={retention_ms}", Word(&result.bytes))?;
                }
                item.messages.iter().try_for_each(|follow_up| {
                    f.write_str(" >")?;
                    message(f, follow_up)
                })
            }),
            Op::Extend(extend) => {
                write!(f, " lease={}", extend.lease.as_ms())?;
                extend.leases.iter().try_for_each(|(leased, fence)| {
                    f.write_str(" ;")?;
                    id(f, leased)?;
                    lease(f, *fence)
                })
            }
            Op::Cancel(ids) | Op::Purge(ids) | Op::Get(ids) | Op::Progress(ids) => {
                ids.iter().try_for_each(|i| id(f, i))
            }
            Op::Reschedule(reschedules) => items(f, reschedules, |f, item| {
                id(f, &item.id)?;
                schedule(f, "", item.schedule)
            }),
            Op::Redrive(redrive) => {
                schedule(f, "", redrive.schedule)?;
                redrive.ids.iter().try_for_each(|i| id(f, i))
            }
            Op::Pause | Op::Resume | Op::Stats => Ok(()),
            Op::Forecast(delays) => {
                delays.iter().try_for_each(|delay| write!(f, " {}", delay.as_ms()))
            }
            Op::History(resolution) => write!(f, " {}", resolution.name()),
            Op::List(list) => page(f, list),
            Op::Check(check) | Op::Repair(check) => {
                write!(f, " limit={}", check.limit)?;
                after(f, check.after)
            }
            // A trace must tell everything.
            _ => Err(fmt::Error),
        }
    }
}

fn items<T>(
    f: &mut Formatter<'_>,
    items: &[T],
    print: impl Fn(&mut Formatter<'_>, &T) -> fmt::Result,
) -> fmt::Result {
    for (n, item) in items.iter().enumerate() {
        if n > 0 {
            f.write_str(" ;")?;
        }
        print(f, item)?;
    }
    Ok(())
}

fn claim(f: &mut Formatter<'_>, claim: &Claim) -> fmt::Result {
    write!(
        f,
        " consumer={} claim={} max={} lease={}",
        Word(claim.consumer.as_bytes()),
        Word(claim.claim_id.as_bytes()),
        claim.max,
        claim.lease.as_ms()
    )
}

fn message(f: &mut Formatter<'_>, message: &NewMessage) -> fmt::Result {
    id(f, &message.id)?;
    if !message.payload.is_empty() {
        write!(f, " payload={}", Word(&message.payload))?;
    }
    for (name, value) in message.headers.iter() {
        write!(f, " header={}:{}", Word(name.as_bytes()), Word(value))?;
    }
    if message.schedule != Schedule::NOW {
        schedule(f, "", message.schedule)?;
    }
    if let Some(expires) = message.expires {
        schedule(f, "expires-", expires)?;
    }
    if message.priority != Priority::default() {
        write!(f, " priority={}", message.priority.name())?;
    }
    if message.max_failures != NewMessage::DEFAULT_MAX_FAILURES {
        write!(f, " failures={}", message.max_failures)?;
    }
    if message.max_crashes != NewMessage::DEFAULT_MAX_CRASHES {
        write!(f, " crashes={}", message.max_crashes)?;
    }
    if message.finished_ids == FinishedIds::Reuse {
        f.write_str(" reuse")?;
    }
    if let Some(window) = message.once_per {
        write!(f, " once-per={}", window.as_ms())?;
    }
    match message.known {
        Known::Refuse => Ok(()),
        Known::Update(how) => update(f, how),
        _ => Err(fmt::Error),
    }
}

fn update(f: &mut Formatter<'_>, update: Update) -> fmt::Result {
    let content = match update.content {
        UpdateContent::Keep => "keep",
        UpdateContent::Replace => "replace",
        _ => return Err(fmt::Error),
    };
    write!(f, " update={} content={content}", Word(update.token.as_bytes()))?;
    match update.due {
        UpdateDue::Keep => f.write_str(" due=keep"),
        UpdateDue::Set => f.write_str(" due=set"),
        UpdateDue::Later { at_most } => write!(f, " due=later at-most={}", at_most.as_ms()),
        _ => Err(fmt::Error),
    }
}

fn destination(f: &mut Formatter<'_>, to: &Destination) -> fmt::Result {
    let (kind, group) = match to {
        Destination::List { .. } => ("list", None),
        Destination::Stream { backlog, .. } => {
            ("stream", backlog.as_ref().map(|backlog| &backlog.group))
        }
        _ => return Err(fmt::Error),
    };
    write!(f, " {kind}={}", Word(to.key().as_bytes()))?;
    group.map_or(Ok(()), |group| write!(f, " group={}", Word(group.as_bytes())))?;
    to.limit().map_or(Ok(()), |limit| write!(f, " full={limit}"))
}

fn settlement(f: &mut Formatter<'_>, item: &Settlement) -> fmt::Result {
    id(f, &item.id)?;
    lease(f, item.lease)?;
    outcome(f, &item.outcome)
}

fn outcome(f: &mut Formatter<'_>, outcome: &Outcome) -> fmt::Result {
    match outcome {
        Outcome::Ack => f.write_str(" ack"),
        Outcome::Retry { delay, error } => {
            write!(f, " retry delay={} error={}", delay.as_ms(), Word(error.as_bytes()))
        }
        Outcome::Snooze { delay } => write!(f, " snooze delay={}", delay.as_ms()),
        Outcome::Release => f.write_str(" release"),
        Outcome::Reject { error } => write!(f, " reject error={}", Word(error.as_bytes())),
    }
}

fn page(f: &mut Formatter<'_>, list: &List) -> fmt::Result {
    write!(f, " {} limit={}", list.status.name(), list.limit)?;
    after(f, list.after)
}

fn after(f: &mut Formatter<'_>, after: Option<Position>) -> fmt::Result {
    after.map_or(Ok(()), |at| {
        write!(f, " after={}/{}/{}", at.index, at.instant.as_ms(), at.sequence)
    })
}

fn schedule(f: &mut Formatter<'_>, prefix: &str, schedule: Schedule) -> fmt::Result {
    match schedule {
        Schedule::In(delay) => write!(f, " {prefix}in={}", delay.as_ms()),
        Schedule::At(instant) => write!(f, " {prefix}at={}", instant.as_ms()),
    }
}

fn id(f: &mut Formatter<'_>, id: &MessageId) -> fmt::Result {
    write!(f, " {}", Word(id.as_bytes()))
}

fn lease(f: &mut Formatter<'_>, lease: Lease) -> fmt::Result {
    write!(f, " {}/{}", Word(lease.claim_id.as_bytes()), lease.epoch)
}
