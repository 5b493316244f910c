//! That the judge accuses.

use delayline_core::{
    At, Claim, ClaimId, Claimed, ConsumerName, Error, ErrorKind, HandOff, Known, Millis,
    NewMessage, NewResult, Reschedule, Schedule, Settlement, State, Update, UpdateContent,
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
pub(super) fn entry(second: u64, op: &Op, outcome: Outcome) -> Entry {
    let called = Duration::from_secs(second);
    let returned = Some(called + Duration::from_millis(500));
    Entry { client: "test", era: 0, called, returned, at: At::Server, op: op.clone(), outcome }
}

/// A primary, and the calls that it answered.
#[derive(Default)]
pub(super) struct Primary {
    pub(super) state: State,
    pub(super) entries: Vec<Entry>,
}

impl Primary {
    pub(super) fn answer(&mut self, second: u64, op: &Op) -> Applied {
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

pub(super) fn loss(from: u64, to: u64, returned_by: u64) -> Loss {
    let [level_at, called_by, returned_by] = [from, to, returned_by].map(Duration::from_secs);
    Loss { level_at, called_by, returned_by }
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
    let is_there = |bytes: &'static [u8]| Completion::Finished {
        status: Status::Acked,
        result: Some(Bytes::from_static(bytes)),
    };
    assert_eq!(has_result(&id(), bytes, Some(&is_there(b"done"))), Ok(()));
    let finished = Completion::finished(Status::Acked);
    for wrong in [Some(&is_there(b"gone")), Some(&finished), Some(&Completion::Unknown), None] {
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
    let moved = Op::Reschedule(vec![Reschedule::new(id(), Schedule::NOW)]);
    let answer = |answer| Outcome::Answered(Applied::new(Timestamp::MIN, 1, answer));
    for refused in [Rescheduled::InFlight, Rescheduled::NotFound] {
        let refused = answer(Reply::Reschedule(vec![refused]));
        let entries = [&primary.entries[..], &[entry(1, &moved, refused)]].concat();
        accused(&entries, true, "G4");
    }
    let entries = [&primary.entries[..], &[entry(1, &moved, Outcome::Unknown)]].concat();
    assert!(verdict(&entries, &[], true).is_ok(), "it may have moved");
}

#[test]
fn a_message_that_is_put_off_is_not_early() {
    let mut primary = Primary::default();
    primary.answer(1, &send(0));
    let claimed = primary.answer(2, &claim(1));
    let Reply::Claim(Claimed { deliveries, .. }) = &claimed.reply else { panic!("no claim") };
    let snooze = Ending::Snooze { schedule: Schedule::In(Millis::saturating(5_000)) };
    primary.answer(3, &Op::Settle(vec![Settlement::new(id(), deliveries[0].lease, snooze)]));
    let mut late = primary.answer(9, &claim(2));
    assert_eq!(verdict(&primary.entries, &[], true).unwrap().punctual, 2);
    late.at = Timestamp::from_ms(1_007_000).unwrap();
    primary.entries[3].outcome = Outcome::Answered(late);
    accused(&primary.entries, true, "G4");
    let moved = Op::Reschedule(vec![Reschedule::new(id(), Schedule::NOW)]);
    let with = |second| [&primary.entries[..], &[entry(second, &moved, Outcome::Unknown)]].concat();
    assert!(verdict(&with(6), &[], true).is_ok(), "it may have moved");
    accused(&with(1), true, "G4");
    assert!(verdict(&primary.entries, &[loss(3, 3, 4)], true).is_ok(), "the snooze may be lost");
}

#[test]
fn a_release_and_the_next_claim_may_share_a_millisecond() {
    let mut primary = Primary::default();
    primary.answer(1, &send(0));
    let claimed = primary.answer(2, &claim(1));
    let Reply::Claim(Claimed { deliveries, .. }) = &claimed.reply else { panic!("no claim") };
    let release = Settlement::new(id(), deliveries[0].lease, Ending::Release);
    primary.answer(2, &Op::Settle(vec![release]));
    primary.answer(2, &claim(2));
    // The calls overlap, and the second claim was called first.
    let mut entries = primary.entries;
    entries.swap(1, 3);
    assert!(verdict(&entries, &[], true).is_ok());
    // Without the release they are two leases at once.
    entries.remove(2);
    accused(&entries, true, "G5");
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
