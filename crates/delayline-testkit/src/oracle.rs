//! The comparison of sequential runs: the model does what the backend does, and both must agree.

use delayline_core::{
    Applied, At, Backend, Check, Claim, ClaimId, ConsumerName, Error, List, MessageId, Millis, Op,
    Outcome, Reply, Resolution, Settlement, State, Stats, Status, Timestamp,
};

use crate::calls;
use crate::clients::Clients;
use crate::faults::polled;
use crate::limits::{EVERY_STATUS, LIST_EVERY};
use crate::reopenable::Reopenable;
use crate::sited::Site;
use crate::{Divergence, Step, Trace};

/// Runs a trace on a backend with an empty queue and on the model, and compares the two.
///
/// After each step, this compares the whole result (instant, revision, reply), every message named
/// in the trace, and the counters. Now and then and at the end, it compares the lists of all
/// statuses, page by page, and the audit. Finally it moves the clock far ahead and drains the
/// queue; every message that ever existed must be accounted for (G1).
///
/// Relays to a key `KEY` go to `KEY{NAME}` if the queue has the name `NAME`, as in the suite.
///
/// # Errors
///
/// The first [`Divergence`], with a trace that can be kept.
pub async fn differential(backend: &dyn Backend, trace: &Trace) -> Result<(), Divergence> {
    differential_of_one(&Site(backend), trace).await
}

/// Like [`differential`], with relays to the keys of the trace.
pub(crate) async fn differential_of_one(
    backend: &dyn Backend,
    trace: &Trace,
) -> Result<(), Divergence> {
    let mut pair = Pair::new(backend, trace);
    let outcome = pair.run().await;
    outcome.map_err(|difference| *difference)
}

/// Like [`differential`], where the clients of a queue take the steps, and the reads between them,
/// in turns.
pub(crate) async fn differential_of_two(
    clients: &Clients,
    trace: &Trace,
) -> Result<(), Divergence> {
    let mut pair = Pair::new(&**clients.first(), trace);
    pair.clients = Some(clients);
    let outcome = pair.run().await;
    outcome.map_err(|difference| *difference)
}

/// Executes a trace, but drops the future of its last operation after this many polls. Compares the
/// queue with the model before and after that operation: it must be as one of them.
pub(crate) async fn differential_dropping(
    backend: &dyn Backend,
    trace: &Trace,
    polls: u32,
) -> Result<(), Divergence> {
    let mut pair = Pair::new(backend, trace);
    let outcome = pair.run_and_drop(polls).await;
    outcome.map_err(|difference| *difference)
}

/// Like [`differential`], and opens the queue again before some steps (from 0) and after the last
/// one: it must have everything that the model has.
pub(crate) async fn differential_reopening(
    queue: &Reopenable<'_>,
    trace: &Trace,
    before: &[usize],
) -> Result<(), Divergence> {
    let mut pair = Pair::new(queue, trace);
    pair.reopening = Some((queue, before));
    let outcome = pair.run().await;
    outcome.map_err(|difference| *difference)
}

/// A backend and its model.
struct Pair<'a> {
    backend: &'a dyn Backend,
    /// The clients of the queue, if several take turns.
    clients: Option<&'a Clients>,
    /// What opens the backend again, and before which steps.
    reopening: Option<(&'a Reopenable<'a>, &'a [usize])>,
    trace: &'a Trace,
    model: State,
    /// Every id named in the trace.
    ids: Vec<MessageId>,
    /// The number of the current step.
    number: usize,
}

/// A result whose error is boxed, because it holds a trace.
type Agreement<T> = Result<T, Box<Divergence>>;

impl<'a> Pair<'a> {
    fn new(backend: &'a dyn Backend, trace: &'a Trace) -> Self {
        let mut ids: Vec<_> = trace.steps.iter().flat_map(|step| ids_of(&step.op)).collect();
        ids.sort();
        ids.dedup();
        Self { backend, clients: None, reopening: None, trace, model: State::new(), ids, number: 0 }
    }

