//! The promises about groups, judged by what claims return and what look-ups show then.

use std::collections::{BTreeMap, HashMap, HashSet};

use delayline_core::{
    Claimed, Found, Group, Limits, List, MessageId, MessageInfo, MessageState, Op, Priority,
    Redriven, Reply, State, Status, Timestamp,
};

use crate::ledger::Violation;

/// More than a story sends. `State` lists any number; backends refuse more than a page.
pub(crate) const MOST_MESSAGES: usize = 1_000;

/// What a queue has leased under its present limits of groups.
#[derive(Default)]
pub(crate) struct Grouped {
    limits: (Option<u32>, bool),
    /// Messages as they were leased.
    leased: HashMap<Group, Vec<MessageInfo>>,
    /// All leases: a repeated claim returns its earlier ones.
    known: HashSet<(MessageId, u64)>,
}

/// Which promises an operation tested.
#[derive(Default)]
pub(crate) struct Said {
    /// Claims that left ready messages of groups.
    pub(crate) turns: bool,
    /// Claims from groups under a limit, or in order.
    pub(crate) limited: bool,
}

impl Grouped {
    /// The server has executed an operation, and these are the limits since.
    pub(crate) fn executed(
        &mut self,
        now: Timestamp,
        (op, reply): (&Op, &Reply),
        limits: &Limits,
        state: &mut State,
    ) -> Result<Said, Violation> {
        let limits = (limits.each_group, limits.in_order);
        if limits == (None, false) || limits.1 != self.limits.1 {
            self.leased.clear();
        }
        self.limits = limits;
        if let (Op::Redrive(redrive), Reply::Redrive(answers)) = (op, reply) {
            for (id, answer) in redrive.ids.iter().zip(answers) {
                if matches!(answer, Redriven::Done { .. }) {
                    self.leased.values_mut().for_each(|earlier| earlier.retain(|it| it.id != *id));
                }
            }
        }
        let mut said = Said::default();
        let (Op::Claim(claim), Reply::Claim(Claimed { deliveries, .. })) = (op, reply) else {
            return Ok(said);
        };
        let infos = deliveries.iter().map(|delivery| &delivery.message.info);
        let new: Vec<_> = infos
            .filter(|info| self.known.insert((info.id.clone(), info.epoch)))
            .cloned()
            .collect();
        if limits == (None, false) {
            said.turns = take_turns(now, &new, state)?;
            return Ok(said);
        }
        let together: HashSet<_> = new.iter().map(|info| info.id.clone()).collect();
        let is_own = |it: &MessageInfo| claim.several_in_order && together.contains(&it.id);
        for info in new {
            let Some(group) = info.group.clone() else { continue };
            said.limited = true;
            let earlier = self.leased.entry(group.clone()).or_default();
            let was_held = earlier.iter().any(|it| it.sequence == info.sequence);
            earlier.retain(|it| it.id != info.id && holds(now, it, limits.1, state));
            if !limits.1 {
                let most = limits.0.unwrap_or(u32::MAX);
                if earlier.len() >= usize::try_from(most).unwrap_or(usize::MAX) {
                    return Err(format!("{group} has {earlier:?} and {info:?}, at {limits:?}"));
                }
            } else if !was_held && earlier.is_empty() {
                comes_first(now, &info, state)?;
            }
            // In order, others that have not ended are of the same claim, or wait behind this one.
            let mut is_right = |it: &MessageInfo| {
                let is_behind = was_held && it.sequence > info.sequence;
                is_own(it) || is_behind && !holds(now, it, false, state)
            };
            if limits.1
                && let Some(other) = earlier.iter().find(|it| !is_right(it))
            {
                return Err(format!("{info:?} was leased, and {other:?} has not ended"));
            }
            earlier.push(info);
        }
        Ok(said)
    }
}

/// Whether a message that was leased is leased still, or, in a queue in order, has not ended.
fn holds(now: Timestamp, leased: &MessageInfo, in_order: bool, state: &mut State) -> bool {
    let Reply::Get(found) = state.apply(now, &Op::Get(vec![leased.id.clone()])).reply else {
        return false;
    };
    let Some(Found::Live(message)) = found.first() else { return false };
    let info = &message.info;
    let waits = matches!(info.state, MessageState::Scheduled | MessageState::Ready);
    let is_leased = matches!(info.state, MessageState::Leased { .. });
    info.sequence == leased.sequence
        && (is_leased && info.epoch == leased.epoch || in_order && (is_leased || waits))
}

/// In order, no ready message of the group precedes one that was leased while none held the slot.
fn comes_first(now: Timestamp, leased: &MessageInfo, state: &mut State) -> Result<(), Violation> {
    let list = Op::List(List::new(Status::Ready, MOST_MESSAGES));
    let Reply::List(page) = state.apply(now, &list).reply else { return Ok(()) };
    let mut others = page.messages.iter().filter(|info| info.group == leased.group);
    match others.find(|info| info.sequence < leased.sequence) {
        Some(first) => Err(format!("{} was leased before {}", leased.id, first.id)),
        None => Ok(()),
    }
}

/// No group gets two messages more than another one that has some left. Returns whether one had.
fn take_turns(now: Timestamp, new: &[MessageInfo], state: &mut State) -> Result<bool, Violation> {
    let is_normal = |info: &&MessageInfo| info.priority == Priority::Normal;
    let mut delivered: BTreeMap<Option<&Group>, usize> = BTreeMap::new();
    for info in new.iter().filter(is_normal) {
        *delivered.entry(info.group.as_ref()).or_default() += 1;
    }
    let Some(most) = delivered.values().max() else { return Ok(false) };
    let list = Op::List(List::new(Status::Ready, MOST_MESSAGES));
    let Reply::List(page) = state.apply(now, &list).reply else {
        return Ok(false);
    };
    for info in page.messages.iter().filter(is_normal) {
        let own = delivered.get(&info.group.as_ref()).copied().unwrap_or_default();
        if own + 1 < *most {
            return Err(format!("{:?} got {own} of {delivered:?}, and has more", info.group));
        }
    }
    Ok(page.messages.iter().any(|info| info.group.is_some()))
}
