//! The promises about the replies that callers got, in spite of all failovers.

mod limits;
mod relays;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::time::Duration;

use bytes::Bytes;
use delayline_core::{
    Applied, Cancelled, Claim, Claimed, Completion, Enqueued, Extended, Found, Lease, MessageId,
    NewMessage, Op, Outcome as Ending, Reply, Rescheduled, Settled, Settlement, Status, Timestamp,
};

pub(super) use self::limits::judge_limits;
pub(super) use self::relays::{Read, judge_relays};
use crate::log::{Entry, Outcome};

/// Calls that may be lost though they were answered: a primary acknowledges before its replicas
/// have it.
#[derive(Clone, Debug)]
pub(super) struct Loss {
    /// A call that had returned before is on the replicas.
    pub(super) level_at: Duration,
    /// They were called by then.
    pub(super) called_by: Duration,
    /// They had their answers by then. A later one must not have been believed.
    pub(super) returned_by: Duration,
}

impl Loss {
    /// Whether a call may have been executed on a server that was lost.
    fn concerns(&self, entry: &Entry) -> bool {
        entry.called <= self.called_by && entry.returned.is_none_or(|it| it >= self.level_at)
    }
}

/// How often there was something to judge by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Messages that were acknowledged to their senders.
    pub acknowledged: usize,
    /// Those of them that are gone, all of them sent when that may be.
    pub lost: usize,
    /// Messages whose every send was answered "not executed", and that were never delivered.
    pub not_executed: usize,
    /// Messages whose send may or may not have been executed.
    pub unknown: usize,
    /// Deliveries that were compared with the due instant.
    pub punctual: usize,
    /// Deliveries of a message that had been delivered before, after that lease had ended.
    pub again: usize,
    /// Messages that were acked, and never delivered afterwards.
    pub acked: usize,
    /// Messages that were cancelled, and never delivered afterwards.
    pub cancelled: usize,
    /// Answers that were compared with all answers before them.
    pub ordered: usize,
    /// Messages that were handed off, each there if and only if the settlement was done.
    pub handed_off: usize,
    /// Results that the queue said it keeps, each there at the end.
    pub results: usize,
    /// Deliveries that were compared with the latest content of their id.
    pub contents: usize,
    /// Messages that were relayed, each to one entry of a stream and not before its instant.
    pub relayed: usize,
    /// Entries that a consumer had read, and that were lost when that may be.
    pub taken_back: usize,
    /// Messages handed to a handler, none twice under one lease.
    pub handled: usize,
    /// Deliveries with more than three quarters of the limit of leases in use, none beyond it.
    pub capped: usize,
    /// Deliveries with more than three quarters of the limit of their group in use, none beyond it.
    pub capped_groups: usize,
    /// Holds of a queue, none of which let a delivery through.
    pub held: usize,
    /// Whether a primary was replaced without a fault while the last messages came to their end.
    pub unasked: usize,
    /// Deliveries that used up the burst of a rate, none beyond it.
    pub slowed: usize,
}

/// All messages that a caller tried to send.
pub(super) fn sent(entries: &[Entry]) -> BTreeSet<MessageId> {
    let ids = |entry: &Entry| match &entry.op {
        Op::Enqueue(messages) => messages.iter().map(|message| message.id.clone()).collect(),
        Op::HandOff(items) => {
            let messages = items.iter().flat_map(|item| &item.messages);
            messages.map(|message| message.id.clone()).collect()
        }
        _ => Vec::new(),
    };
    entries.iter().flat_map(ids).collect()
}

/// The results that a queue said it keeps, without the ones that may be lost.
pub(super) fn kept(entries: &[Entry], losses: &[Loss]) -> BTreeMap<MessageId, Bytes> {
    let answered = entries.iter().filter(|entry| !is_lossy(entry, losses));
    let pairs = answered.flat_map(|entry| match (&entry.op, &entry.outcome) {
        (Op::HandOff(items), Outcome::Answered(applied)) => match &applied.reply {
            Reply::HandOff(answers) => items.iter().zip(answers).collect(),
            _ => Vec::new(),
        },
        _ => Vec::new(),
    });
    let kept = pairs.filter(|(_, answer)| answer.result_kept).filter_map(|(item, _)| {
        Some((item.settlement.id.clone(), item.result.as_ref()?.bytes.clone()))
    });
    kept.collect()
}

