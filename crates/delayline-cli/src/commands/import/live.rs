//! `delayline import zset --live`: entries are moved as the old producers add them.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use bytes::Bytes;
use delayline::backend::UpdateDue;
use delayline::backend::{NewMessage, Schedule};
use delayline::codec::Raw;
use delayline::message::FinishedIds;
use delayline::update::{Known, Update, UpdateContent};
use delayline::{Cancelled, Enqueued, MessageId, Queue};
use delayline_redis_protocol::{ConnectOptions, Topology};
use indicatif::ProgressBar;

use super::counts::{Counts, unnamed};
use super::ids::hashed_id;
use super::source::{Followed, Looked, PAGE, Source, Taken};
use crate::args::{How, Live, OldQueue, Target};
use crate::commands::durations::duration_of;
use crate::confirm::number;
use crate::failure::Failure;
use crate::signals::Signals;

/// Fails if the sorted set is not on the queue's server, or that is not a single one.
pub(super) fn check(target: &Target, how: &How, live: &Live) -> Result<Duration, Failure> {
    const INSTEAD: &str = "stop the old producers, and import without --live";
    if how.from_url.as_ref().is_some_and(|from| *from != target.url) {
        let sentence = "--live is for a sorted set on the queue's own server, that of --url";
        return Err(Failure::usage(sentence).hint(INSTEAD));
    }
    let options: ConnectOptions = target.url.parse().map_err(delayline::Error::from)?;
    if !matches!(options.topology, Topology::Single(_)) {
        let sentence = "--live is for a queue on a single server, without Sentinel or Cluster";
        return Err(Failure::usage(sentence).hint(INSTEAD));
    }
    interval(live)
}

/// The pause between two passes.
pub(super) fn interval(live: &Live) -> Result<Duration, Failure> {
    let interval = duration_of("--interval", &live.interval)?;
    if !(Duration::from_millis(10)..=Duration::from_secs(3_600)).contains(&interval) {
        return Err(Failure::usage("--interval is from 10ms to 1h"));
    }
    Ok(interval)
}

/// The keys of a sorted set.
pub(super) fn followed(from: &OldQueue) -> Option<Followed> {
    let OldQueue::Zset { key, unit, payloads, .. } = from else { return None };
    Some(Followed { key: key.clone(), unit: *unit, payloads: payloads.clone() })
}

/// From there to here, for as long as it is wanted.
pub(super) struct Follow {
    pub(super) of: Followed,
    pub(super) source: Source,
    pub(super) queue: Queue<Bytes, Raw>,
    pub(super) until_empty: bool,
    pub(super) interval: Duration,
    pub(super) counts: Counts,
    /// What the last pass has left, the token of its mark, and why.
    pub(super) left: HashMap<Bytes, (Bytes, &'static str)>,
}

impl Follow {
    /// Until a signal, or until there is nothing to move.
    pub(super) async fn run(&mut self, bar: &ProgressBar) -> Result<(), Failure> {
        let mut signals = Signals::listen()?;
        let result = self.passes(&mut signals, bar).await;
        let mut reasons = BTreeMap::new();
        for (_, reason) in self.left.values() {
            *reasons.entry(*reason).or_default() += 1;
        }
        (self.counts.left, self.counts.reasons) = (self.left.len() as u64, reasons);
        result
    }

    async fn passes(&mut self, signals: &mut Signals, bar: &ProgressBar) -> Result<(), Failure> {
        self.recover().await?;
        let mut told = (Instant::now(), 0);
        loop {
            let before = self.counts.accepted();
            let Some(moved) = self.pass(signals, bar).await? else { break };
            bar.inc(self.counts.accepted() - before);
            if told.0.elapsed() >= TELL_EVERY && self.counts.accepted() > told.1 {
                told = (Instant::now(), self.counts.accepted());
                let count = number(told.1, "message");
                bar.suspend(|| eprintln!("moved {count} so far"));
            }
            if !moved && self.until_empty {
                break;
            }
            let pause = if moved { Duration::ZERO } else { self.interval };
            tokio::select! {
                biased;
                () = signals.next() => break,
                () = tokio::time::sleep(pause) => {}
            }
        }
        // Nothing is on its way.
        let left: Vec<_> = marks(&self.left);
        for left in left.chunks(100) {
            self.source.forget(&self.of, left).await?;
        }
        Ok(())
    }

    /// Withdraws entries that a killed import had sent and that a client has since removed from
    /// the sorted set. Entries that are still there have their mark, and are sent with the same
    /// token.
    async fn recover(&mut self) -> Result<(), Failure> {
        let mut cursor = "0".to_owned();
        loop {
            let gone;
            (cursor, gone) = self.source.gone(&self.of, &cursor).await?;
            self.withdraw(&gone).await?;
            if cursor == "0" {
                return Ok(());
            }
        }
    }

