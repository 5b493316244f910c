//! The outcomes of messages, one by one or counted.

use std::process::ExitCode;

use delayline::codec::Raw;
use delayline::{Bytes, Found, MessageId, Queue, Timestamp};
use delayline_json::{self as json, harmless_line};
use serde_json::{Map, Value};

use crate::failure::{Failure, SOME_BAD};
use crate::print::write;

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

    /// Counts and prints the outcomes of a batch. Messages that were not found are finished, if the
    /// queue still knows that. If it cannot be asked, all outcomes are printed before that failure.
    pub(crate) async fn tell_all(
        &mut self,
        queue: &Queue<Bytes, Raw>,
        ids: &[MessageId],
        fates: impl IntoIterator<Item = Fate>,
    ) -> Result<(), Failure> {
        let fates: Vec<_> = fates.into_iter().collect();
        let lost = ids.iter().zip(&fates).filter(|(_, fate)| fate.word == NOT_FOUND.word);
        let found = queue.get_many(lost.map(|(id, _)| id.clone())).await;
        let mut known = found.iter().flatten();
        for (id, fate) in ids.iter().zip(fates) {
            let known = if fate.word == NOT_FOUND.word { known.next() } else { None };
            let fate = match known {
                Some(Found::Finished(status)) => Fate::not_done(status.name()),
                _ => fate,
            };
            self.tell(id, fate)?;
        }
        found?;
        Ok(())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_was_done_is_told_if_the_rest_cannot_be_read() {
        let directory = tempfile::tempdir().unwrap();
        let url = format!("file:{}", directory.path().display());
        let connection = delayline::connect(&url).await.unwrap();
        let queue: Queue<Bytes> = connection.queue("orders").await.unwrap();
        let queue = queue.codec(Raw);
        connection.close().await.unwrap();
        let ids = ["a", "b"].map(|id| MessageId::try_from(id).unwrap());
        let mut report = Report::new(false, &[]);
        let told = report.tell_all(&queue, &ids, [Fate::done("cancelled"), NOT_FOUND]);
        assert!(told.await.is_err());
        assert_eq!(report.words, [("cancelled", 1), ("not_found", 1)]);
    }
}
