//! Strategies for moves.

use std::time::Duration;

use bytes::Bytes;
use delayline_core::limits::MAX_CHECKPOINT_BYTES;
use delayline_core::{
    Change, Claim, ClaimId, ConsumerName, Extend, HandOff, Hold, Known, Millis, NewResult, Op,
    Outcome, Rate, Redrive, Relay, Reschedule, Resolution, Save, SetLimits, Settlement, Status,
};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use super::action::{Action, Cursor, LeasePart, LeaseRef, MAX_MOVES, Move, Tick};
use super::content::{
    claim_id, consumer, content, delay, every_id, for_ids, id, ids, lease, lease_duration,
    memory_span, message, outcome, position, result, save, schedule,
};
use super::destinations::{list, stream};

/// Random runs. Shrinking one drops moves first, then simplifies them.
pub fn moves() -> impl Strategy<Value = Vec<Move>> {
    let moves = vec(one(), 1..=MAX_MOVES);
    // A queue that never had a group goes other ways.
    (moves, any::<bool>()).prop_map(|(mut moves, has_groups)| {
        if !has_groups {
            moves.iter_mut().for_each(|it| it.action.remove_groups());
        }
        moves
    })
}

pub(super) fn one() -> impl Strategy<Value = Move> {
    (tick(), action()).prop_map(|(tick, action)| Move { tick, action })
}

/// One random operation.
pub(super) fn action() -> impl Strategy<Value = Action> + Clone {
    let settlements = || {
        let hold = (any::<bool>(), schedule()).prop_map(|(of_group, until)| {
            if of_group { Hold::Group(until) } else { Hold::Queue(until) }
        });
        let hold = prop::option::weighted(0.04, hold);
        let save = prop::option::weighted(0.2, save());
        let items = for_ids((lease_ref(), outcome(), hold, save));
        items.prop_map(|items| {
            items
                .into_iter()
                .map(|(id, (lease, how, hold, save))| (id, lease, how, hold, save))
                .collect::<Vec<_>>()
        })
    };
    let settle = settlements().prop_map(Action::Settle);
    let carried = (for_ids(content()), prop::option::of(result()));
    let hand_off = (settlements(), carried).prop_map(|(settlements, (messages, result))| {
        let messages = messages.into_iter().map(message);
        let messages = messages.map(|message| message.known(Known::Refuse).throttle(None));
        Action::HandOff(settlements, messages.collect(), result)
    });
    let extend = for_ids((lease_ref(), prop::option::of(save()))).prop_map(|items| {
        items.into_iter().map(|(id, (lease, save))| (id, lease, save)).collect::<Vec<_>>()
    });
    let extend = (extend, lease_duration());
    prop_oneof![
        7 => for_ids(content()).prop_map(|items| {
            Action::Send(Op::Enqueue(items.into_iter().map(message).collect()))
        }),
        7 => claim().prop_map(Action::ClaimAnew),
        1 => claim().prop_map(|claim| Action::Send(Op::Claim(claim))),
        7 => settle,
        3 => hand_off,
        3 => extend.prop_map(|(leases, lease)| Action::Extend(leases, lease)),
        1 => relay().prop_map(|relay| Action::Send(Op::Relay(relay))),
        2 => ids().prop_map(|ids| Action::Send(Op::Cancel(ids))),
        2 => for_ids(schedule()).prop_map(|items| {
            let items = items.into_iter().map(|(id, schedule)| Reschedule::new(id, schedule));
            Action::Send(Op::Reschedule(items.collect()))
        }),
        2 => (ids(), schedule()).prop_map(|(ids, schedule)| {
            Action::Send(Op::Redrive(Redrive::new(ids, schedule)))
        }),
        2 => ids().prop_map(|ids| Action::Send(Op::Purge(ids))),
        3 => reading(),
        1 => select(&[Op::Pause, Op::Resume, Op::Resume, Op::Resume][..]).prop_map(Action::Send),
        2 => set_limits().prop_map(|set| Action::Send(Op::SetLimits(set))),
        4 => (0..6_usize).prop_map(Action::Again),
    ]
    .boxed()
}

