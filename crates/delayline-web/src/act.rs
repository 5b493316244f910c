//! What visitors do, the same from a page and from the API.

use delayline::backend::{Op, Reply};
use delayline::{
    Bytes, Cancelled, Error, MessageId, Purged, Queue, Raw, Redriven, Rescheduled, Schedule,
    Timestamp,
};
use tracing::Instrument as _;

use crate::Role;
use crate::context::Context;
use crate::failure::Failure;
use crate::job::Order;

/// Something to be done to messages.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Action {
    Cancel,
    Reschedule(Schedule),
    Redrive(Schedule),
    Purge,
}

/// What became of one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    /// In a word, with `_` between its parts.
    pub(crate) word: &'static str,
    /// Whether it is what was asked for.
    pub(crate) done: bool,
    /// When the message is due now.
    pub(crate) due: Option<Timestamp>,
}

impl Action {
    const fn name(self) -> &'static str {
        match self {
            Self::Cancel => "cancel",
            Self::Reschedule(_) => "reschedule",
            Self::Redrive(_) => "redrive",
            Self::Purge => "purge",
        }
    }

    pub(crate) const fn needs(self) -> Role {
        match self {
            Self::Cancel | Self::Reschedule(_) | Self::Redrive(_) => Role::Operator,
            Self::Purge => Role::Admin,
        }
    }

    fn op(self, ids: Vec<MessageId>) -> Op {
        match self {
            Self::Cancel => Op::Cancel(ids),
            Self::Reschedule(schedule) => {
                let item = |id| delayline::backend::Reschedule::new(id, schedule);
                Op::Reschedule(ids.into_iter().map(item).collect())
            }
            Self::Redrive(schedule) => Op::Redrive(delayline::backend::Redrive::new(ids, schedule)),
            Self::Purge => Op::Purge(ids),
        }
    }
}

/// Does something to messages, 1,000 at most, in one atomic step. Answers one by one, in order.
pub(crate) async fn on_messages(
    context: &Context,
    queue: &str,
    ids: Vec<MessageId>,
    action: Action,
) -> Result<Vec<Outcome>, Failure> {
    context.require(action.needs())?;
    let (name, queue) = context.named(queue)?;
    let id = if let [id] = &ids[..] { Some(id.to_string()) } else { None };
    let audit = Audit { messages: ids.len(), id, ..Audit::new(context, action.name(), name) };
    let queue = queue.clone();
    to_the_end(async move {
        let result = apply(&queue, ids, action).await;
        audit.log(&result.as_deref().map_or_else(Failure::detail, summary));
        result
    })
    .await?
}

/// The same, without asking who wants it, and without a line in the log.
pub(crate) async fn apply(
    queue: &Queue<Bytes, Raw>,
    ids: Vec<MessageId>,
    action: Action,
) -> Result<Vec<Outcome>, Failure> {
    outcomes(queue.apply(&action.op(ids)).await?.reply)
}

/// Pauses or resumes a queue. Whether that changed anything.
pub(crate) async fn switch(context: &Context, queue: &str, pause: bool) -> Result<bool, Failure> {
    context.require(Role::Operator)?;
    let (name, queue) = context.named(queue)?;
    let (op, action) = if pause { (Op::Pause, "pause") } else { (Op::Resume, "resume") };
    let audit = Audit::new(context, action, name);
    let queue = queue.clone();
    let result = to_the_end(async move {
        let result = queue.apply(&op).await;
        audit.log(&result.as_ref().map_or_else(Error::to_string, |_| "done".to_owned()));
        result
    });
    let reply = result.await??.reply;
    Ok(matches!(reply, Reply::Pause { changed: true } | Reply::Resume { changed: true }))
}

/// Runs an operation and what logs it in a task of their own: a client that closes its connection
/// drops the handler, when the server may have executed the operation already.
pub(crate) async fn to_the_end<T: Send + 'static>(
    work: impl Future<Output = T> + Send + 'static,
) -> Result<T, Failure> {
    tokio::spawn(work.in_current_span()).await.map_err(|_| Failure::Aborted)
}