/// Whether a message has ended with the result that it was acked with.
///
/// # Errors
///
/// It has another one, or none.
pub(super) fn has_result(
    id: &MessageId,
    bytes: &Bytes,
    progress: Option<&Completion>,
) -> Result<(), String> {
    match progress {
        Some(Completion::Finished { status: Status::Acked, result: Some(it) }) if it == bytes => {
            Ok(())
        }
        _ => Err(format!("G32: {id} was acked with a result that was kept, and is {progress:?}")),
    }
}

/// Judges the calls to one queue. `there` are the messages that the queue knows at the end,
/// finished ones included.
///
/// # Errors
///
/// The first promise that was broken.
pub(super) fn judge(
    entries: &[Entry],
    losses: &[Loss],
    there: &HashMap<MessageId, Found>,
    seen: &mut Seen,
) -> Result<(), String> {
    let lives = lives(entries, losses);
    for (id, life) in &lives {
        life.check(there.contains_key(*id), seen)
            .map_err(|reason| format!("{reason}: {id}\n{}", story(entries, losses, id)))?;
    }
    follows(entries, &lives, there, seen)
        .map_err(|(id, reason)| format!("{reason}: {id}\n{}", story(entries, losses, id)))?;
    in_order(entries, losses, seen)
}

/// The replies about each message.
fn lives<'a>(entries: &'a [Entry], losses: &[Loss]) -> HashMap<&'a MessageId, Life> {
    let mut lives = HashMap::new();
    for entry in entries {
        enter(&mut lives, entry, is_lossy(entry, losses));
    }
    lives
}

/// Judges the calls to a queue whose ids are sent again and again, and updated.
///
/// # Errors
///
/// The first promise that was broken.
pub(super) fn judge_updates(
    entries: &[Entry],
    losses: &[Loss],
    seen: &mut Seen,
) -> Result<(), String> {
    for (id, life) in &lives(entries, losses) {
        life.check_leases(seen)
            .map_err(|reason| format!("{reason}: {id}\n{}", story(entries, losses, id)))?;
    }
    contents(entries, losses, seen)
        .map_err(|(id, reason)| format!("{reason}: {id}\n{}", story(entries, losses, id)))?;
    in_order(entries, losses, seen)
}

/// A delivery has the content that the latest send or update before it, by revision, has given its
/// id. Instead, it may have that of an update without an answer, or of one that may be lost.
fn contents<'a>(
    entries: &'a [Entry],
    losses: &[Loss],
    seen: &mut Seen,
) -> Result<(), (&'a MessageId, String)> {
    let mut changes = HashMap::<&MessageId, BTreeMap<u64, Option<&Bytes>>>::new();
    let mut unknown = HashMap::<&MessageId, HashSet<&Bytes>>::new();
    for entry in entries {
        let Op::Enqueue(messages) = &entry.op else { continue };
        let answered = match &entry.outcome {
            Outcome::Answered(Applied { revision, reply: Reply::Enqueue(answers), .. })
                if !is_lossy(entry, losses) =>
            {
                Some((*revision, answers))
            }
            Outcome::NotExecuted(_) => continue,
            _ => None,
        };
        for (n, message) in messages.iter().enumerate() {
            let Some((revision, answers)) = answered else {
                unknown.entry(&message.id).or_default().insert(&message.payload);
                continue;
            };
            let content = match answers.get(n) {
                Some(Enqueued::Created { .. } | Enqueued::Updated { .. }) => Some(&message.payload),
                // A claim that is repeated still has its leases.
                Some(Enqueued::Following { .. }) => None,
                // Nothing has changed, or an earlier call without an answer has done it.
                _ => continue,
            };
            changes.entry(&message.id).or_default().insert(revision, content);
        }
    }
    for entry in entries.iter().filter(|entry| !is_lossy(entry, losses)) {
        let Outcome::Answered(Applied { revision, reply: Reply::Claim(claimed), .. }) =
            &entry.outcome
        else {
            continue;
        };
        for delivery in &claimed.deliveries {
            let (id, payload) = (&delivery.message.info.id, &delivery.message.payload);
            let latest = changes.get(id).and_then(|it| it.range(..revision).next_back());
            let Some((changed, Some(content))) = latest else { continue };
            let is_other = || unknown.get(id).is_some_and(|it| it.contains(payload));
            if payload != *content && !is_other() {
                let reason = format!(
                    "G29: delivered at revision {revision} without the content of {changed}"
                );
                return Err((id, reason));
            }
            seen.contents += 1;
        }
    }
    Ok(())
}