/// Mostly of few messages and milliseconds, and about as often none.
fn set_limits() -> impl Strategy<Value = SetLimits> {
    let rate = |(count, per, burst): (u32, _, u32)| {
        Rate::new(count, Duration::from_millis(per), burst.min(count))
    };
    let rate = (
        select(&[1_u32, 3, 250, 1_000, 7_001][..]),
        select(&[1_000_u64, 1_001, 60_000][..]),
        select(&[1_u32, 2, 5, 1_000][..]),
    )
        .prop_map(rate);
    let one = prop_oneof![
        3 => (1..4_u32).prop_map(|most| SetLimits::new().leased(most)),
        3 => rate.prop_map(|rate| SetLimits::new().rate(rate)),
        3 => (1..3_u32).prop_map(|most| SetLimits::new().each_group(most)),
        3 => prop::bool::weighted(0.4).prop_map(|in_order| SetLimits::new().in_order(in_order)),
        1 => schedule().prop_map(|until| {
            let mut set = SetLimits::new();
            set.hold = Change::Set(until);
            set
        }),
        1 => Just(SetLimits::new()),
    ];
    let none = SetLimits::new().leased(None).each_group(None).rate(None).end_hold();
    (one, prop::sample::subsequence(vec![0, 1, 2, 3], 0..=4)).prop_map(move |(mut set, removed)| {
        for which in removed {
            match which {
                0 if set.leased == Change::Keep => set.leased = none.leased,
                1 if set.rate == Change::Keep => set.rate = none.rate,
                2 if set.hold == Change::Keep => set.hold = none.hold,
                3 if set.each_group == Change::Keep => set.each_group = none.each_group,
                _ => {}
            }
        }
        set
    })
}

/// To a list and to a stream, which are the same throughout a run and are never read.
fn relay() -> impl Strategy<Value = Relay> {
    let max = prop_oneof![4 => 1..=3_usize, 1 => Just(1000)];
    let limit = prop_oneof![2 => Just(None), 2 => (1..=8_u64).prop_map(Some)];
    (max, limit, any::<bool>()).prop_map(|(max, limit, is_list)| {
        let to = if is_list { list("a-list", limit) } else { stream("a-stream", limit) };
        Relay::new(to, max)
    })
}

fn reading() -> impl Strategy<Value = Action> {
    let status = select(&[Status::Scheduled, Status::Ready, Status::Leased, Status::Dead][..]);
    prop_oneof![
        4 => (status, cursor(), page_limit()).prop_map(|(status, after, limit)| {
            Action::List(status, after, limit)
        }),
        1 => (cursor(), page_limit()).prop_map(|(after, limit)| Action::Check(after, limit)),
        1 => (cursor(), page_limit()).prop_map(|(after, limit)| Action::Repair(after, limit)),
        4 => ids().prop_map(|ids| Action::Send(Op::Get(ids))),
        2 => ids().prop_map(|ids| Action::Send(Op::Progress(ids))),
        4 => Just(Action::Send(Op::Progress(every_id()))),
        1 => Just(Action::Send(Op::Stats)),
        1 => delays().prop_map(|delays| Action::Send(Op::Forecast(delays))),
        1 => select(&[Resolution::Minutes, Resolution::Hours][..])
            .prop_map(|resolution| Action::Send(Op::History(resolution))),
        1 => invalid().prop_map(Action::Send),
    ]
}

fn delays() -> impl Strategy<Value = Vec<Millis>> {
    prop::collection::btree_set(delay(), 1..5).prop_map(|delays| delays.into_iter().collect())
}

