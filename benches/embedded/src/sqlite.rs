//! A table of messages in SQLite, written as Delayline writes its log: one thread commits whatever
//! has come while it committed before.

use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};

use anyhow::{Context, Result};
use rusqlite::{Connection, params};
use tokio::sync::oneshot;

/// A message, and the task that waits for it.
type Insert = (String, i64, Vec<u8>, oneshot::Sender<bool>);

/// A table in WAL mode with `synchronous=FULL`: a commit is on disk once it returns.
pub(crate) struct Sqlite {
    inserts: Option<Sender<Insert>>,
    thread: Option<JoinHandle<Result<()>>>,
}

impl Sqlite {
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let database = Connection::open(path)?;
        database.pragma_update(None, "journal_mode", "WAL")?;
        database.pragma_update(None, "synchronous", "FULL")?;
        database.execute_batch(
            "CREATE TABLE message (id TEXT PRIMARY KEY, due INTEGER NOT NULL, payload BLOB NOT NULL)
               WITHOUT ROWID;
             CREATE INDEX due ON message (due);",
        )?;
        let (inserts, received) = channel();
        let thread = thread::spawn(move || write(database, &received));
        Ok(Self { inserts: Some(inserts), thread: Some(thread) })
    }

    /// Inserts a message. Returns once it is on disk.
    pub(crate) async fn send(&self, id: String, due: i64, payload: Vec<u8>) -> Result<()> {
        let (done, waits) = oneshot::channel();
        let inserts = self.inserts.as_ref().context("it is closed")?;
        inserts.send((id, due, payload, done))?;
        anyhow::ensure!(waits.await?, "the id was known");
        Ok(())
    }
}

impl Drop for Sqlite {
    fn drop(&mut self) {
        self.inserts = None;
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn write(mut database: Connection, received: &Receiver<Insert>) -> Result<()> {
    while let Ok(first) = received.recv() {
        let batch: Vec<_> = std::iter::once(first).chain(received.try_iter()).collect();
        let transaction = database.transaction()?;
        let mut done = Vec::with_capacity(batch.len());
        {
            let mut insert =
                transaction.prepare_cached("INSERT OR IGNORE INTO message VALUES (?1, ?2, ?3)")?;
            for (id, due, payload, waits) in batch {
                done.push((waits, insert.execute(params![id, due, payload])? == 1));
            }
        }
        transaction.commit()?;
        for (waits, is_new) in done {
            // The task may have ended.
            let _ = waits.send(is_new);
        }
    }
    Ok(())
}
