//! Whatever lets a message be claimed sooner than sleepers expect gives a hint, if it is not lost.

use std::sync::Arc;
use std::time::Duration;

use delayline_core::{
    Extend, Group, HandOff, Known, NewMessage, Op, Outcome, QueueBackend, Redrive, Reschedule,
    Schedule, SetLimits, Settlement, Update, UpdateContent, UpdateDue, UpdateToken,
};

use super::queue::{Queue, after, claim, id, lease, message, millis, reject, retry};
use super::wakeup::{TRIES, apply, apply_on, hears, silence};

super::cases! { @hints true, "hints",
    what_can_be_claimed_sooner_rings: "G21",
    what_can_be_claimed_sooner_rings_for_another_client: "G21",
    what_no_limit_holds_back_any_more_rings: "G21, G34, G36, G37",
    what_no_limit_holds_back_any_more_rings_for_another_client: "G21, G34, G36, G37",
}

/// One try: the names of its two messages, and the tokens of its claims.
struct Try {
    a: String,
    b: String,
    token: u8,
}

/// What makes a message claimable sooner: its name, the operations before it, and it.
type Row = (&'static str, fn(&Try) -> Vec<Op>, fn(&Try) -> Op);

const OF_MESSAGES: &[Row] = &[
    ("a release", Try::holds_a, |this| this.settles_a(Outcome::Release)),
    ("a retry at once", Try::holds_a, |this| this.settles_a(retry(0, "boom"))),
    ("a retry soon", Try::holds_a, |this| this.settles_a(retry(1_000, "boom"))),
    ("a retry soon by a worker that claims next", Try::holds_a, |this| {
        let retry = Settlement::new(id(&this.a), lease(this.token, 1), retry(1_000, "boom"));
        Op::Settle(vec![retry.claims_next(true)])
    }),
    ("a hand-off", Try::holds_a, |this| {
        let ack = Settlement::new(id(&this.a), lease(this.token, 1), Outcome::Ack);
        Op::HandOff(vec![HandOff::new(ack, vec![message(&this.b)])])
    }),
    ("an earlier end of a lease", Try::holds_a, |this| {
        Op::Extend(Extend::new(vec![(id(&this.a), lease(this.token, 1))], millis(1_000)))
    }),
    ("an earlier due time", Try::has_a_later, |this| {
        Op::Reschedule(vec![Reschedule::new(id(&this.a), Schedule::NOW)])
    }),
    ("an update", Try::has_a_later, |this| {
        let token = UpdateToken::from_bytes([this.token; UpdateToken::BYTES]);
        let update = Update::new(UpdateContent::Keep, UpdateDue::Set, token);
        Op::Enqueue(vec![message(&this.a).known(Known::Update(update))])
    }),
    (
        "a redrive",
        |this| [this.holds_a(), vec![this.settles_a(reject("boom")), this.looks(2)]].concat(),
        |this| Op::Redrive(Redrive::new(vec![id(&this.a)], Schedule::NOW)),
    ),
    (
        "a resume",
        |this| vec![Op::Pause, Op::Enqueue(vec![message(&this.a)]), this.looks(0)],
        |_| Op::Resume,
    ),
];

const OF_LIMITS: &[Row] = &[
    (
        "a higher limit",
        |this| this.holds_a_before_b(SetLimits::new().leased(1), message),
        |_| Op::SetLimits(SetLimits::new().leased(2)),
    ),
    (
        "an earlier end of a lease at the limit",
        |this| this.holds_a_before_b(SetLimits::new().leased(1), message),
        |this| Op::Extend(Extend::new(vec![(id(&this.a), lease(this.token, 1))], millis(1_000))),
    ),
    (
        "the end of a hold",
        |this| {
            let hold = Op::SetLimits(SetLimits::new().hold_for(Duration::from_secs(50)));
            vec![hold, Op::Enqueue(vec![message(&this.a)]), this.looks(0)]
        },
        |_| Op::SetLimits(SetLimits::new().end_hold()),
    ),
    (
        "a free slot of the queue",
        |this| this.holds_a_before_b(SetLimits::new().leased(1), message),
        |this| this.settles_a(Outcome::Ack),
    ),
    (
        "a free slot of a group",
        |this| this.holds_a_before_b(SetLimits::new().each_group(1), of_a_group),
        |this| this.settles_a(Outcome::Ack),
    ),
    (
        "the end of what a group waits for",
        |this| {
            let before = this.holds_a_before_b(SetLimits::new().in_order(true), of_a_group);
            [before, vec![this.settles_a(retry(50_000, "boom")), this.looks(2)]].concat()
        },
        |this| Op::Cancel(vec![id(&this.a)]),
    ),
];

impl Try {
    /// A claim with room, as that of a worker that then sleeps until it expects something.
    fn looks(&self, n: u8) -> Op {
        Op::Claim(claim(self.token + n, 100, 50_000))
    }

    fn settles_a(&self, outcome: Outcome) -> Op {
        Op::Settle(vec![Settlement::new(id(&self.a), lease(self.token, 1), outcome)])
    }

    fn holds_a(&self) -> Vec<Op> {
        let claim = Op::Claim(claim(self.token, 1, 50_000));
        vec![Op::Enqueue(vec![message(&self.a)]), claim, self.looks(1)]
    }

    fn holds_a_before_b(&self, limits: SetLimits, of: fn(&str) -> NewMessage) -> Vec<Op> {
        let claim = Op::Claim(claim(self.token, 1, 50_000));
        let messages = vec![of(&self.a), of(&self.b)];
        vec![Op::SetLimits(limits), Op::Enqueue(messages), claim, self.looks(1)]
    }

    fn has_a_later(&self) -> Vec<Op> {
        vec![Op::Enqueue(vec![message(&self.a).schedule(after(50_000))]), self.looks(0)]
    }
}

fn of_a_group(name: &str) -> NewMessage {
    let group = Group::new("g").unwrap_or_else(|violation| panic!("{violation}"));
    message(name).group(group)
}

async fn what_can_be_claimed_sooner_rings(queue: &Queue) {
    each_rings(queue, OF_MESSAGES, queue.backend()).await;
}

/// It is the only client if the backend has no other.
async fn what_can_be_claimed_sooner_rings_for_another_client(queue: &Queue) {
    each_rings(queue, OF_MESSAGES, queue.clients().of(1)).await;
}

async fn what_no_limit_holds_back_any_more_rings(queue: &Queue) {
    each_rings(queue, OF_LIMITS, queue.backend()).await;
}

/// It is the only client if the backend has no other.
async fn what_no_limit_holds_back_any_more_rings_for_another_client(queue: &Queue) {
    each_rings(queue, OF_LIMITS, queue.clients().of(1)).await;
}

/// The first client waits; `sender` makes the message claimable.
async fn each_rings(queue: &Queue, rows: &[Row], sender: &Arc<dyn QueueBackend>) {
    let mut token = 1;
    for (what, before, rings) in rows {
        let mut rang = false;
        for n in 0..TRIES {
            let this = Try { a: format!("{what} {n} a"), b: format!("{what} {n} b"), token };
            token += 3;
            for op in before(&this) {
                apply(queue, op).await;
            }
            silence(queue).await;
            apply_on(&**sender, rings(&this)).await;
            rang = hears(&**queue.backend()).await;
            clean_up(queue, &this).await;
            if rang {
                break;
            }
        }
        assert!(rang, "{TRIES} times {what}, and no hint of any");
    }
}

/// Leaves nothing for the next try.
async fn clean_up(queue: &Queue, this: &Try) {
    let none = SetLimits::new().leased(None).each_group(None).in_order(false).end_hold();
    apply(queue, Op::SetLimits(none)).await;
    apply(queue, Op::Cancel(vec![id(&this.a), id(&this.b)])).await;
    apply(queue, this.settles_a(Outcome::Ack)).await;
}