/// Messages of a hand-off exist if and only if the settlement was done, also where both may be
/// lost.
fn follows<'a>(
    entries: &'a [Entry],
    lives: &HashMap<&MessageId, Life>,
    there: &HashMap<MessageId, Found>,
    seen: &mut Seen,
) -> Result<(), (&'a MessageId, String)> {
    let items = |entry: &'a Entry| match &entry.op {
        Op::HandOff(items) => items.as_slice(),
        _ => &[],
    };
    // After a failover an epoch is used again, and the handler's hand-offs then have the same ids.
    let mut leases = HashMap::<_, HashSet<_>>::new();
    for item in entries.iter().flat_map(items) {
        for message in &item.messages {
            leases.entry(&message.id).or_default().insert(item.settlement.lease);
        }
    }
    for entry in entries {
        let Outcome::Answered(applied) = &entry.outcome else { continue };
        let Reply::HandOff(answers) = &applied.reply else { continue };
        let returned = entry.returned.unwrap_or(Duration::MAX);
        for (item, answer) in items(entry).iter().zip(answers) {
            let Settlement { id, lease, .. } = &item.settlement;
            let Settled::Done { status: Status::Acked } = answer.settled else { continue };
            let Some(life) = lives.get(id) else { continue };
            for message in item.messages.iter().filter(|it| leases[&it.id].len() == 1) {
                let is_there = there.contains_key(&message.id);
                let is_again =
                    life.deliveries.iter().any(|it| !it.is_lossy && it.called > returned);
                if is_there && is_again {
                    let reason = format!("G31: {} is there, but not the settlement", message.id);
                    return Err((id, reason));
                }
                let is_acked = matches!(there.get(id), Some(Found::Finished(Status::Acked)));
                if !is_there && is_acked && life.ends.iter().all(|(it, _)| it == lease) {
                    let reason = format!("G31: the settlement is there, but not {}", message.id);
                    return Err((id, reason));
                }
                seen.handed_off += 1;
            }
        }
    }
    Ok(())
}

/// All that was said of a message.
pub(super) fn story(entries: &[Entry], losses: &[Loss], id: &MessageId) -> String {
    // As it stands in calls and answers.
    let named = format!("{id:?}");
    let lines = entries.iter().map(|entry| format!("{entry:?}\n"));
    let lines: String = lines.filter(|line| line.contains(&named)).collect();
    format!("{lines}{losses:?}")
}

fn is_lossy(entry: &Entry, losses: &[Loss]) -> bool {
    losses
        .iter()
        .any(|loss| loss.concerns(entry) && entry.returned.is_none_or(|it| it <= loss.returned_by))
}

/// The replies about one message. Effects that may be lost are left out where they could lead to a
/// false accusation.
#[derive(Debug, Default)]
struct Life {
    /// A send that may have been executed.
    may_exist: bool,
    is_sent: bool,
    acknowledged: bool,
    /// Acknowledged when nothing could be lost.
    is_safe: bool,
    due: Option<Timestamp>,
    /// Calls that may have changed when it is due: when they were made, and when they returned.
    moves: Vec<(Duration, Duration)>,
    /// Retries and snoozes: of which lease, since when, and until when.
    put_off: Vec<(Lease, Duration, Timestamp)>,
    deliveries: Vec<Delivery>,
    /// Deadlines that were prolonged.
    extensions: Vec<(Lease, Timestamp)>,
    /// When a lease may have been ended by a call.
    ends: Vec<(Lease, Duration)>,
    /// When the message was certainly finished.
    acked: Option<Duration>,
    cancelled: Option<Duration>,
}

#[derive(Debug)]
struct Delivery {
    lease: Lease,
    at: Timestamp,
    deadline: Timestamp,
    called: Duration,
    returned: Duration,
    is_lossy: bool,
}

