//! One enqueue operation, repeated until its outcome is known.

use std::time::Duration;

use delayline_core::{ErrorClass, FinishedIds, Known, NewMessage, Op, Reply};
use tokio::time::Instant;

use super::sent::Sent;
use crate::Error;
use crate::client::{Client, Tries};

/// The result for a message, with the caller's key for it.
pub(crate) struct Answered<K> {
    pub(crate) key: K,
    pub(crate) message: NewMessage,
    pub(crate) result: Result<Sent, Error>,
}

/// Sends messages until their outcome is known, within bounds: see [`Tries`]. They must fit in one
/// operation. Returns one result per message, in any order.
///
/// An operation that may have been executed is sent again, with one exception: messages that may
/// reuse a finished id, are not updates, and are not throttled for long enough. If the first
/// attempt was executed and the message has been handled since, a second attempt would create
/// another message. So such messages fail with [`ErrorClass::Ambiguous`] at once.
pub(crate) async fn enqueue<K>(
    client: &Client,
    give_up: Instant,
    items: Vec<(K, NewMessage)>,
) -> Vec<Answered<K>> {
    let (mut keys, messages): (Vec<K>, Vec<_>) = items.into_iter().unzip();
    let mut op = Op::Enqueue(messages);
    let mut answered = Vec::with_capacity(keys.len());
    let mut tries = Tries::until(give_up);
    let patience = give_up.saturating_duration_since(Instant::now());
    let results = loop {
        match client.apply_once(&op).await {
            Ok(applied) => break Ok(applied.reply),
            Err(error) => {
                if error.class() == ErrorClass::Ambiguous {
                    let error = Error::from(error.clone());
                    take_unrepeatable(&mut op, patience, &mut keys, &error, &mut answered);
                }
                match tries.failed(error) {
                    _ if keys.is_empty() => return answered,
                    Ok(pause) => client.pause(&op, pause).await,
                    Err(error) => break Err(error),
                }
            }
        }
    };
    let Op::Enqueue(messages) = op else { return answered };
    let mut outcomes = match results {
        Ok(Reply::Enqueue(outcomes)) if outcomes.len() == messages.len() => {
            Ok(outcomes.into_iter())
        }
        Ok(_) => Err(Error::unexpected_reply()),
        Err(error) => Err(error),
    };
    answered.extend(keys.into_iter().zip(messages).map(|(key, message)| {
        let result = match &mut outcomes {
            Ok(outcomes) => outcomes.next().ok_or_else(Error::unexpected_reply),
            Err(error) => Err(error.clone()),
        };
        let sent = |outcome| Sent { id: message.id.clone(), outcome, repeated: tries.repeated() };
        let result = result.map(sent);
        Answered { key, message, result }
    }));
    answered
}

/// Fails the messages that must not be sent twice, and keeps the rest.
fn take_unrepeatable<K>(
    op: &mut Op,
    patience: Duration,
    keys: &mut Vec<K>,
    error: &Error,
    answered: &mut Vec<Answered<K>>,
) {
    let Op::Enqueue(messages) = op else { return };
    if !messages.iter().any(|message| is_unrepeatable(message, patience)) {
        return;
    }
    let all = keys.drain(..).zip(messages.drain(..)).collect::<Vec<_>>();
    for (key, message) in all {
        if is_unrepeatable(&message, patience) {
            answered.push(Answered { key, message, result: Err(error.clone()) });
        } else {
            keys.push(key);
            messages.push(message);
        }
    }
}

/// The token of an update and a throttled id are remembered even after the message has finished.
fn is_unrepeatable(message: &NewMessage, patience: Duration) -> bool {
    let is_throttled = message.throttle.is_some_and(|window| Duration::from(window) > patience);
    message.finished_ids == FinishedIds::Reuse && message.known == Known::Refuse && !is_throttled
}
