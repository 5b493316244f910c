//! Actions of visitors on schedules, the same for pages and the API: with the required role, and a
//! line in the audit log.

use delayline::message::Sent;
use delayline::schedules::{Declared, Put, Schedules, Spec};
use delayline::{Enqueued, Error, ErrorKind, MessageId};

use crate::Role;
use crate::audited::{Audit, to_the_end};
use crate::context::Context;
use crate::failure::Failure;

/// An action on a schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    Pause,
    Resume,
    Remove,
    RunNow,
}

/// The result.
#[derive(Debug)]
pub(crate) enum Acted {
    Done,
    /// The message that was sent, or the earlier one that is not finished.
    Sent(Sent),
    /// There is no schedule of this name.
    Unknown,
}

impl Act {
    const fn name(self) -> &'static str {
        match self {
            Self::Pause => "pause schedule",
            Self::Resume => "resume schedule",
            Self::Remove => "remove schedule",
            Self::RunNow => "run schedule",
        }
    }

    async fn of(self, schedules: &Schedules, name: &str) -> Result<Acted, Error> {
        let known = match self {
            Self::Pause => schedules.pause(name).await?,
            Self::Resume => schedules.resume(name).await?,
            Self::Remove => schedules.remove(name).await?,
            Self::RunNow => {
                return Ok(schedules.run_now(name).await?.map_or(Acted::Unknown, Acted::Sent));
            }
        };
        Ok(if known { Acted::Done } else { Acted::Unknown })
    }
}

impl Acted {
    const fn word(&self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Sent(Sent { outcome: Enqueued::Created { .. }, .. }) => "sent",
            Self::Sent(_) => "not_sent",
            Self::Unknown => "not_found",
        }
    }
}

/// Performs an action on a schedule.
pub(crate) async fn act(context: &Context, name: &str, act: Act) -> Result<Acted, Failure> {
    context.require(Role::Operator)?;
    let (queue, schedules) = context.schedules()?;
    let id = MessageId::new(name.to_owned())?;
    let audit = Audit::new(context, act.name(), queue).of_one(&id);
    let (schedules, name) = (schedules.clone(), name.to_owned());
    to_the_end(async move {
        let result = act.of(&schedules, &name).await;
        audit.log(&result.as_ref().map_or_else(Error::to_string, |acted| acted.word().to_owned()));
        result.map_err(failure)
    })
    .await?
}

/// Creates a schedule, or changes it.
pub(crate) async fn put(context: &Context, name: &str, spec: Spec) -> Result<Put, Failure> {
    context.require(Role::Operator)?;
    let (queue, schedules) = context.schedules()?;
    let id = MessageId::new(name.to_owned())?;
    let audit = Audit::new(context, "put schedule", queue).of_one(&id);
    let (schedules, name) = (schedules.clone(), name.to_owned());
    to_the_end(async move {
        let result = schedules.put(&name, &spec).await;
        audit.log(&result.as_ref().map_or_else(Error::to_string, |put| word(*put).to_owned()));
        result.map_err(failure)
    })
    .await?
}

/// Replaces the schedules of an owner.
pub(crate) async fn declare(
    context: &Context,
    owner: &str,
    specs: Vec<(String, Spec)>,
) -> Result<Declared, Failure> {
    context.require(Role::Operator)?;
    let (queue, schedules) = context.schedules()?;
    let id = MessageId::new(owner.to_owned())?;
    let audit = Audit::new(context, "declare schedules", queue).of_one(&id);
    let audit = audit.of(u64::try_from(specs.len()).unwrap_or(u64::MAX));
    let (schedules, owner) = (schedules.clone(), owner.to_owned());
    to_the_end(async move {
        let result = schedules.declare(&owner, specs).await;
        audit.log(&result.as_ref().map_or_else(Error::to_string, summary));
        result.map_err(failure)
    })
    .await?
}

/// The outcome of a put in a word.
pub(crate) const fn word(put: Put) -> &'static str {
    match put {
        Put::Created => "created",
        Put::Unchanged => "unchanged",
        _ => "changed",
    }
}

fn summary(declared: &Declared) -> String {
    let Declared { created, changed, unchanged, removed, .. } = declared;
    format!("created {created}, changed {changed}, unchanged {unchanged}, removed {removed}")
}

/// A message that is not a schedule is a fault of the stored data, not of the request.
pub(crate) fn failure(error: Error) -> Failure {
    match error.kind() {
        ErrorKind::Decode => Failure::Busy(format!(
            "the queue of schedules has a message that this server cannot read as a schedule: \
             {error}"
        )),
        _ => Failure::Queue(error),
    }
}