fn enter<'a>(lives: &mut HashMap<&'a MessageId, Life>, entry: &'a Entry, is_lossy: bool) {
    let Entry { called, .. } = *entry;
    let returned = entry.returned.unwrap_or(Duration::MAX);
    let answer = match &entry.outcome {
        Outcome::Answered(applied) => Some(applied),
        Outcome::Unknown => None,
        Outcome::NotExecuted(_) => {
            if let Op::Enqueue(messages) = &entry.op {
                messages.iter().for_each(|it| lives.entry(&it.id).or_default().is_sent = true);
            }
            return;
        }
    };
    let at = answer.map_or(Timestamp::MAX, |applied| applied.at);
    let deliver =
        |lives: &mut HashMap<&'a MessageId, Life>, claim: &Claim, claimed: &'a Claimed| {
            for delivery in &claimed.deliveries {
                let deadline = at.after(claim.lease);
                let lease = delivery.lease;
                let life = lives.entry(&delivery.message.info.id).or_default();
                life.deliveries.push(Delivery { lease, at, deadline, called, returned, is_lossy });
            }
        };
    let settle = |lives: &mut HashMap<&'a MessageId, Life>,
                  item: &'a Settlement,
                  answer: Option<&Settled>| {
        let life = lives.entry(&item.id).or_default();
        life.ends.push((item.lease, called));
        let is_acked = matches!(answer, Some(Settled::Done { status: Status::Acked }));
        if is_acked && !is_lossy {
            life.acked = Some(life.acked.map_or(returned, |known| known.min(returned)));
        }
        // A dead letter is redriven, or stays.
        let is_alive = matches!(answer, Some(Settled::Done { status }) if *status != Status::Dead);
        if let Ending::Retry { schedule, .. }
        | Ending::Undecodable { schedule, .. }
        | Ending::Snooze { schedule } = item.outcome
            && is_alive
            && !is_lossy
        {
            life.put_off.push((item.lease, called, schedule.instant(at)));
        }
    };
    let send = |lives: &mut HashMap<&'a MessageId, Life>,
                messages: &'a [NewMessage],
                answers: &[Enqueued]| {
        for (n, message) in messages.iter().enumerate() {
            let life = lives.entry(&message.id).or_default();
            (life.is_sent, life.may_exist) = (true, true);
            if let Some(answer) = answers.get(n) {
                life.acknowledged = true;
                life.is_safe |= !is_lossy;
                if let Enqueued::Created { due } = answer {
                    life.due = Some(life.due.map_or(*due, |known| known.min(*due)));
                }
            }
        }
    };
    let reply = answer.map(|applied| &applied.reply);
    match (&entry.op, reply) {
        (Op::Enqueue(messages), reply) => {
            let answers = match reply {
                Some(Reply::Enqueue(answers)) => answers.as_slice(),
                _ => &[],
            };
            send(lives, messages, answers);
        }
        (Op::Claim(claim), Some(Reply::Claim(claimed))) => deliver(lives, claim, claimed),
        (Op::Settle(items), reply) => {
            let answers = match reply {
                Some(Reply::Settle(answers)) => answers.as_slice(),
                _ => &[],
            };
            for (n, item) in items.iter().enumerate() {
                settle(lives, item, answers.get(n));
            }
        }
        (Op::HandOff(items), reply) => {
            let answers = match reply {
                Some(Reply::HandOff(answers)) => answers.as_slice(),
                _ => &[],
            };
            for (n, item) in items.iter().enumerate() {
                let answer = answers.get(n);
                settle(lives, &item.settlement, answer.map(|answer| &answer.settled));
                match answer.map(|answer| (answer.settled, &answer.messages)) {
                    None => send(lives, &item.messages, &[]),
                    Some((Settled::Done { .. }, answers)) => send(lives, &item.messages, answers),
                    // Sent then, or later for another reason; the answer to that is not here.
                    Some((Settled::AlreadyDone { .. }, _)) => send(lives, &item.messages, &[]),
                    Some(_) => item
                        .messages
                        .iter()
                        .for_each(|it| lives.entry(&it.id).or_default().is_sent = true),
                }
            }
        }
        (Op::Extend(extend), Some(Reply::Extend(answers))) if !is_lossy => {
            for ((id, lease), answer) in extend.leases.iter().zip(answers) {
                if let Extended::Done { deadline, .. } = answer {
                    lives.entry(id).or_default().extensions.push((*lease, *deadline));
                }
            }
        }
        (Op::Cancel(ids), Some(Reply::Cancel(answers))) if !is_lossy => {
            for (id, answer) in ids.iter().zip(answers) {
                if *answer == Cancelled::Cancelled {
                    lives.entry(id).or_default().cancelled = Some(returned);
                }
            }
        }
        (Op::Reschedule(items), reply) => {
            for (n, item) in items.iter().enumerate() {
                let answer = match reply {
                    Some(Reply::Reschedule(answers)) => answers.get(n),
                    _ => None,
                };
                if matches!(answer, None | Some(Rescheduled::Done { .. })) {
                    lives.entry(&item.id).or_default().moves.push((called, returned));
                }
            }
        }
        _ => {}
    }
}

