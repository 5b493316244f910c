//! The outcomes of messages, one by one or counted.

use std::collections::HashMap;
use std::process::ExitCode;

use delayline::codec::Raw;
use delayline::{Bytes, Found, MessageId, Queue, Timestamp};
use delayline_json::{self as json, harmless_line};
use serde_json::{Map, Value};

use crate::failure::{Failure, SOME_BAD};
use crate::print::write;

/// The line for ids that were not found: that they are finished, if the queue still knows that.
pub(crate) async fn not_found(
    queue: &Queue<Bytes, Raw>,
    ids: impl IntoIterator<Item = &MessageId>,
) -> Result<HashMap<MessageId, Fate>, Failure> {
    let ids: Vec<_> = ids.into_iter().cloned().collect();
    let found = queue.get_many(ids.iter().cloned()).await?;
    let fate = |found: &Found<Bytes>| match found {
        Found::Finished(status) => Fate::not_done(status.name()),
        _ => NOT_FOUND,
    };
    let fates = found.iter().map(fate);
    Ok(ids.into_iter().zip(fates).collect())
}

/// The outcome for one message.
#[derive(Clone, Copy)]
pub(crate) struct Fate {
    /// In words, with `_` between them.
    pub(crate) word: &'static str,
    /// Whether it is the requested outcome.
    pub(crate) done: bool,
    /// When the message is due now.
    pub(crate) due: Option<Timestamp>,
}

impl Fate {
    pub(crate) const fn done(word: &'static str) -> Self {
        Self { word, done: true, due: None }
    }

    pub(crate) const fn due(word: &'static str, due: Timestamp) -> Self {
        Self { word, done: true, due: Some(due) }
    }

    pub(crate) const fn not_done(word: &'static str) -> Self {
        Self { word, done: false, due: None }
    }
}

/// Nothing is known of it.
pub(crate) const NOT_FOUND: Fate = Fate::not_done("not_found");

/// The fates of all messages.
pub(crate) struct Report {
    as_json: bool,
    words: Vec<(&'static str, u64)>,
    not_done: u64,
}

impl Report {
    /// Nothing yet. Of `words` the count will tell in any case.
    pub(crate) fn new(as_json: bool, words: &[&'static str]) -> Self {
        Self { as_json, words: words.iter().map(|word| (*word, 0)).collect(), not_done: 0 }
    }

    /// Counts a message.
    pub(crate) fn count(&mut self, fate: Fate) {
        self.not_done += u64::from(!fate.done);
        match self.words.iter_mut().find(|(word, _)| *word == fate.word) {
            Some((_, count)) => *count += 1,
            None => self.words.push((fate.word, 1)),
        }
    }

    /// Counts a message, and prints its outcome on stdout.
    pub(crate) fn tell(&mut self, id: &MessageId, fate: Fate) -> Result<(), Failure> {
        self.count(fate);
        if !self.as_json {
            let due = fate.due.map(|due| format!(", due {due}")).unwrap_or_default();
            let id = harmless_line(&id.to_string());
            return write(&format!("{id}: {}{due}\n", fate.word.replace('_', " ")));
        }
        let mut object = json::id(id);
        object.insert("outcome".to_owned(), fate.word.into());
        if let Some(due) = fate.due {
            object.insert("due".to_owned(), due.to_string().into());
        }
        write(&json::line(&object).map_err(|error| Failure::other("no JSON", &error))?)
    }

    /// Says on stdout how many met which fate.
    pub(crate) fn summary(&self) -> Result<(), Failure> {
        if self.as_json {
            let counts = self.words.iter().map(|&(word, count)| (word.to_owned(), count.into()));
            let object = Value::Object(counts.collect::<Map<_, _>>());
            return write(&format!("{object}\n"));
        }
        let words = self.words.iter().map(|(word, n)| format!("{} {n}", word.replace('_', " ")));
        write(&(words.collect::<Vec<_>>().join(", ") + "\n"))
    }

    /// Whether all was done.
    pub(crate) fn code(&self) -> ExitCode {
        if self.not_done == 0 { ExitCode::SUCCESS } else { ExitCode::from(SOME_BAD) }
    }
}
