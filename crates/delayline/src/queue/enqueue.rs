//! One enqueue operation, repeated until its outcome is known.

use std::collections::BTreeMap;
use std::time::Duration;

use delayline_core::{ErrorClass, FinishedIds, Known, NewMessage, Op, Reply};
use futures_util::future::join_all;
use tokio::sync::watch;
use tokio::time::Instant;

use super::sent::Sent;
use crate::Error;
use crate::client::{Client, Tries};

/// The result for a message, with the caller's key for it.
pub(crate) struct Answered<K> {
    pub(crate) key: K,
    pub(crate) result: Result<Sent, Error>,
}

/// The operations of one call.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// How many have ended.
    pub(crate) over: usize,
    /// Why the first one failed, by shard.
    pub(crate) failed: BTreeMap<usize, Error>,
}

/// When an operation may be repeated: once all before it have ended.
#[derive(Clone, Debug)]
pub(crate) struct Turn {
    /// How many are before it.
    pub(crate) before: usize,
    pub(crate) progress: watch::Receiver<Progress>,
}

impl Turn {
    /// The turn of the only operation of a call.
    pub(crate) fn of_only() -> Self {
        Self { before: 0, progress: watch::channel(Progress::default()).1 }
    }

    /// Waits for it. Returns `false` if one before it has failed at this shard.
    async fn comes(&mut self, shard: usize) -> bool {
        let before = self.before;
        let progress = self.progress.wait_for(|progress| progress.over >= before).await;
        // Without a sender of the progress, no caller waits for this operation either.
        progress.is_ok_and(|progress| !progress.failed.contains_key(&shard))
    }
}

/// Sends messages until their outcome is known, like [`Group`]: those of each shard separately.
/// They must fit in one operation. It is sent at once, and repeated when its turn comes. Returns
/// one result per message, in any order.
pub(crate) async fn enqueue<K>(
    client: &Client,
    give_up: Instant,
    items: Vec<(K, NewMessage)>,
    turn: Turn,
) -> Vec<Answered<K>> {
    let mut by_shard = BTreeMap::<_, Vec<_>>::new();
    for (key, message) in items {
        let shard = client.shard_of(&message);
        by_shard.entry(shard).or_default().push((key, give_up, message));
    }
    let groups = by_shard.into_iter().map(async |(shard, items)| {
        let mut group = Group::new(items.into_iter());
        let (mut turn, mut answered) = (turn.clone(), group.attempt(client).await);
        while !group.is_over() {
            // The turn may come after the time limit.
            answered.extend(match turn.comes(shard).await && Instant::now() < group.give_up() {
                true => group.attempt(client).await,
                false => group.end(),
            });
        }
        answered
    });
    join_all(groups).await.into_iter().flatten().collect()
}

/// Messages that are sent in one operation until their outcome is known, within bounds: see
/// [`Tries`]. Each has its own time limit, so the others neither wait longer nor give up earlier.
///
/// An operation that may have been executed is sent again, with one exception: messages that may
/// reuse a finished id, are not updates, and are not throttled for long enough. If the first
/// attempt was executed and the message has been handled since, a second attempt would create
/// another message. So such messages fail with [`ErrorClass::Ambiguous`] at once.
pub(crate) struct Group<K> {
    began: Instant,
    /// One for each message of `op`, in the same order.
    members: Vec<Member<K>>,
    op: Op,
    tries: Tries,
    /// Why the latest attempt failed, and the time of the next one.
    failure: Option<(Error, Instant)>,
}

struct Member<K> {
    key: K,
    give_up: Instant,
}

impl<K> Group<K> {
    pub(crate) fn new(items: impl Iterator<Item = (K, Instant, NewMessage)>) -> Self {
        let (members, messages): (Vec<_>, _) =
            items.map(|(key, give_up, message)| (Member { key, give_up }, message)).unzip();
        let began = Instant::now();
        let give_up = members.iter().map(|member| member.give_up).max().unwrap_or(began);
        let op = Op::Enqueue(messages);
        let tries = Tries::of(&op, give_up);
        Self { began, members, op, tries, failure: None }
    }

