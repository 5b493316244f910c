//! A backend that stores operations, and may leave some out.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use delayline_core::{
    Applied, At, Backend, Error, HandOff, Op, QueueBackend, QueueName, Settlement, State,
    Timestamp, Wakeup,
};

use super::model::instant;
use crate::Fixture;

/// What a backend writes of an operation; `None` for nothing.
pub(super) type Written = fn(&Op) -> Option<Op>;

type Log = Arc<Mutex<Vec<(Timestamp, Op)>>>;

/// Queues whose logs remain when they are closed.
pub(super) struct Stored {
    written: Written,
    logs: Mutex<BTreeMap<QueueName, Log>>,
}

impl Stored {
    pub(super) fn new(written: Written) -> Self {
        Self { written, logs: Mutex::default() }
    }

    fn open(&self, name: QueueName) -> Arc<dyn QueueBackend> {
        let log = Arc::clone(self.logs.lock().unwrap().entry(name.clone()).or_default());
        let mut state = State::new();
        for (at, op) in &*log.lock().unwrap() {
            state.apply(*at, op);
        }
        Arc::new(Open { name, written: self.written, state: Mutex::new(state), log })
    }
}

#[async_trait]
impl Fixture for Stored {
    async fn fresh(&self) -> Result<Arc<dyn QueueBackend>, Error> {
        let number = self.logs.lock().unwrap().len();
        Ok(self.open(QueueName::new(format!("queue-{number}"))?))
    }

    /// A client that sees no later change of the others.
    async fn another(
        &self,
        queue: &Arc<dyn QueueBackend>,
    ) -> Result<Option<Arc<dyn QueueBackend>>, Error> {
        Ok(Some(self.open(queue.queue_name().unwrap().clone())))
    }

    async fn reopen(
        &self,
        queue: Arc<dyn QueueBackend>,
    ) -> Result<Option<Arc<dyn QueueBackend>>, Error> {
        let name = queue.queue_name().unwrap().clone();
        assert_eq!(Arc::strong_count(&queue), 1, "nothing else keeps it open");
        Ok(Some(self.open(name)))
    }
}

#[derive(Debug)]
struct Open {
    name: QueueName,
    written: Written,
    state: Mutex<State>,
    log: Log,
}

#[async_trait]
impl Backend for Open {
    async fn apply(&self, at: At, op: &Op) -> Result<Applied, Error> {
        op.validate()?;
        let applied = self.state.lock().unwrap().apply(instant(at), op);
        self.log.lock().unwrap().extend((self.written)(op).map(|op| (applied.at, op)));
        Ok(applied)
    }

    fn queue_name(&self) -> Option<&QueueName> {
        Some(&self.name)
    }
}

#[async_trait]
impl Wakeup for Open {
    async fn wait(&self, _: Duration) -> Result<bool, Error> {
        Ok(false)
    }
}

/// Defects of the stored data, by name.
pub(super) const DEFECTS: [(&str, Written); 16] = [
    ("no enqueue", |op| without(op, "enqueue")),
    ("no claim", |op| without(op, "claim")),
    ("no relay", |op| without(op, "relay")),
    ("no settlement", |op| without(op, "settle")),
    ("no hand-off", |op| without(op, "hand_off")),
    ("no extension", |op| without(op, "extend")),
    ("no cancellation", |op| without(op, "cancel")),
    ("no rescheduling", |op| without(op, "reschedule")),
    ("no redrive", |op| without(op, "redrive")),
    ("no purge", |op| without(op, "purge")),
    ("no pause", |op| without(op, "pause")),
    ("no resume", |op| without(op, "resume")),
    ("no result", |op| {
        Some(match op {
            Op::HandOff(items) => Op::HandOff(items.iter().map(without_result).collect()),
            op => op.clone(),
        })
    }),
    ("no limits", |op| without(op, "set_limits")),
    ("no hold", |op| Some(with_settlements(op, |settlement| settlement.hold = None))),
    ("no save", |op| {
        let mut op = with_settlements(op, |settlement| settlement.save = None);
        if let Op::Extend(extend) = &mut op {
            extend.saves.clear();
        }
        Some(op)
    }),
];

fn with_settlements(op: &Op, change: fn(&mut Settlement)) -> Op {
    let mut op = op.clone();
    match &mut op {
        Op::Settle(items) => items.iter_mut().for_each(change),
        Op::HandOff(items) => items.iter_mut().for_each(|item| change(&mut item.settlement)),
        _ => {}
    }
    op
}

fn without(op: &Op, name: &str) -> Option<Op> {
    (op.name() != name).then(|| op.clone())
}

fn without_result(item: &HandOff) -> HandOff {
    item.clone().with_result(None)
}