    /// Moves what there is, from the front to the end. Returns whether there was something, and
    /// `None` after a signal.
    async fn pass(
        &mut self,
        signals: &mut Signals,
        bar: &ProgressBar,
    ) -> Result<Option<bool>, Failure> {
        let mut left = HashMap::new();
        let (mut skip, mut moved) = (0, false);
        loop {
            let looked = self.source.look(&self.of, skip, PAGE).await?;
            let count = looked.len() as u64;
            let page = self.page(looked, &mut left, bar).await?;
            moved |= page.sent > 0;
            // New entries can have moved here what this pass has left on an earlier page.
            skip += page.left;
            if left.len() > MOST_LEFT {
                self.left = left;
                let sentence = format!("more than {MOST_LEFT} entries cannot be moved");
                return Err(Failure::input(sentence).hint("is --unit right? --dry-run shows more"));
            }
            if count < PAGE {
                break;
            }
            tokio::select! {
                biased;
                () = signals.next() => {
                    self.left.extend(left);
                    return Ok(None);
                }
                () = std::future::ready(()) => {}
            }
        }
        let before = std::mem::replace(&mut self.left, left);
        let others = before.into_iter().filter(|(member, _)| !self.left.contains_key(member));
        for others in marks(&others.collect()).chunks(100) {
            self.source.forget(&self.of, others).await?;
        }
        Ok(Some(moved))
    }

    /// Sends entries and removes the accepted ones, if they are unchanged.
    async fn page(
        &mut self,
        entries: Vec<Looked>,
        left: &mut HashMap<Bytes, (Bytes, &'static str)>,
        bar: &ProgressBar,
    ) -> Result<Page, Failure> {
        let (mut marks, mut messages, mut page) = (Vec::new(), Vec::new(), Page::default());
        for entry in entries {
            match self.message(&entry) {
                Ok(message) => {
                    marks.push((entry.member, entry.seed));
                    messages.push(message);
                }
                Err(reason) => {
                    if !self.left.contains_key(&entry.member) {
                        match &self.of.payloads {
                            Some(_) => self.counts.name(&entry.member, reason, bar),
                            None => {
                                let name = unnamed(&entry.member, entry.score);
                                self.counts.name(&name, reason, bar);
                            }
                        }
                    }
                    left.insert(entry.member, (entry.seed, reason));
                    page.left += 1;
                }
            }
        }
        let (mut sent, mut failure) = (Vec::new(), None);
        for (mark, result) in marks.into_iter().zip(self.queue.send_many(messages).await) {
            match result.map(|sent| sent.outcome) {
                Ok(Enqueued::Created { .. }) => self.counts.created += 1,
                Ok(Enqueued::Duplicate { .. }) => self.counts.duplicate += 1,
                // The id is of a message that this one has changed, or follows.
                Ok(_) => self.counts.updated += 1,
                Err(error) => {
                    failure.get_or_insert(error);
                    continue;
                }
            }
            sent.push(mark);
        }
        let taken = self.source.take(&self.of, &sent).await?;
        let gone = sent.iter().zip(taken).filter(|(_, taken)| *taken == Taken::Gone);
        let gone: Vec<_> = gone.map(|(mark, _)| mark.clone()).collect();
        self.withdraw(&gone).await?;
        match failure {
            None => Ok(Page { sent: sent.len(), ..page }),
            Some(error) => Err(Failure::from(error).hint(AGAIN)),
        }
    }

    /// Cancels messages whose entries another client removed from the sorted set before this import
    /// took them.
    async fn withdraw(&mut self, gone: &[(Bytes, Bytes)]) -> Result<(), Failure> {
        if gone.is_empty() {
            return Ok(());
        }
        // The id of something that was not sent may be none.
        let ids = gone.iter().filter_map(|(member, _)| self.id(member).ok());
        for outcome in self.queue.cancel_many(ids).await? {
            self.counts.withdrawn += u64::from(outcome == Cancelled::Cancelled);
        }
        self.source.forget(&self.of, gone).await
    }

    /// The same for the same member of the same sorted set.
    fn id(&self, member: &Bytes) -> Result<MessageId, &'static str> {
        let own_id = MessageId::new(member.clone()).ok().filter(|_| self.of.payloads.is_some());
        own_id.map_or_else(|| hashed_id(&[self.of.key.as_bytes(), b"\0", member]), Ok)
    }

    /// The message to send for an entry, or why there is none.
    fn message(&mut self, entry: &Looked) -> Result<NewMessage, &'static str> {
        let (due, payload) = (entry.due?, entry.payload.clone()?);
        let token = entry.token().ok_or("it has no mark")?;
        let mut message = NewMessage::new(self.id(&entry.member)?, payload);
        message.schedule = Schedule::At(due);
        message.known = Known::Update(Update::new(UpdateContent::Replace, UpdateDue::Set, token));
        message.finished_ids = FinishedIds::Reuse;
        message.validate().map_err(|_| "it is not within the limits of a message")?;
        self.counts.due_at(due);
        Ok(message)
    }
}

/// Numbers of entries of one page.
#[derive(Default)]
struct Page {
    sent: usize,
    /// Entries that cannot be moved.
    left: u64,
}

fn marks(left: &HashMap<Bytes, (Bytes, &'static str)>) -> Vec<(Bytes, Bytes)> {
    left.iter().map(|(member, (seed, _))| (member.clone(), seed.clone())).collect()
}

/// Entries that cannot be moved are looked at again and again, and remembered.
const MOST_LEFT: usize = 10_000;

/// How often it is said how much was moved.
const TELL_EVERY: Duration = Duration::from_secs(60);

const AGAIN: &str = "accepted messages were removed from the sorted set; start it again to move \
                     the rest";
