//! Hints are sent only for messages due earlier than any sleeper expects (G21).
//!
//! A worker whose claim returns fewer messages than requested sleeps until the instant in the
//! reply, for at most a minute.

use std::time::Duration;

use delayline_core::limits::{MAX_PAYLOAD_BYTES, SAFETY_POLL_MS};

use super::*;

const LONG: u64 = 10 * SAFETY_POLL_MS;

struct Queue<C: Connect> {
    server: Server,
    queue: ScriptBackend<C::Transport>,
}

impl<C: Connect> Queue<C> {
    async fn start() -> Self {
        let server = Server::start();
        let queue = open::<C>(&server.url()).await.unwrap();
        Self { server, queue }
    }

    fn key(&self, index: usize) -> &[u8] {
        &self.queue.keys().all()[index]
    }

    fn empty(&self) {
        self.server.command(&["FLUSHALL"]);
    }

    /// Executes it, returns whether it sent a hint, and removes the hint.
    async fn rings(&self, ms: u64, op: Op) -> bool {
        apply(&self.queue, ms, op).await;
        let Raw::Int(rings) = self.server.binary_command(&[b"LLEN", self.key(BELL)]) else {
            panic!()
        };
        assert!(rings <= 1, "one ring is enough");
        self.server.binary_command(&[b"DEL", self.key(BELL)]);
        rings == 1
    }

    /// A message whose name says when it is due.
    async fn sending_rings(&self, ms: u64, due: u64) -> bool {
        self.rings(ms, Op::Enqueue(vec![due_at(&format!("{ms}, {due}"), due)])).await
    }

    async fn claiming_rings(&self, ms: u64, max: usize, lease_ms: u64) -> bool {
        let token = u8::try_from(ms % 251).unwrap() + 1;
        let Op::Claim(mut claim) = claim(token, max) else { unreachable!() };
        claim.lease = millis(lease_ms);
        self.rings(ms, Op::Claim(claim)).await
    }
}

fn due_at(name: &str, ms: u64) -> NewMessage {
    let At::Fixed(due) = at(ms) else { unreachable!() };
    let mut message = message(name);
    message.schedule = Schedule::At(due);
    message
}

pub(crate) async fn what_comes_sooner_than_sleepers_know_rings<C: Connect>() {
    let queue = Queue::<C>::start().await;
    // No sleeper expects a message.
    assert!(!queue.sending_rings(0, SAFETY_POLL_MS).await, "they come by themselves until then");
    assert!(queue.sending_rings(0, SAFETY_POLL_MS - 1).await);
    // That ring has woken them.
    assert!(!queue.sending_rings(1, SAFETY_POLL_MS - 1).await);
    assert!(!queue.sending_rings(1, SAFETY_POLL_MS).await);
    assert!(queue.sending_rings(1, SAFETY_POLL_MS - 2).await);
    // Since then a minute has gone by.
    assert!(!queue.sending_rings(SAFETY_POLL_MS, LONG).await);
    assert!(!queue.sending_rings(SAFETY_POLL_MS, SAFETY_POLL_MS).await);
    assert!(queue.sending_rings(SAFETY_POLL_MS + 1, SAFETY_POLL_MS + 1).await);

    // A claim finds nothing, or a message that is due later.
    queue.empty();
    assert!(!queue.claiming_rings(0, 1, LONG).await);
    assert!(queue.sending_rings(1, 30_000).await);
    assert!(!queue.claiming_rings(2, 1, LONG).await);
    assert!(!queue.sending_rings(3, 30_000).await);
    assert!(queue.sending_rings(3, 29_999).await);

    // A claim had free slots: its worker returns for its own leases.
    queue.empty();
    queue.sending_rings(0, 0).await;
    assert!(!queue.claiming_rings(0, 2, 10_000).await);
    assert!(!queue.sending_rings(1, 10_000).await);
    assert!(queue.sending_rings(1, 9_999).await);

    // One pending hint is enough.
    queue.empty();
    queue.sending_rings(0, 5_000).await;
    queue.server.binary_command(&[b"LPUSH", queue.key(BELL), b"1"]);
    assert!(queue.sending_rings(0, 4_000).await, "and it stays");
}

pub(crate) async fn a_claim_that_is_full_leaves_the_rest_to_others<C: Connect>() {
    let queue = Queue::<C>::start().await;
    // Nothing is left that comes within a minute.
    queue.sending_rings(0, 0).await;
    assert!(!queue.claiming_rings(0, 1, SAFETY_POLL_MS).await);
    assert!(queue.sending_rings(1, SAFETY_POLL_MS).await, "no worker sleeps until then");
    // Its own lease may run out.
    queue.empty();
    queue.sending_rings(0, 0).await;
    assert!(queue.claiming_rings(0, 1, SAFETY_POLL_MS - 1).await);
    for (left, rings) in
        [(0, true), (1, true), (SAFETY_POLL_MS - 1, true), (SAFETY_POLL_MS, false), (LONG, false)]
    {
        queue.empty();
        queue.sending_rings(0, 0).await;
        queue.rings(0, Op::Enqueue(vec![due_at("left", left)])).await;
        assert_eq!(queue.claiming_rings(0, 1, LONG).await, rings, "{left} is left");
    }
    // The payloads exceed the limit of one claim.
    queue.empty();
    for n in 0..5 {
        let mut large = due_at(&n.to_string(), 0);
        large.payload = vec![0; MAX_PAYLOAD_BYTES].into();
        queue.rings(0, Op::Enqueue(vec![large])).await;
    }
    assert!(queue.claiming_rings(0, 100, LONG).await);
    // A claim that is repeated looks at the queue as well.
    assert!(queue.claiming_rings(0, 100, LONG).await);
    assert!(!queue.claiming_rings(1, 100, LONG).await, "it takes the rest");
}