/// A line of the audit log.
pub(crate) struct Audit {
    visitor: String,
    action: &'static str,
    queue: String,
    messages: usize,
    id: Option<String>,
    job: Option<String>,
    filter: Option<String>,
    rate: Option<u32>,
    limit: Option<u64>,
}

impl Audit {
    /// About an action on a whole queue.
    pub(crate) fn new(context: &Context, action: &'static str, queue: &str) -> Self {
        let visitor = delayline_json::harmless_line(&context.visitor.name);
        Self {
            visitor,
            action,
            queue: queue.to_owned(),
            messages: 0,
            id: None,
            job: None,
            filter: None,
            rate: None,
            limit: None,
        }
    }

    /// About so many messages.
    pub(crate) fn of(self, messages: u64) -> Self {
        Self { messages: usize::try_from(messages).unwrap_or(usize::MAX), ..self }
    }

    /// About the job of this id.
    pub(crate) fn of_job(self, id: &str) -> Self {
        Self { job: Some(id.to_owned()), ..self }
    }

    /// About a job that does this.
    pub(crate) fn with_order(self, order: &Order) -> Self {
        let filter = (!order.asked.is_everything()).then(|| order.asked.to_string());
        Self { filter, rate: order.rate, limit: order.limit, ..self }
    }

    /// Writes the line, once the outcome is known.
    pub(crate) fn log(self, outcome: &str) {
        let Self { visitor, action, queue, messages, id, job, filter, rate, limit } = self;
        tracing::info!(
            target: "delayline_web::audit",
            %visitor,
            action,
            queue,
            messages,
            id,
            job,
            filter,
            rate,
            limit,
            outcome,
            "action"
        );
    }
}

/// How many met which fate: `redriven 5, not_dead 1`.
pub(crate) fn summary(outcomes: &[Outcome]) -> String {
    let mut counts: Vec<(&str, usize)> = Vec::new();
    for outcome in outcomes {
        match counts.iter_mut().find(|(word, _)| *word == outcome.word) {
            Some((_, count)) => *count += 1,
            None => counts.push((outcome.word, 1)),
        }
    }
    counts.iter().map(|(word, count)| format!("{word} {count}")).collect::<Vec<_>>().join(", ")
}

fn outcomes(reply: Reply) -> Result<Vec<Outcome>, Failure> {
    let plain = |word, done| Outcome { word, done, due: None };
    Ok(match reply {
        Reply::Cancel(items) => items
            .into_iter()
            .map(|item| match item {
                Cancelled::Cancelled => plain("cancelled", true),
                Cancelled::InFlight => plain("in_flight", false),
                Cancelled::NotFound => plain("not_found", false),
            })
            .collect(),
        Reply::Reschedule(items) => items
            .into_iter()
            .map(|item| match item {
                Rescheduled::Done { due } => {
                    Outcome { due: Some(due), ..plain("rescheduled", true) }
                }
                Rescheduled::InFlight => plain("in_flight", false),
                Rescheduled::Dead => plain("dead", false),
                Rescheduled::NotFound => plain("not_found", false),
            })
            .collect(),
        Reply::Redrive(items) => items
            .into_iter()
            .map(|item| match item {
                Redriven::Done { due } => Outcome { due: Some(due), ..plain("redriven", true) },
                Redriven::NotDead => plain("not_dead", false),
                Redriven::Unreadable => plain("unreadable", false),
                Redriven::NotFound => plain("not_found", false),
            })
            .collect(),
        Reply::Purge(items) => items
            .into_iter()
            .map(|item| match item {
                Purged::Purged => plain("purged", true),
                Purged::NotDead => plain("not_dead", false),
                Purged::NotFound => plain("not_found", false),
            })
            .collect(),
        _ => return Err(Failure::Protocol),
    })
}
