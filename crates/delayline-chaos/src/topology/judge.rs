//! What must hold of what callers were told, whichever servers have come and gone.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ops::RangeInclusive;
use std::time::Duration;

use bytes::Bytes;
use delayline_core::{
    Applied, Cancelled, Claim, Claimed, Enqueued, Extended, Found, Lease, MessageId, NewMessage,
    Op, Progress, Reply, Settled, Settlement, Status, Timestamp,
};

use crate::log::{Entry, Outcome};

/// Calls that may be lost though they were answered: a primary acknowledges before its replicas have it.
#[derive(Clone, Debug)]
pub(super) struct Loss {
    /// When they were called.
    pub(super) called: RangeInclusive<Duration>,
    /// They had their answers by then. A later one must not have been believed.
    pub(super) returned_by: Duration,
}

/// How often there was something to judge by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Messages that were acknowledged to their senders.
    pub acknowledged: usize,
    /// Those of them that are gone, all of them sent when that may be.
    pub lost: usize,
    /// Messages whose every send was answered "not executed", and that nobody ever saw.
    pub not_executed: usize,
    /// Messages of whose send nobody knows whether it was executed.
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
    /// Messages handed to a handler, none twice under one lease.
    pub handled: usize,
}

/// All messages that somebody tried to send.
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

/// The results that a queue said it keeps, but for those that may be lost.
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
    progress: Option<&Progress>,
) -> Result<(), String> {
    match progress {
        Some(Progress::Finished { status: Status::Acked, result: Some(it) }) if it == bytes => {
            Ok(())
        }
        _ => Err(format!("G32: {id} was acked with a result that was kept, and is {progress:?}")),
    }
}

/// Judges the calls to one queue. `there` are the messages that the queue knows at the end, finished ones
/// included.
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
    let mut lives = HashMap::<&MessageId, Life>::new();
    for entry in entries {
        enter(&mut lives, entry, is_lossy(entry, losses));
    }
    for (id, life) in &lives {
        life.check(there.contains_key(*id), seen)
            .map_err(|reason| format!("{reason}: {id}\n{}", story(entries, losses, id)))?;
    }
    follows(entries, &lives, there, seen)
        .map_err(|(id, reason)| format!("{reason}: {id}\n{}", story(entries, losses, id)))?;
    in_order(entries, losses, seen)
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
    let mut lives = HashMap::<&MessageId, Life>::new();
    for entry in entries {
        enter(&mut lives, entry, is_lossy(entry, losses));
    }
    for (id, life) in &lives {
        life.check_leases(seen)
            .map_err(|reason| format!("{reason}: {id}\n{}", story(entries, losses, id)))?;
    }
    contents(entries, losses, seen)
        .map_err(|(id, reason)| format!("{reason}: {id}\n{}", story(entries, losses, id)))?;
    in_order(entries, losses, seen)
}

/// A delivery has the content that the latest send or update before it, by revision, has given its id.
/// Instead, it may have that of an update without an answer, or of one that may be lost.
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
                // A claim that is repeated still has what it had before.
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

/// Messages of a hand-off are there if and only if the settlement was done, also where both may be lost.
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
    // After a failover an epoch comes again, and what the handler hands off then has the same ids.
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
fn story(entries: &[Entry], losses: &[Loss], id: &MessageId) -> String {
    // As it stands in calls and answers.
    let named = format!("{id:?}");
    let lines = entries.iter().map(|entry| format!("{entry:?}\n"));
    let lines: String = lines.filter(|line| line.contains(&named)).collect();
    format!("{lines}{losses:?}")
}

fn is_lossy(entry: &Entry, losses: &[Loss]) -> bool {
    losses.iter().any(|loss| {
        loss.called.contains(&entry.called)
            && entry.returned.is_none_or(|returned| returned <= loss.returned_by)
    })
}

