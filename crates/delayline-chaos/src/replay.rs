//! Checks whether the model gives the same replies in the order in which the server executed.
//!
//! Calls whose reply was lost are placed where the server's account has an operation without a
//! reply. Where several calls fit, all are tried.

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::Duration;

use delayline_core::{Applied, At, Op, Reply, Resolution, State, Stats, Timestamp};
use delayline_testkit::Call;

use crate::evidence::Effects;
use crate::log::{Entry, Outcome};
use crate::witness::{Control, Transaction};

/// The server's account of a queue.
#[derive(Debug)]
pub(crate) struct Account {
    pub(crate) file: Vec<u8>,
    pub(crate) transactions: Vec<Transaction>,
    /// How long the file was when each era but the last had ended.
    pub(crate) era_ends: Vec<usize>,
}

/// The findings about a history.
#[derive(Debug, Default)]
pub(crate) struct Replayed {
    /// The calls that took place, in their order, with their answers.
    pub(crate) order: Vec<Call>,
    /// Calls of unknown outcome that were executed, and that were not.
    pub(crate) executed_unheard: usize,
    pub(crate) never_executed: usize,
    /// Calls that were answered and lost at the end of an era.
    pub(crate) taken_back: usize,
    /// Elements that relays have put into destinations.
    pub(crate) relayed: usize,
}

pub(crate) fn replay(entries: &[Entry], account: &Account) -> Result<Replayed, String> {
    let steps = steps(account)?;
    let (groups, taken_back) = groups(entries, account, &steps)?;
    let unknown = (0..entries.len())
        .filter(|n| matches!(entries[*n].outcome, Outcome::Unknown) && !is_read(&entries[*n].op))
        .collect();
    let known_at = known_at(entries, &steps, &groups);
    let search = Search { entries, steps: &steps, groups, known_at, unknown };
    let found = search.run()?;
    let order: Vec<Call> = found.iter().map(|(n, applied)| call(&entries[*n], applied)).collect();
    real_time(&order)?;
    let unheard = |n: usize| matches!(entries[n].outcome, Outcome::Unknown);
    let executed_unheard = found.iter().filter(|(n, _)| unheard(*n)).count();
    let never_executed = search.unknown.len() - executed_unheard;
    let relayed = steps.iter().map(|step| step.effects.elements().len()).sum();
    Ok(Replayed { order, executed_unheard, never_executed, taken_back, relayed })
}

/// One operation that changed the queue, by the server's account.
struct Step {
    control: Control,
    effects: Effects,
    era: usize,
}

fn steps(account: &Account) -> Result<Vec<Step>, String> {
    let mut steps = Vec::<Step>::new();
    for transaction in &account.transactions {
        let control = transaction.control;
        let before = steps.last().map_or(0, |step| step.control.revision);
        if control.revision == before {
            continue;
        }
        if control.revision != before + 1 {
            return Err(format!("G3: revision {} follows {before}", control.revision));
        }
        let ends = account.era_ends.iter();
        let era = ends.take_while(|end| transaction.place.start >= **end).count();
        let effects = Effects::read(&account.file[transaction.place.clone()]);
        steps.push(Step { control, effects, era });
    }
    Ok(steps)
}