pub(crate) async fn what_is_given_back_or_moved_rings<C: Connect>() {
    let queue = Queue::<C>::start().await;
    let snooze = |ms| Outcome::Snooze { schedule: Schedule::In(millis(ms)) };
    let retry = |ms| Outcome::Retry { schedule: Schedule::In(millis(ms)), error: String::new() };
    let reject = Outcome::Reject { error: String::new() };
    for (outcomes, rings) in [
        (vec![Outcome::Ack], false),
        (vec![reject.clone()], false),
        (vec![Outcome::Release], true),
        (vec![retry(39_999)], true),
        (vec![retry(40_000)], false),
        (vec![snooze(39_999)], true),
        (vec![snooze(40_000)], false),
        (vec![snooze(50_000), Outcome::Ack, retry(39_999), reject, snooze(50_000)], true),
    ] {
        queue.empty();
        let names: Vec<_> = (0..outcomes.len()).map(|n| n.to_string()).collect();
        let messages = names.iter().map(|name| due_at(name, 0)).collect();
        queue.rings(0, Op::Enqueue(messages)).await;
        // It knows that its leases may end.
        assert!(!queue.claiming_rings(0, 10, 40_000).await);
        let settle = names
            .iter()
            .zip(&outcomes)
            .map(|(name, outcome)| Settlement::new(id(name), lease(1), outcome.clone()));
        assert_eq!(queue.rings(0, Op::Settle(settle.collect())).await, rings, "{outcomes:?}");
    }

    for (due, rings) in [(39_999, true), (40_000, false)] {
        let At::Fixed(instant) = at(due) else { unreachable!() };
        let schedule = Schedule::At(instant);
        queue.empty();
        queue.sending_rings(0, 0).await;
        queue.claiming_rings(0, 10, 40_000).await;
        queue.rings(0, Op::Enqueue(vec![due_at("a", LONG), due_at("b", LONG)])).await;
        let later = Schedule::In(millis(2 * LONG));
        let moves = vec![Reschedule::new(id("a"), later), Reschedule::new(id("b"), schedule)];
        assert_eq!(queue.rings(0, Op::Reschedule(moves)).await, rings, "moved to {due}");

        queue.empty();
        queue.rings(0, Op::Enqueue(vec![due_at("dead", 0), due_at("held", 0)])).await;
        queue.claiming_rings(0, 10, 40_000).await;
        queue.rings(0, settle("dead", 1, Outcome::Reject { error: String::new() })).await;
        let redrive = Redrive::new(vec![id("dead")], schedule);
        assert_eq!(queue.rings(0, Op::Redrive(redrive)).await, rings, "revived for {due}");
    }
}

/// Updates change when a message is due, and followers are due when the message before them ends.
pub(crate) async fn what_is_updated_or_follows_rings<C: Connect>() {
    let queue = Queue::<C>::start().await;
    let updated = |token, ms| {
        let mut update = update("held", token);
        update.schedule = due_at("held", ms).schedule;
        update
    };
    let ends = [
        settle("held", 1, Outcome::Ack),
        settle("held", 1, Outcome::Snooze { schedule: Schedule::In(millis(LONG)) }),
        hand_off("held", 1, Outcome::Ack, &[]),
    ];
    for (due, rings) in [(39_999, true), (40_000, false)] {
        for end in &ends {
            queue.empty();
            queue.rings(0, Op::Enqueue(vec![due_at("held", 0)])).await;
            assert!(!queue.claiming_rings(0, 10, 40_000).await);
            let follows = Op::Enqueue(vec![updated(1, due)]);
            assert!(!queue.rings(0, follows).await, "it cannot be claimed yet");
            assert_eq!(queue.rings(0, end.clone()).await, rings, "due at {due}: {end:?}");
        }
        // Both an update that replaces and one that keeps the content.
        for replaces in [true, false] {
            queue.empty();
            queue.rings(0, Op::Enqueue(vec![due_at("other", 0)])).await;
            queue.claiming_rings(0, 10, 40_000).await;
            let mut sooner = updated(2, due);
            if let (false, Known::Update(update)) = (replaces, &mut sooner.known) {
                update.content = UpdateContent::Keep;
            }
            queue.rings(0, Op::Enqueue(vec![due_at("held", LONG)])).await;
            assert_eq!(queue.rings(0, Op::Enqueue(vec![sooner])).await, rings, "moved to {due}");
        }
    }
}

