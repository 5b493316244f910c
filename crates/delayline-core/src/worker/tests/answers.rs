//! How a machine handles replies and the ends of waits, action by action.

use super::super::*;
use super::sim::{at, ms, plan};
use crate::{MessageId, Millis, NewMessage, Schedule, Settled, State, Status, Violation};

/// A machine, and the replies of an empty backend.
struct Bare {
    machine: Machine,
    now: Moment,
    /// Claims fail from now on.
    broken: bool,
    /// Claims get no reply from now on.
    silent: bool,
    /// The waits that were started.
    waits: Vec<Moment>,
    claims: Vec<Moment>,
    rings: Vec<Moment>,
}

impl Bare {
    fn new(plan: Plan) -> Self {
        let machine = Machine::new(plan, [3; 16]);
        let (waits, claims, rings) = (Vec::new(), Vec::new(), Vec::new());
        let (broken, silent) = (false, false);
        Self { machine, now: Moment::START, broken, silent, waits, claims, rings }
    }

    /// Carries out the machine's actions until `end`; waits stay open until they are ended.
    fn run_to(&mut self, end: Moment) {
        loop {
            while let Some(action) = self.machine.poll(self.now) {
                match action {
                    Action::Wait { .. } => self.waits.push(self.now),
                    Action::Ring { queue } => {
                        self.rings.push(self.now);
                        self.machine.handle_rung(queue);
                    }
                    Action::Send { queue, op } => {
                        if matches!(op, Op::Claim(_)) {
                            self.claims.push(self.now);
                        }
                        if self.silent {
                            continue;
                        }
                        let reply = Reply::Claim(Claimed::default());
                        let applied = Applied::new(Timestamp::MIN, 0, reply);
                        let broken = Err(Error::new(ErrorKind::Unreachable));
                        let result = if self.broken { broken } else { Ok(applied) };
                        self.machine.handle_answer(self.now, queue, op, result);
                    }
                    other => panic!("{other:?}"),
                }
            }
            match self.machine.wake_at() {
                Some(wake) if wake <= end => self.now = wake.max(self.now),
                _ => break,
            }
        }
        self.now = end;
    }

    /// The next operation of a kind, whenever it comes.
    fn sent(&mut self, wanted: impl Fn(&Op) -> bool) -> Op {
        for _ in 0..1_000 {
            match self.machine.poll(self.now) {
                Some(Action::Send { op, .. }) if wanted(&op) => return op,
                Some(_) => {}
                None => self.now = self.machine.wake_at().expect("it sleeps for ever"),
            }
        }
        panic!("it is not sent")
    }

    /// A claim, and the reply of a queue with one message.
    fn claim_one(&mut self) -> (Op, Applied) {
        let mut state = State::new();
        let message = NewMessage::new(MessageId::new("a").unwrap(), "");
        state.apply(Timestamp::MIN, &Op::Enqueue(vec![message]));
        let claim = self.sent(|op| matches!(op, Op::Claim(_)));
        let applied = state.apply(Timestamp::MIN, &claim);
        (claim, applied)
    }

    /// Claims a message and handles it, so that it must be settled.
    fn handle_one(&mut self) {
        self.handle_one_with(Outcome::Ack);
    }

    fn handle_one_with(&mut self, outcome: Outcome) {
        let (claim, applied) = self.claim_one();
        self.machine.handle_answer(self.now, 0, claim, Ok(applied));
        let Some(Action::Start { slot, .. }) = self.machine.poll(self.now) else {
            panic!("nothing has started")
        };
        self.machine.handle_finished(slot, outcome, Vec::new(), None, None);
    }

    fn wait_ends(&mut self, result: &Result<bool, Error>) {
        self.machine.handle_waited(self.now, 0, result);
    }
}

#[test]
fn a_wait_that_fails_is_begun_again_after_a_pause() {
    let mut bare = Bare::new(plan(1));
    bare.run_to(at(0));
    assert_eq!(bare.waits.len(), 1);
    for n in 2..6 {
        bare.wait_ends(&Err(Error::new(ErrorKind::ConnectionLost)));
        let failed = bare.now;
        bare.run_to(failed.after(ms(4_000)));
        assert_eq!(bare.waits.len(), n, "{:?}", bare.waits);
        assert!(bare.waits[n - 1] > failed, "not in the same moment");
    }
}

#[test]
fn while_claims_fail_a_hint_is_handed_on_and_no_other_is_waited_for() {
    let mut bare = Bare::new(plan(1));
    bare.run_to(at(10));
    bare.broken = true;
    bare.wait_ends(&Ok(true));
    let before = bare.waits.len();
    bare.run_to(at(30_000));
    assert_eq!(bare.waits.len(), before, "{:?}", bare.waits);
    assert_eq!(bare.rings, [at(10)]);
    bare.broken = false;
    bare.run_to(at(60_000));
    assert_eq!(bare.waits.len(), before + 1);
}

#[test]
fn a_hint_is_not_handed_on_while_a_claim_may_make_use_of_it() {
    let mut bare = Bare::new(plan(1));
    bare.run_to(at(1));
    bare.silent = true;
    bare.wait_ends(&Ok(true));
    // One slot, with a claim in progress for it.
    bare.run_to(at(2));
    assert_eq!(bare.claims.len(), 2);
    bare.wait_ends(&Ok(true));
    bare.run_to(at(2_000));
    assert_eq!((bare.claims.len(), bare.rings.len()), (2, 0));
}