impl Life {
    fn check(&self, is_there: bool, seen: &mut Seen) -> Result<(), String> {
        if !self.is_sent && self.deliveries.is_empty() {
            return Ok(());
        }
        if !self.may_exist {
            if is_there || !self.deliveries.is_empty() {
                return Err("a call that was \"not executed\" was executed".to_owned());
            }
            seen.not_executed += 1;
            return Ok(());
        }
        if self.acknowledged {
            seen.acknowledged += 1;
            if !is_there && self.is_safe {
                return Err("G1: a message that was acknowledged is lost".to_owned());
            }
            seen.lost += usize::from(!is_there);
        } else {
            seen.unknown += 1;
        }
        for (end, what, count) in [
            (self.acked, "acked", &mut seen.acked),
            (self.cancelled, "cancelled", &mut seen.cancelled),
        ] {
            let Some(end) = end else { continue };
            if let Some(late) = self.deliveries.iter().find(|delivery| delivery.called > end) {
                return Err(format!("G1: {what} at {end:?}, and delivered as {late:?}"));
            }
            *count += 1;
        }
        self.check_deliveries(seen)
    }

    /// The deliveries in the order of the server: calls overlap, and within a millisecond only the
    /// epoch tells which one was first.
    fn ordered_deliveries(&self) -> Vec<&Delivery> {
        let mut deliveries: Vec<_> = self.deliveries.iter().collect();
        deliveries.sort_by_key(|delivery| (delivery.at, delivery.lease.epoch));
        deliveries
    }

    fn check_deliveries(&self, seen: &mut Seen) -> Result<(), String> {
        let deliveries = self.ordered_deliveries();
        // Lost messages may be sent anew, with another instant.
        let first = deliveries.iter().find(|delivery| !delivery.is_lossy);
        if let (Some(first), Some(due), true) = (first, self.due, self.moves.is_empty()) {
            if first.at < due {
                return Err(format!("G4: due at {due}, and delivered as {first:?}"));
            }
            seen.punctual += 1;
        }
        for (lease, since, until) in &self.put_off {
            let is_next = |it: &&&Delivery| !it.is_lossy && it.lease.epoch == lease.epoch + 1;
            for next in deliveries.iter().filter(is_next) {
                let is_between =
                    |(called, end): &(Duration, Duration)| *called <= next.returned && end >= since;
                if self.moves.iter().any(is_between) {
                    continue;
                }
                if next.at < *until {
                    return Err(format!("G4: put off until {until}, and delivered as {next:?}"));
                }
                seen.punctual += 1;
            }
        }
        self.check_leases(seen)
    }

    /// Whether no lease began before the one before it had ended.
    fn check_leases(&self, seen: &mut Seen) -> Result<(), String> {
        let deliveries = self.ordered_deliveries();
        for pair in deliveries.windows(2) {
            let [first, next] = pair else { continue };
            if first.lease == next.lease || first.is_lossy || next.is_lossy {
                continue;
            }
            let extended = self.extensions.iter().filter(|(lease, _)| *lease == first.lease);
            let deadline = extended.map(|(_, deadline)| *deadline).max();
            let deadline = deadline.map_or(first.deadline, |it| it.max(first.deadline));
            let is_over = next.at >= deadline
                || self
                    .ends
                    .iter()
                    .any(|(lease, called)| *lease == first.lease && *called <= next.returned);
            if !is_over {
                return Err(format!("G5: delivered as {first:?}, and too soon as {next:?}"));
            }
            seen.again += 1;
        }
        Ok(())
    }
}

/// Revisions only rise: an answer must not be older than one that came before its call, unless that
/// one may be lost. So an answered operation that was lost shows, whatever it was.
fn in_order(entries: &[Entry], losses: &[Loss], seen: &mut Seen) -> Result<(), String> {
    let answered = entries.iter().filter_map(|entry| match &entry.outcome {
        Outcome::Answered(applied) => Some((entry, applied.revision, entry.returned?)),
        _ => None,
    });
    let mut by_call: Vec<_> = answered.collect();
    let mut by_return: Vec<_> =
        by_call.iter().filter(|(entry, ..)| !is_lossy(entry, losses)).copied().collect();
    by_call.sort_by_key(|(entry, ..)| entry.called);
    by_return.sort_by_key(|(.., returned)| *returned);
    let (mut before, mut newest) = (by_return.into_iter().peekable(), None);
    for (entry, revision, _) in by_call {
        while let Some(earlier) = before.next_if(|(.., returned)| *returned < entry.called) {
            if newest.is_none_or(|(_, newest, _)| earlier.1 > newest) {
                newest = Some(earlier);
            }
        }
        if let Some((earlier, known, _)) = newest
            && revision < known
        {
            return Err(format!(
                "G3: revision {revision} follows {known}: {earlier:?}, then {entry:?}"
            ));
        }
        seen.ordered += 1;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