/// The answered calls by their revision, and how many of them were lost.
fn groups(
    entries: &[Entry],
    account: &Account,
    steps: &[Step],
) -> Result<(HashMap<u64, Vec<usize>>, usize), String> {
    let eras = account.era_ends.len();
    let last = |era| {
        let steps = steps.iter().rev();
        let step = steps.into_iter().find(|step| step.era <= era);
        step.map_or(0, |step| step.control.revision)
    };
    let lasts: Vec<_> = (0..=eras).map(last).collect();
    let (mut groups, mut taken_back) = (HashMap::<u64, Vec<usize>>::new(), 0);
    for (n, entry) in entries.iter().enumerate() {
        let Outcome::Answered(applied) = &entry.outcome else { continue };
        let first = entry.era.checked_sub(1).map_or(0, |era| lasts[era]);
        if applied.revision < first {
            return Err(format!(
                "G3: {} tells revision {}, in an era that begins with {first}",
                entry.op.name(),
                applied.revision
            ));
        }
        if applied.revision <= lasts[entry.era] {
            groups.entry(applied.revision).or_default().push(n);
        } else if entry.era < eras {
            taken_back += 1;
        } else {
            return Err(format!(
                "G1: {} was answered with revision {}, and the server has {} at the end",
                entry.op.name(),
                applied.revision,
                lasts[entry.era]
            ));
        }
    }
    for group in groups.values_mut() {
        group.sort_by_key(|n| (entries[*n].called, *n));
    }
    Ok((groups, taken_back))
}

/// For each step a moment before which it had happened: the arrival of the first answer with its
/// revision or a later one.
fn known_at(entries: &[Entry], steps: &[Step], groups: &HashMap<u64, Vec<usize>>) -> Vec<Duration> {
    let mut earliest = Duration::MAX;
    let mut known_at: Vec<_> = steps
        .iter()
        .rev()
        .map(|step| {
            let group = groups.get(&step.control.revision).into_iter().flatten();
            let returned = group.filter_map(|n| entries[*n].returned).min();
            earliest = earliest.min(returned.unwrap_or(Duration::MAX));
            earliest
        })
        .collect();
    known_at.reverse();
    known_at
}

struct Search<'a> {
    entries: &'a [Entry],
    steps: &'a [Step],
    groups: HashMap<u64, Vec<usize>>,
    known_at: Vec<Duration>,
    /// Calls of unknown outcome.
    unknown: Vec<usize>,
}

/// A place where another call can be tried.
struct Branch {
    step: usize,
    model: State,
    order: usize,
    rest: Vec<usize>,
}

/// The model before a step, and the calls that have not been tried there.
type OtherWay = (State, Vec<usize>);

/// Calls in the order of their execution, with their answers.
#[derive(Debug, Default)]
struct Order {
    calls: Vec<(usize, Applied)>,
    /// The calls among them, which are looked up at every step.
    used: HashSet<usize>,
}

impl Order {
    fn push(&mut self, n: usize, applied: Applied) {
        self.used.insert(n);
        self.calls.push((n, applied));
    }

    fn truncate(&mut self, length: usize) {
        for (n, _) in self.calls.drain(length..) {
            self.used.remove(&n);
        }
    }
}