/// What callers were told about one message. What may be lost is left out where it could accuse somebody.
#[derive(Debug, Default)]
struct Life {
    /// A send that may have been executed.
    may_exist: bool,
    is_sent: bool,
    acknowledged: bool,
    /// Acknowledged when nothing could be lost.
    is_safe: bool,
    due: Option<Timestamp>,
    may_have_moved: bool,
    deliveries: Vec<Delivery>,
    /// Deadlines that were prolonged.
    extensions: Vec<(Lease, Timestamp)>,
    /// When somebody may have ended a lease.
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
                    Some((Settled::Stale | Settled::Missing, _)) => item
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
        (Op::Reschedule(items), _) => {
            items.iter().for_each(|it| lives.entry(&it.id).or_default().may_have_moved = true);
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

    fn check_deliveries(&self, seen: &mut Seen) -> Result<(), String> {
        let mut deliveries: Vec<_> = self.deliveries.iter().collect();
        deliveries.sort_by_key(|delivery| delivery.at);
        // What is lost may be sent anew, with another instant.
        let first = deliveries.iter().find(|delivery| !delivery.is_lossy);
        if let (Some(first), Some(due), false) = (first, self.due, self.may_have_moved) {
            if first.at < due {
                return Err(format!("G4: due at {due}, and delivered as {first:?}"));
            }
            seen.punctual += 1;
        }
        self.check_leases(seen)
    }

    /// Whether no lease began before the one before it had ended.
    fn check_leases(&self, seen: &mut Seen) -> Result<(), String> {
        let mut deliveries: Vec<_> = self.deliveries.iter().collect();
        deliveries.sort_by_key(|delivery| delivery.at);
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

/// Revisions only rise: an answer must not be older than one that came before its call, unless that one
/// may be lost. So an answered operation that was lost shows, whatever it was.
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
mod tests {
    use delayline_core::{
        At, Claim, ClaimId, ConsumerName, Error, ErrorKind, HandOff, Known, Millis, NewMessage,
        NewResult, Outcome as Ending, Schedule, Settlement, State, Update, UpdateContent,
        UpdateDue, UpdateToken,
    };

    use super::*;

    fn id() -> MessageId {
        MessageId::try_from("m1").unwrap()
    }

    fn send(delay_ms: u64) -> Op {
        let mut message = NewMessage::new(id(), Bytes::from_static(b"x"));
        message.schedule = Schedule::In(Millis::saturating(delay_ms));
        Op::Enqueue(vec![message])
    }

    fn claim(token: u8) -> Op {
        Op::Claim(Claim::new(
            ConsumerName::new("c").unwrap(),
            ClaimId::from_bytes([token; ClaimId::BYTES]),
            1,
            Millis::saturating(1_000),
        ))
    }

    fn ack(claimed: &Applied) -> Op {
        let Reply::Claim(claimed) = &claimed.reply else { panic!("no claim") };
        let lease = claimed.deliveries[0].lease;
        Op::Settle(vec![Settlement::new(id(), lease, Ending::Ack)])
    }

    /// A call at that second, answered half a second later.
    fn entry(second: u64, op: &Op, outcome: Outcome) -> Entry {
        let called = Duration::from_secs(second);
        let returned = Some(called + Duration::from_millis(500));
        Entry { client: "test", era: 0, called, returned, at: At::Server, op: op.clone(), outcome }
    }

    /// A primary, and the calls that it answered.
    #[derive(Default)]
    struct Primary {
        state: State,
        entries: Vec<Entry>,
    }

    impl Primary {
        fn answer(&mut self, second: u64, op: &Op) -> Applied {
            let at = Timestamp::from_ms(1_000_000 + 1_000 * second).unwrap();
            let applied = self.state.apply(at, op);
            self.entries.push(entry(second, op, Outcome::Answered(applied.clone())));
            applied
        }
    }

    fn verdict(entries: &[Entry], losses: &[Loss], is_there: bool) -> Result<Seen, String> {
        let there = is_there.then(|| (id(), Found::Finished(Status::Acked)));
        let there = there.into_iter().collect();
        let mut seen = Seen::default();
        judge(entries, losses, &there, &mut seen).map(|()| seen)
    }

    fn accused(entries: &[Entry], is_there: bool, of: &str) {
        let reason = verdict(entries, &[], is_there).unwrap_err();
        assert!(reason.starts_with(of), "{reason}");
    }

    fn loss(from: u64, to: u64, returned_by: u64) -> Loss {
        let [from, to, returned_by] = [from, to, returned_by].map(Duration::from_secs);
        Loss { called: from..=to, returned_by }
    }

    #[test]
    fn what_is_acknowledged_is_lost_only_where_it_may_be() {
        let mut primary = Primary::default();
        primary.answer(5, &send(0));
        let entries = primary.entries;
        assert_eq!(verdict(&entries, &[], true).unwrap().lost, 0);
        accused(&entries, false, "G1");
        assert_eq!(verdict(&entries, &[loss(4, 5, 6)], false).unwrap().lost, 1);
        assert!(verdict(&entries, &[loss(6, 9, 9)], false).is_err(), "sent before");
        assert!(verdict(&entries, &[loss(4, 5, 5)], false).is_err(), "believed too late");
    }

    #[test]
    fn what_was_not_executed_must_not_be_there() {
        let refused = Outcome::NotExecuted(Error::new(ErrorKind::Unreachable));
        let entries = [entry(1, &send(0), refused)];
        assert_eq!(verdict(&entries, &[], false).unwrap().not_executed, 1);
        accused(&entries, true, "a call that was");
        let unknown = [entry(1, &send(0), Outcome::Unknown)];
        assert_eq!(verdict(&unknown, &[], true).unwrap().unknown, 1);
        assert_eq!(verdict(&unknown, &[], false).unwrap().unknown, 1);
    }

    #[test]
    fn nothing_comes_back_after_its_end() {
        let (mut primary, mut replica) = (Primary::default(), Primary::default());
        for it in [&mut primary, &mut replica] {
            it.answer(1, &send(0));
        }
        let claimed = primary.answer(2, &claim(1));
        primary.answer(3, &ack(&claimed));
        assert_eq!(verdict(&primary.entries, &[], true).unwrap().acked, 1);
        replica.answer(5, &claim(2));
        let entries = [primary.entries, vec![replica.entries.remove(1)]].concat();
        accused(&entries, true, "G1: acked");
        assert!(verdict(&entries, &[loss(2, 4, 4)], true).is_ok(), "the ack may be lost");
    }

    #[test]
    fn what_is_handed_off_exists_iff_the_settlement_was_done() {
        let mut primary = Primary::default();
        primary.answer(1, &send(0));
        let claimed = primary.answer(2, &claim(1));
        let Op::Settle(acks) = ack(&claimed) else { panic!("no settlement") };
        let next = MessageId::try_from("m2").unwrap();
        let message = NewMessage::new(next.clone(), Bytes::from_static(b"y"));
        let hand_off = Op::HandOff(vec![HandOff::new(acks[0].clone(), vec![message])]);
        let replica = primary.state.clone();
        primary.answer(3, &hand_off);
        let judged = |entries: &[Entry], losses: &[Loss], ids: &[&MessageId]| {
            let found = |id: &&MessageId| ((*id).clone(), Found::Finished(Status::Acked));
            let there = ids.iter().map(found).collect();
            let mut seen = Seen::default();
            judge(entries, losses, &there, &mut seen).map(|()| seen.handed_off)
        };
        let entries = primary.entries.clone();
        assert_eq!(sent(&entries).len(), 2);
        assert_eq!(judged(&entries, &[], &[&id(), &next]), Ok(1));
        let lost = [loss(3, 3, 4)];
        assert!(judged(&entries, &[], &[&id()]).unwrap_err().starts_with("G1"));
        let reason = judged(&entries, &lost, &[&id()]).unwrap_err();
        assert!(reason.starts_with("G31"), "the settlement alone was kept: {reason}");
        primary.state = replica;
        let again = primary.answer(6, &claim(2));
        primary.answer(7, &ack(&again));
        let reason = judged(&primary.entries, &lost, &[&id(), &next]).unwrap_err();
        assert!(reason.starts_with("G31"), "the message alone was kept: {reason}");
        assert_eq!(judged(&primary.entries, &lost, &[&id()]), Ok(1), "both are lost");

        let mut stale = Primary::default();
        stale.answer(1, &send(0));
        stale.answer(9, &hand_off);
        assert_eq!(judged(&stale.entries, &[], &[&id()]), Ok(0));
        let reason = judged(&stale.entries, &[], &[&id(), &next]).unwrap_err();
        assert!(reason.starts_with("a call that was"), "{reason}");
    }

    #[test]
    fn a_delivery_has_the_content_of_the_latest_update() {
        let mut primary = Primary::default();
        primary.answer(1, &send(0));
        let Op::Enqueue(mut messages) = send(0) else { panic!("no send") };
        let token = UpdateToken::from_bytes([1; UpdateToken::BYTES]);
        let update = Update::new(UpdateContent::Replace, UpdateDue::Set, token);
        messages[0].known = Known::Update(update);
        messages[0].payload = Bytes::from_static(b"new");
        primary.answer(2, &Op::Enqueue(messages));
        primary.answer(3, &claim(1));
        let judged = |entries: &[Entry], losses: &[Loss]| {
            let mut seen = Seen::default();
            judge_updates(entries, losses, &mut seen).map(|()| seen.contents)
        };
        let mut entries = primary.entries;
        assert_eq!(judged(&entries, &[]), Ok(1));
        let deliver = |entries: &mut Vec<Entry>, payload: &'static [u8]| {
            let Outcome::Answered(applied) = &mut entries[2].outcome else { panic!("no answer") };
            let Reply::Claim(claimed) = &mut applied.reply else { panic!("no claim") };
            claimed.deliveries[0].message.payload = Bytes::from_static(payload);
        };
        deliver(&mut entries, b"x");
        assert!(judged(&entries, &[]).unwrap_err().starts_with("G29"));
        assert_eq!(judged(&entries, &[loss(2, 2, 3)]), Ok(1), "the update may be lost");
        deliver(&mut entries, b"new");
        entries[1].outcome = Outcome::Unknown;
        assert_eq!(judged(&entries, &[]), Ok(1), "the update may have been executed");
    }

    #[test]
    fn a_result_that_is_kept_is_there_unless_it_may_be_lost() {
        let mut primary = Primary::default();
        primary.answer(1, &send(0));
        let claimed = primary.answer(2, &claim(1));
        let Op::Settle(acks) = ack(&claimed) else { panic!("no settlement") };
        let result = NewResult::new(&b"done"[..], Millis::saturating(60_000));
        let hand_off = HandOff::new(acks[0].clone(), Vec::new()).with_result(result);
        primary.answer(3, &Op::HandOff(vec![hand_off]));
        assert_eq!(kept(&primary.entries, &[loss(3, 3, 4)]), BTreeMap::new());
        let kept = kept(&primary.entries, &[]);
        assert_eq!(kept.len(), 1);
        let bytes = &kept[&id()];
        let is_there = |bytes: &'static [u8]| Progress::Finished {
            status: Status::Acked,
            result: Some(Bytes::from_static(bytes)),
        };
        assert_eq!(has_result(&id(), bytes, Some(&is_there(b"done"))), Ok(()));
        let finished = Progress::finished(Status::Acked);
        for wrong in [Some(&is_there(b"gone")), Some(&finished), Some(&Progress::Unknown), None] {
            assert!(has_result(&id(), bytes, wrong).unwrap_err().starts_with("G32"));
        }
    }

    #[test]
    fn leases_do_not_overlap_and_nothing_is_early() {
        let mut primary = Primary::default();
        primary.answer(1, &send(0));
        let mut replica = Primary { state: primary.state.clone(), entries: Vec::new() };
        primary.answer(2, &claim(1));
        let mut entries = primary.entries;
        replica.answer(2, &claim(2));
        entries.extend(replica.entries);
        accused(&entries, true, "G5");
        entries[2].called += Duration::from_secs(5);
        if let Outcome::Answered(applied) = &mut entries[2].outcome {
            applied.at = Timestamp::from_ms(1_003_000).unwrap();
        }
        assert_eq!(verdict(&entries, &[], true).unwrap().again, 1, "the first has run out");

        let mut primary = Primary::default();
        primary.answer(1, &send(5_000));
        let late = primary.answer(9, &claim(1));
        assert_eq!(verdict(&primary.entries, &[], true).unwrap().punctual, 1);
        let mut early = late;
        early.at = Timestamp::from_ms(1_002_000).unwrap();
        primary.entries[1].outcome = Outcome::Answered(early);
        accused(&primary.entries, true, "G4");
    }

    #[test]
    fn revisions_do_not_go_back() {
        let mut primary = Primary::default();
        primary.answer(1, &send(0));
        let old = primary.answer(2, &Op::Stats);
        primary.answer(3, &Op::Pause);
        primary.entries.push(entry(5, &Op::Stats, Outcome::Answered(old)));
        accused(&primary.entries, true, "G3");
        assert!(verdict(&primary.entries, &[loss(3, 3, 4)], true).is_ok(), "the pause may be lost");
        primary.entries[3].called = Duration::from_secs(3);
        assert!(verdict(&primary.entries, &[], true).is_ok(), "they were under way together");
    }
}
