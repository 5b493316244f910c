//! Actions of visitors, the same for pages and the API: with the required role, and a line in the
//! audit log.

use delayline::admin::Limits;
use delayline::backend::{NewMessage, Op, Reply, SetLimits};
use delayline::codec::Raw;
use delayline::{Bytes, MessageId, Queue, Timestamp};
use serde_json::Value;
use tracing::Instrument as _;

use crate::Role;
use crate::action::{Action, Outcome, apply, summary};
use crate::bulk::Order;
use crate::context::Context;
use crate::failure::Failure;
use crate::served::counted;

/// Performs an action on at most 1,000 messages, in one atomic step. Returns one result per
/// message, in order.
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

/// Sends a message. Returns the outcome in a word.
pub(crate) async fn send(
    context: &Context,
    queue: &str,
    action: &'static str,
    message: NewMessage,
) -> Result<&'static str, Failure> {
    context.require(Role::Operator)?;
    let (name, queue) = context.named(queue)?;
    let id = Some(message.id.to_string());
    let audit = Audit { messages: 1, id, ..Audit::new(context, action, name) };
    let queue = queue.clone();
    to_the_end(async move {
        let sent = queue.send_many([message]).await.into_iter().next();
        let result = sent.ok_or(Failure::Protocol).and_then(|sent| Ok(sent?.outcome.name()));
        audit.log(&result.as_ref().map_or_else(Failure::detail, |word| (*word).to_owned()));
        result
    })
    .await?
}

/// Changes limits of a queue. Returns whether that changed anything.
pub(crate) async fn set_limits(
    context: &Context,
    name: &str,
    queue: &Queue<Bytes, Raw>,
    set: SetLimits,
) -> Result<bool, Failure> {
    context.require(Role::Operator)?;
    let (before, at) = counted(queue).await?;
    change(context, "set limits", name, queue, Op::SetLimits(set), body(&before.limits, at)).await
}

/// The body of a request of the API that sets these limits.
fn body(limits: &Limits, at: Timestamp) -> String {
    let mut body = delayline_json::limits(limits);
    if let Value::Object(members) = &mut body {
        members.retain(|name, _| !matches!(&**name, "rate_open_at" | "held_until"));
        let hold = limits.held_until.map(|until| format!("{} ms", until.since(at).as_millis()));
        members.insert("hold".to_owned(), hold.into());
    }
    body.to_string()
}

/// Pauses or resumes a queue. Returns whether that changed anything.
pub(crate) async fn switch(context: &Context, queue: &str, pause: bool) -> Result<bool, Failure> {
    context.require(Role::Operator)?;
    let (name, queue) = context.named(queue)?;
    let (op, action) = if pause { (Op::Pause, "pause") } else { (Op::Resume, "resume") };
    let undo = if pause { "resume" } else { "pause" };
    change(context, action, name, queue, op, undo.to_owned()).await
}

/// Applies an operation that changes a setting of a queue. Returns whether that changed anything:
/// only then is there something to undo.
async fn change(
    context: &Context,
    action: &'static str,
    name: &str,
    queue: &Queue<Bytes, Raw>,
    op: Op,
    undo: String,
) -> Result<bool, Failure> {
    let (audit, queue) = (Audit::new(context, action, name), queue.clone());
    to_the_end(async move {
        let result = queue.apply(&op).await.map(|applied| {
            matches!(
                applied.reply,
                Reply::SetLimits { changed: true }
                    | Reply::Pause { changed: true }
                    | Reply::Resume { changed: true }
            )
        });
        match &result {
            Ok(true) => audit.undone_by(undo).log("done"),
            Ok(false) => audit.log("done"),
            // It may have been done.
            Err(error) => audit.undone_by(undo).log(&error.to_string()),
        }
        Ok(result?)
    })
    .await?
}

/// Runs an operation and its logging in a separate task. A client that closes its connection drops
/// the handler, when the server may have executed the operation already.
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
    undo: Option<String>,
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
            undo: None,
        }
    }

    /// About one message or schedule.
    pub(crate) fn of_one(self, id: &MessageId) -> Self {
        Self { id: Some(id.to_string()), ..self }
    }

    /// What takes the action back: another action, or the body of a request that sets the limits
    /// there were.
    fn undone_by(self, undo: String) -> Self {
        Self { undo: Some(undo), ..self }
    }

    /// Sets the number of messages.
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
        let Self { visitor, action, queue, messages, id, job, filter, rate, limit, undo } = self;
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
            undo,
            "action"
        );
    }
}