    async fn run(&mut self) -> Agreement<()> {
        for (number, step) in self.trace.steps.iter().enumerate() {
            self.number = number + 1;
            if let Some((queue, before)) = self.reopening
                && before.contains(&number)
            {
                self.reopen(queue, step.at).await?;
            }
            self.take_turn(number);
            self.apply(step).await?;
            // So each client sees its own changes and those of the other.
            self.take_turn(number / 2);
            self.compare_messages(step.at).await?;
            if number % LIST_EVERY == LIST_EVERY - 1 {
                self.compare_lists(step.at).await?;
            }
        }
        if let Some(last) = self.trace.steps.last() {
            if let Some((queue, _)) = self.reopening {
                self.reopen(queue, last.at).await?;
            }
            self.compare_lists(last.at).await?;
        }
        self.drain().await
    }

    async fn run_and_drop(&mut self, polls: u32) -> Agreement<()> {
        let Some((last, first)) = self.trace.steps.split_last() else { return Ok(()) };
        for (number, step) in first.iter().enumerate() {
            self.number = number + 1;
            self.apply(step).await?;
        }
        self.number = self.trace.steps.len();
        if let Some(got) = polled(self.call(last), polls).await {
            return self.judge(last, got).map(drop);
        }
        let before = self.model.clone();
        if self.compare(last.at).await.is_ok() {
            return Ok(());
        }
        // It has been executed, perhaps only now.
        self.model = before;
        self.model.apply(last.at, &last.op);
        self.compare(last.at).await
    }

    /// Lets the n-th client execute what follows.
    fn take_turn(&mut self, n: usize) {
        if let Some(clients) = self.clients {
            self.backend = &**clients.of(n);
        }
    }

    async fn reopen(&mut self, queue: &Reopenable<'_>, at: Timestamp) -> Agreement<()> {
        if let Err(error) = queue.reopen().await {
            let step = Step { at, op: Op::Stats };
            return Err(self.divergence(&step, format!("the queue cannot be reopened: {error}")));
        }
        self.compare(at).await
    }

    async fn compare(&mut self, at: Timestamp) -> Agreement<()> {
        self.compare_messages(at).await?;
        self.compare_lists(at).await
    }

    /// Executes a step on both sides and returns the common result; `None` if both refused it.
    async fn apply(&mut self, step: &Step) -> Agreement<Option<Applied>> {
        let got = self.call(step).await;
        self.judge(step, got)
    }

    async fn call(&self, step: &Step) -> Result<Applied, Error> {
        calls::apply(self.backend, self.number, At::Fixed(step.at), &step.op).await
    }

    fn judge(&mut self, step: &Step, got: Result<Applied, Error>) -> Agreement<Option<Applied>> {
        let expected = match step.op.validate() {
            Ok(()) => Ok(self.model.apply(step.at, &step.op)),
            Err(violation) => Err(Error::from(violation)),
        };
        if let Err(defect) = self.model.check_invariants() {
            return Err(self.divergence(step, format!("the model itself is wrong: {defect}")));
        }
        match (expected, got) {
            (Ok(expected), Ok(got)) if expected == got => Ok(Some(got)),
            (Err(expected), Err(got)) if expected.kind() == got.kind() => Ok(None),
            (expected, got) => {
                Err(Box::new(Divergence::between(self.number, step, self.trace, &expected, &got)))
            }
        }
    }

    fn divergence(&self, step: &Step, what: String) -> Box<Divergence> {
        Box::new(Divergence::new(self.number, step, self.trace, what))
    }

    async fn compare_messages(&mut self, at: Timestamp) -> Agreement<()> {
        let forecast = [0, 5, 1_000].map(Millis::saturating).to_vec();
        let looks = [
            Op::Stats,
            Op::Forecast(forecast),
            Op::History(Resolution::Minutes),
            Op::History(Resolution::Hours),
        ];
        let mut steps: Vec<_> = looks.into_iter().map(|op| Step { at, op }).collect();
        let pages = self.ids.chunks(delayline_core::limits::MAX_LOOK_UP);
        steps.extend(pages.map(|ids| Step { at, op: Op::Get(ids.to_vec()) }));
        if !self.ids.is_empty() {
            steps.push(Step { at, op: Op::Progress(self.ids.clone()) });
        }
        for step in steps {
            self.apply(&step).await?;
        }
        Ok(())
    }