impl Search<'_> {
    fn run(&self) -> Result<Vec<(usize, Applied)>, String> {
        let (mut model, mut order, mut branches) =
            (State::new(), Order::default(), Vec::<Branch>::new());
        self.look(&mut model, 0, None, &mut order)?;
        let (mut step, mut rest, mut tried) = (0, None, 0);
        let mut deepest = (0_usize, String::new());
        while step < self.steps.len() {
            tried += 1;
            if tried > self.steps.len() + MOST_BRANCHES {
                return Err(format!("undecided after {tried} attempts; {}", deepest.1));
            }
            let candidates = rest.take().unwrap_or_else(|| self.candidates(step, &order));
            let mark = order.calls.len();
            match self.advance(model, step, candidates, &mut order) {
                Ok((next, other_way)) => {
                    let branch = |(model, rest)| Branch { step, model, order: mark, rest };
                    branches.extend(other_way.map(branch));
                    model = next;
                    step += 1;
                }
                Err(reason) => {
                    if step >= deepest.0 {
                        deepest = (step, reason);
                    }
                    let Some(branch) = branches.pop() else { return Err(deepest.1) };
                    (step, model, rest) = (branch.step, branch.model, Some(branch.rest));
                    order.truncate(branch.order);
                }
            }
        }
        Ok(order.calls)
    }

    /// The calls that may have brought a step about, the likely ones first.
    fn candidates(&self, step: usize, order: &Order) -> Vec<usize> {
        let Step { control, effects, era } = &self.steps[step];
        let group = self.groups.get(&control.revision).map_or(&[][..], Vec::as_slice);
        let entry = |n: usize| &self.entries[n];
        // A call that has not begun has no effect yet.
        let early = |n: &usize| entry(*n).called <= self.known_at[step];
        let movers = group.iter().copied().filter(early);
        let mut movers: Vec<usize> =
            movers.filter(|n| entry(*n).era == *era && !is_read(&entry(*n).op)).collect();
        movers.sort_by_key(|n| self.moved_nothing(*n));
        let fits = |n: &usize| {
            entry(*n).era <= *era
                && early(n)
                && effects.can_be_of(&entry(*n).op)
                && !order.used.contains(n)
        };
        movers.extend(self.unknown.iter().copied().filter(fits));
        movers
    }

    /// Whether a claim or a relay was answered that it moved no message. It may still have taken
    /// back expired leases, or caught up with the rate.
    fn moved_nothing(&self, n: usize) -> bool {
        let Outcome::Answered(applied) = &self.entries[n].outcome else { return false };
        match &applied.reply {
            Reply::Claim(claimed) => claimed.deliveries.is_empty(),
            Reply::Relay(relayed) => relayed.ids.is_empty(),
            _ => false,
        }
    }

    /// The model after a step; and if another call might explain it as well, the model before it
    /// and the candidates that are left.
    fn advance(
        &self,
        model: State,
        step: usize,
        candidates: Vec<usize>,
        order: &mut Order,
    ) -> Result<(State, Option<OtherWay>), String> {
        let (mark, mut model, mut reasons) = (order.calls.len(), Some(model), Vec::new());
        let mut untried: VecDeque<_> = candidates.into();
        while let Some(n) = untried.pop_front() {
            // A copy only where it is needed again: queues are large and steps are many.
            let copy = if untried.is_empty() { model.take() } else { model.clone() };
            let Some(mut next) = copy else { break };
            match self.explain(&mut next, step, n, order) {
                Ok(()) => {
                    // Among the calls that have an answer, only one fits. Except that if two calls
                    // moved no message, either may have taken a lease back, and only later replies
                    // show at which instant.
                    let unheard = |n: &usize| matches!(self.entries[*n].outcome, Outcome::Unknown);
                    let undecided = unheard(&n)
                        || untried.iter().any(unheard)
                        || self.moved_nothing(n) && untried.iter().any(|n| self.moved_nothing(*n));
                    let before = model.filter(|_| undecided);
                    return Ok((next, before.map(|before| (before, untried.into()))));
                }
                Err(reason) => reasons.push(reason),
            }
            order.truncate(mark);
        }
        let (control, reasons) = (self.steps[step].control, reasons.join("\nor: "));
        Err(format!("G3: no call explains {control:?}:\n{reasons}\nafter\n{}", self.tail(order)))
    }

    /// Whether one call explains a step and what others saw after it.
    fn explain(
        &self,
        model: &mut State,
        step: usize,
        n: usize,
        order: &mut Order,
    ) -> Result<(), String> {
        let Step { control, effects, .. } = &self.steps[step];
        let entry = &self.entries[n];
        let at = instant(entry)?;
        // A call that was sent again may have been made before a step of the clock and after it.
        if minute_of(at) != control.minute {
            return Err(format!("{} was made in another minute", self.told(n)));
        }
        let applied = model.apply(at, &entry.op);
        if applied.revision != control.revision {
            return Err(format!("{} changes nothing then", self.told(n)));
        }
        if matches!(&entry.outcome, Outcome::Answered(answer) if *answer != applied) {
            return Err(format!("{} should have been {:?}", self.told(n), applied.reply));
        }
        // A call that was sent again has the same effect, but at another instant.
        if !effects.agree_with(model, at) {
            return Err(format!("{} would have put something elsewhere", self.told(n)));
        }
        if !effects.agree_on_elements(model, &entry.op, &applied.reply) {
            let elements = effects.elements();
            return Err(format!("{} would not have relayed {elements:?} (G28)", self.told(n)));
        }
        if matches!(entry.outcome, Outcome::Unknown) && counters(model, at) != *control {
            return Err(format!("{} would count differently", self.told(n)));
        }
        order.push(n, applied);
        self.look(model, control.revision, Some(n), order)
    }

    /// Whether the calls that changed nothing saw the model as it is at their revision.
    fn look(
        &self,
        model: &mut State,
        revision: u64,
        mover: Option<usize>,
        order: &mut Order,
    ) -> Result<(), String> {
        let group = self.groups.get(&revision).map_or(&[][..], Vec::as_slice);
        for n in group.iter().copied().filter(|n| Some(*n) != mover) {
            let entry = &self.entries[n];
            let applied = model.apply(instant(entry)?, &entry.op);
            match &entry.outcome {
                Outcome::Answered(answer) if *answer == applied => order.push(n, applied),
                _ => return Err(format!("{} should have been {:?}", self.told(n), applied)),
            }
        }
        Ok(())
    }

    fn told(&self, n: usize) -> String {
        let Entry { client, called, returned, at, op, outcome, .. } = &self.entries[n];
        format!("call {n} ({client}, {called:?} to {returned:?}, {at:?}) {op:?}: {outcome:?}")
    }

    fn tail(&self, order: &Order) -> String {
        let latest = &order.calls[order.calls.len().saturating_sub(SHOWN)..];
        latest.iter().map(|(n, _)| self.told(*n)).collect::<Vec<_>>().join("\n")
    }
}