    /// Returns `true` if all messages have their results.
    pub(crate) const fn is_over(&self) -> bool {
        self.members.is_empty()
    }

    /// No attempt starts after this.
    const fn give_up(&self) -> Instant {
        self.tries.give_up()
    }

    /// Why the latest attempt failed, and the time of the next one.
    pub(crate) fn failure(&self) -> Option<&(Error, Instant)> {
        self.failure.as_ref().filter(|_| !self.is_over())
    }

    /// Sends the remaining messages once. Returns the results that are known now.
    pub(crate) async fn attempt(&mut self, client: &Client) -> Vec<Answered<K>> {
        if let Some((_, next)) = &self.failure {
            let pause = next.saturating_duration_since(Instant::now());
            client.pause(&self.op, pause).await;
        }
        let error = match client.apply_once(&self.op).await {
            Ok(applied) => return self.answered(applied.reply),
            Err(error) => error,
        };
        let mut failed = Vec::new();
        let failure = Error::from(error.clone());
        if error.class() == ErrorClass::Ambiguous {
            let began = self.began;
            let patience = |give_up: Instant| give_up.saturating_duration_since(began);
            let is_last = |message: &_, give_up| is_unrepeatable(message, patience(give_up));
            self.fail(is_last, &failure, &mut failed);
        }
        match self.tries.failed(error.clone()) {
            Ok(pause) => {
                let next = Instant::now() + pause;
                let error = self.tries.reported(error);
                self.fail(|_, give_up| next >= give_up, &error, &mut failed);
                self.failure = Some((failure, next));
            }
            Err(error) => self.fail(|_, _| true, &error, &mut failed),
        }
        failed
    }

    /// Fails the remaining messages as the latest attempt has failed.
    fn end(&mut self) -> Vec<Answered<K>> {
        let mut failed = Vec::new();
        if let Some((error, _)) = self.failure.take() {
            let error = self.tries.reported(error);
            self.fail(|_, _| true, &error, &mut failed);
        }
        failed
    }

    fn answered(&mut self, reply: Reply) -> Vec<Answered<K>> {
        let members = std::mem::take(&mut self.members);
        let Op::Enqueue(messages) = &mut self.op else { return Vec::new() };
        let mut outcomes = match reply {
            Reply::Enqueue(outcomes) if outcomes.len() == members.len() => outcomes,
            _ => Vec::new(),
        }
        .into_iter();
        let repeated = self.tries.repeated();
        let items = members.into_iter().zip(messages.drain(..));
        let answered = items.map(|(Member { key, .. }, NewMessage { id, .. })| {
            let outcome = outcomes.next().ok_or_else(Error::unexpected_reply);
            Answered { key, result: outcome.map(|outcome| Sent { id, outcome, repeated }) }
        });
        answered.collect()
    }

    /// Fails the messages that are not sent again, and keeps the rest.
    fn fail(
        &mut self,
        is_last: impl Fn(&NewMessage, Instant) -> bool,
        error: &Error,
        failed: &mut Vec<Answered<K>>,
    ) {
        let Op::Enqueue(messages) = &mut self.op else { return };
        let mut kept = Vec::with_capacity(messages.len());
        for (member, message) in self.members.drain(..).zip(messages.drain(..)) {
            if is_last(&message, member.give_up) {
                failed.push(Answered { key: member.key, result: Err(error.clone()) });
            } else {
                kept.push((member, message));
            }
        }
        (self.members, *messages) = kept.into_iter().unzip();
    }
}

/// The token of an update and a throttled id are remembered even after the message has finished.
fn is_unrepeatable(message: &NewMessage, patience: Duration) -> bool {
    let is_throttled = message.throttle.is_some_and(|window| Duration::from(window) > patience);
    message.finished_ids == FinishedIds::Reuse && message.known == Known::Refuse && !is_throttled
}