    async fn compare_lists(&mut self, at: Timestamp) -> Agreement<()> {
        for status in EVERY_STATUS {
            let mut after = None;
            loop {
                // Small pages, so that continuing from a cursor is compared as well.
                let list = List::new(status, 4).after(after);
                match self.apply(&Step { at, op: Op::List(list) }).await? {
                    Some(Applied { reply: Reply::List(page), .. }) if page.next.is_some() => {
                        after = page.next;
                    }
                    _ => break,
                }
            }
        }
        self.check(at).await.map(|_| ())
    }

    /// Audits the whole queue and returns its number of messages.
    async fn check(&mut self, at: Timestamp) -> Agreement<u64> {
        let (mut after, mut examined) = (None, 0);
        loop {
            let step = Step { at, op: Op::Check(Check::new(4).after(after)) };
            let Some(Applied { reply: Reply::Check(checked), .. }) = self.apply(&step).await?
            else {
                return Ok(examined);
            };
            examined += checked.examined;
            after = checked.next;
            if after.is_none() {
                return Ok(examined);
            }
        }
    }

    /// Handles every message that can ever be due, and clears the dead letters.
    async fn drain(&mut self) -> Agreement<()> {
        let at = Timestamp::MAX;
        self.apply(&Step { at, op: Op::Resume }).await?;
        for round in 0..=self.ids.len() {
            self.take_turn(round);
            let claim = drain_claim(round);
            let step = Step { at, op: Op::Claim(claim) };
            let Some(Applied { reply: Reply::Claim(claimed), .. }) = self.apply(&step).await?
            else {
                break;
            };
            let acks: Vec<_> = claimed.deliveries.iter().map(ack).collect();
            if !acks.is_empty() {
                self.apply(&Step { at, op: Op::Settle(acks) }).await?;
            } else if !claimed.more {
                break;
            }
        }
        let listing = Step { at, op: Op::List(List::new(Status::Dead, 100)) };
        if let Some(Applied { reply: Reply::List(page), .. }) = self.apply(&listing).await? {
            let ids: Vec<_> = page.messages.into_iter().map(|info| info.id).collect();
            if !ids.is_empty() {
                self.apply(&Step { at, op: Op::Purge(ids) }).await?;
            }
        }
        let stats = Step { at, op: Op::Stats };
        if let Some(Applied { reply: Reply::Stats(counts), .. }) = self.apply(&stats).await?
            && !is_drained(&counts)
        {
            return Err(self.divergence(&stats, format!("not all is accounted for: {counts:#?}")));
        }
        match self.check(at).await? {
            0 => Ok(()),
            left => Err(self.divergence(&stats, format!("{left} messages are left"))),
        }
    }
}

/// Whether a drained queue has neither lost nor made up a message (G1).
pub(crate) const fn is_drained(counts: &Stats) -> bool {
    let left = counts.scheduled + counts.ready + counts.leased;
    let finished = counts.totals.acked
        + counts.totals.cancelled
        + counts.totals.purged
        + counts.totals.relayed
        + counts.totals.replaced;
    left == 0 && counts.totals.enqueued == finished + counts.dead
}

/// A settlement that acks a delivery.
pub(crate) fn ack(delivery: &delayline_core::Delivery) -> Settlement {
    let id = delivery.message.info.id.clone();
    Settlement::new(id, delivery.lease, Outcome::Ack)
}

/// A large claim with a token that nothing else uses.
pub(crate) fn drain_claim(round: usize) -> Claim {
    let mut token = [0xd7; ClaimId::BYTES];
    token[..8].copy_from_slice(&u64::try_from(round).unwrap_or(u64::MAX).to_be_bytes());
    #[allow(clippy::expect_used, reason = "a constant within the limits")]
    let consumer = ConsumerName::new("drain").expect("a short name");
    Claim::new(
        consumer,
        ClaimId::from_bytes(token),
        delayline_core::limits::MAX_BATCH,
        Millis::saturating(60_000),
    )
}

/// The ids that an operation names, those of the messages in its hand-offs included.
fn ids_of(op: &Op) -> impl Iterator<Item = MessageId> {
    let items = if let Op::HandOff(items) = op { items.as_slice() } else { &[] };
    let handed_off = items.iter().flat_map(|item| &item.messages).map(|message| &message.id);
    op.ids().into_iter().chain(handed_off).cloned()
}
