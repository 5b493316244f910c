//! Checks the promises about one id on a history, without the model: its updates are delivered, and
//! each of its windows has one message.

use std::collections::HashMap;

use delayline_core::{
    Cancelled, Delivery, Enqueued, Known, Lease, MessageId, NewMessage, Op, Purged, Reply, Settled,
    Timestamp, UpdateContent,
};
use delayline_testkit::Call;

/// Number of observations that the checks were based on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Kept {
    /// Updates that were accepted.
    pub(crate) updates: usize,
    /// Followers that were delivered.
    pub(crate) followers: usize,
    /// Sends that were refused because their id was throttled.
    pub(crate) throttled: usize,
}

/// Follows every id through the calls, in the order of their execution, to the drained end.
///
/// # Errors
///
/// The first violation, beginning with the number of the guarantee.
pub(crate) fn check(order: &[Call]) -> Result<Kept, String> {
    let mut books = Books::default();
    for (n, call) in order.iter().enumerate() {
        books.enter(call).map_err(|reason| format!("{reason}, in call {n}: {:?}", call.op))?;
    }
    match books.ids.iter().find(|(_, known)| known.owed) {
        Some((id, _)) => Err(format!("G29: the latest update of {id} was never delivered")),
        None => Ok(books.kept),
    }
}

#[derive(Default)]
struct Books {
    ids: HashMap<MessageId, Book>,
    /// The latest instant so far: a window that has ended stays so after the clock is set back.
    latest: Timestamp,
    kept: Kept,
}

/// The known facts about an id.
#[derive(Default)]
struct Book {
    /// The message that the next lease delivers, if the replies determine it.
    content: Option<NewMessage>,
    /// Whether the content is that of an update, and has not been delivered yet.
    owed: bool,
    /// Whether the content follows a message that a worker holds.
    follows: bool,
    lease: Option<Lease>,
    /// The end of the window, before which no other throttled message is created.
    throttled_until: Option<Timestamp>,
}

impl Books {
    fn enter(&mut self, call: &Call) -> Result<(), String> {
        let at = call.applied.at;
        self.latest = self.latest.max(at);
        match (&call.op, &call.applied.reply) {
            (Op::Enqueue(messages), Reply::Enqueue(answers)) => {
                self.enqueue_all(at, messages, answers)?;
            }
            (Op::HandOff(items), Reply::HandOff(answers)) => {
                for (item, answer) in items.iter().zip(answers) {
                    if matches!(answer.settled, Settled::Done { .. }) {
                        self.enqueue_all(at, &item.messages, &answer.messages)?;
                    }
                }
            }
            (_, Reply::Claim(claimed)) => self.deliver_all(&claimed.deliveries)?,
            (_, Reply::Relay(relayed)) => relayed.ids.iter().for_each(|id| self.end(id)),
            (Op::Cancel(ids), Reply::Cancel(answers)) => {
                let ended = ids.iter().zip(answers).filter(|(_, answer)| {
                    matches!(answer, Cancelled::Cancelled | Cancelled::InFlight)
                });
                ended.for_each(|(id, _)| self.end(id));
            }
            (Op::Purge(ids), Reply::Purge(answers)) => {
                let ended =
                    ids.iter().zip(answers).filter(|(_, answer)| **answer == Purged::Purged);
                ended.for_each(|(id, _)| self.end(id));
            }
            _ => {}
        }
        Ok(())
    }

    fn enqueue_all(
        &mut self,
        at: Timestamp,
        messages: &[NewMessage],
        answers: &[Enqueued],
    ) -> Result<(), String> {
        messages
            .iter()
            .zip(answers)
            .try_for_each(|(message, answer)| self.enqueue(at, message, *answer))
    }

    fn enqueue(
        &mut self,
        at: Timestamp,
        message: &NewMessage,
        answer: Enqueued,
    ) -> Result<(), String> {
        let (id, latest) = (&message.id, self.latest);
        let book = self.ids.entry(id.clone()).or_default();
        let update = match message.known {
            Known::Update(update) => Some(update.content),
            _ => None,
        };
        // A message that expires may end before any delivery.
        let owed = update.is_some() && message.expires.is_none();
        match answer {
            Enqueued::Created { .. } => {
                if book.owed {
                    return Err(format!("G29: {id} was created before its update was delivered"));
                }
                if let Some(window) = message.throttle {
                    let end = book.throttled_until.replace(at.after(window));
                    if let Some(end) = end.filter(|end| *end > latest) {
                        return Err(format!("G33: {id} was throttled until {end}"));
                    }
                }
                *book = Book {
                    content: Some(message.clone()),
                    owed,
                    throttled_until: book.throttled_until,
                    ..Book::default()
                };
            }
            Enqueued::Updated { .. } | Enqueued::Following { .. } => match (update, answer) {
                (None, _) => {
                    return Err(format!("G29: {id} is no update, but the reply was {answer:?}"));
                }
                (Some(UpdateContent::Keep), Enqueued::Following { replaced: true }) => {}
                // A waiting message keeps its content; a dead one does not.
                (Some(UpdateContent::Keep), Enqueued::Updated { .. }) => {
                    (book.content, book.owed, book.follows) = (None, false, false);
                }
                (Some(_), _) => {
                    (book.content, book.owed) = (Some(message.clone()), owed);
                    book.follows = matches!(answer, Enqueued::Following { .. });
                }
            },
            Enqueued::Throttled { until } => {
                if book.throttled_until != Some(until) {
                    let end = book.throttled_until;
                    return Err(format!(
                        "G33: the reply to {id} was {until}, its window is {end:?}"
                    ));
                }
                self.kept.throttled += 1;
            }
            _ => return Ok(()),
        }
        if update.is_some() && !matches!(answer, Enqueued::Throttled { .. }) {
            self.kept.updates += 1;
        }
        Ok(())
    }

    fn deliver_all(&mut self, deliveries: &[Delivery]) -> Result<(), String> {
        deliveries.iter().try_for_each(|delivery| self.deliver(delivery))
    }

    fn deliver(&mut self, delivery: &Delivery) -> Result<(), String> {
        let message = &delivery.message;
        let id = &message.info.id;
        let book = self.ids.entry(id.clone()).or_default();
        // The claim was repeated.
        if book.lease == Some(delivery.lease) {
            return Ok(());
        }
        let is_it = |content: &NewMessage| {
            content.payload == message.payload && content.headers == message.headers
        };
        if !book.content.as_ref().is_none_or(is_it) {
            return Err(format!("G29: {id} was delivered with what an update had replaced"));
        }
        self.kept.followers += usize::from(book.follows);
        (book.owed, book.follows, book.lease) = (false, false, Some(delivery.lease));
        Ok(())
    }

    /// No further delivery of the id is expected.
    fn end(&mut self, id: &MessageId) {
        let book = self.ids.entry(id.clone()).or_default();
        (book.content, book.owed, book.follows) = (None, false, false);
    }
}

#[cfg(test)]
mod tests;