#[test]
fn an_answer_that_fits_nothing_is_no_answer() {
    let mut bare = Bare::new(plan(1));
    bare.handle_one();

    // A reply with one item too many.
    let settle = bare.sent(|op| matches!(op, Op::Settle(_)));
    let reply = Reply::Settle(vec![Settled::Done { status: Status::Acked }; 2]);
    let applied = Applied::new(Timestamp::MIN, 2, reply);
    bare.machine.handle_answer(bare.now, 0, settle.clone(), Ok(applied));
    assert_eq!(bare.machine.summary().acked, 0);
    assert_eq!(bare.sent(|op| matches!(op, Op::Settle(_))), settle, "until it is answered");
    // A malformed one would be refused forever.
    let refused = Error::from(Violation::Empty { what: "the id" });
    bare.machine.handle_answer(bare.now, 0, settle, Err(refused));
    assert_eq!((bare.machine.summary().lost, bare.machine.summary().unsettled), (1, 0));
}

#[test]
fn a_claim_with_more_behind_it_is_followed_at_once_or_step_by_step() {
    for (deliveries, pause) in [(1, ms(0)), (0, ms(1))] {
        let mut bare = Bare::new(plan(10));
        let (claim, mut applied) = bare.claim_one();
        if let Reply::Claim(claimed) = &mut applied.reply {
            claimed.deliveries.truncate(deliveries);
            claimed.more = true;
        }
        let answered = bare.now;
        bare.machine.handle_answer(answered, 0, claim, Ok(applied));
        bare.sent(|op| matches!(op, Op::Claim(_)));
        assert_eq!(bare.now.since(answered), pause, "after {deliveries}");
    }
}

#[test]
fn nothing_is_claimed_while_nothing_can_be_settled() {
    let mut bare = Bare::new(plan(10));
    bare.handle_one();
    for _ in 0..8 {
        // The next operation is the repeated settlement, however long that takes.
        let next = bare.sent(|_| true);
        assert!(matches!(next, Op::Settle(_)), "{next:?}");
        let failed = Err(Error::new(ErrorKind::Unreachable));
        bare.machine.handle_answer(bare.now, 0, next, failed);
    }
}

#[test]
fn a_settlement_that_failed_waits_for_its_pause_whatever_happens_in_between() {
    let mut bare = Bare::new(plan(10));
    bare.handle_one();
    let settle = bare.sent(|op| matches!(op, Op::Settle(_)));
    let failed = bare.now;
    bare.machine.handle_answer(failed, 0, settle, Err(Error::new(ErrorKind::Unreachable)));
    bare.wait_ends(&Ok(true));
    let next = std::iter::from_fn(|| bare.machine.poll(failed));
    let sent = next.filter(|action| matches!(action, Action::Send { op: Op::Settle(_), .. }));
    assert_eq!(sent.count(), 0, "in the moment of the failure");
    bare.sent(|op| matches!(op, Op::Settle(_)));
    assert!(bare.now > failed);
}

#[test]
fn a_message_that_dies_of_its_outcome_is_counted_as_dead() {
    let mut bare = Bare::new(plan(1));
    bare.handle_one();
    let settle = bare.sent(|op| matches!(op, Op::Settle(_)));
    let reply = Reply::Settle(vec![Settled::Done { status: Status::Dead }]);
    let applied = Applied::new(Timestamp::MIN, 2, reply);
    bare.machine.handle_answer(bare.now, 0, settle, Ok(applied));
    assert_eq!(bare.machine.summary().dead, 1);
}

#[test]
fn a_settlement_that_may_have_been_executed_is_not_counted_as_lost() {
    let retry = Outcome::Retry { schedule: Schedule::NOW, error: String::new() };
    let lost = || Some(ErrorKind::ConnectionLost);
    for (outcome, first, settled, perhaps) in [
        (retry.clone(), lost(), Settled::Stale, true),
        (retry.clone(), lost(), Settled::Missing, true),
        (retry.clone(), Some(ErrorKind::Unreachable), Settled::Stale, false),
        (retry, None, Settled::Stale, false),
        // A message that was acked is not there any more.
        (Outcome::Ack, lost(), Settled::Stale, false),
        (Outcome::Ack, lost(), Settled::Missing, true),
    ] {
        let mut bare = Bare::new(plan(1));
        bare.handle_one_with(outcome);
        let mut settle = bare.sent(|op| matches!(op, Op::Settle(_)));
        if let Some(kind) = first {
            bare.machine.handle_answer(bare.now, 0, settle, Err(Error::new(kind)));
            settle = bare.sent(|op| matches!(op, Op::Settle(_)));
        }
        let applied = Applied::new(Timestamp::MIN, 2, Reply::Settle(vec![settled]));
        bare.machine.handle_answer(bare.now, 0, settle, Ok(applied));
        let summary = bare.machine.summary();
        assert_eq!((summary.lost, summary.unclear), if perhaps { (0, 1) } else { (1, 0) });
        let Some(Action::SettledLate { perhaps_done, .. }) = bare.machine.poll(bare.now) else {
            panic!("it is not reported")
        };
        assert_eq!(perhaps_done, perhaps);
    }
}

/// A claim of a queue with shards may repeat an earlier one, whose reply was lost.
#[test]
fn a_lease_that_was_granted_before_is_renewed_in_time() {
    for (age, beat) in [(0, 1_000), (700, 300), (2_000, 0)] {
        let mut bare = Bare::new(plan(1));
        bare.now = at(10_000);
        let (claim, mut applied) = bare.claim_one();
        applied.at = applied.at.after(Millis::saturating(age));
        let begin = bare.now;
        bare.machine.handle_answer(bare.now, 0, claim, Ok(applied));
        let _ = bare.sent(|op| matches!(op, Op::Extend(_)));
        assert_eq!(bare.now.since(begin), ms(beat), "after {age} ms");
    }
}