pub(crate) async fn a_paused_queue_is_silent<C: Connect>() {
    let queue = Queue::<C>::start().await;
    assert!(!queue.rings(0, Op::Pause).await);
    assert!(!queue.sending_rings(0, 0).await);
    assert!(!queue.claiming_rings(1, 1, LONG).await);
    assert!(!queue.sending_rings(2, 0).await);
    assert!(queue.rings(2, Op::Resume).await);
    assert!(!queue.rings(2, Op::Resume).await, "it goes on already");
    queue.rings(3, Op::Pause).await;
    queue.server.binary_command(&[b"LPUSH", queue.key(BELL), b"1"]);
    assert!(queue.rings(3, Op::Resume).await, "one ring is enough");
}

/// What limits hold back rings for the instant when they let it through.
pub(crate) async fn what_limits_hold_back_rings_when_it_may_be_delivered<C: Connect>() {
    let queue = Queue::<C>::start().await;
    let set = |set: SetLimits| Op::SetLimits(set);
    for end in [settle("0, 0", 1, Outcome::Ack), hand_off("0, 0", 1, Outcome::Ack, &["next"])] {
        queue.empty();
        queue.rings(0, set(SetLimits::new().leased(1))).await;
        queue.sending_rings(0, 0).await;
        assert!(!queue.claiming_rings(0, 10, 40_000).await);
        assert!(!queue.sending_rings(1, 1).await, "no slot is free");
        assert!(queue.rings(2, end).await, "one is, and a message waits");
    }
    // The worker that ends the lease claims next: it needs no hint, and others know of its lease.
    queue.empty();
    queue.rings(0, set(SetLimits::new().leased(1))).await;
    for due in [0, 1, 2] {
        queue.sending_rings(0, due).await;
    }
    for (ms, name, rings) in [(3, "0, 0", true), (6, "0, 1", false)] {
        assert_eq!(queue.claiming_rings(ms, 1, 40_000).await, rings, "sleepers know of {name}");
        assert!(!queue.claiming_rings(ms + 1, 1, 40_000).await, "an idle worker will know");
        let token = u8::try_from(ms).unwrap() + 1;
        let end = Settlement::new(id(name), lease(token), Outcome::Ack).claims_next(true);
        assert!(!queue.rings(ms + 2, Op::Settle(vec![end])).await);
    }
    assert!(!queue.claiming_rings(9, 1, 40_000).await);
    let retry = Outcome::Retry { schedule: Schedule::In(millis(10_000)), error: String::new() };
    let end = Settlement::new(id("0, 2"), lease(10), retry).claims_next(true);
    assert!(queue.rings(10, Op::Settle(vec![end])).await, "no sleeper knows when it is due");
    queue.empty();
    queue.rings(0, set(SetLimits::new().leased(2))).await;
    queue.sending_rings(0, 0).await;
    queue.claiming_rings(0, 10, 40_000).await;
    assert!(!queue.rings(1, settle("0, 0", 1, Outcome::Ack)).await, "no message waits");
    assert!(queue.rings(2, set(SetLimits::new().leased(None))).await);
    assert!(!queue.rings(2, set(SetLimits::new().leased(None))).await, "it is so already");

    queue.empty();
    queue.rings(0, set(SetLimits::new().rate(Rate::per_second(10, 1)))).await;
    queue.sending_rings(0, 0).await;
    queue.claiming_rings(0, 10, 40_000).await;
    assert!(queue.sending_rings(1, 1).await, "it is due at 100 ms");
    assert!(!queue.sending_rings(2, 2).await, "sleepers know of that");
    assert!(!queue.claiming_rings(3, 10, 40_000).await);
    assert!(!queue.sending_rings(4, 4).await);

    queue.empty();
    queue.rings(0, set(SetLimits::new().hold_for(Duration::from_secs(50)))).await;
    assert!(queue.sending_rings(0, 0).await);
    assert!(!queue.sending_rings(1, 1).await);
    assert!(queue.rings(1, set(SetLimits::new().end_hold())).await);
}

/// Idle processes that come by one after the other do not each change the queue.
pub(crate) async fn looks_that_find_nothing_write_seldom<C: Connect>() {
    let queue = Queue::<C>::start().await;
    queue.sending_rings(0, LONG).await;
    let mut written = Vec::new();
    let mut before = Raw::Nil;
    for ms in (0..40_000).step_by(1_000) {
        queue.claiming_rings(ms, 1, LONG).await;
        let control = queue.server.binary_command(&[b"GET", queue.key(CONTROL)]);
        if control != before {
            written.push(ms);
        }
        before = control;
    }
    assert!((2..=4).contains(&written.len()), "{written:?}");
    // A change is written at once.
    let news = due_at("news", 45_000);
    assert!(!queue.rings(39_000, Op::Enqueue(vec![due_at("known", LONG)])).await);
    assert!(queue.rings(39_000, Op::Enqueue(vec![news])).await);
    queue.claiming_rings(39_500, 1, LONG).await;
    assert!(!queue.sending_rings(39_600, 45_000).await);
}