fn call(entry: &Entry, applied: &Applied) -> Call {
    Call {
        called: entry.called,
        returned: match entry.outcome {
            Outcome::Answered(_) => entry.returned.unwrap_or(Duration::MAX),
            // A caller that gave up did not wait for the end.
            _ => Duration::MAX,
        },
        op: entry.op.clone(),
        applied: applied.clone(),
    }
}

/// Whether no call had its answer before one was asked that came before it.
fn real_time(order: &[Call]) -> Result<(), String> {
    let Some(mut latest) = order.first() else { return Ok(()) };
    for call in order {
        if call.returned < latest.called {
            return Err(format!("G3: {call:?} was answered before this was asked: {latest:?}"));
        }
        if call.called > latest.called {
            latest = call;
        }
    }
    Ok(())
}

/// The instant that a call was executed at.
fn instant(entry: &Entry) -> Result<Timestamp, String> {
    match (&entry.outcome, entry.at) {
        (Outcome::Answered(applied), _) => Ok(applied.at),
        (_, At::Fixed(at)) => Ok(at),
        (_, At::Server) => Err("it is unknown when this call was executed".to_owned()),
    }
}

fn counters(model: &mut State, at: Timestamp) -> Control {
    let Applied { revision, reply, .. } = model.apply(at, &Op::Stats);
    let stats = if let Reply::Stats(stats) = reply { *stats } else { Stats::default() };
    Control {
        revision,
        enqueued: stats.totals.enqueued,
        acked: stats.totals.acked,
        cancelled: stats.totals.cancelled,
        purged: stats.totals.purged,
        relayed: stats.totals.relayed,
        expired: stats.totals.died_expired,
        replaced: stats.totals.replaced,
        paused: stats.paused,
        minute: minute_of(at),
    }
}

const fn minute_of(at: Timestamp) -> u64 {
    at.as_ms() / Resolution::Minutes.unit_ms()
}

const fn is_read(op: &Op) -> bool {
    op.is_read_only() || matches!(op, Op::Repair(_))
}

/// How many wrong ways may be tried before a history counts as undecided.
const MOST_BRANCHES: usize = 50_000;
/// How many calls before a failure are shown.
const SHOWN: usize = 12;

#[cfg(test)]
mod tests {
    use delayline_core::{
        Claim, ClaimId, ConsumerName, Destination, DestinationKey, MessageId, Millis, NewMessage,
        Relay,
    };