/// Operations that exceed a limit, which backends refuse.
fn invalid() -> impl Strategy<Value = Op> {
    let beyond = |claim: Claim| {
        let with = |max, lease| Claim::new(claim.consumer.clone(), claim.claim_id, max, lease);
        select(vec![Op::Claim(with(1001, claim.lease)), Op::Claim(with(claim.max, Millis::ZERO))])
    };
    prop_oneof![
        id().prop_map(|id| Op::Cancel(vec![id.clone(), id])),
        Just(Op::Enqueue(Vec::new())),
        (id(), outcome()).prop_map(|(id, outcome)| {
            let settlement = Settlement::new(id, no_lease(), outcome);
            Op::HandOff(vec![HandOff::new(settlement, Vec::new())])
        }),
        (id(), result()).prop_map(|(id, result)| {
            let settlement = Settlement::new(id, no_lease(), Outcome::Release);
            Op::HandOff(vec![HandOff::new(settlement, Vec::new()).with_result(result)])
        }),
        id().prop_map(move |id| {
            let result = NewResult::new("", Millis::ZERO);
            Op::HandOff(vec![
                HandOff::new(Settlement::new(id, no_lease(), Outcome::Ack), Vec::new())
                    .with_result(result),
            ])
        }),
        delay().prop_map(|delay| Op::Forecast(vec![delay, delay])),
        Just(Op::SetLimits(SetLimits::new().leased(0))),
        Just(Op::Relay(Relay::new(list("a-list", Some(0)), 1))),
        Just(Op::Relay(Relay::new(stream("a-stream", None), 1001))),
        id().prop_map(|id| Op::Extend(Extend::new(vec![(id, no_lease())], Millis::MAX))),
        id().prop_map(|id| {
            let save = Save::new(1).checkpoint(Bytes::from(vec![0; MAX_CHECKPOINT_BYTES + 1]));
            let extend = Extend::new(vec![(id.clone(), no_lease())], Millis::saturating(1));
            Op::Extend(extend.saves(vec![(id, save)]))
        }),
        claim().prop_flat_map(beyond),
    ]
}

fn no_lease() -> delayline_core::Lease {
    delayline_core::Lease { claim_id: ClaimId::from_bytes([0; ClaimId::BYTES]), epoch: 0 }
}

fn claim() -> impl Strategy<Value = Claim> {
    // A claim of no messages looks ahead.
    let max = prop_oneof![8 => 1..=3_usize, 4 => 4..=10_usize, 2 => Just(1000), 1 => Just(0)];
    let claim = |(consumer, claim_id, max, lease, several): (ConsumerName, _, _, _, _)| {
        Claim::new(consumer, claim_id, max, lease).several_in_order(several)
    };
    (consumer(), claim_id(), max, lease_duration(), any::<bool>()).prop_map(claim)
}

fn lease_ref() -> impl Strategy<Value = LeaseRef> {
    prop_oneof![
        14 => (0..4_usize).prop_map(LeaseRef::Delivery),
        3 => Just(LeaseRef::Recent(0)),
        2 => (1..4_usize).prop_map(LeaseRef::Recent),
        1 => (0..2_usize, select(&[LeasePart::ClaimId, LeasePart::Epoch][..]))
            .prop_map(|(delivery, part)| LeaseRef::HalfWrong { delivery, part }),
        1 => lease().prop_map(LeaseRef::MadeUp),
    ]
}

fn cursor() -> impl Strategy<Value = Cursor> {
    prop_oneof![
        4 => Just(Cursor::Start),
        4 => (0..4_usize).prop_map(Cursor::Recent),
        2 => position().prop_map(Cursor::MadeUp),
    ]
}

fn page_limit() -> impl Strategy<Value = usize> {
    prop_oneof![4 => 1..=3_usize, 1 => Just(6), 1 => Just(100)]
}

fn tick() -> impl Strategy<Value = Tick> {
    prop_oneof![
        12 => Just(Tick::Stay),
        16 => (1..4_u64).prop_map(Tick::Forward),
        4 => delay().prop_map(|delay| Tick::Forward(delay.as_ms().min(100_000))),
        14 => (0..4_usize, 0..3_u64).prop_map(|(which, offset)| Tick::Near { which, offset }),
        1 => memory_span().prop_map(Tick::Forward),
        2 => (1..6_u64).prop_map(Tick::Back),
        // Over minutes and hours, of which the history has a point each.
        1 => (1..9_000_000_u64).prop_map(Tick::Forward),
        1 => (1..9_000_000_u64).prop_map(Tick::Back),
        1 => memory_span().prop_map(Tick::Back),
    ]
}
