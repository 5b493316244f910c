//! Histories that break the promises about one id.

use std::time::Duration;

use delayline_core::limits::MAX_PAGE;
use delayline_core::{
    Claim, ClaimId, Claimed, ConsumerName, List, Millis, Outcome, Schedule, Settlement, State,
    Status, Update, UpdateDue, UpdateToken,
};
use delayline_testkit::History;

use super::*;

/// Calls that the model has answered.
#[derive(Default)]
struct Story {
    state: State,
    order: Vec<Call>,
    tokens: u8,
}

impl Story {
    fn call(&mut self, ms: u64, op: Op) -> usize {
        let applied = self.state.apply(at(ms), &op);
        self.order.push(Call { called: Duration::ZERO, returned: Duration::ZERO, op, applied });
        self.order.len() - 1
    }

    fn update(&mut self, ms: u64, payload: &'static str) -> usize {
        self.tokens += 1;
        let token = UpdateToken::from_bytes([self.tokens; UpdateToken::BYTES]);
        let update = Update::new(UpdateContent::Replace, UpdateDue::Set, token);
        let message = message(payload).known(Known::Update(update));
        self.call(ms, Op::Enqueue(vec![message]))
    }

    fn throttle(&mut self, ms: u64, payload: &'static str, window: u64) -> usize {
        let message = message(payload).throttle(Some(Millis::saturating(window)));
        self.call(ms, Op::Enqueue(vec![message.finished_ids(delayline_core::FinishedIds::Reuse)]))
    }

    /// A lease of 100 ms.
    fn claim(&mut self, ms: u64) -> usize {
        let claim_id =
            ClaimId::from_bytes([u8::try_from(self.order.len()).unwrap(); ClaimId::BYTES]);
        let lease = Millis::saturating(100);
        let claim = Claim::new(ConsumerName::new("w").unwrap(), claim_id, 1, lease);
        self.call(ms, Op::Claim(claim))
    }

    fn ack(&mut self, ms: u64, claim: usize) -> usize {
        let delivery = claimed(&mut self.order[claim]).deliveries[0].clone();
        let ack = Settlement::new(delivery.message.info.id, delivery.lease, Outcome::Ack);
        self.call(ms, Op::Settle(vec![ack]))
    }

    fn end(&mut self, ms: u64) {
        self.call(ms, Op::List(List::new(Status::Dead, MAX_PAGE)));
        self.call(ms, Op::Stats);
    }

    fn check(&self) -> Result<Kept, String> {
        check(&self.order)
    }
}

fn at(ms: u64) -> Timestamp {
    Timestamp::from_ms(1_000_000 + ms).unwrap()
}

fn message(payload: &'static str) -> NewMessage {
    NewMessage::new(MessageId::try_from("id").unwrap(), payload).schedule(Schedule::NOW)
}

fn claimed(call: &mut Call) -> &mut Claimed {
    let Reply::Claim(claimed) = &mut call.applied.reply else { panic!("another answer") };
    claimed
}

fn answer(call: &mut Call) -> &mut Enqueued {
    let Reply::Enqueue(answers) = &mut call.applied.reply else { panic!("another answer") };
    &mut answers[0]
}

/// A message that is replaced while it waits, and followed while it is leased: twice, so that one
/// follower is never delivered. The numbers of the two claims.
fn updates() -> (Story, usize, usize) {
    let mut story = Story::default();
    story.update(0, "a");
    story.update(1, "b");
    let first = story.claim(2);
    story.update(3, "c");
    story.update(4, "d");
    story.ack(5, first);
    let second = story.claim(6);
    story.ack(7, second);
    story.end(8);
    (story, first, second)
}

#[test]
fn sound_histories_are_accepted() {
    let (story, ..) = updates();
    assert_eq!(story.check(), Ok(Kept { updates: 4, followers: 1, throttled: 0 }));
    assert_eq!(History::check_messages(&story.order), Ok(()));
}

#[test]
fn an_update_that_nothing_follows_is_delivered() {
    let (mut story, _, second) = updates();
    story.order.truncate(second);
    assert!(story.check().unwrap_err().starts_with("G29: the latest update of id was never"));
    // Unless it was cancelled.
    let mut story = Story::default();
    story.update(0, "a");
    let first = story.claim(1);
    story.update(2, "b");
    story.call(3, Op::Cancel(vec![message("").id]));
    story.ack(4, first);
    story.end(5);
    assert_eq!(story.check(), Ok(Kept { updates: 2, ..Kept::default() }));
}

#[test]
fn an_update_is_delivered_before_the_id_is_created_again() {
    let mut story = Story::default();
    story.update(0, "a");
    let again = story.update(1, "b");
    *answer(&mut story.order[again]) = Enqueued::Created { due: at(1) };
    assert!(story.check().unwrap_err().starts_with("G29: id was created before"));
}

#[test]
fn no_lease_has_the_content_of_an_earlier_update() {
    for (claim, content) in [(0, "a"), (1, "b"), (1, "c")] {
        let (mut story, first, second) = updates();
        let claim = [first, second][claim];
        claimed(&mut story.order[claim]).deliveries[0].message.payload = content.into();
        assert!(story.check().unwrap_err().starts_with("G29: id was delivered with what"));
    }
}

#[test]
fn two_messages_of_an_id_are_never_leased_at_once() {
    let (mut story, first, second) = updates();
    // The ack of the first comes to nothing.
    story.order.remove(first + 3);
    assert!(second < story.order.len());
    let reason = History::check_messages(&story.order).unwrap_err();
    assert!(reason.contains("G5: id is leased as"), "{reason}");
}

#[test]
fn a_window_has_one_message() {
    let mut story = Story::default();
    story.throttle(0, "a", 50);
    let first = story.claim(1);
    story.ack(2, first);
    let second = story.throttle(49, "b", 50);
    story.throttle(50, "c", 50);
    story.end(51);
    assert_eq!(story.check(), Ok(Kept { throttled: 1, ..Kept::default() }));
    *answer(&mut story.order[second]) = Enqueued::Created { due: at(49) };
    assert!(story.check().unwrap_err().starts_with("G33: id was throttled until"));
    *answer(&mut story.order[second]) = Enqueued::Throttled { until: at(51) };
    assert!(story.check().unwrap_err().starts_with("G33: the reply to id was"));
}

#[test]
fn what_has_ended_stays_so_after_the_clock_is_set_back() {
    let mut story = Story::default();
    story.throttle(0, "a", 50);
    let first = story.claim(1);
    story.ack(2, first);
    let second = story.throttle(50, "b", 50);
    story.order[second].applied.at = at(40);
    assert!(story.check().unwrap_err().starts_with("G33"));
    // Another call has seen a later time in between.
    let look = story.call(50, Op::Resume);
    story.order.swap(second, look);
    assert_eq!(story.check(), Ok(Kept::default()));
}