    use super::*;

    /// Calls as they happened, all at the same time, and the server's account of them.
    fn scene(calls: impl IntoIterator<Item = (u64, Op)>) -> (Vec<Entry>, Account) {
        let (mut model, mut transactions, mut entries) = (State::new(), Vec::new(), Vec::new());
        for (ms, op) in calls {
            let at = Timestamp::from_ms(ms).unwrap();
            let applied = model.apply(at, &op);
            transactions.push(Transaction { control: counters(&mut model, at), place: 0..0 });
            entries.push(Entry {
                client: "redis-rs",
                era: 0,
                called: Duration::from_millis(ms),
                returned: Some(Duration::from_millis(20)),
                at: At::Fixed(at),
                op,
                outcome: Outcome::Answered(applied),
            });
        }
        (entries, Account { file: Vec::new(), transactions, era_ends: Vec::new() })
    }

    #[test]
    fn answers_and_files_that_do_not_fit_are_refused() {
        let id = MessageId::try_from("a").unwrap();
        let key = DestinationKey::try_from("to").unwrap();
        let to = Destination::List { key, max_len: None };
        let calls = [
            Op::Enqueue(vec![NewMessage::new(id, "is a")]),
            Op::Pause,
            Op::Resume,
            Op::Relay(Relay::new(to, 1)),
        ];
        let judge = |change: fn(&mut Vec<Entry>, &mut Account)| {
            let (mut entries, mut account) = scene((0..).zip(calls.clone()));
            account.file = b"*3\r\n$5\r\nRPUSH\r\n$2\r\nto\r\n$4\r\nis a\r\n".to_vec();
            account.transactions[3].place = 0..account.file.len();
            change(&mut entries, &mut account);
            replay(&entries, &account)
        };
        assert_eq!(judge(|_, _| ()).unwrap().relayed, 1);
        judge(|entries, _| {
            let resumed = entries[2].outcome.clone();
            entries[2].outcome = std::mem::replace(&mut entries[1].outcome, resumed);
        })
        .expect_err("two answers are swapped");
        let lost = judge(|_, account| account.transactions.truncate(3)).unwrap_err();
        assert!(lost.starts_with("G1: relay was answered"), "{lost}");
        judge(|entries, _| {
            let error = delayline_core::Error::new(delayline_core::ErrorKind::Unreachable);
            entries[2].outcome = Outcome::NotExecuted(error);
        })
        .expect_err("a call that was not executed is in the file");
        let twice = judge(|_, account| {
            account.file = account.file.repeat(2);
            account.transactions[3].place = 0..account.file.len();
        });
        assert!(twice.unwrap_err().contains("(G28)"));
    }

    #[test]
    fn later_replies_show_which_of_two_calls_took_a_lease_back() {
        let id = MessageId::try_from("a").unwrap();
        let to = DestinationKey::try_from("to").unwrap();
        let to = Destination::List { key: to, max_len: None };
        let claim = |n: u8, lease| {
            let (consumer, id) =
                (ConsumerName::try_from("w").unwrap(), ClaimId::from_bytes([n; 16]));
            Op::Claim(Claim::new(consumer, id, 1, Millis::saturating(lease)))
        };
        // The claim took the lease back; the relay came later and changed nothing.
        let calls = [
            (0, Op::Enqueue(vec![NewMessage::new(id.clone(), "")])),
            (1, claim(1, 5)),
            (2, Op::Pause),
            (10, claim(2, 5)),
            (11, Op::Relay(Relay::new(to, 1))),
            (12, Op::Resume),
            (13, Op::Get(vec![id])),
        ];
        let (mut entries, account) = scene(calls);
        assert_eq!(replay(&entries, &account).unwrap().order.len(), entries.len());
        // The relay was asked first, and took longer.
        entries[4].called = Duration::from_millis(9);
        assert_eq!(replay(&entries, &account).unwrap().order.len(), entries.len());
    }
}
